//! The question of `tags`: the labels of a profile, with their values.

use anyhow::Result;
use heapprof_analysis::{AnalysisSession, Query, QuestionSource, TagsReport, TypeSelection, tags};

use super::{NoteSink, open_plain_session};

/// The question of `tags`.
pub(crate) struct TagsQuestion {
    pub(crate) query: Query,
}

impl TagsQuestion {
    /// Starts the session.
    pub(crate) fn open(
        &self,
        source: QuestionSource,
        note: NoteSink<'_>,
    ) -> Result<AnalysisSession> {
        open_plain_session(source, &self.query, TypeSelection::Requested, note)
    }

    /// Returns the rows.
    pub(crate) fn rows(&self, session: &AnalysisSession) -> Result<TagsReport> {
        Ok(tags(session, &self.query)?)
    }
}
