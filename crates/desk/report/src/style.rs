//! The style in which a report is written.

use std::str::FromStr;

use heapprof_text::fold_words;

use crate::advice::{AdviceWords, ReportAdvice};

/// Number of terminal columns that a row of text takes by default.
pub(crate) const DEFAULT_COLUMNS: usize = 120;

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
    /// The number of columns of a screen to which text is fitted: names are cut, lines of words are
    /// folded, and reports that can leave columns out do so. `None` if there is no screen.
    pub width: Option<usize>,
    /// The function that returns the words of advice in text and Markdown.
    pub advice: AdviceWords,
}

impl ReportStyle {
    /// Returns the number of columns that names beside numbers may fill.
    pub(crate) fn columns(&self) -> usize {
        self.width.unwrap_or(DEFAULT_COLUMNS)
    }

    /// Returns the lines of a text that consists of words, as they fit the screen.
    pub(crate) fn fold(&self, text: &str) -> String {
        match (self.width, self.format) {
            (Some(width), ReportFormat::Text) => fold_words(text, width).join("\n"),
            _ => text.to_string(),
        }
    }

    /// Returns the words for a piece of advice.
    pub(crate) fn advise(&self, advice: ReportAdvice<'_>) -> String {
        (self.advice.0)(advice)
    }
}
