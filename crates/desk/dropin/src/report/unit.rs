//! Chooses the unit of a report for `-unit=minimum`, in which the smallest value is visible.

use crate::graph::{CallGraph, truncate_as_go};

use super::measurement::scale;
use super::options::PprofReportOptions;

/// Returns the unit for the values of `graph`. With `whole`, values are shown as whole numbers, so
/// no value may be below one in this unit.
pub(super) fn output_unit(
    graph: &CallGraph<'_>,
    options: &PprofReportOptions,
    whole: bool,
) -> String {
    if options.output_unit != "minimum" || graph.shown().is_empty() {
        return options.output_unit.clone();
    }
    let sizes = graph.shown().iter().map(|&node| match graph.flat(node) {
        0 => graph.cum(node).wrapping_abs(),
        flat => flat.wrapping_abs(),
    });
    let least = sizes.filter(|&size| size > 0).min();
    let (mut least, mut most) = (least.unwrap_or(options.total), options.total);
    if options.ratio > 0.0 && options.ratio != 1.0 {
        least = truncate_as_go(least as f64 * options.ratio);
        most = truncate_as_go(most as f64 * options.ratio);
    }
    let unit_of = |value: i64| scale(value, &options.sample_unit, "minimum").1;
    let mut unit = unit_of(least);
    let hundredfold = least.wrapping_mul(100);
    if unit != unit_of(most) && hundredfold < most && !whole {
        // With two decimals, the smallest value may be a hundredth of the unit.
        unit = unit_of(hundredfold);
    }
    match unit.as_str() {
        "" => options.sample_unit.clone(),
        _ => unit,
    }
}
