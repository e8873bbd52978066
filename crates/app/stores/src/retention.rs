//! Retention: which old moments of a database are removed, and which are first merged into sums.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use heapprof_analysis::{
    series::{SeriesProcesses, is_counter, roll_up, selection_from_moments},
    store::ProfileStore,
    stored_moment::{ROLLED_UP_LABEL, SeriesStore, StoredMoment, service_labels},
};

/// A rule that decides which moments are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetentionRule {
    /// The length of the steps in which one moment of each process is kept; `None` keeps all
    /// moments.
    pub step: Option<Duration>,
    /// The largest age of the moments to which the rule applies.
    pub age: Duration,
}

/// A sum that lacks moments, because they were loaded after the sum was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolledUpLate {
    /// The name of the sum.
    pub name: String,
    /// Number of moments that were loaded after the sum was made. They are kept.
    pub late: usize,
}

/// A moment that would be missing in the sum of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceGap<'a> {
    /// The name of the service.
    pub service: &'a str,
    /// The name of the moment.
    pub moment: &'a str,
}

/// The moments that are to be removed or merged.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct RetentionPlan {
    /// Positions of the moments that are removed.
    removed: Vec<usize>,
    /// Positions of the removed moments that are merged, by group.
    together: BTreeMap<RollupGroup, Vec<usize>>,
}

impl RetentionPlan {
    /// Decides which moments are removed, and which of them are merged. `moments` is in the order
    /// of time, and `now` is the present time in nanoseconds since 1970 UTC.
    pub fn new(moments: &[StoredMoment], keep: &[RetentionRule], rolls_up: bool, now: i64) -> Self {
        let nanos = |time: std::time::Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        let mut rules = keep.to_vec();
        // If several rules apply to a moment, the rule with the smallest age is used.
        rules.sort_by_key(|rule| (rule.age, rule.step));
        let mut plan = Self::default();
        let mut kept: BTreeSet<(usize, i64, i64)> = BTreeSet::new();
        for (at, moment) in moments.iter().enumerate().rev() {
            // The moment's age is not known.
            if moment.time_nanos == 0 {
                continue;
            }
            let age = now.saturating_sub(moment.time_nanos);
            let rule = rules.iter().position(|rule| age <= nanos(rule.age));
            let Some(rule) = rule else {
                plan.removed.push(at);
                continue;
            };
            let Some(step) = rules[rule].step.map(nanos).filter(|&step| step > 0) else {
                continue;
            };
            let place = moment.time_nanos.div_euclid(step);
            let end = (place + 1).saturating_mul(step);
            // A step is thinned out only when all of it is old enough.
            let young = rule
                .checked_sub(1)
                .map_or(0, |finer| nanos(rules[finer].age));
            if now.saturating_sub(end) < young {
                continue;
            }
            // The last moment of a process in a step stays.
            let is_kept = kept.insert((moment.process, step, place));
            let is_together = moment.labels.contains_key(ROLLED_UP_LABEL);
            // Values that only count what was allocated have no sum over processes that come and
            // go.
            let has_sum = moment.types.iter().any(|t| !is_counter(&t.0));
            let service =
                service_labels(&moment.labels).filter(|_| rolls_up && !is_together && has_sum);
            match service {
                _ if !is_kept => plan.removed.push(at),
                None => {}
                Some(labels) => {
                    plan.removed.push(at);
                    let begin = end.saturating_sub(step);
                    let group = RollupGroup { labels, begin, end };
                    plan.together.entry(group).or_default().push(at);
                }
            }
        }
        plan.removed.reverse();
        plan.together.values_mut().for_each(|group| group.reverse());
        plan
    }

    /// Removes from the plan the moments whose group already has a sum in `all`, because these
    /// moments were loaded too late. Returns these sums.
    pub fn leave_late_moments(&mut self, all: &[StoredMoment]) -> Vec<RolledUpLate> {
        let groups = self.together.keys();
        let groups: BTreeMap<String, RollupGroup> =
            groups.map(|group| (group.name(), group.clone())).collect();
        let mut sums = Vec::new();
        for (name, group) in all
            .iter()
            .filter_map(|moment| groups.get_key_value(&moment.name))
        {
            let late = self.together.remove(group).unwrap_or_default();
            self.removed.retain(|at| !late.contains(at));
            sums.push(RolledUpLate {
                name: name.clone(),
                late: late.len(),
            });
        }
        sums
    }

    /// Returns a moment of `all` that would be missing in the sum of its service, because it is not
    /// among the `chosen` moments.
    pub fn find_gap<'a>(
        &'a self,
        chosen: &[StoredMoment],
        all: &'a [StoredMoment],
    ) -> Option<ServiceGap<'a>> {
        let chosen: BTreeSet<&str> = chosen.iter().map(|moment| &*moment.name).collect();
        // This map is mostly empty.
        let mut left_out: BTreeMap<BTreeMap<String, String>, Vec<&StoredMoment>> = BTreeMap::new();
        for moment in all.iter().filter(|m| !chosen.contains(&*m.name)) {
            if let Some(labels) = service_labels(&moment.labels) {
                left_out.entry(labels).or_default().push(moment);
            }
        }
        self.together.keys().find_map(|group| {
            let of_service = left_out.get(&group.labels).into_iter().flatten();
            let moment = of_service.copied().find(|moment| group.has(moment))?;
            Some(ServiceGap {
                service: group.labels.get("service").map_or("", String::as_str),
                moment: &moment.name,
            })
        })
    }

    /// Returns how many moments are removed.
    pub fn removed(&self) -> usize {
        self.removed.len()
    }

    /// Returns how many of the removed moments are merged into sums.
    pub fn parts(&self) -> usize {
        self.together.values().map(Vec::len).sum()
    }

    /// Returns how many sums are made.
    pub fn sums(&self) -> usize {
        self.together.len()
    }

    /// Makes the sums and removes moments. The plan was made from `moments`, `store` reads them,
    /// and `db` is the path of their database. Returns the database if it was changed, so that the
    /// caller can give its space back.
    pub fn carry_out(
        &self,
        moments: &[StoredMoment],
        store: Box<dyn SeriesStore>,
        db: &Path,
    ) -> Result<Option<ProfileStore>> {
        let named = || db.display().to_string();
        let mut added = Vec::new();
        for (group, there) in self.moments_at_step_end(moments) {
            let name = group.name();
            added.push(
                roll_up(&*store, &name, &selection_from_moments(&name, there))
                    .with_context(named)?,
            );
        }
        drop(store);
        let removed = self.removed.iter();
        let removed: Vec<String> = removed.map(|&at| moments[at].name.clone()).collect();
        if removed.is_empty() {
            return Ok(None);
        }
        let mut store = ProfileStore::open_to_write(db).with_context(named)?;
        store.replace(&added, &removed).with_context(named)?;
        Ok(Some(store))
    }

    /// Returns for each group the moments that are added up: one of each process that still ran at
    /// the end of the step. Processes that ended or were replaced before are left out.
    fn moments_at_step_end(
        &self,
        moments: &[StoredMoment],
    ) -> Vec<(&RollupGroup, Vec<StoredMoment>)> {
        let mut groups = self.together.iter().peekable();
        let mut all = Vec::new();
        // The groups of a service follow each other.
        while let Some((first, _)) = groups.peek() {
            let labels = &first.labels;
            let of_service = moments.iter().filter(|moment| first.is_of_service(moment));
            let of_service: Vec<StoredMoment> = of_service.cloned().collect();
            let processes = SeriesProcesses::from_moments(&of_service);
            while let Some((group, of_group)) = groups.next_if(|(group, _)| group.labels == *labels)
            {
                let newest = of_group.iter().map(|&at| moments[at].time_nanos).max();
                let there = processes.moments_at(newest.unwrap_or(0));
                let names: BTreeSet<&str> = there.iter().map(|&at| &*of_service[at].name).collect();
                let of_group = of_group.iter().map(|&at| &moments[at]);
                let there = of_group.filter(|moment| names.contains(&*moment.name));
                all.push((group, there.cloned().collect()));
            }
        }
        all
    }
}

/// A group of moments that are merged into one sum: the moments of all hosts of a service in one
/// step.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RollupGroup {
    labels: BTreeMap<String, String>,
    begin: i64,
    end: i64,
}

impl RollupGroup {
    /// Whether a moment is from a host of the service and within the step.
    fn has(&self, moment: &StoredMoment) -> bool {
        (self.begin..self.end).contains(&moment.time_nanos) && self.is_of_service(moment)
    }

    fn is_of_service(&self, moment: &StoredMoment) -> bool {
        let is_of_host = !moment.labels.contains_key(ROLLED_UP_LABEL);
        is_of_host && service_labels(&moment.labels).as_ref() == Some(&self.labels)
    }

    /// Returns the unique name of the group's sum: the service, other labels, and the end of the
    /// step. A name with a slash would be read as a path, so some characters are escaped as in a
    /// URL.
    fn name(&self) -> String {
        let escaped = |text: &str| {
            text.chars().fold(String::new(), |mut to, c| {
                match c {
                    '/' | '%' | '@' | '=' => to.push_str(&format!("%{:02X}", c as u32)),
                    c if c.is_control() => to.push_str(&format!("%{:02X}", c as u32)),
                    c => to.push(c),
                }
                to
            })
        };
        let service = self.labels.get("service").map_or("", String::as_str);
        let others = self.labels.iter().filter(|(key, _)| *key != "service");
        let others = others.map(|(key, value)| format!(".{}={}", escaped(key), escaped(value)));
        let time = heapprof_report::time_utc(self.end).replace(' ', "_");
        format!("{}{}@{time}", escaped(service), others.collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    const HOUR: i64 = 3_600_000_000_000;

    /// Returns a moment of a host of the service `shop` at this hour.
    fn moment(hour: i64, host: &str) -> StoredMoment {
        let label = |key: &str, value: &str| (key.to_string(), value.to_string());
        StoredMoment {
            id: hour,
            name: format!("{host}-{hour}"),
            time_nanos: hour * HOUR,
            start_nanos: None,
            labels: BTreeMap::from([label("service", "shop"), label("host", host)]),
            process: usize::from(host == "b"),
            pid: None,
            types: Rc::from([("inuse_space".to_string(), "bytes".to_string())]),
            totals: vec![1],
            samples: 1,
            default_type: 0,
        }
    }

    fn rule(step: Option<u64>, age: u64) -> RetentionRule {
        let hours = |hours: u64| Duration::from_secs(3600 * hours);
        RetentionRule {
            step: step.map(hours),
            age: hours(age),
        }
    }

    #[test]
    fn old_moments_are_thinned_out_and_removed() {
        let moments: Vec<StoredMoment> = (1..=20).map(|hour| moment(hour, "a")).collect();
        // Keeps all moments of the last four hours, one moment in four hours until ten hours, and
        // no older moments.
        let keep = [rule(Some(4), 10), rule(None, 4)];
        let plan = RetentionPlan::new(&moments, &keep, false, 20 * HOUR);
        let stays = |at: &usize| !plan.removed.contains(at);
        let kept: Vec<i64> = (0..moments.len())
            .filter(stays)
            .map(|at| moments[at].id)
            .collect();
        assert_eq!(kept, [11, 15, 16, 17, 18, 19, 20]);
        assert_eq!((plan.removed(), plan.parts(), plan.sums()), (13, 0, 0));
    }

    #[test]
    fn a_sum_is_of_the_whole_service() {
        let all = [moment(1, "a"), moment(2, "b"), moment(20, "a")];
        let keep = [rule(Some(4), 30)];
        let plan = RetentionPlan::new(&all, &keep, true, 30 * HOUR);
        assert_eq!((plan.parts(), plan.find_gap(&all, &all)), (3, None));
        let chosen = [all[0].clone(), all[2].clone()];
        let plan = RetentionPlan::new(&chosen, &keep, true, 30 * HOUR);
        let gap = plan.find_gap(&chosen, &all).unwrap();
        assert_eq!((gap.service, gap.moment), ("shop", "b-2"));
    }

    #[test]
    fn late_moments_of_a_sum_stay() {
        let moments = [moment(1, "a"), moment(2, "b")];
        let mut plan = RetentionPlan::new(&moments, &[rule(Some(4), 30)], true, 30 * HOUR);
        let (group, _) = plan.together.first_key_value().unwrap();
        let sum = StoredMoment {
            name: group.name(),
            ..moment(3, "sum")
        };
        let name = sum.name.clone();
        let late = plan.leave_late_moments(&[sum]);
        assert_eq!(late, [RolledUpLate { name, late: 2 }]);
        assert_eq!((plan.removed(), plan.sums()), (0, 0));
    }
}
