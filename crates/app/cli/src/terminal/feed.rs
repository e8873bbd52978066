//! What the view looks at, whoever brings it: a running recording, files, or a live reader.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use heapprof_analysis::{LargestHeap, QuestionSource};

use super::answer::{self, ViewFacts};

/// Whoever brings snapshots.
pub(crate) trait SnapshotFeed {
    /// What is known now, the newest snapshot among it. It does not wait for a newer one. What
    /// `wanted` says holds until the next call.
    fn next(&mut self, wanted: &FeedRequest) -> FeedNews;

    /// Interrupts the program, as Ctrl-C would; does nothing if there is none.
    fn interrupt(&mut self) {}
}

/// Which process is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ProcessChoice {
    /// The program that was started.
    #[default]
    Program,
    /// The process with this number.
    Process(u32),
    /// The sum of all.
    All,
}

/// What the view wants.
#[derive(Clone, Debug, Default)]
pub(crate) struct FeedRequest {
    /// Whether no newer snapshots are wanted.
    pub(crate) is_frozen: bool,
    pub(crate) which: ProcessChoice,
    /// By how many moments of a series to go on.
    pub(crate) step: i64,
}

/// A moment of a process.
#[derive(Debug)]
pub(crate) struct ViewSnapshot {
    /// A number that no other snapshot of the feed has.
    pub(crate) id: u64,
    /// Seconds since the recording began; `None` if the profile does not say.
    pub(crate) seconds: Option<f64>,
    pub(crate) rss: Option<i64>,
    pub(crate) source: QuestionSource,
    pub(crate) facts: ViewFacts,
}

impl ViewSnapshot {
    /// Reads the facts of a profile.
    pub(crate) fn new(id: u64, source: QuestionSource) -> Result<Self> {
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

/// The heap and RSS at a moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CurvePoint {
    pub(crate) seconds: f64,
    pub(crate) heap: i64,
    pub(crate) rss: Option<i64>,
}

/// The largest heap of the moments.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SnapshotPeak {
    pub(crate) bytes: i64,
    /// When it was, on the clock of the points; `None` if nothing says when.
    pub(crate) seconds: Option<f64>,
}

impl SnapshotPeak {
    /// The peak that these moments name, the oldest first: the largest of any of them. The clock
    /// began with the recording of `first`.
    pub(crate) fn from_moments(
        moments: &[Arc<ViewSnapshot>],
        first: &ViewSnapshot,
    ) -> Option<Self> {
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
pub(crate) struct ViewProcess {
    pub(crate) number: u32,
    pub(crate) program: String,
}

/// What a feed knows.
#[derive(Clone, Debug, Default)]
pub(crate) struct FeedNews {
    /// The snapshot to show.
    pub(crate) snapshot: Option<Arc<ViewSnapshot>>,
    /// The snapshots up to that one, the oldest first. Some between may be left out.
    pub(crate) series: Vec<Arc<ViewSnapshot>>,
    /// The curve.
    pub(crate) history: Vec<CurvePoint>,
    /// The largest heap that any of its moments names. The curve may not have it.
    pub(crate) peak: Option<SnapshotPeak>,
    /// The processes that can be shown; one if there is no choice.
    pub(crate) processes: Vec<ViewProcess>,
    pub(crate) which: ProcessChoice,
    /// The program's name, for as long as there is no snapshot.
    pub(crate) program: String,
    pub(crate) process: Option<u32>,
    pub(crate) rss: Option<i64>,
    /// Seconds since the program began, or the snapshot's.
    pub(crate) clock: Option<f64>,
    /// Whether a program runs or ran under this view.
    pub(crate) is_live: bool,
    /// Whether it goes on by itself, whatever becomes of the view.
    pub(crate) is_independent: bool,
    /// How the program ended.
    pub(crate) ended: Option<String>,
    /// Which of how many moments is shown, from 1.
    pub(crate) moment: Option<(usize, usize)>,
    /// The last lines that the program printed.
    pub(crate) output: Vec<String>,
    /// What went wrong.
    pub(crate) trouble: Option<String>,
    /// Where saved profiles and reports go: a path without its ending.
    pub(crate) stem: PathBuf,
}
