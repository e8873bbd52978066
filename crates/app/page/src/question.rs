//! Questions about profiles, one struct for each report. Both the commands and the page's server
//! use them.
//!
//! The method `open` starts the session of a question, and `rows` returns the report's rows.

mod diff;
mod info;
mod leaks;
mod list;
mod peek;
mod portable;
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
    list::{BinaryFolders, ListQuestion, ListSessions},
    peek::PeekQuestion,
    portable::portable_statement,
    stats::StatsQuestion,
    tags::TagsQuestion,
    timeline::TimelineQuestion,
    top::TopQuestion,
    traces::TracesQuestion,
    tree::TreeQuestion,
};

/// A note for the user about the answer to a question.
pub enum QuestionNote<'a> {
    /// A filter has no effect.
    Filter(&'a FilterNote),
    /// A file's rows can't be compared, because the profiles name the code of the file differently.
    Incomparable(&'a IncomparableFile),
}

/// A function that receives the notes about a question, one by one.
pub type NoteSink<'a> = &'a dyn Fn(QuestionNote<'_>);

/// Why a question is not valid, or has no answer.
#[derive(Debug, thiserror::Error)]
pub enum QuestionError {
    /// A granularity was given to `list`, whose rows are always lines.
    #[error("list shows lines of functions; a granularity has no effect here")]
    NoGranularity,
    /// Relative values were requested from `diff`, which has none.
    #[error("diff shows growth, not shares of a total; relative percentages have no effect here")]
    NoShares,
    /// The sample type does not count values in use.
    #[error("sample type {0:?}: leaks is about what is in use")]
    NotInUse(String),
    /// No function matches an expression.
    #[error("{profile}: no function that has {sample_type} (after filters) matches {regex:?}")]
    NoMatch {
        /// The name of the profile.
        profile: String,
        /// The sample type that was shown.
        sample_type: String,
        /// The expression that matches nothing.
        regex: String,
        /// The likely reason for the mismatch.
        reason: Option<MismatchReason>,
    },
}

/// Starts the session of a question about several profiles. `change` may change the question before
/// the session starts.
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

/// Starts the session of a question about one profile. The question is not changed.
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

/// Checks that a text can be used as the regular expression for a [`Query`]'s wrappers.
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
