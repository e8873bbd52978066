//! `heapprof shell`: commands one after the other, about a source that stays read.

use std::cell::RefCell;
use std::path::Path;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;

use anyhow::{Error, Result, bail};
use heapprof_dropin::PromptStream;
use heapprof_prompt::{CommandWords, ShellCommands, WordCompleter, run_shell};
use heapprof_sources::{ProfileSources, ShellSource};

use crate::args::{Cli, CliCommand, SharedOptions, ShellArgs, visible_command};
use crate::command_line::run_words;
use crate::context::CommandContext;
use crate::{messages, output};

/// Function that runs a command about the source of the shell.
type CommandRunner = fn(Cli, &Arc<ShellSource>) -> Result<ExitCode>;

pub(super) fn run(
    context: &CommandContext,
    shared: &SharedOptions,
    args: &ShellArgs,
    runner: CommandRunner,
) -> Result<ExitCode> {
    let names = context.sources.or_newest(&args.sources)?;
    let kept = Arc::new(context.sources.keep(&names)?);
    if let (Some(database), Some(typed)) = (kept.database(), context.sources.typed_db()) {
        let [source, other] = [database, typed].map(Path::display);
        bail!("{source}: is a database; leave out --db {other}, or name one of its profiles");
    }
    let functions = Rc::new(RefCell::new(kept.function_names()));
    let mut commands = SourceCommands {
        sources: &context.sources,
        shared,
        kept,
        functions: Rc::clone(&functions),
        names,
        runner,
    };
    let mut cli = visible_command();
    cli.build();
    let completer = WordCompleter {
        commands: command_words(&cli),
        functions,
    };
    let prompts = PromptStream::Messages;
    let mut reader = output::command_reader("heapprof", prompts, Box::new(completer))?;
    let last = run_shell("(heapprof) ", reader.as_mut(), &mut commands)?;
    Ok(ExitCode::from(last))
}

/// The commands of heapprof, about one source.
struct SourceCommands<'a> {
    sources: &'a ProfileSources,
    /// Options of the shell's own command line.
    shared: &'a SharedOptions,
    names: Vec<String>,
    kept: Arc<ShellSource>,
    /// Names of the functions of the source, for completion.
    functions: Rc<RefCell<Vec<String>>>,
    runner: CommandRunner,
}

impl ShellCommands for SourceCommands<'_> {
    fn run(&self, words: Vec<String>) -> u8 {
        match self.run_words(words) {
            Ok(code) => number(code),
            Err(error) if output::is_broken_pipe(&error) => 0,
            Err(error) => {
                messages::error(&error);
                2
            }
        }
    }

    fn reload(&mut self) -> Result<()> {
        self.kept = Arc::new(self.sources.keep(&self.names)?);
        self.functions.replace(self.kept.function_names());
        Ok(())
    }

    fn print_error(&self, error: &Error) {
        messages::error(error);
    }
}

impl SourceCommands<'_> {
    fn run_words(&self, mut words: Vec<String>) -> Result<ExitCode> {
        words.insert(0, "heapprof".to_string());
        let typed = words.into_iter().map(Into::into).collect();
        run_words(typed, |mut cli| {
            if matches!(cli.command, CliCommand::Shell(_)) {
                bail!("this is the shell; quit ends it");
            }
            cli.shared.inherit(self.shared);
            (self.runner)(cli, &self.kept)
        })
    }
}

/// Returns the number of an exit code, which the standard library only compares.
fn number(code: ExitCode) -> u8 {
    let is_code = |number: &u8| ExitCode::from(*number) == code;
    (0..=u8::MAX).find(is_code).unwrap_or(u8::MAX)
}

/// Returns the words of a command, for completion.
fn command_words(command: &clap::Command) -> CommandWords {
    let options = command
        .get_arguments()
        .filter(|option| !option.is_hide_set());
    CommandWords {
        name: command.get_name().to_string(),
        parts: command.get_subcommands().map(command_words).collect(),
        options: options
            .filter_map(|option| Some(format!("--{}", option.get_long()?)))
            .collect(),
    }
}
