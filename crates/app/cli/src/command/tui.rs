//! `heapprof tui`: shows a profile, or the moments of a series, in the terminal.

use std::fs::File;
use std::sync::atomic::Ordering;

use anyhow::{Context, Result, bail};
use heapprof_recorder::inherited_state;
use heapprof_terminal::feed::SnapshotFeed;
use heapprof_terminal::files::FileFeed;
use heapprof_terminal::run::{ViewSignals, run as show};
use heapprof_terminal::screen::{TerminalScreen, tty};
use signal_hook::consts::SIGTERM;
use signal_hook::low_level::emulate_default_handler;

use super::report;
use super::view::{VIEW_ACTIONS, screen_style};
use crate::args::TuiArgs;
use crate::context::CommandContext;
use crate::messages;

pub(super) fn run(context: &CommandContext, args: &TuiArgs) -> Result<()> {
    let names = report::expand_names(&context.sources.or_newest(&args.profiles.profiles)?)?;
    let mut files = FileFeed::new(context.sources.read_each(&names)?)?;
    let Some(tty) = tty() else {
        bail!(
            "tui needs a terminal to draw on (TERM must be set, and the job in the foreground); \
             top prints the same"
        );
    };
    view(context, tty, &mut files)
}

/// Shows a feed on a terminal until the user leaves the view, or a signal ends heapprof.
pub(super) fn view(context: &CommandContext, tty: File, feed: &mut dyn SnapshotFeed) -> Result<()> {
    let signals = ViewSignals::listen(true, inherited_state::is_ignored).context("signals")?;
    let screen = TerminalScreen::take(tty, messages::defer_messages).context("the terminal")?;
    let is_over = || signals.ends.load(Ordering::Relaxed);
    let look = screen_style(context.color);
    let shown = show(&screen, feed, look, &signals, &is_over, VIEW_ACTIONS);
    drop(screen);
    exit_if_signalled(signals);
    shown
}

/// Ends heapprof with the exit code of a signal, if a signal has come.
pub(super) fn exit_if_signalled(signals: ViewSignals) {
    if signals.ends.load(Ordering::Relaxed) {
        drop(signals);
        // The process that waits for heapprof sees that a signal ended it.
        let _ = emulate_default_handler(SIGTERM);
    }
}
