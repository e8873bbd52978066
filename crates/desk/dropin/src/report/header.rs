//! The lines above a report: a description of the profile, the active filters, and the share that
//! the rows account for.

use crate::graph::{base, truncate_as_go};
use heapprof_profile::Profile;

use super::measurement::{label, percentage, scale};
use super::options::{PprofReportOptions, PprofValueFormatter};

/// Numbers of shown and dropped nodes and edges of a report.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReportCounts {
    /// Sum of the shown flats.
    pub flat: i64,
    /// Number of nodes shown.
    pub nodes: usize,
    /// Number of nodes before `node_count` limited them.
    pub total_nodes: usize,
    /// Number of nodes that were left out because they are small.
    pub dropped_nodes: usize,
    /// Number of edges that were left out because they are small.
    pub dropped_edges: usize,
}

/// Returns the name of the main binary's file; empty if the profile has none.
pub(super) fn title(profile: &Profile) -> &str {
    let main = profile.mapping.first().map(|m| profile.text(m.filename));
    main.filter(|path| !path.is_empty()).map_or("", base)
}

/// Returns the lines that describe the profile: binary, comments, type, time, duration.
pub fn profile_labels(
    profile: &Profile,
    options: &PprofReportOptions,
    values: &PprofValueFormatter,
) -> Vec<String> {
    let mut labels = Vec::new();
    if !title(profile).is_empty() {
        labels.push(format!("File: {}", title(profile)));
    }
    if let Some(main) = profile.mapping.first()
        && !main.build_id.is_empty()
    {
        labels.push(format!("Build ID: {}", profile.text(main.build_id)));
    }
    let comments = profile.comment.iter().map(|&c| profile.text(c));
    labels.extend(comments.filter(|c| !c.starts_with('#')).map(str::to_string));
    if !options.sample_type.is_empty() {
        labels.push(format!("Type: {}", options.sample_type));
    }
    if !profile.doc_url.is_empty() {
        labels.push(format!("Doc: {}", profile.text(profile.doc_url)));
    }
    if profile.time_nanos != 0 {
        labels.push(format!("Time: {}", options.zone.show(profile.time_nanos)));
    }
    if profile.duration_nanos != 0 {
        let (nanos, unit) = scale(options.total, &options.sample_unit, "nanoseconds");
        let share = match unit == "ns" && nanos != 0.0 {
            true => format!(
                "({})",
                percentage(truncate_as_go(nanos), profile.duration_nanos)
            ),
            false => String::new(),
        };
        labels.push(format!(
            "Duration: {}, Total samples = {} {share}",
            label(profile.duration_nanos, "nanoseconds"),
            values.show(options.total),
        ));
    }
    labels
}

/// Returns all lines above a report. With `full`, which pictures use, the lines about the profile
/// are included even if `compact_labels` is set.
pub fn report_labels(
    profile: &Profile,
    options: &PprofReportOptions,
    values: &PprofValueFormatter,
    shown: &ReportCounts,
    full: bool,
) -> Vec<String> {
    let total = options.total;
    let mut labels = match full || !options.compact_labels {
        true => profile_labels(profile, options, values),
        false => Vec::new(),
    };
    if !options.active_filters.is_empty() {
        labels.push("Active filters:".to_string());
        let filters = options.active_filters.iter();
        labels.extend(filters.map(|filter| format!("   {}", shorten_filter(filter))));
    }
    labels.push(format!(
        "Showing nodes accounting for {}, {} of {} total",
        values.show(shown.flat),
        percentage(shown.flat, total).trim(),
        values.show(total)
    ));
    if total != 0 {
        let cutoff =
            |fraction: f64| values.show(truncate_as_go(total as f64 * fraction).wrapping_abs());
        let dropped = |count: usize, what: &str, by: &str, fraction: f64| {
            let plural = if count > 1 { "s" } else { "" };
            format!(
                "Dropped {count} {what}{plural} ({by} <= {})",
                cutoff(fraction)
            )
        };
        if shown.dropped_nodes > 0 {
            labels.push(dropped(
                shown.dropped_nodes,
                "node",
                "cum",
                options.node_fraction,
            ));
        }
        if shown.dropped_edges > 0 {
            labels.push(dropped(
                shown.dropped_edges,
                "edge",
                "freq",
                options.edge_fraction,
            ));
        }
        if shown.nodes > 0 && shown.nodes < shown.total_nodes {
            labels.push(format!(
                "Showing top {} nodes out of {}",
                shown.nodes, shown.total_nodes
            ));
        }
    }
    if full {
        labels.push("\nSee https://git.io/JfYMW for how to read the graph".to_string());
    }
    labels
}

/// Returns at most 80 bytes of a filter. Unlike pprof, this function cuts no character in two.
fn shorten_filter(filter: &str) -> String {
    let whole = (0..=80).rev().find(|&at| filter.is_char_boundary(at));
    match filter.len() > 80 {
        true => format!("{}…", &filter[..whole.unwrap_or(0)]),
        false => filter.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_filters_are_cut() {
        let long = format!("focus={}", "x".repeat(100));
        assert_eq!(shorten_filter(&long), format!("{}…", &long[..80]));
        assert_eq!(shorten_filter("hide=x"), "hide=x");
    }
}
