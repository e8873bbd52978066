//! The question of `list`: the lines of functions whose name matches a regular expression, with
//! their values.

use anyhow::Result;
use heapprof_analysis::{
    AnalysisSession, Granularity, ProfileQuestion, Query, QuestionSource, TypeSelection,
    list::{ListReport, list},
};
use heapprof_text::explain_shown_match;
use regex::Regex;

use super::{NoteSink, QuestionError, open_plain_session};

/// The question of the command `list`: the lines of functions whose name matches a regular
/// expression, with their values.
pub struct ListQuestion {
    query: Query,
    wanted: Regex,
}

/// The two sessions of a [`ListQuestion`].
pub struct ListSessions {
    /// The session whose rows are functions, separate for each file.
    pub functions: AnalysisSession,
    /// The session whose rows are lines.
    pub lines: AnalysisSession,
}

impl ListQuestion {
    /// Makes the question. `wanted` is the regular expression that functions' names must match.
    pub fn new(query: Query, wanted: Regex) -> Result<Self> {
        if query.granularity != Granularity::Functions {
            return Err(QuestionError::NoGranularity.into());
        }
        Ok(Self { query, wanted })
    }

    /// Starts the sessions that answer the question.
    pub fn open(&self, source: QuestionSource, note: NoteSink<'_>) -> Result<ListSessions> {
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

    /// Returns the rows of the report. `name` is the profile's name for the error if no function
    /// matches.
    pub fn rows(&self, sessions: &ListSessions, name: &str) -> Result<ListReport> {
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
            let error = QuestionError::NoMatch {
                profile: name.to_string(),
                sample_type: report.header.sample_type.r#type,
                regex: self.wanted.as_str().to_string(),
                reason: explain_shown_match(&self.wanted, all),
            };
            return Err(error.into());
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
