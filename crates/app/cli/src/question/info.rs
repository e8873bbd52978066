//! The question of `info`: the facts about a profile.

use anyhow::Result;
use heapprof_analysis::{
    AnalysisSession, Granularity, InfoReport, Query, QuestionSource, TypeSelection, info,
};

use super::{NoteSink, open_plain_session};

/// The question of `info`.
pub(crate) struct InfoQuestion {
    pub(crate) query: Query,
}

impl InfoQuestion {
    /// Makes the question. It is about facts: no frame is cut, no sample is left out, and stacks
    /// that differ in anything are counted as two.
    pub(crate) fn new() -> Self {
        let query = Query {
            all_frames: true,
            granularity: Granularity::Addresses,
            ..Query::default()
        };
        Self { query }
    }

    /// Starts the session.
    pub(crate) fn open(
        &self,
        source: QuestionSource,
        note: NoteSink<'_>,
    ) -> Result<AnalysisSession> {
        open_plain_session(source, &self.query, TypeSelection::All, note)
    }

    /// Returns the facts.
    pub(crate) fn rows(&self, session: &AnalysisSession) -> Result<InfoReport> {
        Ok(info(session)?)
    }
}
