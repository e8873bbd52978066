//! Finds the ledger in a memory, and reads the address of each table.

use std::mem::offset_of;
use std::ops::Range;

use heapprof_abi::{LEDGER_ALIGN, LEDGER_MAGIC, LEDGER_VERSION, LedgerHeader as Layout, thread};
use heapprof_memory::Memory;

use crate::bounded_reads::{BoundedMemoryReader, u32_at, u64_at};
use crate::error::LiveError;

/// Maximum number of bytes that are searched.
const MAX_SEARCH_BYTES: u64 = 512 << 20;
/// Number of bytes that are searched at a time.
const SEARCH_CHUNK_LEN: usize = 256 << 10;

/// The addresses of the ledger's tables, by the names of the fields of [`Layout`].
#[derive(Clone, Debug)]
pub(crate) struct LiveLedger {
    pub(crate) process: u64,
    pub(crate) mode: u64,
    pub(crate) period: u64,
    pub(crate) epoch: u64,
    pub(crate) started: u64,
    pub(crate) since: u64,
    pub(crate) heap: u64,
    pub(crate) dropped: u64,
    pub(crate) threads: u64,
    pub(crate) stacks: u64,
    pub(crate) stack: u64,
    pub(crate) frames: u64,
    pub(crate) frame: u64,
    pub(crate) names: u64,
    pub(crate) name: u64,
    pub(crate) moments: u64,
    pub(crate) peak_at: u64,
    pub(crate) mappings: u64,
    pub(crate) mapping: u64,
    pub(crate) parts: u64,
    pub(crate) part: [u32; 2],
    pub(crate) thread: thread::ThreadOffsets,
    pub(crate) log: u64,
    pub(crate) shadows: u64,
    pub(crate) shadow: u64,
    /// Whether this is a saved ledger. Its sums are from an earlier moment, and it has no table of
    /// blocks.
    pub(crate) is_copy: bool,
}

/// Searches pieces of memory in their order for the ledger. Returns the ledger's address.
pub(crate) fn find<M: Memory>(
    memory: M,
    pieces: impl Iterator<Item = Range<u64>>,
) -> Result<u64, LiveError> {
    let (mut other, mut left) = (None, MAX_SEARCH_BYTES);
    let mut buffer = vec![0; SEARCH_CHUNK_LEN];
    for piece in pieces {
        let end = piece.end.min(piece.start.saturating_add(left));
        left -= end.saturating_sub(piece.start);
        let mut at = piece.start;
        while at < end {
            let len = (end - at).min(SEARCH_CHUNK_LEN as u64) as usize;
            let bytes = &mut buffer[..len];
            if !memory.read(at, bytes) {
                break;
            }
            for (i, _) in bytes
                .chunks(LEDGER_ALIGN)
                .enumerate()
                .filter(|(_, chunk)| **chunk == LEDGER_MAGIC)
            {
                let place = at.saturating_add((i * LEDGER_ALIGN) as u64);
                match check(memory, place) {
                    Some(Ok(())) => return Ok(place),
                    Some(Err(version)) => other = Some(version),
                    None => {}
                }
            }
            at = at.saturating_add(len as u64);
        }
    }
    Err(match other {
        Some(version) => LiveError::OtherVersion(version, LEDGER_VERSION),
        None => LiveError::NotRecorded,
    })
}

/// Checks whether a ledger is at `at`; `None` if there is none. For a ledger of another version,
/// the error is the number of that version.
fn check(memory: impl Memory, at: u64) -> Option<Result<(), u32>> {
    let field = |offset: usize| at.checked_add(offset as u64);
    let version = memory.u32(field(offset_of!(Layout, version))?)?;
    if version != LEDGER_VERSION {
        return Some(Err(version));
    }
    let size = memory.u32(field(offset_of!(Layout, size))?)?;
    let own = memory.u64(field(offset_of!(Layout, own))?)?;
    (own == at && size as usize >= size_of::<Layout>()).then_some(Ok(()))
}

impl LiveLedger {
    /// Reads the ledger at `at`.
    pub(crate) fn read<M: Memory>(
        reader: &BoundedMemoryReader<M>,
        at: u64,
    ) -> Result<Self, LiveError> {
        let bytes: [u8; size_of::<Layout>()] = reader.array(at)?;
        if bytes[..LEDGER_MAGIC.len()] != LEDGER_MAGIC
            || u64_at(&bytes, offset_of!(Layout, own)) != at
        {
            return Err(LiveError::ProcessEnded);
        }
        Ok(Self::from_layout_bytes(&bytes))
    }

    /// Reads the table addresses of a saved ledger from the bytes of its header.
    pub(crate) fn from_copy(bytes: &[u8]) -> Self {
        Self {
            is_copy: true,
            ..Self::from_layout_bytes(bytes)
        }
    }

    fn from_layout_bytes(bytes: &[u8]) -> Self {
        let place = |offset: usize| u64_at(bytes, offset);
        let part = offset_of!(Layout, part);
        let thread = offset_of!(Layout, thread);
        let of_thread = |offset: usize| u32_at(bytes, thread + offset);
        Self {
            process: place(offset_of!(Layout, process)),
            mode: place(offset_of!(Layout, mode)),
            period: place(offset_of!(Layout, period)),
            epoch: place(offset_of!(Layout, epoch)),
            started: place(offset_of!(Layout, started)),
            since: place(offset_of!(Layout, since)),
            heap: place(offset_of!(Layout, heap)),
            dropped: place(offset_of!(Layout, dropped)),
            threads: place(offset_of!(Layout, threads)),
            stacks: place(offset_of!(Layout, stacks)),
            stack: place(offset_of!(Layout, stack)),
            frames: place(offset_of!(Layout, frames)),
            frame: place(offset_of!(Layout, frame)),
            names: place(offset_of!(Layout, names)),
            name: place(offset_of!(Layout, name)),
            moments: place(offset_of!(Layout, moments)),
            peak_at: place(offset_of!(Layout, peak_at)),
            mappings: place(offset_of!(Layout, mappings)),
            mapping: place(offset_of!(Layout, mapping)),
            parts: place(offset_of!(Layout, parts)),
            part: [u32_at(bytes, part), u32_at(bytes, part + 4)],
            thread: thread::ThreadOffsets {
                next: of_thread(offset_of!(thread::ThreadOffsets, next)),
                counters: of_thread(offset_of!(thread::ThreadOffsets, counters)),
                temporary: of_thread(offset_of!(thread::ThreadOffsets, temporary)),
                spread: of_thread(offset_of!(thread::ThreadOffsets, spread)),
                sizes: of_thread(offset_of!(thread::ThreadOffsets, sizes)),
                unused: 0,
            },
            log: place(offset_of!(Layout, log)),
            shadows: place(offset_of!(Layout, shadows)),
            shadow: place(offset_of!(Layout, shadow)),
            is_copy: false,
        }
    }
}
