//! `heapprof tui`: a profile, or the moments of a series, to look at in the terminal.

use std::fs::File;
use std::sync::atomic::Ordering;

use anyhow::{Context, Result, bail};
use signal_hook::consts::SIGTERM;
use signal_hook::low_level::emulate_default_handler;

use super::{Shared, report};
use crate::args::TuiArgs;
use crate::terminal::feed::Feed;
use crate::terminal::files::Files;
use crate::terminal::run::{Signals, look, run as show};
use crate::terminal::screen::{Screen, tty};

pub(super) fn run(shared: &Shared, args: &TuiArgs) -> Result<()> {
    let names = report::expanded(
        &shared.sources,
        &shared.sources.or_newest(&args.profiles.profiles)?,
    )?;
    let mut files = Files::new(shared.sources.each(&names)?)?;
    let Some(tty) = tty() else {
        bail!(
            "tui needs a terminal that it may draw on (TERM is set, and the job is in front); top \
             prints the same"
        );
    };
    view(shared, tty, &mut files)
}

/// Shows a feed on a terminal until somebody leaves, or ends us.
pub(super) fn view(shared: &Shared, tty: File, feed: &mut dyn Feed) -> Result<()> {
    let signals = Signals::listen(true).context("signals")?;
    let screen = Screen::take(tty).context("the terminal")?;
    let is_over = || signals.ends.load(Ordering::Relaxed);
    let look = look(shared.color);
    let shown = show(&screen, feed, look, &signals, &is_over, report::of_file);
    drop(screen);
    end_if_told(signals);
    shown
}

/// Ends us as a signal does, if one has come.
pub(super) fn end_if_told(signals: Signals) {
    if signals.ends.load(Ordering::Relaxed) {
        drop(signals);
        // Whoever ended us sees by which way it was.
        let _ = emulate_default_handler(SIGTERM);
    }
}
