//! The shell of the two scripts, which reads commands and prints reports about one profile.
//!
//! Reports go to stdout. All that the shell itself says goes to stderr.

mod binutils;
mod calls;
mod code;
mod command;
mod completion;
mod disassembly;
mod help;
mod listing;
mod objects;
mod page;
mod picture;
mod routine_lines;
mod source_lines;
mod values;
mod viewers;

use std::borrow::Cow;
use std::io::{self, Write};

use anyhow::{Result, anyhow};
use heapprof_text::{ControlReplacement, escaping, printable};
use heapprof_totals::pattern::regex_error;
use regex::Regex;

use super::names::NameShortener;
use super::options::JeprofArguments;
use super::prepared::PreparedReport;
use super::report;
use super::rows::RowStyle;
use super::stacks::{JeprofStacks, StackFilters};
use crate::host::{DropinHost, PromptStream};
use code::{CodeReport, FoundRoutine, InstructionCleaner};
use command::{CommandWords, PictureViewer, ShellCommand};
use completion::ShellCompleter;
use disassembly::share;
use objects::MappedObject;
use routine_lines::RoutineLines;
use source_lines::SourceLineCache;
use values::AddressValues;
use viewers::ViewedFiles;

/// The shell for one profile, or for one of its threads.
pub(super) struct PerlShell<'a> {
    host: &'a dyn DropinHost,
    report: &'a PreparedReport,
    stacks: &'a JeprofStacks,
    typed: &'a JeprofArguments,
    total: i128,
    sources: SourceLineCache,
    files: ViewedFiles,
    /// The files whose code is in the profile, once a command needed them.
    objects: Option<Vec<MappedObject>>,
}

impl<'a> PerlShell<'a> {
    /// Makes a shell for stacks of a report. `total` is their total before any filter.
    pub(super) fn new(
        host: &'a dyn DropinHost,
        report: &'a PreparedReport,
        stacks: &'a JeprofStacks,
        typed: &'a JeprofArguments,
        total: i128,
    ) -> Self {
        Self {
            host,
            report,
            stacks,
            typed,
            total,
            sources: SourceLineCache::default(),
            files: ViewedFiles::new(report.tool),
            objects: None,
        }
    }

    /// Reads and carries out commands until one ends the shell. A command that fails is a note, and
    /// the shell goes on.
    ///
    /// # Errors
    /// The commands can't be read, or nobody reads the output.
    pub(super) fn run(&mut self) -> Result<()> {
        self.host.print_lines(&help::welcome(self.report.tool));
        let prompt = format!("({}) ", self.report.tool.shell_name());
        let tool = self.report.tool.command();
        let completer = Box::new(ShellCompleter);
        let mut reader = self
            .host
            .command_reader(tool, PromptStream::Messages, completer)?;
        while let Some(line) = reader.read_line(&prompt)? {
            match self.carry_out(ShellCommand::parse(&line)) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) if is_closed_pipe(&error) => return Err(error),
                Err(error) => self.host.note(&format!("{error:#}")),
            }
        }
        Ok(())
    }

    /// Prints or shows the report of an option: `disasm`, `gv`, `evince` or `web`.
    ///
    /// # Errors
    /// The report can't be made, printed or shown.
    pub(super) fn run_once(&mut self, format: &str) -> Result<()> {
        let viewer = match format {
            "gv" => PictureViewer::Gv,
            "evince" => PictureViewer::Evince,
            "web" => PictureViewer::Browser,
            _ => {
                let pattern = self.typed.text("disasm").to_string();
                return self.disassemble(Cow::Borrowed(self.stacks), "", &pattern);
            }
        };
        self.show_picture(Cow::Borrowed(self.stacks), "", viewer, true)
    }

    /// Carries out a command. Returns whether the shell goes on.
    fn carry_out(&mut self, command: ShellCommand) -> Result<bool> {
        match command {
            ShellCommand::Quit => return Ok(false),
            ShellCommand::Help => self.host.print_lines(&help::help(self.report.tool)),
            ShellCommand::Nothing => {}
            ShellCommand::Unknown => self.host.print_lines(help::UNKNOWN_COMMAND),
            ShellCommand::Top { limit, words } => self.print_rows(limit, &words)?,
            ShellCommand::Callgrind { file } => self.write_calls(&file)?,
            ShellCommand::List { words } => {
                let (stacks, head) = self.select(&words, false)?;
                self.list(stacks, &head, &words.pattern)?;
            }
            ShellCommand::WebList { words } => {
                let (stacks, head) = self.select(&words, false)?;
                self.show_listing(stacks, &head, &words.pattern)?;
            }
            ShellCommand::Disasm { words } => {
                let (stacks, head) = self.select(&words, false)?;
                self.disassemble(stacks, &head, &words.pattern)?;
            }
            ShellCommand::Picture { viewer, words } => {
                let (stacks, head) = self.select(&words, true)?;
                self.show_picture(stacks, &head, viewer, false)?;
            }
        }
        Ok(true)
    }

    /// Returns the stacks that a command selects, and the first lines of its report. Only some
    /// commands take their words as a focus.
    fn select(
        &self,
        words: &CommandWords,
        with_focus: bool,
    ) -> Result<(Cow<'a, JeprofStacks>, String)> {
        if !words.ignore.is_empty() {
            self.host.print_lines(&format!(
                "Ignoring samples in call stacks that match '{}'",
                printable(&words.ignore)
            ));
        }
        let measure = self.report.measure;
        let (total, unit) = (measure.show(self.total), measure.unit());
        let mut head = format!("Total: {total} {unit}\n");
        let mut stacks = Cow::Borrowed(self.stacks);
        let focus = [(words.pattern.as_str(), "focusing on")];
        let focus = focus.iter().filter(|_| with_focus);
        for &(pattern, what) in focus.chain([&(words.ignore.as_str(), "ignoring")]) {
            if pattern.is_empty() {
                continue;
            }
            let filter = Regex::new(pattern)
                .map_err(|error| anyhow!("{pattern:?}: {}", regex_error(&error)))?;
            let is_focus = what != "ignoring";
            let filters = StackFilters {
                focus: is_focus.then(|| filter.clone()),
                ignore: (!is_focus).then_some(filter),
                ..StackFilters::default()
            };
            stacks.to_mut().filter(&filters);
            let rest = stacks.total(self.report.column);
            head += &format!(
                "After {what} '{pattern}': {} {unit} of {total} ({:.1}%)\n",
                measure.show(rest),
                share(rest, self.total)
            );
        }
        Ok((stacks, head))
    }

    /// Writes a report to stdout.
    fn print(&self, body: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
        let body = |out: &mut dyn Write| escaping(out, ControlReplacement::Replacement, body);
        self.host.write(None, Box::new(body))
    }

    fn print_rows(&self, limit: usize, words: &CommandWords) -> Result<()> {
        let (stacks, head) = self.select(words, false)?;
        let style = RowStyle::new(self.typed);
        let style = match words.by_line {
            true => style.by_line(),
            false => style,
        };
        let profile = stacks.into_owned().into_row_profile(style);
        let (column, measure) = (self.report.column, self.report.measure);
        self.print(|out| {
            let limit = Some(limit);
            report::text(&profile, column, measure, words.by_cum, limit, &head, out)?;
            Ok(())
        })
    }

    /// Writes a callgrind file; without a name, one that KCachegrind shows.
    fn write_calls(&mut self, name: &str) -> Result<()> {
        let (column, tool, stacks) = (self.report.column, self.report.tool, self.stacks);
        let body = |out: &mut dyn Write| calls::write(stacks, column, tool, out);
        let say = |shown: &str| {
            let text = format!("Writing callgrind file to '{}'.", printable(shown));
            self.host.print_lines(&text);
        };
        if !name.is_empty() {
            say(name);
            return self.host.write(Some(&self.host.path(name)), Box::new(body));
        }
        let (path, file) = self.files.create("callgrind")?;
        let shown = path.display().to_string();
        say(&shown);
        self.host.write_into(&shown, file, Box::new(body))?;
        self.host
            .print_lines(&format!("Starting 'kcachegrind {shown} & '"));
        viewers::show("kcachegrind", &[], &path, false)
    }

    /// Calls `body` with a report about the code of stacks.
    fn with_code<T>(
        &mut self,
        stacks: &JeprofStacks,
        body: impl FnOnce(&CodeReport<'_>, &mut SourceLineCache, &mut ViewedFiles) -> Result<T>,
    ) -> Result<T> {
        let objects = match self.objects.take() {
            Some(objects) => objects,
            None => objects::mapped_objects(&self.stacks.profile, self.report.tool)?,
        };
        let report = CodeReport {
            objects: self.objects.insert(objects),
            values: &AddressValues::new(stacks, self.report.column),
            measure: self.report.measure,
            tool: self.report.tool,
            names: NameShortener::new(self.typed.is_on("no_strip_temp"))?,
        };
        body(&report, &mut self.sources, &mut self.files)
    }

    fn list(&mut self, stacks: Cow<'_, JeprofStacks>, head: &str, pattern: &str) -> Result<()> {
        let host = self.host;
        self.print_routines(
            stacks,
            head,
            pattern,
            |report, found, _, out| match lines_of(host, report, found) {
                Some(lines) => Ok(report.list(&found.routine.name, &lines, out)?),
                None => Ok(()),
            },
        )
    }

    fn disassemble(
        &mut self,
        stacks: Cow<'_, JeprofStacks>,
        head: &str,
        pattern: &str,
    ) -> Result<()> {
        let host = self.host;
        self.print_routines(stacks, head, pattern, |report, found, sources, out| {
            report.disassemble(host, found, sources, out)
        })
    }

    /// Prints the head of a report and, when all are complete, the sections that `section` writes
    /// for the routines that match.
    fn print_routines(
        &mut self,
        stacks: Cow<'_, JeprofStacks>,
        head: &str,
        pattern: &str,
        section: impl Fn(
            &CodeReport<'_>,
            &FoundRoutine<'_>,
            &mut SourceLineCache,
            &mut Vec<u8>,
        ) -> Result<()>,
    ) -> Result<()> {
        self.print(|out| Ok(out.write_all(head.as_bytes())?))?;
        let sections = self.with_code(&stacks, |report, sources, _| {
            let mut sections = Vec::new();
            for found in report.routines(pattern)? {
                section(report, &found, sources, &mut sections)?;
            }
            Ok(sections)
        })?;
        self.print(|out| Ok(out.write_all(&sections)?))
    }

    /// Shows source lines in a browser, if there are any.
    fn show_listing(
        &mut self,
        stacks: Cow<'_, JeprofStacks>,
        head: &str,
        pattern: &str,
    ) -> Result<()> {
        self.print(|out| Ok(out.write_all(head.as_bytes())?))?;
        let (host, total) = (self.host, self.total);
        let program = self.typed.words.first().cloned().unwrap_or_default();
        self.with_code(&stacks, |report, _, files| {
            let cleaner = InstructionCleaner::new()?;
            let mut sections = Vec::new();
            for found in report.routines(pattern)? {
                if let Some(lines) = lines_of(host, report, &found) {
                    let name = &found.routine.name;
                    let out = &mut sections;
                    report.write_section(name, found.object, &lines, &cleaner, out)?;
                }
            }
            if sections.is_empty() {
                return Ok(());
            }
            let (path, file) = files.create("html")?;
            let body = |out: &mut dyn Write| {
                out.write_all(page::PAGE_BEGIN.as_bytes())?;
                report.write_legend(&program, total, out)?;
                out.write_all(&sections)?;
                Ok(out.write_all(page::PAGE_END.as_bytes())?)
            };
            host.write_into(&path.display().to_string(), file, Box::new(body))?;
            viewers::show_in_browser(host, &path);
            Ok(())
        })
    }
}

/// Returns the source lines of a routine. If they are unknown, a note says why.
fn lines_of(
    host: &dyn DropinHost,
    report: &CodeReport<'_>,
    found: &FoundRoutine<'_>,
) -> Option<RoutineLines> {
    let lines = RoutineLines::new(
        found.object,
        &found.routine,
        found.has_fini,
        report.values,
        report.tool,
    );
    lines.map_err(|error| host.note(&format!("{error:#}"))).ok()
}

/// Whether an error is that nobody reads the output.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests;
