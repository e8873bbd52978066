//! The question of `peek`: callers and callees of functions whose name matches a regular
//! expression.

use anyhow::Result;
use heapprof_analysis::{
    AnalysisSession, Query, QuestionSource, TypeSelection,
    peek::{PeekReport, peek},
};
use heapprof_text::explain_shown_match;
use regex::Regex;

use super::{NoteSink, QuestionError, open_session};

/// The question of the command `peek`: callers and callees of functions whose name matches a
/// regular expression.
pub struct PeekQuestion {
    /// The query about the profile.
    pub query: Query,
    /// The regular expression that functions' names must match.
    pub wanted: Regex,
}

impl PeekQuestion {
    /// Starts the session that answers the question.
    pub fn open(&self, source: QuestionSource, note: NoteSink<'_>) -> Result<AnalysisSession> {
        let types = TypeSelection::Requested;
        open_session(vec![source], &self.query, types, note, |question| {
            question.with_neighbours_of(|name| self.wanted.is_match(name))
        })
    }

    /// Returns the rows of the report. `name` is the profile's name for the error if no function
    /// matches.
    pub fn rows<'s>(&self, session: &'s AnalysisSession, name: &str) -> Result<PeekReport<'s>> {
        let report = peek(session, &self.query)?;
        if report.rows.is_empty() {
            let all = report.places.iter().map(|place| &*place.function);
            let error = QuestionError::NoMatch {
                profile: name.to_string(),
                sample_type: report.header.sample_type.r#type.clone(),
                regex: self.wanted.as_str().to_string(),
                reason: explain_shown_match(&self.wanted, all),
            };
            return Err(error.into());
        }
        Ok(report)
    }
}
