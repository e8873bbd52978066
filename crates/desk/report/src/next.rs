//! Advice on what to do next if the rows of a report do not help: if a wrapper hides the callers,
//! if code has no names, or if there are too few samples.

use heapprof_analysis::{
    CodePlace,
    top::{TopReport, TopRow},
    wrapper::AllocationWrapper,
};

use crate::advice::ReportAdvice;
use crate::measure::{percent, plural};
use crate::style::ReportStyle;

/// Maximum number of wrappers that the advice names.
const MAX_WRAPPERS: usize = 2;
/// Number of samples below which a report gives little information.
const MIN_SAMPLES: u64 = 30;

/// Returns a line about a wrapper that hides its callers, and how to see them.
pub(crate) fn wrapper_text(wrapper: &AllocationWrapper, style: &ReportStyle) -> String {
    let name = &wrapper.function;
    format!(
        "{name} is only a wrapper around malloc, called by {} ({}): {}",
        plural(&wrapper.callers.to_string(), "function"),
        percent(wrapper.value, wrapper.total),
        style.advise(ReportAdvice::CountForCallers(&wrapper.pattern())),
    )
}

/// Returns the lines of advice at the end of the report `top`.
pub(crate) fn after_top(top: &TopReport, style: &ReportStyle) -> Vec<String> {
    let mut lines = Vec::new();
    let is_shown = |wrapper: &&AllocationWrapper| {
        let mut rows = top.rows.iter().filter(|row| row.flat != 0);
        rows.any(|row| is_row_of_function(&row.place, &wrapper.function))
    };
    let shown = top.wrappers.iter().filter(is_shown).take(MAX_WRAPPERS);
    lines.extend(shown.map(|wrapper| wrapper_text(wrapper, style)));
    let sum = |nameless: bool| -> i128 {
        let rows = top
            .rows
            .iter()
            .filter(|row| !nameless || row.place.is_nameless());
        rows.map(|row| i128::from(row.flat.unsigned_abs())).sum()
    };
    if sum(true) * 2 > sum(false) {
        let is_address = |row: &TopRow| row.flat != 0 && row.place.function.starts_with("0x");
        let advice = match top.rows.iter().any(is_address) {
            // The addresses were not symbolized yet.
            true => ReportAdvice::Symbolize,
            // This machine has no symbols for them.
            false => ReportAdvice::DebugFiles,
        };
        lines.push(format!(
            "More than half of this is held by code without names: {}",
            style.advise(advice)
        ));
    }
    let samples = top
        .header
        .estimate
        .as_ref()
        .map(|estimate| estimate.samples);
    if let Some(few) = samples.filter(|&n| n > 0 && n < MIN_SAMPLES)
        && !top.rows.is_empty()
    {
        lines.push(format!(
            "This is based on only {}: a shorter period takes more, and {}",
            plural(&few.to_string(), "sample"),
            style.advise(ReportAdvice::RecordAll)
        ));
    }
    lines
}

/// Whether a row is about a function, whatever its parameters are.
fn is_row_of_function(place: &CodePlace, function: &str) -> bool {
    let rest = place.function.strip_prefix(function);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('('))
}
