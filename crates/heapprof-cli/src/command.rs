//! What the commands share; each command has a file of its own.

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

use crate::args::{Cli, Color, Command, LimitArg, ReportArgs, SourceArgs};
use crate::backend::Backend;
use crate::drop_in::Desk;
use crate::source::Sources;
use crate::source_file::SourceFiles;
use crate::{messages, name, output};

/// Runs the command and says how it ended.
pub(crate) fn run(cli: Cli) -> Result<ExitCode> {
    let context = Shared {
        sources: Sources::new(&cli),
        color: cli.color,
        kept: None,
        portable: RefCell::default(),
    };
    must_use_options(&context, &cli.command)?;
    if let Some(code) = reported(&context, &cli.command)? {
        return Ok(code);
    }
    match cli.command {
        Command::Record(args) => return record::run(&args, cli.color),
        Command::PreloadPath { header } => preload_path::run(header)?,
        Command::PerlInstall { perl } => perl_install::run(perl)?,
        Command::ForkAudit(args) => return fork_audit::run(&context, &args),
        Command::Flame(args) => flame::run(&context, &args)?,
        Command::Report(args) => report::run(&context, &args)?,
        Command::Web(args) => web::run(context, &args)?,
        Command::Tui(args) => tui::run(&context, &args)?,
        Command::Dump(args) => dump::run(&args)?,
        Command::Attach(args) => attach::run(&args)?,
        Command::Detach(args) => attach::detach(&args)?,
        Command::Ps(args) => ps::run(&args)?,
        Command::Follow(args) => follow::run(&args)?,
        Command::Live(args) => live::run(&context, &args)?,
        Command::Heapwalk(args) => heapwalk::run(&context, &args)?,
        Command::PerlHeap(args) => perl_heap::run(&context, &args)?,
        Command::Proc(args) => proc::run(&context, &args)?,
        Command::Watch(args) => return watch::run(&context, &args),
        Command::Mark(args) => mark::run(&args)?,
        Command::CompareAllocators(args) => compare_allocators::run(&context, &args)?,
        Command::Bench(args) => bench::run(&context, &args)?,
        Command::Listen(args) => listen::run(&context, &args)?,
        Command::Alive(args) => alive::run(&args)?,
        Command::Wiretap(args) => return wiretap::run(&context, &args),
        Command::Load(args) => load::run(&context, &args)?,
        Command::Ls(args) => ls::run(&context, &args)?,
        Command::Series(args) => series::run(&context, &args)?,
        Command::Growth(args) => growth::run(&context, &args)?,
        Command::Export(args) => export::run(&context, &args)?,
        Command::Import(args) => export::import(&context, &args)?,
        Command::Prune(args) => prune::run(&context, &args)?,
        Command::Rm(args) => rm::run(&context, &args)?,
        Command::Sql(args) => sql::run(&context, &args)?,
        Command::Merge(args) => merge::run(&context, &args)?,
        Command::Convert(args) => convert::run(&context, &args)?,
        Command::Symbolize(args) => symbolize::run(&context, &args)?,
        Command::Pprof(args) => heapprof_dropin::pprof(&context.desk("pprof"), &args.words)?,
        Command::Jeprof(args) => heapprof_dropin::jeprof(&context.desk("jeprof"), &args.words)?,
        Command::Completions { shell } => completions::run(shell)?,
        Command::Man { command, out } => man::run(command.as_deref(), out.as_deref())?,
        // `reported` has run them.
        Command::Top(_)
        | Command::Tree(_)
        | Command::Peek(_)
        | Command::List(_)
        | Command::Traces(_)
        | Command::Tags(_)
        | Command::Stats(_)
        | Command::Timeline(_)
        | Command::Info(_)
        | Command::Leaks(_)
        | Command::Diff(_)
        | Command::Schema(_) => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// Fails for `--from`, `--store` and `--over-time` with a command that has no use for them.
fn must_use_options(context: &Shared, command: &Command) -> Result<()> {
    let is_question = matches!(
        command,
        Command::Top(_)
            | Command::Tree(_)
            | Command::Peek(_)
            | Command::List(_)
            | Command::Traces(_)
            | Command::Tags(_)
            | Command::Info(_)
            | Command::Leaks(_)
            | Command::Diff(_)
            | Command::Flame(_)
            | Command::Report(_)
            | Command::Convert(_)
            | Command::Merge(_)
    );
    let is_list = matches!(
        command,
        Command::Series(_) | Command::Growth(_) | Command::Ls(_)
    );
    let (option, is_used) = match (context.sources.backend(), command) {
        (Backend::Database(_), _) => ("", true),
        (Backend::Batches(_), Command::Sql(args)) => ("--from", args.profile.is_empty()),
        (Backend::Batches(_), _) => ("--from", is_question || is_list),
        (Backend::ClickHouse(_), Command::Load(_)) => ("--store", true),
        (Backend::ClickHouse(_), Command::Sql(args)) => ("--store", args.profile.is_empty()),
        (Backend::ClickHouse(_), _) => ("--store", is_question || is_list),
    };
    if !is_used {
        bail!("{option} has no effect on this command");
    }
    if is_list && context.sources.over_time() != MomentAggregation::Last {
        bail!("--over-time has no effect on this command");
    }
    Ok(())
}

/// Runs the commands that answer a question about profiles and change nothing, which `web` answers
/// as well. Returns `None` for other commands.
fn reported(context: &Shared, command: &Command) -> Result<Option<ExitCode>> {
    match command {
        Command::Top(args) => return top::run(context, args).map(Some),
        Command::Info(args) => return info::run(context, args).map(Some),
        Command::Leaks(args) => return leaks::run(context, args).map(Some),
        Command::Diff(args) => return diff::run(context, args).map(Some),
        Command::Tree(args) => tree::run(context, args)?,
        Command::Peek(args) => peek::run(context, args)?,
        Command::List(args) => list::run(context, args)?,
        Command::Traces(args) => traces::run(context, args)?,
        Command::Tags(args) => tags::run(context, args)?,
        Command::Stats(args) => stats::run(context, args)?,
        Command::Timeline(args) => timeline::run(context, args)?,
        Command::Schema(args) => schema::run(context, args)?,
        _ => return Ok(None),
    }
    Ok(Some(ExitCode::SUCCESS))
}

/// What every command gets.
pub(crate) struct Shared {
    pub(crate) sources: Sources,
    color: Color,
    /// What is answered is kept here instead of written, if somebody else sends it.
    kept: Option<RefCell<Kept>>,
    /// The one statement that asks the same of stored profiles.
    portable: RefCell<Option<String>>,
}

/// An answer that is kept.
#[derive(Default)]
struct Kept {
    text: Vec<u8>,
    notes: Vec<String>,
    /// Whether lines of source files may be in it.
    with_source: bool,
}

/// Rows on a terminal if `-n` is not given.
const SCREENFUL: usize = 40;

impl Shared {
    /// This program as the host of the drop-in `command`.
    fn desk(&self, command: &'static str) -> Desk<'_> {
        let sources = &self.sources;
        Desk {
            command,
            sources,
            serve: web::of_pprof,
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
            Color::Always => true,
            Color::Never => false,
            Color::Auto => {
                let no_color = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
                let dumb = std::env::var_os("TERM").is_some_and(|v| v == "dumb");
                self.is_terminal(file) && !no_color && !dumb
            }
        }
    }

    /// The limit of rows: `-n`, or a screenful on a terminal.
    pub(crate) fn limit(&self, limit: &LimitArg, report: &ReportArgs) -> Option<usize> {
        self.rows(limit, report.output.file())
    }

    /// The same for a report that goes to this file.
    fn rows(&self, limit: &LimitArg, file: Option<&Path>) -> Option<usize> {
        match limit.limit {
            Some(0) => None,
            Some(limit) => Some(limit),
            None => self.is_terminal(file).then_some(SCREENFUL),
        }
    }

    /// Writes a report, or with `--show-sql` the SQL that it asked.
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

    /// Does the same as [`finish`](Self::finish), for a report that is written bit by bit because
    /// it is too long to be in memory.
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

    /// Writes a report bit by bit. On a terminal a pager shows what is longer than the screen.
    pub(crate) fn write(
        &self,
        file: Option<&Path>,
        body: impl FnOnce(&mut dyn Write) -> Result<()>,
    ) -> Result<()> {
        if let Some(kept) = &self.kept {
            return body(&mut Room(kept));
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

    /// Notes the one statement that asks the same of stored profiles, if there is one: for rows of
    /// functions, without filters, of values in use.
    pub(crate) fn ask_anywhere(
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
            // No text with a backslash is the same in every engine.
            let sql = sql(&asked).filter(|sql| !sql.contains('\\'));
            self.portable.replace(sql);
        }
    }

    /// Says something beside the report.
    pub(crate) fn note(&self, text: &str) {
        match &self.kept {
            Some(kept) => kept.borrow_mut().notes.push(text.to_string()),
            None => messages::note(text),
        }
    }

    /// Whether a report is read on a terminal.
    pub(crate) fn is_terminal(&self, file: Option<&Path>) -> bool {
        self.kept.is_none() && output::is_terminal(file)
    }

    /// The source files that reports show lines of.
    pub(crate) fn source_files<'a>(&self, args: &'a SourceArgs) -> SourceFiles<'a> {
        match &self.kept {
            Some(kept) if !kept.borrow().with_source => SourceFiles::none(args),
            _ => SourceFiles::new(args),
        }
    }
}

/// The most bytes of an answer that is kept.
const ROOM: usize = 64 << 20;

/// Writes into what is kept.
struct Room<'a>(&'a RefCell<Kept>);

impl Write for Room<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = &mut self.0.borrow_mut().text;
        if text.len() + bytes.len() > ROOM {
            return Err(io::Error::other(format!(
                "the answer is larger than {} MiB; ask for fewer rows",
                ROOM >> 20
            )));
        }
        text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What a session asked, with one statement on each line.
pub(crate) fn statements(session: &AnalysisSession) -> String {
    session
        .statements()
        .iter()
        .map(|sql| printable_lines(&format!("{sql};\n")))
        .collect()
}

/// A regular expression given as an argument.
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
