//! Makes ledgers for tests, table by table, in the layout in which the engine writes them.
#![allow(
    clippy::redundant_closure,
    reason = "a reader's function alone would be for one lifetime of the memory"
)]

mod damage;
mod reading;
mod saved;

use std::mem::offset_of;

use heapprof_abi::chunks::{FIRST_CHUNK_LEN, MAX_CHUNKS};
use heapprof_abi::thread::ThreadOffsets;
use heapprof_abi::{
    DROPPED_COUNT, LEDGER_MAGIC, LEDGER_VERSION, LedgerHeader, LedgerMapping, PART_COUNT,
    SIZE_COUNT, moments, name, stack,
};

use crate::blocks::{BlocksInUse, blocks};
use crate::bounded_reads::BoundedMemoryReader;
use crate::bounded_reads::tests::PiecewiseMemory;
use crate::error::LiveError;
use crate::ledger::LiveLedger;
use crate::profile::{RecordingContext, profile};
use heapprof_profile::Profile;

/// Address at which the ledger's memory begins, with the header.
pub(crate) const BASE: u64 = 0x10_0000;

/// Length of a list of chunks in bytes.
const LIST_LEN: u32 = 8 * MAX_CHUNKS as u32;
/// Offsets of a thread's fields.
const THREAD_OFFSETS: ThreadOffsets = ThreadOffsets {
    next: 0,
    counters: 8,
    temporary: 8 + LIST_LEN,
    spread: 8 + 2 * LIST_LEN,
    sizes: 8 + 3 * LIST_LEN,
    unused: 0,
};
/// Number of unused elements at the end of a chunk.
const SPARE_ELEMENTS: usize = 16;
/// Length in bytes of one part of the table of blocks.
const PART_LEN: usize = 24;

/// A thread's counters of one stack: allocated, freed and at the peak, each in objects and bytes,
/// and the number of times that the heap had fallen from a peak.
pub(crate) type FixtureCounters = [i64; 7];

/// A reader of a test's memory.
pub(crate) type FixtureReader<'a> = BoundedMemoryReader<PiecewiseMemory<'a>>;

/// A ledger under construction.
pub(crate) struct LedgerFixture {
    pub(crate) bytes: Vec<u8>,
    pub(crate) period: u64,
    pub(crate) phase: u64,
    /// Moments of the history: microseconds, bytes and objects.
    pub(crate) moments: Vec<[i64; 3]>,
    pub(crate) dropped: [u64; DROPPED_COUNT],
    /// Address of the newest thread.
    threads: u64,
    stacks: Vec<u64>,
    frames: Vec<u64>,
    names: Vec<[u8; name::LEN]>,
    mappings: Vec<Vec<u8>>,
    /// Entries of the first part of the table of blocks.
    pub(crate) entries: Vec<[u64; 2]>,
    /// Shadows: for each, the number of its region and its words.
    pub(crate) shadows: Vec<(u64, Vec<(usize, u64)>)>,
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

impl LedgerFixture {
    /// Makes a ledger without stacks. The period is 1 if every allocation is counted.
    pub(crate) fn new(period: u64) -> Self {
        Self {
            bytes: vec![0; size_of::<LedgerHeader>()],
            period,
            phase: 0,
            moments: Vec::new(),
            dropped: [0; DROPPED_COUNT],
            threads: 0,
            stacks: Vec::new(),
            frames: Vec::new(),
            names: Vec::new(),
            mappings: Vec::new(),
            entries: Vec::new(),
            shadows: Vec::new(),
        }
    }

    /// Adds bytes to the memory. Returns their address.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> u64 {
        let at = self.bytes.len().next_multiple_of(16);
        self.bytes.resize(at, 0);
        self.bytes.extend(bytes);
        BASE + at as u64
    }

    /// Adds the elements of an array that grows in chunks. Returns the list of its chunks.
    fn list(&mut self, elements: &[Vec<u8>]) -> Vec<u8> {
        assert!(elements.len() <= FIRST_CHUNK_LEN);
        let chunk = match elements {
            [] => 0,
            [first, ..] => {
                // Behind the elements is room for others.
                let mut bytes = elements.concat();
                bytes.resize(bytes.len() + SPARE_ELEMENTS * first.len(), 0);
                self.put(&bytes)
            }
        };
        let mut list = words(&[chunk]);
        list.resize(LIST_LEN as usize, 0);
        list
    }

    fn put_list(&mut self, elements: &[Vec<u8>]) -> u64 {
        let list = self.list(elements);
        self.put(&list)
    }

    /// Adds a stack with the frames `own`, newest first, and returns the stack's number. With
    /// `base`, the oldest frames of an earlier stack follow: `base` is the number of that stack,
    /// and the number of these frames.
    pub(crate) fn stack(&mut self, generation: u32, own: &[u64], base: Option<(u32, u16)>) -> u32 {
        let (base, shared) = base.unwrap_or_default();
        let mut bytes = vec![0; stack::LEN];
        let all = own.len() as u16 + shared;
        bytes[stack::GENERATION..][..4].copy_from_slice(&generation.to_ne_bytes());
        bytes[stack::FRAMES..][..2].copy_from_slice(&all.to_ne_bytes());
        bytes[stack::FROM_BASE..][..2].copy_from_slice(&shared.to_ne_bytes());
        bytes[stack::BASE..][..4].copy_from_slice(&base.to_ne_bytes());
        bytes.extend(words(own));
        let at = self.put(&bytes);
        self.stacks.push(at);
        self.stacks.len() as u32 - 1
    }

    /// Adds an interpreter frame. Returns its number.
    pub(crate) fn frame(&mut self, name: &str, file: &str, lines: [u32; 2]) -> u32 {
        let head = [lines[0], lines[1], name.len() as u32, file.len() as u32];
        let mut bytes: Vec<u8> = head.iter().flat_map(|word| word.to_ne_bytes()).collect();
        bytes.extend(name.bytes().chain(file.bytes()));
        let at = self.put(&bytes);
        self.frames.push(at);
        self.frames.len() as u32 - 1
    }

    /// Adds a thread's name, with the kernel's number of the thread. Returns the thread's number in
    /// the ledger.
    pub(crate) fn name(&mut self, id: u32, text: &str, generation: u8) -> u32 {
        let mut entry = [0; name::LEN];
        entry[name::ID..][..4].copy_from_slice(&id.to_ne_bytes());
        entry[name::GENERATION] = generation;
        entry[name::NAME..][..text.len()].copy_from_slice(text.as_bytes());
        self.names.push(entry);
        self.names.len() as u32
    }

    /// Adds a thread with its counters, one entry for each stack. Returns the thread's address.
    pub(crate) fn thread(
        &mut self,
        counters: &[FixtureCounters],
        temporary: &[[i64; 2]],
        spread: &[[f64; 6]],
        sizes: &[(usize, i64)],
    ) -> u64 {
        let numbers = |numbers: &[i64], len: usize| {
            let mut bytes: Vec<u8> = numbers.iter().flat_map(|word| word.to_ne_bytes()).collect();
            bytes.resize(len, 0);
            bytes
        };
        let all: Vec<_> = counters.iter().map(|all| numbers(all, 64)).collect();
        let counters = self.list(&all);
        let all: Vec<_> = temporary.iter().map(|all| numbers(all, 16)).collect();
        let temporary = self.list(&all);
        let entry = |all: &[f64; 6]| {
            let bits = |i: usize, value: f64| match i % 3 {
                0 => value as u64,
                _ => value.to_bits(),
            };
            words(&std::array::from_fn::<u64, 6, _>(|i| bits(i, all[i])))
        };
        let all: Vec<_> = spread.iter().map(entry).collect();
        let spread = self.list(&all);
        let mut by_size = [0; 2 * SIZE_COUNT];
        for &(at, count) in sizes {
            by_size[at] = count;
        }
        let next = words(&[self.threads]);
        let sizes = numbers(&by_size, 16 * SIZE_COUNT);
        self.threads = self.put(&[next, counters, temporary, spread, sizes].concat());
        self.threads
    }

    /// Adds a mapping of a file, which was last mapped in the generation `last`.
    pub(crate) fn mapping(&mut self, range: std::ops::Range<u64>, path: &str, last: u32) {
        let path_at = self.put(path.as_bytes());
        let mut bytes = vec![0; size_of::<LedgerMapping>()];
        for (at, word) in [
            (offset_of!(LedgerMapping, start), range.start),
            (offset_of!(LedgerMapping, end), range.end),
            (offset_of!(LedgerMapping, path), path_at),
        ] {
            bytes[at..at + 8].copy_from_slice(&word.to_ne_bytes());
        }
        for (at, word) in [
            (offset_of!(LedgerMapping, path_len), path.len() as u32),
            (offset_of!(LedgerMapping, last), last),
        ] {
            bytes[at..at + 4].copy_from_slice(&word.to_ne_bytes());
        }
        self.mappings.push(bytes);
    }

    fn put_blocks(&mut self) -> u64 {
        let entries: Vec<u64> = self.entries.concat();
        let at = self.put(&words(&entries));
        let mut parts = vec![0; PART_LEN * PART_COUNT];
        let count = self.entries.len() as u64;
        let mask = count.saturating_sub(1);
        let entry_at = if count == 0 { 0 } else { at };
        let used = self.entries.iter().filter(|entry| entry[0] != 0).count();
        parts[..PART_LEN].copy_from_slice(&words(&[entry_at, mask, used as u64]));
        self.put(&parts)
    }

    fn put_shadows(&mut self) -> u64 {
        use heapprof_abi::shadow::{MAX_SHADOW_CHUNKS, WORDS, chunk_len};
        let room = chunk_len(0) as usize;
        assert!(self.shadows.len() <= room);
        let mut chunk = vec![0u64; room * (WORDS + 1)];
        for (i, (region, all)) in self.shadows.iter().enumerate() {
            chunk[room * WORDS + i] = *region;
            for &(at, word) in all {
                chunk[i * WORDS + at] = word;
            }
        }
        let at = match self.shadows.is_empty() {
            true => 0,
            false => self.put(&words(&chunk)),
        };
        let mut chunks = [0; MAX_SHADOW_CHUNKS];
        chunks[0] = at;
        self.put(&words(&chunks))
    }

    /// Writes the header. Returns the memory, which begins at [`BASE`].
    pub(crate) fn finish(mut self) -> Vec<u8> {
        let entries = |all: &[u64]| all.iter().map(|&word| words(&[word])).collect::<Vec<_>>();
        let number = |fixture: &mut Self, number: usize| fixture.put(&words(&[number as u64]));
        let (stacks, frames) = (entries(&self.stacks), entries(&self.frames));
        let names: Vec<Vec<u8>> = self.names.iter().map(|name| name.to_vec()).collect();
        let mappings = self.mappings.clone();
        let count = self.moments.len() as u64;
        let mut history = words(&[count, 0]);
        let kept: Vec<u64> = self.moments.concat().iter().map(|&n| n as u64).collect();
        history.extend(words(&kept));
        history.resize(
            moments::FIRST_MOMENT + moments::LEN * moments::MAX_MOMENTS,
            0,
        );
        let (dropped, phase, period) = (self.dropped, self.phase, self.period);
        let (threads, shadow_count) = (self.threads as usize, self.shadows.len());
        macro_rules! fields {
            ($($field:ident: $value:expr),* $(,)?) => {
                $({
                    let at = offset_of!(LedgerHeader, $field);
                    let address: u64 = $value;
                    self.bytes[at..at + 8].copy_from_slice(&address.to_ne_bytes());
                })*
            };
        }
        fields! {
            own: BASE,
            process: number(&mut self, 77),
            mode: number(&mut self, 2),
            period: number(&mut self, period as usize),
            epoch: number(&mut self, 1),
            started: number(&mut self, 1_000_000_000),
            since: number(&mut self, 500),
            heap: self.put(&words(&[0, 0, phase])),
            dropped: self.put(&words(&dropped)),
            threads: number(&mut self, threads),
            stacks: number(&mut self, stacks.len()),
            stack: self.put_list(&stacks),
            frames: number(&mut self, frames.len()),
            frame: self.put_list(&frames),
            names: number(&mut self, names.len()),
            name: self.put_list(&names),
            moments: self.put(&history),
            peak_at: number(&mut self, 3),
            mappings: number(&mut self, mappings.len()),
            mapping: self.put_list(&mappings),
            parts: self.put_blocks(),
            shadows: number(&mut self, shadow_count),
            shadow: self.put_shadows(),
        }
        self.bytes[..LEDGER_MAGIC.len()].copy_from_slice(&LEDGER_MAGIC);
        let offsets = THREAD_OFFSETS;
        let thread = offset_of!(LedgerHeader, thread);
        for (at, word) in [
            (offset_of!(LedgerHeader, version), LEDGER_VERSION),
            (
                offset_of!(LedgerHeader, size),
                size_of::<LedgerHeader>() as u32,
            ),
            (offset_of!(LedgerHeader, part), PART_LEN as u32),
            (thread + offset_of!(ThreadOffsets, next), offsets.next),
            (
                thread + offset_of!(ThreadOffsets, counters),
                offsets.counters,
            ),
            (
                thread + offset_of!(ThreadOffsets, temporary),
                offsets.temporary,
            ),
            (thread + offset_of!(ThreadOffsets, spread), offsets.spread),
            (thread + offset_of!(ThreadOffsets, sizes), offsets.sizes),
        ] {
            self.bytes[at..at + 4].copy_from_slice(&word.to_ne_bytes());
        }
        self.bytes
    }
}

/// Runs `work` with a reader of `memory`, and with the ledger at the beginning of it.
pub(crate) fn with_ledger<R>(
    memory: &[u8],
    work: impl FnOnce(&FixtureReader<'_>, &LiveLedger) -> Result<R, LiveError>,
) -> Result<R, LiveError> {
    let pieces = [(BASE, memory)];
    let reader = BoundedMemoryReader::new(PiecewiseMemory(&pieces));
    let ledger = LiveLedger::read(&reader, BASE)?;
    work(&reader, &ledger)
}

/// Makes a profile of the ledger at the beginning of `memory`, for a recording of 5 ms.
pub(crate) fn read_profile(memory: &[u8]) -> Result<Profile, LiveError> {
    let around = RecordingContext {
        reason: "test",
        is_last: false,
        program: "made".to_string(),
        pid: 77,
        wrappers: "",
        resident: [0; 2],
        code: Vec::new(),
        duration: &|_, _| 5_000_000,
        max_frames: 1000,
        thread_name: &|_| None,
    };
    with_ledger(memory, |reader, ledger| profile(reader, ledger, &around))
}

/// Returns the blocks of the ledger at the beginning of `memory`.
pub(crate) fn read_blocks(memory: &[u8]) -> Result<BlocksInUse, LiveError> {
    with_ledger(memory, |reader, ledger| blocks(reader, ledger))
}

/// Returns the comments of a profile.
pub(crate) fn comments(profile: &Profile) -> Vec<String> {
    let texts = profile.comment.iter().map(|&text| profile.text(text));
    texts.map(str::to_string).collect()
}
