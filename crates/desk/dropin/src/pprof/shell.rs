//! The interactive shell: reads commands, changes options, and prints reports of a profile that
//! stays loaded.
//!
//! On a pipe, the prompts and the reports on stdout, and the files, are pprof's. Source:
//! google/pprof, internal/driver/interactive.go.

mod command_table;
mod completion;
mod help;
mod line;
mod settings;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use anyhow::{Result, bail};
use heapprof_profile::Profile;

use super::config::PprofConfig;
use super::print;
use super::viewers::ShownFiles;
use crate::host::{CommandProcess, CommandReader, PromptStream};
use completion::ShellCompleter;
use settings::ShellOption;

const PROMPT: &str = "(pprof) ";
/// The line that forgets all filters, and the lines that it stands for.
const CLEAR_FILTERS: (&str, [&str; 5]) = (
    ":",
    ["focus=", "ignore=", "hide=", "tagfocus=", "tagignore="],
);

/// Runs the shell until its input ends or the person ends it.
pub(super) fn run(profile: Profile, config: &PprofConfig<'_>) -> Result<()> {
    let owned = |names: Vec<&str>| names.into_iter().map(str::to_string).collect();
    let completer = ShellCompleter {
        functions: owned(profile.function_names()),
        sample_types: owned(profile.type_names()),
    };
    let mut reader =
        config
            .host
            .command_reader("pprof", PromptStream::Output, Box::new(completer))?;
    let mut settings = config.clone();
    settings.is_shell = true;
    settings.flags.set("compact_labels", "true".to_string());
    let mut shell = PprofShell {
        shortcuts: shortcuts(&profile),
        profile,
        settings,
        shown: ShownFiles::default(),
    };
    shell.greet();
    shell.execute_lines(reader.as_mut())
}

/// State of the shell between two commands.
struct PprofShell<'a> {
    profile: Profile,
    /// The options as they are now.
    settings: PprofConfig<'a>,
    /// Lines that stand for other lines.
    shortcuts: HashMap<String, Vec<String>>,
    /// The files that viewers have open.
    shown: ShownFiles,
}

/// Whether the shell goes on after a line.
enum AfterLine {
    Continue,
    End,
}

impl PprofShell<'_> {
    fn execute_lines(&mut self, reader: &mut dyn CommandReader) -> Result<()> {
        while let Some(line) = reader.read_line(PROMPT)? {
            let line = line.trim();
            let lines = match self.shortcuts.get(line) {
                Some(lines) => lines.clone(),
                None => vec![line.to_string()],
            };
            for line in lines {
                match self.execute(&line) {
                    Ok(AfterLine::Continue) => {}
                    Ok(AfterLine::End) => return Ok(()),
                    Err(error) => self.settings.host.print_lines(&format!("{error:#}")),
                }
            }
        }
        Ok(())
    }

    fn execute(&mut self, line: &str) -> Result<AfterLine> {
        if let Some((option, value)) = line::parse_assignment(line) {
            self.assign(option, value)?;
            return Ok(AfterLine::Continue);
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [] => {}
            ["o" | "options", ..] => {
                let list = help::option_list(&self.profile, &self.settings);
                self.settings.host.print_lines(&list);
            }
            ["exit" | "quit" | "q", ..] => return Ok(AfterLine::End),
            ["help", ref topic @ ..] => {
                let topic = topic.join(" ");
                match help::help(&topic) {
                    Some(text) => self.settings.host.print_lines(&text),
                    None => bail!("Unknown command: {topic}"),
                }
            }
            _ => {
                let request = line::parse_command(&words, &self.settings)?;
                return self.report(&request);
            }
        }
        Ok(AfterLine::Continue)
    }

    /// Prints or shows a report. Another process has a copy of the profile, so the report may
    /// change it.
    fn report(&mut self, request: &PprofConfig<'_>) -> Result<AfterLine> {
        let shown = self.shown.reserve(request)?;
        let goes_on = request.host.run_in_copy(&mut |process| {
            let profile = match process {
                CommandProcess::Copy => std::mem::take(&mut self.profile),
                CommandProcess::Shell => self.profile.clone(),
            };
            print::report(profile, request, shown)
        });
        Ok(match goes_on? {
            true => AfterLine::Continue,
            false => AfterLine::End,
        })
    }

    fn assign(&mut self, option: ShellOption, value: Option<&str>) -> Result<()> {
        let value = match value {
            Some(value) => value,
            None if option.stands_alone() => "",
            None => bail!("please specify a value, e.g. {}=<val>", option.name()),
        };
        if option.name() != "sample_index" {
            return option.set(&mut self.settings, value);
        }
        let column = print::column(&self.profile, value)?;
        let r#type = self.profile.sample_type[column].r#type;
        option.set(&mut self.settings, self.profile.text(r#type))
    }

    /// Says what the profile is, and how to go on.
    fn greet(&self) {
        if let Ok((labels, total)) = print::profile_labels(&self.profile, &self.settings) {
            self.settings.host.print_lines(&labels.join("\n"));
            if total == 0 && self.profile.sample_type.len() > 1 {
                self.settings.host.print_lines(
                    "No samples were found with the default sample value type.\nTry \
                     \"sample_index\" command to analyze different sample values.\n",
                );
            }
        }
        self.settings.host.print_lines(
            "Entering interactive mode (type \"help\" for commands, \"o\" for options)",
        );
    }
}

/// Returns the lines that stand for other lines: one forgets the filters, the others choose a type
/// of the samples.
fn shortcuts(profile: &Profile) -> HashMap<String, Vec<String>> {
    let (clear, lines) = CLEAR_FILTERS;
    let mut shortcuts = HashMap::new();
    shortcuts.insert(clear.to_string(), lines.map(str::to_string).to_vec());
    for name in profile.type_names() {
        let choose = format!("sample_index={name}");
        for (shortcut, mean) in [("total_", "mean=0"), ("mean_", "mean=1")] {
            let lines = vec![mean.to_string(), choose.clone()];
            shortcuts.insert(format!("{shortcut}{name}"), lines);
        }
        shortcuts.insert(name.to_string(), vec![choose]);
    }
    shortcuts
}
