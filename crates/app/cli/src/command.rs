//! Code that the commands share; each command has a file of its own.

mod alive;
mod attach;
mod bench;
mod compare_allocators;
mod completions;
mod convert;
mod diff;
mod dump;
mod export;
mod flame;
mod follow;
mod fork_audit;
mod forks;
mod gate;
mod growth;
mod heap_run;
mod heapwalk;
mod info;
mod leaks;
mod list;
mod listen;
mod live;
mod load;
mod ls;
mod man;
mod mark;
mod merge;
mod peek;
mod perl_heap;
mod perl_install;
mod preload_path;
mod proc;
mod prune;
mod ps;
mod record;
mod report;
mod rm;
mod schema;
mod series;
mod sql;
mod stats;
mod symbolize;
mod tags;
mod target;
mod timeline;
mod top;
mod traces;
mod tree;
mod tui;
mod watch;
mod web;
mod wiretap;

use std::cell::RefCell;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};
use heapprof_analysis::{
    AnalysisSession, MomentAggregation, PortableQuery, ProfileQuestion, Query, QuestionSource,
    SampleType, SortKey, TypeSelection, is_counter,
};
use heapprof_report::ReportStyle;
use heapprof_text::printable_lines;
use regex::Regex;

use crate::args::{Cli, CliCommand, ColorMode, LimitArg, ReportArgs, SourceArgs};
use crate::backend::StoreBackend;
use crate::drop_in::CommandLineHost;
use crate::source::ProfileSources;
use crate::source_file::SourceFiles;
use crate::{messages, name, output};

/// Runs the command and returns its exit code.
pub(crate) fn run(cli: Cli) -> Result<ExitCode> {
    let context = CommandContext {
        sources: ProfileSources::new(&cli),
        color: cli.color,
        captured: None,
        portable: RefCell::default(),
    };
    reject_unused_options(&context, &cli.command)?;
    if let Some(code) = run_reporting_command(&context, &cli.command)? {
        return Ok(code);
    }
    match cli.command {
        CliCommand::Record(args) => return record::run(&args, cli.color),
        CliCommand::PreloadPath { header } => preload_path::run(header)?,
        CliCommand::PerlInstall { perl } => perl_install::run(perl)?,
        CliCommand::ForkAudit(args) => return fork_audit::run(&context, &args),
        CliCommand::Flame(args) => flame::run(&context, &args)?,
        CliCommand::Report(args) => report::run(&context, &args)?,
        CliCommand::Web(args) => web::run(context, &args)?,
        CliCommand::Tui(args) => tui::run(&context, &args)?,
        CliCommand::Dump(args) => dump::run(&args)?,
        CliCommand::Attach(args) => attach::run(&args)?,
        CliCommand::Detach(args) => attach::detach(&args)?,
        CliCommand::Ps(args) => ps::run(&args)?,
        CliCommand::Follow(args) => follow::run(&args)?,
        CliCommand::Live(args) => live::run(&context, &args)?,
        CliCommand::Heapwalk(args) => heapwalk::run(&context, &args)?,
        CliCommand::PerlHeap(args) => perl_heap::run(&context, &args)?,
        CliCommand::Proc(args) => proc::run(&context, &args)?,
        CliCommand::Watch(args) => return watch::run(&context, &args),
        CliCommand::Mark(args) => mark::run(&args)?,
        CliCommand::CompareAllocators(args) => compare_allocators::run(&context, &args)?,
        CliCommand::Bench(args) => bench::run(&context, &args)?,
        CliCommand::Listen(args) => listen::run(&context, &args)?,
        CliCommand::Alive(args) => alive::run(&args)?,
        CliCommand::Wiretap(args) => return wiretap::run(&context, &args),
        CliCommand::Load(args) => load::run(&context, &args)?,
        CliCommand::Ls(args) => ls::run(&context, &args)?,
        CliCommand::Series(args) => series::run(&context, &args)?,
        CliCommand::Growth(args) => growth::run(&context, &args)?,
        CliCommand::Export(args) => export::run(&context, &args)?,
        CliCommand::Import(args) => export::import(&context, &args)?,
        CliCommand::Prune(args) => prune::run(&context, &args)?,
        CliCommand::Rm(args) => rm::run(&context, &args)?,
        CliCommand::Sql(args) => sql::run(&context, &args)?,
        CliCommand::Merge(args) => merge::run(&context, &args)?,
        CliCommand::Convert(args) => convert::run(&context, &args)?,
        CliCommand::Symbolize(args) => symbolize::run(&context, &args)?,
        CliCommand::Pprof(args) => {
            heapprof_dropin::pprof(&context.drop_in_host("pprof"), &args.words)?
        }
        CliCommand::Jeprof(args) => {
            heapprof_dropin::jeprof(&context.drop_in_host("jeprof"), &args.words)?
        }
        CliCommand::Completions { shell } => completions::run(shell)?,
        CliCommand::Man { command, out } => man::run(command.as_deref(), out.as_deref())?,
        // `run_reporting_command` has run them.
        CliCommand::Top(_)
        | CliCommand::Tree(_)
        | CliCommand::Peek(_)
        | CliCommand::List(_)
        | CliCommand::Traces(_)
        | CliCommand::Tags(_)
        | CliCommand::Stats(_)
        | CliCommand::Timeline(_)
        | CliCommand::Info(_)
        | CliCommand::Leaks(_)
        | CliCommand::Diff(_)
        | CliCommand::Schema(_) => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// Fails for `--from`, `--store` and `--over-time` with a command that has no use for them.
fn reject_unused_options(context: &CommandContext, command: &CliCommand) -> Result<()> {
    let is_question = matches!(
        command,
        CliCommand::Top(_)
            | CliCommand::Tree(_)
            | CliCommand::Peek(_)
            | CliCommand::List(_)
            | CliCommand::Traces(_)
            | CliCommand::Tags(_)
            | CliCommand::Info(_)
            | CliCommand::Leaks(_)
            | CliCommand::Diff(_)
            | CliCommand::Flame(_)
            | CliCommand::Report(_)
            | CliCommand::Convert(_)
            | CliCommand::Merge(_)
    );
    let is_list = matches!(
        command,
        CliCommand::Series(_) | CliCommand::Growth(_) | CliCommand::Ls(_)
    );
    let (option, is_used) = match (context.sources.backend(), command) {
        (StoreBackend::Database(_), _) => ("", true),
        (StoreBackend::Batches(_), CliCommand::Sql(args)) => ("--from", args.profile.is_empty()),
        (StoreBackend::Batches(_), _) => ("--from", is_question || is_list),
        (StoreBackend::ClickHouse(_), CliCommand::Load(_)) => ("--store", true),
        (StoreBackend::ClickHouse(_), CliCommand::Sql(args)) => {
            ("--store", args.profile.is_empty())
        }
        (StoreBackend::ClickHouse(_), _) => ("--store", is_question || is_list),
    };
    if !is_used {
        bail!("{option} has no effect on this command");
    }
    if is_list && context.sources.over_time() != MomentAggregation::Last {
        bail!("--over-time has no effect on this command");
    }
    Ok(())
}

/// Runs a command that answers a question about profiles and changes nothing; `web` answers these
/// questions as well. Returns `None` for other commands.
fn run_reporting_command(
    context: &CommandContext,
    command: &CliCommand,
) -> Result<Option<ExitCode>> {
    match command {
        CliCommand::Top(args) => return top::run(context, args).map(Some),
        CliCommand::Info(args) => return info::run(context, args).map(Some),
        CliCommand::Leaks(args) => return leaks::run(context, args).map(Some),
        CliCommand::Diff(args) => return diff::run(context, args).map(Some),
        CliCommand::Tree(args) => tree::run(context, args)?,
        CliCommand::Peek(args) => peek::run(context, args)?,
        CliCommand::List(args) => list::run(context, args)?,
        CliCommand::Traces(args) => traces::run(context, args)?,
        CliCommand::Tags(args) => tags::run(context, args)?,
        CliCommand::Stats(args) => stats::run(context, args)?,
        CliCommand::Timeline(args) => timeline::run(context, args)?,
        CliCommand::Schema(args) => schema::run(context, args)?,
        _ => return Ok(None),
    }
    Ok(Some(ExitCode::SUCCESS))
}

/// The context that every command gets.
pub(crate) struct CommandContext {
    pub(crate) sources: ProfileSources,
    color: ColorMode,
    /// The answer, if it is kept here for the caller to send instead of written.
    captured: Option<RefCell<CapturedOutput>>,
    /// The single SQL statement that asks the report's question of stored profiles.
    portable: RefCell<Option<String>>,
}

/// An answer that is kept in memory instead of written.
#[derive(Default)]
struct CapturedOutput {
    text: Vec<u8>,
    notes: Vec<String>,
    /// Whether the text may contain lines of source files.
    with_source: bool,
}

/// Number of rows on a terminal if `-n` is not given.
const DEFAULT_TERMINAL_ROWS: usize = 40;

impl CommandContext {
    /// Returns this program as the host of the drop-in `command`.
    fn drop_in_host(&self, command: &'static str) -> CommandLineHost<'_> {
        let sources = &self.sources;
        CommandLineHost {
            command,
            sources,
            serve: web::serve_for_pprof,
        }
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

    fn is_coloured(&self, file: Option<&Path>) -> bool {
        match self.color {
            ColorMode::Always => true,
            ColorMode::Never => false,
            ColorMode::Auto => {
                let no_color = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
                let dumb = std::env::var_os("TERM").is_some_and(|v| v == "dumb");
                self.is_terminal(file) && !no_color && !dumb
            }
        }
    }

    /// Returns the limit of rows: `-n`, or a screenful on a terminal.
    pub(crate) fn limit(&self, limit: &LimitArg, report: &ReportArgs) -> Option<usize> {
        self.rows(limit, report.output.file())
    }

    /// Returns the limit of rows for a report that goes to `file`.
    fn rows(&self, limit: &LimitArg, file: Option<&Path>) -> Option<usize> {
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
        self.finish_into(report, session, |style, out| {
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
        let file = report.output.file();
        let style = self.style(report);
        if report.show_sql {
            // The report is made in any case, so that a report that can't be made is an error here
            // too.
            body(&style, &mut io::sink())?;
            let portable = self.portable.borrow();
            let portable = portable.as_ref().map_or_else(String::new, |sql| {
                format!(
                    "-- The same in one statement, for any engine that has the tables:\n{sql};\n"
                )
            });
            return self.text(file, &(statements(session) + &printable_lines(&portable)));
        }
        self.write(file, |writer| body(&style, writer))
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

    /// Remembers the single statement that asks the report's question of stored profiles, if one
    /// exists. It exists for rows of functions, without filters, of values in use.
    pub(crate) fn note_portable_query(
        &self,
        query: &Query,
        sample_type: &SampleType,
        sql: impl FnOnce(&PortableQuery<'_>) -> Option<String>,
    ) {
        let is_plain = query.is_plain() && query.sort == SortKey::Flat;
        if is_plain && !is_counter(&sample_type.r#type) {
            let asked = PortableQuery {
                sample_type: (&sample_type.r#type, &sample_type.unit),
                limit: query.limit,
            };
            // Engines differ in how they read a backslash in a text.
            let sql = sql(&asked).filter(|sql| !sql.contains('\\'));
            self.portable.replace(sql);
        }
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
