//! What the view looks at, whoever brings it: a running recording, files, or a live reader.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use heapprof_analysis::{LargestHeap, QuestionSource};

use super::answer::{self, Facts};

/// Whoever brings snapshots.
pub(crate) trait Feed {
    /// What is known now, the newest snapshot among it. It does not wait for a newer one. What
    /// `wanted` says holds until the next call.
    fn next(&mut self, wanted: &Wanted) -> News;

    /// Interrupts the program, as Ctrl-C would; does nothing if there is none.
    fn interrupt(&mut self) {}
}

/// Which process is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Which {
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
pub(crate) struct Wanted {
    /// Whether no newer snapshots are wanted.
    pub(crate) is_frozen: bool,
    pub(crate) which: Which,
    /// By how many moments of a series to go on.
    pub(crate) step: i64,
}

/// A moment of a process.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// A number that no other snapshot of the feed has.
    pub(crate) id: u64,
    /// Seconds since the recording began; `None` if the profile does not say.
    pub(crate) seconds: Option<f64>,
    pub(crate) rss: Option<i64>,
    pub(crate) source: QuestionSource,
    pub(crate) facts: Facts,
}

impl Snapshot {
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
pub(crate) struct Point {
    pub(crate) seconds: f64,
    pub(crate) heap: i64,
    pub(crate) rss: Option<i64>,
}

/// The largest heap of the moments.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SeriesPeak {
    pub(crate) bytes: i64,
    /// When it was, on the clock of the points; `None` if nothing says when.
    pub(crate) seconds: Option<f64>,
}

impl SeriesPeak {
    /// The peak that these moments name, the oldest first: the largest of any of them. The clock
    /// began with the recording of `first`.
    pub(crate) fn of(moments: &[Arc<Snapshot>], first: &Snapshot) -> Option<Self> {
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
pub(crate) struct Process {
    pub(crate) number: u32,
    pub(crate) program: String,
}

/// What a feed knows.
#[derive(Clone, Debug, Default)]
pub(crate) struct News {
    /// The snapshot to show.
    pub(crate) snapshot: Option<Arc<Snapshot>>,
    /// The snapshots up to that one, the oldest first. Some between may be left out.
    pub(crate) series: Vec<Arc<Snapshot>>,
    /// The curve.
    pub(crate) history: Vec<Point>,
    /// The largest heap that any of its moments names. The curve may not have it.
    pub(crate) peak: Option<SeriesPeak>,
    /// The processes that can be shown; one if there is no choice.
    pub(crate) processes: Vec<Process>,
    pub(crate) which: Which,
    /// The program's name, for as long as there is no snapshot.
    pub(crate) program: String,
    pub(crate) process: Option<u32>,
    pub(crate) rss: Option<i64>,
    /// Seconds since the program began, or the snapshot's.
    pub(crate) clock: Option<f64>,
    /// Whether a program runs or ran under this view.
    pub(crate) is_live: bool,
    /// Whether it goes on by itself, whatever becomes of the view.
    pub(crate) is_apart: bool,
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
