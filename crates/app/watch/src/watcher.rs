//! Scans the watched processes: finds new ones, reads their memory, and notes how they end.

use std::collections::HashSet;
use std::io;
use std::path::PathBuf;

use heapprof_analysis::store::{WatchBatch, WatchEvent, WatchFigures, WatchMoment, WatchProcess};
use heapprof_process::{MemoryUsage, ProcessIdentity, StatmSizes, StatusCounters, children};

use crate::mark::{ACCEPTED_ANSWER, WatchMark};
use crate::rule::{ProcessReading, WatchRule};

/// Number of scans from one full scan of a process to its next one. A full scan reads the sums in
/// `smaps_rollup`, which cost time for each page of the process. So only every tenth scan of a
/// process is full, and processes have their full scans at different times.
const FULL_SCAN_PERIOD: i64 = 10;
/// Maximum number of processes that are watched at a time.
const MAX_PROCESSES: usize = 4096;

/// A process that is watched.
struct TrackedProcess {
    about: WatchProcess,
    pid: u32,
    /// When the process began, in the machine's ticks. It distinguishes the process from a later
    /// one with its process id.
    began: u64,
    /// Where the process's stack begins. After an exec it begins elsewhere.
    stack: u64,
    /// The path of the process's executable, if it is known.
    executable: Option<PathBuf>,
    statm: StatmSizes,
    usage: Option<MemoryUsage>,
    threads: i64,
    /// Whether the process had no full scan so far.
    is_new: bool,
}

/// All watched processes, and the data that is not stored yet.
pub struct ProcessWatcher {
    alive: Vec<TrackedProcess>,
    /// Number of processes that were watched so far.
    count: i64,
    with_children: bool,
    /// Whether a note about too many processes was already added.
    is_over: bool,
    scan_count: i64,
    ticks_per_second: u64,
    /// The data since the last call of [`take`](Self::take).
    batch: WatchBatch,
    /// Whether each scan must be a full one for all processes.
    needs_usage: bool,
    /// Returns a text that distinguishes a process from other processes of the same program. The
    /// arguments are the program's name and the process id.
    title: fn(&str, u32) -> Option<String>,
}

/// Converts a number of bytes to the type of the database.
fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

impl ProcessWatcher {
    /// Makes a watcher without processes. `title` returns a text that distinguishes a process from
    /// other processes of the same program.
    pub fn new(
        with_children: bool,
        needs_usage: bool,
        title: fn(&str, u32) -> Option<String>,
    ) -> Self {
        Self {
            alive: Vec::new(),
            count: 0,
            with_children,
            is_over: false,
            scan_count: 0,
            ticks_per_second: rustix::param::clock_ticks_per_second().max(1),
            batch: WatchBatch::default(),
            needs_usage,
            title,
        }
    }

    /// Begins to watch a process. Fails if the process has already ended.
    pub fn begin(&mut self, pid: u32, now_ms: i64) -> io::Result<()> {
        let identity = ProcessIdentity::from_pid(pid)?;
        self.add(pid, identity, now_ms, "began");
        Ok(())
    }

    /// Whether all watched processes have ended.
    pub fn is_empty(&self) -> bool {
        self.alive.is_empty()
    }

    /// Scans all watched processes.
    pub fn scan(&mut self, now_ms: i64) {
        self.scan_count += 1;
        if self.with_children {
            self.find_children(now_ms);
        }
        for i in (0..self.alive.len()).rev() {
            if !self.scan_process(i, now_ms) {
                self.end(i, now_ms, "");
            }
        }
    }

    /// Notes how a watched process ended.
    pub fn note_end(&mut self, pid: u32, now_ms: i64, how: &str) {
        if let Some(i) = self.alive.iter().position(|one| one.pid == pid) {
            self.end(i, now_ms, how);
            return;
        }
        // The end of the process was seen before its reason was known.
        let mut processes = self.batch.processes.iter_mut();
        let Some(about) = processes.rfind(|one| one.pid == i64::from(pid)) else {
            return;
        };
        about.ending = how.to_string();
        let number = Some(about.process);
        let mut events = self.batch.events.iter_mut();
        let event = events.rfind(|event| event.process == number && event.kind == "ended");
        if let Some(event) = event {
            event.text = how.to_string();
        }
    }

    /// Adds a mark. Returns the answer for its sender.
    pub fn mark(&mut self, mark: WatchMark, now_ms: i64) -> String {
        let is_new = mark.pid.is_some_and(|pid| self.find(pid).is_none());
        if self.with_children && (is_new || mark.of_all_but.is_some()) {
            // The process may have been forked since the last scan.
            self.find_children(now_ms);
        }
        if let Some(pid) = mark.pid.filter(|_| mark.is_strict)
            && self.find(pid).is_none()
        {
            return format!("process {pid} is not watched");
        }
        if mark.lost > 0 {
            let text = format!(
                "{} marks, which came faster than they could be read",
                mark.lost
            );
            self.note(mark.pid, now_ms, "unseen", text);
        }
        // A mark that names no process belongs to the first process. The mark may have been set by
        // a process that has ended by now, or by the program that waits for the watch.
        let first = || self.alive.iter().find(|one| one.about.process == 1);
        let (found, statm) = match (mark.pid, mark.of_all_but) {
            (Some(pid), _) => (self.find(pid), mark.statm),
            (None, Some(sender)) => (None, Some(self.sum_without(sender))),
            (None, None) => (
                first(),
                first().and_then(|one| StatmSizes::from_pid(one.pid).ok()),
            ),
        };
        let figures = statm.map(|statm| WatchFigures {
            size: signed(statm.size),
            rss: signed(statm.rss),
            shared: signed(statm.shared),
            code: signed(statm.text),
            data: signed(statm.data),
        });
        let process = found.map(|one| one.about.process);
        self.batch.events.push(WatchEvent {
            process,
            time_ms: time_of(&mark, now_ms),
            kind: "mark".to_string(),
            text: mark.text,
            figures,
        });
        ACCEPTED_ANSWER.to_string()
    }

    /// Returns the memory sizes of all watched processes together, except the process `pid`, which
    /// is about to end.
    fn sum_without(&self, pid: u32) -> StatmSizes {
        let others = self.alive.iter().filter(|one| one.pid != pid);
        let all = others.filter_map(|one| StatmSizes::from_pid(one.pid).ok());
        all.fold(StatmSizes::default(), |sum, one| StatmSizes {
            size: sum.size.saturating_add(one.size),
            rss: sum.rss.saturating_add(one.rss),
            shared: sum.shared.saturating_add(one.shared),
            text: sum.text.saturating_add(one.text),
            data: sum.data.saturating_add(one.data),
        })
    }

    fn find(&self, pid: u32) -> Option<&TrackedProcess> {
        self.alive.iter().find(|one| one.pid == pid)
    }

    /// Adds an event of the process `pid` to the data, or an event of no process if `pid` is
    /// `None`.
    pub fn note(&mut self, pid: Option<u32>, now_ms: i64, kind: &str, text: String) {
        let process = pid.and_then(|pid| self.find(pid));
        self.batch.events.push(WatchEvent {
            process: process.map(|one| one.about.process),
            time_ms: now_ms,
            kind: kind.to_string(),
            text,
            figures: None,
        });
    }

    /// Returns the id of a process for which a rule holds, and the value that the rule compares.
    pub fn holds(&self, rule: &WatchRule) -> Option<(u32, u64)> {
        let all: Vec<ProcessReading<'_>> = self
            .alive
            .iter()
            .map(|one| ProcessReading {
                pid: one.pid,
                statm: &one.statm,
                usage: one.usage.as_ref(),
                threads: one.threads,
            })
            .collect();
        rule.holds(&all)
    }

    /// Returns the data that was collected since the last call.
    pub fn take(&mut self) -> WatchBatch {
        let mut batch = std::mem::take(&mut self.batch);
        batch.sample_count = self.scan_count;
        batch
    }

    fn add(&mut self, pid: u32, identity: ProcessIdentity, now_ms: i64, kind: &str) {
        self.count += 1;
        let about = WatchProcess {
            process: self.count,
            pid: i64::from(pid),
            parent: i64::from(identity.parent),
            command: (self.title)(&identity.name, pid).unwrap_or_default(),
            began_ms: now_ms,
            name: identity.name,
            ..WatchProcess::default()
        };
        let parent = self.alive.iter().find(|one| one.pid == identity.parent);
        let became = parent.is_some_and(|parent| is_another(parent.stack, identity.stack));
        let text = match became {
            true => format!("and executed {}", describe_process(&about)),
            false => describe_process(&about).to_string(),
        };
        self.batch.processes.push(about.clone());
        self.alive.push(TrackedProcess {
            about,
            pid,
            began: identity.began,
            stack: identity.stack,
            executable: executable(pid),
            statm: StatmSizes::default(),
            usage: None,
            threads: identity.threads,
            is_new: true,
        });
        self.note(Some(pid), now_ms, kind, text);
    }

    /// Adds the descendants of watched processes that are not watched yet.
    fn find_children(&mut self, now_ms: i64) {
        let mut known: HashSet<u32> = self.alive.iter().map(|one| one.pid).collect();
        let mut i = 0;
        while i < self.alive.len() {
            for child in children(self.alive[i].pid) {
                if !known.insert(child) {
                    continue;
                }
                let Ok(identity) = ProcessIdentity::from_pid(child) else {
                    continue;
                };
                if identity.has_ended() {
                    continue;
                }
                if self.alive.len() >= MAX_PROCESSES {
                    if !self.is_over {
                        self.is_over = true;
                        let text = format!(
                            "more than {MAX_PROCESSES} processes; the others are not watched"
                        );
                        self.note(None, now_ms, "unseen", text);
                    }
                    return;
                }
                self.add(child, identity, now_ms, "forked");
            }
            i += 1;
        }
    }

    /// Scans one process. Returns false if it has ended.
    fn scan_process(&mut self, i: usize, now_ms: i64) -> bool {
        let one = &mut self.alive[i];
        let Ok(identity) = ProcessIdentity::from_pid(one.pid) else {
            return false;
        };
        if identity.has_ended() || identity.began != one.began {
            return false;
        }
        let Ok(statm) = StatmSizes::from_pid(one.pid) else {
            return false;
        };
        let is_renamed = identity.name != one.about.name;
        // Without randomization, all programs have their stack at the same place.
        let is_exec = is_another(one.stack, identity.stack)
            || is_renamed && executable(one.pid) != one.executable;
        one.stack = identity.stack;
        if is_exec || is_renamed {
            one.executable = executable(one.pid);
            one.about.name.clone_from(&identity.name);
            let called = (self.title)(&identity.name, one.pid);
            one.about.command = called.unwrap_or_default();
            self.batch.processes.push(one.about.clone());
        }
        let is_full = one.is_new
            || self.needs_usage
            || (self.scan_count + one.about.process) % FULL_SCAN_PERIOD == 0
            || is_exec;
        let mut moment = WatchMoment {
            process: one.about.process,
            time_ms: now_ms,
            size: signed(statm.size),
            rss: signed(statm.rss),
            shared: signed(statm.shared),
            data: signed(statm.data),
            threads: identity.threads,
            minor_faults: signed(identity.minor_faults),
            major_faults: signed(identity.major_faults),
            worked_us: signed(identity.worked.saturating_mul(1_000_000) / self.ticks_per_second),
            ..WatchMoment::default()
        };
        one.statm = statm;
        one.threads = identity.threads;
        if is_full {
            one.is_new = false;
            one.usage = MemoryUsage::from_pid(one.pid).ok();
            if let Some(usage) = &one.usage {
                moment.pss = Some(signed(usage.pss));
                moment.uss = Some(signed(usage.uss()));
                moment.swap = Some(signed(usage.swap));
            }
            let counters = StatusCounters::from_pid(one.pid).ok();
            moment.peak = counters
                .and_then(|counters| counters.get("VmHWM"))
                .map(signed);
        }
        self.batch.moments.push(moment);
        if is_exec {
            let (pid, text) = (one.pid, describe_process(&one.about).to_string());
            self.note(Some(pid), now_ms, "exec", text);
        }
        true
    }

    fn end(&mut self, i: usize, now_ms: i64, how: &str) {
        let mut one = self.alive.swap_remove(i);
        one.about.ended_ms = Some(now_ms);
        one.about.ending = how.to_string();
        self.batch.events.push(WatchEvent {
            process: Some(one.about.process),
            time_ms: now_ms,
            kind: "ended".to_string(),
            text: how.to_string(),
            figures: None,
        });
        self.batch.processes.push(one.about);
    }
}

/// Whether a process has started another program. `before` and `now` are the beginnings of its
/// stack at an earlier time and now. A beginning of 0 means unknown: the process belongs to another
/// user, or is in the middle of an exec. During an exec the kernel moves the beginning a little, so
/// a small difference does not count.
fn is_another(before: u64, now: u64) -> bool {
    const MAX_STACK_SHIFT: u64 = 128 << 10;
    before != 0 && now != 0 && before.abs_diff(now) > MAX_STACK_SHIFT
}

/// Returns the path of a process's executable, if this user may read it.
fn executable(pid: u32) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/exe")).ok()
}

/// Returns when a mark was set. An implausible time is replaced by the present time.
fn time_of(mark: &WatchMark, now_ms: i64) -> i64 {
    const MAX_CLOCK_DIFFERENCE_MS: u64 = 60_000;
    match mark.time_ms.abs_diff(now_ms) > MAX_CLOCK_DIFFERENCE_MS {
        true => now_ms,
        false => mark.time_ms,
    }
}

/// Returns the command line of a process, or its name if the command line is not known.
fn describe_process(about: &WatchProcess) -> &str {
    match about.command.as_str() {
        "" => &about.name,
        command => command,
    }
}
