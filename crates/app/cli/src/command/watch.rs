//! `heapprof watch`: reads the memory of processes from outside over time, and stores it in the
//! database.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use heapprof_abi::environment as variable;
use heapprof_analysis::store::{ProfileStore, WatchStart};
use heapprof_process::clock;
use heapprof_recorder::sockets::{ListeningSocket, SocketKind};
use heapprof_recorder::{ProgramExit, inherited_state, outside, run_unrecorded};
use heapprof_report::ReportStyle;
use heapprof_stores::make_database;
use heapprof_watch::{ProcessWatcher, StartedCommands, WatchRule, receive_marks};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::emulate_default_handler;

use super::heap_run::split_words;
use super::proc;
use crate::args::WatchArgs;
use crate::args::size::size;
use crate::context::CommandContext;
use crate::{messages, output, process_choice};

/// Longest wait between two checks whether the watch is over. Most events that end the watch also
/// wake the thread.
const MAX_WAIT_INTERVAL: Duration = Duration::from_millis(200);
/// Time between the start of a program and its first scan.
const START_TIMEOUT: Duration = Duration::from_millis(2);
/// How often the database is written.
const STORE_INTERVAL: Duration = Duration::from_secs(1);

/// An event of the program that the watch runs.
enum ProgramEvent {
    Began(u32),
    Ended(ProgramExit),
}

/// The outcome of a watch that is over.
struct WatchOutcome {
    /// The watch's name in the database; `None` if the program could not be started.
    name: Option<String>,
    code: ExitCode,
    /// Whether Ctrl-C ended the program.
    by_key: bool,
}

/// The data of the watching thread.
struct WatchTask<'a> {
    args: &'a WatchArgs,
    db: &'a Path,
    listening: Option<ListeningSocket>,
    /// The event that wakes the watching thread.
    wake: Arc<OwnedFd>,
    /// A descriptor that reports the end of the watched process; `None` for a program that the
    /// watch runs.
    process: Option<OwnedFd>,
    until: Option<(WatchRule, Vec<String>)>,
    start: WatchStart,
}

pub(super) fn run(context: &CommandContext, args: &WatchArgs) -> Result<ExitCode> {
    let until = until(args)?;
    let style = proc::style(context, &args.report);
    if let Some(name) = &args.show {
        show(
            context,
            args,
            Some(name.as_str()).filter(|name| !name.is_empty()),
            &style,
        )?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(file) = args.report.output.file() {
        output::must_be_writable(file)?;
    }
    let db = context.sources.db().to_path_buf();
    let pid = args
        .process
        .as_deref()
        .map(process_choice::find)
        .transpose()?;
    make_database(&db, args.file_mode.mode()?.0)?;
    let listening = ListeningSocket::start(SocketKind::WATCH);
    let listening = listening
        .map_err(|error| messages::note(&format!("marks cannot be set: {error}")))
        .ok();
    let socket = listening.as_ref().map(|listening| listening.path.clone());
    let watching = WatchTask {
        args,
        db: &db,
        listening,
        wake: Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?),
        process: pid.and_then(open_end_fd),
        until,
        start: start(args, pid),
    };
    let is_over = AtomicBool::new(false);
    let watched = match pid {
        Some(pid) => {
            let ending = [SIGINT, SIGTERM, SIGHUP];
            let ending = ending
                .into_iter()
                .filter(|&signal| !inherited_state::is_ignored(signal));
            let asked = Arc::new(AtomicBool::new(false));
            for signal in ending {
                signal_hook::flag::register(signal, Arc::clone(&asked)).context("signals")?;
            }
            let (news, receiver) = channel();
            let _ = news.send(ProgramEvent::Began(pid));
            let ready = channel().0;
            let name = watching.watch(&receiver, &ready, &asked)?;
            WatchOutcome {
                name: Some(name),
                code: ExitCode::SUCCESS,
                by_key: false,
            }
        }
        None => watching.run(socket.as_deref(), &is_over)?,
    };
    let WatchOutcome { name, code, by_key } = watched;
    if let Some(name) = name.filter(|_| !args.quiet) {
        match show(context, args, Some(&name), &style) {
            // The exit code of a failed program comes first, so an error of the report is only
            // printed.
            Err(error) if code != ExitCode::SUCCESS => messages::error(&error),
            shown => shown?,
        }
    }
    if by_key {
        // As with `record`, a shell then ends its loop, too.
        let _ = emulate_default_handler(SIGINT);
    }
    Ok(code)
}

/// Reports a watch from the database: the watch `name`, or else the last watch.
fn show(
    context: &CommandContext,
    args: &WatchArgs,
    name: Option<&str>,
    style: &ReportStyle,
) -> Result<()> {
    let db = context.sources.db();
    let named = || db.display().to_string();
    let store = ProfileStore::open(db).with_context(named)?;
    let watch = store.watch(name).with_context(named)?;
    let watch = watch.with_context(|| match name {
        Some(name) => format!("{}: has no watch {name:?}", db.display()),
        None => format!("{}: has no watch", db.display()),
    })?;
    output::text(
        args.report.output.file(),
        &heapprof_report::watch(&watch, style)?,
    )
}

/// Opens a descriptor that reports the end of a process, if the kernel has such descriptors.
fn open_end_fd(pid: u32) -> Option<OwnedFd> {
    let pid = Pid::from_raw(pid.cast_signed())?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

/// Parses the rule of `--until` and the command of `--then`, before anything begins.
fn until(args: &WatchArgs) -> Result<Option<(WatchRule, Vec<String>)>> {
    let (Some(rule), Some(then)) = (&args.until, &args.then) else {
        return Ok(None);
    };
    let rule = WatchRule::parse(rule, size).map_err(|why| anyhow!("--until {rule:?}: {why}"))?;
    let words = split_words(then).context("--then")?;
    Ok(Some((rule, words)))
}

fn start(args: &WatchArgs, pid: Option<u32>) -> WatchStart {
    // A command line may hold passwords, so nothing of it is kept but the name of a script.
    let (own, called) = match pid {
        Some(pid) => {
            let name = heapprof_process::comm(pid);
            let called = outside::process_title(&name, pid);
            (name, called)
        }
        None => {
            let program = args
                .command
                .first()
                .map(Path::new)
                .and_then(Path::file_name);
            let name = program.unwrap_or_default().to_string_lossy().into_owned();
            let called =
                outside::title_from_command_line(&name, &outside::join_command_line(&args.command));
            (name, called)
        }
    };
    let command = called.unwrap_or_else(|| own.clone());
    let host = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    WatchStart {
        name: args.name.clone().unwrap_or(own),
        host,
        command,
        interval_ms: i64::try_from(args.interval.as_millis()).unwrap_or(i64::MAX),
        began_ms: clock::millis(),
    }
}

impl WatchTask<'_> {
    /// Runs the program, and watches it in another thread to its end.
    fn run(self, socket: Option<&Path>, is_over: &AtomicBool) -> Result<WatchOutcome> {
        let words = self.args.command.as_slice();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        match socket {
            Some(path) => command.env(variable::WATCH.name, path),
            None => command.env_remove(variable::WATCH.name),
        };
        let wake = Arc::clone(&self.wake);
        let (news, receiver) = channel();
        let (ready, is_ready) = channel();
        std::thread::scope(|scope| {
            let watcher = scope.spawn(move || self.watch(&receiver, &ready, is_over));
            // A database that can't be written is noticed before the program runs.
            if is_ready.recv().is_err() {
                return match watcher.join() {
                    Ok(Err(error)) => Err(error),
                    _ => Err(anyhow!("the watch has ended")),
                };
            }
            let tell = |one| {
                let _ = news.send(one);
                let _ = rustix::io::write(&*wake, &1u64.to_ne_bytes());
            };
            let began = |pid| tell(ProgramEvent::Began(pid));
            let ran = run_unrecorded(&mut command, began);
            let (code, by_key) = match ran {
                Ok(ended) => {
                    let code = (ended.code, ended.by_key);
                    tell(ProgramEvent::Ended(ended));
                    code
                }
                Err(error) => {
                    is_over.store(true, Ordering::Relaxed);
                    let _ = watcher.join();
                    let code = match error.kind() {
                        std::io::ErrorKind::NotFound => 127,
                        _ => 126,
                    };
                    let name = words[0].display();
                    messages::error(&anyhow!("{name}: {error}"));
                    return Ok(WatchOutcome {
                        name: None,
                        code: ExitCode::from(code),
                        by_key: false,
                    });
                }
            };
            drop(news);
            let name = match watcher.join() {
                Ok(name) => name?,
                Err(_) => bail!("the watch has ended"),
            };
            Ok(WatchOutcome {
                name: Some(name),
                code: ExitCode::from(code),
                by_key,
            })
        })
    }

    /// Watches the processes to the end. Returns the name of the watch in the database.
    fn watch(
        mut self,
        news: &Receiver<ProgramEvent>,
        ready: &Sender<()>,
        is_over: &AtomicBool,
    ) -> Result<String> {
        let named = || self.db.display().to_string();
        let mut store = ProfileStore::open_or_create(self.db).with_context(named)?;
        let (id, name) = store.begin_watch(&self.start).with_context(named)?;
        let _ = ready.send(());
        let needs_usage = self
            .until
            .as_ref()
            .is_some_and(|(rule, _)| rule.needs_usage());
        let mut watcher =
            ProcessWatcher::new(!self.args.no_children, needs_usage, outside::process_title);
        let mut running = StartedCommands::default();
        let began = Instant::now();
        let (mut next, mut stored) = (began, began);
        // The process that is about to be watched.
        let mut coming = None;
        let mut has_begun = false;
        loop {
            // The program's end is noted after all that was seen of it.
            let mut end = None;
            while let Ok(one) = news.try_recv() {
                match one {
                    ProgramEvent::Began(pid) => {
                        // The process may still be becoming the program.
                        coming = Some(pid);
                        next = Instant::now() + START_TIMEOUT;
                    }
                    ProgramEvent::Ended(ended) => end = Some(ended),
                }
            }
            // Until the first scan, marks wait: the program may set one before it is watched.
            if coming.is_none() {
                self.take_marks(&mut watcher);
            }
            let is_late = self.args.time.is_some_and(|time| began.elapsed() >= time);
            let mut is_last = is_over.load(Ordering::Relaxed) || is_late || end.is_some();
            if self.has_ended() {
                // Processes that descend from it may go on.
                self.process = None;
                next = Instant::now();
            }
            let is_due = (has_begun || coming.is_some()) && Instant::now() >= next;
            if is_due || is_last {
                if let Some(pid) = coming.take() {
                    // A process that has ended already is not watched.
                    let _ = watcher.begin(pid, clock::millis());
                    has_begun = true;
                    self.take_marks(&mut watcher);
                }
                watcher.scan(clock::millis());
                if let Some(ended) = &end {
                    watcher.note_end(ended.process, clock::millis(), &ended.describe());
                }
                self.judge(&mut watcher, &mut running);
                let interval = self.args.interval;
                next += interval;
                // A scan that could not be done in time is left out, and not made up for.
                if next < Instant::now() {
                    next = Instant::now() + interval;
                }
            }
            running.note_ends(&mut watcher);
            is_last |= has_begun && watcher.is_empty() && self.args.process.is_some();
            if is_last {
                running.note_others(&mut watcher);
            }
            if is_last || stored.elapsed() >= STORE_INTERVAL {
                stored = Instant::now();
                let mut batch = watcher.take();
                let cost = clock::thread_time().as_micros();
                batch.cost_us = i64::try_from(cost).unwrap_or(i64::MAX);
                batch.ended_ms = is_last.then(clock::millis);
                store.add_to_watch(id, &batch).with_context(named)?;
            }
            if is_last {
                return Ok(name);
            }
            let is_near = has_begun || coming.is_some();
            self.wait(if is_near {
                next
            } else {
                Instant::now() + MAX_WAIT_INTERVAL
            });
        }
    }

    /// Receives the marks that have arrived.
    fn take_marks(&self, watcher: &mut ProcessWatcher) {
        if let Some(listening) = &self.listening {
            receive_marks(&listening.socket, |mark| {
                watcher.mark(mark, clock::millis())
            });
        }
    }

    /// Waits for the time of the next scan, for a mark, or for another event, but at most
    /// [`MAX_WAIT_INTERVAL`].
    fn wait(&self, next: Instant) {
        let left = next
            .saturating_duration_since(Instant::now())
            .min(MAX_WAIT_INTERVAL);
        let time = Timespec {
            tv_sec: 0,
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        let marks = self
            .listening
            .iter()
            .map(|listening| listening.socket.as_fd());
        let process = self.process.iter().map(AsFd::as_fd);
        let sockets = marks.chain([self.wake.as_fd()]).chain(process);
        let mut polled: Vec<PollFd<'_>> = sockets
            .map(|socket| PollFd::from_borrowed_fd(socket, PollFlags::IN))
            .collect();
        let _ = poll(&mut polled, Some(&time));
        let _ = rustix::io::read(&*self.wake, &mut [0; 8]);
    }

    /// Whether the process that is watched by its id has ended.
    fn has_ended(&self) -> bool {
        let Some(process) = &self.process else {
            return false;
        };
        let mut polled = [PollFd::from_borrowed_fd(process.as_fd(), PollFlags::IN)];
        poll(&mut polled, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// Runs the command of `--then` when the rule holds for the first time.
    fn judge(&mut self, watcher: &mut ProcessWatcher, running: &mut StartedCommands) {
        let Some((rule, _)) = &self.until else {
            return;
        };
        let Some((pid, value)) = watcher.holds(rule) else {
            return;
        };
        let Some((rule, words)) = self.until.take() else {
            return;
        };
        let value = match rule.is_of_bytes() {
            true => super::record::bytes(i64::try_from(value).unwrap_or(i64::MAX)),
            false => value.to_string(),
        };
        let rule = self.args.until.as_deref().unwrap_or_default();
        watcher.note(
            Some(pid),
            clock::millis(),
            "until",
            format!("{rule}: {value}"),
        );
        let words: Vec<String> = words
            .iter()
            .map(|word| word.replace("{pid}", &pid.to_string()))
            .collect();
        if let Err(error) = running.start(&words, pid, watcher) {
            messages::note(&format!("--then {}: {error}", words.join(" ")));
        }
    }
}
