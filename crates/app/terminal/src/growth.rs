//! Draws the view Growth, which lists the functions that grew over the moments. Growth is defined
//! as in the reports.

use ratatui_core::layout::Rect;
use ratatui_core::style::Style;

use super::canvas::{ScreenCanvas, short_names, signed};
use super::chart::sparkline;
use super::state::ViewState;
use super::view_data::ViewData;

/// Smallest width, in columns, at which the number of growing steps is shown for a function.
const MIN_STEPS_COLUMNS: u16 = 100;

/// Draws the view Growth.
pub(super) fn draw(
    canvas: &mut ScreenCanvas<'_>,
    area: Rect,
    data: &ViewData,
    state: &mut ViewState,
) {
    let look = canvas.style;
    if data.grown.is_empty() {
        let text = match data.news.series.len() {
            0..3 => "growth needs three moments or more",
            _ => "nothing grew",
        };
        canvas.put(area.x + 1, area.y + 1, area.width - 1, text, look.muted());
        return;
    }
    let most = if area.width >= 120 { 40 } else { 12 };
    let has_steps = area.width >= MIN_STEPS_COLUMNS;
    let steps = |text: &str| match has_steps {
        true => format!(" {text:>9}"),
        false => String::new(),
    };
    let head = format!(
        "{:<15} {:<most$} {} {:>10} {:>13}  FUNCTION",
        "VERDICT",
        "TREND",
        steps("GREW"),
        "LAST",
        "CHANGE"
    );
    canvas.put(area.x + 1, area.y, area.width - 1, &head, look.muted());
    let height = usize::from(area.height.saturating_sub(1));
    state.page = height;
    state.from = state.from.min(data.grown.len().saturating_sub(1));
    let measure = canvas.measure(data);
    let rows = data.grown.iter().skip(state.from).take(height);
    // Names begin below the heading of their column.
    let before = 1 + head.chars().count() - "FUNCTION".len();
    let width = area.width.saturating_sub(before as u16);
    let names = short_names(rows.clone().map(|row| &*row.name), width);
    for (y, (row, name)) in (area.y + 1..).zip(rows.zip(names)) {
        let values = &row.values[row.values.len().saturating_sub(most)..];
        let change = row.last.saturating_sub(row.first);
        let (grew, all) = row.grew;
        let before = format!(
            "{:<15} {:<most$} {} {:>10} ",
            row.verdict,
            sparkline(values),
            steps(&format!("{grew} of {all}")),
            measure.show(row.last),
        );
        let used = canvas.put(area.x + 1, y, area.width - 1, &before, Style::new());
        let x = area.x + 1 + used;
        let text = format!("{:>13}", signed(&measure, change));
        let used = canvas.put(x, y, area.right() - x, &text, look.change(change)) + 2;
        let width = area.right().saturating_sub(x + used);
        canvas.put(x + used, y, width, &name, Style::new());
    }
}
