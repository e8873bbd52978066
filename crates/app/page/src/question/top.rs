//! The question of `top`: functions by the memory that they hold.

use anyhow::Result;
use heapprof_analysis::{
    AnalysisSession, Query, QuestionSource, TypeSelection,
    top::{TopReport, top},
};

use super::{NoteSink, open_plain_session};

/// The question of the command `top`: functions by the memory that they hold.
pub struct TopQuestion {
    /// The query about the profile.
    pub query: Query,
    /// Whether every sample type is shown.
    pub is_wide: bool,
}

impl TopQuestion {
    /// Starts the session. `needs_types` says whether the session also needs the sample types that
    /// the question does not request.
    pub fn open(
        &self,
        source: QuestionSource,
        needs_types: bool,
        note: NoteSink<'_>,
    ) -> Result<AnalysisSession> {
        let types = match self.is_wide || needs_types {
            true => TypeSelection::All,
            false => TypeSelection::Requested,
        };
        open_plain_session(source, &self.query, types, note)
    }

    /// Returns the rows of the report.
    pub fn rows(&self, session: &AnalysisSession) -> Result<TopReport> {
        Ok(top(session, 1, &self.query, self.is_wide)?)
    }
}
