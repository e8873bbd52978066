//! The question of `diff`: what changed between two profiles.

use anyhow::{Result, bail};
use heapprof_analysis::{
    AnalysisSession, DiffReport, Query, QuestionSource, TypeSelection, agree, diff,
    incomparable_files,
};

use super::{NoteSink, open_session};

/// The question of `diff`.
pub(crate) struct DiffQuestion {
    query: Query,
    is_normalized: bool,
}

impl DiffQuestion {
    /// Makes the question. With `is_normalized`, the values after are scaled so that both totals
    /// are equal.
    pub(crate) fn new(query: Query, is_normalized: bool) -> Result<Self> {
        if query.relative_percentages {
            bail!(
                "diff shows growth, not shares of a total; --relative-percentages has no effect \
                 here"
            );
        }
        Ok(Self {
            query,
            is_normalized,
        })
    }

    /// Returns the query.
    pub(crate) fn query(&self) -> &Query {
        &self.query
    }

    /// Starts the session about a profile before and one after. `needs_types` says whether somebody
    /// also asks for other sample types.
    pub(crate) fn open(
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
        open_session(sources, &self.query, types, note, |question| question)
    }

    /// Returns the rows.
    pub(crate) fn rows(&self, session: &AnalysisSession) -> Result<DiffReport> {
        Ok(diff(session, [1, 2], &self.query, self.is_normalized)?)
    }

    /// Gives a note about each file whose rows may differ only because its code has other names.
    pub(crate) fn explain_rows(
        &self,
        session: &AnalysisSession,
        report: &DiffReport,
        note: NoteSink<'_>,
    ) {
        for found in incomparable_files(session, report) {
            let rows = match found.rows {
                1 => "1 row".to_string(),
                rows => format!("{rows} rows"),
            };
            let file = &found.file;
            note(&match found.is_rebuilt {
                true => format!(
                    "{rows} of {file} may be new or gone only because the two sides have \
                     different builds of it, and its code has no names: heapprof symbolize names \
                     both sides"
                ),
                false => format!(
                    "{rows} of {file} may be new or gone only because its code has names on one \
                     side: heapprof symbolize names the other one"
                ),
            });
        }
    }
}
