//! Questions about profiles, one struct for each report. A command asks them of the profiles that
//! its arguments name, and the page's server of those that it offers.
//!
//! `open` starts the session of a question, and `rows` asks for the report's rows.

mod diff;
mod info;
mod leaks;
mod list;
mod peek;
mod stats;
mod tags;
mod timeline;
mod top;
mod traces;
mod tree;

use anyhow::Result;
use heapprof_analysis::{
    AnalysisSession, FilterNote, ProfileQuestion, Query, QuestionSource, TypeSelection,
    builds::IncomparableFile, regex_error,
};
use heapprof_text::MismatchReason;
use regex::Regex;

pub use self::{
    diff::DiffQuestion,
    info::InfoQuestion,
    leaks::LeaksQuestion,
    list::{ListQuestion, ListSessions},
    peek::PeekQuestion,
    stats::StatsQuestion,
    tags::TagsQuestion,
    timeline::TimelineQuestion,
    top::TopQuestion,
    traces::TracesQuestion,
    tree::TreeQuestion,
};

/// What the user should know beside the rows of a question.
pub enum QuestionNote<'a> {
    /// A filter has no effect.
    Filter(&'a FilterNote),
    /// Rows of a file may differ only because its code has other names.
    Incomparable(&'a IncomparableFile),
}

/// Takes the notes of a question, one by one.
pub type NoteSink<'a> = &'a dyn Fn(QuestionNote<'_>);

/// Why a question can't be asked, or has no answer.
#[derive(Debug, thiserror::Error)]
pub enum QuestionError {
    /// A level of detail was asked for, and `list` has its own.
    #[error("list shows lines of functions; a granularity has no effect here")]
    NoGranularity,
    /// Shares were asked for, and `diff` has none.
    #[error("diff shows growth, not shares of a total; relative percentages have no effect here")]
    NoShares,
    /// This sample type is not one of values in use.
    #[error("sample type {0:?}: leaks is about what is in use")]
    NotInUse(String),
    /// No function matches an expression.
    #[error("{profile}: no function that has {sample_type} (after filters) matches {regex:?}")]
    NoMatch {
        /// The name of the profile.
        profile: String,
        /// The sample type.
        sample_type: String,
        /// The expression.
        regex: String,
        /// The likely reason.
        reason: Option<MismatchReason>,
    },
}

/// Starts the session of a question about several profiles, which `change` may change first.
pub fn open_session(
    sources: Vec<QuestionSource>,
    query: &Query,
    types: TypeSelection,
    note: NoteSink<'_>,
    change: impl FnOnce(ProfileQuestion) -> ProfileQuestion,
) -> Result<AnalysisSession> {
    let question = ProfileQuestion::new(sources, query, types)?;
    for found in &question.notes() {
        note(QuestionNote::Filter(found));
    }
    Ok(AnalysisSession::new(change(question))?)
}

/// Starts the session of a question about one profile as it is.
pub(crate) fn open_plain_session(
    source: QuestionSource,
    query: &Query,
    types: TypeSelection,
    note: NoteSink<'_>,
) -> Result<AnalysisSession> {
    open_session(vec![source], query, types, note, |question| question)
}

/// Compiles the regular expression of a question.
pub fn compile_regex(text: &str) -> Result<Regex> {
    Regex::new(text).map_err(|error| anyhow::anyhow!("{text:?}: {}", regex_error(&error)))
}

/// Checks the regular expression for wrappers of a [`Query`].
pub fn check_wrappers(text: &str) -> Result<(), String> {
    // It becomes a part of a larger expression. There, a comment as in `(?x)a # b` would swallow
    // what follows.
    let whole = format!("^(?:{}|.*(?:{text}).*)$", heapprof_profile::ALLOCATOR_REGEX);
    match Regex::new(text).and_then(|_| Regex::new(&whole)) {
        Ok(_) => Ok(()),
        Err(error) => Err(regex_error(&error)),
    }
}

/// Parses a share in percent.
pub fn parse_percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse::<f64>() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent),
        _ => Err("not a number from 0 to 100".to_string()),
    }
}
