//! Draws the details of the selected function: its callers or callees, and its lines.

use heapprof_report::{UnitFormatter, percent};
use ratatui_core::layout::Rect;
use ratatui_core::style::Style;

use super::canvas::{ScreenCanvas, short_names};
use super::state::ViewState;
use super::view_data::ViewData;

/// Smallest width, in columns, at which lines are drawn beside callers.
const MIN_SIDE_BY_SIDE_COLUMNS: u16 = 70;
/// Number of columns for the share and the value of a row in a list.
const NUMBERS_COLUMNS: u16 = 21;

/// Returns the number of rows for the details, out of `of` rows.
pub(super) fn height(of: u16, state: &ViewState) -> u16 {
    match state.is_open {
        true => of.saturating_sub(5).max(of / 2),
        false if of < 10 => 0,
        false => (of / 3).clamp(4, 9),
    }
}

/// Draws the details.
pub(super) fn draw(canvas: &mut ScreenCanvas<'_>, area: Rect, data: &ViewData, state: &ViewState) {
    if area.height < 2 {
        return;
    }
    // Without a function there are no details.
    let Some(detail) = &data.detail else { return };
    let left = match area.width >= MIN_SIDE_BY_SIDE_COLUMNS {
        true => area.width * 11 / 20,
        false => area.width,
    };
    let measure = canvas.measure(data);
    let (word, rows) = match state.shows_callees {
        true => ("callees", &detail.callees),
        false => ("callers", &detail.callers),
    };
    let name = canvas.name(&detail.name, left.saturating_sub(16));
    let mut whole = Rect::new(area.x, area.y, left, area.height);
    if state.is_open {
        // There is room for callers and callees.
        let half = area.height / 2;
        whole.height = half;
        let below = Rect::new(area.x, area.y + half, left, area.height - half);
        let (other, rows) = match state.shows_callees {
            true => ("callers", &detail.callers),
            false => ("callees", &detail.callees),
        };
        list(
            canvas,
            below,
            &format!("{other} of {name}"),
            rows,
            detail.cum,
            &measure,
        );
    }
    list(
        canvas,
        whole,
        &format!("{word} of {name}"),
        rows,
        detail.cum,
        &measure,
    );
    if left < area.width {
        let right = Rect::new(area.x + left, area.y, area.width - left, area.height);
        list(canvas, right, "lines", &detail.lines, detail.cum, &measure);
    }
}

fn list(
    canvas: &mut ScreenCanvas<'_>,
    area: Rect,
    title: &str,
    rows: &[(String, i64)],
    whole: i64,
    measure: &UnitFormatter,
) {
    let rule = "─".repeat(usize::from(area.width));
    canvas.put(area.x, area.y, area.width, &rule, canvas.style.muted());
    let style = canvas.style.strong();
    canvas.put(
        area.x + 1,
        area.y,
        area.width - 1,
        &format!(" {title} "),
        style,
    );
    let room = usize::from(area.height - 1);
    let shown = if rows.len() > room {
        room.saturating_sub(1)
    } else {
        rows.len()
    };
    let shown_rows = &rows[..shown];
    let width = area.width.saturating_sub(NUMBERS_COLUMNS + 2);
    let names = short_names(shown_rows.iter().map(|(name, _)| &**name), width);
    for (y, ((_, value), name)) in (area.y + 1..).zip(shown_rows.iter().zip(names)) {
        let before = format!(
            "{:>8} {:>10}  ",
            percent(*value, whole),
            measure.show(*value)
        );
        let used = canvas.put(area.x + 1, y, area.width - 1, &before, Style::new());
        let width = area.width.saturating_sub(used + 2);
        canvas.put(area.x + 1 + used, y, width, &name, Style::new());
    }
    if shown < rows.len() && room > 0 {
        let rest: i64 = rows[shown..]
            .iter()
            .fold(0, |sum, row| sum.saturating_add(row.1));
        let text = format!("{:>19}  in {} more", measure.show(rest), rows.len() - shown);
        let y = area.y + 1 + shown as u16;
        canvas.put(area.x + 1, y, area.width - 1, &text, canvas.style.muted());
    }
    if rows.is_empty() && room > 0 {
        canvas.put(
            area.x + 2,
            area.y + 1,
            area.width - 2,
            "none",
            canvas.style.muted(),
        );
    }
}
