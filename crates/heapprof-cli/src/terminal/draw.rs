//! The screen: which part goes where, and how text gets there. All text goes through
//! [`Canvas::put`], which lets no control character through.

use heapprof_report::Measure;
use heapprof_text::{printable, shortened};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};

use super::data::Data;
use super::keys::HELP;
use super::state::{State, View};
use super::{chart, detail, growth, head, table, timeline, tree};

/// The smallest screen that has room for the view.
pub(super) const SMALLEST: (u16, u16) = (80, 24);
/// A screen with so many rows has room for a higher chart.
const HIGH: u16 = 40;

/// How things look. There are 16 colours at most, and none of them says what no character says.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Look {
    pub(crate) is_coloured: bool,
}

impl Look {
    fn colour(self, colour: Color) -> Style {
        match self.is_coloured {
            true => Style::new().fg(colour),
            false => Style::new(),
        }
    }

    pub(super) fn muted(self) -> Style {
        match self.is_coloured {
            true => Style::new().fg(Color::DarkGray),
            false => Style::new().add_modifier(Modifier::DIM),
        }
    }

    pub(super) fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// Of a value that became more, or less.
    pub(super) fn change(self, change: i64) -> Style {
        match change {
            0 => self.muted(),
            more if more > 0 => self.colour(Color::Yellow),
            _ => self.colour(Color::LightBlue),
        }
    }

    pub(super) fn chart(self) -> Style {
        self.colour(Color::Cyan)
    }

    pub(super) fn trouble(self) -> Style {
        self.colour(Color::Yellow).add_modifier(Modifier::BOLD)
    }
}

/// A buffer, and how things look on it.
pub(super) struct Canvas<'b> {
    buffer: &'b mut Buffer,
    pub(super) look: Look,
}

impl Canvas<'_> {
    /// Puts text into so many columns. What does not fit is cut.
    pub(super) fn put(&mut self, x: u16, y: u16, width: u16, text: &str, style: Style) -> u16 {
        let area = self.buffer.area;
        if y >= area.bottom() || x >= area.right() {
            return 0;
        }
        let width = width.min(area.right() - x);
        let text = heapprof_text::cut(&printable(text), usize::from(width));
        let (end, _) = self
            .buffer
            .set_stringn(x, y, text, usize::from(width), style);
        end - x
    }

    /// Puts text at the beginning of a row, whose other columns get the same style.
    pub(super) fn line(&mut self, area: Rect, y: u16, text: &str, style: Style) -> u16 {
        let blank = " ".repeat(usize::from(area.width));
        self.put(area.x, y, area.width, &blank, style);
        1 + self.put(area.x + 1, y, area.width.saturating_sub(1), text, style)
    }

    /// The style of a row, which may be the selected one.
    pub(super) fn row_style(&self, is_selected: bool) -> Style {
        match is_selected {
            true => Style::new().add_modifier(Modifier::REVERSED),
            false => Style::new(),
        }
    }

    /// A name as people say it, in so many columns.
    pub(super) fn name(&self, name: &str, width: u16) -> String {
        shortened(&printable(name), usize::from(width))
    }

    /// Shows values of the sample type that is shown.
    pub(super) fn measure(&self, data: &Data) -> Measure {
        let unit = data.answer.as_ref().map_or("", |answer| &answer.unit);
        Measure::new(unit, None).unwrap_or_else(|_| Measure::raw())
    }
}

/// Draws everything.
pub(crate) fn draw(buffer: &mut Buffer, data: &Data, state: &mut State, look: Look, now: f64) {
    let area = buffer.area;
    let canvas = &mut Canvas { buffer, look };
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        let (width, height) = (area.width, area.height);
        let text = format!("{width}×{height} is too small: the view needs 80×24 (q leaves it)");
        // It is there whatever the size is.
        for (y, part) in (area.y..).zip(wrapped(&text, usize::from(width.max(1)))) {
            canvas.put(area.x, y, area.width, &part, look.strong());
        }
        return;
    }
    let mut top = head::draw(canvas, area, data, state);
    let bottom = area.bottom() - 1;
    prompt(
        canvas,
        Rect::new(area.x, bottom, area.width, 1),
        data,
        state,
    );
    if state.shows_help {
        return help(canvas, Rect::new(area.x, top, area.width, bottom - top));
    }
    if state.view != View::Timeline {
        let high = match area.height {
            height if height >= HIGH => (height / 5).min(10),
            _ => 3,
        };
        timeline::chart(canvas, Rect::new(area.x, top, area.width, high), data);
        top += high;
    }
    switches(canvas, Rect::new(area.x, top, area.width, 1), data, state);
    top += 1;
    let mut rest = Rect::new(area.x, top, area.width, bottom - top);
    if let Some(trouble) = data.trouble.as_ref().or(data.news.trouble.as_ref()) {
        canvas.put(rest.x + 1, rest.y, rest.width - 1, trouble, look.trouble());
        rest = Rect::new(rest.x, rest.y + 1, rest.width, rest.height - 1);
    }
    if data.news.snapshot.is_none() {
        let text = match &data.news.ended {
            Some(_) => "the program ended before it could show anything",
            None => "waiting for the first profile of the program",
        };
        canvas.put(rest.x + 1, rest.y + 1, rest.width - 1, text, look.muted());
        // What the program printed may say why.
        for (y, line) in (rest.y + 3..rest.bottom()).zip(&data.news.output) {
            canvas.put(rest.x + 1, y, rest.width - 1, line, Style::new());
        }
        return;
    }
    match state.view {
        View::Table => {
            let below = detail::height(rest.height, state);
            let (above, below) = split(rest, rest.height - below);
            table::draw(canvas, above, data, state, now);
            detail::draw(canvas, below, data, state);
        }
        View::Tree => tree::draw(canvas, rest, data, state),
        View::Timeline => timeline::draw(canvas, rest, data),
        View::Growth => growth::draw(canvas, rest, data, state),
    }
}

fn split(area: Rect, above: u16) -> (Rect, Rect) {
    let below = Rect::new(area.x, area.y + above, area.width, area.height - above);
    (Rect::new(area.x, area.y, area.width, above), below)
}

/// Text in pieces of so many characters.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    chars
        .chunks(width)
        .map(|chunk| chunk.iter().collect())
        .collect()
}

/// The line of what is shown: sample types, own code, focus, order, what it is compared with.
fn switches(canvas: &mut Canvas<'_>, area: Rect, data: &Data, state: &State) {
    let own = if state.ask.own_code { "on" } else { "off" };
    let focus = state.ask.focus.as_deref().unwrap_or("–");
    let arrow = if state.is_reversed { "↑" } else { "↓" };
    let versus = match (&data.mark, data.base_seconds) {
        (Some(_), Some(seconds)) => format!("vs {}", head::clock(seconds)),
        (Some(_), None) => "vs mark".to_string(),
        (None, _) => "vs start".to_string(),
    };
    let kind = data
        .answer
        .as_ref()
        .and_then(|answer| answer.kinds.get(answer.kind));
    let kind = kind.map_or("–", |kind| &kind.name);
    let view = ["table", "tree", "timeline", "growth"][state.view as usize];
    let mut text = format!(
        "▸ {view} │ {kind} │ own code {own} │ focus: {focus} │ sort: {} {arrow} │ {versus}",
        state.column.name()
    );
    if let Some((moment, of)) = data.news.moment.filter(|(_, of)| *of > 1) {
        text += &format!(" │ moment {moment} of {of}");
    }
    canvas.line(area, area.y, &text, canvas.look.strong());
}

/// The last line: what is asked, was said, or can be typed.
fn prompt(canvas: &mut Canvas<'_>, area: Rect, data: &Data, state: &State) {
    let look = canvas.look;
    let (text, style) = if let Some(typed) = &state.typed {
        let wrong = state
            .wrong
            .as_ref()
            .map_or(String::new(), |why| format!("   ({why})"));
        let style = match wrong.is_empty() {
            true => look.strong(),
            false => look.trouble(),
        };
        (format!("focus on: {typed}▏{wrong}"), style)
    } else if state.asks {
        let text = "q: the program goes on without the view   x: interrupt it   Esc: stay";
        (text.to_string(), look.trouble())
    } else if let Some(said) = &state.said {
        (said.clone(), look.strong())
    } else {
        (keys(area.width, data), look.muted())
    };
    canvas.line(area, area.y, &text, style);
}

/// The keys, as many as fit, the most useful first.
fn keys(width: u16, data: &Data) -> String {
    let mut all = vec![
        "Enter open",
        "/ filter",
        "s sort",
        "t type",
        "b bytes",
        "o own",
        "d mark",
        "w save",
        "r report",
        "1-4 views",
        "space freeze",
    ];
    if data.news.processes.len() > 1 {
        all.insert(0, "p process");
    }
    let last = "? keys  q quit";
    let mut text = String::new();
    for key in all {
        if text.chars().count() + key.chars().count() + last.len() + 4 > usize::from(width) {
            break;
        }
        text += key;
        text += "  ";
    }
    text + last
}

fn help(canvas: &mut Canvas<'_>, area: Rect) {
    let style = canvas.look.strong();
    canvas.put(
        area.x + 1,
        area.y,
        area.width - 1,
        "Keys (any key goes back)",
        style,
    );
    for (y, (keys, does)) in (area.y + 1..area.bottom()).zip(HELP) {
        canvas.put(area.x + 1, y, 24, keys, style);
        canvas.put(
            area.x + 26,
            y,
            area.width.saturating_sub(26),
            does,
            Style::new(),
        );
    }
}

/// The text of a buffer, with the blanks at the ends of lines left out.
#[cfg(test)]
pub(super) fn text_of(buffer: &Buffer) -> String {
    let width = usize::from(buffer.area.width).max(1);
    let rows = buffer.content.chunks(width);
    let row = |cells: &[ratatui::buffer::Cell]| {
        let mut text = String::new();
        let mut skip = 0;
        for cell in cells {
            if skip == 0 {
                text.push_str(cell.symbol());
                skip = ratatui::text::Line::from(cell.symbol()).width();
            }
            skip = skip.saturating_sub(1);
        }
        text.trim_end().to_string()
    };
    rows.map(row).collect::<Vec<_>>().join("\n") + "\n"
}

/// A value with a sign that is no colour: `▲ +1.5MiB`, `▼ -3KiB`, `0`.
pub(super) fn signed(measure: &Measure, change: i64) -> String {
    match change {
        0 => "0".to_string(),
        more if more > 0 => format!("▲ {}", measure.show_signed(more)),
        less => format!("▼ {}", measure.show_signed(less)),
    }
}

/// A bar beside a value.
pub(super) fn bar(value: i64, most: i64, width: usize) -> String {
    format!("{:<width$}", chart::bar(value, most, width))
}
