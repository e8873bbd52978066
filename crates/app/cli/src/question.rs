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
    AnalysisSession, ProfileQuestion, Query, QuestionSource, TypeSelection, regex_error,
};
use regex::Regex;

use crate::advice::note_text;

pub(crate) use self::{
    diff::DiffQuestion, info::InfoQuestion, leaks::LeaksQuestion, list::ListQuestion,
    peek::PeekQuestion, stats::StatsQuestion, tags::TagsQuestion, timeline::TimelineQuestion,
    top::TopQuestion, traces::TracesQuestion, tree::TreeQuestion,
};

/// Takes the notes of a question, one by one.
pub(crate) type NoteSink<'a> = &'a dyn Fn(&str);

/// Starts the session of a question about several profiles, which `change` may change first.
pub(crate) fn open_session(
    sources: Vec<QuestionSource>,
    query: &Query,
    types: TypeSelection,
    note: NoteSink<'_>,
    change: impl FnOnce(ProfileQuestion) -> ProfileQuestion,
) -> Result<AnalysisSession> {
    let question = ProfileQuestion::new(sources, query, types)?;
    for text in question.notes().iter().map(note_text) {
        note(&text);
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
pub(crate) fn compile_regex(text: &str) -> Result<Regex> {
    Regex::new(text).map_err(|error| anyhow::anyhow!("{text:?}: {}", regex_error(&error)))
}

/// Checks the regular expression for wrappers of a [`Query`].
pub(crate) fn check_wrappers(text: &str) -> Result<(), String> {
    // It becomes a part of a larger expression. There, a comment as in `(?x)a # b` would swallow
    // what follows.
    let whole = format!("^(?:{}|.*(?:{text}).*)$", heapprof_profile::ALLOCATOR_REGEX);
    match Regex::new(text).and_then(|_| Regex::new(&whole)) {
        Ok(_) => Ok(()),
        Err(error) => Err(regex_error(&error)),
    }
}

/// Parses a share in percent.
pub(crate) fn parse_percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse::<f64>() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent),
        _ => Err("not a number from 0 to 100".to_string()),
    }
}
