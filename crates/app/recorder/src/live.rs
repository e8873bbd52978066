//! Shows the terminal view beside the program, while it runs.
//!
//! One thread draws the view, and another one requests profiles from the program (`asker.rs`). The
//! thread that waits for the program notifies both threads when the program begins, stops and ends.
//! If there is no terminal, plain blocks of lines are printed among the messages instead.

mod asker;
pub(crate) mod moments;
mod program_output;

use std::fs::File;
use std::io;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use heapprof_terminal::ScreenStyle;
use heapprof_terminal::feed::{FeedNews, FeedRequest, SnapshotFeed};
use heapprof_terminal::plain_view::PlainBlocks;
use heapprof_terminal::run::{ViewActions, ViewSignals, run as show};
use heapprof_terminal::screen::{self, TerminalScreen, is_tty, tty};
use rustix::process::{Signal, kill_current_process_group};

use self::asker::ProfileAsker;
use self::moments::ProcessMoments;
use self::program_output::ProgramOutput;
use crate::inherited_state;
use crate::list::ProfileList;
use crate::observer::{RecordingEvent, RecordingObserver};
use crate::rights::RightsLedger;

/// Time between two requests for a profile.
const ASK_INTERVAL: Duration = Duration::from_secs(1);
/// Time between two blocks of lines, unless the user chooses another interval.
const PLAIN_INTERVAL: Duration = Duration::from_secs(10);

/// How long the last block of lines waits for the program's last profile.
const LAST_ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// The options for showing a recording.
pub struct LiveViewOptions {
    /// Time between two blocks of lines, if there is no terminal; `None` for the usual time.
    pub interval: Option<Duration>,
    /// Whether stdout and stderr are the terminal of this session.
    pub has_terminal: [bool; 2],
    /// The style of the screen.
    pub style: ScreenStyle,
    /// Actions that the view needs from the front end.
    pub actions: ViewActions,
    /// Holds messages back while the view has the terminal (`true`), and prints them afterwards
    /// (`false`).
    pub defer_messages: fn(bool),
}

/// The state that the threads of the view share.
struct LiveState {
    wanted: FeedRequest,
    moments: ProcessMoments,
    began: Instant,
    /// Whether the view is closed.
    is_view_closed: bool,
    ended: Option<String>,
    /// Whether all profiles from before the program's end were read.
    has_all: bool,
    trouble: Option<String>,
    output: Vec<String>,
}

impl LiveState {
    fn new() -> Self {
        Self {
            wanted: FeedRequest::default(),
            moments: ProcessMoments::default(),
            began: Instant::now(),
            is_view_closed: false,
            ended: None,
            has_all: false,
            trouble: None,
            output: Vec::new(),
        }
    }
}

type SharedLiveState = Arc<Mutex<LiveState>>;

fn lock_state(shared: &SharedLiveState) -> MutexGuard<'_, LiveState> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A guard that marks the view as closed when it is dropped.
struct ViewClosedGuard(SharedLiveState);

impl Drop for ViewClosedGuard {
    fn drop(&mut self) {
        lock_state(&self.0).is_view_closed = true;
    }
}

/// The view of a recording.
pub(crate) struct LiveView {
    shared: SharedLiveState,
    asker: Option<ProfileAsker>,
    printed: Option<Arc<ProgramOutput>>,
    tty: Option<File>,
    options: LiveViewOptions,
    observer: Arc<dyn RecordingObserver>,
    pause: Duration,
    view: Option<JoinHandle<()>>,
    /// Whether a key of the view has interrupted the program.
    interrupts: Arc<AtomicBool>,
    program: String,
}

impl LiveView {
    /// Makes a view that is not shown yet, with the files for requesting profiles from the program.
    pub(crate) fn new(
        options: LiveViewOptions,
        observer: Arc<dyn RecordingObserver>,
        program: String,
        symbolizes: bool,
        list: &ProfileList,
        rights: RightsLedger,
    ) -> io::Result<Self> {
        let tty = tty();
        let pause = match tty {
            Some(_) => ASK_INTERVAL,
            None => options.interval.unwrap_or(PLAIN_INTERVAL).max(ASK_INTERVAL),
        };
        let shared = Arc::new(Mutex::new(LiveState::new()));
        let asker = ProfileAsker::new(list, pause, symbolizes, Arc::clone(&shared), rights)?;
        let printed = match tty {
            Some(_) => ProgramOutput::new(options.has_terminal, Arc::clone(&observer))?,
            None => None,
        };
        Ok(Self {
            shared,
            asker: Some(asker),
            printed: printed.map(Arc::new),
            tty,
            options,
            observer,
            pause,
            view: None,
            interrupts: Arc::default(),
            program,
        })
    }

    /// Redirects the program's input and output away from the terminal, which belongs to the view.
    pub(crate) fn redirect(&self, command: &mut Command) -> Result<()> {
        if self.tty.is_some() && is_tty(io::stdin()) {
            command.stdin(Stdio::null());
        }
        if let Some(printed) = &self.printed {
            printed
                .redirect(command)
                .context("cannot create a file for the program's output")?;
        }
        Ok(())
    }

    /// Starts to show the program, which has begun.
    pub(crate) fn start(&mut self, process: u32) {
        {
            let mut shared = lock_state(&self.shared);
            shared.began = Instant::now();
            shared.moments.program = Some(process);
        }
        let Some(asker) = &mut self.asker else { return };
        let begun = asker
            .begin(self.printed.clone())
            .and_then(|()| self.start_view(process));
        if let Err(error) = begun {
            lock_state(&self.shared).is_view_closed = true;
            self.observer.event(RecordingEvent::ViewFailed(&error));
        }
    }

    fn start_view(&mut self, process: u32) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let mut feed = RecordingFeed {
            shared: Arc::clone(&shared),
            interrupts: Arc::clone(&self.interrupts),
            process,
            program: self.program.clone(),
        };
        let (look, pause) = (self.options.style, self.pause);
        let (actions, defer_messages) = (self.options.actions, self.options.defer_messages);
        let observer = Arc::clone(&self.observer);
        let view = std::thread::Builder::new().name("view".into());
        let thread = match self.tty.take() {
            None => view.spawn(move || {
                print_blocks(&mut feed, &shared, pause, &mut |line| {
                    observer.view_line(line)
                });
            })?,
            Some(tty) => {
                let signals = ViewSignals::listen(false, inherited_state::is_ignored)?;
                let screen = TerminalScreen::take(tty, defer_messages).context("the terminal")?;
                let left = ViewClosedGuard(Arc::clone(&shared));
                view.spawn(move || {
                    // The view is marked as closed also if the thread panics.
                    let _left = left;
                    let is_over = || {
                        signals.ends.load(Ordering::Relaxed) && lock_state(&shared).ended.is_some()
                    };
                    let shown = show(&screen, &mut feed, look, &signals, &is_over, actions);
                    drop(screen);
                    if let Err(error) = shown {
                        observer.event(RecordingEvent::ViewFailed(&error));
                    }
                })?
            }
        };
        self.view = Some(thread);
        Ok(())
    }

    /// Whether a key of the view sent the SIGINT that heapprof received. In that case the program
    /// has already received it.
    pub(crate) fn has_interrupted(&self) -> bool {
        self.interrupts.swap(false, Ordering::Relaxed)
    }

    /// Gives the terminal back, because heapprof is about to be stopped.
    pub(crate) fn release_terminal(&self) {
        screen::leave();
    }

    /// Takes the terminal again after heapprof was stopped.
    pub(crate) fn resume_terminal(&self) {
        if self.view.as_ref().is_some_and(|view| !view.is_finished()) {
            screen::enter();
        }
    }

    /// Shows how the program ended, and waits until the view is closed.
    pub(crate) fn finish(&mut self, code: u8, signal: Option<i32>) {
        let how = match signal {
            Some(signal) => format!("killed by signal {signal}"),
            None => format!("ended with exit code {code}"),
        };
        lock_state(&self.shared).ended = Some(how);
        self.end();
    }

    fn end(&mut self) {
        if let Some(view) = self.view.take() {
            let _ = view.join();
        }
        // The terminal is given back also if the thread panicked.
        screen::leave();
        if let Some(asker) = self.asker.take() {
            asker.end();
        }
    }
}

impl Drop for LiveView {
    fn drop(&mut self) {
        let mut shared = lock_state(&self.shared);
        shared.ended.get_or_insert_default();
        shared.is_view_closed = true;
        drop(shared);
        self.end();
    }
}

/// A feed of snapshots from the running recording.
struct RecordingFeed {
    shared: SharedLiveState,
    interrupts: Arc<AtomicBool>,
    process: u32,
    program: String,
}

impl SnapshotFeed for RecordingFeed {
    fn next(&mut self, wanted: &FeedRequest) -> FeedNews {
        let mut shared = lock_state(&self.shared);
        shared.wanted = wanted.clone();
        let mut news = shared.moments.news(wanted.which);
        news.is_live = true;
        if news.process.is_none() {
            news.process = Some(self.process);
        }
        if news.program.is_empty() {
            news.program.clone_from(&self.program);
        }
        news.ended.clone_from(&shared.ended);
        news.clock = match &shared.ended {
            None => Some(shared.began.elapsed().as_secs_f64()),
            Some(_) => news.snapshot.as_ref().and_then(|snapshot| snapshot.seconds),
        };
        news.trouble.clone_from(&shared.trouble);
        news.output.clone_from(&shared.output);
        news.stem = format!("heapprof.live.{}", self.process).into();
        news
    }

    fn interrupt(&mut self) {
        self.interrupts.store(true, Ordering::Relaxed);
        // The whole job gets the signal, as from the terminal.
        let _ = kill_current_process_group(Signal::INT);
    }
}

/// Prints a block of lines in each interval, until the program has ended.
fn print_blocks(
    feed: &mut dyn SnapshotFeed,
    shared: &SharedLiveState,
    pause: Duration,
    say: &mut dyn FnMut(&str),
) {
    let mut plain = PlainBlocks::default();
    let (mut last, mut end): (Option<Instant>, Option<Instant>) = (None, None);
    loop {
        let news = feed.next(&FeedRequest::default());
        if news.ended.is_some() {
            end.get_or_insert_with(Instant::now);
        }
        // The last answer may still be read.
        let has_ended = end
            .is_some_and(|end| end.elapsed() > LAST_ANSWER_TIMEOUT || lock_state(shared).has_all);
        let news = if has_ended {
            feed.next(&FeedRequest::default())
        } else {
            news
        };
        let is_time = end.is_none() && last.is_none_or(|last| last.elapsed() >= pause);
        if (has_ended || is_time)
            && let Some(block) = plain.block(news)
        {
            last = Some(Instant::now());
            block.lines().for_each(&mut *say);
        }
        if has_ended {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[cfg(test)]
mod tests {
    use heapprof_analysis::QuestionSource;
    use heapprof_profile::ProfileBuilder;

    use super::*;
    use heapprof_terminal::feed::ViewSnapshot;

    /// A feed for a program that has ended, whose last profile arrives a little later.
    struct LateFeed(SharedLiveState, u32);

    impl SnapshotFeed for LateFeed {
        fn next(&mut self, _: &FeedRequest) -> FeedNews {
            self.1 += 1;
            let mut news = FeedNews {
                ended: Some("ended with exit code 5".into()),
                ..FeedNews::default()
            };
            if self.1 > 2 {
                let mut builder = ProfileBuilder::new(&[("inuse_space", "bytes")]);
                builder.add_folded("main;keep", &[10]);
                let snapshot = ViewSnapshot::new(1, QuestionSource::new("p", builder.finish()));
                news.snapshot = Some(Arc::new(snapshot.unwrap()));
                lock_state(&self.0).has_all = true;
            }
            news
        }
    }

    #[test]
    fn the_last_block_has_the_last_answer() {
        let shared = Arc::new(Mutex::new(LiveState::new()));
        let (mut feed, mut said) = (LateFeed(Arc::clone(&shared), 0), String::new());
        print_blocks(&mut feed, &shared, ASK_INTERVAL, &mut |line| said += line);
        assert!(said.contains("keep"), "{said}");
        assert!(said.contains("ended with exit code 5"), "{said}");
    }
}
