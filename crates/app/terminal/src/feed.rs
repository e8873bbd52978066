//! The feed of the view. It supplies snapshots of a running recording, of files, or of a live
//! process.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use heapprof_analysis::{QuestionSource, peak::LargestHeap};

use super::answer::{self, ViewFacts};

/// A source of snapshots.
pub trait SnapshotFeed {
    /// Returns the current state, with the newest snapshot, without waiting for a newer one. The
    /// request `wanted` holds until the next call.
    fn next(&mut self, wanted: &FeedRequest) -> FeedNews;

    /// Interrupts the program, as Ctrl-C would; does nothing if there is no program.
    fn interrupt(&mut self) {}
}

/// The choice of the process that is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProcessChoice {
    /// The program that was started.
    #[default]
    Program,
    /// The process with this process id.
    Process(u32),
    /// The sum of all processes.
    All,
}

/// The view's request to its feed.
#[derive(Clone, Debug, Default)]
pub struct FeedRequest {
    /// Whether the view shall keep its present snapshot.
    pub is_frozen: bool,
    /// The process to show.
    pub which: ProcessChoice,
    /// The number of moments to go forward in a series; negative to go back.
    pub step: i64,
}

/// The profile of a process at one moment.
#[derive(Debug)]
pub struct ViewSnapshot {
    /// A number that is unique among the snapshots of the feed.
    pub id: u64,
    /// Seconds since the recording began; `None` if the profile does not have the time.
    pub seconds: Option<f64>,
    /// RSS in bytes, if it was read.
    pub rss: Option<i64>,
    /// The profile of the moment.
    pub source: QuestionSource,
    /// The facts about the profile as a whole.
    pub facts: ViewFacts,
}

impl ViewSnapshot {
    /// Makes a snapshot, and reads the facts about its profile.
    pub fn new(id: u64, source: QuestionSource) -> Result<Self> {
        let facts = answer::facts(&source)?;
        let nanos = source.profile.duration_nanos;
        Ok(Self {
            id,
            seconds: (nanos > 0).then_some(nanos as f64 / 1e9),
            rss: facts.rss,
            source,
            facts,
        })
    }
}

/// The heap and RSS at one moment, as a point of a curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurvePoint {
    /// Seconds since the start of the first recording that the feed shows.
    pub seconds: f64,
    /// Bytes in use at the moment.
    pub heap: i64,
    /// RSS in bytes, if it was read.
    pub rss: Option<i64>,
}

/// The largest heap in a series of moments.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SnapshotPeak {
    /// Bytes in use at the peak.
    pub bytes: i64,
    /// Seconds from the start of the first recording to the peak; `None` if they are not known.
    pub seconds: Option<f64>,
}

impl SnapshotPeak {
    /// Returns the largest peak in the profiles of `moments`, which are in the order of time. Times
    /// count from the start of the recording of `first`.
    pub fn from_moments(moments: &[Arc<ViewSnapshot>], first: &ViewSnapshot) -> Option<Self> {
        let named = moments.iter().filter_map(|moment| moment.facts.peak);
        let peak = LargestHeap::largest(named)?;
        let profile = &first.source.profile;
        let began = profile.time_nanos.saturating_sub(profile.duration_nanos);
        let since_began = match (profile.time_nanos, peak.time_nanos) {
            (0, _) | (_, None) => peak.since_nanos.filter(|_| moments.len() == 1),
            (_, Some(time)) => Some(time.saturating_sub(began)),
        };
        Some(Self {
            bytes: peak.bytes,
            seconds: since_began.map(|nanos| nanos as f64 / 1e9),
        })
    }
}

/// A process that can be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewProcess {
    /// Process id.
    pub number: u32,
    /// The program's name.
    pub program: String,
}

/// The current state of a feed.
#[derive(Clone, Debug, Default)]
pub struct FeedNews {
    /// The snapshot to show.
    pub snapshot: Option<Arc<ViewSnapshot>>,
    /// The snapshots up to and including the shown one, the oldest first. Some of them may be left
    /// out.
    pub series: Vec<Arc<ViewSnapshot>>,
    /// The curve of the heap and of RSS.
    pub history: Vec<CurvePoint>,
    /// The largest heap in any profile of the feed. The curve may not show it.
    pub peak: Option<SnapshotPeak>,
    /// The processes that can be shown. If there is only one, the user has no choice.
    pub processes: Vec<ViewProcess>,
    /// The process that is shown.
    pub which: ProcessChoice,
    /// The program's name, which is shown until there is a snapshot.
    pub program: String,
    /// Process id of the process that is shown.
    pub process: Option<u32>,
    /// The process's RSS in bytes, if it was read.
    pub rss: Option<i64>,
    /// Seconds since the program began, or since the start of the first recording; `None` if they
    /// are not known.
    pub clock: Option<f64>,
    /// Whether the view shows a running program, or a program that ended while the view was open.
    pub is_live: bool,
    /// Whether the program runs independently of the view.
    pub is_independent: bool,
    /// How the program ended.
    pub ended: Option<String>,
    /// The number of the shown moment, from 1, and the number of all moments.
    pub moment: Option<(usize, usize)>,
    /// The last lines that the program printed.
    pub output: Vec<String>,
    /// The error to show, if something failed.
    pub trouble: Option<String>,
    /// The path of saved profiles and reports. A number and an ending are added to it.
    pub stem: PathBuf,
}
