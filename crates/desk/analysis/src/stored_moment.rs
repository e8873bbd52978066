//! A stored profile as a moment of a process of a series.

use std::collections::BTreeMap;
use std::rc::Rc;

use foldhash::HashMap;

use heapprof_profile::{Profile, default_sample_type};

use crate::comment::ProfiledProcess;
use crate::error::AnalysisError;
use crate::sample_plan::SamplePlan;

/// A stored profile without its samples.
#[derive(Clone, Debug)]
pub struct StoredMoment {
    /// Its number in its store.
    pub id: i64,
    /// Its name.
    pub name: String,
    /// When its values were taken, in nanoseconds since 1970 UTC; 0 if unknown.
    pub time_nanos: i64,
    /// When its process was first recorded; `None` if it does not say.
    pub start_nanos: Option<i64>,
    /// Whose moment it is.
    pub labels: BTreeMap<String, String>,
    /// The process, by a number that only its moments have.
    pub process: usize,
    /// Its pid, if it says that.
    pub pid: Option<String>,
    /// Its sample types and their units.
    pub types: Rc<[(String, String)]>,
    /// The signed sum of each type.
    pub totals: Vec<i64>,
    /// The number of distinct stacks with distinct labels.
    pub samples: i64,
    /// The type that reports show by default, by its position.
    pub default_type: usize,
}

/// Where moments are stored.
pub trait SeriesStore {
    /// All moments.
    ///
    /// # Errors
    /// The store may be damaged, or not answer.
    fn moments(&self) -> Result<Vec<StoredMoment>, AnalysisError>;

    /// Adds up what is stored as a plan says.
    ///
    /// # Errors
    /// They are those of [`moments`](Self::moments), and a sum may be beyond 64 bits.
    fn sum(&self, plan: &SamplePlan) -> Result<Profile, AnalysisError>;
}

/// Gives moments the numbers of their processes. A moment that names no process is of the one
/// process that its labels have.
#[derive(Default)]
struct ProcessNumbering {
    /// The processes of one program, pid and host, with their numbers.
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

/// What a store says of a profile.
pub(crate) struct StoredProfileFacts {
    pub(crate) id: i64,
    pub(crate) name: String,
    pub(crate) time_nanos: i64,
    pub(crate) duration_nanos: i64,
    pub(crate) default_sample_type: String,
    pub(crate) samples: i64,
    pub(crate) comments: Vec<String>,
    pub(crate) labels: BTreeMap<String, String>,
    /// The sample types and their units, and the signed sum of each.
    pub(crate) types: Vec<(String, String)>,
    pub(crate) totals: Vec<i64>,
}

/// Makes moments of what a store says. Moments with the same types share them.
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

    /// The moments, in the order in which they were added.
    pub(crate) fn finish(self) -> Vec<StoredMoment> {
        self.moments
    }
}

/// A text that all moments of a series have in common, and no others.
pub(crate) fn series_of(labels: &BTreeMap<String, String>) -> String {
    // A build changes with a deploy, and the series goes on.
    let labels = labels
        .iter()
        .filter(|(key, _)| !is_build_label(key) && *key != ROLLED_UP_LABEL);
    labels
        .map(|(key, value)| format!("{key:?}={value:?};"))
        .collect()
}

/// The label of a profile that is the sum of several hosts; it says of how many profiles.
pub const ROLLED_UP_LABEL: &str = "rolled_up";

/// The labels that all hosts of a service have in common, whichever hosts there are: all labels
/// except `host` and those of the build. A profile without a service has none in common with
/// others.
pub fn service_labels(labels: &BTreeMap<String, String>) -> Option<BTreeMap<String, String>> {
    labels.get("service")?;
    let mut labels = labels.clone();
    labels.retain(|key, _| key != "host" && key != ROLLED_UP_LABEL && !is_build_label(key));
    Some(labels)
}

/// Whether a label says which build of a program it is.
pub(crate) fn is_build_label(key: &str) -> bool {
    matches!(key, "build" | "version")
}
