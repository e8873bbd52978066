//! The question of `tags`: the labels of a profile, with their values.

use anyhow::Result;
use heapprof_analysis::{
    AnalysisSession, Query, QuestionSource, TypeSelection,
    tags::{TagsReport, tags},
};

use super::{NoteSink, open_plain_session};

/// The question of the command `tags`: the labels of a profile, with their values.
pub struct TagsQuestion {
    /// The query about the profile.
    pub query: Query,
}

impl TagsQuestion {
    /// Starts the session that answers the question.
    pub fn open(&self, source: QuestionSource, note: NoteSink<'_>) -> Result<AnalysisSession> {
        open_plain_session(source, &self.query, TypeSelection::Requested, note)
    }

    /// Returns the rows of the report.
    pub fn rows(&self, session: &AnalysisSession) -> Result<TagsReport> {
        Ok(tags(session, &self.query)?)
    }
}
