//! `heapprof live`: the terminal view of a recorded process, read from outside while it runs.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::record::{Moments, resident};
use super::{Shared, tui};
use crate::args::LiveArgs;
use crate::output;
use crate::outside::Watched;
use crate::place::Owner;
use crate::terminal::feed::{Feed, News, Wanted};
use crate::terminal::plain::Plain;
use crate::terminal::run::Signals;
use crate::terminal::screen::tty;

/// How long a reading waits after the one before.
const PAUSE: Duration = Duration::from_millis(500);
/// The same for blocks of lines, where there is no terminal.
const PLAIN_PAUSE: Duration = Duration::from_secs(10);
/// How often the reader looks whether it is to end.
const TICK: Duration = Duration::from_millis(50);

pub(super) fn run(shared: &Shared, args: &LiveArgs) -> Result<()> {
    let watched = Watched::find_for_reader(&args.process)?;
    match tty() {
        Some(tty) => tui::view(shared, tty, &mut Reading::begin(watched, PAUSE)?),
        None if std::io::stdout().is_terminal() => {
            bail!(
                "live needs a terminal that it may draw on (TERM is set, and the job is in front)"
            )
        }
        None => {
            let signals = Signals::listen(true).context("signals")?;
            let is_over = || signals.ends.load(Ordering::Relaxed);
            let printed = plain(
                &mut Reading::begin(watched, PLAIN_PAUSE)?,
                PLAIN_PAUSE,
                &is_over,
            );
            tui::end_if_told(signals);
            printed
        }
    }
}

/// Prints a block of lines each time, until the process has ended.
fn plain(feed: &mut Reading, pause: Duration, is_over: &dyn Fn() -> bool) -> Result<()> {
    let mut plain = Plain::default();
    let mut last: Option<Instant> = None;
    loop {
        let news = feed.next(&Wanted::default());
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
        std::thread::sleep(TICK);
    }
}

/// What the reader and the view share.
#[derive(Default)]
struct Common {
    wanted: Wanted,
    moments: Moments,
    ended: Option<String>,
    trouble: Option<String>,
}

/// A process that is read every now and then, by a thread of its own.
struct Reading {
    common: Arc<Mutex<Common>>,
    has_left: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    pid: u32,
}

fn locked(common: &Mutex<Common>) -> MutexGuard<'_, Common> {
    common.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Reading {
    fn begin(watched: Watched, pause: Duration) -> Result<Self> {
        let pid = watched.pid();
        let mut common = Common::default();
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

/// Reads the process until it ends, or nobody looks any more.
fn read(mut watched: Watched, pause: Duration, common: &Mutex<Common>, has_left: &AtomicBool) {
    let mut last: Option<Instant> = None;
    let mut looked = Instant::now();
    while !has_left.load(Ordering::Relaxed) {
        if looked.elapsed() >= PAUSE {
            looked = Instant::now();
            if !watched.is_there() {
                locked(common).ended = Some("ended, or became another program".to_string());
                return;
            }
        }
        let is_frozen = locked(common).wanted.is_frozen;
        let is_due = last.is_none_or(|last| last.elapsed() >= pause);
        if is_due && !is_frozen {
            let read = watched.read();
            let mut common = locked(common);
            match read {
                Ok(profile) => {
                    let began = profile.time_nanos - profile.duration_nanos;
                    let whose = (watched.pid(), began / 1_000_000_000);
                    let added = common.moments.add(Owner::us(), whose, profile);
                    common.trouble = added.err().map(|error| format!("{error:#}"));
                }
                // That it has ended is seen at the next look.
                Err(_) if !watched.is_there() => {}
                Err(error) => common.trouble = Some(format!("{error:#}")),
            }
            last = Some(Instant::now());
        }
        std::thread::sleep(TICK);
    }
}

impl Feed for Reading {
    fn next(&mut self, wanted: &Wanted) -> News {
        let mut common = locked(&self.common);
        common.wanted = wanted.clone();
        let mut news = common.moments.news(wanted.which);
        news.is_live = true;
        news.is_apart = true;
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

impl Drop for Reading {
    fn drop(&mut self) {
        self.has_left.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
