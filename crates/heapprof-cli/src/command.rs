//! What the commands share; each command has a file of its own.

mod completions;
mod convert;
mod diff;
mod flame;
mod gate;
mod info;
mod leaks;
mod list;
mod load;
mod ls;
mod man;
mod merge;
mod peek;
mod perl_install;
mod preload_path;
mod record;
mod report;
mod rm;
mod schema;
mod sql;
mod stats;
mod symbolize;
mod tags;
mod timeline;
mod top;
mod traces;
mod tree;
mod tui;

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};
use heapprof_analysis::{Query, Question, Session, Source, Types};
use heapprof_report::Style;
use heapprof_text::printable_lines;
use regex::Regex;

use crate::args::{Cli, Color, Command, LimitArg, ReportArgs};
use crate::drop_in::Desk;
use crate::source::Sources;
use crate::{messages, name, output};

/// Runs the command and says how it ended.
pub(crate) fn run(cli: Cli) -> Result<ExitCode> {
    let context = Shared {
        sources: Sources::new(&cli),
        color: cli.color,
    };
    match cli.command {
        Command::Record(args) => return record::run(&args, cli.color),
        Command::PreloadPath { header } => preload_path::run(header)?,
        Command::PerlInstall { perl } => perl_install::run(perl)?,
        Command::Top(args) => return top::run(&context, &args),
        Command::Tree(args) => tree::run(&context, &args)?,
        Command::Peek(args) => peek::run(&context, &args)?,
        Command::List(args) => list::run(&context, &args)?,
        Command::Traces(args) => traces::run(&context, &args)?,
        Command::Tags(args) => tags::run(&context, &args)?,
        Command::Stats(args) => stats::run(&context, &args)?,
        Command::Timeline(args) => timeline::run(&context, &args)?,
        Command::Info(args) => return info::run(&context, &args),
        Command::Leaks(args) => return leaks::run(&context, &args),
        Command::Diff(args) => return diff::run(&context, &args),
        Command::Flame(args) => flame::run(&context, &args)?,
        Command::Report(args) => report::run(&context, &args)?,
        Command::Tui(args) => tui::run(&context, &args)?,
        Command::Load(args) => load::run(&context, &args)?,
        Command::Ls(args) => ls::run(&context, &args)?,
        Command::Rm(args) => rm::run(&context, &args)?,
        Command::Sql(args) => sql::run(&context, &args)?,
        Command::Schema(args) => schema::run(&context, &args)?,
        Command::Merge(args) => merge::run(&context, &args)?,
        Command::Convert(args) => convert::run(&context, &args)?,
        Command::Symbolize(args) => symbolize::run(&context, &args)?,
        Command::Pprof(args) => heapprof_dropin::pprof(&context.desk("pprof"), &args.words)?,
        Command::Jeprof(args) => heapprof_dropin::jeprof(&context.desk("jeprof"), &args.words)?,
        Command::Completions { shell } => completions::run(shell)?,
        Command::Man { command, out } => man::run(command.as_deref(), out.as_deref())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// What every command gets.
pub(crate) struct Shared {
    pub(crate) sources: Sources,
    color: Color,
}

/// Rows on a terminal if `-n` is not given.
const SCREENFUL: usize = 40;

impl Shared {
    /// This program as the host of the drop-in `command`.
    fn desk(&self, command: &'static str) -> Desk<'_> {
        let sources = &self.sources;
        Desk { command, sources }
    }

    /// Starts the session of a question about one profile, and prints the question's notes.
    pub(crate) fn ask(&self, source: Source, query: &Query, types: Types) -> Result<Session> {
        self.session(vec![source], query, types, |question| question)
    }

    /// Starts the session of a question about several profiles, which `change` may change first.
    pub(crate) fn session(
        &self,
        sources: Vec<Source>,
        query: &Query,
        types: Types,
        change: impl FnOnce(Question) -> Question,
    ) -> Result<Session> {
        let question = Question::new(sources, query, types)?;
        for note in question.notes() {
            messages::note(&note);
        }
        Ok(Session::new(change(question))?)
    }

    pub(crate) fn style(&self, report: &ReportArgs) -> Style {
        Style {
            format: report.format,
            color: self.is_coloured(report),
            unit: report.unit.clone(),
            full_names: report.full_names,
            width: None,
        }
    }

    fn is_coloured(&self, report: &ReportArgs) -> bool {
        match self.color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => {
                let no_color = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
                let dumb = std::env::var_os("TERM").is_some_and(|v| v == "dumb");
                output::is_terminal(report.output.file()) && !no_color && !dumb
            }
        }
    }

    /// The limit of rows: `-n`, or a screenful on a terminal.
    pub(crate) fn limit(&self, limit: &LimitArg, report: &ReportArgs) -> Option<usize> {
        match limit.limit {
            Some(0) => None,
            Some(limit) => Some(limit),
            None => output::is_terminal(report.output.file()).then_some(SCREENFUL),
        }
    }

    /// Writes a report, or with `--show-sql` the SQL that it asked.
    pub(crate) fn finish(
        &self,
        report: &ReportArgs,
        session: &Session,
        text: impl FnOnce(&Style) -> Result<String>,
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
        session: &Session,
        body: impl FnOnce(&Style, &mut dyn Write) -> Result<()>,
    ) -> Result<()> {
        let file = report.output.file();
        let style = self.style(report);
        if report.show_sql {
            // The report is made in any case, so that a report that can't be made is an error here
            // too.
            body(&style, &mut io::sink())?;
            return output::text(file, &statements(session));
        }
        self.write(file, |writer| body(&style, writer))
    }

    /// Writes a report bit by bit. On a terminal a pager shows what is longer than the screen.
    pub(crate) fn write(
        &self,
        file: Option<&Path>,
        body: impl FnOnce(&mut dyn Write) -> Result<()>,
    ) -> Result<()> {
        if output::is_terminal(file) {
            let mut text = Vec::new();
            body(&mut text)?;
            return output::text(file, &String::from_utf8_lossy(&text));
        }
        output::write(file, body)
    }
}

/// What a session asked, with one statement on each line.
pub(crate) fn statements(session: &Session) -> String {
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
