//! Reports the lines of code whose memory has grown, while the program runs.
//!
//! The library decides when to report the growth of a stack. It writes the growth into a file
//! beside the list of profiles (`tail.rs`), as a small profile with raw addresses. A thread here
//! reads that file, names the addresses, and reports each line that has grown enough.
//!
//! Processes of other users write such files too. So a scan takes a limited time, and no user can
//! take more than half of it. The data about each user's lines has a limit, too.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use heapprof_analysis::{CodePlace as Line, line_growth::line_growth};
use heapprof_files::{FileOwner, acting};
use heapprof_profile::{ReadOptions, decode_with};
use heapprof_report::LineGrowth;
use heapprof_symbolize::SymbolizeOptions;

use crate::line_growth::FollowedProcesses;
use crate::line_output::{LineOutput, LinePipe};
use crate::observer::{RecordingEvent, RecordingObserver};
use crate::outside::executable_of;
use crate::rights::{ProcessNamer, ProcessRights, RightsLedger};
use crate::start_error::RecordingStartError;
use crate::tail::{LINES_SUFFIX, MessageTail, TailMessage, find_others};

/// How long the thread sleeps between two scans.
const SCAN_INTERVAL: Duration = Duration::from_millis(30);
/// Longest time that a scan may take.
const SCAN_TIME_LIMIT: Duration = Duration::from_secs(1);
/// Longest time that the last scan may take.
const FINAL_SCAN_TIME_LIMIT: Duration = Duration::from_secs(5);
/// Maximum number of users whose processes are followed.
const MAX_USERS: usize = 16;
/// Largest size that a message may have in memory, in bytes.
const MAX_MESSAGE_MEMORY: u64 = 128 << 20;
/// Maximum number of a user's messages that are read at once, and maximum number of their bytes.
const MESSAGE_BATCH_LIMIT: (usize, usize) = (256, 4 << 20);
/// Maximum number of bytes of a user's file that may wait to be read.
const MAX_UNREAD_BYTES: u64 = 256 << 20;
/// Longest time for reading the files that a message of another user names.
const FILE_READ_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum number of bytes that are printed about other users' processes in a second.
const MAX_OTHER_USER_BYTES_PER_SECOND: f64 = 65_536.0;

/// The options for reporting lines of code whose memory grows.
pub struct LineFollowOptions {
    /// The smallest growth in bytes that is reported.
    pub least: u64,
    /// Whether addresses get names.
    pub symbolizes: bool,
    /// The file or pipe for the reports, with its path; `None` if the reports go to the front end's
    /// messages.
    pub output: Option<(File, PathBuf)>,
}

/// The handle of the thread that reports growing lines of code.
pub(crate) struct LineFollowThread {
    has_ended: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl LineFollowThread {
    /// Follows the messages that processes write into the folder `list`, until [`end`](Self::end).
    pub(crate) fn start(
        list: &Path,
        wanted: LineFollowOptions,
        observer: Arc<dyn RecordingObserver>,
        rights: RightsLedger,
    ) -> Result<Self, RecordingStartError> {
        let has_ended = Arc::new(AtomicBool::new(false));
        let (name, own) =
            MessageTail::create_own(list, LINES_SUFFIX).map_err(RecordingStartError::NoFile)?;
        let output = match wanted.output {
            None => LineOutput::Messages(Arc::clone(&observer)),
            Some((file, path)) => {
                LineOutput::File(LinePipe::new(file, path), Arc::clone(&observer))
            }
        };
        let mut lines = FollowTask {
            folder: list.to_path_buf(),
            users: vec![FollowedUser::new(name, own)],
            rights,
            saying: LineReporter {
                least: i64::try_from(wanted.least).unwrap_or(i64::MAX),
                symbolizes: wanted.symbolizes,
                observer,
                output,
                began: Instant::now(),
                left: MAX_OTHER_USER_BYTES_PER_SECOND,
                refilled: Instant::now(),
                is_behind: false,
            },
            is_damaged: false,
            is_behind: false,
        };
        let ended = Arc::clone(&has_ended);
        let work = move || {
            loop {
                // The messages that exist after the program's end are the last ones.
                let is_last = ended.load(Ordering::Acquire);
                lines.scan(is_last);
                if is_last {
                    break;
                }
                std::thread::park_timeout(SCAN_INTERVAL);
            }
        };
        let thread = std::thread::Builder::new()
            .spawn(work)
            .map_err(RecordingStartError::NoLineThread)?;
        Ok(Self { has_ended, thread })
    }

    /// Reports the remaining lines, and ends the thread.
    pub(crate) fn end(self) {
        self.has_ended.store(true, Ordering::Release);
        self.thread.thread().unpark();
        let _ = self.thread.join();
    }
}

/// The state of the thread that reports growing lines of code.
struct FollowTask {
    folder: PathBuf,
    /// The users whose processes are followed; heapprof's own user comes first.
    users: Vec<FollowedUser>,
    rights: RightsLedger,
    saying: LineReporter,
    /// Whether the note about a damaged file was printed.
    is_damaged: bool,
    /// Whether the note about lines that were left out was printed.
    is_behind: bool,
}

/// A user whose processes report their lines.
struct FollowedUser {
    /// The name of the user's file.
    name: OsString,
    tail: MessageTail,
    /// Messages that were read, and that no scan has handled yet.
    waiting: VecDeque<TailMessage>,
    namer: ProcessNamer,
    followed: FollowedProcesses,
}

/// The reporter of lines of code that have grown.
struct LineReporter {
    least: i64,
    symbolizes: bool,
    observer: Arc<dyn RecordingObserver>,
    output: LineOutput,
    began: Instant,
    /// Number of bytes that may be printed about other users' processes, as computed at the time
    /// `refilled`.
    left: f64,
    /// The time at which `left` was computed.
    refilled: Instant,
    /// Whether some lines were left out.
    is_behind: bool,
}

impl FollowTask {
    /// Reads new messages, and prints their lines.
    fn scan(&mut self, is_last: bool) {
        let end = Instant::now()
            + if is_last {
                FINAL_SCAN_TIME_LIMIT
            } else {
                SCAN_TIME_LIMIT
            };
        self.find_new_files();
        self.saying.refill();
        let patience = is_last.then_some(end);
        let mut is_damaged = false;
        for user in &mut self.users {
            // A process that goes on writing must not keep the scan at its file.
            let Ok(len) = user.tail.len() else { continue };
            let has_too_much = user.tail.unread(len) > MAX_UNREAD_BYTES;
            self.saying.is_behind |= has_too_much;
            if has_too_much || !self.saying.output.is_wanted() {
                // The file must not grow while nothing is read from it.
                user.tail.pass_over(len);
            }
            let now = Instant::now();
            let until = now + end.saturating_duration_since(now) / 2;
            while self.saying.output.write(patience) && Instant::now() < until {
                if !user.read(len, &mut self.saying, until, &self.rights) {
                    break;
                }
            }
            is_damaged |= user.tail.is_damaged;
        }
        let is_last_line_out = self.saying.output.write(patience);
        debug_assert!(is_last_line_out || !is_last);
        if is_damaged && !std::mem::replace(&mut self.is_damaged, is_damaged) {
            self.saying.observer.event(RecordingEvent::DamagedLines);
        }
        if self.saying.is_behind && !std::mem::replace(&mut self.is_behind, true) {
            self.saying.observer.event(RecordingEvent::SkippedLines);
        }
    }

    fn find_new_files(&mut self) {
        let is_known = |name: &OsString| self.users.iter().any(|user| user.name == *name);
        let room = MAX_USERS.saturating_sub(self.users.len());
        let new = find_others(&self.folder, LINES_SUFFIX, &is_known, room);
        let new = new
            .into_iter()
            .map(|(name, tail)| FollowedUser::new(name, tail));
        self.users.extend(new);
    }
}

impl FollowedUser {
    fn new(name: OsString, tail: MessageTail) -> Self {
        Self {
            name,
            tail,
            waiting: VecDeque::new(),
            namer: ProcessNamer::new(SymbolizeOptions {
                number_functions: true,
                ..SymbolizeOptions::default()
            }),
            followed: FollowedProcesses::default(),
        }
    }

    /// Reads messages in the first `len` bytes of the file, and prints their lines. Stops at the
    /// time `until`, and returns whether there may be more messages.
    fn read(
        &mut self,
        len: u64,
        saying: &mut LineReporter,
        until: Instant,
        ledger: &RightsLedger,
    ) -> bool {
        let mut bytes: usize = self.waiting.iter().map(|one| one.profile.len()).sum();
        while self.waiting.len() < MESSAGE_BATCH_LIMIT.0 && bytes < MESSAGE_BATCH_LIMIT.1 {
            let Ok(Some(message)) = self.tail.next(len) else {
                break;
            };
            bytes += message.profile.len();
            self.waiting.push_back(message);
        }
        let mut has_all = true;
        let (symbolizes, waiting) = (saying.symbolizes, &self.waiting);
        let (owner, namer) = (self.tail.owner, &mut self.namer);
        let options = ReadOptions::default()
            .max_inflated(MAX_MESSAGE_MEMORY)
            .max_memory(MAX_MESSAGE_MEMORY);
        // The files that a message names are read with the rights of the process that names them.
        let all = waiting.iter().map(|message| ledger.least(message.process));
        let rights: Vec<_> = all
            .map(|least| ProcessRights::User(owner).with(least))
            .collect();
        let mut grown = |message: &TailMessage, rights| -> Option<Vec<(Line, i64)>> {
            let mut profile = decode_with(&message.profile[..], options).ok()?;
            if symbolizes {
                namer.set_opened(vec![executable_of(message.process)]);
                let named = namer.symbolize_within(&mut profile, rights, FILE_READ_TIMEOUT);
                has_all &= named.unwrap_or(false);
            }
            let (lines, is_whole) = line_growth(&profile).ok()?;
            has_all &= is_whole;
            Some(lines)
        };
        // The message itself is read with its writer's rights as well.
        let found = acting(owner, || {
            let mut found = Vec::new();
            for (message, rights) in waiting.iter().zip(rights) {
                found.push(grown(message, rights));
                if Instant::now() > until {
                    break;
                }
            }
            found
        });
        saying.is_behind |= !has_all;
        let Ok(found) = found else {
            // Here heapprof can't act as that user.
            let had_some = !self.waiting.is_empty();
            self.waiting.clear();
            return had_some;
        };
        let done = found.len();
        for (grown, message) in found.into_iter().zip(self.waiting.drain(..done)) {
            let Some(grown) = grown else {
                self.tail.is_damaged = true;
                continue;
            };
            for (place, bytes) in self.followed.add(&message, grown, saying.least) {
                saying.say(&message, self.tail.owner, &place, bytes);
            }
        }
        done != 0
    }
}

impl LineReporter {
    /// Computes how much may be printed about other users' processes.
    fn refill(&mut self) {
        let passed = self.refilled.elapsed().as_secs_f64();
        self.refilled = Instant::now();
        self.left = (self.left + passed * MAX_OTHER_USER_BYTES_PER_SECOND)
            .min(MAX_OTHER_USER_BYTES_PER_SECOND);
    }

    fn say(&mut self, message: &TailMessage, owner: FileOwner, place: &Line, bytes: i64) {
        let growth = LineGrowth {
            process: message.process,
            user: (!owner.is_us()).then_some(owner.user),
            place,
            bytes,
            is_exact: message.is_exact,
            seconds: (self.began.elapsed().as_secs_f64() * 1000.0).round() / 1000.0,
        };
        let text = self.observer.growth_text(&growth);
        if growth.user.is_some() {
            // So the lines of this user's processes wait behind no more than this.
            if self.left < text.len() as f64 {
                self.is_behind = true;
                return;
            }
            self.left -= text.len() as f64;
        }
        self.output.say(&text);
    }
}
