//! `heapprof attach` and `heapprof attach --stop`: records a program that already runs.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use heapprof_attach::{AttachError, AttachOptions, AttachOutcome, AttachTarget, DetachOutcome};
use heapprof_files::{FileOwner, check_writable};
use heapprof_live::{LiveProcess, LogSource, SharedLedger};
use heapprof_process::{is_there, status};
use heapprof_profile::{EarlyEnds, Profile, recording_texts};
use heapprof_recorder::log::EventLogWriter;
use heapprof_recorder::outside::{
    OutsideProcess, add_attachment_comments, add_command_line_comment, add_script_comment,
    command_line, describe_allocators,
};
use heapprof_recorder::rights::RightsLedger;
use heapprof_report::{early_ends, unseen_frees};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::dump::{refuse_terminal, write};
use super::record::bytes;
use crate::args::AttachArgs;
use crate::{log, messages, outside, preload, process_choice};

/// Time between two checks whether the recording is over.
const END_CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Time between two readings of a program without a ledger file. The readings ensure that a recent
/// profile exists when the program ends.
const READ_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of attempts to detach while no thread of the program is at a safe place.
const MAX_DETACH_ATTEMPTS: u32 = 3;

/// Why a recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AttachEndReason {
    /// The time limit of the command is over.
    TimeLimit,
    /// The user pressed Ctrl-C, or another signal ended the recording.
    Interrupted,
    /// The program has ended.
    ProgramEnded,
    /// The process has become another program.
    ProgramReplaced,
    /// Another process has detached from the program.
    DetachedElsewhere,
}

pub(super) fn run(args: &AttachArgs) -> Result<()> {
    let pid = find_only_process(&args.processes, "attach")?;
    let of_process = || format!("process {pid}");
    let library = preload::bytes()?;
    // An output that can't be written is reported before anything is done.
    let mode = args.file_mode.mode()?;
    let output = args.output.as_deref();
    refuse_terminal(output)?;
    match output {
        Some(path) if path == "-" => {}
        path => check_writable(path.unwrap_or(Path::new("x")))?,
    }
    let target = AttachTarget::open(pid, library).with_context(of_process)?;
    let rights = RightsLedger::default();
    rights.open(pid, FileOwner::us());
    let wish = AttachOptions {
        period: (!args.is_exact()).then_some(args.period),
        frames: args.frames.number(),
        by_thread: args.threads,
        logs: args.log.log.is_some(),
        allocators: args.allocators,
        trusts_filter: args.trust_filter,
    };
    // With a handler, a write beyond the limit of file sizes is an error. Without a handler, the
    // signal would end heapprof, and the program would stay attached.
    signal_hook::flag::register(libc::SIGXFSZ, Arc::default()).context("signals")?;
    let log = log::open(&args.log, mode, output)?;
    let attached = target.attach(library, wish).with_context(of_process)?;
    // Up to here these signals end heapprof, which leaves the program whole.
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("signals")?;
    let mut recording = AttachedRecording::new(pid, rights, attached);
    recording.tells_command_line = args.command_line;
    recording.begin(log)?;
    recording.report_start(args);
    let over = recording.wait(args.time, &mut signals);
    let profile = recording.end(over)?;
    let lines = describe_coverage(&profile, args.is_exact());
    let written = write(&profile, pid, output, mode);
    // The log ends after the profile is written: its reader may not read on, and the profile does
    // not wait for that.
    if let Some(log) = recording.log.take() {
        let has_exited = matches!(
            over,
            AttachEndReason::ProgramEnded | AttachEndReason::ProgramReplaced
        );
        let end = log.end(has_exited);
        if let Some(path) = &args.log.log {
            messages::note(&log::describe(&end, &path.display().to_string()));
        }
    }
    recording.say(over, written?);
    for text in lines {
        messages::note(&format!("process {pid}: {text}"));
    }
    Ok(())
}

/// Returns the only named process. Fails if several are named, as by `attach $(pgrep x)`.
fn find_only_process(processes: &[String], command: &str) -> Result<u32> {
    match processes {
        [one] => process_choice::find(one),
        several => bail!(
            "{command} takes one process, but {} were given: use heapprof {command} {} for the \
             first, and another heapprof for the next",
            several.len(),
            several.first().map_or("PROCESS", String::as_str)
        ),
    }
}

pub(super) fn detach(processes: &[String]) -> Result<()> {
    let pid = find_only_process(processes, "attach --stop")?;
    let restored = leave(pid)
        .with_context(|| format!("process {pid}"))?
        .restored;
    messages::note(&format!(
        "process {pid} is no longer recorded; {restored} of its functions and references to \
         functions are restored"
    ));
    Ok(())
}

/// Detaches from a program. Retries while no thread of the program is at a safe place.
fn leave(pid: u32) -> Result<DetachOutcome, AttachError> {
    let library = preload::bytes().unwrap_or_default();
    let mut tried = 0;
    loop {
        tried += 1;
        match AttachTarget::open(pid, library)?.detach() {
            Err(AttachError::NoSafeThread(_)) if tried < MAX_DETACH_ATTEMPTS => {}
            done => return done,
        }
    }
}

/// The state of a recording to which heapprof attached a running program.
struct AttachedRecording {
    pid: u32,
    attached: AttachOutcome,
    ledger_process: Option<OutsideProcess>,
    began: Instant,
    /// The profile that was read last, if the program has no ledger file.
    last: Option<Profile>,
    log: Option<EventLogWriter>,
    rights: RightsLedger,
    /// The process's command line at the start, because it can't be read after the process has
    /// ended.
    command_line: Vec<u8>,
    /// Whether the profile includes the whole command line.
    tells_command_line: bool,
}

impl AttachedRecording {
    fn new(pid: u32, rights: RightsLedger, mut attached: AttachOutcome) -> Self {
        let kept = attached
            .shared_ledger
            .take()
            .and_then(|file| SharedLedger::new(file).ok());
        let kept = kept.filter(SharedLedger::is_sealed);
        Self {
            pid,
            attached,
            ledger_process: kept
                .map(|kept| OutsideProcess::from_ledger_file(kept, pid, rights.clone())),
            began: Instant::now(),
            last: None,
            log: None,
            rights,
            command_line: command_line(pid),
            tells_command_line: false,
        }
    }

    /// Begins to write the log, if there is one. Detaches from the program if that fails.
    fn begin(&mut self, log: Option<EventLogWriter>) -> Result<()> {
        let Some(mut log) = log else {
            return Ok(());
        };
        let ledger_process = self.ledger_process.as_ref();
        let logged = match ledger_process.and_then(OutsideProcess::ledger_file) {
            Some(kept) => kept.try_clone().map(LogSource::SharedLedger),
            // The program was attached to before, or can have no ledger file.
            None => {
                LiveProcess::open(self.pid).map(|process| LogSource::Process(Box::new(process)))
            }
        };
        let logged = logged.map_err(anyhow::Error::from);
        let begun = logged.and_then(|logged| log.begin(logged, self.pid, self.rights.clone()));
        let begun = begun.inspect_err(|_| drop(leave(self.pid)));
        begun.with_context(|| format!("process {}: --log", self.pid))?;
        self.log = Some(log);
        Ok(())
    }

    /// Prints that the recording has begun.
    fn report_start(&self, args: &AttachArgs) {
        let [name] = status(self.pid, ["Name:"]);
        if let Some(owner) = self.attached.left_by {
            messages::note(&format!(
                "process {owner} was attached to it and ended without detaching; what it recorded \
                 is gone"
            ));
        }
        if let Some(reason) = &self.attached.slots_reason {
            messages::note(&format!(
                "{reason}, so calls through pointers that it has copied before are not recorded"
            ));
        }
        let how = match args.is_exact() {
            true => "every allocation".to_string(),
            false => format!("a sample every {}", bytes(args.period as i64)),
        };
        let until = match args.time {
            Some(time) => format!("for {} s", time.as_secs_f64()),
            None => "until Ctrl-C".to_string(),
        };
        let times = [self.attached.suspended_for, self.attached.stopped_for];
        let [one, all] = times.map(|time| time.as_secs_f64() * 1e3);
        messages::note(&format!(
            "{} ({pid}): recording {how} {until}; it was stopped for {all:.1} ms, and one thread \
             for {one:.1} ms more; read it as pid:{pid}",
            heapprof_text::printable(&name),
            pid = self.pid,
        ));
    }

    /// Waits for the end of the recording, and returns the reason.
    fn wait(&mut self, time: Option<Duration>, signals: &mut Signals) -> AttachEndReason {
        let mut read = Instant::now();
        let mut ledger = LiveProcess::open(self.pid);
        loop {
            if signals.pending().next().is_some() {
                return AttachEndReason::Interrupted;
            }
            if time.is_some_and(|time| self.began.elapsed() >= time) {
                return AttachEndReason::TimeLimit;
            }
            if !is_there(self.pid) {
                return AttachEndReason::ProgramEnded;
            }
            match ledger.as_ref().map(LiveProcess::summary) {
                Ok(Ok(found)) if !found.is_running => return AttachEndReason::DetachedElsewhere,
                // The process has another memory: it became another program, or it ends.
                Ok(Err(_)) | Err(heapprof_live::LiveError::NotRecorded) => {
                    // A process that ends has no executable any more.
                    let executable = format!("/proc/{}/exe", self.pid);
                    let is_there = std::fs::read_link(executable).is_ok();
                    return if is_there {
                        AttachEndReason::ProgramReplaced
                    } else {
                        AttachEndReason::ProgramEnded
                    };
                }
                // The recording goes on.
                Ok(Ok(_)) => {}
                // A process has no memory for a moment while it becomes another program.
                Err(_) => ledger = LiveProcess::open(self.pid),
            }
            if self.ledger_process.is_none()
                && (self.last.is_none() || read.elapsed() >= READ_INTERVAL)
            {
                let found = self.read().ok();
                self.last = found.or(self.last.take());
                read = Instant::now();
            }
            std::thread::sleep(END_CHECK_INTERVAL);
        }
    }

    /// Reads a profile of the current moment.
    fn read(&self) -> Result<Profile> {
        outside::find(&self.pid.to_string())?.read()
    }

    /// Ends the recording, and returns its last profile. Detaches from the program, unless the
    /// program has ended or another process has already detached from it.
    fn end(&mut self, over: AttachEndReason) -> Result<Profile> {
        let read = match over {
            AttachEndReason::TimeLimit
            | AttachEndReason::Interrupted
            | AttachEndReason::DetachedElsewhere => self.read(),
            AttachEndReason::ProgramEnded | AttachEndReason::ProgramReplaced => {
                Err(anyhow::anyhow!("it has ended"))
            }
        };
        if let AttachEndReason::TimeLimit | AttachEndReason::Interrupted = over {
            match leave(self.pid) {
                Ok(outcome) => self.attached.allocators = outcome.allocators,
                Err(error) if is_there(self.pid) => messages::note(&format!(
                    "process {}: {error}; heapprof attach --stop {} tries again to detach",
                    self.pid, self.pid
                )),
                Err(_) => {}
            }
        }
        let read = match (read, &mut self.ledger_process) {
            (Ok(profile), _) => Ok(profile),
            (Err(_), Some(kept)) => kept.read(),
            (Err(error), None) => self.last.take().ok_or(error),
        };
        let mut profile = read.with_context(|| format!("process {}", self.pid))?;
        if matches!(
            over,
            AttachEndReason::ProgramEnded | AttachEndReason::ProgramReplaced
        ) && self.ledger_process.is_some()
        {
            add_script_comment(&mut profile, &self.command_line);
        }
        if self.tells_command_line {
            add_command_line_comment(&mut profile, &self.command_line);
        }
        add_attachment_comments(
            &mut profile,
            self.began.elapsed(),
            &self.attached.allocators,
        );
        Ok(profile)
    }

    /// Prints how the recording ended.
    fn say(&self, over: AttachEndReason, written: Option<String>) {
        let why = match over {
            AttachEndReason::TimeLimit | AttachEndReason::Interrupted => {
                "its recording has ended; the process continues"
            }
            AttachEndReason::ProgramEnded => "has ended",
            AttachEndReason::ProgramReplaced => "has executed another program",
            AttachEndReason::DetachedElsewhere => "another heapprof has ended its recording",
        };
        let before = match (over, &self.ledger_process) {
            (AttachEndReason::ProgramEnded | AttachEndReason::ProgramReplaced, None) => {
                "; the profile may be from up to a second before that"
            }
            _ => "",
        };
        let written = written.map_or_else(String::new, |written| format!("; {written}"));
        messages::note(&format!("process {}: {why}{before}{written}", self.pid));
    }
}

/// Describes which allocators inside files a profile has, and what it lacks, according to its
/// comments. Each text is one line.
fn describe_coverage(profile: &Profile, is_exact: bool) -> Vec<String> {
    let comments = || profile.comment.iter().map(|&text| profile.text(text));
    let column = profile.find_sample_type("alloc_space").ok();
    let allocated = column.map(|column| {
        let values = (0..profile.samples.len()).map(|i| profile.samples.values(i)[column]);
        values.fold(0, i64::saturating_add)
    });
    let ends = early_ends(&EarlyEnds::from_comments(comments()), allocated);
    let unseen = unseen_frees(recording_texts::unseen_frees(comments())).filter(|_| is_exact);
    let unseen = unseen.map(|text| format!("{text}: it frees in ways that heapprof does not see"));
    let hooked = describe_allocators(profile);
    hooked.into_iter().chain(unseen).chain(ends).collect()
}
