//! Draws the curve of the heap: small above the other views, and large in its own view.

use heapprof_report::UnitFormatter;
use ratatui_core::layout::Rect;

use super::canvas::ScreenCanvas;
use super::chart::chart as drawn;
use super::feed::{CurvePoint, SnapshotPeak};
use super::head::clock;
use super::view_data::ViewData;

/// Number of columns for the scale.
const SCALE_COLUMNS: u16 = 11;
/// Largest ratio of RSS to the heap at which RSS is drawn. With a larger ratio, the heap would be
/// too low to see.
const MAX_RSS_TO_HEAP_RATIO: i64 = 20;

/// Returns the curve with a point for the peak, which is visible in a chart of `columns` columns.
/// If the peak lies between two moments, the curve returns to its value before the peak, because
/// the real value is not known.
fn with_peak(data: &ViewData, columns: u16) -> Vec<CurvePoint> {
    let mut points = data.news.history.clone();
    let most = points.iter().map(|point| point.heap).max();
    if let Some(peak) = data.news.peak
        && let Some(seconds) = peak.seconds
        && Some(peak.bytes) > most
    {
        let at = points.partition_point(|point| point.seconds < seconds);
        let before = at.checked_sub(1).and_then(|before| points.get(before));
        let (heap, rss) = before.map_or((0, None), |before| (before.heap, before.rss));
        let point = |seconds, heap| CurvePoint { seconds, heap, rss };
        let end = points.last().map_or(seconds, |last| last.seconds);
        let begin = points.first().map_or(seconds, |first| first.seconds);
        let until = seconds + (end - begin.min(seconds)) / f64::from(columns.max(1));
        let is_room = points.get(at).is_some_and(|next| next.seconds > until);
        let back = is_room.then(|| point(until, heap));
        points.splice(
            at..at,
            std::iter::once(point(seconds, peak.bytes)).chain(back),
        );
    }
    points
}

/// Returns the largest heap and its time.
fn largest(data: &ViewData) -> Option<SnapshotPeak> {
    let history = data.news.history.iter();
    // Of equal points, the first one counts.
    let of_curve = history.rev().max_by_key(|point| point.heap);
    let of_curve = of_curve.map(|point| SnapshotPeak {
        bytes: point.heap,
        seconds: Some(point.seconds),
    });
    let is_larger = |peak: &SnapshotPeak| of_curve.is_none_or(|of| peak.bytes > of.bytes);
    data.news.peak.filter(is_larger).or(of_curve)
}

/// Draws the chart into an area of any height.
pub(super) fn chart(canvas: &mut ScreenCanvas<'_>, area: Rect, data: &ViewData) {
    let bytes = UnitFormatter::new("bytes", None).unwrap_or_else(|_| UnitFormatter::raw());
    let width = area.width.saturating_sub(SCALE_COLUMNS + 1);
    let history = &with_peak(data, width);
    let heap = history.iter().map(|point| point.heap).max().unwrap_or(0);
    let rss = history
        .iter()
        .filter_map(|point| point.rss)
        .max()
        .unwrap_or(0);
    let with_rss = rss <= heap.saturating_mul(MAX_RSS_TO_HEAP_RATIO);
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
        canvas.put(area.x, y, SCALE_COLUMNS, &scale, canvas.style.muted());
        canvas.put(area.x + SCALE_COLUMNS, y, width, line, canvas.style.chart());
    }
    if history.is_empty() {
        let x = area.x + SCALE_COLUMNS + 1;
        canvas.put(x, area.y, width - 1, "no moment yet", canvas.style.muted());
        return;
    }
    let legend = match (with_rss && rss > 0, rss > 0) {
        (true, _) => " heap ⣿  RSS ⠁⠁ ",
        (false, true) => " heap ⣿ (RSS is far above it) ",
        (false, false) => " heap ⣿ ",
    };
    let columns = legend.chars().count() as u16;
    // Most heaps are lower at first, so the legend is on the left.
    let x = area.x + SCALE_COLUMNS + 1;
    let y = area.y + u16::from(area.height > 2);
    canvas.put(x, y, columns, legend, canvas.style.muted());
}

/// Draws the timeline.
pub(super) fn draw(canvas: &mut ScreenCanvas<'_>, area: Rect, data: &ViewData) {
    let output = &data.news.output;
    let below = (output.len() as u16).min(area.height / 3);
    let high = area.height.saturating_sub(2 + below + u16::from(below > 0));
    chart(canvas, Rect::new(area.x, area.y, area.width, high), data);
    let history = &data.news.history;
    if let (Some(first), Some(last)) = (history.first(), history.last()) {
        let y = area.y + high;
        let style = canvas.style.muted();
        canvas.put(area.x + SCALE_COLUMNS, y, 12, &clock(first.seconds), style);
        let end = clock(last.seconds);
        let x = area.right().saturating_sub(end.chars().count() as u16 + 1);
        canvas.put(x, y, 12, &end, style);
        let bytes = UnitFormatter::new("bytes", None).unwrap_or_else(|_| UnitFormatter::raw());
        let text = match (history.len(), largest(data)) {
            (1, Some(only)) if only.bytes == last.heap => {
                format!(
                    "1 moment, at {}: {}",
                    clock(last.seconds),
                    bytes.show(last.heap)
                )
            }
            (moments, most) => {
                let most = most.map_or(String::new(), |most| {
                    let at = most.seconds.map_or_else(
                        || ", at an unknown time".to_string(),
                        |seconds| format!(" at {}", clock(seconds)),
                    );
                    format!("; the heap was largest{at}: {}", bytes.show(most.bytes))
                });
                let plural = if moments == 1 { "" } else { "s" };
                format!("{moments} moment{plural}{most}")
            }
        };
        canvas.put(
            area.x + SCALE_COLUMNS,
            y + 1,
            area.width - SCALE_COLUMNS,
            &text,
            style,
        );
    }
    if below > 0 {
        let mut y = area.bottom() - below - 1;
        canvas.put(
            area.x + 1,
            y,
            area.width - 1,
            "what the program printed last",
            canvas.style.strong(),
        );
        for line in &output[output.len() - usize::from(below)..] {
            y += 1;
            canvas.put(
                area.x + 1,
                y,
                area.width - 1,
                line,
                ratatui_core::style::Style::new(),
            );
        }
    }
}
