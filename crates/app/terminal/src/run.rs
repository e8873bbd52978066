//! The loop of the view: reads news and keys, and draws, until the user leaves.

use std::ffi::c_int;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use crossterm::event::{Event, poll, read};
use heapprof_profile::Profile;
use ratatui_core::backend::{Backend, ClearType};
use ratatui_core::layout::Rect;
use ratatui_core::terminal::{Terminal, TerminalOptions, Viewport};
use ratatui_crossterm::CrosstermBackend;
use rustix::process::{Signal, kill_current_process_group};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use signal_hook::flag;
use signal_hook::low_level::emulate_default_handler;

use super::canvas::ScreenStyle;
use super::draw::draw;
use super::feed::{FeedNews, FeedRequest, ProcessChoice, SnapshotFeed};
use super::keys::key_from_event;
use super::screen::{self, TerminalScreen};
use super::state::{KeyEffect, ViewState};
use super::view_data::ViewData;

/// Maximum number of columns that are drawn. A window may report any size, and each of its cells
/// takes memory and time.
const MAX_COLUMNS: u16 = 1_000;
/// Maximum number of rows that are drawn.
const MAX_ROWS: u16 = 500;

/// How long the loop waits for a key before it updates the data.
const KEY_WAIT_TIMEOUT: Duration = Duration::from_millis(100);

/// Signals that heapprof received while the view was open.
pub struct ViewSignals {
    /// Whether heapprof received a signal that ends a process.
    pub ends: Arc<AtomicBool>,
    stops: Arc<AtomicBool>,
    goes_on: Arc<AtomicBool>,
    ids: Vec<signal_hook::SigId>,
}

impl ViewSignals {
    /// Starts to listen for signals. An interrupt ends the view only if `for_interrupt` is true. A
    /// signal stays ignored if `is_ignored` returns true for it.
    pub fn listen(for_interrupt: bool, is_ignored: fn(c_int) -> bool) -> io::Result<Self> {
        let mut signals = Self {
            ends: Arc::default(),
            stops: Arc::default(),
            goes_on: Arc::default(),
            ids: Vec::new(),
        };
        for (signal, said) in [
            (SIGTERM, &signals.ends),
            (SIGHUP, &signals.ends),
            (SIGINT, &signals.ends),
            (SIGQUIT, &signals.ends),
            (SIGTSTP, &signals.stops),
            (SIGCONT, &signals.goes_on),
        ] {
            let is_wanted = for_interrupt || signal != SIGINT;
            if is_wanted && !is_ignored(signal) {
                signals.ids.push(flag::register(signal, Arc::clone(said))?);
            }
        }
        Ok(signals)
    }
}

impl Drop for ViewSignals {
    fn drop(&mut self) {
        for id in self.ids.drain(..) {
            signal_hook::low_level::unregister(id);
        }
    }
}

/// The actions that the view needs from its caller.
#[derive(Clone, Copy)]
pub struct ViewActions {
    /// Writes a profile into a new file.
    pub write_profile: fn(&Profile, &Path) -> Result<()>,
    /// Writes the report of a profile (the first path) as a page (the second path).
    pub write_report: fn(&str, &str) -> Result<()>,
}

/// Shows the view on a terminal until the user leaves it, or `is_over` returns true.
pub fn run(
    screen: &TerminalScreen,
    feed: &mut dyn SnapshotFeed,
    look: ScreenStyle,
    signals: &ViewSignals,
    is_over: &dyn Fn() -> bool,
    actions: ViewActions,
) -> Result<()> {
    let writer = screen.writer().context("the terminal")?;
    let backend = CrosstermBackend::new(io::BufWriter::new(writer));
    let mut area = drawn_area().context("the terminal")?;
    let viewport = Viewport::Fixed(area);
    let mut terminal =
        Terminal::with_options(backend, TerminalOptions { viewport }).context("the terminal")?;
    let (mut state, mut data, began) = (ViewState::default(), ViewData::default(), Instant::now());
    let mut wanted = FeedRequest::default();
    let mut files = 0;
    let mut is_new = true;
    loop {
        if signals.stops.swap(false, Ordering::Relaxed) {
            screen::leave();
            let _ = emulate_default_handler(SIGTSTP);
            screen::renew();
            is_new = true;
        }
        if signals.goes_on.swap(false, Ordering::Relaxed) {
            screen::renew();
            is_new = true;
        }
        if is_over() {
            return Ok(());
        }
        wanted.is_frozen = state.is_frozen;
        let news = feed.next(&wanted);
        wanted.step = 0;
        if !state.is_frozen || data.news.snapshot.is_none() || news.ended.is_some() {
            data.refresh(news, &mut state);
        } else {
            let news = std::mem::take(&mut data.news);
            data.refresh(news, &mut state);
        }
        if !screen::is_up() {
            // Another job has the terminal.
            screen::enter();
            is_new = true;
            if !screen::is_up() {
                std::thread::sleep(KEY_WAIT_TIMEOUT);
                continue;
            }
        }
        let now = drawn_area().context("the terminal")?;
        if std::mem::take(&mut is_new) || now != area {
            area = now;
            // `Terminal::clear` would ask where the cursor is, and wait for an answer.
            let backend = terminal.backend_mut();
            backend
                .clear_region(ClearType::All)
                .context("the terminal")?;
            terminal.resize(area).context("the terminal")?;
        }
        let now = began.elapsed().as_secs_f64();
        terminal
            .draw(|frame| draw(frame.buffer_mut(), &data, &mut state, look, now))
            .context("the terminal")?;
        match screen::wait(KEY_WAIT_TIMEOUT).context("the terminal")? {
            screen::TerminalWait::Gone => return Ok(()),
            screen::TerminalWait::Readable if !poll(Duration::ZERO).context("the terminal")? => {
                screen::tell_again();
            }
            screen::TerminalWait::Readable | screen::TerminalWait::Nothing => {}
        }
        while poll(Duration::ZERO).context("the terminal")? {
            let event = read().context("the terminal")?;
            if let Event::Resize(..) = event {
                is_new = true;
            }
            let Some(key) = key_from_event(&event) else {
                continue;
            };
            match state.press(key, &data) {
                KeyEffect::Nothing => {}
                KeyEffect::Leave => return Ok(()),
                KeyEffect::Interrupt => {
                    feed.interrupt();
                    state.said = Some("the program was interrupted".to_string());
                }
                KeyEffect::Suspend => {
                    // The program stops as well, as it would at Ctrl-Z. heapprof stops in the next
                    // round.
                    screen::leave();
                    let _ = kill_current_process_group(Signal::TSTP);
                    break;
                }
                KeyEffect::Redraw => is_new = true,
                KeyEffect::Mark => data.mark = data.news.snapshot.clone(),
                KeyEffect::Unmark => data.mark = None,
                KeyEffect::NextProcess => wanted.which = next_process(&data.news),
                KeyEffect::Step(step) => wanted.step += step,
                effect @ (KeyEffect::Save | KeyEffect::Report) => {
                    files += 1;
                    let with_report = effect == KeyEffect::Report;
                    let done = save(&data.news, files, actions, with_report);
                    state.said = Some(done.unwrap_or_else(|error| format!("{error:#}")));
                }
            }
        }
    }
}

/// Returns the part of the terminal that the view uses.
fn drawn_area() -> io::Result<Rect> {
    let (columns, rows) = crossterm::terminal::size()?;
    Ok(Rect::new(
        0,
        0,
        columns.min(MAX_COLUMNS),
        rows.min(MAX_ROWS),
    ))
}

/// Returns the choice after the present one: first the program, then each other process, then all
/// processes together.
pub(super) fn next_process(news: &FeedNews) -> ProcessChoice {
    let numbers: Vec<u32> = news.processes.iter().map(|one| one.number).collect();
    let at = match news.which {
        ProcessChoice::All => return ProcessChoice::Program,
        ProcessChoice::Process(number) => numbers.iter().position(|&other| other == number),
        ProcessChoice::Program => news
            .process
            .and_then(|own| numbers.iter().position(|&n| n == own)),
    };
    match numbers.get(at.map_or(0, |at| at + 1)) {
        Some(&number) => ProcessChoice::Process(number),
        None if numbers.len() > 1 => ProcessChoice::All,
        None => ProcessChoice::Program,
    }
}

/// Writes the profile that is shown, and its report if `with_report` is true. Returns a message for
/// the user.
fn save(news: &FeedNews, number: usize, actions: ViewActions, with_report: bool) -> Result<String> {
    let Some(snapshot) = &news.snapshot else {
        bail!("there is no profile yet");
    };
    let path = find_free_path(&news.stem, number);
    (actions.write_profile)(&snapshot.source.profile, &path)?;
    let shown = path.display().to_string();
    if !with_report {
        return Ok(format!("{shown} was written"));
    }
    let page = format!("{}.html", shown.trim_end_matches(".pb.gz"));
    (actions.write_report)(&shown, &page)?;
    Ok(format!(
        "{shown} and {page} were written; open the page in a browser"
    ))
}

/// Returns an unused path for a profile.
fn find_free_path(stem: &Path, first: usize) -> PathBuf {
    let named = |number: usize| {
        let mut name = stem.as_os_str().to_os_string();
        name.push(format!(".{number}.pb.gz"));
        PathBuf::from(name)
    };
    (first..first + 10_000)
        .map(named)
        .find(|path| !path.exists())
        .unwrap_or_else(|| named(first))
}
