//! Draws the screen, and decides where its parts are.

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::Style;

use super::canvas::{ScreenCanvas, ScreenStyle};
use super::keys::KEY_HELP;
use super::state::{ViewMode, ViewState};
use super::view_data::ViewData;
use super::{detail, growth, head, table, timeline, tree};

/// The smallest screen on which the view is drawn: columns and rows.
pub(super) const MIN_SCREEN_SIZE: (u16, u16) = (80, 24);
/// Smallest screen height, in rows, at which the chart is drawn with more than three rows.
const MIN_HIGH_CHART_ROWS: u16 = 40;

/// Draws the whole view.
pub(crate) fn draw(
    buffer: &mut Buffer,
    data: &ViewData,
    state: &mut ViewState,
    look: ScreenStyle,
    now: f64,
) {
    let area = buffer.area;
    let canvas = &mut ScreenCanvas {
        buffer,
        style: look,
    };
    if area.width < MIN_SCREEN_SIZE.0 || area.height < MIN_SCREEN_SIZE.1 {
        let (width, height) = (area.width, area.height);
        let text = format!("{width}×{height} is too small: the view needs 80×24 (q quits)");
        // This text is drawn whatever the size is.
        for (y, part) in (area.y..).zip(wrap_text(&text, usize::from(width.max(1)))) {
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
    if state.view != ViewMode::Timeline {
        let high = match area.height {
            height if height >= MIN_HIGH_CHART_ROWS => (height / 5).min(10),
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
        // The program's output may say why.
        for (y, line) in (rest.y + 3..rest.bottom()).zip(&data.news.output) {
            canvas.put(rest.x + 1, y, rest.width - 1, line, Style::new());
        }
        return;
    }
    match state.view {
        ViewMode::Table => {
            let below = detail::height(rest.height, state);
            let (above, below) = split(rest, rest.height - below);
            table::draw(canvas, above, data, state, now);
            detail::draw(canvas, below, data, state);
        }
        ViewMode::Tree => tree::draw(canvas, rest, data, state),
        ViewMode::Timeline => timeline::draw(canvas, rest, data),
        ViewMode::Growth => growth::draw(canvas, rest, data, state),
    }
}

fn split(area: Rect, above: u16) -> (Rect, Rect) {
    let below = Rect::new(area.x, area.y + above, area.width, area.height - above);
    (Rect::new(area.x, area.y, area.width, above), below)
}

/// Splits text into pieces of `width` characters.
fn wrap_text(text: &str, width: usize) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    chars
        .chunks(width)
        .map(|chunk| chunk.iter().collect())
        .collect()
}

/// Draws the line about the current settings: sample type, own code, focus, order, and the moment
/// with which rows are compared.
fn switches(canvas: &mut ScreenCanvas<'_>, area: Rect, data: &ViewData, state: &ViewState) {
    let own = if state.ask.all_code { "off" } else { "on" };
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
    canvas.line(area, area.y, &text, canvas.style.strong());
}

/// Draws the last line: a question to the user, a message, or the keys.
fn prompt(canvas: &mut ScreenCanvas<'_>, area: Rect, data: &ViewData, state: &ViewState) {
    let look = canvas.style;
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
        let text = "q: quit, the program keeps running   x: interrupt the program   Esc: stay";
        (text.to_string(), look.trouble())
    } else if let Some(said) = &state.said {
        (said.clone(), look.strong())
    } else {
        (keys(area.width, data), look.muted())
    };
    canvas.line(area, area.y, &text, style);
}

/// Returns the text about the keys. If there is no room for all of them, the less useful ones at
/// the end are left out.
fn keys(width: u16, data: &ViewData) -> String {
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

fn help(canvas: &mut ScreenCanvas<'_>, area: Rect) {
    let style = canvas.style.strong();
    canvas.put(
        area.x + 1,
        area.y,
        area.width - 1,
        "Keys (any key goes back)",
        style,
    );
    for (y, (keys, does)) in (area.y + 1..area.bottom()).zip(KEY_HELP) {
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
