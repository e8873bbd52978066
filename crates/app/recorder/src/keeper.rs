//! The ledger keeper: keeps the ledgers of the recording's processes, which hand them over as files
//! in memory. If a process ends without having written its profile, the keeper writes the profile.
//! While a process runs, the keeper gives the process's ledger file to other commands of the same
//! user on request. A process may wait at its end until the keeper has read its memory.

mod callers;
mod handle;
mod keeper_outcome;
mod process;
mod rights_message;
mod start;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::{Duration, Instant};

use heapprof_live::{LedgerProcessState, SharedLedger};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use self::callers::{CallerRegistry, KeeperCaller, number_of};
pub(crate) use self::handle::{KeeperHandle, ProcessInspections};
pub(crate) use self::keeper_outcome::KeeperOutcome;
use self::process::LedgerProcess;
use self::rights_message::LoweredRights;
use self::start::begin;
use crate::audit::{ChildMessage, ForkAuditor};
use crate::kept_ledger::{
    EndResult, EndedProcess, OwnFiles, ProcessDeath, ProcessEnd, ProfileWriteOptions, write,
};
use crate::log::EventLogWriter;
use crate::note::{NoPlaceError, RecordingNote};
use crate::oom::{self, OomCounts};
use crate::outside::command_line;
use crate::peak_divisions::{ReadingTime, SharedPeakDivisions};
use crate::records::{self, RecordQuestion};
use crate::residents::resident;
use crate::rights::{ProcessRights, RightsLedger};
use crate::root_folder::RootFolders;
use crate::sockets::ListeningSocket;

/// Maximum number of ledgers that are kept at a time.
const MAX_PROCESSES: usize = 4096;
/// Maximum number of ledgers that are kept at a time for processes of other users, for all these
/// users together.
const MAX_PROCESSES_OF_OTHERS: usize = 1024;
/// Maximum number of callers that are accepted in a row, before the keeper does other work.
const MAX_ACCEPTED_CALLERS: usize = 1024;
/// Longest time that the keeper waits for the other processes of a killed program to end.
const KILL_GRACE_TIMEOUT: Duration = Duration::from_secs(1);
/// Longest time that a killed process may take to end: on a busy machine, it may wait long for a
/// processor.
const END_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest time that the keeper waits for the last forked child to report itself after the program
/// has ended.
const LAST_FORK_TIMEOUT: Duration = Duration::from_millis(200);
/// Usual time for reading a ledger. Only the time beyond it counts towards the limit of the
/// ledger's user.
const USUAL_READ_TIME: Duration = Duration::from_secs(2);
/// Longest message of a caller, in bytes.
const MAX_MESSAGE_BYTES: usize = 8192;
/// Maximum number of profiles that are written for programs that an exec replaced without a report.
/// The limit applies to this user, and separately to all other users together.
const MAX_REPLACED_PROGRAMS: u32 = 200;
/// Maximum number of notes that are kept.
const MAX_NOTES: usize = 20;
/// Longest time for which a signal to the program is delayed. The delay lets the keeper inspect the
/// children that the signal may end.
const SIGNAL_DELAY_TIMEOUT: Duration = Duration::from_secs(2);
/// Time after which the keeper tries again to accept a caller that it could not accept.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// The message of a process that is about to end, and waits until its memory has been read.
const LAST_READING_MESSAGE: &[u8] = b"heapprof's last memory 1\n";

/// The message with which a process in another root folder hands over its ledger, its root folder,
/// and its executable.
const GREETING_WITH_ROOT: &[u8] = b"heapprof's kept books 1 in another root\n";

/// A message to the ledger keeper.
enum KeeperMessage {
    /// The program has ended. The flag says whether it was killed.
    End(bool),
    /// The program has ended, and is reaped after the keeper's answer.
    Reaping(Sender<()>),
    /// A signal that may end the program came at this moment. It is passed on after the keeper's
    /// answer.
    Signal(Instant, Sender<()>),
}

struct KeeperTask {
    socket: OwnedFd,
    questions: Option<ListeningSocket>,
    woken: OwnedFd,
    messages: Receiver<KeeperMessage>,
    wanted: ProfileWriteOptions,
    /// Process id of the program.
    main: u32,
    /// The log of the program's events, if one is written.
    log: Option<EventLogWriter>,
    /// The audit of the forked children, if they are audited.
    audit: Option<ForkAuditor>,
    /// How the memory of each process was divided at its peak, if that is wanted.
    divisions: Option<SharedPeakDivisions>,
    counts: OomCounts,
    /// Number of programs that an exec replaced without a report: programs of other users, and
    /// programs of this user.
    replaced: [u32; 2],
    /// Whether the program has handed over a ledger file.
    has_begun: bool,
    /// Whether a caller could not be accepted, because there are too many callers or no free file
    /// descriptors.
    is_short: bool,
    /// The observed rights of processes.
    rights: RightsLedger,
    callers: CallerRegistry,
    processes: Vec<LedgerProcess>,
    /// The root folders of processes in containers.
    roots: RootFolders,
    /// The number and the size of the files that `record` makes for processes whose users may not
    /// write their profiles.
    own_files: OwnFiles,
    saved: KeeperOutcome,
}

impl KeeperTask {
    /// Does the work of the keeper, until the keeper's handle ends it. Returns the results.
    fn run(mut self) -> KeeperOutcome {
        self.keep();
        if let Some(note) = self.callers.note() {
            self.note(note);
        }
        if let Some(log) = self.log.take() {
            self.saved.log = Some(log.end(true));
        }
        if let Some(audit) = self.audit.take() {
            // No process is to wait for an answer that does not come.
            drop(self.socket);
            let (written, notes) = audit.write(&self.wanted);
            self.saved.audited = written;
            self.saved.notes.extend(notes);
        }
        self.saved
    }

    fn keep(&mut self) {
        let mut until: Option<Instant> = None;
        let mut last = Instant::now();
        loop {
            if self.counts.read_if_due() {
                self.processes
                    .iter_mut()
                    .for_each(LedgerProcess::check_stays);
                let rights = |one: &LedgerProcess| self.rights.least_observed(one.number());
                let all = self.processes.iter().map(|one| (one.pid, rights(one)));
                self.saved.executables.add_deleted(all);
            }
            let ended = self.processes.iter().filter(|process| process.has_ended());
            let ended: Vec<Pid> = ended.map(|process| process.pid).collect();
            // Messages that these processes sent are read before the processes are given up.
            self.serve_callers();
            self.finish_those(ProcessEnd::Death, |process| {
                ended.contains(&process.pid) && process.has_ended()
            });
            if let Some(audit) = &mut self.audit {
                audit.inspect_due();
            }
            let is_done = until.is_some_and(|until| {
                let is_idle = self.processes.is_empty() && self.callers.waiting.is_empty();
                // A child that was forked last may not have called yet.
                is_idle && self.audit.is_none() || until <= Instant::now()
            });
            if is_done {
                let is_dying = |process: &LedgerProcess| process.is_dying();
                if Instant::now() >= last || !self.processes.iter().any(is_dying) {
                    return;
                }
                until = Some(Instant::now() + RETRY_INTERVAL);
            }
            match self.messages.try_recv() {
                Ok(KeeperMessage::End(was_killed)) => {
                    // The messages of processes that have called by now are still read.
                    let grace = if was_killed {
                        KILL_GRACE_TIMEOUT
                    } else {
                        self.grace()
                    };
                    until = Some(Instant::now() + grace);
                    last = Instant::now() + END_TIMEOUT;
                }
                Ok(KeeperMessage::Reaping(done)) => {
                    self.serve_callers();
                    let _ = done.send(());
                }
                Ok(KeeperMessage::Signal(came, done)) => {
                    if let Some(audit) = &mut self.audit {
                        audit.inspect_all(came + SIGNAL_DELAY_TIMEOUT);
                    }
                    let _ = done.send(());
                }
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) if until.is_none() => return,
                Err(TryRecvError::Disconnected) => {}
            }
            if until.is_none_or(|until| until > Instant::now()) {
                self.wait(until);
            }
        }
    }

    /// Returns how long the keeper waits for further callers when the program has ended.
    fn grace(&self) -> Duration {
        match self.audit {
            Some(_) => LAST_FORK_TIMEOUT,
            None => Duration::ZERO,
        }
    }

    /// Sleeps until something happens, or until the moment `until`.
    fn wait(&mut self, until: Option<Instant>) {
        self.is_short |= self.callers.are_full();
        let by_hand = self.processes.iter().any(|one| one.end_fd.is_none());
        let soon = (self.is_short || by_hand).then(|| Instant::now() + RETRY_INTERVAL);
        let counted = (!self.processes.is_empty()).then(|| Instant::now() + oom::OOM_READ_INTERVAL);
        let of_callers = self.callers.waiting.iter().map(|caller| caller.until);
        let looks = self.audit.as_ref().and_then(ForkAuditor::next_inspection);
        let until = of_callers.chain(until).chain(soon).chain(counted);
        let until = until.chain(looks).min();
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        let each = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let mut all = vec![each(self.woken.as_fd())];
        if !self.is_short {
            let questions = self.questions.as_ref();
            all.push(each(self.socket.as_fd()));
            all.extend(questions.map(|questions| each(questions.socket.as_fd())));
        }
        all.extend(
            self.callers
                .waiting
                .iter()
                .map(|caller| each(caller.socket.as_fd())),
        );
        let ends = self.processes.iter().filter_map(|of| of.end_fd.as_ref());
        all.extend(ends.map(|fd| each(fd.as_fd())));
        let children = self.audit.iter().flat_map(ForkAuditor::end_fds);
        all.extend(children.map(|fd| each(fd.as_fd())));
        let _ = poll(&mut all, left.as_ref());
        let _ = rustix::io::read(&self.woken, &mut [0u8; 8]);
        self.is_short = false;
    }

    /// Accepts all callers, and handles their messages.
    fn serve_callers(&mut self) {
        let questions = self.questions.as_ref().map(|questions| &questions.socket);
        let sockets = [(Some(&self.socket), false), (questions, true)];
        for (socket, asks) in sockets {
            let Some(socket) = socket else {
                continue;
            };
            let is_living = |number: u32| {
                number == self.main
                    || self
                        .processes
                        .iter()
                        .any(|process| process.number() == number)
                    || self.audit.as_ref().is_some_and(|audit| audit.has(number))
            };
            for _ in 0..MAX_ACCEPTED_CALLERS {
                if self.callers.are_full() {
                    break;
                }
                match accept_with(socket, SocketFlags::CLOEXEC) {
                    Ok(socket) => self.callers.admit(socket, asks, is_living),
                    Err(Errno::INTR) => {}
                    Err(error) => {
                        // Without a free file descriptor, callers have to wait.
                        self.is_short |= error != Errno::AGAIN;
                        break;
                    }
                }
            }
        }
        for caller in std::mem::take(&mut self.callers.waiting) {
            match records::receive(&caller.socket, MAX_MESSAGE_BYTES) {
                Ok((text, _)) if caller.asks => self.answer(&caller, &text),
                Ok((text, [None, ..])) if LoweredRights::parse(&text).is_some() => {
                    self.lower(&caller, &text)
                }
                // The caller ended before it could send anything.
                Ok((text, [None, ..])) if text.is_empty() => {}
                Ok((text, [None, ..])) if text == LAST_READING_MESSAGE => self.read_memory(&caller),
                Ok((text, [None, ..])) if self.audit.is_some() => self.note_child(&caller, &text),
                Ok((text, [Some(file), root, executable])) if text == GREETING_WITH_ROOT => {
                    self.add_process(&caller, file, executable, root)
                }
                Ok((_, [Some(file), executable, _])) => {
                    self.add_process(&caller, file, executable, None)
                }
                // There was no free descriptor for the file, or the caller is another program.
                Ok((_, [None, ..])) => self.note(RecordingNote::FileNotTaken),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if Instant::now() < caller.until {
                        self.callers.waiting.push(caller);
                    }
                }
                Err(_) => {}
            }
        }
    }

    /// Answers the question of a caller.
    fn answer(&self, caller: &KeeperCaller, text: &[u8]) {
        // A user who could write to a file would control its process.
        let may =
            |process: &&LedgerProcess| process.owner.is_us() && process.ledger_file.is_sealed();
        let us = self.processes.iter().filter(may);
        let answered = match RecordQuestion::parse(text) {
            Some(RecordQuestion::Processes) => {
                let all = us.map(|process| format!(" {}", process.number()));
                let text = records::namespace() + &all.collect::<String>();
                records::answer(&caller.socket, &text, None)
            }
            Some(RecordQuestion::File(pid)) => {
                let found = us.into_iter().find(|process| process.number() == pid);
                let file = found.map(|process| process.ledger_file.file());
                records::answer(&caller.socket, &records::namespace(), file)
            }
            None => return,
        };
        // The caller may be gone.
        drop(answered);
    }

    /// Notes that a process is about to lower its rights. The kernel reports the rights with which
    /// the process connected.
    fn lower(&self, caller: &KeeperCaller, text: &[u8]) {
        if let Some(lowered) = LoweredRights::parse(text) {
            let rights = ProcessRights::User(caller.owner).with(lowered.rights);
            let pid = number_of(caller.pid);
            self.rights.lower(pid, rights, lowered.is_for_good);
        }
    }

    /// Notes the message of a process that waits for its audit, and lets the process go on.
    fn note_child(&mut self, caller: &KeeperCaller, text: &[u8]) {
        let (Some(audit), Some(said)) = (&mut self.audit, ChildMessage::parse(text)) else {
            return;
        };
        let is_new = said.is_of_new_child();
        let rights = ProcessRights::User(caller.owner);
        if is_new {
            self.rights.open(number_of(caller.pid), caller.owner);
        }
        audit.hear(caller.pid, said, rights);
        // The child may be gone, or may have stopped waiting.
        if records::answer(&caller.socket, "go on\n", None).is_err() && is_new {
            audit.note_no_wait(caller.pid);
        }
    }

    /// Reads how the memory of a process that is about to end is divided, and lets it go on.
    fn read_memory(&self, caller: &KeeperCaller) {
        let pid = number_of(caller.pid);
        if let (Some(divisions), Some(resident)) = (&self.divisions, resident(pid)) {
            divisions.read(pid, resident, ReadingTime::BeforeEnd);
        }
        // The process may be gone, or may have stopped waiting.
        let _ = records::answer(&caller.socket, "go on\n", None);
    }

    /// Keeps the ledger, the executable and the root folder that a process has handed over.
    fn add_process(
        &mut self,
        caller: &KeeperCaller,
        file: File,
        executable: Option<File>,
        root: Option<File>,
    ) {
        let pid = caller.pid;
        let mut line = command_line(number_of(pid));
        let Ok(kept) = SharedLedger::new(file) else {
            return;
        };
        let is_first = number_of(pid) == self.main && !self.has_begun;
        self.has_begun |= is_first;
        if line.is_empty() && is_first {
            // The program was killed at once, and the kernel has no command line of it any more.
            line.clone_from(&self.wanted.typed);
        }
        if let Some(divisions) = &self.divisions
            && self.processes.iter().any(|process| process.pid == pid)
        {
            divisions.forget(number_of(pid));
        }
        // The program that the process was before it became another one is over.
        self.finish_those(ProcessEnd::Exec, |process| process.pid == pid);
        let others = self.processes.iter().filter(|of| !of.owner.is_us()).count();
        let is_too_many = !caller.owner.is_us() && others >= MAX_PROCESSES_OF_OTHERS;
        if self.processes.len() >= MAX_PROCESSES || is_too_many {
            return self.note(RecordingNote::TooManyProcesses);
        }
        self.saved.executables.hold(caller.owner, executable);
        self.rights.open(number_of(pid), caller.owner);
        let process = LedgerProcess {
            ledger_file: kept,
            pid,
            owner: caller.owner,
            command_line: line,
            end_fd: pidfd_open(pid, PidfdFlags::empty()).ok(),
            group: self.counts.group_of(pid),
            is_confined: root.is_some(),
            root: self.roots.find(number_of(pid), root),
            stays: false,
        };
        if process.number() == self.main
            && let Some(log) = &mut self.log
            && let Err(error) = begin(log, &process.ledger_file, self.main, &self.rights)
        {
            self.note(RecordingNote::NoLogEvents(format!("{error:#}")));
        }
        self.processes.push(process);
    }

    /// Writes the profiles of the processes that `has_ended` selects. `end` is how they ended.
    fn finish_those(&mut self, end: ProcessEnd, has_ended: impl Fn(&LedgerProcess) -> bool) {
        let ended = self.processes.extract_if(.., |process| has_ended(process));
        let mut ended: Vec<LedgerProcess> = ended.collect();
        // This user's profiles do not wait for those of other users' processes.
        ended.sort_by_key(|process| (process.number() != self.main, !process.owner.is_us()));
        for process in ended {
            self.finish(&process, end);
        }
    }

    /// Writes the profile of a process, unless the process itself has written it.
    fn finish(&mut self, process: &LedgerProcess, end: ProcessEnd) {
        if end == ProcessEnd::Death {
            self.rights.close(process.number());
        }
        let has_said_all = match process.ledger_file.state() {
            Ok(LedgerProcessState::GoesOn) => false,
            Ok(LedgerProcessState::BeforeExec) => !process.stays,
            _ => true,
        };
        if has_said_all {
            return;
        }
        if end == ProcessEnd::Exec {
            // A process may become another program again and again.
            let replaced = &mut self.replaced[usize::from(process.owner.is_us())];
            *replaced += 1;
            if *replaced > MAX_REPLACED_PROGRAMS {
                return self.note(RecordingNote::TooManyReplacedPrograms);
            }
        }
        let pid = process.number();
        let rights = self.rights.least(pid);
        if !self.callers.have_time(rights) {
            return self.note(RecordingNote::ReadTimeOver);
        }
        let ended = EndedProcess {
            pid,
            command_line: &process.command_line,
            main: self.main,
            rights,
            root: process.root.as_ref(),
        };
        let began = Instant::now();
        let left = write(
            &process.ledger_file,
            ended,
            end,
            &self.wanted,
            &mut self.own_files,
        );
        // Only forged ledgers take long.
        let time = began.elapsed().saturating_sub(USUAL_READ_TIME);
        self.callers.note_time(rights, time);
        match left {
            Ok(EndResult::Profile(written, is_partial)) => {
                if is_partial {
                    let note = RecordingNote::PartialProfile(written.path.clone());
                    self.note_about(process, note);
                }
                let user = rights.owner().user;
                let without_place = (written.owner.user != user).then_some(user);
                self.saved.settled.extend(without_place.map(|_| pid));
                if end == ProcessEnd::Death {
                    let group = process.group.as_ref();
                    let oom = group.and_then(|group| self.counts.take_victim(group));
                    if !process.is_confined || oom.is_some() {
                        self.saved.died.push(ProcessDeath {
                            process: pid,
                            oom,
                            without_place,
                        });
                    }
                }
                self.saved.written.push(*written);
            }
            Ok(EndResult::Small(small)) => {
                self.saved.settled.insert(pid);
                self.saved.small.push(small);
            }
            Err(error) => match error.downcast::<NoPlaceError>() {
                Ok(error) => {
                    self.saved.settled.insert(pid);
                    self.saved.unwritten.push(pid);
                    self.note_about(process, RecordingNote::NoPlace(error));
                }
                Err(error) => {
                    self.saved.unread.push(pid);
                    let note = RecordingNote::UnreadLedger {
                        process: pid,
                        why: format!("{error:#}"),
                    };
                    self.note_about(process, note);
                }
            },
        }
    }

    /// Keeps a note about a process. Half of the notes are reserved for this user's processes.
    fn note_about(&mut self, process: &LedgerProcess, note: RecordingNote) {
        if process.owner.is_us() || self.saved.notes.len() < MAX_NOTES / 2 {
            self.note(note);
        }
    }

    /// Adds a note, unless it exists already or there are too many.
    fn note(&mut self, note: RecordingNote) {
        if self.saved.notes.len() < MAX_NOTES && !self.saved.notes.contains(&note) {
            self.saved.notes.push(note);
        }
    }
}
