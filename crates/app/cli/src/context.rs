//! The context that every command gets: the sources of profiles, and the settings of the output.

use std::io::{self, Write};
use std::path::Path;

use anyhow::{Result, bail};
use heapprof_analysis::{AnalysisSession, ProfileQuestion, Query, QuestionSource, TypeSelection};
use heapprof_page::{compile_regex, open_session};
use heapprof_report::ReportStyle;
use heapprof_sources::ProfileSources;
use heapprof_text::printable_lines;
use regex::Regex;

use crate::advice::{ADVICE_WORDS, note_question};
use crate::args::{ColorMode, LimitArg, ReportArgs};
use crate::{name, output};

/// The context that every command gets.
pub(crate) struct CommandContext {
    pub(crate) sources: ProfileSources,
    pub(crate) color: ColorMode,
}

/// Number of columns that a report has at least.
const MIN_SCREEN_COLUMNS: usize = 80;

/// Number of rows that a report has on a terminal if `-n` is not given.
pub(crate) const DEFAULT_TERMINAL_ROWS: usize = 40;

impl CommandContext {
    /// Makes the context of a command.
    pub(crate) fn new(sources: ProfileSources, color: ColorMode) -> Self {
        Self { sources, color }
    }

    /// Starts the session of a question about one profile, and prints notes about the question.
    pub(crate) fn ask(
        &self,
        source: QuestionSource,
        query: &Query,
        types: TypeSelection,
    ) -> Result<AnalysisSession> {
        self.session(vec![source], query, types, |question| question)
    }

    /// Starts the session of a question about several profiles. `change` may change the question
    /// before the session starts.
    pub(crate) fn session(
        &self,
        sources: Vec<QuestionSource>,
        query: &Query,
        types: TypeSelection,
        change: impl FnOnce(ProfileQuestion) -> ProfileQuestion,
    ) -> Result<AnalysisSession> {
        open_session(sources, query, types, &note_question, change)
    }

    pub(crate) fn style(&self, report: &ReportArgs) -> ReportStyle {
        ReportStyle {
            format: report.format,
            color: self.is_coloured(report.output.file()),
            unit: report.unit.clone(),
            full_names: report.full_names,
            width: screen_width(report.output.file()),
            advice: ADVICE_WORDS,
        }
    }

    pub(crate) fn is_coloured(&self, file: Option<&Path>) -> bool {
        self.color.has_colour(|| output::is_terminal(file))
    }

    /// Writes a report. With `--show-sql`, writes the SQL statements of the report instead.
    pub(crate) fn finish(
        &self,
        report: &ReportArgs,
        session: &AnalysisSession,
        text: impl FnOnce(&ReportStyle) -> Result<String>,
    ) -> Result<()> {
        self.finish_portable(report, session, None, text)
    }

    /// Writes a report as [`finish`](Self::finish) does. `--show-sql` also shows the
    /// [`heapprof_page::portable_statement`], if there is one.
    pub(crate) fn finish_portable(
        &self,
        report: &ReportArgs,
        session: &AnalysisSession,
        portable: Option<String>,
        text: impl FnOnce(&ReportStyle) -> Result<String>,
    ) -> Result<()> {
        self.finish_body(report, session, portable, |style, out| {
            Ok(out.write_all(text(style)?.as_bytes())?)
        })
    }

    /// Writes a report as [`finish`](Self::finish) does, but piece by piece, because it may be too
    /// long for memory.
    pub(crate) fn finish_into(
        &self,
        report: &ReportArgs,
        session: &AnalysisSession,
        body: impl FnOnce(&ReportStyle, &mut dyn Write) -> Result<()>,
    ) -> Result<()> {
        self.finish_body(report, session, None, body)
    }

    /// Writes the body of a report. With `--show-sql`, writes the SQL statements of the report
    /// instead.
    fn finish_body(
        &self,
        report: &ReportArgs,
        session: &AnalysisSession,
        portable: Option<String>,
        body: impl FnOnce(&ReportStyle, &mut dyn Write) -> Result<()>,
    ) -> Result<()> {
        let file = report.output.file();
        let style = self.style(report);
        if !report.show_sql {
            return output::write_paged(file, |writer| body(&style, writer));
        }
        // The report is made in any case, so that a report that can't be made is an error here too.
        body(&style, &mut io::sink())?;
        let portable = portable.map_or_else(String::new, |sql| {
            format!("-- The same in one statement, for any engine that has the tables:\n{sql};\n")
        });
        output::text(file, &(statements(session) + &printable_lines(&portable)))
    }
}

/// Returns the number of columns to which a report that goes to `file` is fitted; `None` if it goes
/// to no terminal.
pub(crate) fn screen_width(file: Option<&Path>) -> Option<usize> {
    output::is_terminal(file).then(|| output::console_columns().max(MIN_SCREEN_COLUMNS))
}

/// Returns the limit of rows for a report to `file`: the value of `-n`, or a terminal's default.
pub(crate) fn row_limit(limit: &LimitArg, file: Option<&Path>) -> Option<usize> {
    match limit.limit {
        Some(0) => None,
        Some(limit) => Some(limit),
        None => output::is_terminal(file).then_some(DEFAULT_TERMINAL_ROWS),
    }
}

/// Returns the SQL statements that a session ran, one on each line.
pub(crate) fn statements(session: &AnalysisSession) -> String {
    session
        .statements()
        .iter()
        .map(|sql| printable_lines(&format!("{sql};\n")))
        .collect()
}

/// Compiles a regular expression given as an argument.
pub(crate) fn regex(text: &str, profiles: &[String]) -> Result<Regex> {
    if let [first] = profiles
        && Path::new(text).is_file()
        && !name::path(first).exists()
    {
        let [regex, file] = [first, text].map(|word| name::quoted(name::path(word).as_os_str()));
        bail!("{text}: is a file; REGEX comes before the profile: {regex} {file}");
    }
    compile_regex(text)
}
