//! Asks the processes of a recording for their profiles, reads what they answer, and gives the
//! addresses names.
//!
//! An answer is the word of a process that may be another user's, or hostile. So it is read as
//! `lines.rs` reads its messages: through descriptors, in limited time, of limited size.

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

use super::super::list::{ASKED, List};
use super::super::tail::{LIVE, Message, Tail, others};
use super::printed::Printed;
use super::{Common, locked};
use crate::outside::executable_of;
use crate::rights::{ProcessNamer, ProcessRights, RightsLedger};
use crate::terminal::feed::Which;

/// How long the thread sleeps between two looks.
const PAUSE: Duration = Duration::from_millis(30);
/// Until a process has answered, it is asked so often: the first questions may come before the
/// library listens.
const FIRST: Duration = Duration::from_millis(200);
/// Each so manyth question is for all processes, so that new ones are heard of.
const FOR_ALL: u32 = 5;
/// The most users whose processes are heard.
const MOST_USERS: usize = 16;
/// The most bytes that a profile may become in memory.
const MOST_MEMORY: u64 = 256 << 20;
/// The most bytes of a file that may wait to be read, and the most messages of one look.
const MOST_UNREAD: u64 = 64 << 20;
const AT_ONCE: usize = 64;
/// How long the files that a profile of another user names may be read.
const FILES: Duration = Duration::from_millis(500);

/// Whoever asks.
pub(super) struct Asker {
    has_ended: Arc<AtomicBool>,
    work: Option<Work>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread needs.
struct Work {
    folder: PathBuf,
    /// The file with the word that processes look at.
    asked: File,
    count: u32,
    pause: Duration,
    symbolizes: bool,
    users: Vec<User>,
    rights: RightsLedger,
    shared: Common,
    printed: Option<Arc<Printed>>,
}

/// A user whose processes answer.
struct User {
    name: OsString,
    tail: Tail,
    namer: ProcessNamer,
}

impl User {
    fn new((name, tail): (OsString, Tail)) -> Self {
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

impl Asker {
    /// Makes the files in the list's folder, before any process can.
    pub(super) fn new(
        list: &List,
        pause: Duration,
        symbolizes: bool,
        shared: Common,
        rights: RightsLedger,
    ) -> io::Result<Self> {
        let folder = list.path().to_path_buf();
        let asked = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o644)
            .open(folder.join(ASKED))?;
        // Every process may read the word, whatever the umask is, and nobody else may write it.
        asked.set_permissions(Permissions::from_mode(0o644))?;
        asked.write_all_at(&[0; 8], 0)?;
        let own = Tail::of_own(&folder, LIVE)?;
        Ok(Self {
            has_ended: Arc::default(),
            work: Some(Work {
                folder,
                asked,
                count: 0,
                pause,
                symbolizes,
                users: vec![User::new(own)],
                rights,
                shared,
                printed: None,
            }),
            thread: None,
        })
    }

    /// Begins to ask.
    pub(super) fn begin(&mut self, printed: Option<Arc<Printed>>) -> Result<()> {
        let Some(mut work) = self.work.take() else {
            return Ok(());
        };
        work.printed = printed;
        let ended = Arc::clone(&self.has_ended);
        let begun = std::thread::Builder::new()
            .name("asker".into())
            .spawn(move || work.run(&ended))
            .context("it needs a thread")?;
        self.thread = Some(begun);
        Ok(())
    }

    /// Ends, once what the program printed is passed on.
    pub(super) fn end(mut self) {
        self.has_ended.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

impl Work {
    fn run(&mut self, has_ended: &AtomicBool) {
        let mut last = Instant::now();
        loop {
            let is_last = has_ended.load(Ordering::Acquire);
            let (is_wanted, is_left, which, pause) = {
                let shared = locked(&self.shared);
                let is_wanted = shared.ended.is_none() && !shared.is_left;
                let is_left = shared.is_left || is_last;
                let pause = match shared.moments.shown() {
                    Some(_) => self.pause,
                    None => FIRST,
                };
                let is_wanted = is_wanted && !shared.wanted.is_frozen;
                (is_wanted, is_left, shared.wanted.which, pause)
            };
            if is_wanted && last.elapsed() >= pause {
                last = Instant::now();
                self.ask(which);
            }
            if !is_left {
                let is_over = locked(&self.shared).ended.is_some();
                self.hear(which);
                locked(&self.shared).has_all |= is_over;
            }
            if let Some(printed) = &self.printed {
                match is_left {
                    true => printed.pass_on(),
                    false => {
                        printed.limit();
                        locked(&self.shared).output = printed.last_lines();
                    }
                }
            }
            if is_last {
                return;
            }
            std::thread::park_timeout(PAUSE);
        }
    }

    /// Writes the next word: how often somebody has asked, and whom.
    fn ask(&mut self, which: Which) {
        self.count = self.count.wrapping_add(1);
        let whom = match which {
            _ if self.count % FOR_ALL == 1 => 0,
            Which::All => 0,
            Which::Process(process) => process,
            Which::Program => locked(&self.shared).moments.shown().unwrap_or(0),
        };
        let word = u64::from(whom) << 32 | u64::from(self.count);
        if let Err(error) = self.asked.write_all_at(&word.to_ne_bytes(), 0) {
            locked(&self.shared).trouble = Some(format!("the program can't be asked: {error}"));
        }
    }

    /// Reads what was answered.
    fn hear(&mut self, which: Which) {
        let known = |name: &OsString| self.users.iter().any(|user| user.name == *name);
        let room = MOST_USERS.saturating_sub(self.users.len());
        let new = others(&self.folder, LIVE, &known, room);
        self.users.extend(new.into_iter().map(User::new));
        for user in &mut self.users {
            let Ok(len) = user.tail.len() else { continue };
            if user.tail.unread(len) > MOST_UNREAD {
                user.tail.pass_over(len);
            }
            let mut newest: Vec<Message> = Vec::new();
            for _ in 0..AT_ONCE {
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
                let mut shared = locked(&self.shared);
                let process = message.process;
                shared.trouble = None;
                let whose = (process, message.began);
                if let Err(error) = shared.moments.add(user.tail.owner, whose, profile) {
                    shared.trouble = Some(format!("process {process}: {error:#}"));
                }
            }
        }
        if which == Which::All {
            let mut shared = locked(&self.shared);
            if let Err(error) = shared.moments.add_up() {
                shared.trouble = Some(format!("the processes can't be added up: {error:#}"));
            }
        }
    }
}

impl User {
    /// The profile of a message, with names.
    fn read(
        &mut self,
        message: &Message,
        symbolizes: bool,
        rights: &RightsLedger,
    ) -> Option<Profile> {
        let options = ReadOptions::default()
            .max_inflated(MOST_MEMORY)
            .max_memory(MOST_MEMORY);
        let mut profile = decode_with(&message.profile[..], options).ok()?;
        if symbolizes {
            self.namer.set_opened(vec![executable_of(message.process)]);
            // The files that are named are read with the rights of whoever names them.
            let rights = ProcessRights::User(self.tail.owner).with(rights.least(message.process));
            let _ = self.namer.symbolize_within(&mut profile, rights, FILES);
        }
        Some(profile)
    }
}
