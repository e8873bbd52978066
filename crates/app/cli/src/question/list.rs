//! The question of `list`: the lines of the functions that match, with their values.

use anyhow::{Result, bail};
use heapprof_analysis::{
    AnalysisSession, Granularity, ListReport, ProfileQuestion, Query, QuestionSource,
    TypeSelection, list,
};
use heapprof_text::explain_shown_match;
use regex::Regex;

use super::{NoteSink, open_plain_session};
use crate::advice::mismatch_text;

/// The question of `list`.
pub(crate) struct ListQuestion {
    query: Query,
    wanted: Regex,
}

/// The two sessions of a [`ListQuestion`].
pub(crate) struct ListSessions {
    /// The session by function and file.
    pub(crate) functions: AnalysisSession,
    /// The session by line.
    pub(crate) lines: AnalysisSession,
}

impl ListQuestion {
    /// Makes the question. `wanted` is the expression to find in functions' names.
    pub(crate) fn new(query: Query, wanted: Regex) -> Result<Self> {
        if query.granularity != Granularity::Functions {
            bail!("list shows lines of functions; --granularity has no effect here");
        }
        Ok(Self { query, wanted })
    }

    /// Starts the sessions.
    pub(crate) fn open(&self, source: QuestionSource, note: NoteSink<'_>) -> Result<ListSessions> {
        let types = TypeSelection::Requested;
        let by_function = self.by(Granularity::FileFunctions);
        let functions = open_plain_session(source.clone(), &by_function, types, note)?;
        // The session by function has given the notes on filters.
        let lines = ProfileQuestion::new(vec![source], &self.by(Granularity::Lines), types)?;
        Ok(ListSessions {
            functions,
            lines: AnalysisSession::new(lines)?,
        })
    }

    /// Returns the rows. Fails if no function of the profile, which is called `name`, matches.
    pub(crate) fn rows(&self, sessions: &ListSessions, name: &str) -> Result<ListReport> {
        let ListSessions { functions, lines } = sessions;
        let by_function = self.by(Granularity::FileFunctions);
        let report = list(functions, lines, &by_function, |function| {
            self.wanted.is_match(function)
        })?;
        if report.rows.is_empty() {
            let whole = Query {
                limit: None,
                ..by_function
            };
            let all = list(functions, lines, &whole, |_| true)?;
            let all = all.rows.iter().map(|row| &*row.function);
            bail!(
                "{name}: no function that has {} (after filters) matches {:?}{}",
                report.header.sample_type.r#type,
                self.wanted.as_str(),
                mismatch_text(explain_shown_match(&self.wanted, all))
            );
        }
        Ok(report)
    }

    fn by(&self, granularity: Granularity) -> Query {
        Query {
            granularity,
            ..self.query.clone()
        }
    }
}
