//! Draws curves with characters: a chart of the heap and RSS in braille, and a sparkline in blocks.

use heapprof_report::DotGrid;

use super::feed::CurvePoint;

/// Draws values as a curve, with one character for each value.
pub(super) fn sparkline(values: &[i64]) -> String {
    let values: Vec<i128> = values.iter().map(|&value| i128::from(value)).collect();
    heapprof_report::sparkline(&values, values.len())
}

/// Draws a bar of at most `width` columns, in eighths of a column.
pub(super) fn bar(value: i64, most: i64, width: usize) -> String {
    if most <= 0 || value <= 0 {
        return String::new();
    }
    let eighths = (value as f64 / most as f64 * width as f64 * 8.0).round() as usize;
    heapprof_report::bar(eighths.clamp(1, width * 8))
}

/// A chart: its lines, and the value at its top row.
pub(super) struct HeapChart {
    pub(super) lines: Vec<String>,
    pub(super) most: i64,
}

/// Draws the points in `width` columns and `height` rows. The heap is filled, and RSS is a dotted
/// line. Without `with_rss`, only the heap is drawn.
pub(super) fn chart(
    points: &[CurvePoint],
    width: usize,
    height: usize,
    with_rss: bool,
) -> HeapChart {
    let (columns, rows) = (width * 2, height * 4);
    let rss = |point: &CurvePoint| point.rss.filter(|_| with_rss);
    let largest = |point: &CurvePoint| point.heap.max(rss(point).unwrap_or(0));
    let most = points.iter().map(largest).max().unwrap_or(0).max(1);
    let mut dots = DotGrid::new(width, height);
    if let (Some(first), Some(last)) = (points.first(), points.last())
        && columns > 0
        && rows > 0
    {
        let span = (last.seconds - first.seconds).max(f64::MIN_POSITIVE);
        let level = |value: i64| (value.max(0) as f64 / most as f64 * rows as f64).round() as usize;
        for x in 0..columns {
            let time = first.seconds + span * (x as f64 + 1.0) / columns as f64;
            // The last point that is not after this column.
            let after = points.partition_point(|point| point.seconds <= time);
            let point = &points[after.max(1) - 1];
            let top = level(point.heap).max(usize::from(point.heap > 0));
            (0..top.min(rows)).for_each(|y| dots.set(x, y));
            if let Some(rss) = rss(point).filter(|_| x % 2 == 0) {
                dots.set(x, level(rss).clamp(1, rows) - 1);
            }
        }
    }
    HeapChart {
        lines: dots.lines(),
        most,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_begin_at_zero() {
        assert_eq!(sparkline(&[0, 1, 2, 4, 8]), "▁▂▃▅█");
        assert_eq!(sparkline(&[-5, 0]), "▁▁");
        assert_eq!(bar(8, 8, 3), "███");
        assert_eq!(bar(1, 1000, 3), "▏");
        assert_eq!(bar(0, 8, 3), "");
        let point = |seconds, heap, rss| CurvePoint { seconds, heap, rss };
        let points = [
            point(0.0, 0, Some(8)),
            point(1.0, 4, Some(8)),
            point(2.0, 8, None),
        ];
        let found = chart(&points, 4, 2, true);
        assert_eq!((found.lines.join("/"), found.most), ("⠁⠁⠁⢹/⠀⢸⣿⣿".into(), 8));
        assert_eq!(chart(&[], 2, 1, true).lines, ["⠀⠀"]);
        assert_eq!(chart(&points, 0, 0, true).lines.len(), 0);
    }
}
