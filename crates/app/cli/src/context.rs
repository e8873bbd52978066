//! The context that every command gets: the sources of profiles, and where answers and notes go.

use std::cell::RefCell;
use std::io::{self, Write};
use std::path::Path;

use anyhow::{Result, bail};
use heapprof_analysis::{
    AnalysisSession, PortableQuery, ProfileQuestion, Query, QuestionSource, SampleType, SortKey,
    TypeSelection, is_counter,
};
use heapprof_report::ReportStyle;
use heapprof_sources::ProfileSources;
use heapprof_text::printable_lines;
use regex::Regex;

use crate::args::{ColorMode, LimitArg, ReportArgs, SourceArgs};
use crate::source_file::SourceFiles;
use crate::{messages, name, output};

/// The context that every command gets.
pub(crate) struct CommandContext {
    pub(crate) sources: ProfileSources,
    pub(crate) color: ColorMode,
    /// The answer, if it is kept here for the caller to send instead of written.
    captured: Option<RefCell<CapturedOutput>>,
}

/// An answer that is kept in memory instead of written.
#[derive(Default)]
pub(crate) struct CapturedOutput {
    pub(crate) text: Vec<u8>,
    pub(crate) notes: Vec<String>,
    /// Whether the text may contain lines of source files.
    with_source: bool,
}

/// Number of rows on a terminal if `-n` is not given.
pub(crate) const DEFAULT_TERMINAL_ROWS: usize = 40;

impl CommandContext {
    /// Makes the context of a command that writes its answer.
    pub(crate) fn new(sources: ProfileSources, color: ColorMode) -> Self {
        Self {
            sources,
            color,
            captured: None,
        }
    }

    /// Makes the context of a command whose answer is kept for the caller. `with_source` says
    /// whether it may contain lines of source files.
    pub(crate) fn capturing(sources: ProfileSources, with_source: bool) -> Self {
        let captured = CapturedOutput {
            with_source,
            ..CapturedOutput::default()
        };
        Self {
            sources,
            color: ColorMode::Never,
            captured: Some(RefCell::new(captured)),
        }
    }

    /// Returns the answer that was kept; it is empty if it was written.
    pub(crate) fn into_captured(self) -> CapturedOutput {
        self.captured.map(RefCell::into_inner).unwrap_or_default()
    }

    /// Starts the session of a question about one profile, and prints the question's notes.
    pub(crate) fn ask(
        &self,
        source: QuestionSource,
        query: &Query,
        types: TypeSelection,
    ) -> Result<AnalysisSession> {
        self.session(vec![source], query, types, |question| question)
    }

    /// Starts the session of a question about several profiles, which `change` may change first.
    pub(crate) fn session(
        &self,
        sources: Vec<QuestionSource>,
        query: &Query,
        types: TypeSelection,
        change: impl FnOnce(ProfileQuestion) -> ProfileQuestion,
    ) -> Result<AnalysisSession> {
        let question = ProfileQuestion::new(sources, query, types)?;
        for note in question.notes() {
            self.note(&note);
        }
        Ok(AnalysisSession::new(change(question))?)
    }

    pub(crate) fn style(&self, report: &ReportArgs) -> ReportStyle {
        ReportStyle {
            format: report.format,
            color: self.is_coloured(report.output.file()),
            unit: report.unit.clone(),
            full_names: report.full_names,
            width: None,
        }
    }

    pub(crate) fn is_coloured(&self, file: Option<&Path>) -> bool {
        self.color.has_colour(|| self.is_terminal(file))
    }

    /// Returns the limit of rows: `-n`, or a screenful on a terminal.
    pub(crate) fn limit(&self, limit: &LimitArg, report: &ReportArgs) -> Option<usize> {
        self.rows(limit, report.output.file())
    }

    /// Returns the limit of rows for a report that goes to `file`.
    pub(crate) fn rows(&self, limit: &LimitArg, file: Option<&Path>) -> Option<usize> {
        match limit.limit {
            Some(0) => None,
            Some(limit) => Some(limit),
            None => self.is_terminal(file).then_some(DEFAULT_TERMINAL_ROWS),
        }
    }

    /// Writes a report, or with `--show-sql` the SQL statements that it ran.
    pub(crate) fn finish(
        &self,
        report: &ReportArgs,
        session: &AnalysisSession,
        text: impl FnOnce(&ReportStyle) -> Result<String>,
    ) -> Result<()> {
        self.finish_portable(report, session, None, text)
    }

    /// Writes a report as [`finish`](Self::finish) does. `--show-sql` also shows the
    /// [`portable_statement`], if there is one.
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

    /// Writes a report as [`finish`](Self::finish) does, but bit by bit, because the report is too
    /// long to be in memory.
    pub(crate) fn finish_into(
        &self,
        report: &ReportArgs,
        session: &AnalysisSession,
        body: impl FnOnce(&ReportStyle, &mut dyn Write) -> Result<()>,
    ) -> Result<()> {
        self.finish_body(report, session, None, body)
    }

    /// Writes a report's body, or the statements that it ran.
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
            return self.write(file, |writer| body(&style, writer));
        }
        // The report is made in any case, so that a report that can't be made is an error here too.
        body(&style, &mut io::sink())?;
        let portable = portable.map_or_else(String::new, |sql| {
            format!("-- The same in one statement, for any engine that has the tables:\n{sql};\n")
        });
        self.text(file, &(statements(session) + &printable_lines(&portable)))
    }

    /// Writes a report bit by bit. On a terminal a pager shows a report that is longer than the
    /// screen.
    pub(crate) fn write(
        &self,
        file: Option<&Path>,
        body: impl FnOnce(&mut dyn Write) -> Result<()>,
    ) -> Result<()> {
        if let Some(kept) = &self.captured {
            return body(&mut CaptureWriter(kept));
        }
        if output::is_terminal(file) {
            let mut text = Vec::new();
            body(&mut text)?;
            return output::text(file, &String::from_utf8_lossy(&text));
        }
        output::write(file, body)
    }

    /// Writes a report's text.
    pub(crate) fn text(&self, file: Option<&Path>, text: &str) -> Result<()> {
        self.write(file, |out| Ok(out.write_all(text.as_bytes())?))
    }

    /// Prints a note beside the report, or adds it to the answer that is kept.
    pub(crate) fn note(&self, text: &str) {
        match &self.captured {
            Some(kept) => kept.borrow_mut().notes.push(text.to_string()),
            None => messages::note(text),
        }
    }

    /// Whether a report is read on a terminal.
    pub(crate) fn is_terminal(&self, file: Option<&Path>) -> bool {
        self.captured.is_none() && output::is_terminal(file)
    }

    /// Returns the source files whose lines reports show.
    pub(crate) fn source_files<'a>(&self, args: &'a SourceArgs) -> SourceFiles<'a> {
        match &self.captured {
            Some(kept) if !kept.borrow().with_source => SourceFiles::none(args),
            _ => SourceFiles::new(args),
        }
    }
}

/// Largest answer that is kept, in bytes.
const MAX_CAPTURED_BYTES: usize = 64 << 20;

/// A writer that appends to an answer that is kept.
struct CaptureWriter<'a>(&'a RefCell<CapturedOutput>);

impl Write for CaptureWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = &mut self.0.borrow_mut().text;
        if text.len() + bytes.len() > MAX_CAPTURED_BYTES {
            return Err(io::Error::other(format!(
                "the answer is larger than {} MiB; ask for fewer rows",
                MAX_CAPTURED_BYTES >> 20
            )));
        }
        text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
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
        bail!("{text}: is a file; REGEX stands before the profile: {regex} {file}");
    }
    Regex::new(text)
        .map_err(|error| anyhow::anyhow!("{text:?}: {}", heapprof_analysis::regex_error(&error)))
}

/// Returns the single statement that asks the question of stored profiles in any engine, if there
/// is one: for rows of functions, without filters, of values in use.
pub(crate) fn portable_statement(
    query: &Query,
    sample_type: &SampleType,
    sql: impl FnOnce(&PortableQuery<'_>) -> Option<String>,
) -> Option<String> {
    let is_plain = query.is_plain() && query.sort == SortKey::Flat;
    if !is_plain || is_counter(&sample_type.r#type) {
        return None;
    }
    let asked = PortableQuery {
        sample_type: (&sample_type.r#type, &sample_type.unit),
        limit: query.limit,
    };
    // Engines differ in how they read a backslash in a text.
    sql(&asked).filter(|sql| !sql.contains('\\'))
}
