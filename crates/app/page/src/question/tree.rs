//! The question of `tree`: the call tree.

use anyhow::Result;
use heapprof_analysis::{
    AnalysisSession, Query, QuestionSource, TreeOptions, TypeSelection,
    tree::{TreeReport, tree},
};

use super::{NoteSink, open_session};

/// The question of the command `tree`: the call tree.
pub struct TreeQuestion {
    /// The query about the profile.
    pub query: Query,
    /// Options for the form of the tree.
    pub options: TreeOptions,
    /// Whether each frame has a separate row.
    pub is_full: bool,
}

impl TreeQuestion {
    /// Starts the session that answers the question.
    pub fn open(&self, source: QuestionSource, note: NoteSink<'_>) -> Result<AnalysisSession> {
        let types = TypeSelection::Requested;
        open_session(vec![source], &self.query, types, note, |question| {
            question.with_tree(self.options)
        })
    }

    /// Returns the rows of the report.
    pub fn rows<'s>(&self, session: &'s AnalysisSession) -> Result<TreeReport<'s>> {
        Ok(tree(session, &self.query)?)
    }
}
