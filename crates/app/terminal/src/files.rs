//! A feed of profiles from files: one profile, or the moments of a series.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, bail};
use heapprof_analysis::{QuestionSource, in_order_of_time, timeline::TimelineRow};

use super::answer;
use super::feed::{
    CurvePoint, FeedNews, FeedRequest, SnapshotFeed, SnapshotPeak, ViewProcess, ViewSnapshot,
};

/// The feed of profiles in files, in the order of time.
pub struct FileFeed {
    snapshots: Vec<Arc<ViewSnapshot>>,
    /// The curve of the recording, if there is a single profile; empty if there are several.
    curve: Vec<CurvePoint>,
    at: usize,
}

impl FileFeed {
    /// Makes a feed that first shows the last profile.
    pub fn new(mut sources: Vec<QuestionSource>) -> Result<Self> {
        in_order_of_time(&mut sources);
        let snapshots: Vec<_> = sources
            .into_iter()
            .zip(1..)
            .map(|(source, id)| Ok(Arc::new(ViewSnapshot::new(id, source)?)))
            .collect::<Result<_>>()?;
        if snapshots.is_empty() {
            bail!("no profile is given");
        }
        let at = snapshots.len() - 1;
        let curve = match &snapshots[..] {
            [only] => curve(&answer::history(&only.source)?),
            _ => Vec::new(),
        };
        Ok(Self {
            snapshots,
            curve,
            at,
        })
    }

    /// Returns the time of a moment, in seconds since the start of the first moment's recording.
    /// For a profile without a time, returns the position of the moment.
    fn seconds(&self, at: usize) -> f64 {
        let time = |at: usize| self.snapshots[at].source.profile.time_nanos;
        let since = (time(at) - time(0)) as f64 / 1e9;
        match (time(at), self.snapshots[0].seconds) {
            (0, _) => at as f64,
            (_, first) => since + first.unwrap_or(0.0),
        }
    }
}

/// Converts a history to points. A moment that has only RSS gets the heap of the moment before it.
fn curve(rows: &[TimelineRow]) -> Vec<CurvePoint> {
    let (mut heap, mut rss) = (None, None);
    let points = rows.iter().filter_map(|row| {
        heap = row.inuse_space.or(heap);
        rss = row.rss.or(rss);
        Some(CurvePoint {
            seconds: row.since_nanos as f64 / 1e9,
            heap: heap?,
            rss,
        })
    });
    points.collect()
}

impl SnapshotFeed for FileFeed {
    fn next(&mut self, wanted: &FeedRequest) -> FeedNews {
        let last = self.snapshots.len() as i64 - 1;
        self.at = (self.at as i64 + wanted.step).clamp(0, last) as usize;
        let snapshot = Arc::clone(&self.snapshots[self.at]);
        let of_moment = |at: usize| {
            let one = &self.snapshots[at];
            Some(CurvePoint {
                seconds: self.seconds(at),
                heap: one.facts.in_use?,
                rss: one.rss,
            })
        };
        let history = match self.curve.is_empty() {
            true => (0..self.snapshots.len()).filter_map(of_moment).collect(),
            false => self.curve.clone(),
        };
        let facts = &snapshot.facts;
        let program = match facts.program.as_str() {
            "" => snapshot.source.name.clone(),
            program => program.to_string(),
        };
        FeedNews {
            series: self.snapshots[..=self.at].to_vec(),
            peak: SnapshotPeak::from_moments(&self.snapshots, &self.snapshots[0]),
            history,
            processes: vec![ViewProcess {
                number: facts.process.unwrap_or_default(),
                program: program.clone(),
            }],
            program,
            process: facts.process,
            rss: snapshot.rss,
            clock: (snapshot.source.profile.time_nanos != 0).then(|| self.seconds(self.at)),
            moment: Some((self.at + 1, self.snapshots.len())),
            stem: PathBuf::from("heapprof.view"),
            snapshot: Some(snapshot),
            ..FeedNews::default()
        }
    }
}
