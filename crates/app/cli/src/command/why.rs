//! `heapprof why`: says on one screen where all of the memory of a program is, and which commands
//! answer the next question.

mod next;

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;
use std::thread;

use anyhow::{Context, Result, anyhow, bail};
use heapprof_analysis::{QuestionSource, comment, coverage};
use heapprof_inspect::{
    CORE_TYPE, UnseenMemory, core_answer, elf_type, process_answer, profile_answer,
};
use heapprof_live::LiveError;
use heapprof_profile::PEAK;
use heapprof_recorder::outside::{OutsideProcess, ProcessFindError};
use heapprof_recorder::rights::is_root;
use heapprof_report::{MemoryAnswer, ReportFormat, ReportStyle, UnitFormatter};

use self::next::next_commands;
use super::{proc, record, target};
use crate::args::{Cli, CliCommand, WhyArgs, parse};
use crate::context::CommandContext;
use crate::{messages, name, output};
use heapprof_inspect::named_process;

/// What the user asks about.
enum WhyTarget {
    /// A process.
    Process(u32),
    /// A core file, by its path as the user wrote it.
    Core(String),
    /// A profile, by its name.
    Profile(String),
}

pub(super) fn run(context: &CommandContext, args: &WhyArgs) -> Result<ExitCode> {
    UnitFormatter::new("bytes", args.report.unit.as_deref())?;
    if !args.command.is_empty() {
        return run_command(context, args);
    }
    let target = match &args.target {
        Some(target) => find(context, target)?,
        None => WhyTarget::Profile(context.sources.or_newest(&[])?.concat()),
    };
    let is_process = matches!(target, WhyTarget::Process(_));
    if args.time.is_some() && !is_process {
        bail!("--for: only a process can be looked at twice");
    }
    if args.exe.is_some() && !matches!(target, WhyTarget::Core(_)) {
        bail!("--exe: is for core files; a process says itself what it runs");
    }
    let answer = match &target {
        WhyTarget::Process(pid) => {
            let first = ask_process(*pid)?;
            match args.time {
                None => first,
                Some(time) => {
                    thread::sleep(time);
                    let mut second = ask_process(*pid)?;
                    second.add_growth(&first, time);
                    second
                }
            }
        }
        WhyTarget::Core(path) => {
            let program = args.exe.as_deref();
            let found = core_answer(&name::path(path), program);
            found.map_err(|error| target::with_advice(&format!("core:{path}"), error))?
        }
        WhyTarget::Profile(name) => ask_profile(context, name, None)?,
    };
    print(context, args, &target, &answer)?;
    Ok(ExitCode::SUCCESS)
}

/// Records a command, and answers for the moment of its peak.
fn run_command(context: &CommandContext, args: &WhyArgs) -> Result<ExitCode> {
    if args.exe.is_some() {
        bail!("--exe: is for core files; a command says itself what it runs");
    }
    let words = ["heapprof", "record", "--quiet", "--"].map(OsString::from);
    let words: Vec<OsString> = words
        .into_iter()
        .chain(args.command.iter().cloned())
        .collect();
    let Cli {
        command: CliCommand::Record(recorded),
        ..
    } = parse(&words)?
    else {
        bail!("{}: cannot be recorded", args.command[0].display());
    };
    let (code, profile) = record::record(&recorded, context.color)?;
    let Some(profile) = profile else {
        return Ok(code);
    };
    let here = std::env::current_dir().unwrap_or_default();
    let profile = name::encode_name(profile.strip_prefix(&here).unwrap_or(&profile).as_os_str());
    let answer = ask_profile(context, &profile, Some(PEAK))?;
    let target = WhyTarget::Profile(profile);
    print(context, args, &target, &answer)?;
    Ok(code)
}

fn print(
    context: &CommandContext,
    args: &WhyArgs,
    target: &WhyTarget,
    answer: &MemoryAnswer,
) -> Result<()> {
    let file = args.report.output.file();
    let style = ReportStyle {
        width: output::is_terminal(file).then(output::console_columns),
        ..proc::style(context, &args.report)
    };
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
        return Ok(WhyTarget::Process(named_process::find(target)?));
    }
    if elf_type(&path) == Some(CORE_TYPE) {
        return Ok(WhyTarget::Core(target.to_string()));
    }
    let is_program = elf_type(&path).is_some();
    if !is_program && context.sources.is_known(target) {
        return Ok(WhyTarget::Profile(target.to_string()));
    }
    let base = target.rsplit('/').next().unwrap_or(target);
    let found = named_process::find_own(base);
    found
        .map(WhyTarget::Process)
        .map_err(|error| match is_program {
            true => anyhow!("{target}: is a program; to record it: heapprof why -- {target}"),
            false => anyhow!("{error}; nor is there a file or a stored profile of this name"),
        })
}

/// Asks all instruments about a process.
fn ask_process(pid: u32) -> Result<MemoryAnswer> {
    let mut notes = Vec::new();
    let profile = match OutsideProcess::find(&pid.to_string()) {
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
    let found = process_answer(pid, profile).map_err(|error| {
        let why = error.downcast_ref::<io::Error>();
        let is_gone = why.is_some_and(|why| {
            why.kind() == io::ErrorKind::NotFound || why.raw_os_error() == Some(libc::ESRCH)
        });
        match is_gone {
            true => anyhow!("process {pid}: has ended"),
            false => error.context(format!("process {pid}")),
        }
    })?;
    let mut answer = found.answer;
    notes.extend(found.unseen.map(|unseen| unseen_text(&unseen)));
    answer.notes.extend(notes);
    Ok(answer)
}

/// Says why a process could not be looked into.
fn unseen_text(unseen: &UnseenMemory) -> String {
    let why = match unseen {
        UnseenMemory::NotAllowed if is_root() => {
            format!(
                "the kernel does not allow it{}",
                heapprof_process::REFUSED_TO_ROOT
            )
        }
        UnseenMemory::NotAllowed => "the kernel does not allow it; ask as its user or as root \
                                     (where kernel.yama.ptrace_scope is not 0, as root)"
            .to_string(),
        UnseenMemory::TooLarge(_) => {
            "a copy of its memory would take most of the memory that is free".to_string()
        }
        UnseenMemory::Other(error) => error.to_string(),
    };
    format!("not looked into: {why}")
}

/// Asks about a profile, by its default values or by those of `sample_type`.
fn ask_profile(
    context: &CommandContext,
    name: &str,
    sample_type: Option<&str>,
) -> Result<MemoryAnswer> {
    let source: QuestionSource = context.sources.read(&[name.to_string()])?;
    let comments = source.profile.comment.iter();
    let comments: Vec<String> = comments
        .map(|&text| source.profile.text(text).to_string())
        .collect();
    let [_, peak] = coverage::resident(&comments, [None, None]);
    let peak = peak.and_then(|peak| u64::try_from(peak.program_bytes()).ok());
    let program = comment::program_and_title(&comments);
    let mut answer = profile_answer(source, sample_type, peak).with_context(|| name.to_string())?;
    if let Some(program) = program {
        answer.name = program;
    }
    Ok(answer)
}
