//! The question of `timeline`: the heap over time, of one profile or of a series.

use anyhow::Result;
use heapprof_analysis::{
    AnalysisSession, Granularity, Query, QuestionSource, TypeSelection,
    timeline::{TimelineReport, timeline},
};

use super::{NoteSink, open_session};

/// The question of `timeline`. It is about whole profiles, so nothing is left out.
pub struct TimelineQuestion;

impl TimelineQuestion {
    /// Starts the session.
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

    /// Returns the rows.
    pub fn rows(&self, session: &AnalysisSession) -> Result<TimelineReport> {
        Ok(timeline(session)?)
    }
}
