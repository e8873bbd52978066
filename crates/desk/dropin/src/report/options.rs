//! Options of pprof's printers: its flags, and values that its driver computes before it makes a
//! report.

use std::collections::HashMap;

use crate::graph::truncate_as_go;
use regex::Regex;

use super::measurement::UnitScale;
use super::zone::ReportTimeZone;

/// Options of a report. pprof's own options have the same names as in pprof.
#[derive(Clone, Debug)]
pub struct PprofReportOptions {
    /// Whether rows are sorted by cum instead of flat.
    pub cum_sort: bool,
    /// Whether the graph is a call tree. Only dot and callgrind use this option.
    pub call_tree: bool,
    /// Whether nodes of negative value are left out.
    pub drop_negative: bool,
    /// Whether the lines about the profile are left out, unless the report is a picture.
    pub compact_labels: bool,
    /// Factor by which shown values are multiplied: 1 / `divide_by`.
    pub ratio: f64,
    /// `option=value` of each filter, in pprof's order.
    pub active_filters: Vec<String>,
    /// The unit of each key of number labels, taken from the whole profile before filters.
    pub num_label_units: HashMap<String, String>,
    /// Maximum number of nodes to show; 0 shows all.
    pub node_count: usize,
    /// Least cum of a shown node, as a share of the sum of flats. Smaller nodes are left out.
    pub node_fraction: f64,
    /// Least weight of a shown edge, as a share of the sum of flats. Lighter edges are left out.
    pub edge_fraction: f64,
    /// Position of the sample type in [`heapprof_profile::Profile::sample_type`].
    pub column: usize,
    /// With `-mean`, the position of the type to divide by.
    pub mean_divisor: Option<usize>,
    /// Name of the sample type, with `mean_` before it if means are shown.
    pub sample_type: String,
    /// Unit of the sample type as in the profile.
    pub sample_unit: String,
    /// The wanted unit: `minimum`, `auto` or a name.
    pub output_unit: String,
    /// The total for percentages: the sum of all samples before filters or, with
    /// `relative_percentages`, after filters.
    pub total: i64,
    /// Whether instructions are shown in Intel's syntax.
    pub intel_syntax: bool,
    /// The regular expression of `-peek`, `-list`, `-disasm` or `-weblist`.
    pub symbol: Option<Regex>,
    /// Folders in which sources are searched, as a list separated by `:`. If `trim_path` is empty,
    /// a file name is cut after a folder with the same name as one of these folders.
    pub source_path: String,
    /// Prefixes to trim from file names, as a list separated by `:`.
    pub trim_path: String,
    /// The zone in which times are shown.
    pub zone: ReportTimeZone,
}

impl Default for PprofReportOptions {
    /// Returns pprof's defaults, without the values that depend on a profile.
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
            intel_syntax: false,
            symbol: None,
            source_path: String::new(),
            trim_path: String::new(),
            zone: ReportTimeZone::utc(),
        }
    }
}

impl PprofReportOptions {
    /// Returns a formatter for values of the sample type in the requested unit.
    pub fn values(&self) -> PprofValueFormatter {
        self.values_in(&self.output_unit)
    }

    /// Returns a formatter for values of the sample type in `unit`.
    pub fn values_in(&self, unit: &str) -> PprofValueFormatter {
        PprofValueFormatter {
            ratio: self.ratio,
            scale: UnitScale::new(&self.sample_unit, unit),
        }
    }

    /// Returns the unit of `bytes` labels, the only number labels in pictures.
    pub(super) fn bytes_unit(&self) -> &str {
        self.num_label_units.get("bytes").map_or("", String::as_str)
    }
}

/// Formats values of the sample type: multiplies by the ratio, converts, and adds the unit.
#[derive(Clone, Debug)]
pub struct PprofValueFormatter {
    ratio: f64,
    scale: UnitScale,
}

impl PprofValueFormatter {
    /// Returns a value as text with its unit.
    pub fn show(&self, value: i64) -> String {
        let value = match self.ratio > 0.0 && self.ratio != 1.0 {
            true => truncate_as_go(value as f64 * self.ratio),
            false => value,
        };
        self.scale.label(value)
    }
}
