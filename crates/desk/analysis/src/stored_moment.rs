//! A stored profile as a moment of a process, without its samples.

use std::collections::BTreeMap;
use std::rc::Rc;

use foldhash::HashMap;

use heapprof_profile::{Profile, common_default, default_sample_type};

use crate::comment::ProfiledProcess;
use crate::error::AnalysisError;
use crate::sample_plan::SamplePlan;

/// A stored profile without its samples.
#[derive(Clone, Debug)]
pub struct StoredMoment {
    /// The number of the moment in its store.
    pub id: i64,
    /// The name of the stored profile.
    pub name: String,
    /// The time when the values were taken, in nanoseconds since 1970 UTC; 0 if unknown.
    pub time_nanos: i64,
    /// The time when the recording of the process began, in nanoseconds since 1970 UTC; `None` if
    /// the profile does not have it.
    pub start_nanos: Option<i64>,
    /// The labels, which say which service, host and build the moment comes from.
    pub labels: BTreeMap<String, String>,
    /// The number of the process that the moment belongs to.
    pub process: usize,
    /// The pid of the process, if the profile has it.
    pub pid: Option<String>,
    /// The sample types, each with its name and unit.
    pub types: Rc<[(String, String)]>,
    /// The signed sum of each type.
    pub totals: Vec<i64>,
    /// The number of distinct pairs of a stack and a label set.
    pub samples: i64,
    /// The position of the type that reports show by default.
    pub default_type: usize,
}

/// Returns the position of the sample type to show of all moments, in the newest moment's types.
/// If the moments' default types differ, these are the bytes in use.
pub(crate) fn common_type(moments: &[StoredMoment]) -> usize {
    let Some(newest) = moments.last() else {
        return 0;
    };
    let common = common_default(
        moments
            .iter()
            .filter_map(|moment| Some(&*moment.types.get(moment.default_type)?.0)),
    );
    let position = |name: &str| newest.types.iter().position(|t| t.0 == name);
    common.and_then(position).unwrap_or(newest.default_type)
}

/// A store of profiles, as moments of series.
pub trait SeriesStore {
    /// Returns all moments.
    ///
    /// # Errors
    /// The store is damaged, or does not answer.
    fn moments(&self) -> Result<Vec<StoredMoment>, AnalysisError>;

    /// Returns the sum of stored profiles that a plan describes.
    ///
    /// # Errors
    /// The errors are the same as for [`moments`](Self::moments). Also, a sum may not fit in 64
    /// bits.
    fn sum(&self, plan: &SamplePlan) -> Result<Profile, AnalysisError>;
}

/// Gives each moment the number of its process. Moments that name no process belong to one process
/// if they are of one series.
#[derive(Default)]
struct ProcessNumbering {
    /// The known processes with their numbers, by [`ProfiledProcess::key`].
    by_process: HashMap<String, Vec<(ProfiledProcess, usize)>>,
    unnamed: HashMap<String, usize>,
    count: usize,
}

impl ProcessNumbering {
    fn number(
        &mut self,
        process: Option<ProfiledProcess>,
        labels: &BTreeMap<String, String>,
    ) -> usize {
        let next = self.count;
        let number = match process {
            Some(process) => {
                let same = self.by_process.entry(process.key()).or_default();
                match same
                    .iter()
                    .find(|(known, _)| known.is_same_process(&process))
                {
                    Some((_, number)) => *number,
                    None => {
                        same.push((process, next));
                        next
                    }
                }
            }
            None => *self.unnamed.entry(series_of(labels)).or_insert(next),
        };
        self.count += usize::from(number == next);
        number
    }
}

/// The facts that a store has about a profile.
pub(crate) struct StoredProfileFacts {
    pub(crate) id: i64,
    pub(crate) name: String,
    pub(crate) time_nanos: i64,
    pub(crate) duration_nanos: i64,
    pub(crate) default_sample_type: String,
    pub(crate) samples: i64,
    pub(crate) comments: Vec<String>,
    pub(crate) labels: BTreeMap<String, String>,
    /// The sample types with their units. `totals` has the signed sum of each.
    pub(crate) types: Vec<(String, String)>,
    pub(crate) totals: Vec<i64>,
}

/// Makes moments from the facts in a store. Moments with the same types share one list of types.
#[derive(Default)]
pub(crate) struct StoredMomentBuilder {
    moments: Vec<StoredMoment>,
    processes: ProcessNumbering,
    types: Vec<Rc<[(String, String)]>>,
}

impl StoredMomentBuilder {
    pub(crate) fn add(&mut self, said: StoredProfileFacts) {
        let names: Vec<&str> = said.types.iter().map(|t| &*t.0).collect();
        let default_type = default_sample_type(&names, &said.default_sample_type);
        let types = match self.types.iter().find(|known| known[..] == said.types[..]) {
            Some(known) => Rc::clone(known),
            None => {
                let types: Rc<[(String, String)]> = said.types.into();
                self.types.push(Rc::clone(&types));
                types
            }
        };
        let process = ProfiledProcess::new(&said.comments, said.time_nanos, said.duration_nanos);
        self.moments.push(StoredMoment {
            id: said.id,
            name: said.name,
            time_nanos: said.time_nanos,
            start_nanos: process.as_ref().map(ProfiledProcess::start),
            pid: process.as_ref().map(|process| process.pid().to_string()),
            process: self.processes.number(process, &said.labels),
            labels: said.labels,
            types,
            totals: said.totals,
            samples: said.samples,
            default_type,
        });
    }

    /// Returns the moments, in the order in which they were added.
    pub(crate) fn finish(self) -> Vec<StoredMoment> {
        self.moments
    }
}

/// Returns a text that is the same for all moments of a series, and different for other series.
pub(crate) fn series_of(labels: &BTreeMap<String, String>) -> String {
    // A deploy changes the build, but the series goes on.
    let labels = labels
        .iter()
        .filter(|(key, _)| !is_build_label(key) && *key != ROLLED_UP_LABEL);
    labels
        .map(|(key, value)| format!("{key:?}={value:?};"))
        .collect()
}

/// The label of a profile that is the sum of several hosts. Its value is the number of profiles
/// that were added up.
pub const ROLLED_UP_LABEL: &str = "rolled_up";

/// Returns the labels that are the same for all hosts of a service: all labels except `host` and
/// the labels of the build. Returns `None` for a profile without a service.
pub fn service_labels(labels: &BTreeMap<String, String>) -> Option<BTreeMap<String, String>> {
    labels.get("service")?;
    let mut labels = labels.clone();
    labels.retain(|key, _| key != "host" && key != ROLLED_UP_LABEL && !is_build_label(key));
    Some(labels)
}

/// Whether a label names a build of a program.
pub(crate) fn is_build_label(key: &str) -> bool {
    matches!(key, "build" | "version")
}
