//! What is to be seen, and how keys change it. Nothing here reads, draws or waits.

use std::collections::{HashMap, HashSet};

use super::answer::{Answer, Ask, Function, Node, Row};
use super::keys::Key;
use super::known::{Base, Data};
use super::outline;

/// What the largest part of the screen shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum View {
    #[default]
    Table,
    Tree,
    Timeline,
    Growth,
}

/// A column of the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Column {
    #[default]
    Flat,
    Cum,
    Delta,
    Objects,
    Mean,
    Trend,
    Function,
}

impl Column {
    pub(super) const ALL: [(Self, &'static str); 7] = [
        (Self::Flat, "flat"),
        (Self::Cum, "cum"),
        (Self::Delta, "change"),
        (Self::Objects, "objects"),
        (Self::Mean, "mean"),
        (Self::Trend, "trend"),
        (Self::Function, "function"),
    ];

    pub(super) fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

/// What a key asks of whoever runs the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Nothing,
    /// Leaves the view. A program goes on.
    Leave,
    Interrupt,
    Suspend,
    Redraw,
    Mark,
    Unmark,
    Save,
    Report,
    NextProcess,
    Step(i64),
}

/// How long rows keep their place, in seconds.
const SETTLED: f64 = 3.0;

/// What is to be seen.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) view: View,
    pub(crate) ask: Ask,
    pub(crate) column: Column,
    pub(crate) is_reversed: bool,
    /// The function of the selected row; the first one is selected if there is none.
    pub(crate) selected: Option<Function>,
    /// The rows by function, in the order in which they were put last, and when that was.
    pub(super) order: Vec<Function>,
    ordered: Option<(f64, Ask, Column, bool)>,
    /// Whether the rows stand in the order of their values now.
    pub(crate) is_in_order: bool,
    /// Whether callers, callees and lines have most of the screen.
    pub(crate) is_open: bool,
    pub(crate) shows_callees: bool,
    /// The paths of the tree that are unfolded, and the one that is selected.
    pub(crate) unfolded: HashSet<u64>,
    pub(crate) node: Option<u64>,
    /// The first row that Growth shows.
    pub(crate) from: usize,
    pub(crate) is_frozen: bool,
    pub(crate) shows_help: bool,
    /// The regular expression that is being typed.
    pub(crate) typed: Option<String>,
    /// What is wrong with it.
    pub(crate) wrong: Option<String>,
    /// Whether the view asks what becomes of the program.
    pub(crate) asks: bool,
    /// What was done last, or could not be done.
    pub(crate) said: Option<String>,
    /// How many rows fit, as the last drawing found.
    pub(crate) page: usize,
}

impl State {
    /// The positions of the answer's rows in the order in which they are shown. They are put in
    /// order anew every few seconds, and when somebody asks for another order.
    pub(crate) fn arrange(&mut self, answer: &Answer, base: &Base, now: f64) -> Vec<usize> {
        let by = (self.ask.clone(), self.column, self.is_reversed);
        let is_settled = self
            .ordered
            .as_ref()
            .is_some_and(|(at, ask, column, reversed)| {
                now - at < SETTLED && (ask, column, reversed) == (&by.0, &by.1, &by.2)
            });
        let rows = &answer.rows;
        let mut in_order: Vec<usize> = (0..rows.len()).collect();
        sort(&mut in_order, rows, self.column, base);
        if self.is_reversed {
            in_order.reverse();
        }
        let mut shown = in_order.clone();
        if is_settled {
            let at: HashMap<&Function, usize> = self.order.iter().zip(0..).collect();
            // The sort is stable: what is new comes last, by its size.
            shown.sort_by_key(|&i| at.get(&rows[i].function).copied().unwrap_or(usize::MAX));
        } else {
            self.order = shown.iter().map(|&i| rows[i].function.clone()).collect();
            self.ordered = Some((now, by.0, by.1, by.2));
        }
        self.is_in_order = shown == in_order;
        shown
    }

    /// The position of the selected row among those that are shown.
    pub(crate) fn selected_of(&self, answer: &Answer, shown: &[usize]) -> usize {
        let is_it = |&i: &usize| Some(&answer.rows[i].function) == self.selected.as_ref();
        shown.iter().position(is_it).unwrap_or(0)
    }

    /// Does what a key says.
    pub(crate) fn press(&mut self, key: Key, data: &Data) -> Effect {
        if let Some(typed) = &mut self.typed {
            match key {
                Key::Char(c) => typed.push(c),
                Key::Backspace => drop(typed.pop()),
                Key::Enter => self.focus(),
                Key::Esc | Key::Interrupt => (self.typed, self.wrong) = (None, None),
                Key::Suspend => return Effect::Suspend,
                _ => {}
            }
            return Effect::Nothing;
        }
        let runs = data.news.is_live && !data.news.is_apart && data.news.ended.is_none();
        if std::mem::take(&mut self.asks) {
            return match key {
                Key::Char('q') => Effect::Leave,
                Key::Char('x') | Key::Interrupt => Effect::Interrupt,
                _ => Effect::Nothing,
            };
        }
        self.said = None;
        if std::mem::take(&mut self.shows_help) && key != Key::Interrupt {
            return Effect::Nothing;
        }
        match key {
            Key::Interrupt if runs => return Effect::Interrupt,
            Key::Char('q') if runs => self.asks = true,
            Key::Char('q') | Key::Interrupt => return Effect::Leave,
            Key::Suspend => return Effect::Suspend,
            Key::Redraw => return Effect::Redraw,
            Key::Char('?' | 'h') => self.shows_help = true,
            Key::Char('1') => self.view = View::Table,
            Key::Char('2') => self.view = View::Tree,
            Key::Char('3') => self.view = View::Timeline,
            Key::Char('4') => self.view = View::Growth,
            Key::Char(' ') => self.is_frozen = !self.is_frozen,
            Key::Char('o') => self.ask.own_code = !self.ask.own_code,
            Key::Char('/') => self.typed = Some(self.ask.focus.clone().unwrap_or_default()),
            Key::Char('s') => {
                let next = (self.column as usize + 1) % Column::ALL.len();
                self.column = Column::ALL[next].0;
            }
            Key::Char('S') => self.is_reversed = !self.is_reversed,
            Key::Char('t') => self.next_kind(data),
            Key::Char('b') => self.other_unit(data),
            Key::Char('d') => return Effect::Mark,
            Key::Char('D') => return Effect::Unmark,
            Key::Char('w') => return Effect::Save,
            Key::Char('r') => return Effect::Report,
            Key::Char('p') => return Effect::NextProcess,
            Key::Char('[') => return Effect::Step(-1),
            Key::Char(']') => return Effect::Step(1),
            Key::Left | Key::Right if self.view == View::Timeline => {
                return Effect::Step(if key == Key::Left { -1 } else { 1 });
            }
            Key::Esc => self.back(),
            Key::Tab => self.shows_callees = !self.shows_callees,
            key => match self.view {
                View::Table => self.in_table(key, data),
                View::Tree => self.in_tree(key, &data.nodes),
                View::Growth => self.from = self.moved(key, self.from, data.grown.len()),
                View::Timeline => {}
            },
        }
        Effect::Nothing
    }

    /// Obeys the expression that was typed, if it is one.
    fn focus(&mut self) {
        let typed = self.typed.take().unwrap_or_default();
        self.wrong = match regex::Regex::new(&typed) {
            Ok(_) => {
                self.ask.focus = Some(typed).filter(|typed| !typed.is_empty());
                None
            }
            Err(error) => {
                let why = heapprof_analysis::regex_error(&error);
                self.typed = Some(typed);
                Some(why.to_string())
            }
        };
    }

    /// One step back: from what covers most to what covers least.
    fn back(&mut self) {
        match () {
            () if self.is_open => self.is_open = false,
            () if self.view != View::Table => self.view = View::Table,
            () if self.ask.focus.is_some() => self.ask.focus = None,
            () => self.selected = None,
        }
    }

    /// Goes on to the next sample type that is of the same kind, bytes or objects.
    fn next_kind(&mut self, data: &Data) {
        let Some(answer) = &data.answer else { return };
        let kinds = &answer.kinds;
        let counts = |at: usize| kinds.iter().any(|kind| kind.objects == Some(at));
        let same: Vec<usize> = (0..kinds.len())
            .filter(|&at| counts(at) == counts(answer.kind))
            .collect();
        let now = same.iter().position(|&at| at == answer.kind).unwrap_or(0);
        if let Some(&next) = same.get((now + 1) % same.len().max(1)) {
            self.ask.sample_type = Some(kinds[next].name.clone());
        }
    }

    /// Changes between bytes and objects of the sample type.
    fn other_unit(&mut self, data: &Data) {
        let Some(answer) = &data.answer else { return };
        let of_space = |kind: &super::answer::Kind| kind.objects == Some(answer.kind);
        let other = answer.kinds.get(answer.kind).and_then(|kind| kind.objects);
        let other = other.or_else(|| answer.kinds.iter().position(of_space));
        match other.and_then(|at| answer.kinds.get(at)) {
            Some(kind) => self.ask.sample_type = Some(kind.name.clone()),
            None => self.said = Some("this sample type has no other unit".to_string()),
        }
    }

    fn moved(&self, key: Key, at: usize, len: usize) -> usize {
        let page = self.page.max(1);
        let to = match key {
            Key::Up => at.saturating_sub(1),
            Key::Down => at + 1,
            Key::PageUp => at.saturating_sub(page),
            Key::PageDown => at + page,
            Key::Home => 0,
            Key::End => len,
            _ => at,
        };
        to.min(len.saturating_sub(1))
    }

    fn in_table(&mut self, key: Key, data: &Data) {
        let Some(answer) = &data.answer else { return };
        if key == Key::Enter {
            self.is_open = !self.is_open;
            return;
        }
        let is_there =
            |function: &&Function| answer.rows.iter().any(|row| row.function == **function);
        let functions: Vec<&Function> = self.order.iter().filter(is_there).collect();
        let at = self
            .selected
            .as_ref()
            .and_then(|selected| functions.iter().position(|of| *of == selected));
        let to = self.moved(key, at.unwrap_or(0), functions.len());
        self.selected = functions.get(to).map(|function| (*function).clone());
    }

    fn in_tree(&mut self, key: Key, nodes: &[Node]) {
        let shown = outline::shown(nodes, &self.unfolded);
        let at = shown.iter().position(|line| Some(line.path) == self.node);
        let at = at.unwrap_or(0);
        let Some(line) = shown.get(at) else { return };
        let mut to = at;
        match key {
            Key::Right | Key::Enter if line.has_more && !line.is_unfolded => {
                self.unfolded.insert(line.path);
            }
            Key::Left | Key::Enter if line.is_unfolded => {
                self.unfolded.remove(&line.path);
            }
            Key::Right => to = (at + 1).min(shown.len() - 1),
            Key::Left => {
                let depth = nodes[line.node].depth;
                let above = |other: &outline::Line| nodes[other.node].depth < depth;
                to = shown[..at].iter().rposition(above).unwrap_or(at);
            }
            key => to = self.moved(key, at, shown.len()),
        }
        self.node = Some(shown[to].path);
    }
}

/// By how much a row has changed; `None` if there is nothing to compare with.
pub(super) fn change(row: &Row, base: &Base) -> i64 {
    row.flat
        .saturating_sub(base.get(&row.function).copied().unwrap_or(0))
}

/// The mean size of a row's objects.
pub(super) fn mean(row: &Row) -> Option<i64> {
    let objects = row.objects.filter(|&objects| objects != 0)?;
    row.flat.checked_div(objects)
}

/// Puts the largest first, and names in their own order.
fn sort(shown: &mut [usize], rows: &[Row], column: Column, base: &Base) {
    let size = |i: usize| -> u64 {
        let row = &rows[i];
        let value = match column {
            Column::Cum => Some(row.cum),
            Column::Delta | Column::Trend => Some(change(row, base)),
            Column::Objects => row.objects,
            Column::Mean => mean(row),
            Column::Flat | Column::Function => Some(row.flat),
        };
        value.unwrap_or(0).unsigned_abs()
    };
    shown.sort_by(|&a, &b| {
        let by_name = || rows[a].function.cmp(&rows[b].function);
        match column {
            Column::Function => by_name(),
            _ => size(b).cmp(&size(a)).then_with(by_name),
        }
    });
}
