//! The question of `timeline`: the heap over time, of one profile or of a series.

use anyhow::Result;
use heapprof_analysis::{
    AnalysisSession, Granularity, Query, QuestionSource, TypeSelection,
    timeline::{TimelineReport, timeline},
};

use super::{NoteSink, open_session};

/// The question of the command `timeline`: the heap over time. It has no filters, because it is
/// about whole profiles.
pub struct TimelineQuestion;

impl TimelineQuestion {
    /// Starts the session that answers the question.
    pub fn open(
        &self,
        sources: Vec<QuestionSource>,
        note: NoteSink<'_>,
    ) -> Result<AnalysisSession> {
        let query = Query {
            granularity: Granularity::Functions,
            all_frames: true,
            ..Query::default()
        };
        open_session(sources, &query, TypeSelection::All, note, |question| {
            question
        })
    }

    /// Returns the rows of the report.
    pub fn rows(&self, session: &AnalysisSession) -> Result<TimelineReport> {
        Ok(timeline(session)?)
    }
}
