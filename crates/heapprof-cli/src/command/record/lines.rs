//! `--follow-lines`: says, while the program runs, which lines have grown.
//!
//! The library decides when to tell of a stack, and by how much it has grown. It writes that into a
//! file beside the list of profiles (`tail.rs`), as a small profile with raw addresses. Here a
//! thread reads that file, gives the addresses names, and says each line that has grown enough.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use heapprof_analysis::{Place as Line, line_growth};
use heapprof_profile::{ReadOptions, decode_with};
use heapprof_report::LineGrowth;
use heapprof_symbolize::{Options, Symbolizer};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;

use super::tail::{ENDING, Message, Tail};
use crate::args::RecordArgs;
use crate::args::record::LineFormat;
use crate::place::{Owner, Place, Trust, acting, open_folder};
use crate::{messages, output};

/// How long the thread sleeps between two looks.
const PAUSE: Duration = Duration::from_millis(30);
/// How long the last look may take.
const LAST: Duration = Duration::from_secs(5);
/// How long a pipe's reader may take.
const PATIENCE: Timespec = Timespec {
    tv_sec: 10,
    tv_nsec: 0,
};
/// So much goes into a pipe at once without a wait, once there is any room.
const PIECE: usize = 4096;
/// The most users whose processes are followed.
const MOST_USERS: usize = 16;
/// The most processes that are followed. The one that has been silent for longest gives way.
const MOST_PROCESSES: usize = 1024;
/// The most lines of a process that are followed.
const MOST_LINES: usize = 1 << 16;
/// The most bytes that a message may become in memory.
const MOST_MEMORY: u64 = 256 << 20;

/// Where lines are said.
pub(super) enum Output {
    Messages,
    File(File, PathBuf),
}

/// Opens what `--follow-output` names, before the program starts.
pub(super) fn open(args: &RecordArgs) -> Result<Output> {
    match &args.follow_output {
        None => Ok(Output::Messages),
        Some(path) => {
            let writer = reader_of(path);
            let file = output::open(args.file_mode.mode()?, path)?;
            drop(writer);
            Ok(Output::File(file, path.clone()))
        }
    }
}

/// Says so if `path` is a pipe that nobody reads from yet. Returns a writer of a pipe with a
/// reader, who would see an end if that was closed before there is another one.
fn reader_of(path: &Path) -> Option<OwnedFd> {
    let is_pipe = path
        .metadata()
        .is_ok_and(|found| found.file_type().is_fifo());
    if !is_pipe {
        return None;
    }
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    match openat(CWD, path, flags, Mode::empty()) {
        Err(Errno::NXIO) => {
            let path = path.display();
            messages::note(&format!("{path}: waiting for a reader of this pipe"));
            None
        }
        opened => opened.ok(),
    }
}

/// The thread that follows.
pub(super) struct Follower {
    has_ended: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Follower {
    /// Follows what processes write into the folder `list`, until [`end`](Self::end).
    pub(super) fn start(
        list: &Path,
        least: u64,
        args: &RecordArgs,
        output: Output,
    ) -> Result<Self> {
        let has_ended = Arc::new(AtomicBool::new(false));
        let (name, own) = Tail::of_own(list).context("no temporary file can be made")?;
        let mut lines = Lines {
            folder: list.to_path_buf(),
            least: i64::try_from(least).unwrap_or(i64::MAX),
            symbolizes: !args.no_symbolize,
            format: args.follow_format,
            output: Some(output),
            began: Instant::now(),
            files: HashMap::from([(name, Some(own))]),
            symbolizers: HashMap::new(),
            processes: HashMap::new(),
            told: 0,
            is_damaged: false,
        };
        let ended = Arc::clone(&has_ended);
        let work = move || {
            loop {
                // What is there after the program's end is all that is said.
                let is_last = ended.load(Ordering::Acquire);
                lines.read(is_last.then(|| Instant::now() + LAST));
                if is_last {
                    break;
                }
                std::thread::park_timeout(PAUSE);
            }
        };
        let thread = std::thread::Builder::new()
            .spawn(work)
            .context("--follow-lines needs a thread")?;
        Ok(Self { has_ended, thread })
    }

    /// Says what is left to say.
    pub(super) fn end(self) {
        self.has_ended.store(true, Ordering::Release);
        self.thread.thread().unpark();
        let _ = self.thread.join();
    }
}

/// What is followed.
struct Lines {
    folder: PathBuf,
    least: i64,
    symbolizes: bool,
    format: LineFormat,
    /// `None` once it can't be written to.
    output: Option<Output>,
    began: Instant,
    files: HashMap<OsString, Option<Tail>>,
    symbolizers: HashMap<Owner, Symbolizer>,
    /// The processes, by user and number.
    processes: HashMap<(u32, u32), Followed>,
    /// How many messages there were.
    told: u64,
    /// Whether it was said that a part of a file was no message.
    is_damaged: bool,
}

/// A process that is followed.
struct Followed {
    /// When its recording began.
    began: i64,
    /// Which message was its last.
    last: u64,
    /// By how much each line has grown since it was said last.
    growth: HashMap<Line, i64>,
}

impl Lines {
    /// Reads what is new, until `deadline`.
    fn read(&mut self, deadline: Option<Instant>) {
        self.look_for_files();
        let names: Vec<OsString> = self.files.keys().cloned().collect();
        for name in names {
            let Some(Some(mut tail)) = self.files.insert(name.clone(), None) else {
                continue;
            };
            // A process that goes on writing must not keep us here.
            let Ok(len) = tail.len() else { continue };
            if self.output.is_none() {
                // The file must not grow because nobody wants it.
                tail.pass_over(len);
            }
            let is_late = || deadline.is_some_and(|deadline| Instant::now() > deadline);
            while self.output.is_some() && !is_late() {
                let Ok(Some(message)) = tail.next(len) else {
                    break;
                };
                if !self.take(tail.owner, &message) {
                    tail.look_again();
                }
            }
            let is_first = tail.is_damaged && !self.is_damaged;
            self.is_damaged |= tail.is_damaged;
            self.files.insert(name, Some(tail));
            if !is_first {
                continue;
            }
            messages::note(
                "some of what the program said of its lines is damaged, because a process was \
                 ended or could not write; --follow-lines goes on after it",
            );
        }
    }

    fn look_for_files(&mut self) {
        let Ok(names) = std::fs::read_dir(&self.folder) else {
            return;
        };
        for name in names.filter_map(Result::ok).map(|entry| entry.file_name()) {
            let is_new = name.as_bytes().ends_with(ENDING) && !self.files.contains_key(&name);
            if !is_new || self.files.len() >= MOST_USERS {
                continue;
            }
            let opened = open_folder(&self.folder, Trust::OwnLinks)
                .and_then(|folder| Place::in_folder(folder, name.clone()).open());
            let tail = opened.ok().map(Tail::new);
            // A user has one file.
            let is_known = |tail: &Tail| {
                let mut known = self.files.values().flatten();
                known.any(|other| other.owner.user == tail.owner.user)
            };
            if let Some(tail) = tail.filter(|tail| !is_known(tail)) {
                self.files.insert(name, Some(tail));
            }
        }
    }

    /// Takes a message in. Returns false if it is none.
    fn take(&mut self, owner: Owner, message: &Message) -> bool {
        let symbolizes = self.symbolizes;
        let symbolizer = self.symbolizers.entry(owner).or_insert_with(|| {
            Symbolizer::new(Options {
                number_functions: true,
                ..Options::default()
            })
        });
        let options = ReadOptions::default()
            .max_inflated(MOST_MEMORY)
            .max_memory(MOST_MEMORY);
        // The files that are named are read with the rights of whoever names them.
        let grown = acting(owner, || {
            let mut profile = decode_with(&message.profile[..], options).ok()?;
            if symbolizes {
                symbolizer.symbolize(&mut profile);
            }
            line_growth(&profile).ok()
        });
        let grown = match grown {
            Ok(Some(grown)) => grown,
            Ok(None) => return false,
            // Nobody may act for that user here.
            Err(_) => return true,
        };
        let said = self.grown_enough(owner, message, grown);
        for (place, bytes) in said {
            self.say(&LineGrowth {
                process: message.process,
                place: &place,
                bytes,
                is_exact: message.is_exact,
                seconds: (self.began.elapsed().as_secs_f64() * 1000.0).round() / 1000.0,
            });
        }
        true
    }

    /// The lines that are to be said, and by how much they have grown. What has grown most comes
    /// first.
    fn grown_enough(
        &mut self,
        owner: Owner,
        message: &Message,
        grown: Vec<(Line, i64)>,
    ) -> Vec<(Line, i64)> {
        let id = (owner.user, message.process);
        if self.processes.len() >= MOST_PROCESSES && !self.processes.contains_key(&id) {
            let silent = self.processes.iter().min_by_key(|(_, of)| of.last);
            if let Some(silent) = silent.map(|(&id, _)| id) {
                self.processes.remove(&silent);
            }
        }
        self.told += 1;
        let new = || Followed {
            began: message.began,
            last: 0,
            growth: HashMap::new(),
        };
        let process = self.processes.entry(id).or_insert_with(new);
        if process.began != message.began {
            // It is another recording, whose memory in use began at nothing.
            *process = new();
        }
        process.last = self.told;
        let mut said = Vec::new();
        for (line, bytes) in grown {
            let is_full = process.growth.len() >= MOST_LINES;
            let sum = match process.growth.get_mut(&line) {
                Some(sum) => sum,
                None if is_full => continue,
                None => process.growth.entry(line.clone()).or_default(),
            };
            *sum = sum.saturating_add(bytes);
            if *sum >= self.least {
                said.push((line, std::mem::take(sum)));
            }
        }
        said.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        said
    }

    fn say(&mut self, growth: &LineGrowth<'_>) {
        let Some(output) = &mut self.output else {
            return;
        };
        let text = match self.format {
            LineFormat::Text => growth.text(),
            LineFormat::Json => growth.json(),
        };
        let (file, path) = match output {
            Output::File(file, path) => (file, path),
            Output::Messages if self.format == LineFormat::Json => return messages::plain(&text),
            Output::Messages => return messages::note(&text),
        };
        if let Err(error) = write(file, format!("{text}\n").as_bytes()) {
            messages::note(&format!(
                "{}: cannot be written: {error}; no more lines are said",
                path.display()
            ));
            self.output = None;
        }
    }
}

/// Writes into a file, or into a pipe whose reader may be slow for a while.
fn write(file: &mut File, text: &[u8]) -> io::Result<()> {
    for piece in text.chunks(PIECE) {
        let mut ready = [PollFd::new(file, PollFlags::OUT)];
        if poll(&mut ready, Some(&PATIENCE))? == 0 {
            return Err(io::Error::other("nobody read from it for ten seconds"));
        }
        file.write_all(piece)?;
    }
    Ok(())
}
