//! The question of `peek`: callers and callees of the functions that match.

use anyhow::{Result, bail};
use heapprof_analysis::{AnalysisSession, PeekReport, Query, QuestionSource, TypeSelection, peek};
use heapprof_text::explain_shown_match;
use regex::Regex;

use super::{NoteSink, open_session};
use crate::advice::mismatch_text;

/// The question of `peek`.
pub(crate) struct PeekQuestion {
    pub(crate) query: Query,
    /// The expression to find in functions' names.
    pub(crate) wanted: Regex,
}

impl PeekQuestion {
    /// Starts the session.
    pub(crate) fn open(
        &self,
        source: QuestionSource,
        note: NoteSink<'_>,
    ) -> Result<AnalysisSession> {
        let types = TypeSelection::Requested;
        open_session(vec![source], &self.query, types, note, |question| {
            question.with_neighbours_of(|name| self.wanted.is_match(name))
        })
    }

    /// Returns the rows. Fails if no function of the profile, which is called `name`, matches.
    pub(crate) fn rows<'s>(
        &self,
        session: &'s AnalysisSession,
        name: &str,
    ) -> Result<PeekReport<'s>> {
        let report = peek(session, &self.query)?;
        if report.rows.is_empty() {
            bail!(
                "{name}: no function that has {} (after filters) matches {:?}{}",
                report.header.sample_type.r#type,
                self.wanted.as_str(),
                mismatch_text(explain_shown_match(
                    &self.wanted,
                    report.places.iter().map(|place| &*place.function)
                ))
            );
        }
        Ok(report)
    }
}
