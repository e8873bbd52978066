//! The snapshots that processes have sent so far: for each process the newest one, some earlier
//! ones, and the curve of its memory.
//!
//! A process may send anything, so the number and the size of the snapshots are limited.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Result;
use heapprof_analysis::QuestionSource;
use heapprof_files::FileOwner;
use heapprof_profile::{Profile, merge_all};
use heapprof_terminal::feed::{
    CurvePoint, FeedNews, ProcessChoice, SnapshotPeak, ViewProcess, ViewSnapshot,
};

use crate::residents::resident;

/// Maximum number of processes whose snapshots are kept. A new process replaces a process that has
/// sent nothing for long.
const MAX_PROCESSES: usize = 64;
/// Maximum numbers of snapshots: of the program, of any other process, and of a process with large
/// profiles.
const MAX_SNAPSHOTS: [usize; 3] = [40, 10, 8];
/// Number of samples above which a profile is large.
const LARGE_PROFILE_SAMPLES: usize = 20_000;
/// Maximum number of points of a curve.
const MAX_POINTS: usize = 2000;
/// Number of elements at the end of a series that are never thinned out.
const UNTHINNED_SNAPSHOTS: usize = 8;

/// The snapshots and the curve of a process.
struct ProcessSeries {
    owner: FileOwner,
    /// When the process's recording began, in nanoseconds since 1970.
    began: i64,
    series: Vec<Arc<ViewSnapshot>>,
    history: Vec<CurvePoint>,
}

/// The snapshots and curves of all processes.
#[derive(Default)]
pub struct ProcessMoments {
    /// Process id of the program that was started, if one was started.
    pub program: Option<u32>,
    processes: BTreeMap<u32, ProcessSeries>,
    sum: Option<ProcessSeries>,
    ids: u64,
}

impl ProcessMoments {
    /// Adds a profile that a process of `owner` sent. A process of another user can't send profiles
    /// for a process of this user.
    pub fn add(
        &mut self,
        owner: FileOwner,
        (process, began): (u32, i64),
        profile: Profile,
    ) -> Result<()> {
        let earlier = self
            .processes
            .get(&process)
            .map(|process_series| process_series.owner);
        if earlier.is_some_and(|earlier| earlier.user != owner.user && !owner.is_us()) {
            return Ok(());
        }
        self.ids += 1;
        let source = QuestionSource::new(format!("process {process}"), profile);
        let mut snapshot = ViewSnapshot::new(self.ids, source)?;
        snapshot.rss = resident(process);
        if !self.processes.contains_key(&process) && self.processes.len() >= MAX_PROCESSES {
            let newest = |process_series: &ProcessSeries| {
                process_series
                    .series
                    .last()
                    .map_or(0, |snapshot| snapshot.id)
            };
            let others = self
                .processes
                .iter()
                .filter(|(of, _)| Some(**of) != self.program);
            if let Some(&oldest) = others
                .min_by_key(|(_, process_series)| newest(process_series))
                .map(|(of, _)| of)
            {
                self.processes.remove(&oldest);
            }
        }
        let is_program = self.program == Some(process);
        let process_series = self
            .processes
            .entry(process)
            .or_insert_with(|| ProcessSeries::new(owner, began));
        if process_series.began != began || process_series.owner.user != owner.user {
            // The process has become another program, or another process has its number.
            *process_series = ProcessSeries::new(owner, began);
        }
        process_series.add(snapshot, is_program);
        Ok(())
    }

    /// Adds up the newest snapshots of all processes.
    pub(super) fn add_up(&mut self) -> Result<()> {
        // The memory of a process that is gone is free.
        let running = self
            .processes
            .iter()
            .map(|(&process, process_series)| (resident(process), process_series));
        let running: Vec<(i64, &ProcessSeries)> = running
            .filter_map(|(rss, process_series)| Some((rss?, process_series)))
            .collect();
        let newest = || {
            running
                .iter()
                .filter_map(|(_, process_series)| process_series.series.last())
        };
        if newest().map(|snapshot| snapshot.id).max() <= self.newest_of_sum() {
            return Ok(());
        }
        let profiles = newest().map(|snapshot| Ok((*snapshot.source.profile).clone()));
        let mut all = merge_all(profiles.map(|one: Result<Profile, heapprof_profile::Error>| one))?;
        let longest = newest().map(|snapshot| snapshot.source.profile.duration_nanos);
        all.duration_nanos = longest.max().unwrap_or(0);
        let rss = running
            .iter()
            .map(|(rss, _)| *rss)
            .reduce(i64::saturating_add);
        self.ids += 1;
        let mut snapshot = ViewSnapshot::new(self.ids, QuestionSource::new("all processes", all))?;
        snapshot.rss = rss;
        self.sum
            .get_or_insert_with(|| ProcessSeries::new(FileOwner::us(), 0))
            .add(snapshot, false);
        Ok(())
    }

    fn newest_of_sum(&self) -> Option<u64> {
        Some(self.sum.as_ref()?.series.last()?.id)
    }

    /// Returns the news that the view shows about a process. Until the program has sent a snapshot,
    /// another process is shown instead.
    pub fn news(&self, which: ProcessChoice) -> FeedNews {
        let process_series = match which {
            ProcessChoice::All => self
                .sum
                .as_ref()
                .map(|process_series| (None, process_series)),
            ProcessChoice::Process(process) => self.find_process(process),
            ProcessChoice::Program => self
                .program
                .and_then(|process| self.find_process(process))
                .or_else(|| {
                    self.processes
                        .iter()
                        .next()
                        .map(|(&of, process_series)| (Some(of), process_series))
                }),
        };
        let is_shown = |process: u32| {
            self.program == Some(process)
                || which == ProcessChoice::Process(process)
                || resident(process).is_some()
        };
        let processes = self
            .processes
            .iter()
            .filter(|(process, _)| is_shown(**process));
        let processes = processes.map(|(&number, process_series)| ViewProcess {
            number,
            program: process_series
                .series
                .last()
                .map_or(String::new(), |one| one.facts.program.clone()),
        });
        let mut news = FeedNews {
            processes: processes.collect(),
            which,
            ..FeedNews::default()
        };
        let Some((process, process_series)) = process_series else {
            return news;
        };
        news.snapshot = process_series.series.last().cloned();
        news.series.clone_from(&process_series.series);
        // The newest snapshot also has the clock, because its recording is that of all snapshots.
        let newest = news.snapshot.as_deref();
        news.peak =
            newest.and_then(|newest| SnapshotPeak::from_moments(&process_series.series, newest));
        news.history.clone_from(&process_series.history);
        news.process = process;
        news.rss = match process {
            Some(process) => resident(process),
            None => news.snapshot.as_ref().and_then(|snapshot| snapshot.rss),
        };
        news
    }

    /// Returns the program, or the process that is shown in its place.
    pub(super) fn shown_process(&self) -> Option<u32> {
        let program = self
            .program
            .filter(|process| self.processes.contains_key(process));
        program.or_else(|| self.processes.keys().next().copied())
    }

    fn find_process(&self, process: u32) -> Option<(Option<u32>, &ProcessSeries)> {
        Some((Some(process), self.processes.get(&process)?))
    }
}

impl ProcessSeries {
    fn new(owner: FileOwner, began: i64) -> Self {
        Self {
            owner,
            began,
            series: Vec::new(),
            history: Vec::new(),
        }
    }

    fn add(&mut self, snapshot: ViewSnapshot, is_program: bool) {
        if let Some(heap) = snapshot.facts.in_use {
            self.history.push(CurvePoint {
                seconds: snapshot.seconds.unwrap_or(0.0),
                heap,
                rss: snapshot.rss,
            });
            thin(&mut self.history, MAX_POINTS);
        }
        let most = match (
            snapshot.source.profile.samples.len() > LARGE_PROFILE_SAMPLES,
            is_program,
        ) {
            (true, _) => MAX_SNAPSHOTS[2],
            (false, true) => MAX_SNAPSHOTS[0],
            (false, false) => MAX_SNAPSHOTS[1],
        };
        self.series.push(Arc::new(snapshot));
        thin(&mut self.series, most);
    }
}

/// Removes every second element if there are more than `most` elements. The first element and the
/// newest ones stay.
fn thin<T>(all: &mut Vec<T>, most: usize) {
    if all.len() <= most {
        return;
    }
    let len = all.len();
    let mut at = 0;
    all.retain(|_| {
        at += 1;
        at % 2 == 1 || at + UNTHINNED_SNAPSHOTS.min(most / 2) > len
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_keeps_its_ends() {
        let mut all = Vec::new();
        for one in 0..1000 {
            all.push(one);
            thin(&mut all, 40);
        }
        assert!(all.len() <= 40, "{all:?}");
        assert_eq!(all[0], 0);
        assert_eq!(all[all.len() - 4..], [996, 997, 998, 999]);
    }
}
