//! The question of `tree`: the call tree.

use anyhow::Result;
use heapprof_analysis::{
    AnalysisSession, Query, QuestionSource, TreeOptions, TypeSelection,
    tree::{TreeReport, tree},
};

use super::{NoteSink, open_session};

/// The question of `tree`.
pub struct TreeQuestion {
    /// What is asked of the profile.
    pub query: Query,
    /// The form of the tree.
    pub options: TreeOptions,
    /// Whether each frame is on a row of its own.
    pub is_full: bool,
}

impl TreeQuestion {
    /// Starts the session.
    pub fn open(&self, source: QuestionSource, note: NoteSink<'_>) -> Result<AnalysisSession> {
        let types = TypeSelection::Requested;
        open_session(vec![source], &self.query, types, note, |question| {
            question.with_tree(self.options)
        })
    }

    /// Returns the rows.
    pub fn rows<'s>(&self, session: &'s AnalysisSession) -> Result<TreeReport<'s>> {
        Ok(tree(session, &self.query)?)
    }
}
