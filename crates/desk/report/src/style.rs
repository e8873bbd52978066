//! How a report is to be written.

use std::str::FromStr;

/// The form of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReportFormat {
    /// For people.
    #[default]
    Text,
    /// For programs; numbers in the sample type's unit.
    Json,
    /// For spreadsheets; numbers in the sample type's unit.
    Csv,
    /// For pull requests and pages.
    Markdown,
}

impl FromStr for ReportFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "text" => Ok(ReportFormat::Text),
            "json" => Ok(ReportFormat::Json),
            "csv" => Ok(ReportFormat::Csv),
            "markdown" => Ok(ReportFormat::Markdown),
            _ => Err(format!("{text:?} is not one of text, json, csv, markdown")),
        }
    }
}

/// How to write a report.
#[derive(Clone, Debug, Default)]
pub struct ReportStyle {
    /// The form.
    pub format: ReportFormat,
    /// Whether text may be coloured.
    pub color: bool,
    /// The unit to show values in; chosen for each value when `None`.
    pub unit: Option<String>,
    /// Whether text and Markdown show whole names.
    pub full_names: bool,
    /// The most columns that text may take, if a report can do with fewer.
    pub width: Option<usize>,
}
