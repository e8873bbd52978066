//! The style in which a report is written.

use std::str::FromStr;

use crate::advice::{AdviceWords, ReportAdvice};

/// The form of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReportFormat {
    /// Text for people.
    #[default]
    Text,
    /// JSON for programs, with numbers in the sample type's unit.
    Json,
    /// CSV for spreadsheets, with numbers in the sample type's unit.
    Csv,
    /// Markdown for pull requests and pages.
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

/// The style in which a report is written.
#[derive(Clone, Debug, Default)]
pub struct ReportStyle {
    /// The form of the report.
    pub format: ReportFormat,
    /// Whether text may be coloured.
    pub color: bool,
    /// The unit in which values are shown; `None` chooses a unit for each value.
    pub unit: Option<String>,
    /// Whether text and Markdown show whole names.
    pub full_names: bool,
    /// The largest number of columns of text, for reports that can leave columns out.
    pub width: Option<usize>,
    /// The function that returns the words of advice in text and Markdown.
    pub advice: AdviceWords,
}

impl ReportStyle {
    /// Returns the words for a piece of advice.
    pub(crate) fn advise(&self, advice: ReportAdvice<'_>) -> String {
        (self.advice.0)(advice)
    }
}
