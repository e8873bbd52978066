//! Writes the log of a recording as text: each allocation and each free. docs/event-log.md
//! describes the format.
//!
//! One thread reads the program's ring, and another one writes the text. The program waits for
//! neither thread: if they are too slow, the missed events are counted.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use heapprof_live::{BlockEvent, LiveLogReader as Ring, LogSource, StackNumber, ThreadNumber};
use heapprof_profile::{Location, Profile};

mod progress;

use progress::WriteProgress;

use crate::outside;
use crate::rights::{ProcessNamer, RightsLedger};

/// Maximum number of events that the reader passes on at once.
const EVENT_BATCH_LIMIT: usize = 32_768;
/// Maximum number of messages with events that wait to be written.
const MAX_WAITING_BATCHES: usize = 48;
/// How long the reader waits before it reads an empty ring again.
const RING_POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Longest time that a write at the end may take before the rest is given up: a pipe's reader may
/// have stopped reading.
const FINAL_WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Number of bytes of text that are written at once.
const WRITE_CHUNK_BYTES: usize = 256 << 10;

/// The text that replaces the frames of a stack that can't be read.
const UNKNOWN_FRAME: &str = "\t[unknown]";
/// Longest text of a stack, in bytes.
const MAX_STACK_TEXT_BYTES: usize = 64 << 10;
/// Largest text of all stacks that wait to be written, in bytes.
const MAX_WAITING_TEXT_BYTES: usize = 256 << 20;
/// Largest size of an event's line, or of the last line of a log, in bytes.
const MAX_EVENT_LINE_BYTES: usize = 384;

/// The first line of a log file.
const HEADER_LINE: &str = "heapprof log 1\n";

/// A log that is being written.
pub struct EventLogWriter {
    to: SyncSender<LogMessage>,
    end: Receiver<EventLogSummary>,
    progress: Arc<WriteProgress>,
    reading: Option<RingReaderThread>,
}

/// The handle of a thread that reads a program's ring.
struct RingReaderThread {
    has_ended: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl RingReaderThread {
    /// Reads the rest of the program's events, and waits for the thread to end.
    fn end(self) {
        self.has_ended.store(true, Ordering::Relaxed);
        let _ = self.thread.join();
    }
}

enum LogMessage {
    /// The events of another program follow.
    Program(Box<LoggedProgram>),
    Events(Vec<BlockEvent>, u64),
    /// The program has ended before its last events could be read.
    Cut,
    /// No more events follow. The flag says whether the program has ended.
    End(bool, Instant),
}

/// The program whose events are written.
struct LoggedProgram {
    pid: u32,
    logged: LogSource,
    rights: RightsLedger,
    namer: ProcessNamer,
    began: Instant,
}

/// The end of a log.
#[derive(Clone, Debug)]
pub enum EventLogEnd {
    /// The log was written to its end.
    Complete(EventLogSummary),
    /// The rest of the log was given up: the reader of the output no longer reads.
    Abandoned,
}

/// The summary of a log.
#[derive(Clone, Debug, Default)]
pub struct EventLogSummary {
    /// Number of events that were written.
    pub written: u64,
    /// Number of events that were not read in time.
    pub missed: u64,
    /// Number of events that did not fit into the file.
    pub beyond: u64,
    /// Whether the last events could not be read.
    pub is_cut: bool,
    /// Whether no program was logged.
    pub is_empty: bool,
    /// Why writing the log failed, if it did.
    pub failed: Option<String>,
}

impl EventLogWriter {
    /// Starts to write a log into a file, which gets no longer than `limit` bytes.
    ///
    /// # Errors
    /// No thread can be made.
    pub fn new(file: File, limit: u64) -> Result<Self> {
        let (to, messages) = sync_channel(MAX_WAITING_BATCHES);
        let (done, end) = channel();
        let progress = Arc::new(WriteProgress::default());
        let counted = progress.clone();
        std::thread::Builder::new()
            .spawn(move || LogText::new(file, limit, counted).run(&messages, &done))
            .context("cannot start a thread")?;
        Ok(Self {
            to,
            end,
            progress,
            reading: None,
        })
    }

    /// Begins to log a program, or the program that it became by an exec.
    pub fn begin(&mut self, logged: LogSource, pid: u32, rights: RightsLedger) -> Result<()> {
        let ring = logged.log()?;
        let ring = ring.context("it has no memory for a log")?;
        let program = LoggedProgram {
            pid,
            logged,
            rights,
            namer: outside::namer_of(pid),
            began: Instant::now(),
        };
        let before = self.reading.take();
        let has_ended = Arc::new(AtomicBool::new(false));
        let (to, is_over) = (self.to.clone(), has_ended.clone());
        let work = move || {
            // The events of what the program was before come first. The caller does not wait for
            // them.
            if let Some(before) = before {
                before.end();
            }
            if to.send(LogMessage::Program(Box::new(program))).is_ok() {
                read(ring, &is_over, &to);
            }
        };
        let thread = std::thread::Builder::new().spawn(work);
        let thread = thread.context("cannot start a thread")?;
        self.reading = Some(RingReaderThread { has_ended, thread });
        Ok(())
    }

    /// Writes the remaining events and the last line, which says whether the program `has_exited`.
    pub fn end(mut self, has_exited: bool) -> EventLogEnd {
        let now = Instant::now();
        let progress = self.progress.clone();
        let (done, summary) = channel();
        // Without a thread, `done` is dropped, so there is nothing to wait for.
        let _ = std::thread::Builder::new().spawn(move || {
            if let Some(reading) = self.reading.take() {
                reading.end();
            }
            let _ = self.to.send(LogMessage::End(has_exited, now));
            let _ = self.end.recv().map(|summary| done.send(summary));
        });
        match progress.wait(&summary, FINAL_WRITE_TIMEOUT) {
            Some(summary) => EventLogEnd::Complete(summary),
            None => EventLogEnd::Abandoned,
        }
    }
}

impl EventLogSummary {
    /// Returns the number of events that are not in the log.
    pub fn dropped(&self) -> u64 {
        self.missed.saturating_add(self.beyond)
    }
}

/// Reads a ring until its program has ended, or until the writing thread has ended.
fn read(mut ring: Ring, has_ended: &AtomicBool, to: &SyncSender<LogMessage>) {
    let (mut reported, mut is_cut) = (0, false);
    let mut events = Vec::new();
    loop {
        // The flag is read first, so that events from before the end are still read.
        let is_over = has_ended.load(Ordering::Relaxed);
        let mut may_be_more = true;
        while may_be_more && !is_cut && events.len() < EVENT_BATCH_LIMIT {
            let read = ring.read(is_over, &mut events);
            is_cut = read.is_err();
            may_be_more = read.unwrap_or(false);
        }
        let missed = ring.missed_count() - reported;
        if !events.is_empty() || missed > 0 {
            // The writing thread may be behind. Then events wait here, as long as there are few.
            let must_go = is_over || is_cut || events.len() >= EVENT_BATCH_LIMIT;
            let message = LogMessage::Events(std::mem::take(&mut events), missed);
            let sent = match must_go {
                true => to
                    .send(message)
                    .map_err(|error| TrySendError::Disconnected(error.0)),
                false => to.try_send(message),
            };
            match sent {
                Ok(()) => reported = ring.missed_count(),
                Err(TrySendError::Full(LogMessage::Events(back, _))) => events = back,
                Err(_) => return,
            }
        }
        if is_cut {
            let _ = to.send(LogMessage::Cut);
            return;
        }
        if !may_be_more {
            if is_over {
                return;
            }
            std::thread::sleep(RING_POLL_INTERVAL);
        }
    }
}

/// The writer of the log's text.
struct LogText {
    file: File,
    progress: Arc<WriteProgress>,
    limit: u64,
    len: u64,
    line: Vec<u8>,
    program: Option<LoggedProgram>,
    /// The frames of each stack of the program, and whether these frames were written.
    stacks: Vec<(String, bool)>,
    /// The frames of an unknown stack (number 0), and whether these frames were written.
    unknown: (String, bool),
    /// Number that is added to the number of each stack, because earlier programs used the smaller
    /// numbers.
    base: usize,
    /// The kernel's id of each thread.
    threads: Vec<Option<u32>>,
    /// Whether new stacks, and new threads, may still be read for this batch of events. One reading
    /// is enough, because everything that a batch names exists before the batch is read.
    may_learn: [bool; 2],
    /// When the program's recording began.
    began: Instant,
    /// The time of the program's last event, in nanoseconds.
    last: u64,
    summary: EventLogSummary,
}

impl LogText {
    fn new(file: File, limit: u64, progress: Arc<WriteProgress>) -> Self {
        Self {
            file,
            progress,
            limit,
            len: 0,
            line: HEADER_LINE.as_bytes().to_vec(),
            program: None,
            stacks: Vec::new(),
            unknown: (UNKNOWN_FRAME.to_string(), false),
            base: 0,
            threads: Vec::new(),
            may_learn: [false; 2],
            began: Instant::now(),
            last: 0,
            summary: EventLogSummary::default(),
        }
    }

    fn run(mut self, messages: &Receiver<LogMessage>, done: &Sender<EventLogSummary>) {
        let mut has_exited = false;
        for message in messages {
            match message {
                LogMessage::Program(program) => self.begin(*program),
                LogMessage::Events(events, missed) => {
                    self.summary.missed = self.summary.missed.saturating_add(missed);
                    self.may_learn = [true; 2];
                    for event in events {
                        self.event(event);
                    }
                    self.flush();
                }
                LogMessage::Cut => self.summary.is_cut = true,
                LogMessage::End(exited, now) => {
                    has_exited = exited;
                    let since = now.saturating_duration_since(self.began).as_nanos();
                    self.last = self.last.max(u64::try_from(since).unwrap_or_default());
                    break;
                }
            }
        }
        self.end(has_exited);
        let _ = done.send(self.summary);
    }

    fn begin(&mut self, program: LoggedProgram) {
        let name = program.logged.program().unwrap_or_default();
        let line = format!("program {} {}\n", program.pid, clean(&name));
        self.line.extend_from_slice(line.as_bytes());
        self.base += self.stacks.len();
        self.stacks.clear();
        self.threads.clear();
        (self.began, self.last) = (program.began, 0);
        self.program = Some(program);
        self.flush();
    }

    /// Writes the line of an event, preceded by the line of its stack if the stack is new.
    fn event(&mut self, event: BlockEvent) {
        self.last = self.last.max(event.time);
        let stack = event.stack.to_index();
        if stack >= self.stacks.len() && std::mem::take(&mut self.may_learn[0]) {
            self.learn_stacks();
        }
        // A stack that a damaged ring names, or that can't be read any more, is unknown.
        let (number, frames, is_written) = match self.stacks.get_mut(stack) {
            Some((frames, is_written)) => ((self.base + stack + 1) as u64, frames, is_written),
            None => (0, &mut self.unknown.0, &mut self.unknown.1),
        };
        let len = MAX_EVENT_LINE_BYTES + if *is_written { 0 } else { frames.len() };
        let room = self.limit.saturating_sub(self.len);
        if room < (self.line.len() + len) as u64 || self.summary.failed.is_some() {
            self.summary.beyond += 1;
            return;
        }
        if !std::mem::replace(is_written, true) {
            self.line.extend_from_slice(b"stack ");
            push_number(&mut self.line, number);
            // The frames are written once.
            let frames = std::mem::take(frames);
            self.line.extend_from_slice(frames.as_bytes());
            self.line.push(b'\n');
        }
        let thread = self.thread(event.thread);
        let line = &mut self.line;
        line.extend_from_slice(if event.is_free { b"- " } else { b"+ " });
        push_time(line, event.time);
        line.push(b' ');
        push_number(line, thread.into());
        line.extend_from_slice(b" 0x");
        push_hex(line, event.address);
        line.push(b' ');
        push_number(line, event.size);
        line.push(b' ');
        push_number(line, number);
        line.push(b'\n');
        self.summary.written += 1;
        if self.line.len() >= WRITE_CHUNK_BYTES {
            self.flush();
        }
    }

    /// Returns the kernel's id of a thread; 0 if it is not known.
    fn thread(&mut self, number: ThreadNumber) -> u32 {
        let Some(index) = number.to_index() else {
            return 0;
        };
        let known = |threads: &[Option<u32>]| threads.get(index).copied().flatten();
        if known(&self.threads).is_none()
            && std::mem::take(&mut self.may_learn[1])
            && let Some(Ok(threads)) = self.program.as_ref().map(|of| of.logged.threads())
        {
            self.threads = threads;
        }
        known(&self.threads).unwrap_or(0)
    }

    /// Reads the frames of all new stacks.
    fn learn_stacks(&mut self) {
        let first = self.stacks.len();
        let Some(program) = &mut self.program else {
            return;
        };
        let Ok((mut profile, next)) = program.logged.stacks(StackNumber::from_index(first)) else {
            return;
        };
        // Files that can't be read give no names.
        let rights = program.rights.least(program.pid);
        let _ = outside::give_names(&mut profile, &mut program.namer, rights);
        self.stacks.resize(
            next.to_index().max(first),
            (UNKNOWN_FRAME.to_string(), false),
        );
        let mut len = 0;
        for sample in 0..profile.samples.len() {
            let number = profile.samples.values(sample)[1] as usize;
            if let Some((frames, _)) = self.stacks.get_mut(number)
                && len < MAX_WAITING_TEXT_BYTES
            {
                *frames = frames_of(&profile, sample);
                len += frames.len();
            }
        }
    }

    fn flush(&mut self) {
        let Self { file, line, .. } = self;
        if self.summary.failed.is_none()
            && let Err(error) = self.progress.writing(|| file.write_all(line))
        {
            self.summary.failed = Some(error_text(&error));
        }
        self.len += self.line.len() as u64;
        self.line.clear();
    }

    fn end(&mut self, has_exited: bool) {
        let mut line = b"end ".to_vec();
        push_time(&mut line, self.last);
        let EventLogSummary {
            written,
            missed,
            beyond,
            ..
        } = &self.summary;
        let how = match has_exited {
            // The end of a program that never handed its events over is not known.
            _ if self.summary.is_cut || self.program.is_none() => "cut",
            true => "exited",
            false => "left",
        };
        let counts = format!(
            " {how} written {written} dropped {}",
            self.summary.dropped()
        );
        line.extend_from_slice(counts.as_bytes());
        if self.summary.dropped() > 0 {
            let why = format!(" ({missed} not read in time, {beyond} beyond the limit)");
            line.extend_from_slice(why.as_bytes());
        }
        line.push(b'\n');
        self.line.extend_from_slice(&line);
        self.flush();
        self.summary.is_empty = self.program.is_none();
    }
}

fn error_text(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::BrokenPipe => "its reader has gone".to_string(),
        _ => error.to_string(),
    }
}

/// Returns a stack's frames, newest first, with a tab before each.
fn frames_of(profile: &Profile, sample: usize) -> String {
    let mut text = String::new();
    for index in profile.samples.stack(sample) {
        if text.len() > MAX_STACK_TEXT_BYTES {
            text.push_str("\t[truncated]");
            break;
        }
        let location = &profile.location[index.index()];
        let lines = profile.lines(location);
        if lines.is_empty() {
            text.push('\t');
            text += &unnamed_place_text(profile, location);
        }
        for line in lines {
            let function = &profile.function[line.function.index()];
            text.push('\t');
            text += &clean(profile.text(function.name));
            let file = profile.text(function.filename);
            if !file.is_empty() {
                text += &format!(" ({}:{})", clean(file), line.line);
            }
        }
    }
    text
}

/// Returns the text of a place without a name: its file and the offset in it, or its address.
fn unnamed_place_text(profile: &Profile, location: &Location) -> String {
    let mapping = location
        .mapping
        .map(|index| &profile.mapping[index.index()]);
    let of_file = mapping.and_then(|mapping| {
        let name = Path::new(profile.text(mapping.filename)).file_name()?;
        let from = location.address.checked_sub(mapping.memory_start)?;
        let offset = from.checked_add(mapping.file_offset)?;
        Some(format!("{}+{offset:#x}", clean(&name.to_string_lossy())))
    });
    of_file.unwrap_or_else(|| format!("{:#x}", location.address))
}

/// Replaces tabs and line ends in a name, so that it stays one field of a line.
fn clean(name: &str) -> String {
    let printable = heapprof_text::printable(name);
    printable.replace(['\t', '\n'], " ")
}

fn push_number(line: &mut Vec<u8>, number: u64) {
    push_digits(line, number, 10, 1);
}

fn push_hex(line: &mut Vec<u8>, number: u64) {
    push_digits(line, number, 16, 1);
}

/// Appends a time in seconds, with six decimal places.
fn push_time(line: &mut Vec<u8>, nanoseconds: u64) {
    let micros = nanoseconds / 1000;
    push_number(line, micros / 1_000_000);
    line.push(b'.');
    push_digits(line, micros % 1_000_000, 10, 6);
}

fn push_digits(line: &mut Vec<u8>, mut number: u64, base: u64, least: usize) {
    const MAX_DIGITS: usize = 20;
    let (mut digits, mut from) = ([b'0'; MAX_DIGITS], MAX_DIGITS);
    while number > 0 || MAX_DIGITS - from < least {
        from -= 1;
        digits[from] = b"0123456789abcdef"[(number % base) as usize];
        number /= base;
    }
    line.extend_from_slice(&digits[from..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_people_read_them() {
        let text = |push: fn(&mut Vec<u8>, u64), number| {
            let mut line = Vec::new();
            push(&mut line, number);
            String::from_utf8(line).unwrap()
        };
        assert_eq!(text(push_number, 0), "0");
        assert_eq!(text(push_number, u64::MAX), u64::MAX.to_string());
        assert_eq!(text(push_hex, 0x5500_00ab), "550000ab");
        assert_eq!(text(push_hex, u64::MAX), "ffffffffffffffff");
        assert_eq!(text(push_time, 0), "0.000000");
        assert_eq!(text(push_time, 12_034_056_999), "12.034056");
    }
}
