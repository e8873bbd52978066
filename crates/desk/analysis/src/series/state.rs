//! The states of a series: the moments that are added up for a time.
//!
//! Hosts write at slightly different times. So time is divided into steps, each as long as the
//! usual time between two moments of a process. The state of a step has the last moment of each
//! process at the step's end. A process counts until its moments have been missing for two and a
//! half steps, or until a restart: another process of its series begins after its last moment.

use foldhash::HashMap;

use crate::stored_moment::{ROLLED_UP_LABEL, StoredMoment, series_of, service_labels};

/// Maximum number of steps into which time is divided. A longer time has longer steps.
const MAX_STEPS: i64 = 240;
/// Number of steps for which a process still counts after its last moment.
const MAX_STEPS_SINCE_MOMENT: f64 = 2.5;

/// The state of a series at one step in time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SeriesState {
    /// The time of the step, in nanoseconds since 1970 UTC.
    pub(crate) time_nanos: i64,
    /// The moments that are added up, by their positions: one moment of each process.
    pub(crate) moments: Vec<usize>,
}

/// Processes with their moments. The moments of a process decide at which times it counts.
pub struct SeriesProcesses<'a> {
    moments: &'a [StoredMoment],
    timelines: Vec<ProcessTimeline>,
    /// The usual time between two moments of a process; `None` if no process has two moments.
    step: Option<i64>,
}

impl<'a> SeriesProcesses<'a> {
    /// Finds the processes of these moments, which must be in order of time.
    pub fn from_moments(moments: &'a [StoredMoment]) -> Self {
        let lines = process_timelines(moments);
        let steps = lines.iter().filter_map(|line| line.step).collect();
        Self {
            moments,
            timelines: lines,
            step: median(steps),
        }
    }

    /// Returns the positions of the moments that are added up for the time `until`: the last moment
    /// of each process that still counts.
    pub fn moments_at(&self, until: i64) -> Vec<usize> {
        self.present_moments(until, self.step.unwrap_or(i64::MAX / 4))
    }

    fn present_moments(&self, until: i64, step: i64) -> Vec<usize> {
        let moments = self.moments;
        let there = self.timelines.iter().filter_map(|line| {
            let after = line
                .moments
                .partition_point(|&at| moments[at].time_nanos <= until);
            let at = *line.moments.get(after.checked_sub(1)?)?;
            let age = until.saturating_sub(moments[at].time_nanos) as f64;
            let usual = line.step.unwrap_or(step).max(step) as f64;
            let is_replaced = line.replaced_at.is_some_and(|time| time <= until);
            (age <= MAX_STEPS_SINCE_MOMENT * usual && !is_replaced).then_some(at)
        });
        there.collect()
    }
}

/// A process: the positions of its moments in order of time, and the time when another process
/// replaced it.
struct ProcessTimeline {
    moments: Vec<usize>,
    replaced_at: Option<i64>,
    /// The usual time between two moments of the process; `None` if it has only one.
    step: Option<i64>,
}

/// Returns the states of these moments, which must be in order of time. There is at least one state
/// if there is a moment.
pub(crate) fn states(moments: &[StoredMoment]) -> Vec<SeriesState> {
    let (Some(first), Some(last)) = (moments.first(), moments.last()) else {
        return Vec::new();
    };
    let processes = SeriesProcesses::from_moments(moments);
    let (begin, end) = (first.time_nanos, last.time_nanos);
    let Some(mut step) = processes.step else {
        // No process has two moments, so there is one state. Without labels it is not known which
        // process replaced which.
        let is_there = |line: &&ProcessTimeline| {
            let first = line.moments[0];
            line.replaced_at.is_none() || moments[first].labels.is_empty()
        };
        let lines = processes.timelines.iter().filter(is_there);
        return vec![SeriesState {
            time_nanos: end,
            moments: lines.filter_map(|l| l.moments.last().copied()).collect(),
        }];
    };
    let length = end.saturating_sub(begin);
    step = step
        .max(length.checked_div(MAX_STEPS - 1).unwrap_or(0))
        .max(1);
    let count = length.saturating_add(step / 2) / step + 1;
    let each = (0..count).rev().map(|back| {
        let time = end.saturating_sub(step.saturating_mul(back));
        SeriesState {
            time_nanos: time,
            moments: processes.present_moments(time.saturating_add(step / 2), step),
        }
    });
    each.collect()
}

fn process_timelines(moments: &[StoredMoment]) -> Vec<ProcessTimeline> {
    let mut of: HashMap<usize, Vec<usize>> = HashMap::default();
    for (at, moment) in moments.iter().enumerate() {
        of.entry(moment.process).or_default().push(at);
    }
    let mut processes: Vec<Vec<usize>> = of.into_values().collect();
    processes.sort_unstable();
    // The times when the processes of each series began, ascending: processes are in the order of
    // their first moments.
    let mut begins: HashMap<String, Vec<i64>> = HashMap::default();
    for process in &processes {
        let first = &moments[process[0]];
        let series = begins.entry(series_of(&first.labels)).or_default();
        series.push(first.time_nanos);
    }
    // The times when the hosts of each service wrote. A rolled-up moment counts until one of the
    // hosts writes.
    let mut of_hosts: HashMap<String, Vec<i64>> = HashMap::default();
    let service = |moment: &StoredMoment| format!("{:?}", service_labels(&moment.labels));
    let is_sum = |moment: &StoredMoment| moment.labels.contains_key(ROLLED_UP_LABEL);
    let has_sums = moments.iter().any(is_sum);
    for moment in moments.iter().filter(|_| has_sums) {
        if !is_sum(moment) {
            of_hosts
                .entry(service(moment))
                .or_default()
                .push(moment.time_nanos);
        }
    }
    let line = |process: Vec<usize>| {
        let (first, last) = (process[0], process[process.len() - 1]);
        let series = &begins[&series_of(&moments[first].labels)];
        let end = moments[last].time_nanos;
        let next = series.partition_point(|&begin| begin <= end);
        let pairs = process.windows(2);
        let steps = pairs.map(|pair| {
            let [earlier, later] = [moments[pair[0]].time_nanos, moments[pair[1]].time_nanos];
            later.saturating_sub(earlier)
        });
        let mut replaced = series.get(next).copied();
        if moments[last].labels.contains_key(ROLLED_UP_LABEL)
            && let Some(hosts) = of_hosts.get(&service(&moments[last]))
        {
            let after = hosts.partition_point(|&time| time <= end);
            replaced = replaced.into_iter().chain(hosts.get(after).copied()).min();
        }
        ProcessTimeline {
            replaced_at: replaced,
            step: median(steps.filter(|&step| step > 0).collect()),
            moments: process,
        }
    };
    processes.into_iter().map(line).collect()
}

fn median(mut of: Vec<i64>) -> Option<i64> {
    of.sort_unstable();
    of.get(of.len().saturating_sub(1) / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::super::selector::tests::moment;
    use super::*;

    /// Returns, for each state, the numbers of its moments.
    fn numbers(moments: &[StoredMoment]) -> Vec<Vec<i64>> {
        let states = states(moments).into_iter();
        let ids = states.map(|state| state.moments.iter().map(|&at| moments[at].id).collect());
        ids.collect()
    }

    #[test]
    fn hosts_that_write_at_different_times_are_one_state() {
        let mut moments = Vec::new();
        for n in 0..3 {
            moments.push(moment(10 + n, "web1", 1, 600 * n));
            moments.push(moment(20 + n, "web2", 2, 600 * n + 17));
        }
        assert_eq!(numbers(&moments), [[10, 20], [11, 21], [12, 22]]);
        // One process misses a step, and counts with its last moment.
        moments.remove(3);
        assert_eq!(numbers(&moments), [[10, 20], [11, 20], [12, 22]]);
    }

    #[test]
    fn a_process_that_ended_or_was_replaced_is_not_there() {
        let mut moments: Vec<StoredMoment> = (0..6).map(|n| moment(n, "web1", 1, 60 * n)).collect();
        moments.push(moment(90, "web2", 2, 1));
        moments.push(moment(91, "web2", 2, 61));
        moments.sort_by_key(|m| m.time_nanos);
        let found = numbers(&moments);
        assert_eq!(found[1], [1, 91]);
        assert_eq!(found[5], [5], "two hosts, and one went");
        // This is a deploy: the next process of the host replaces the first one at once.
        let restarted: Vec<StoredMoment> = (0..4)
            .map(|n| moment(n, "web1", n as usize / 2, 60 * n))
            .collect();
        assert_eq!(numbers(&restarted), [[0], [1], [2], [3]]);
        // Workers run at the same time, so none replaces another.
        let workers: Vec<StoredMoment> = (0..6)
            .map(|n| moment(n, "web1", n as usize % 2, 60 * (n / 2)))
            .collect();
        assert_eq!(numbers(&workers), [[0, 1], [2, 3], [4, 5]]);
    }

    #[test]
    fn what_was_put_together_counts_until_a_host_writes() {
        let mut moments = Vec::new();
        for n in 0..3 {
            let mut sum = moment(10 + n, "", 9, 3600 * n);
            sum.labels.remove("host");
            sum.labels
                .insert(ROLLED_UP_LABEL.to_string(), (2 + n).to_string());
            moments.push(sum);
        }
        for n in 0..6 {
            moments.push(moment(20 + n, "web1", 1, 2 * 3600 + 600 * (n + 1)));
            moments.push(moment(30 + n, "web2", 2, 2 * 3600 + 600 * (n + 1)));
        }
        let found = numbers(&moments);
        let is_one =
            |state: &Vec<i64>| state.iter().all(|&id| id < 20) || state.iter().all(|&id| id >= 20);
        assert!(found.iter().all(is_one), "{found:?}");
        assert_eq!(found.last(), Some(&vec![25, 35]));
    }

    #[test]
    fn single_moments_are_one_state() {
        let moments = [moment(1, "a", 1, 5), moment(2, "b", 2, 500_000)];
        assert_eq!(numbers(&moments), [[1, 2]]);
        assert!(states(&[]).is_empty());
        // Times that are unknown or far apart must not give an endless list.
        let mut odd = vec![
            moment(1, "a", 1, 0),
            moment(2, "a", 1, 1),
            moment(3, "a", 1, 2),
        ];
        odd.push(moment(4, "a", 1, 9_000_000_000));
        assert!(states(&odd).len() <= MAX_STEPS as usize);
    }
}
