//! `heapprof record`: makes the settings of a recording from the command line, and prints its
//! events and the paths of its profiles.

mod ending;
mod line_output;
mod no_profile;
mod notes;
mod observer;
mod outcome;
mod program;
mod unhooked;
mod unnamed;
mod words;

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Result, bail};
use heapprof_recorder::{
    LineFollowOptions, LiveViewOptions, ProfileNamePatterns, Recording, RecordingEnd,
    RecordingSettings, RecordingStartError, UnprofiledPeak, find_program,
};
use heapprof_terminal::screen::is_tty;
use signal_hook::consts::SIGINT;
use signal_hook::low_level::emulate_default_handler;

use self::observer::RecordPrinter;
pub(super) use self::words::bytes;
use super::view::{VIEW_ACTIONS, screen_style};
use crate::args::record::{FrameSelection, YesOrNo};
use crate::args::size::size;
use crate::args::{ColorMode, FileMode, RecordArgs};
use crate::perl_offer::{self, ModuleUse};
use crate::{log, messages, perl_module, preload};

pub(super) fn run(args: &RecordArgs, color: ColorMode) -> Result<ExitCode> {
    record(args, color, false).map(RecordedRun::end)
}

/// A program that was recorded.
pub(super) struct RecordedRun {
    /// The path of the profile of the process with the most memory, if there is one.
    pub(super) profile: Option<PathBuf>,
    /// Number of profiles.
    pub(super) profiles: usize,
    /// The process with the most memory that left no profile, if the memory was divided.
    pub(super) unprofiled: Option<UnprofiledPeak>,
    code: u8,
    /// Whether Ctrl-C ended the program.
    by_key: bool,
}

impl RecordedRun {
    /// Whether the program exited with 0.
    pub(super) fn is_success(&self) -> bool {
        self.code == 0
    }

    /// Returns the exit code. If Ctrl-C ended the program, this process ends by it, too: a shell
    /// then ends its loop or script. If a program exits with 130, the shell goes on.
    pub(super) fn end(self) -> ExitCode {
        if self.by_key {
            let _ = emulate_default_handler(SIGINT);
        }
        ExitCode::from(self.code)
    }
}

/// Records a program. `divides_peaks` asks for the parts of the resident memory at its peak.
pub(super) fn record(
    args: &RecordArgs,
    color: ColorMode,
    divides_peaks: bool,
) -> Result<RecordedRun> {
    let program = &args.command[0];
    let found = find_program(program);
    let mut preloads = true;
    if let Some(path) = &found {
        preloads = program::check_preloading(program, path)?;
    }
    program::check_user_preloads()?;
    let library = preload::library_for_children()?;
    let used_for = match (args.perl_values, args.fork_audit) {
        (true, _) => Some(ModuleUse::Values),
        (false, true) => Some(ModuleUse::Audit),
        (false, false) => None,
    };
    if let (Some(used_for), Some(path), true) =
        (used_for, &found, args.frames != FrameSelection::Native)
    {
        perl_offer::offer(path, used_for, args.perl_install)?;
    }
    if args.perl_values {
        check_perl_module(args.frames)?;
    }
    let mode = args.file_mode.mode()?;
    let names = profile_names(args.output.as_deref(), program)?;
    let settings = RecordingSettings {
        command: args.command.clone(),
        program_file: found.clone(),
        preloads,
        library,
        perl_option: perl_option(args.frames),
        names,
        file_mode: mode.0,
        divides_peaks,
        is_exact: args.is_exact(),
        period: args.period(),
        interval: args.interval,
        on_growth: args.on_growth,
        on_peak: args.on_peak,
        on_signal: args.on_signal,
        follows_children: args.follow_children == YesOrNo::Yes,
        keeps_small_children: args.keep_small,
        counts_mappings: args.mmap,
        allocators: args.allocators,
        by_thread: args.threads,
        audits_forks: args.fork_audit,
        frames: args.frames.name(),
        perl_evals: args.perl_evals.name(),
        traces_perl_values: args.perl_values,
        records_python_objects: args.python_objects.map(|objects| objects == YesOrNo::Yes),
        wrappers: args.wrappers.clone(),
        keeps_command_line: args.command_line,
        symbolizes: !args.no_symbolize,
        lines: line_options(args, mode)?,
        view: args.live.then(|| view_options(args, color)),
        log: log::open_file(&args.log, mode, args.output.as_deref())?,
    };
    let printer = Arc::new(RecordPrinter::new(args));
    let recording = Recording::prepare(settings, printer).map_err(start_error)?;
    let outcome = match recording.run()? {
        RecordingEnd::Ended(outcome) => outcome,
        RecordingEnd::NotStarted(error) => {
            let (mut text, code) =
                program::explain_start_failure(program, found.as_deref(), &error);
            let is_size = |text: &OsStr| text.to_str().is_some_and(|t| size(t).is_ok());
            if args.follow_lines.is_some() && is_size(program) {
                text += &format!("; write --follow-lines={} as one word", program.display());
            }
            messages::error(&anyhow::anyhow!(text));
            return Ok(RecordedRun {
                profile: None,
                profiles: 0,
                unprofiled: None,
                code,
                by_key: false,
            });
        }
    };
    let has_all = outcome::report(&outcome, args);
    let (code, by_key) = (outcome.ended.code, outcome.ended.by_key);
    let profiles = outcome.profiles.len();
    let main = outcome.main.map(|main| &outcome.profiles[main]);
    let largest = outcome::most_resident(&outcome.profiles).or(main);
    let largest = largest.map(|largest| largest.written.path.clone());
    let unprofiled = outcome.largest_without_profile();
    drop(outcome);
    Ok(RecordedRun {
        profile: largest,
        profiles,
        unprofiled,
        code: match (code, has_all) {
            (0, false) => 2,
            (code, _) => code,
        },
        by_key,
    })
}

/// Returns the names of the profiles that a recording of `program` writes to `output`.
fn profile_names(output: Option<&Path>, program: &OsStr) -> Result<ProfileNamePatterns> {
    if output.is_some_and(|output| output.as_os_str() == "-") {
        bail!(
            "-o -: a recording is written to files, not to standard output; give a name that ends \
             in .pb.gz, or a folder"
        );
    }
    ProfileNamePatterns::new(output, program)
}

/// Returns the option for `PERL5OPT` that loads the module for Perl, if the module is wanted and
/// was built.
fn perl_option(frames: FrameSelection) -> Option<String> {
    match frames {
        FrameSelection::Native => None,
        FrameSelection::Script | FrameSelection::Both => perl_module::options(),
    }
}

/// Returns the options for following growing lines, or `None` without `--follow-lines`. Opens the
/// output of `--follow-output`.
fn line_options(args: &RecordArgs, mode: FileMode) -> Result<Option<LineFollowOptions>> {
    let output = args.follow_output.as_deref();
    let output = output
        .map(|path| line_output::open(path, mode))
        .transpose()?;
    Ok(args.follow_lines.map(|least| LineFollowOptions {
        least,
        symbolizes: !args.no_symbolize,
        output,
    }))
}

/// Returns the options of the view that shows the program.
fn view_options(args: &RecordArgs, color: ColorMode) -> LiveViewOptions {
    LiveViewOptions {
        interval: args.interval,
        has_terminal: [is_tty(io::stdout()), is_tty(io::stderr())],
        style: screen_style(color),
        actions: VIEW_ACTIONS,
        defer_messages: messages::defer_messages,
    }
}

/// Adds the name of the option to an error that it caused.
fn start_error(error: anyhow::Error) -> anyhow::Error {
    match error.downcast::<RecordingStartError>() {
        Ok(RecordingStartError::NoLineThread(error)) => {
            anyhow::Error::from(error).context("cannot start a thread for --follow-lines")
        }
        Ok(error) => error.into(),
        Err(error) => error,
    }
}

/// Fails if Perl's values certainly can't be traced. Runs before the program starts.
fn check_perl_module(frames: FrameSelection) -> Result<()> {
    if frames == FrameSelection::Native {
        bail!("--perl-values: values have Perl's frames, which --frames native leaves out");
    }
    if perl_module::options().is_none() {
        bail!(
            "--perl-values: the Perl module that traces values was not built for any perl; run \
             'heapprof setup perl-install' first (or 'heapprof setup perl-install --perl \
             PATH'), or add --perl-install"
        );
    }
    Ok(())
}
