//! The question of `leaks`: the memory in use at exit.

use anyhow::Result;
use heapprof_analysis::{
    AnalysisSession, Query, QuestionSource, TypeSelection,
    leaks::{LeaksReport, leaks},
    suppression::SuppressionSet,
};

use super::{NoteSink, QuestionError, open_session};

/// The question of the command `leaks`: the memory in use at exit.
#[derive(Clone)]
pub struct LeaksQuestion {
    query: Query,
    suppressions: SuppressionSet,
}

/// Whether a sample type counts memory in use, at present or when a heap was walked.
fn is_in_use(sample_type: &str) -> bool {
    let Some((kind, "space" | "objects")) = sample_type.rsplit_once('_') else {
        return false;
    };
    kind.ends_with("_inuse") || matches!(kind, "inuse" | "leaked" | "maybe" | "reached")
}

impl LeaksQuestion {
    /// Makes the question. Memory that `suppressions` match is counted, but not listed.
    pub fn new(query: Query, suppressions: SuppressionSet) -> Result<Self> {
        if let Some(asked) = query
            .sample_type
            .as_deref()
            .filter(|asked| !is_in_use(asked))
        {
            return Err(QuestionError::NotInUse(asked.to_string()).into());
        }
        Ok(Self {
            query,
            suppressions,
        })
    }

    /// Returns the question for the profile `source`. If the query has no sample type, the returned
    /// question has one: the type that counts memory in use, or leaked memory for a walked heap.
    pub fn about(&self, source: &QuestionSource) -> Self {
        let has = |name: &str| source.profile.find_sample_type(name).is_ok();
        let mut question = self.clone();
        question.query.sample_type.get_or_insert_with(|| {
            let default = match has("inuse_space") || !has("leaked_space") {
                true => "inuse_space",
                // The profile of a walked heap has a column of leaked bytes.
                false => "leaked_space",
            };
            default.to_string()
        });
        question
    }

    /// Returns the query of the question.
    pub fn query(&self) -> &Query {
        &self.query
    }

    /// Starts the session that answers the question.
    pub fn open(&self, source: QuestionSource, note: NoteSink<'_>) -> Result<AnalysisSession> {
        let types = TypeSelection::InUse;
        open_session(vec![source], &self.query, types, note, |question| {
            question.with_suppressions(&self.suppressions)
        })
    }

    /// Returns the rows of the report.
    pub fn rows(&self, session: &AnalysisSession) -> Result<LeaksReport> {
        Ok(leaks(session, &self.query, &self.suppressions)?)
    }
}
