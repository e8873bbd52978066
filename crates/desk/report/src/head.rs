//! The lines above a report: the metric, the profile, the total, and the sums that are left out.

use heapprof_analysis::ReportHeader;

use crate::advice::ReportAdvice;
use crate::error::ReportError;
use crate::measure::{UnitFormatter, percent};
use crate::range;
use crate::style::{ReportFormat, ReportStyle};
use crate::table::printable;

/// Returns the formatter for the values of a report. It shows units to people, and plain numbers to
/// programs.
pub(crate) fn measure(
    header: &ReportHeader,
    style: &ReportStyle,
) -> Result<UnitFormatter, ReportError> {
    // The formatter is made in any case, so that a wrong --unit is an error in every format.
    let shown = UnitFormatter::new(&header.sample_type.unit, style.unit.as_deref())?;
    Ok(match style.format {
        ReportFormat::Text | ReportFormat::Markdown => shown,
        ReportFormat::Json | ReportFormat::Csv => UnitFormatter::raw(),
    })
}

/// Returns the lines above a report. There are none for formats that hold only data.
pub(crate) fn lines(
    header: &ReportHeader,
    measure: &UnitFormatter,
    style: &ReportStyle,
) -> Vec<String> {
    if !matches!(style.format, ReportFormat::Text | ReportFormat::Markdown) {
        return Vec::new();
    }
    let mut total = measure.show(header.total);
    let is_net = header.net != header.total && header.left_out == 0;
    if is_net {
        total = format!("{total}, net {}", measure.show(header.net));
    }
    if let Some(estimate) = &header.estimate {
        let value = if is_net { header.net } else { header.total };
        total.push_str(&range::after(value, estimate, measure));
    }
    let mut lines = vec![format!(
        "{}: {}, total {total}",
        header.profile, header.sample_type.r#type,
    )];
    if let Some(estimated) = estimate_note(header) {
        lines[0].push_str(&estimated);
    }
    if !header.filters.is_empty() {
        lines.push(format!(
            "Filters: {}; kept {}{} ({}), left out {}",
            header.filters.join(" "),
            measure.show(header.net),
            header
                .net_estimate
                .as_ref()
                .map_or_else(String::new, |estimate| {
                    range::after(header.net, estimate, measure)
                }),
            percent(header.net, header.total),
            measure.show(header.left_out),
        ));
    }
    lines.extend(own_code(header, measure, style));
    if let Some(bytes) = header.in_use_at_end.filter(|_| header.total != 0) {
        lines.push(format!(
            "Peak values are shown. At the end, {} was in use: {}.",
            measure.show(bytes),
            style.advise(ReportAdvice::EndOfProgram)
        ));
    }
    if header.is_sampled_peak() && header.total != 0 {
        lines.push(SAMPLED_PEAK_NOTE.to_string());
    }
    if let Some(why) = empty_reason(header, measure, style) {
        lines.push(why);
    }
    lines
}

/// Returns the line about `own_code`; `None` if the query does not have it. The line has the memory
/// of libraries that is counted for a caller in the program's own code, and the memory without such
/// a caller.
pub(crate) fn own_code(
    header: &ReportHeader,
    measure: &UnitFormatter,
    style: &ReportStyle,
) -> Option<String> {
    let [counted, left] = header.folded?;
    let show = |sum: i128| {
        let shown = measure.show(i64::try_from(sum).unwrap_or(i64::MAX));
        format!("{shown} ({})", percent(sum, header.total))
    };
    if counted == 0 {
        return None;
    }
    let what = match header.is_about_memory() {
        true => "was allocated by libraries",
        false => "belongs to library functions",
    };
    let mut line = format!(
        "{} {what} and is attributed to their callers",
        show(counted)
    );
    if left * 100 >= i128::from(header.total) {
        line.push_str(&format!(
            "; {} has no caller in the program's own code",
            show(left)
        ));
    }
    Some(format!("{line}; {}.", style.advise(ReportAdvice::AllCode)))
}

/// The reason why a sampled peak has no range.
pub(crate) const SAMPLED_PEAK_NOTE: &str = "A sampled peak has no error range, because its moment \
                               is the one at which the estimate was largest.";

/// Returns the end of a line, with a note that values are estimates; `None` for exact values.
pub(crate) fn estimate_note(header: &ReportHeader) -> Option<String> {
    let period = header.sampled?;
    let period =
        UnitFormatter::new("bytes", None).map_or_else(|_| period.to_string(), |m| m.show(period));
    let samples = match header.estimate.as_ref().filter(|e| e.samples > 0) {
        Some(estimate) => range::samples(estimate),
        None => "samples".to_string(),
    };
    Some(format!(
        " (estimated from {samples}, one every {period} on average)"
    ))
}

/// Returns how the values of a report, or of both profiles of a comparison, were sampled; `None` if
/// they were not sampled.
pub(crate) fn sampling(before: &ReportHeader, after: Option<&ReportHeader>) -> Option<String> {
    let show = |period: i64| {
        let period = UnitFormatter::new("bytes", None)
            .map_or_else(|_| period.to_string(), |m| m.show(period));
        format!("one every {period} on average")
    };
    let is_exact = [before.is_exact, after.is_some_and(|after| after.is_exact)];
    let after = after.map_or(before.sampled, |after| after.sampled);
    let only = |period: i64, this: &str, other: &str, is_exact: bool| {
        let is = if is_exact { " and exact" } else { ", but not" };
        format!(
            "estimated from samples {this} ({}){is} {other}, so a difference is an estimate",
            show(period)
        )
    };
    Some(match (before.sampled, after) {
        (None, None) => return None,
        (Some(before), Some(after)) if before == after => {
            format!("estimated from samples, {}", show(after))
        }
        (Some(before), Some(after)) => format!(
            "estimated from samples, {} before, and {} after",
            show(before),
            show(after)
        ),
        (Some(before), None) => only(before, "before", "after", is_exact[1]),
        (None, Some(after)) => only(after, "after", "before", is_exact[0]),
    })
}

/// Returns the reason why a report is empty; `None` if it is not empty.
pub(crate) fn empty_reason(
    header: &ReportHeader,
    measure: &UnitFormatter,
    style: &ReportStyle,
) -> Option<String> {
    if header.elsewhere.is_empty() && header.net == 0 && header.total == 0 {
        let why = match header.sampled {
            Some(_) => format!(
                ": no allocation was sampled. {}",
                style.advise(ReportAdvice::SampleMore)
            ),
            None => String::new(),
        };
        return Some(format!("The profile has no values other than 0{why}."));
    }
    if header.elsewhere.is_empty() {
        return None;
    }
    if !header.filters.is_empty() && header.total != 0 {
        return Some("No sample passes the filters.".to_string());
    }
    let others: Vec<String> = header
        .elsewhere
        .iter()
        .map(|(name, unit, total)| {
            let shown = UnitFormatter::new(unit, None)
                .map_or_else(|_| measure.show(*total), |m| m.show(*total));
            format!("{name} has {shown}")
        })
        .collect();
    Some(format!(
        "{} is 0 in all samples; {}: {}",
        header.sample_type.r#type,
        others.join(", "),
        style.advise(ReportAdvice::OtherType(most_telling_type(header)))
    ))
}

/// Returns the sample type to suggest if the requested one has no values: bytes at the peak,
/// otherwise all allocated bytes, otherwise the first type that has values.
fn most_telling_type(header: &ReportHeader) -> &str {
    let names = || header.elsewhere.iter().map(|(name, _, _)| name.as_str());
    let known = ["peak_space", "alloc_space"];
    let found = known.into_iter().find(|known| names().any(|n| n == *known));
    found.or(names().next()).unwrap_or_default()
}

/// Joins the head and the body of a report to one text.
pub(crate) fn with_head(lines: &[String], body: &str, style: &ReportStyle) -> String {
    let mut text = String::new();
    for line in lines {
        let line = printable(line);
        match style.format {
            ReportFormat::Markdown => text.push_str(&format!("{}\n\n", line.replace('_', "\\_"))),
            _ => {
                text.push_str(&style.fold(&line));
                text.push('\n');
            }
        }
    }
    text.push_str(body);
    text
}
