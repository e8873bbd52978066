//! Reads the resident memory of processes during a recording. The memory is read from outside, so
//! the program does no work and opens no file for it.
//!
//! The program and its descendants are read one after another, and less often if there are many:
//! reading takes at most a hundredth of the time of one processor, or a tenth if the memory of each
//! process is divided at its peak.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use heapprof_process::clock::{self, thread_time};
use heapprof_process::{StatmSizes, descendants};
use heapprof_profile::{HeapHistory, Profile, ResidentMoment, recording_texts};

use crate::peak_divisions::{ReadingTime, SharedPeakDivisions};

/// The resident memory of each process: times (nanoseconds since 1970) and bytes.
#[derive(Debug, Default)]
pub(crate) struct ResidentHistories(BTreeMap<u32, Vec<(i64, i64)>>);

/// The handle of a thread that reads resident memory.
pub(crate) struct ResidentReader {
    ends: Arc<AtomicBool>,
    /// The thread; `None` if none could be made.
    thread: Option<JoinHandle<ResidentHistories>>,
}

/// How often processes are read.
#[derive(Clone, Copy)]
struct ReadPace {
    /// Initial time between two readings.
    interval: Duration,
    /// Time between two searches for descendants, if a search is quick.
    search_interval: Duration,
    /// Reading takes at most one part in this number of the time.
    time_divisor: u32,
}

/// The pace of readings of sizes.
const SIZE_PACE: ReadPace = ReadPace {
    interval: Duration::from_millis(10),
    search_interval: Duration::from_millis(100),
    time_divisor: 100,
};
/// The pace of readings that also divide the memory of each process at its peak. A program may end
/// soon.
const DIVISION_PACE: ReadPace = ReadPace {
    interval: Duration::from_millis(2),
    search_interval: Duration::from_millis(4),
    time_divisor: 10,
};

/// Maximum number of moments in the history of a process.
const MAX_MOMENTS: usize = 1000;
/// Maximum number of processes whose resident memory is read.
const MAX_PROCESSES: usize = 1000;
/// Time between two checks whether the program has ended.
const END_CHECK_INTERVAL: Duration = Duration::from_millis(50);

impl ResidentReader {
    /// Starts to read the resident memory of a program and its descendants, and, if `divisions` is
    /// there, how it is divided at its peak.
    pub(crate) fn start(program: u32, divisions: Option<SharedPeakDivisions>) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&ends);
        let read = move || read_until(program, divisions.as_ref(), &seen);
        let thread = thread::Builder::new().spawn(read).ok();
        Self { ends, thread }
    }

    /// Ends the thread, and returns what it read.
    pub(crate) fn end(self) -> ResidentHistories {
        self.ends.store(true, Ordering::Release);
        let thread = self.thread.and_then(|thread| {
            thread.thread().unpark();
            thread.join().ok()
        });
        thread.unwrap_or_default()
    }
}

fn read_until(
    program: u32,
    divisions: Option<&SharedPeakDivisions>,
    ends: &AtomicBool,
) -> ResidentHistories {
    let mut residents = ResidentHistories::default();
    let pace = match divisions {
        Some(_) => DIVISION_PACE,
        None => SIZE_PACE,
    };
    let mut processes = BTreeSet::from([program]);
    let (mut spacing, mut next_search) = (pace.interval, Instant::now());
    while !ends.load(Ordering::Acquire) {
        let (began, worked) = (Instant::now(), thread_time());
        if began >= next_search {
            processes = descendants(program);
            next_search = began
                + pace
                    .search_interval
                    .max((thread_time() - worked) * pace.time_divisor);
        }
        for &process in &processes {
            if let (Some(resident), Some(divisions)) = (residents.read(process), divisions) {
                divisions.read(process, resident, ReadingTime::WhileRunning);
            }
        }
        if residents.0.values().any(|curve| curve.len() >= MAX_MOMENTS) {
            residents.thin();
            spacing *= 2;
        }
        let until = began + spacing.max((thread_time() - worked) * pace.time_divisor);
        while !ends.load(Ordering::Acquire) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            thread::park_timeout(left.min(END_CHECK_INTERVAL));
        }
    }
    residents
}

/// Returns the resident memory of a process in bytes; `None` if the process has ended.
pub fn resident(process: u32) -> Option<i64> {
    let rss = StatmSizes::from_pid(process).ok()?.rss;
    // A process that has ended has no pages.
    i64::try_from(rss).ok().filter(|&rss| rss > 0)
}

impl ResidentHistories {
    /// Reads the resident memory of a process, and returns it if the process has any.
    fn read(&mut self, process: u32) -> Option<i64> {
        let resident = resident(process);
        if let Some(resident) = resident
            && (self.0.len() < MAX_PROCESSES || self.0.contains_key(&process))
        {
            let curve = self.0.entry(process).or_default();
            curve.push((clock::nanos(), resident));
        }
        resident
    }

    /// Halves each history. Of each pair of moments, the one with more memory stays.
    fn thin(&mut self) {
        for curve in self.0.values_mut() {
            let larger = |two: &[(i64, i64)]| two.iter().copied().max_by_key(|(_, bytes)| *bytes);
            *curve = curve.chunks(2).filter_map(larger).collect();
        }
    }

    /// Adds the resident memory of a process to the history of its profile. Returns whether any
    /// resident memory was known.
    pub(crate) fn put_into(&self, profile: &mut Profile, process: u32) -> bool {
        let Some(curve) = self.0.get(&process) else {
            return false;
        };
        let Some(mut history) = HeapHistory::from_profile(profile) else {
            return false;
        };
        let start = profile.time_nanos.saturating_sub(profile.duration_nanos);
        let within = start..=profile.time_nanos;
        let known = curve.iter().filter(|(time, _)| within.contains(time));
        let mut resident: Vec<ResidentMoment> = known
            .map(|&(time, bytes)| ResidentMoment {
                micros: (time - start) / 1000,
                bytes,
            })
            .collect();
        if resident.is_empty() {
            return false;
        }
        // A program that was killed could not report its resident memory. The last reading before
        // its end may be less than it had.
        let most = resident.iter().map(|moment| moment.bytes).max();
        let heap = history.peak.map(|peak| peak.bytes);
        if history.resident.is_empty() && most >= heap {
            add_comments(profile, &resident);
        }
        // The library knows the resident memory at the time when it wrote the profile.
        resident.append(&mut history.resident);
        resident.sort_by_key(|moment| moment.micros);
        history.resident = resident;
        history.put(profile);
        true
    }
}

/// Adds comments about the last and the largest resident memory.
fn add_comments(profile: &mut Profile, moments: &[ResidentMoment]) {
    let most = moments.iter().map(|moment| moment.bytes).max();
    let last = moments.last().map(|moment| moment.bytes);
    let bytes = |of: Option<i64>| of.and_then(|bytes| u64::try_from(bytes).ok());
    if let (Some(last), Some(most)) = (bytes(last), bytes(most)) {
        for comment in recording_texts::resident(last, most) {
            let comment = profile.strings.intern(&comment);
            profile.comment.push(comment);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_until_it_is_told_to_end() {
        // On a busy machine the thread's turn may come late.
        let mut times = [120, 1200, 12_000, 120_000]
            .map(Duration::from_millis)
            .into_iter();
        let own = times.find_map(|time| {
            let reader = ResidentReader::start(std::process::id(), None);
            thread::sleep(time);
            let own = reader.end().0.remove(&std::process::id());
            own.filter(|own| own.len() > 1)
        });
        let own = own.expect("it was read more than once");
        assert!(own.is_sorted(), "{own:?}");
        assert!(own.iter().all(|(_, bytes)| *bytes > 100_000), "{own:?}");
    }

    #[test]
    fn only_what_is_of_the_recording_is_put() {
        let mut profile = Profile::default();
        (profile.time_nanos, profile.duration_nanos) = (9_000_000, 4_000_000);
        let curve = vec![
            (4_000_000, 1),
            (5_000_000, 2),
            (7_000_000, 3),
            (9_500_000, 4),
        ];
        let residents = ResidentHistories(BTreeMap::from([(7, curve)]));
        assert!(!residents.put_into(&mut profile, 7), "there is no history");
        HeapHistory::default().put(&mut profile);
        assert!(!residents.put_into(&mut profile, 8));
        assert!(residents.put_into(&mut profile, 7));
        let put = HeapHistory::from_profile(&profile).unwrap().resident;
        let put: Vec<(i64, i64)> = put.iter().map(|one| (one.micros, one.bytes)).collect();
        assert_eq!(put, [(0, 2), (2000, 3)]);
    }
}
