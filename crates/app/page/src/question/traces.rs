//! The question of `traces`: stacks one by one.

use anyhow::Result;
use heapprof_analysis::{
    AnalysisSession, Query, QuestionSource, TypeSelection,
    traces::{TracesReport, traces},
};

use super::{NoteSink, open_plain_session};

/// The question of the command `traces`: stacks one by one.
pub struct TracesQuestion {
    /// The query about the profile.
    pub query: Query,
}

impl TracesQuestion {
    /// Starts the session that answers the question.
    pub fn open(&self, source: QuestionSource, note: NoteSink<'_>) -> Result<AnalysisSession> {
        open_plain_session(source, &self.query, TypeSelection::Requested, note)
    }

    /// Returns the rows of the report.
    pub fn rows(&self, session: &AnalysisSession) -> Result<TracesReport> {
        Ok(traces(session, &self.query)?)
    }
}
