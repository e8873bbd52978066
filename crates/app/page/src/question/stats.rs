//! The question of `stats`: totals and sizes of a profile.

use anyhow::Result;
use heapprof_analysis::{
    AnalysisSession, Query, QuestionSource, TypeSelection,
    stats::{StatsReport, stats},
};

use super::{NoteSink, open_plain_session};

/// The question of the command `stats`: totals and sizes of a profile.
pub struct StatsQuestion {
    /// The query about the profile.
    pub query: Query,
}

impl StatsQuestion {
    /// Starts the session that answers the question.
    pub fn open(&self, source: QuestionSource, note: NoteSink<'_>) -> Result<AnalysisSession> {
        open_plain_session(source, &self.query, TypeSelection::All, note)
    }

    /// Returns the totals and sizes.
    pub fn rows(&self, session: &AnalysisSession) -> Result<StatsReport> {
        Ok(stats(session)?)
    }
}
