//! What pprof's printers are told: its flags, and what its driver works out before a report is
//! made.

use std::collections::HashMap;

use crate::graph::truncate_as_go;
use regex::Regex;

use super::measurement::UnitScale;
use super::zone::ReportTimeZone;

/// Options of a report, named as in pprof where it has a name for them.
#[derive(Clone, Debug)]
pub struct PprofReportOptions {
    /// Sort by cum instead of flat.
    pub cum_sort: bool,
    /// A tree instead of a graph; only dot and callgrind obey it.
    pub call_tree: bool,
    /// Leave out nodes of negative value.
    pub drop_negative: bool,
    /// Leave out the lines about the profile, unless the report is a picture.
    pub compact_labels: bool,
    /// What shown values are multiplied by: 1 / `divide_by`.
    pub ratio: f64,
    /// `option=value` of each filter, in pprof's order.
    pub active_filters: Vec<String>,
    /// The unit of each key of number labels, of the whole profile before filters.
    pub num_label_units: HashMap<String, String>,
    /// The most nodes to show. 0 shows all.
    pub node_count: usize,
    /// Nodes whose cum is below this share of the sum of flats are dropped.
    pub node_fraction: f64,
    /// Edges below this share of the sum of flats are dropped.
    pub edge_fraction: f64,
    /// Position of the sample type in [`heapprof_profile::Profile::sample_type`].
    pub column: usize,
    /// With `-mean` the position of the type to divide by.
    pub mean_divisor: Option<usize>,
    /// Name of the sample type, `mean_` before it where means are shown.
    pub sample_type: String,
    /// Unit of the sample type as in the profile.
    pub sample_unit: String,
    /// `minimum`, `auto` or a unit.
    pub output_unit: String,
    /// The sum that percentages are of: all samples before filters, or after them with
    /// `relative_percentages`.
    pub total: i64,
    /// What `-peek` (and `-list`) look for.
    pub symbol: Option<Regex>,
    /// Where sources are looked for, as a list separated by `:`. It also serves as a guess at what
    /// to trim from file names.
    pub source_path: String,
    /// What to trim from the front of file names, as a list separated by `:`.
    pub trim_path: String,
    /// The zone in which times are shown.
    pub zone: ReportTimeZone,
}

impl Default for PprofReportOptions {
    /// Returns pprof's options without flags. Nothing is known of the profile yet.
    fn default() -> Self {
        Self {
            cum_sort: false,
            call_tree: false,
            drop_negative: false,
            compact_labels: false,
            ratio: 1.0,
            active_filters: Vec::new(),
            num_label_units: HashMap::new(),
            node_count: 0,
            node_fraction: 0.005,
            edge_fraction: 0.001,
            column: 0,
            mean_divisor: None,
            sample_type: String::new(),
            sample_unit: String::new(),
            output_unit: "minimum".to_string(),
            total: 0,
            symbol: None,
            source_path: String::new(),
            trim_path: String::new(),
            zone: ReportTimeZone::utc(),
        }
    }
}

impl PprofReportOptions {
    /// How values of the sample type are shown in the unit that was asked for.
    pub fn values(&self) -> PprofValueFormatter {
        self.values_in(&self.output_unit)
    }

    /// How values of the sample type are shown in `unit`.
    pub fn values_in(&self, unit: &str) -> PprofValueFormatter {
        PprofValueFormatter {
            ratio: self.ratio,
            scale: UnitScale::new(&self.sample_unit, unit),
        }
    }

    /// The unit of `bytes` labels, the only number labels that pictures show.
    pub(super) fn bytes_unit(&self) -> &str {
        self.num_label_units.get("bytes").map_or("", String::as_str)
    }
}

/// Shows values of the sample type: divided, scaled, with a unit.
#[derive(Clone, Debug)]
pub struct PprofValueFormatter {
    ratio: f64,
    scale: UnitScale,
}

impl PprofValueFormatter {
    /// A value as text.
    pub fn show(&self, value: i64) -> String {
        let value = match self.ratio > 0.0 && self.ratio != 1.0 {
            true => truncate_as_go(value as f64 * self.ratio),
            false => value,
        };
        self.scale.label(value)
    }
}
