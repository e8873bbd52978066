//! `heapprof why`: says on one screen where all of the memory of a program is, and which commands
//! answer the next question.

mod next;

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;
use std::thread;

use anyhow::{Context, Result, anyhow, bail};
use heapprof_analysis::QuestionSource;
use heapprof_inspect::{ProcessAnswer, ProgramFile, core_answer, process_answer, profile_answer};
use heapprof_live::LiveError;
use heapprof_recorder::outside::{OutsideProcess, ProcessFindError};
use heapprof_report::{MemoryAnswer, ReportFormat, UnitFormatter};

use self::next::next_commands;
use super::{proc, record, target};
use crate::args::{Cli, CliCommand, WhyArgs, parse};
use crate::context::CommandContext;
use crate::{messages, name, output, process_choice};
use heapprof_inspect::named_process;

/// What the user asks about.
enum WhyTarget {
    /// A process.
    Process(u32),
    /// A core file, by its path as the user wrote it.
    Core(String),
    /// The sum of profiles, by their names, and the command that was recorded, if it was just now.
    Profile(Vec<String>, Vec<OsString>),
}

pub(super) fn run(context: &CommandContext, args: &WhyArgs) -> Result<ExitCode> {
    UnitFormatter::new("bytes", args.report.unit.as_deref())?;
    if !args.command.is_empty() {
        return run_command(context, args);
    }
    let target = match &args.target {
        Some(target) => find(context, target)?,
        None => match context.sources.or_newest(&[])? {
            one if one.len() == 1 => find(context, &one[0])?,
            several => WhyTarget::Profile(several, Vec::new()),
        },
    };
    let is_process = matches!(target, WhyTarget::Process(_));
    if args.time.is_some() && !is_process {
        bail!("--for: works only for a running process");
    }
    if args.exe.is_some() && !matches!(target, WhyTarget::Core(_)) {
        bail!("--exe: is for core files; for a process, heapprof finds the program itself");
    }
    let answer = match &target {
        WhyTarget::Process(pid) => {
            let first = ask_process(*pid)?;
            match args.time {
                None => first.answer,
                Some(time) => {
                    thread::sleep(time);
                    let mut second = ask_process(*pid)?;
                    if second.program != first.program {
                        bail!("process {pid}: executed another program between the two readings");
                    }
                    let span = second.moment.duration_since(first.moment);
                    second.answer.add_growth(&first.answer, span);
                    second.answer
                }
            }
        }
        WhyTarget::Core(path) => {
            let program = args.exe.as_deref();
            let found = core_answer(&name::path(path), program);
            found.map_err(|error| target::with_advice(&format!("core:{path}"), error))?
        }
        WhyTarget::Profile(names, _) => ask_profile(context, names)?,
    };
    print(context, args, &target, &answer)?;
    Ok(ExitCode::SUCCESS)
}

/// Records a command, and answers for the moment of its peak.
fn run_command(context: &CommandContext, args: &WhyArgs) -> Result<ExitCode> {
    if args.exe.is_some() {
        bail!("--exe: is for core files; for a command, heapprof finds the program itself");
    }
    let report = &args.report;
    if report.format != ReportFormat::Text && report.output.file().is_none() {
        bail!("--format: the command also writes to standard output; give a file with -o");
    }
    let words = ["heapprof", "record", "--quiet", "--"].map(OsString::from);
    let words = words.into_iter().chain(args.command.iter().cloned());
    let words: Vec<OsString> = words.collect();
    let Cli {
        command: CliCommand::Record(recorded),
        ..
    } = parse(&words)?
    else {
        bail!("{}: cannot be recorded", args.command[0].display());
    };
    if let Some(file) = report.output.file() {
        output::must_be_writable(file)?;
    }
    let run = record::record(&recorded, context.color, true)?;
    if let Some(profile) = &run.profile {
        let here = std::env::current_dir().unwrap_or_default();
        let profile = profile.strip_prefix(&here).unwrap_or(profile);
        let profile = vec![name::encode_name(profile.as_os_str())];
        let mut answer = ask_profile(context, &profile)?;
        if let Some(other) = &run.unprofiled
            && other.bytes / 2 > answer.total
        {
            answer.notes.push(format!(
                "{} had {} resident and has no profile: hardly any of that came from malloc, or \
                 it could not be recorded.",
                other.name,
                record::bytes(i64::try_from(other.bytes).unwrap_or(i64::MAX))
            ));
        } else if run.profiles > 1 {
            answer.notes.push(format!(
                "{} processes were recorded; this one had the most memory.",
                run.profiles
            ));
        }
        // The command's exit code stands, whoever reads the answer.
        let target = WhyTarget::Profile(profile, args.command.clone());
        match print(context, args, &target, &answer) {
            Err(error) if !output::is_broken_pipe(&error) => {
                messages::error(&error);
                if run.is_success() {
                    return Ok(ExitCode::from(2));
                }
            }
            _ => {}
        }
    }
    Ok(run.end())
}

fn print(
    context: &CommandContext,
    args: &WhyArgs,
    target: &WhyTarget,
    answer: &MemoryAnswer,
) -> Result<()> {
    let file = args.report.output.file();
    let style = proc::style(context, &args.report);
    if matches!(style.format, ReportFormat::Csv | ReportFormat::Markdown) {
        // A table has no room for notes.
        answer.notes.iter().for_each(|note| messages::note(note));
    }
    let next = next_commands(target, answer);
    output::text(
        file,
        &heapprof_report::why(answer, &next, args.all, &style)?,
    )
}

/// Finds what the user asks about: a process by its number, a file, a stored profile, or one of the
/// user's own processes by its name, in this order.
fn find(context: &CommandContext, target: &str) -> Result<WhyTarget> {
    if let Some(path) = target.strip_prefix("core:") {
        return Ok(WhyTarget::Core(path.to_string()));
    }
    let path = name::path(target);
    let is_file = path.exists();
    if target.starts_with("pid:") || !is_file && target.parse::<u32>().is_ok() {
        return Ok(WhyTarget::Process(process_choice::find(target)?));
    }
    match ProgramFile::find(&path) {
        Some(ProgramFile::Core) => return Ok(WhyTarget::Core(target.to_string())),
        Some(ProgramFile::Program | ProgramFile::Script) => {
            return process_choice::running(target, &path).map(WhyTarget::Process);
        }
        None => {}
    }
    if context.sources.is_known(target) {
        return Ok(WhyTarget::Profile(vec![target.to_string()], Vec::new()));
    }
    match named_process::own(target)?.as_slice() {
        [] => bail!("{target}: is not a file, a stored profile or one of your processes"),
        pids => process_choice::choose(target, pids).map(WhyTarget::Process),
    }
}

/// Asks all instruments about a process.
fn ask_process(pid: u32) -> Result<ProcessAnswer> {
    let mut notes = Vec::new();
    let profile = match OutsideProcess::find(&pid.to_string()) {
        Ok(process) if process.has_stopped_recording() => {
            notes.push(format!(
                "its recording has ended; heapprof top pid:{pid} shows what it had by then"
            ));
            None
        }
        Ok(mut process) => match process.read() {
            Ok(profile) => Some(profile),
            Err(error) => {
                notes.push(format!("what is recorded cannot be read: {error:#}"));
                None
            }
        },
        Err(ProcessFindError::Unreadable { error, .. }) => {
            let is_expected = matches!(error, LiveError::NotRecorded | LiveError::NotAllowed);
            if !is_expected {
                notes.push(format!("what is recorded cannot be read: {error}"));
            }
            None
        }
        Err(_) => None,
    };
    let mut found = process_answer(pid, profile).map_err(|error| {
        let is_gone =
            error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH);
        match (is_gone, named_process::is_there(pid)) {
            (true, false) => anyhow!("process {pid}: has ended"),
            (true, true) => anyhow!(
                "process {pid}: has no memory of its own: it is a kernel thread or a zombie \
                 (ended, but not yet waited for by its parent)"
            ),
            (false, _) => anyhow::Error::from(error).context(format!("process {pid}")),
        }
    })?;
    if let Some(unseen) = &found.unseen {
        notes.push(format!("What is inside its memory is not known: {unseen}."));
    }
    found.answer.notes.extend(notes);
    Ok(found)
}

/// Asks about the sum of profiles.
fn ask_profile(context: &CommandContext, names: &[String]) -> Result<MemoryAnswer> {
    let source: QuestionSource = context.sources.read(names)?;
    profile_answer(source).with_context(|| names.join(" + "))
}
