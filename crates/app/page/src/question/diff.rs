//! The question of `diff`: what changed between two profiles.

use anyhow::Result;
use heapprof_analysis::{
    AnalysisSession, Query, QuestionSource, TypeSelection, agree,
    builds::incomparable_files,
    diff::{DiffReport, diff},
};

use heapprof_profile::IN_USE;

use super::{NoteSink, QuestionError, QuestionNote, open_session};

/// The question of the command `diff`: what changed between two profiles.
pub struct DiffQuestion {
    query: Query,
    is_normalized: bool,
    is_judged: bool,
}

impl DiffQuestion {
    /// Makes the question. With `is_normalized`, the values of the second profile are scaled so
    /// that both totals are equal. If a rule `is_judged` by the answer, bytes in use are compared
    /// unless the query names another sample type, so that the rule means the same for all
    /// profiles.
    pub fn new(query: Query, is_normalized: bool, is_judged: bool) -> Result<Self> {
        if query.relative_percentages {
            return Err(QuestionError::NoShares.into());
        }
        Ok(Self {
            query,
            is_normalized,
            is_judged,
        })
    }

    /// Returns the query of the question.
    pub fn query(&self) -> &Query {
        &self.query
    }

    /// Starts the session about two profiles, before and after. `needs_types` says whether the
    /// session also needs the sample types that the question does not request.
    pub fn open(
        &self,
        [mut before, mut after]: [QuestionSource; 2],
        needs_types: bool,
        note: NoteSink<'_>,
    ) -> Result<AnalysisSession> {
        agree(&mut before, &mut after)?;
        let types = match needs_types {
            true => TypeSelection::All,
            false => TypeSelection::Requested,
        };
        let sources = vec![before, after];
        let mut query = self.query.clone();
        let has_in_use = |source: &QuestionSource| source.profile.find_sample_type(IN_USE).is_ok();
        if self.is_judged && query.sample_type.is_none() && sources.iter().all(has_in_use) {
            query.sample_type = Some(IN_USE.to_string());
        }
        open_session(sources, &query, types, note, |question| question)
    }

    /// Returns the rows of the report.
    pub fn rows(&self, session: &AnalysisSession) -> Result<DiffReport> {
        Ok(diff(session, [1, 2], &self.query, self.is_normalized)?)
    }

    /// Passes a note to `note` for each file whose rows can't be compared, because the two profiles
    /// name the code of the file differently.
    pub fn explain_rows(&self, session: &AnalysisSession, report: &DiffReport, note: NoteSink<'_>) {
        for found in &incomparable_files(session, report) {
            note(QuestionNote::Incomparable(found));
        }
    }
}
