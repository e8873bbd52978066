//! The question of `info`: the facts about a profile.

use anyhow::Result;
use heapprof_analysis::{
    AnalysisSession, Granularity, Query, QuestionSource, TypeSelection,
    info::{InfoReport, info},
};

use super::{NoteSink, open_plain_session};

/// The question of the command `info`: the facts about a profile.
pub struct InfoQuestion {
    /// The query about the profile.
    pub query: Query,
}

impl Default for InfoQuestion {
    /// Makes the question with a query that changes nothing: no frame is cut, no sample is left
    /// out, and stacks that differ in anything stay separate.
    fn default() -> Self {
        let query = Query {
            all_frames: true,
            granularity: Granularity::Addresses,
            ..Query::default()
        };
        Self { query }
    }
}

impl InfoQuestion {
    /// Starts the session that answers the question.
    pub fn open(&self, source: QuestionSource, note: NoteSink<'_>) -> Result<AnalysisSession> {
        open_plain_session(source, &self.query, TypeSelection::All, note)
    }

    /// Returns the facts.
    pub fn rows(&self, session: &AnalysisSession) -> Result<InfoReport> {
        Ok(info(session)?)
    }
}
