//! The answer to "where is the memory of this program?": parts that add up to a total, each with
//! its largest holders.

use heapprof_process::Cgroup;
use std::time::Duration;

/// What the total of an answer is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AnswerTotal {
    /// The resident memory of a process (the Rss of `smaps_rollup`).
    #[default]
    Resident,
    /// The memory of a program that its core file has.
    InCoreFile,
    /// The largest resident memory that a recorded program had.
    PeakResident,
    /// The memory that a profile counts.
    InProfile,
}

/// Where the memory of a program is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryAnswer {
    /// The program, in a few words.
    pub name: String,
    /// The number of the process, if it is one.
    pub pid: Option<u32>,
    /// What the total is.
    pub basis: AnswerTotal,
    /// The bytes of all parts.
    pub total: u64,
    /// The most bytes that were resident at one time, if that is known.
    pub peak: Option<u64>,
    /// How the program is recorded, if it is.
    pub recording: Option<AnswerRecording>,
    /// The parts, the largest first.
    pub parts: Vec<AnswerPart>,
    /// Bytes that are swapped out. They are in no part.
    pub swapped: u64,
    /// Bytes in huge pages of `hugetlbfs`. They are in no part.
    pub hugetlb: u64,
    /// Bytes of the kernel's page tables for the process. They are in no part.
    pub page_tables: u64,
    /// Bytes of the total that other processes have, too.
    pub shared: u64,
    /// Bytes of private memory that processes share since a fork, until one of them writes to it.
    pub shared_by_fork: u64,
    /// The control group of the process, if it is known.
    pub cgroup: Option<Cgroup>,
    /// Bytes of blocks that leaked, if malloc's heap was walked.
    pub leaked: u64,
    /// Whether a recorded program had, at its end, most of its peak in use.
    pub kept_at_end: bool,
    /// Whether it is a perl whose values were read.
    pub is_perl: bool,
    /// How long the process was held.
    pub hold: Option<Duration>,
    /// The time between the two looks of which growth is known.
    pub span: Option<Duration>,
    /// Notes about what can't be seen.
    pub notes: Vec<String>,
}

/// How a program is recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnswerRecording {
    /// The mean number of bytes between two samples; 0 if every allocation is recorded.
    pub period: u64,
    /// Bytes that the recording knows of.
    pub bytes: u64,
}

/// The purpose of a part of a program's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PartKind {
    /// Blocks of malloc that the program uses.
    MallocInUse,
    /// Memory that malloc keeps, and that the program does not use.
    MallocFree,
    /// Memory of malloc that could not be looked into.
    Malloc,
    /// Python's small objects, which have an allocator of their own.
    PythonObjects,
    /// Blocks of malloc and Python's small objects, if their holders are not told apart.
    MallocAndPython,
    /// Blocks of malloc and of allocators that map their memory themselves, if their holders are
    /// not told apart.
    MallocAndOthers,
    /// Private memory of no file, which others than malloc have mapped.
    Anonymous,
    /// The heap of V8, the JavaScript engine.
    V8Heap,
    /// Private memory of no file of a process that may not be looked into.
    UnseenPrivate,
    /// Memory of files of a process that may not be looked into.
    UnseenFiles,
    /// The stacks of threads.
    Stacks,
    /// The program's file and its libraries, with their variables.
    Code,
    /// Mapped files without code.
    Files,
    /// Memory that several processes may write to.
    Shared,
    /// Mappings of the kernel.
    Kernel,
    /// heapprof's own memory in the program.
    Own,
    /// Memory that a profile counts.
    Recorded,
    /// Memory that the recording did not see: code, stacks, files, other allocators.
    Unrecorded,
}

impl PartKind {
    /// Returns the name of the part in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::MallocInUse => "malloc, in use",
            Self::MallocFree => "malloc, free but kept",
            Self::Malloc => "malloc",
            Self::PythonObjects => "Python's objects",
            Self::MallocAndPython => "malloc and Python",
            Self::MallocAndOthers => "malloc and other allocators",
            Self::Anonymous => "anonymous mappings",
            Self::V8Heap => "V8's heap",
            Self::UnseenPrivate => "anonymous memory",
            Self::UnseenFiles => "code and files",
            Self::Stacks => "stacks",
            Self::Code => "program and libraries",
            Self::Files => "mapped files",
            Self::Shared => "shared memory",
            Self::Kernel => "the kernel's mappings",
            Self::Own => "heapprof's own",
            Self::Recorded => "recorded",
            Self::Unrecorded => "not recorded",
        }
    }

    /// Returns the name of the part in a list of small parts.
    pub(super) fn short_name(self) -> &'static str {
        match self {
            Self::MallocInUse | Self::Malloc => "malloc",
            Self::MallocAndPython | Self::MallocAndOthers => "malloc",
            Self::MallocFree => "free in malloc",
            Self::PythonObjects => "Python",
            Self::Anonymous => "anonymous",
            Self::V8Heap => "V8",
            Self::UnseenPrivate => "anonymous memory",
            Self::UnseenFiles => "files",
            Self::Stacks => "stacks",
            Self::Code => "code",
            Self::Files => "files",
            Self::Shared => "shared",
            Self::Kernel => "kernel",
            Self::Own => "heapprof",
            Self::Recorded => "recorded",
            Self::Unrecorded => "not recorded",
        }
    }
}

/// A part of a program's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerPart {
    /// The purpose of the part.
    pub kind: PartKind,
    /// The bytes of the part.
    pub bytes: u64,
    /// What more there is to say about the part.
    pub detail: String,
    /// The largest holders, the largest first.
    pub holders: Vec<PartHolder>,
    /// Bytes that the part grew in a minute, if that is known.
    pub growth: Option<i64>,
}

/// A holder of memory in a part: a function, a variable, a file, or a kind of blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartHolder {
    /// The bytes that it holds.
    pub bytes: u64,
    /// Its name.
    pub name: String,
    /// The file that it is in, with the line if that is known; empty if there is none.
    pub place: String,
    /// How many blocks, objects or mappings it has, or how large they are, in words.
    pub extent: String,
    /// Bytes that it grew in a minute, if that is known.
    pub growth: Option<i64>,
}

impl AnswerPart {
    /// Makes a part without holders.
    #[must_use]
    pub fn new(kind: PartKind, bytes: u64) -> Self {
        Self {
            kind,
            bytes,
            detail: String::new(),
            holders: Vec::new(),
            growth: None,
        }
    }

    /// Returns the bytes of the part that none of its first `shown` holders has.
    #[must_use]
    pub fn rest(&self, shown: usize) -> u64 {
        let held = self.holders.iter().take(shown).map(|holder| holder.bytes);
        self.bytes.saturating_sub(held.fold(0, u64::saturating_add))
    }
}

impl MemoryAnswer {
    /// Sorts the parts, the largest first.
    pub fn sort_parts(&mut self) {
        self.parts.sort_by_key(|part| std::cmp::Reverse(part.bytes));
    }

    /// Returns the part of a kind.
    #[must_use]
    pub fn part(&self, kind: PartKind) -> Option<&AnswerPart> {
        self.parts.iter().find(|part| part.kind == kind)
    }

    /// Returns a part's share of the total, from 0 to 1; 0 if there is no such part.
    #[must_use]
    pub fn share(&self, kind: PartKind) -> f64 {
        let bytes = self.part(kind).map_or(0, |part| part.bytes);
        bytes as f64 / self.total.max(1) as f64
    }

    /// Joins malloc's part with that of Python's objects, if there are both. The holders and the
    /// detail of malloc's part stay.
    pub fn join_python(&mut self) {
        self.join(PartKind::PythonObjects, PartKind::MallocAndPython);
    }

    /// Joins malloc's part with those of Python's objects and of anonymous mappings. The holders
    /// and the detail of malloc's part stay.
    pub fn join_allocators(&mut self) {
        self.join_python();
        self.join(PartKind::Anonymous, PartKind::MallocAndOthers);
    }

    /// Joins malloc's part with another one.
    fn join(&mut self, other: PartKind, joined: PartKind) {
        let is_malloc = |part: &AnswerPart| {
            matches!(
                part.kind,
                PartKind::MallocInUse | PartKind::Malloc | PartKind::MallocAndPython
            )
        };
        let other = self.parts.iter().position(|part| part.kind == other);
        let malloc = self.parts.iter().position(is_malloc);
        if let (Some(other), Some(malloc)) = (other, malloc) {
            let bytes = self.parts[other].bytes;
            let part = &mut self.parts[malloc];
            (part.kind, part.bytes) = (joined, part.bytes.saturating_add(bytes));
            self.parts.remove(other);
            self.sort_parts();
        }
    }

    /// Returns the sampling period, a power of two of bytes, with which a minute of the heap's
    /// growth gives `samples` samples; `None` if the heap was not seen to grow.
    #[must_use]
    pub fn sampling_period(&self, samples: u64) -> Option<u64> {
        /// The shortest period that is advised.
        const MIN_PERIOD: u64 = 4 << 10;
        let is_heap = |kind: PartKind| {
            matches!(
                kind,
                PartKind::MallocInUse | PartKind::Malloc | PartKind::PythonObjects
            )
        };
        let parts = self.parts.iter().filter(|part| is_heap(part.kind));
        let growth: i64 = parts.filter_map(|part| part.growth).sum();
        let growth = u64::try_from(growth).ok().filter(|&growth| growth > 0)?;
        Some(1 << (growth / samples.max(1)).max(MIN_PERIOD).ilog2())
    }

    /// Adds the growth since an earlier answer about the same program, which was given `span`
    /// before. A holder that was not among the earlier ones has no growth. Answers of which only
    /// one looked into the process have different parts, so there is no growth.
    pub fn add_growth(&mut self, before: &Self, span: Duration) {
        let mut before = before.clone();
        // One of them may have been joined because of the noise of sampling.
        for joined in [PartKind::MallocAndPython, PartKind::MallocAndOthers] {
            let answer = match [&*self, &before].map(|of| of.part(joined).is_some()) {
                [true, false] => &mut before,
                [false, true] => &mut *self,
                _ => continue,
            };
            match joined {
                PartKind::MallocAndPython => answer.join_python(),
                _ => answer.join_allocators(),
            }
        }
        if self.hold.is_some() != before.hold.is_some() {
            let other = "the process could be read only once, so growth is not known";
            self.notes.push(other.to_string());
            return;
        }
        let minutes = span.as_secs_f64() / 60.0;
        let growth = |now: u64, then: u64| ((now as f64 - then as f64) / minutes) as i64;
        self.span = Some(span);
        let gone = before
            .parts
            .iter()
            .filter(|part| self.part(part.kind).is_none());
        let gone: Vec<AnswerPart> = gone.map(|part| AnswerPart::new(part.kind, 0)).collect();
        self.parts.extend(gone);
        for part in &mut self.parts {
            let then = before.part(part.kind);
            part.growth = Some(growth(part.bytes, then.map_or(0, |part| part.bytes)));
            for holder in &mut part.holders {
                let mut all = then.iter().flat_map(|part| &part.holders);
                let is_same =
                    |then: &&PartHolder| (&then.name, &then.place) == (&holder.name, &holder.place);
                let found = all.find(is_same);
                holder.growth = found.map(|then| growth(holder.bytes, then.bytes));
            }
        }
    }
}
