//! Requests profiles from the processes of a recording, reads the answers, and names their
//! addresses.
//!
//! An answer may come from another user's process, or from a hostile one. So it is read through
//! descriptors, in limited time, and with limited size.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use heapprof_profile::{Profile, ReadOptions, decode_with};
use heapprof_symbolize::SymbolizeOptions;
use heapprof_terminal::feed::ProcessChoice;

use super::program_output::ProgramOutput;
use super::{SharedLiveState, lock_state};
use crate::list::{ASKED_FILE_NAME, ProfileList};
use crate::outside::executable_of;
use crate::rights::{ProcessNamer, ProcessRights, RightsLedger};
use crate::tail::{LIVE_SUFFIX, MessageTail, TailMessage, find_others};

/// How long the thread sleeps between two scans.
const SCAN_INTERVAL: Duration = Duration::from_millis(30);
/// Time between two requests to a process that has not answered yet: the first requests may come
/// before the library listens.
const STARTUP_ASK_INTERVAL: Duration = Duration::from_millis(200);
/// Every `ASK_ALL_PERIOD`th request goes to all processes, so that new processes are found.
const ASK_ALL_PERIOD: u32 = 5;
/// Maximum number of users whose answers are read.
const MAX_USERS: usize = 16;
/// Largest size that a profile may have in memory, in bytes.
const MAX_PROFILE_MEMORY: u64 = 256 << 20;
/// Maximum number of bytes of a file that may wait to be read.
const MAX_UNREAD_BYTES: u64 = 64 << 20;
/// Maximum number of messages of a file that one scan reads.
const MAX_MESSAGES_PER_SCAN: usize = 64;
/// Longest time for reading the files that a profile of another user names.
const FILE_READ_TIMEOUT: Duration = Duration::from_millis(500);

/// The handle of the thread that requests profiles from processes.
pub(super) struct ProfileAsker {
    has_ended: Arc<AtomicBool>,
    work: Option<AskerTask>,
    thread: Option<JoinHandle<()>>,
}

/// The state of the thread that requests profiles.
struct AskerTask {
    folder: PathBuf,
    /// The file that holds the request, a word that processes check.
    asked: File,
    count: u32,
    pause: Duration,
    symbolizes: bool,
    users: Vec<AnsweringUser>,
    rights: RightsLedger,
    shared: SharedLiveState,
    printed: Option<Arc<ProgramOutput>>,
}

/// A user whose processes answer with profiles.
struct AnsweringUser {
    name: OsString,
    tail: MessageTail,
    namer: ProcessNamer,
}

impl AnsweringUser {
    fn new((name, tail): (OsString, MessageTail)) -> Self {
        Self {
            name,
            tail,
            namer: ProcessNamer::new(SymbolizeOptions {
                number_functions: true,
                ..SymbolizeOptions::default()
            }),
        }
    }
}

impl ProfileAsker {
    /// Makes the files in the list's folder, before any process can make files with their names.
    pub(super) fn new(
        list: &ProfileList,
        pause: Duration,
        symbolizes: bool,
        shared: SharedLiveState,
        rights: RightsLedger,
    ) -> io::Result<Self> {
        let folder = list.path().to_path_buf();
        let asked = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o644)
            .open(folder.join(ASKED_FILE_NAME))?;
        // Every process may read the word, whatever the umask is, and no other user may write it.
        asked.set_permissions(Permissions::from_mode(0o644))?;
        asked.write_all_at(&[0; 8], 0)?;
        let own = MessageTail::create_own(&folder, LIVE_SUFFIX)?;
        Ok(Self {
            has_ended: Arc::default(),
            work: Some(AskerTask {
                folder,
                asked,
                count: 0,
                pause,
                symbolizes,
                users: vec![AnsweringUser::new(own)],
                rights,
                shared,
                printed: None,
            }),
            thread: None,
        })
    }

    /// Starts the thread that requests profiles.
    pub(super) fn begin(&mut self, printed: Option<Arc<ProgramOutput>>) -> Result<()> {
        let Some(mut work) = self.work.take() else {
            return Ok(());
        };
        work.printed = printed;
        let ended = Arc::clone(&self.has_ended);
        let begun = std::thread::Builder::new()
            .name("asker".into())
            .spawn(move || work.run(&ended))
            .context("cannot start its thread")?;
        self.thread = Some(begun);
        Ok(())
    }

    /// Ends the thread after it has passed on the program's output.
    pub(super) fn end(mut self) {
        self.has_ended.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

impl AskerTask {
    fn run(&mut self, has_ended: &AtomicBool) {
        let mut last = Instant::now();
        loop {
            let is_last = has_ended.load(Ordering::Acquire);
            let (is_wanted, is_left, which, pause) = {
                let shared = lock_state(&self.shared);
                let is_wanted = shared.ended.is_none() && !shared.is_view_closed;
                let is_left = shared.is_view_closed || is_last;
                let pause = match shared.moments.shown_process() {
                    Some(_) => self.pause,
                    None => STARTUP_ASK_INTERVAL,
                };
                let is_wanted = is_wanted && !shared.wanted.is_frozen;
                (is_wanted, is_left, shared.wanted.which, pause)
            };
            if is_wanted && last.elapsed() >= pause {
                last = Instant::now();
                self.ask(which);
            }
            if !is_left {
                let is_over = lock_state(&self.shared).ended.is_some();
                self.hear(which);
                lock_state(&self.shared).has_all |= is_over;
            }
            if let Some(printed) = &self.printed {
                match is_left {
                    true => printed.pass_on(),
                    false => {
                        printed.limit();
                        lock_state(&self.shared).output = printed.last_lines();
                    }
                }
            }
            if is_last {
                return;
            }
            std::thread::park_timeout(SCAN_INTERVAL);
        }
    }

    /// Writes the next request: the number of requests so far, and the process that is to answer.
    fn ask(&mut self, which: ProcessChoice) {
        self.count = self.count.wrapping_add(1);
        let whom = match which {
            _ if self.count % ASK_ALL_PERIOD == 1 => 0,
            ProcessChoice::All => 0,
            ProcessChoice::Process(process) => process,
            ProcessChoice::Program => lock_state(&self.shared)
                .moments
                .shown_process()
                .unwrap_or(0),
        };
        let word = u64::from(whom) << 32 | u64::from(self.count);
        if let Err(error) = self.asked.write_all_at(&word.to_ne_bytes(), 0) {
            lock_state(&self.shared).trouble =
                Some(format!("the program can't be reached: {error}"));
        }
    }

    /// Reads the profiles that processes sent.
    fn hear(&mut self, which: ProcessChoice) {
        let known = |name: &OsString| self.users.iter().any(|user| user.name == *name);
        let room = MAX_USERS.saturating_sub(self.users.len());
        let new = find_others(&self.folder, LIVE_SUFFIX, &known, room);
        self.users.extend(new.into_iter().map(AnsweringUser::new));
        for user in &mut self.users {
            let Ok(len) = user.tail.len() else { continue };
            if user.tail.unread(len) > MAX_UNREAD_BYTES {
                user.tail.pass_over(len);
            }
            let mut newest: Vec<TailMessage> = Vec::new();
            for _ in 0..MAX_MESSAGES_PER_SCAN {
                let Ok(Some(message)) = user.tail.next(len) else {
                    break;
                };
                // Only the newest answer of a process is shown.
                newest.retain(|other| other.process != message.process);
                newest.push(message);
            }
            for message in newest {
                let Some(profile) = user.read(&message, self.symbolizes, &self.rights) else {
                    continue;
                };
                let mut shared = lock_state(&self.shared);
                let process = message.process;
                shared.trouble = None;
                let whose = (process, message.began);
                if let Err(error) = shared.moments.add(user.tail.owner, whose, profile) {
                    shared.trouble = Some(format!("process {process}: {error:#}"));
                }
            }
        }
        if which == ProcessChoice::All {
            let mut shared = lock_state(&self.shared);
            if let Err(error) = shared.moments.add_up() {
                shared.trouble = Some(format!("the processes can't be added up: {error:#}"));
            }
        }
    }
}

impl AnsweringUser {
    /// Returns the profile of a message, with named addresses.
    fn read(
        &mut self,
        message: &TailMessage,
        symbolizes: bool,
        rights: &RightsLedger,
    ) -> Option<Profile> {
        let options = ReadOptions::default()
            .max_inflated(MAX_PROFILE_MEMORY)
            .max_memory(MAX_PROFILE_MEMORY);
        let mut profile = decode_with(&message.profile[..], options).ok()?;
        if symbolizes {
            self.namer.set_opened(vec![executable_of(message.process)]);
            // The files that a message names are read with the rights of the process that names
            // them.
            let rights = ProcessRights::User(self.tail.owner).with(rights.least(message.process));
            let _ = self
                .namer
                .symbolize_within(&mut profile, rights, FILE_READ_TIMEOUT);
        }
        Some(profile)
    }
}
