//! The state of the view: its settings, and how keys change them. This module does not read, draw
//! or wait.

use std::collections::{HashMap, HashSet};

use super::answer::{ViewAnswer, ViewFunction, ViewNode, ViewQuestion, ViewRow};
use super::keys::KeyPress;
use super::outline;
use super::view_data::{FlatByFunction, ViewData};

/// The view that takes up most of the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ViewMode {
    #[default]
    Table,
    Tree,
    Timeline,
    Growth,
}

/// A column of the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ViewColumn {
    #[default]
    Flat,
    Cum,
    Delta,
    Objects,
    Mean,
    Trend,
    Function,
}

impl ViewColumn {
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

/// The effect of a key, which the loop of the view carries out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyEffect {
    Nothing,
    /// Leaves the view. A program continues to run.
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

/// How long rows keep their order after they were sorted, in seconds.
const MIN_REORDER_SECONDS: f64 = 3.0;

/// The state of the view.
#[derive(Debug, Default)]
pub(crate) struct ViewState {
    pub(crate) view: ViewMode,
    pub(crate) ask: ViewQuestion,
    pub(crate) column: ViewColumn,
    pub(crate) is_reversed: bool,
    /// The function of the selected row; `None` selects the first row.
    pub(crate) selected: Option<ViewFunction>,
    /// The functions of the rows, in the order of the last arrangement.
    pub(super) order: Vec<ViewFunction>,
    /// The last arrangement: its time in seconds, its question, its column, and whether its order
    /// is reversed.
    ordered: Option<(f64, ViewQuestion, ViewColumn, bool)>,
    /// Whether the rows are in the order of their values at present.
    pub(crate) is_in_order: bool,
    /// Whether callers, callees and lines take up most of the screen.
    pub(crate) is_open: bool,
    pub(crate) shows_callees: bool,
    /// The unfolded paths of the tree.
    pub(crate) unfolded: HashSet<u64>,
    /// The path of the selected node.
    pub(crate) node: Option<u64>,
    /// The number of the first row that Growth shows, from 0.
    pub(crate) from: usize,
    pub(crate) is_frozen: bool,
    pub(crate) shows_help: bool,
    /// The regular expression that is being typed.
    pub(crate) typed: Option<String>,
    /// The error in the expression that is being typed.
    pub(crate) wrong: Option<String>,
    /// Whether the view asks the user what to do with the program.
    pub(crate) asks: bool,
    /// A message about the last action, or about its failure.
    pub(crate) said: Option<String>,
    /// Number of rows that fit on the screen, according to the last drawing.
    pub(crate) page: usize,
}

impl ViewState {
    /// Returns the positions of the answer's rows in the order in which they are shown. The order
    /// is computed anew every few seconds, and when the user changes it.
    pub(crate) fn arrange(
        &mut self,
        answer: &ViewAnswer,
        base: &FlatByFunction,
        now: f64,
    ) -> Vec<usize> {
        let by = (self.ask.clone(), self.column, self.is_reversed);
        let is_settled = self
            .ordered
            .as_ref()
            .is_some_and(|(at, ask, column, reversed)| {
                now - at < MIN_REORDER_SECONDS && (ask, column, reversed) == (&by.0, &by.1, &by.2)
            });
        let rows = &answer.rows;
        let mut in_order: Vec<usize> = (0..rows.len()).collect();
        sort(&mut in_order, rows, self.column, base);
        if self.is_reversed {
            in_order.reverse();
        }
        let mut shown = in_order.clone();
        if is_settled {
            let at: HashMap<&ViewFunction, usize> = self.order.iter().zip(0..).collect();
            // The sort is stable: new functions come last, by their size.
            shown.sort_by_key(|&i| at.get(&rows[i].function).copied().unwrap_or(usize::MAX));
        } else {
            self.order = shown.iter().map(|&i| rows[i].function.clone()).collect();
            self.ordered = Some((now, by.0, by.1, by.2));
        }
        self.is_in_order = shown == in_order;
        shown
    }

    /// Returns the index in `shown` of the selected row; 0 if that row is not shown.
    pub(crate) fn selected_of(&self, answer: &ViewAnswer, shown: &[usize]) -> usize {
        let is_it = |&i: &usize| Some(&answer.rows[i].function) == self.selected.as_ref();
        shown.iter().position(is_it).unwrap_or(0)
    }

    /// Handles a key.
    pub(crate) fn press(&mut self, key: KeyPress, data: &ViewData) -> KeyEffect {
        if let Some(typed) = &mut self.typed {
            match key {
                KeyPress::Char(c) => typed.push(c),
                KeyPress::Backspace => drop(typed.pop()),
                KeyPress::Enter => self.focus(),
                KeyPress::Esc | KeyPress::Interrupt => (self.typed, self.wrong) = (None, None),
                KeyPress::Suspend => return KeyEffect::Suspend,
                _ => {}
            }
            return KeyEffect::Nothing;
        }
        let runs = data.news.is_live && !data.news.is_independent && data.news.ended.is_none();
        if std::mem::take(&mut self.asks) {
            return match key {
                KeyPress::Char('q') => KeyEffect::Leave,
                KeyPress::Char('x') | KeyPress::Interrupt => KeyEffect::Interrupt,
                _ => KeyEffect::Nothing,
            };
        }
        self.said = None;
        if std::mem::take(&mut self.shows_help) && key != KeyPress::Interrupt {
            return KeyEffect::Nothing;
        }
        match key {
            KeyPress::Interrupt if runs => return KeyEffect::Interrupt,
            KeyPress::Char('q') if runs => self.asks = true,
            KeyPress::Char('q') | KeyPress::Interrupt => return KeyEffect::Leave,
            KeyPress::Suspend => return KeyEffect::Suspend,
            KeyPress::Redraw => return KeyEffect::Redraw,
            KeyPress::Char('?' | 'h') => self.shows_help = true,
            KeyPress::Char('1') => self.view = ViewMode::Table,
            KeyPress::Char('2') => self.view = ViewMode::Tree,
            KeyPress::Char('3') => self.view = ViewMode::Timeline,
            KeyPress::Char('4') => self.view = ViewMode::Growth,
            KeyPress::Char(' ') => self.is_frozen = !self.is_frozen,
            KeyPress::Char('o') => self.ask.all_code = !self.ask.all_code,
            KeyPress::Char('/') => self.typed = Some(self.ask.focus.clone().unwrap_or_default()),
            KeyPress::Char('s') => {
                let next = (self.column as usize + 1) % ViewColumn::ALL.len();
                self.column = ViewColumn::ALL[next].0;
            }
            KeyPress::Char('S') => self.is_reversed = !self.is_reversed,
            KeyPress::Char('t') => self.next_kind(data),
            KeyPress::Char('b') => self.other_unit(data),
            KeyPress::Char('d') => return KeyEffect::Mark,
            KeyPress::Char('D') => return KeyEffect::Unmark,
            KeyPress::Char('w') => return KeyEffect::Save,
            KeyPress::Char('r') => return KeyEffect::Report,
            KeyPress::Char('p') => return KeyEffect::NextProcess,
            KeyPress::Char('[') => return KeyEffect::Step(-1),
            KeyPress::Char(']') => return KeyEffect::Step(1),
            KeyPress::Left | KeyPress::Right if self.view == ViewMode::Timeline => {
                return KeyEffect::Step(if key == KeyPress::Left { -1 } else { 1 });
            }
            KeyPress::Esc => self.back(),
            KeyPress::Tab => self.shows_callees = !self.shows_callees,
            key => match self.view {
                ViewMode::Table => self.in_table(key, data),
                ViewMode::Tree => self.in_tree(key, &data.nodes),
                ViewMode::Growth => {
                    self.from = self.move_position(key, self.from, data.grown.len())
                }
                ViewMode::Timeline => {}
            },
        }
        KeyEffect::Nothing
    }

    /// Applies the expression that was typed, if it is valid.
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

    /// Goes back one step, which is the first possible step of these: closing the details,
    /// returning to the table, removing the focus, removing the selection.
    fn back(&mut self) {
        match () {
            () if self.is_open => self.is_open = false,
            () if self.view != ViewMode::Table => self.view = ViewMode::Table,
            () if self.ask.focus.is_some() => self.ask.focus = None,
            () => self.selected = None,
        }
    }

    /// Selects the next sample type that has the present unit, which is bytes or objects.
    fn next_kind(&mut self, data: &ViewData) {
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

    /// Switches the sample type between bytes and objects.
    fn other_unit(&mut self, data: &ViewData) {
        let Some(answer) = &data.answer else { return };
        let of_space = |kind: &super::answer::ViewSampleType| kind.objects == Some(answer.kind);
        let other = answer.kinds.get(answer.kind).and_then(|kind| kind.objects);
        let other = other.or_else(|| answer.kinds.iter().position(of_space));
        match other.and_then(|at| answer.kinds.get(at)) {
            Some(kind) => self.ask.sample_type = Some(kind.name.clone()),
            None => self.said = Some("this sample type has no other unit".to_string()),
        }
    }

    fn move_position(&self, key: KeyPress, at: usize, len: usize) -> usize {
        let page = self.page.max(1);
        let to = match key {
            KeyPress::Up => at.saturating_sub(1),
            KeyPress::Down => at + 1,
            KeyPress::PageUp => at.saturating_sub(page),
            KeyPress::PageDown => at + page,
            KeyPress::Home => 0,
            KeyPress::End => len,
            _ => at,
        };
        to.min(len.saturating_sub(1))
    }

    fn in_table(&mut self, key: KeyPress, data: &ViewData) {
        let Some(answer) = &data.answer else { return };
        if key == KeyPress::Enter {
            self.is_open = !self.is_open;
            return;
        }
        let is_there =
            |function: &&ViewFunction| answer.rows.iter().any(|row| row.function == **function);
        let functions: Vec<&ViewFunction> = self.order.iter().filter(is_there).collect();
        let at = self
            .selected
            .as_ref()
            .and_then(|selected| functions.iter().position(|of| *of == selected));
        let to = self.move_position(key, at.unwrap_or(0), functions.len());
        self.selected = functions.get(to).map(|function| (*function).clone());
    }

    fn in_tree(&mut self, key: KeyPress, nodes: &[ViewNode]) {
        let shown = outline::visible_lines(nodes, &self.unfolded);
        let at = shown.iter().position(|line| Some(line.path) == self.node);
        let at = at.unwrap_or(0);
        let Some(line) = shown.get(at) else { return };
        let mut to = at;
        match key {
            KeyPress::Right | KeyPress::Enter if line.has_more && !line.is_unfolded => {
                self.unfolded.insert(line.path);
            }
            KeyPress::Left | KeyPress::Enter if line.is_unfolded => {
                self.unfolded.remove(&line.path);
            }
            KeyPress::Right => to = (at + 1).min(shown.len() - 1),
            KeyPress::Left => {
                let depth = nodes[line.node].depth;
                let above = |other: &outline::OutlineLine| nodes[other.node].depth < depth;
                to = shown[..at].iter().rposition(above).unwrap_or(at);
            }
            key => to = self.move_position(key, at, shown.len()),
        }
        self.node = Some(shown[to].path);
    }
}

/// Returns the change of a row against `base`. For a function that is missing in `base`, the change
/// is its whole value.
pub(super) fn change(row: &ViewRow, base: &FlatByFunction) -> i64 {
    row.flat
        .saturating_sub(base.get(&row.function).copied().unwrap_or(0))
}

/// Returns the mean size of the objects of a row.
pub(super) fn mean(row: &ViewRow) -> Option<i64> {
    let objects = row.objects.filter(|&objects| objects != 0)?;
    row.flat.checked_div(objects)
}

/// Sorts the rows by a column: the largest value first, or names by alphabet. Of equal values, the
/// one with the larger cum comes first, as in `top`.
fn sort(shown: &mut [usize], rows: &[ViewRow], column: ViewColumn, base: &FlatByFunction) {
    let size = |i: usize| -> u64 {
        let row = &rows[i];
        let value = match column {
            ViewColumn::Cum => Some(row.cum),
            ViewColumn::Delta | ViewColumn::Trend => Some(change(row, base)),
            ViewColumn::Objects => row.objects,
            ViewColumn::Mean => mean(row),
            ViewColumn::Flat | ViewColumn::Function => Some(row.flat),
        };
        value.unwrap_or(0).unsigned_abs()
    };
    shown.sort_by(|&a, &b| {
        let by_name = || rows[a].function.cmp(&rows[b].function);
        match column {
            ViewColumn::Function => by_name(),
            _ => {
                let cum = |i: usize| rows[i].cum.unsigned_abs();
                let by_cum = || cum(b).cmp(&cum(a));
                size(b).cmp(&size(a)).then_with(by_cum).then_with(by_name)
            }
        }
    });
}
