//! The feed of a recorded process that runs: its profiles, read from outside at intervals, for a
//! view.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use heapprof_files::FileOwner;
use heapprof_terminal::feed::{FeedNews, FeedRequest, SnapshotFeed};

use crate::live::moments::ProcessMoments;
use crate::outside::OutsideProcess;
use crate::residents::resident;

/// Time between two checks whether the process still runs the same program.
const PRESENCE_CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// How often the reader checks whether it should end.
const END_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The state that the reader and the view share.
#[derive(Default)]
struct ProcessFeedState {
    wanted: FeedRequest,
    moments: ProcessMoments,
    ended: Option<String>,
    trouble: Option<String>,
}

/// The feed of a recorded process, which a separate thread reads at intervals.
pub struct ProcessFeed {
    common: Arc<Mutex<ProcessFeedState>>,
    has_left: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    pid: u32,
}

fn lock_state(common: &Mutex<ProcessFeedState>) -> MutexGuard<'_, ProcessFeedState> {
    common.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ProcessFeed {
    /// Starts to read a process, with `pause` between two readings.
    ///
    /// # Errors
    /// There may be no thread for it.
    pub fn start(watched: OutsideProcess, pause: Duration) -> Result<Self> {
        let pid = watched.pid();
        let mut common = ProcessFeedState::default();
        common.moments.program = Some(pid);
        let common = Arc::new(Mutex::new(common));
        let has_left = Arc::new(AtomicBool::new(false));
        let (of_thread, left) = (Arc::clone(&common), Arc::clone(&has_left));
        let thread = std::thread::Builder::new()
            .name("reader".into())
            .spawn(move || read(watched, pause, &of_thread, &left))
            .context("cannot start the reader thread")?;
        Ok(Self {
            common,
            has_left,
            thread: Some(thread),
            pid,
        })
    }
}

/// Reads the process until it ends, or until the view is closed.
fn read(
    mut watched: OutsideProcess,
    pause: Duration,
    common: &Mutex<ProcessFeedState>,
    has_left: &AtomicBool,
) {
    let mut last: Option<Instant> = None;
    let mut looked = Instant::now();
    while !has_left.load(Ordering::Relaxed) {
        if looked.elapsed() >= PRESENCE_CHECK_INTERVAL {
            looked = Instant::now();
            if !watched.is_there() {
                lock_state(common).ended = Some("ended or executed another program".to_string());
                return;
            }
        }
        let is_frozen = lock_state(common).wanted.is_frozen;
        let is_due = last.is_none_or(|last| last.elapsed() >= pause);
        if is_due && !is_frozen {
            let read = watched.read();
            let mut common = lock_state(common);
            match read {
                Ok(profile) => {
                    let began = profile.time_nanos - profile.duration_nanos;
                    let whose = (watched.pid(), began / 1_000_000_000);
                    let added = common.moments.add(FileOwner::us(), whose, profile);
                    common.trouble = added.err().map(|error| format!("{error:#}"));
                }
                // The next check reports that the process has ended.
                Err(_) if !watched.is_there() => {}
                Err(error) => common.trouble = Some(format!("{error:#}")),
            }
            last = Some(Instant::now());
        }
        std::thread::sleep(END_CHECK_INTERVAL);
    }
}

impl SnapshotFeed for ProcessFeed {
    fn next(&mut self, wanted: &FeedRequest) -> FeedNews {
        let mut common = lock_state(&self.common);
        common.wanted = wanted.clone();
        let mut news = common.moments.news(wanted.which);
        news.is_live = true;
        news.is_independent = true;
        news.process.get_or_insert(self.pid);
        if news.ended.is_none() {
            news.ended.clone_from(&common.ended);
        }
        news.clock = news.snapshot.as_ref().and_then(|snapshot| snapshot.seconds);
        news.rss = news.rss.or_else(|| resident(self.pid));
        news.trouble.clone_from(&common.trouble);
        news.stem = PathBuf::from(format!("heapprof.live.{}", self.pid));
        news
    }
}

impl Drop for ProcessFeed {
    fn drop(&mut self) {
        self.has_left.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
