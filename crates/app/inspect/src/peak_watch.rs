//! Watches the processes that this process starts, and keeps how the memory of each was divided
//! when it was largest.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use heapprof_process::{MemoryBreakdown, StatusCounters, descendants, explain};

/// Shortest time between two looks.
const MIN_INTERVAL: Duration = Duration::from_millis(20);
/// A look takes at most one part in this number of the time, because the kernel stops changes of
/// the mappings meanwhile.
const LOOK_TIME_DIVISOR: u32 = 30;
/// A process is looked at again if its memory has grown by more than one part in this number.
const GROWTH_DIVISOR: u64 = 50;
/// Maximum number of processes that are watched.
const MAX_PROCESSES: usize = 1000;

/// A watch over the processes that this process starts.
pub struct PeakWatch {
    has_ended: Arc<AtomicBool>,
    /// The thread that looks; `None` if none could be made.
    thread: Option<JoinHandle<PeakBreakdowns>>,
}

/// How the memory of each process was divided when it was largest, by the process's number.
pub type PeakBreakdowns = HashMap<u32, MemoryBreakdown>;

impl PeakWatch {
    /// Starts a watch.
    #[must_use]
    pub fn start() -> Self {
        let has_ended = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&has_ended);
        let thread = thread::Builder::new().spawn(move || look_until(&seen)).ok();
        Self { has_ended, thread }
    }

    /// Ends the watch, and returns what it saw.
    #[must_use]
    pub fn end(self) -> PeakBreakdowns {
        self.has_ended.store(true, Ordering::Release);
        let found = self.thread.and_then(|thread| {
            thread.thread().unpark();
            thread.join().ok()
        });
        found.unwrap_or_default()
    }
}

fn look_until(has_ended: &AtomicBool) -> PeakBreakdowns {
    let own = std::process::id();
    let program = |pid: u32| std::fs::read_link(format!("/proc/{pid}/exe")).ok();
    let own_program = program(own);
    let mut found = PeakBreakdowns::new();
    while !has_ended.load(Ordering::Acquire) {
        let began = Instant::now();
        for pid in descendants(own).into_iter().filter(|pid| *pid != own) {
            let resident = StatusCounters::from_pid(pid)
                .ok()
                .and_then(|of| of.get("VmRSS"));
            let known = found.get(&pid).map_or(0, |of| of.total.rss);
            let is_larger = resident.is_some_and(|now| now > known + known / GROWTH_DIVISOR);
            // Before its exec, a child is a copy of this process.
            let is_copy = || program(pid) == own_program;
            if !is_larger || found.len() >= MAX_PROCESSES || is_copy() {
                continue;
            }
            if let Ok(breakdown) = explain(pid)
                && breakdown.total.rss > known
            {
                found.insert(pid, breakdown);
            }
        }
        thread::park_timeout(MIN_INTERVAL.max(began.elapsed() * LOOK_TIME_DIVISOR));
    }
    found
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_child_is_seen() {
        let watch = PeakWatch::start();
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pid = child.id();
        // The child waits for its input until the watch has seen it.
        let mut all = watch.end();
        while !all.contains_key(&pid) {
            let watch = PeakWatch::start();
            thread::yield_now();
            all.extend(watch.end());
        }
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(all[&pid].total.rss > 0);
    }
}
