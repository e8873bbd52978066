//! `--live`: the terminal view beside the program, while it runs.
//!
//! The view has a thread of its own, and whoever asks the program has another one: `asker.rs`. The
//! thread that waits for the program tells them when it begins, stops and ends. If there is no
//! terminal, plain blocks of lines are said among the messages instead.

mod asker;
pub(super) mod moments;
mod printed;

use std::fs::File;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Signal, kill_current_process_group};

use self::asker::Asker;
use self::moments::Moments;
use self::printed::Printed;
use super::list::List;
use crate::args::{Color, RecordArgs};
use crate::command::report::of_file;
use crate::messages;
use crate::rights::RightsLedger;
use crate::terminal::feed::{Feed, News, Wanted};
use crate::terminal::plain::Plain;
use crate::terminal::run::{Signals, look, run as show};
use crate::terminal::screen::{self, Screen, is_tty, tty};

/// How long the view waits between two questions.
const PAUSE: Duration = Duration::from_secs(1);
/// The same for blocks of lines, unless `--interval` is given.
const PLAIN_PAUSE: Duration = Duration::from_secs(10);

/// How long the last block waits for the last answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// What the threads share.
struct Shared {
    wanted: Wanted,
    moments: Moments,
    began: Instant,
    /// Whether nobody looks any more.
    is_left: bool,
    ended: Option<String>,
    /// Whether all that was answered before the end is known.
    has_all: bool,
    trouble: Option<String>,
    output: Vec<String>,
}

impl Shared {
    fn new() -> Self {
        Self {
            wanted: Wanted::default(),
            moments: Moments::default(),
            began: Instant::now(),
            is_left: false,
            ended: None,
            has_all: false,
            trouble: None,
            output: Vec::new(),
        }
    }
}

type Common = Arc<Mutex<Shared>>;

fn locked(shared: &Common) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says that nobody looks any more, when it is dropped.
struct Left(Common);

impl Drop for Left {
    fn drop(&mut self) {
        locked(&self.0).is_left = true;
    }
}

/// The view of a recording.
pub(super) struct Live {
    shared: Common,
    asker: Option<Asker>,
    printed: Option<Arc<Printed>>,
    tty: Option<File>,
    color: Color,
    pause: Duration,
    view: Option<JoinHandle<()>>,
    /// Whether a key of the view interrupts the program.
    interrupts: Arc<AtomicBool>,
    program: String,
}

impl Live {
    /// Makes what the program is asked by, before it starts.
    pub(super) fn new(
        args: &RecordArgs,
        list: &List,
        color: Color,
        rights: RightsLedger,
    ) -> Result<Self> {
        let tty = tty();
        let pause = match tty {
            Some(_) => PAUSE,
            None => args.interval.unwrap_or(PLAIN_PAUSE).max(PAUSE),
        };
        let shared = Arc::new(Mutex::new(Shared::new()));
        let symbolizes = !args.no_symbolize;
        let asker = Asker::new(list, pause, symbolizes, Arc::clone(&shared), rights);
        let asker = asker.context("no temporary file can be made")?;
        let printed = match tty {
            Some(_) => Printed::new().context("no temporary file can be made")?,
            None => None,
        };
        Ok(Self {
            shared,
            asker: Some(asker),
            printed: printed.map(Arc::new),
            tty,
            color,
            pause,
            view: None,
            interrupts: Arc::default(),
            program: args.command[0].to_string_lossy().into_owned(),
        })
    }

    /// Keeps the program off the terminal, which is the view's.
    pub(super) fn redirect(&self, command: &mut Command) -> Result<()> {
        if self.tty.is_some() && is_tty(std::io::stdin()) {
            command.stdin(Stdio::null());
        }
        if let Some(printed) = &self.printed {
            printed
                .redirect(command)
                .context("no file for what the program prints")?;
        }
        Ok(())
    }

    /// Shows the program, which has begun.
    pub(super) fn began(&mut self, process: u32) {
        {
            let mut shared = locked(&self.shared);
            shared.began = Instant::now();
            shared.moments.program = Some(process);
        }
        let Some(asker) = &mut self.asker else { return };
        let begun = asker
            .begin(self.printed.clone())
            .and_then(|()| self.view(process));
        if let Err(error) = begun {
            locked(&self.shared).is_left = true;
            messages::note(&format!(
                "--live: {error:#}; the recording goes on without the view"
            ));
        }
    }

    fn view(&mut self, process: u32) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let mut feed = Recording {
            shared: Arc::clone(&shared),
            interrupts: Arc::clone(&self.interrupts),
            process,
            program: self.program.clone(),
        };
        let (look, pause) = (look(self.color), self.pause);
        let view = std::thread::Builder::new().name("view".into());
        let thread = match self.tty.take() {
            None => view.spawn(move || plain(&mut feed, &shared, pause, &mut messages::plain))?,
            Some(tty) => {
                let signals = Signals::listen(false)?;
                let screen = Screen::take(tty).context("the terminal")?;
                let left = Left(Arc::clone(&shared));
                view.spawn(move || {
                    // Also if the thread panics.
                    let _left = left;
                    let is_over =
                        || signals.ends.load(Ordering::Relaxed) && locked(&shared).ended.is_some();
                    let shown = show(&screen, &mut feed, look, &signals, &is_over, of_file);
                    drop(screen);
                    if let Err(error) = shown {
                        messages::note(&format!(
                            "--live: {error:#}; the recording goes on without the view"
                        ));
                    }
                })?
            }
        };
        self.view = Some(thread);
        Ok(())
    }

    /// Whether a SIGINT that came to us was sent by a key of the view, which the program has got.
    pub(super) fn has_interrupted(&self) -> bool {
        self.interrupts.swap(false, Ordering::Relaxed)
    }

    /// Gives the terminal back, because we are about to be stopped.
    pub(super) fn stops(&self) {
        screen::leave();
    }

    /// Takes the terminal again.
    pub(super) fn goes_on(&self) {
        if self.view.as_ref().is_some_and(|view| !view.is_finished()) {
            screen::enter();
        }
    }

    /// Says how the program ended, and waits until nobody looks any more.
    pub(super) fn ended(&mut self, code: u8, signal: Option<i32>) {
        let how = match signal {
            Some(signal) => format!("ended by signal {signal}"),
            None => format!("ended with exit code {code}"),
        };
        locked(&self.shared).ended = Some(how);
        self.end();
    }

    fn end(&mut self) {
        if let Some(view) = self.view.take() {
            let _ = view.join();
        }
        // A thread that panicked has given the terminal back as well.
        screen::leave();
        if let Some(asker) = self.asker.take() {
            asker.end();
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        let mut shared = locked(&self.shared);
        shared.ended.get_or_insert_default();
        shared.is_left = true;
        drop(shared);
        self.end();
    }
}

/// The running recording as a feed.
struct Recording {
    shared: Common,
    interrupts: Arc<AtomicBool>,
    process: u32,
    program: String,
}

impl Feed for Recording {
    fn next(&mut self, wanted: &Wanted) -> News {
        let mut shared = locked(&self.shared);
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
        // As the terminal would: the whole job gets it.
        let _ = kill_current_process_group(Signal::INT);
    }
}

/// Says a block of lines each time, until the program has ended.
fn plain(feed: &mut dyn Feed, shared: &Common, pause: Duration, say: &mut dyn FnMut(&str)) {
    let mut plain = Plain::default();
    let (mut last, mut end): (Option<Instant>, Option<Instant>) = (None, None);
    loop {
        let news = feed.next(&Wanted::default());
        if news.ended.is_some() {
            end.get_or_insert_with(Instant::now);
        }
        // The last answer may still be read.
        let has_ended = end.is_some_and(|end| end.elapsed() > PATIENCE || locked(shared).has_all);
        let news = if has_ended {
            feed.next(&Wanted::default())
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
    use crate::terminal::feed::Snapshot;

    /// A program that has ended, and whose answer is read a little later.
    struct Late(Common, u32);

    impl Feed for Late {
        fn next(&mut self, _: &Wanted) -> News {
            self.1 += 1;
            let mut news = News {
                ended: Some("ended with exit code 5".into()),
                ..News::default()
            };
            if self.1 > 2 {
                let mut builder = ProfileBuilder::new(&[("inuse_space", "bytes")]);
                builder.add_folded("main;keep", &[10]);
                let snapshot = Snapshot::new(1, QuestionSource::new("p", builder.finish()));
                news.snapshot = Some(Arc::new(snapshot.unwrap()));
                locked(&self.0).has_all = true;
            }
            news
        }
    }

    #[test]
    fn the_last_block_has_the_last_answer() {
        let shared = Arc::new(Mutex::new(Shared::new()));
        let (mut feed, mut said) = (Late(Arc::clone(&shared), 0), String::new());
        plain(&mut feed, &shared, PAUSE, &mut |line| said += line);
        assert!(said.contains("keep"), "{said}");
        assert!(said.contains("ended with exit code 5"), "{said}");
    }
}
