//! The handle by which `record` starts, notifies and ends the ledger keeper.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};

use super::callers::{CallerRegistry, open_listening_socket};
use super::keeper_outcome::KeeperOutcome;
use super::start::allow_files;
use super::{KeeperMessage, KeeperTask, SIGNAL_DELAY_TIMEOUT};
use crate::audit::ForkAuditor;
use crate::kept_ledger::{OwnFiles, ProfileWriteOptions};
use crate::log::EventLogWriter;
use crate::oom::OomCounts;
use crate::peak_divisions::SharedPeakDivisions;
use crate::rights::RightsLedger;
use crate::root_folder::RootFolders;
use crate::sockets::{ListeningSocket, SocketKind};

/// Longest time for which the reaping of an ended program is delayed, so that the messages of all
/// callers can be read.
const REAPING_DELAY_TIMEOUT: Duration = Duration::from_secs(5);

/// The handle by which `record` starts, notifies and ends the ledger keeper.
pub(crate) struct KeeperHandle {
    path: PathBuf,
    wake: OwnedFd,
    messages: Sender<KeeperMessage>,
    /// Whether children are audited.
    audits: bool,
    work: KeeperState,
}

/// What the keeper inspects of processes while they wait for it.
#[derive(Default)]
pub(crate) struct ProcessInspections {
    /// The audit of the forked children, if they are audited.
    pub(crate) audit: Option<ForkAuditor>,
    /// How the memory of each process was divided at its peak, if that is wanted.
    pub(crate) divisions: Option<SharedPeakDivisions>,
}

/// The state of the ledger keeper's work.
enum KeeperState {
    /// The work has not started. Until it starts, the kernel lets processes that call wait.
    NotStarted(Box<KeeperTask>),
    Running(JoinHandle<KeeperOutcome>),
    /// There is no keeper, because no thread could be made for it. The task was lost in the
    /// attempt.
    Unavailable,
}

impl KeeperHandle {
    /// Makes a keeper that listens at a socket beside the list of a recording.
    ///
    /// # Errors
    /// The kernel may refuse a socket, and a path may be too long.
    pub(crate) fn new(
        list: &Path,
        wanted: ProfileWriteOptions,
        log: Option<EventLogWriter>,
        inspections: ProcessInspections,
        rights: RightsLedger,
    ) -> io::Result<Self> {
        let (socket, path) = open_listening_socket(list)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let woken = wake.try_clone()?;
        let (sender, receiver) = channel();
        let ProcessInspections { audit, divisions } = inspections;
        let audits = audit.is_some();
        let keeping = KeeperTask {
            socket,
            // Without this socket, no command can ask. The kernel lets most users read their
            // processes.
            questions: ListeningSocket::start(SocketKind::RECORD).ok(),
            woken,
            messages: receiver,
            wanted,
            main: 0,
            log,
            audit,
            divisions,
            counts: OomCounts::new(),
            replaced: [0; 2],
            has_begun: false,
            is_short: false,
            rights,
            callers: CallerRegistry::default(),
            processes: Vec::new(),
            roots: RootFolders::default(),
            own_files: OwnFiles::default(),
            saved: KeeperOutcome::default(),
        };
        Ok(Self {
            path,
            wake,
            messages: sender,
            audits,
            work: KeeperState::NotStarted(Box::new(keeping)),
        })
    }

    /// Starts to keep the ledgers of the program `main` and of its descendants. The keeper's thread
    /// starts only after the program, because a thread changes the signal settings that a program
    /// inherits.
    pub(crate) fn start(&mut self, main: u32) {
        self.work = match std::mem::replace(&mut self.work, KeeperState::Unavailable) {
            KeeperState::NotStarted(mut keeping) => {
                keeping.main = main;
                if let Some(audit) = &mut keeping.audit {
                    audit.begin(main);
                }
                allow_files();
                match std::thread::Builder::new().spawn(|| keeping.run()) {
                    Ok(thread) => KeeperState::Running(thread),
                    Err(_) => KeeperState::Unavailable,
                }
            }
            work => work,
        };
    }

    /// Makes the keeper inspect audited children before a signal that may end them. After the
    /// signal, the interpreter in a child may clean up, and so write to many pages.
    pub(crate) fn before_signal(&self) {
        if !self.audits {
            return;
        }
        let (done, is_done) = channel();
        self.send_message(KeeperMessage::Signal(Instant::now(), done));
        let _ = is_done.recv_timeout(SIGNAL_DELAY_TIMEOUT);
    }

    /// Makes the keeper read the messages of all processes that called before the program ended.
    /// This must come before the program is reaped, while the kernel still shows the program's
    /// rights.
    pub(crate) fn before_reaping(&self) {
        let (done, is_done) = channel();
        if let KeeperState::Running(_) = self.work {
            self.send_message(KeeperMessage::Reaping(done));
            let _ = is_done.recv_timeout(REAPING_DELAY_TIMEOUT);
        }
    }

    fn send_message(&self, word: KeeperMessage) {
        let _ = self.messages.send(word);
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// Returns the path of the socket at which processes hand over their files.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Ends the keeper, and returns its results. If the program `was_killed`, its other processes
    /// get a moment to end too.
    pub(crate) fn end(self, was_killed: bool) -> KeeperOutcome {
        self.send_message(KeeperMessage::End(was_killed));
        match self.work {
            KeeperState::NotStarted(keeping) => keeping.run(),
            KeeperState::Running(thread) => thread.join().unwrap_or_default(),
            KeeperState::Unavailable => KeeperOutcome::default(),
        }
    }
}
