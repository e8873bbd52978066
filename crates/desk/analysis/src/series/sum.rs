//! The chosen moments, added up to one profile.
//!
//! Values in use are gauges: the values of all processes at one time are added up to a state. Over
//! time, the last state, the mean of all states, or the largest state is taken. Allocated values
//! are counters: for each process, the count of the first moment is subtracted from the count of
//! the last moment. A process that began after the first chosen moment counts from its beginning.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::selector::MomentSelector;
use super::state::{SeriesState, states};
use crate::error::AnalysisError;
use crate::question::QuestionSource;
use crate::sample_plan::{NamedProfile, PlannedAddition, SamplePlan};
use crate::stored_moment::{
    ROLLED_UP_LABEL, SeriesStore, StoredMoment, common_type, service_labels,
};

/// The way to combine the values in use of several states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MomentAggregation {
    /// The values of the last state.
    #[default]
    Last,
    /// The mean of all states.
    Mean,
    /// The values of the state in which the default type has the largest sum.
    Max,
}

/// The moments that a question is about.
#[derive(Clone, Debug)]
pub struct MomentSelection {
    /// The selector as it was typed.
    pub name: String,
    /// The moments, in the order of their times.
    pub moments: Vec<StoredMoment>,
    /// Whether the selector has an earliest time.
    has_begin: bool,
    pub(crate) states: Vec<SeriesState>,
}

/// Chooses the moments that satisfy a selector.
///
/// # Errors
/// The selector chooses no moment.
pub fn choose_moments(
    name: &str,
    selector: &MomentSelector,
    moments: &[StoredMoment],
) -> Result<MomentSelection, AnalysisError> {
    let mut chosen = selector.choose(moments);
    // Moments without a time can't be compared with moments that have one.
    if chosen.iter().any(|moment| moment.time_nanos != 0) {
        chosen.retain(|moment| moment.time_nanos != 0);
    }
    if chosen.is_empty() {
        let mut services: Vec<String> = moments
            .iter()
            .filter_map(|m| m.labels.get("service").cloned())
            .collect();
        services.sort();
        services.dedup();
        return Err(AnalysisError::NothingChosen {
            selector: name.to_string(),
            moments: moments.len(),
            services,
        });
    }
    Ok(MomentSelection {
        name: name.to_string(),
        states: states(&chosen),
        has_begin: selector.since().is_some(),
        moments: chosen,
    })
}

/// Makes a selection of these moments, under a name. They must be in the order of their times.
pub fn selection_from_moments(name: &str, moments: Vec<StoredMoment>) -> MomentSelection {
    MomentSelection {
        name: name.to_string(),
        states: states(&moments),
        has_begin: false,
        moments,
    }
}

/// Adds moments of a service up to one profile. There should be one moment for each process: its
/// last one. The profile has the labels that all hosts of the service have in common. Allocated
/// values are left out, because their sum over processes that start and end has no meaning.
///
/// # Errors
/// A sum is beyond 64 bits, or the database is damaged.
pub fn roll_up(
    store: &dyn SeriesStore,
    name: &str,
    chosen: &MomentSelection,
) -> Result<NamedProfile, AnalysisError> {
    let first = chosen.moments.first();
    let labels = first.and_then(|moment| service_labels(&moment.labels));
    let mut labels = labels.unwrap_or_default();
    labels.insert(
        ROLLED_UP_LABEL.to_string(),
        chosen.moments.len().to_string(),
    );
    let newest = chosen.moments.last();
    let types = chosen.types();
    let types: Vec<(String, String)> = types.into_iter().filter(|t| !is_counter(&t.0)).collect();
    let parts = chosen.moments.iter().map(|moment| {
        let own = types
            .iter()
            .enumerate()
            .filter(|(_, t)| moment.types.contains(t));
        let adds = own.map(|(to, from)| PlannedAddition::once(from, to));
        (moment.id, adds.collect())
    });
    let plan = SamplePlan {
        divisor: 1,
        is_whole: false,
        parts: parts.collect(),
        types,
    };
    let mut profile = store.sum(&plan)?;
    profile.time_nanos = newest.map_or(0, |m| m.time_nanos);
    profile.duration_nanos = 0;
    Ok((name.to_string(), Arc::new(profile), labels))
}

impl MomentSelection {
    /// Adds the moments up to one profile.
    ///
    /// # Errors
    /// A sum is beyond 64 bits, or the database is damaged.
    pub fn profile(
        &self,
        store: &dyn SeriesStore,
        over: MomentAggregation,
    ) -> Result<QuestionSource, AnalysisError> {
        let mut profile = store.sum(&self.plan(over))?;
        if let Some(shown) = self.shown_type() {
            profile.default_sample_type = profile.strings.intern(&shown.0);
        }
        Ok(QuestionSource::new(&self.name, profile))
    }

    /// Returns the names of the profiles whose values in use are added up; `None` if any profile
    /// does not count exactly once.
    pub fn names(&self, over: MomentAggregation) -> Option<Vec<String>> {
        let (divisor, times) = self.gauges(over);
        let is_once = divisor == 1 && times.values().all(|&times| times == 1);
        let names = times.keys().map(|&at| self.moments[at].name.clone());
        is_once.then(|| names.collect())
    }

    /// Returns the number of processes, and the number of processes in the last state.
    pub fn processes(&self) -> [usize; 2] {
        let mut all: Vec<usize> = self.moments.iter().map(|m| m.process).collect();
        all.sort_unstable();
        all.dedup();
        [
            all.len(),
            self.states.last().map_or(0, |state| state.moments.len()),
        ]
    }

    /// Returns the number of states.
    pub fn steps(&self) -> usize {
        self.states.len()
    }

    /// Returns the sample type to show of all moments.
    fn shown_type(&self) -> Option<&(String, String)> {
        let newest = self.moments.last()?;
        newest.types.get(common_type(&self.moments))
    }

    /// Returns the signed sum of the type to show in each state.
    fn totals(&self) -> Vec<i128> {
        let shown = self.shown_type();
        let of = |&at: &usize| {
            let moment = &self.moments[at];
            let position = moment.types.iter().position(|own| Some(own) == shown);
            position.map_or(0, |at| i128::from(moment.totals[at]))
        };
        let states = self.states.iter();
        states
            .map(|state| state.moments.iter().map(of).sum())
            .collect()
    }

    /// Returns the types of all moments, in the order in which they first occur.
    pub(crate) fn types(&self) -> Vec<(String, String)> {
        let mut types: Vec<(String, String)> = Vec::new();
        for moment in &self.moments {
            for own in moment.types.iter() {
                if !types.contains(own) {
                    types.push(own.clone());
                }
            }
        }
        types
    }

    /// Returns the plan of the sum.
    pub(crate) fn plan(&self, over: MomentAggregation) -> SamplePlan {
        let types = self.types();
        let (divisor, gauges) = self.gauges(over);
        let counters = self.counters();
        let mut parts: BTreeMap<usize, Vec<PlannedAddition>> = BTreeMap::new();
        for (to, from) in types.iter().enumerate() {
            let times = match is_counter(&from.0) {
                true => &counters,
                false => &gauges,
            };
            for (&at, &times) in times {
                let times = match is_counter(&from.0) {
                    true => times * divisor,
                    false => times,
                };
                if times != 0 && self.moments[at].types.contains(from) {
                    parts.entry(at).or_default().push(PlannedAddition {
                        from: from.clone(),
                        to,
                        times,
                        with_spread: true,
                    });
                }
            }
        }
        SamplePlan {
            types,
            divisor,
            is_whole: false,
            parts: parts
                .into_iter()
                .map(|(at, adds)| (self.moments[at].id, adds))
                .collect(),
        }
    }

    /// Returns the divisor of the sum of values in use, and how often each moment counts in that
    /// sum.
    fn gauges(&self, over: MomentAggregation) -> (i64, BTreeMap<usize, i64>) {
        let of_state = |state: &SeriesState| state.moments.iter().map(|&at| (at, 1)).collect();
        match over {
            MomentAggregation::Last => (1, self.states.last().map(of_state).unwrap_or_default()),
            MomentAggregation::Max => {
                let totals = self.totals();
                let most = (0..totals.len()).max_by_key(|&at| (totals[at], at));
                (
                    1,
                    most.map(|at| of_state(&self.states[at]))
                        .unwrap_or_default(),
                )
            }
            MomentAggregation::Mean => {
                let mut times = BTreeMap::new();
                for state in &self.states {
                    for &at in &state.moments {
                        *times.entry(at).or_default() += 1;
                    }
                }
                (self.states.len().max(1) as i64, times)
            }
        }
    }

    /// Returns how often each moment counts for allocated values: 1 for the last moment of a
    /// process, and -1 for its first moment, unless the process counts from its beginning.
    fn counters(&self) -> BTreeMap<usize, i64> {
        let mut of: BTreeMap<usize, [usize; 2]> = BTreeMap::new();
        for (at, moment) in self.moments.iter().enumerate() {
            of.entry(moment.process).or_insert([at, at])[1] = at;
        }
        let begin = self.moments.first().map_or(0, |m| m.time_nanos);
        // With one moment of each process, that moment counts all that the process has allocated
        // until then.
        let is_one_each = of.values().all(|[first, last]| first == last) && !self.has_begin;
        let mut times = BTreeMap::new();
        for [first, last] in of.into_values() {
            *times.entry(last).or_default() += 1;
            let began = self.moments[first].start_nanos;
            let is_from_begin = began.is_some_and(|began| began >= begin);
            if !is_one_each && !is_from_begin {
                *times.entry(first).or_default() -= 1;
            }
        }
        times
    }
}

/// Whether values of a type only grow while a process runs.
pub fn is_counter(sample_type: &str) -> bool {
    sample_type.contains("alloc_") || sample_type.starts_with("temporary_")
}

#[cfg(test)]
mod tests {
    use super::super::selector::tests::moment;
    use super::*;

    /// Returns the plan of a selection for a type: the divisor, and how often each moment counts.
    fn times(
        chosen: &MomentSelection,
        over: MomentAggregation,
        of: &str,
    ) -> (i64, Vec<(i64, i64)>) {
        let plan = chosen.plan(over);
        let parts = plan.parts.iter().flat_map(|(id, adds)| {
            let adds = adds.iter().filter(|add| add.from.0 == of);
            adds.map(|add| (*id, add.times))
        });
        (plan.divisor, parts.collect())
    }

    fn choice(moments: &[StoredMoment], text: &str) -> MomentSelection {
        let selector = MomentSelector::parse(text, 0).unwrap();
        choose_moments(text, &selector, moments).unwrap()
    }

    fn both_types(mut moment: StoredMoment, totals: [i64; 2]) -> StoredMoment {
        let types = [("alloc_space", "bytes"), ("inuse_space", "bytes")];
        moment.types = types.map(|(t, u)| (t.to_string(), u.to_string())).into();
        moment.totals = totals.to_vec();
        moment.default_type = 1;
        moment
    }

    #[test]
    fn gauges_are_of_a_state_and_counters_of_a_span() {
        let mut moments = Vec::new();
        for n in 0..3 {
            let total = [100 * n, if n == 1 { 9 } else { 1 }];
            moments.push(both_types(moment(10 + n, "web1", 1, 60 * n + 60), total));
            moments.push(both_types(moment(20 + n, "web2", 2, 60 * n + 61), total));
        }
        let all = choice(&moments, "service=shop");
        let (last, mean, max) = (
            MomentAggregation::Last,
            MomentAggregation::Mean,
            MomentAggregation::Max,
        );
        assert_eq!(
            times(&all, last, "inuse_space"),
            (1, vec![(12, 1), (22, 1)])
        );
        assert_eq!(times(&all, max, "inuse_space"), (1, vec![(11, 1), (21, 1)]));
        let each: Vec<(i64, i64)> = [10, 20, 11, 21, 12, 22].map(|id| (id, 1)).into();
        assert_eq!(times(&all, mean, "inuse_space"), (3, each));
        let span = vec![(10, -1), (20, -1), (12, 1), (22, 1)];
        assert_eq!(times(&all, last, "alloc_space"), (1, span));
        let tripled = vec![(10, -3), (20, -3), (12, 3), (22, 3)];
        assert_eq!(times(&all, mean, "alloc_space"), (3, tripled));
        // One moment of each process counts all that was allocated.
        let ends = choice(&moments, "last=1");
        assert_eq!(
            times(&ends, last, "alloc_space"),
            (1, vec![(12, 1), (22, 1)])
        );
    }

    #[test]
    fn a_process_that_began_in_between_counts_from_its_beginning() {
        let mut moments: Vec<StoredMoment> = (0..4)
            .map(|n| both_types(moment(n, "web1", n as usize / 2, 60 * n + 60), [1, 1]))
            .collect();
        for moment in &mut moments[2..] {
            moment.start_nanos = Some(160_000_000_000);
        }
        let all = choice(&moments, "service=shop");
        let expected = vec![(0, -1), (1, 1), (3, 1)];
        assert_eq!(
            times(&all, MomentAggregation::Last, "alloc_space"),
            (1, expected)
        );
        assert_eq!(
            times(&all, MomentAggregation::Last, "inuse_space"),
            (1, vec![(3, 1)])
        );
        assert_eq!(all.processes(), [2, 1]);
    }

    #[test]
    fn a_choice_of_nothing_says_what_there_is() {
        let selector = MomentSelector::parse("service=stop", 0).unwrap();
        let error = choose_moments("service=stop", &selector, &[moment(1, "a", 1, 1)]);
        let error = error.unwrap_err().to_string();
        assert!(
            error.contains("service=stop") && error.contains("shop"),
            "{error}"
        );
    }
}
