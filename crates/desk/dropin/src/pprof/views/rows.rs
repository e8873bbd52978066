//! The rows of pprof's view Top, in the order of its page and with its percentages.

use crate::report::{TopRow, to_fixed};
use crate::views::PercentRow;

/// Sorts rows as pprof's page does when it opens: by flat, the largest first. Rows that are sorted
/// by cum stay in the report's order.
pub(super) fn in_page_order(mut rows: Vec<TopRow>, by_cum: bool) -> Vec<TopRow> {
    if !by_cum {
        rows.sort_by_key(|row| row.flat);
        rows.reverse();
    }
    rows
}

/// Adds the shares of the total to rows, as pprof's page does.
pub(super) fn with_percent(rows: Vec<TopRow>, total: i64) -> Vec<PercentRow> {
    let percent = |value: i64| {
        let percent = value as f64 * 100.0 / total as f64;
        format!("{}%", to_fixed(percent, 2))
    };
    let mut sum = 0i64;
    let with_percent = |row: TopRow| {
        sum = sum.wrapping_add(row.flat);
        PercentRow {
            percent: [row.flat, sum, row.cum].map(percent),
            row,
        }
    };
    rows.into_iter().map(with_percent).collect()
}
