//! `heapprof tui`: shows a recorded process in the terminal, read from outside while it runs.

use std::io::IsTerminal;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use heapprof_recorder::ProcessFeed;
use heapprof_terminal::feed::{FeedRequest, SnapshotFeed};
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
            &mut ProcessFeed::start(watched, READ_INTERVAL)?,
        ),
        None if std::io::stdout().is_terminal() => {
            bail!("the view needs a terminal to draw on (TERM set, and the job in the foreground)")
        }
        None => {
            let signals = ViewSignals::listen(true, heapprof_recorder::inherited_state::is_ignored)
                .context("signals")?;
            let is_over = || signals.ends.load(Ordering::Relaxed);
            let printed = plain(
                &mut ProcessFeed::start(watched, PLAIN_INTERVAL)?,
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
