//! The table of functions.

use heapprof_report::UnitFormatter;
use heapprof_text::push_whole;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::canvas::{Canvas, bar, signed};
use super::chart::sparkline;
use super::known::Data;
use super::state::{Column, State, change, mean};

/// The columns a function's name needs. Others are left out for it.
const NAME: u16 = 28;
/// A table with so many columns has bars.
const WITH_BARS: u16 = 110;
const BAR: usize = 8;

/// The columns besides the function with their widths, in the order in which they are left out.
const LEFT_OUT: [Column; 3] = [Column::Trend, Column::Mean, Column::Cum];

fn width_of(column: Column) -> u16 {
    match column {
        Column::Flat | Column::Cum => 11,
        Column::Delta => 14,
        Column::Objects => 11,
        Column::Mean => 10,
        Column::Trend => 9,
        Column::Function => 0,
    }
}

/// The columns that fit.
fn columns(width: u16) -> Vec<Column> {
    let mut columns: Vec<Column> = Column::ALL.iter().map(|(column, _)| *column).collect();
    for column in LEFT_OUT {
        let taken: u16 = columns.iter().map(|&column| width_of(column)).sum();
        if taken + 2 + NAME <= width {
            break;
        }
        columns.retain(|&other| other != column);
    }
    columns
}

fn title(column: Column, data: &Data) -> String {
    match column {
        Column::Delta if data.mark.is_some() => "Δ MARK".to_string(),
        Column::Delta => "Δ START".to_string(),
        column => column.name().to_uppercase(),
    }
}

/// Draws the table.
pub(super) fn draw(canvas: &mut Canvas<'_>, area: Rect, data: &Data, state: &mut State, now: f64) {
    let Some(answer) = &data.answer else { return };
    let shown = state.arrange(answer, &data.base, now);
    let columns = columns(area.width);
    let has_bars = area.width >= WITH_BARS;
    let mut x = area.x + 2;
    for &column in &columns {
        let mut text = title(column, data);
        if column == state.column && state.is_in_order {
            text.push(if state.is_reversed { '↑' } else { '↓' });
        }
        let width = width_of(column);
        let style = canvas.look.muted();
        match column {
            Column::Trend => canvas.put(x + 1, area.y, width - 1, &text, style),
            Column::Function => canvas.put(x, area.y, area.right().saturating_sub(x), &text, style),
            _ => {
                let text = format!("{text:>fill$}", fill = usize::from(width) - 1);
                canvas.put(x, area.y, width, &text, style)
            }
        };
        x += width;
        if column == Column::Flat && has_bars {
            x += BAR as u16 + 1;
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
    let mut y = area.y + 1;
    for (position, &index) in rows {
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
                Column::Flat => (size(row.flat), style),
                Column::Cum => (size(row.cum), style),
                Column::Delta => (
                    signed(&measure, change),
                    match is_selected {
                        true => style,
                        false => canvas.look.change(change),
                    },
                ),
                Column::Objects => (row.objects.map_or_else(String::new, whole), style),
                Column::Mean => (mean(row).map_or_else(String::new, size), style),
                Column::Trend => (
                    format!(" {}", sparkline(&data.trend_of(&row.function))),
                    style,
                ),
                Column::Function => {
                    let width = area.right().saturating_sub(x);
                    let name = canvas.name(&row.name, width);
                    canvas.put(x, y, width, &name, style);
                    continue;
                }
            };
            let text = match column {
                Column::Trend => text,
                _ => format!("{text:>fill$}", fill = usize::from(width) - 1),
            };
            canvas.put(x, y, width, &text, style);
            x += width;
            if column == Column::Flat && has_bars {
                let style = if is_selected {
                    style
                } else {
                    canvas.look.chart()
                };
                canvas.put(x, y, BAR as u16, &bar(row.flat, most, BAR), style);
                x += BAR as u16 + 1;
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

/// Says what no row shows, if there is room for it.
fn rest(canvas: &mut Canvas<'_>, area: Rect, data: &Data, measure: &UnitFormatter) {
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
                "the focus keeps 0 of {}; Esc takes it away",
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
        canvas.put(area.x + 2, y, area.width - 2, &line, canvas.look.muted());
    }
}

fn whole(value: i64) -> String {
    let mut digits = String::new();
    push_whole(value, &mut digits);
    digits
}
