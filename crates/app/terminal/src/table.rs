//! Draws the table of functions.

use heapprof_report::UnitFormatter;
use heapprof_text::push_whole;
use ratatui_core::layout::Rect;
use ratatui_core::style::Style;

use super::canvas::{ScreenCanvas, bar, short_names, signed};
use super::chart::sparkline;
use super::state::{ViewColumn, ViewState, change, mean};
use super::view_data::ViewData;

/// Smallest number of columns for a function's name. Other columns are left out to make room for
/// it.
const MIN_NAME_COLUMNS: u16 = 28;
/// Smallest width, in columns, at which a table shows bars.
const MIN_BARS_COLUMNS: u16 = 110;
const BAR_COLUMNS: usize = 8;

/// The columns that may be left out; the first of them is left out first.
const OPTIONAL_COLUMNS: [ViewColumn; 3] = [ViewColumn::Trend, ViewColumn::Mean, ViewColumn::Cum];

fn width_of(column: ViewColumn) -> u16 {
    match column {
        ViewColumn::Flat | ViewColumn::Cum => 11,
        ViewColumn::Delta => 14,
        ViewColumn::Objects => 11,
        ViewColumn::Mean => 10,
        ViewColumn::Trend => 9,
        ViewColumn::Function => 0,
    }
}

/// Returns the columns that fit into `width`.
fn columns(width: u16) -> Vec<ViewColumn> {
    let mut columns: Vec<ViewColumn> = ViewColumn::ALL.iter().map(|(column, _)| *column).collect();
    for column in OPTIONAL_COLUMNS {
        let taken: u16 = columns.iter().map(|&column| width_of(column)).sum();
        if taken + 2 + MIN_NAME_COLUMNS <= width {
            break;
        }
        columns.retain(|&other| other != column);
    }
    columns
}

fn title(column: ViewColumn, data: &ViewData) -> String {
    match column {
        ViewColumn::Delta if data.mark.is_some() => "Δ MARK".to_string(),
        ViewColumn::Delta => "Δ START".to_string(),
        column => column.name().to_uppercase(),
    }
}

/// Draws the table.
pub(super) fn draw(
    canvas: &mut ScreenCanvas<'_>,
    area: Rect,
    data: &ViewData,
    state: &mut ViewState,
    now: f64,
) {
    let Some(answer) = &data.answer else { return };
    let shown = state.arrange(answer, &data.base, now);
    let columns = columns(area.width);
    let has_bars = area.width >= MIN_BARS_COLUMNS;
    let mut x = area.x + 2;
    let mut name_width = 0;
    for &column in &columns {
        let mut text = title(column, data);
        if column == state.column && state.is_in_order {
            text.push(if state.is_reversed { '↑' } else { '↓' });
        }
        let width = width_of(column);
        let style = canvas.style.muted();
        match column {
            ViewColumn::Trend => canvas.put(x + 1, area.y, width - 1, &text, style),
            ViewColumn::Function => {
                name_width = area.right().saturating_sub(x);
                canvas.put(x, area.y, name_width, &text, style)
            }
            _ => {
                let text = format!("{text:>fill$}", fill = usize::from(width) - 1);
                canvas.put(x, area.y, width, &text, style)
            }
        };
        x += width;
        if column == ViewColumn::Flat && has_bars {
            x += BAR_COLUMNS as u16 + 1;
        }
    }
    let height = usize::from(area.height.saturating_sub(1));
    state.page = height;
    let at = state.selected_of(answer, &shown);
    let first = at
        .saturating_sub(height / 2)
        .min(shown.len().saturating_sub(height));
    let most = answer.rows.iter().map(|row| row.flat).max().unwrap_or(0);
    let measure = canvas.measure(data);
    let size = |value: i64| measure.show(value);
    let rows = shown.iter().enumerate().skip(first).take(height);
    let names = rows.clone().map(|(_, &index)| &*answer.rows[index].name);
    let names = short_names(names, name_width);
    let mut y = area.y + 1;
    for ((position, &index), name) in rows.zip(&names) {
        let row = &answer.rows[index];
        let is_selected = position == at;
        let style = canvas.row_style(is_selected);
        canvas.line(area, y, "", style);
        if is_selected {
            canvas.put(area.x, y, 1, "▌", Style::new());
        }
        let mut x = area.x + 2;
        for &column in &columns {
            let width = width_of(column);
            let change = change(row, &data.base);
            let (text, style) = match column {
                ViewColumn::Flat => (size(row.flat), style),
                ViewColumn::Cum => (size(row.cum), style),
                ViewColumn::Delta => (
                    signed(&measure, change),
                    match is_selected {
                        true => style,
                        false => canvas.style.change(change),
                    },
                ),
                ViewColumn::Objects => (row.objects.map_or_else(String::new, whole), style),
                ViewColumn::Mean => (mean(row).map_or_else(String::new, size), style),
                ViewColumn::Trend => (
                    format!(" {}", sparkline(&data.trend_of(&row.function))),
                    style,
                ),
                ViewColumn::Function => {
                    canvas.put(x, y, name_width, name, style);
                    continue;
                }
            };
            let text = match column {
                ViewColumn::Trend => text,
                _ => format!("{text:>fill$}", fill = usize::from(width) - 1),
            };
            canvas.put(x, y, width, &text, style);
            x += width;
            if column == ViewColumn::Flat && has_bars {
                let style = if is_selected {
                    style
                } else {
                    canvas.style.chart()
                };
                canvas.put(
                    x,
                    y,
                    BAR_COLUMNS as u16,
                    &bar(row.flat, most, BAR_COLUMNS),
                    style,
                );
                x += BAR_COLUMNS as u16 + 1;
            }
        }
        y += 1;
    }
    rest(
        canvas,
        Rect::new(area.x, y, area.width, area.bottom().saturating_sub(y)),
        data,
        &measure,
    );
}

/// Draws lines about values that no row shows, if there is room.
fn rest(canvas: &mut ScreenCanvas<'_>, area: Rect, data: &ViewData, measure: &UnitFormatter) {
    let Some(answer) = &data.answer else { return };
    let mut lines = Vec::new();
    if answer.rows.is_empty() {
        let kind = answer
            .kinds
            .get(answer.kind)
            .map_or("this", |kind| &kind.name);
        lines.push(match answer.left_out {
            0 => format!("{kind} is 0 in every sample"),
            left_out => format!(
                "the focus keeps 0 of {}; Esc removes it",
                measure.show(left_out)
            ),
        });
    }
    if answer.other.1 > 0 {
        lines.push(format!(
            "{:>10}  in {} smaller functions",
            measure.show(answer.other.0),
            answer.other.1
        ));
    }
    if answer.left_out != 0 && !answer.rows.is_empty() {
        lines.push(format!(
            "{:>10}  is left out by the focus",
            measure.show(answer.left_out)
        ));
    }
    for (y, line) in (area.y..area.bottom()).zip(lines) {
        canvas.put(area.x + 2, y, area.width - 2, &line, canvas.style.muted());
    }
}

fn whole(value: i64) -> String {
    let mut digits = String::new();
    push_whole(value, &mut digits);
    digits
}
