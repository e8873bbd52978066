//! `heapprof live`: shows a recorded process in the terminal, read from outside while it runs.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use heapprof_files::FileOwner;
use heapprof_recorder::outside::OutsideProcess;
use heapprof_recorder::{ProcessMoments, resident};
use heapprof_terminal::feed::{FeedNews, FeedRequest, SnapshotFeed};
use heapprof_terminal::plain_view::PlainBlocks;
use heapprof_terminal::run::ViewSignals;
use heapprof_terminal::screen::tty;

use super::tui;
use crate::args::LiveArgs;
use crate::context::CommandContext;
use crate::{output, outside};

/// Time between two readings.
const READ_INTERVAL: Duration = Duration::from_millis(500);
/// Time between two blocks of lines, if there is no terminal.
const PLAIN_INTERVAL: Duration = Duration::from_secs(10);
/// How often the reader checks whether it should end.
const END_CHECK_INTERVAL: Duration = Duration::from_millis(50);

pub(super) fn run(context: &CommandContext, args: &LiveArgs) -> Result<()> {
    let watched = outside::find_for_reader(&args.process)?;
    match tty() {
        Some(tty) => tui::view(
            context,
            tty,
            &mut ProcessFeed::begin(watched, READ_INTERVAL)?,
        ),
        None if std::io::stdout().is_terminal() => {
            bail!(
                "live needs a terminal that it may draw on (TERM is set, and the job is in front)"
            )
        }
        None => {
            let signals = ViewSignals::listen(true, heapprof_recorder::inherited_state::is_ignored)
                .context("signals")?;
            let is_over = || signals.ends.load(Ordering::Relaxed);
            let printed = plain(
                &mut ProcessFeed::begin(watched, PLAIN_INTERVAL)?,
                PLAIN_INTERVAL,
                &is_over,
            );
            tui::exit_if_signalled(signals);
            printed
        }
    }
}

/// Prints a block of lines in each interval, until the process has ended.
fn plain(feed: &mut ProcessFeed, pause: Duration, is_over: &dyn Fn() -> bool) -> Result<()> {
    let mut plain = PlainBlocks::default();
    let mut last: Option<Instant> = None;
    loop {
        let news = feed.next(&FeedRequest::default());
        let has_ended = news.ended.is_some();
        let is_time = last.is_none_or(|last| last.elapsed() >= pause);
        if (has_ended || is_time)
            && let Some(block) = plain.block(news)
        {
            last = Some(Instant::now());
            output::text(None, &format!("{block}\n"))?;
        }
        if has_ended || is_over() {
            return Ok(());
        }
        std::thread::sleep(END_CHECK_INTERVAL);
    }
}

/// The state that the reader and the view share.
#[derive(Default)]
struct ProcessFeedState {
    wanted: FeedRequest,
    moments: ProcessMoments,
    ended: Option<String>,
    trouble: Option<String>,
}

/// The feed of a process, which a separate thread reads at intervals.
struct ProcessFeed {
    common: Arc<Mutex<ProcessFeedState>>,
    has_left: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    pid: u32,
}

fn lock_state(common: &Mutex<ProcessFeedState>) -> MutexGuard<'_, ProcessFeedState> {
    common.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ProcessFeed {
    fn begin(watched: OutsideProcess, pause: Duration) -> Result<Self> {
        let pid = watched.pid();
        let mut common = ProcessFeedState::default();
        common.moments.program = Some(pid);
        let common = Arc::new(Mutex::new(common));
        let has_left = Arc::new(AtomicBool::new(false));
        let (of_thread, left) = (Arc::clone(&common), Arc::clone(&has_left));
        let thread = std::thread::Builder::new()
            .name("reader".into())
            .spawn(move || read(watched, pause, &of_thread, &left))
            .context("the reader needs a thread")?;
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
        if looked.elapsed() >= READ_INTERVAL {
            looked = Instant::now();
            if !watched.is_there() {
                lock_state(common).ended = Some("ended, or became another program".to_string());
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
