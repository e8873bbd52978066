//! The question of `diff`: what changed between two profiles.

use anyhow::Result;
use heapprof_analysis::{
    AnalysisSession, Query, QuestionSource, TypeSelection, agree,
    builds::incomparable_files,
    diff::{DiffReport, diff},
};

use super::{NoteSink, QuestionError, QuestionNote, open_session};

/// The question of the command `diff`: what changed between two profiles.
pub struct DiffQuestion {
    query: Query,
    is_normalized: bool,
}

impl DiffQuestion {
    /// Makes the question. With `is_normalized`, the values of the second profile are scaled so
    /// that both totals are equal.
    pub fn new(query: Query, is_normalized: bool) -> Result<Self> {
        if query.relative_percentages {
            return Err(QuestionError::NoShares.into());
        }
        Ok(Self {
            query,
            is_normalized,
        })
    }

    /// Returns the query of the question.
    pub fn query(&self) -> &Query {
        &self.query
    }

    /// Starts the session about two profiles, before and after. `needs_types` says whether the
    /// session also needs the sample types that the question does not request.
    pub fn open(
        &self,
        [mut before, mut after]: [QuestionSource; 2],
        needs_types: bool,
        note: NoteSink<'_>,
    ) -> Result<AnalysisSession> {
        agree(&mut before, &mut after)?;
        let types = match needs_types {
            true => TypeSelection::All,
            false => TypeSelection::Requested,
        };
        let sources = vec![before, after];
        open_session(sources, &self.query, types, note, |question| question)
    }

    /// Returns the rows of the report.
    pub fn rows(&self, session: &AnalysisSession) -> Result<DiffReport> {
        Ok(diff(session, [1, 2], &self.query, self.is_normalized)?)
    }

    /// Passes a note to `note` for each file whose rows can't be compared, because the two profiles
    /// name the code of the file differently.
    pub fn explain_rows(&self, session: &AnalysisSession, report: &DiffReport, note: NoteSink<'_>) {
        for found in &incomparable_files(session, report) {
            note(QuestionNote::Incomparable(found));
        }
    }
}
