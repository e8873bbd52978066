//! The curve: small above the other views, and large in its own.

use heapprof_report::Measure;
use ratatui::layout::Rect;

use super::canvas::Canvas;
use super::chart::chart as drawn;
use super::head::clock;
use super::known::Data;

/// The columns of the scale.
const SCALE: u16 = 11;
/// RSS that is more times as large as the heap would leave no room for the heap.
const TIMES: i64 = 20;

/// Draws the chart into an area of any height.
pub(super) fn chart(canvas: &mut Canvas<'_>, area: Rect, data: &Data) {
    let history = &data.news.history;
    let bytes = Measure::new("bytes", None).unwrap_or_else(|_| Measure::raw());
    let width = area.width.saturating_sub(SCALE + 1);
    let heap = history.iter().map(|point| point.heap).max().unwrap_or(0);
    let rss = history
        .iter()
        .filter_map(|point| point.rss)
        .max()
        .unwrap_or(0);
    let with_rss = rss <= heap.saturating_mul(TIMES);
    let chart = drawn(
        history,
        usize::from(width),
        usize::from(area.height),
        with_rss,
    );
    let last = area.height.saturating_sub(1);
    for (row, line) in (0u16..).zip(&chart.lines) {
        let scale = match row {
            0 => format!("{:>9} ┤", bytes.show(chart.most)),
            row if row == last => format!("{:>9} ┼", "0"),
            _ => format!("{:>9} │", ""),
        };
        let y = area.y + row;
        canvas.put(area.x, y, SCALE, &scale, canvas.look.muted());
        canvas.put(area.x + SCALE, y, width, line, canvas.look.chart());
    }
    if history.is_empty() {
        let x = area.x + SCALE + 1;
        canvas.put(x, area.y, width - 1, "no moment yet", canvas.look.muted());
        return;
    }
    let legend = match (with_rss && rss > 0, rss > 0) {
        (true, _) => " heap ⣿  RSS ⠁⠁ ",
        (false, true) => " heap ⣿ (RSS is far above it) ",
        (false, false) => " heap ⣿ ",
    };
    let columns = legend.chars().count() as u16;
    // Most heaps are lower at first.
    let x = area.x + SCALE + 1;
    let y = area.y + u16::from(area.height > 2);
    canvas.put(x, y, columns, legend, canvas.look.muted());
}

/// Draws the view.
pub(super) fn draw(canvas: &mut Canvas<'_>, area: Rect, data: &Data) {
    let output = &data.news.output;
    let below = (output.len() as u16).min(area.height / 3);
    let high = area.height.saturating_sub(2 + below + u16::from(below > 0));
    chart(canvas, Rect::new(area.x, area.y, area.width, high), data);
    let history = &data.news.history;
    if let (Some(first), Some(last)) = (history.first(), history.last()) {
        let y = area.y + high;
        let style = canvas.look.muted();
        canvas.put(area.x + SCALE, y, 12, &clock(first.seconds), style);
        let end = clock(last.seconds);
        let x = area.right().saturating_sub(end.chars().count() as u16 + 1);
        canvas.put(x, y, 12, &end, style);
        let bytes = Measure::new("bytes", None).unwrap_or_else(|_| Measure::raw());
        // The first of equal ones.
        let most = history
            .iter()
            .rev()
            .max_by_key(|point| point.heap)
            .unwrap_or(last);
        let is_at = format!("{}: {}", clock(most.seconds), bytes.show(most.heap));
        let text = match history.len() {
            1 => format!("1 moment, at {is_at}"),
            moments => format!("{moments} moments; the heap was largest at {is_at}"),
        };
        canvas.put(area.x + SCALE, y + 1, area.width - SCALE, &text, style);
    }
    if below > 0 {
        let mut y = area.bottom() - below - 1;
        canvas.put(
            area.x + 1,
            y,
            area.width - 1,
            "what the program printed last",
            canvas.look.strong(),
        );
        for line in &output[output.len() - usize::from(below)..] {
            y += 1;
            canvas.put(
                area.x + 1,
                y,
                area.width - 1,
                line,
                ratatui::style::Style::new(),
            );
        }
    }
}
