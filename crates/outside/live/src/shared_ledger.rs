//! Reads saved ledgers: ledgers in a memory file, which remains when the process has ended.

use std::fs::File;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::sync::atomic::AtomicU32;

use heapprof_abi::log::EventRing;
use heapprof_abi::{
    DROPPED_COUNT, LEDGER_VERSION, LedgerExtent, MAX_EXTENTS, RecordingEpoch, SHARED_LEDGER_MAGIC,
    SharedLedgerHeader as Header, process_state,
};
use heapprof_memory::Memory;
use heapprof_process::is_there;
use heapprof_profile::Profile;

use crate::bounded_reads::{BoundedMemoryReader, u32_at, u64_at};
use crate::error::LiveError;
use crate::ledger::LiveLedger;
use crate::process::{LiveProcessSummary, monotonic, summary};
use crate::profile::{RecordingContext, profile};
use crate::ring::LiveLogReader;
use crate::writer::MAX_FRAMES;

const HEADER_LEN: usize = size_of::<Header>();

/// A saved ledger: the memory file in which a process stores its ledger.
#[derive(Debug)]
pub struct SharedLedger(File);

/// The state of a process, as its ledger reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LedgerProcessState {
    /// The process runs, or has ended without a report.
    GoesOn,
    /// The process has written its last profile.
    HasEnded,
    /// The process has written its profile, and then became another program.
    BeforeExec,
}

/// The content of a saved ledger: a profile, and facts about it.
#[derive(Clone, Debug)]
pub struct SharedLedgerProfile {
    /// The profile of the last recorded moment.
    pub profile: Profile,
    /// Whether every allocation was counted, instead of samples.
    pub is_exact: bool,
    /// The process's number in its own PID namespace.
    pub process: u32,
    /// The program's name.
    pub program: String,
    /// Whether the file was too small for the whole recording.
    pub is_full: bool,
    /// Number of allocations and frees that could not be recorded.
    pub lost: u64,
}

/// The memory in a saved ledger. Its pieces have the addresses at which the process mapped them.
#[derive(Clone, Copy)]
pub(crate) struct SharedLedgerMemory<'a> {
    file: &'a File,
    /// The pieces of the file, in order of their addresses.
    extents: &'a [LedgerExtent],
}

impl Memory for SharedLedgerMemory<'_> {
    fn read(self, mut at: u64, mut to: &mut [u8]) -> bool {
        // One read may span two pieces that are mapped side by side.
        while !to.is_empty() {
            let next = self.extents.partition_point(|extent| extent.address <= at);
            let Some(extent) = next.checked_sub(1).map(|i| self.extents[i]) else {
                return false;
            };
            let from = at - extent.address;
            let len = extent.len.saturating_sub(from).min(to.len() as u64);
            let Some(offset) = extent.offset.checked_add(from).filter(|_| len > 0) else {
                return false;
            };
            let (part, rest) = to.split_at_mut(len as usize);
            if self.file.read_exact_at(part, offset).is_err() {
                return false;
            }
            (at, to) = (at.saturating_add(len), rest);
        }
        true
    }
}

/// Returns the file's pieces that a header lists, in order of their addresses.
fn extents(head: &[u8]) -> Vec<LedgerExtent> {
    let count = u32_at(head, offset_of!(Header, extents)) as usize;
    let first = offset_of!(Header, extent);
    let one = |i: usize| {
        let at = first + i * size_of::<LedgerExtent>();
        LedgerExtent {
            address: u64_at(head, at + offset_of!(LedgerExtent, address)),
            offset: u64_at(head, at + offset_of!(LedgerExtent, offset)),
            len: u64_at(head, at + offset_of!(LedgerExtent, len)),
        }
    };
    let mut all: Vec<LedgerExtent> = (0..count.min(MAX_EXTENTS)).map(one).collect();
    all.sort_by_key(|extent| extent.address);
    all
}

impl SharedLedger {
    /// Takes a file that another process handed over. The file must be in memory, because a file
    /// system may delay the reading of any other file without limit.
    ///
    /// # Errors
    /// The file may be no file in memory.
    pub fn new(file: File) -> Result<Self, LiveError> {
        // Only files in memory have seals.
        match rustix::fs::fcntl_get_seals(&file) {
            Ok(_) => Ok(Self(file)),
            Err(_) => Err(LiveError::NotSharedLedger("it is not a file in memory")),
        }
    }

    /// Whether the file is sealed: only its process can write to it, and no process can shorten or
    /// extend it. An unsealed file must not be passed on.
    #[must_use]
    pub fn is_sealed(&self) -> bool {
        use rustix::fs::SealFlags;
        let wanted = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE;
        rustix::fs::fcntl_get_seals(&self.0).is_ok_and(|seals| seals.contains(wanted))
    }

    /// Returns the memory file, so that another reader can use it.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.0
    }

    /// Duplicates the handle of the file.
    ///
    /// # Errors
    /// There may be no free file descriptor.
    pub fn try_clone(&self) -> Result<Self, LiveError> {
        Ok(Self(self.0.try_clone()?))
    }

    /// Returns the state that the process has reported.
    ///
    /// # Errors
    /// The file may be too short.
    pub fn state(&self) -> Result<LedgerProcessState, LiveError> {
        let mut bytes = [0; size_of::<AtomicU32>()];
        let at = offset_of!(Header, state) as u64;
        self.0.read_exact_at(&mut bytes, at)?;
        Ok(match u32::from_ne_bytes(bytes) {
            process_state::HAS_ENDED => LedgerProcessState::HasEnded,
            process_state::BEFORE_EXEC => LedgerProcessState::BeforeExec,
            _ => LedgerProcessState::GoesOn,
        })
    }

    /// Returns a profile of the last recorded moment of a process that may go on. `reason` is for
    /// the profile's comment `dump`. `pid` is the number by which the caller knows the process.
    /// `wrappers` is a regular expression for functions that reports leave out; it may be empty.
    ///
    /// # Errors
    /// The file may be no saved ledger, or a damaged one.
    pub fn read(
        &self,
        reason: &str,
        pid: u32,
        wrappers: &str,
    ) -> Result<SharedLedgerProfile, LiveError> {
        self.read_within(MAX_FRAMES, false, reason, pid, wrappers)
    }

    /// Reads the last profile of a process that has ended or called exec, like
    /// [`read`](Self::read). Fails if all stacks together have more than `max_frames` frames,
    /// because the recorded process can write any content, and frames take memory.
    ///
    /// # Errors
    /// The file may be no saved ledger, or a damaged one. [`LiveError::LedgerTooLarge`] if it has
    /// more frames.
    pub fn read_last(
        &self,
        max_frames: usize,
        reason: &str,
        pid: u32,
        wrappers: &str,
    ) -> Result<SharedLedgerProfile, LiveError> {
        self.read_within(max_frames, true, reason, pid, wrappers)
    }

    fn read_within(
        &self,
        max_frames: usize,
        is_last: bool,
        reason: &str,
        pid: u32,
        wrappers: &str,
    ) -> Result<SharedLedgerProfile, LiveError> {
        const MAX_READ_ATTEMPTS: usize = 4;
        let mut last = Err(LiveError::RecordingRestarted);
        for _ in 0..MAX_READ_ATTEMPTS {
            let before = self.recording()?;
            last = self.read_once(max_frames, is_last, reason, pid, wrappers);
            // A profile that mixes two recordings is worthless.
            if self.recording()? == before {
                return last;
            }
        }
        last.and(Err(LiveError::RecordingRestarted))
    }

    /// Returns the recording's epoch and sampling period.
    fn recording(&self) -> Result<(RecordingEpoch, u64), LiveError> {
        self.with_ledger(|_, reader, ledger| {
            let epoch = RecordingEpoch::from_u64(reader.u64(ledger.epoch)?);
            Ok((epoch, reader.u64(ledger.period)?))
        })
    }

    fn read_once(
        &self,
        max_frames: usize,
        is_last: bool,
        reason: &str,
        pid: u32,
        wrappers: &str,
    ) -> Result<SharedLedgerProfile, LiveError> {
        self.with_ledger(|head, reader, ledger| {
            let around = RecordingContext {
                reason,
                is_last,
                program: program(head),
                pid: pid.into(),
                wrappers,
                resident: [0; 2],
                code: Vec::new(),
                duration: &|_, since| monotonic().saturating_sub(since),
                max_frames,
                thread_name: &|_| None,
            };
            let dropped: [u8; 8 * DROPPED_COUNT] = reader.array(ledger.dropped)?;
            // The collector, too, counts these as lost: events without memory for the tables, and
            // events during which another one was interrupted by a signal handler.
            let lost = [1, 2].map(|i| u64_at(&dropped, 8 * i));
            Ok(SharedLedgerProfile {
                profile: profile(reader, ledger, &around)?,
                is_exact: reader.u64(ledger.period)? == 1,
                process: reader.u32(ledger.process)?,
                program: program(head),
                is_full: u32_at(head, offset_of!(Header, is_full)) != 0,
                lost: lost[0].saturating_add(lost[1]),
            })
        })
    }

    /// Whether the ledger belongs to the process `pid`, and the process is running.
    #[must_use]
    pub fn belongs_to(&self, pid: u32) -> bool {
        let goes_on = matches!(self.state(), Ok(LedgerProcessState::GoesOn));
        goes_on && is_there(pid)
    }

    /// Makes a summary of the process for a list. Its numbers are from the last moment at which a
    /// thread of the process reported its allocations.
    ///
    /// # Errors
    /// The file may be no saved ledger, or a damaged one.
    pub fn summary(&self, pid: u32) -> Result<LiveProcessSummary, LiveError> {
        self.with_ledger(|head, reader, ledger| summary(reader, ledger, pid, program(head)))
    }

    /// Opens the log of the recording, from its first event on; `None` if there is no log.
    pub(crate) fn log(&self) -> Result<Option<LiveLogReader>, LiveError> {
        let len = size_of::<EventRing>() as u64;
        let at = self.with_ledger(|head, _, ledger| {
            let all = extents(head);
            let place = all.iter().find_map(|extent| {
                let from = ledger.log.checked_sub(extent.address)?;
                let fits = extent.len.checked_sub(len).is_some_and(|last| from <= last);
                extent.offset.checked_add(from).filter(|_| fits)
            });
            match (ledger.log, place) {
                (0, _) => Ok(None),
                (_, Some(at)) => Ok(Some(at)),
                (_, None) => Err(LiveError::LedgerDamaged("its log is not in its file")),
            }
        })?;
        let log = at.map(|at| LiveLogReader::new(self.0.try_clone()?, at));
        log.transpose()
    }

    /// Runs `work` with the header, a reader of the ledger's memory, and the ledger.
    pub(crate) fn with_ledger<R>(
        &self,
        work: impl for<'a> FnOnce(
            &[u8],
            &BoundedMemoryReader<SharedLedgerMemory<'a>>,
            &LiveLedger,
        ) -> Result<R, LiveError>,
    ) -> Result<R, LiveError> {
        let mut head = vec![0; HEADER_LEN];
        self.0.read_exact_at(&mut head, 0)?;
        if head[..SHARED_LEDGER_MAGIC.len()] != SHARED_LEDGER_MAGIC {
            return Err(LiveError::NotSharedLedger("it has no header"));
        }
        let short = |at: usize| u32_at(&head, at);
        let version = short(offset_of!(Header, version));
        if version != LEDGER_VERSION || (short(offset_of!(Header, size)) as usize) < HEADER_LEN {
            return Err(LiveError::OtherVersion(version, LEDGER_VERSION));
        }
        let (file, extents) = (&self.0, extents(&head));
        let extents = extents.as_slice();
        let reader = BoundedMemoryReader::partial(SharedLedgerMemory { file, extents });
        let ledger = LiveLedger::from_copy(&head[offset_of!(Header, ledger)..]);
        work(&head, &reader, &ledger)
    }
}

/// Returns the program's name, from the header.
pub(crate) fn program(head: &[u8]) -> String {
    let name = &head[offset_of!(Header, program)..][..256];
    match name.split(|&byte| byte == 0).next().unwrap_or_default() {
        [] => "unknown".to_string(),
        name => String::from_utf8_lossy(name).into_owned(),
    }
}
