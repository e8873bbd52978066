//! The list of all series, with one row for each.

use std::collections::BTreeMap;

use super::state::states;
use crate::header::SampleType;
use crate::stored_moment::{StoredMoment, common_type, is_build_label, series_of};

/// A row about a series.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeriesSummary {
    /// The labels of the series' newest moment.
    pub labels: BTreeMap<String, String>,
    /// The number of moments.
    pub moments: usize,
    /// The number of processes.
    pub processes: usize,
    /// The number of builds or versions, if the moments have such labels.
    pub builds: usize,
    /// The time of the first moment, in nanoseconds since 1970 UTC.
    pub first_nanos: i64,
    /// The time of the last moment, in nanoseconds since 1970 UTC.
    pub last_nanos: i64,
    /// The sample type of the totals: the default type of the newest moment.
    pub sample_type: SampleType,
    /// The sums over time: the time of each step, and the sum at that time.
    pub totals: Vec<(i64, i128)>,
}

/// Lists the series of these moments, which must be in the order of time. Series are in the order
/// of their labels.
pub fn list_series(moments: &[StoredMoment]) -> Vec<SeriesSummary> {
    let mut of: BTreeMap<String, Vec<StoredMoment>> = BTreeMap::new();
    for moment in moments {
        let series = of.entry(series_of(&moment.labels)).or_default();
        series.push(moment.clone());
    }
    of.into_values()
        .map(|moments| summarize_series(&moments))
        .collect()
}

fn summarize_series(moments: &[StoredMoment]) -> SeriesSummary {
    let newest = &moments[moments.len() - 1];
    let (name, unit) = newest
        .types
        .get(common_type(moments))
        .cloned()
        .unwrap_or_default();
    let total = |&at: &usize| {
        let moment: &StoredMoment = &moments[at];
        let position = moment.types.iter().position(|t| t.0 == name && t.1 == unit);
        position.map_or(0, |position| i128::from(moment.totals[position]))
    };
    let distinct = |of: &dyn Fn(&StoredMoment) -> String| {
        let mut all: Vec<String> = moments.iter().map(of).filter(|t| !t.is_empty()).collect();
        all.sort_unstable();
        all.dedup();
        all.len()
    };
    let build = |moment: &StoredMoment| {
        let builds = moment.labels.iter().filter(|(key, _)| is_build_label(key));
        builds.map(|(_, value)| format!("{value};")).collect()
    };
    SeriesSummary {
        labels: newest.labels.clone(),
        moments: moments.len(),
        processes: distinct(&|moment| moment.process.to_string()),
        builds: distinct(&build),
        first_nanos: moments[0].time_nanos,
        last_nanos: newest.time_nanos,
        totals: states(moments)
            .iter()
            .map(|state| (state.time_nanos, state.moments.iter().map(total).sum()))
            .collect(),
        sample_type: SampleType { r#type: name, unit },
    }
}

#[cfg(test)]
mod tests {
    use super::super::selector::tests::moment;
    use super::*;

    #[test]
    fn a_series_goes_on_after_a_deploy() {
        let mut moments: Vec<StoredMoment> = (0..4)
            .map(|n| moment(n, "web1", n as usize / 2, 60 * n))
            .collect();
        moments.push(moment(9, "web2", 7, 500));
        for (at, build) in ["a", "a", "b", "b"].into_iter().enumerate() {
            let labels = &mut moments[at].labels;
            labels.insert("build".to_string(), build.to_string());
        }
        let found = list_series(&moments);
        let [one, two] = &found[..] else {
            panic!("{found:?}");
        };
        assert_eq!((one.moments, one.processes, one.builds), (4, 2, 2));
        assert_eq!((&*one.labels["build"], one.totals.len()), ("b", 4));
        assert_eq!((two.moments, two.processes, two.builds), (1, 1, 0));
    }
}
