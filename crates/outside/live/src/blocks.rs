//! Reads a recorded process's blocks in use, each with its address and the stack that allocated it.

use heapprof_abi::{FrameWord, PART_COUNT, StackNumber, shadow, table};
use heapprof_memory::Memory;
use heapprof_memory::loaded_modules::{LoadedObject, executable, objects_from_executable};
use heapprof_profile::Profile;

use crate::bounded_reads::{BoundedMemoryReader, u64_at};
use crate::error::LiveError;
use crate::ledger::LiveLedger;
use crate::process::{LiveProcess, path};
use crate::profile::profile_from_rows;
use crate::stacks::LiveStackReader;
use crate::sums::MAX_STACKS;
use crate::writer::{LiveProfileRow, LiveThreadNames};

/// Maximum number of entries in the table of blocks. No program has more: 2^27 entries take two
/// gigabytes.
const MAX_ENTRIES: u64 = 1 << 27;
/// Maximum number of entries that are read at a time.
const MAX_ENTRIES_PER_READ: u64 = 1 << 14;
/// Maximum number of blocks that are returned. No program has more, and more would take gigabytes
/// here.
const MAX_BLOCKS: usize = 1 << 26;
/// Maximum number of shadows: tables for regions in which blocks lie close together. The regions of
/// this many shadows cover 16 GiB. More shadows would take gigabytes here.
const MAX_SHADOWS: u64 = 1 << 18;
/// Size in bytes of an entry in the table of blocks.
const ENTRY_LEN: u64 = 16;
/// Maximum number of loaded objects; no program has more.
const MAX_OBJECTS: usize = 4096;

/// A block in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockInUse {
    /// Address of the block.
    pub address: u64,
    /// Number of bytes that were requested.
    pub size: u64,
    /// Number of the stack that allocated the block.
    pub stack: StackNumber,
}

/// The blocks in use of a process, and the generation of each stack.
#[derive(Clone, Debug, Default)]
pub struct BlocksInUse {
    /// The blocks, in no order.
    pub all: Vec<BlockInUse>,
    /// Mean bytes between samples; 1 if no block is missing.
    pub period: u64,
    /// The generation of each stack, by the number of the stack. A generation is the number of
    /// forks between the first process and the process in which the stack allocated. It is known
    /// only if stacks are recorded for each thread.
    pub generations: Vec<u8>,
}

impl BlocksInUse {
    /// Returns how many blocks of `size` bytes one sampled block represents. A block is sampled
    /// with a probability of 1 - e^(-size/period).
    #[must_use]
    pub fn weight(&self, size: u64) -> f64 {
        match self.period {
            0 | 1 => 1.0,
            period => -1.0 / (-(size.max(1) as f64) / period as f64).exp_m1(),
        }
    }
}

impl LiveProcess {
    /// Reads the blocks in use. The process goes on meanwhile, so some of its blocks may be
    /// missing, and some of the returned blocks may be freed already. In sampled mode only sampled
    /// blocks are returned.
    ///
    /// # Errors
    /// The process may end meanwhile, and its ledger may be damaged.
    pub fn blocks(&self) -> Result<BlocksInUse, LiveError> {
        self.with_ledger(blocks)
    }

    /// Returns the mean bytes between samples; 1 if every allocation is counted.
    ///
    /// # Errors
    /// The process may end meanwhile.
    pub fn period(&self) -> Result<u64, LiveError> {
        self.with_ledger(|reader, ledger| reader.u64(ledger.period))
    }

    /// Returns the number of stacks in the ledger so far.
    ///
    /// # Errors
    /// The process may end meanwhile.
    pub fn stacks(&self) -> Result<u32, LiveError> {
        self.with_ledger(|reader, ledger| reader.u32(ledger.stacks))
    }

    /// Makes a profile with the given sample types and rows. Each row has a value for each type,
    /// and a label under `key`.
    ///
    /// # Errors
    /// The process may end meanwhile, and its ledger may be damaged.
    pub fn profile_of(
        &self,
        types: &[(&str, &str)],
        key: &str,
        rows: &[LiveProfileRow<'_>],
    ) -> Result<Profile, LiveError> {
        let code = self.code();
        self.with_ledger(|reader, ledger| {
            profile_from_rows(reader, ledger, &code, types, key, rows)
        })
    }

    /// Returns the loaded objects, the executable first. The list is empty for a statically linked
    /// program.
    #[must_use]
    pub fn objects(&self) -> Vec<LoadedObject> {
        let auxiliary = std::fs::read(path(self.pid(), "auxv")).unwrap_or_default();
        let memory = self.memory();
        let Some(first) = executable(memory, &auxiliary) else {
            return Vec::new();
        };
        let all = objects_from_executable(memory, first.object);
        all.take(MAX_OBJECTS).collect()
    }
}

/// Reads the blocks in use from a ledger.
pub(crate) fn blocks<M: Memory>(
    reader: &BoundedMemoryReader<M>,
    ledger: &LiveLedger,
) -> Result<BlocksInUse, LiveError> {
    let len = reader.u32(ledger.stacks)?;
    if len > MAX_STACKS {
        return Err(LiveError::LedgerTooLarge);
    }
    let names = LiveThreadNames::read(reader, ledger, &|_| None)?;
    let stacks = LiveStackReader::new(reader, ledger, len as usize)?;
    let mut found = BlocksInUse {
        period: reader.u64(ledger.period)?,
        ..BlocksInUse::default()
    };
    let mut words = Vec::new();
    for number in (0..len).map(StackNumber::from_u32) {
        // The thread of the stack is a word in front of the frames.
        stacks.read_own(number, &mut words)?;
        let thread = words
            .iter()
            .find_map(|&word| match FrameWord::from_word(word) {
                FrameWord::Thread(number) => Some(number),
                _ => None,
            });
        let generation = thread.map_or(0, |thread| names.describe_thread(thread).generation);
        found.generations.push(generation);
    }
    let [stride, place] = ledger.part.map(u64::from);
    let mut left = MAX_ENTRIES;
    for part in 0..PART_COUNT as u64 {
        let at = ledger.parts.wrapping_add(part * stride + place);
        let entries = reader.u64(at.wrapping_add(table::ENTRY as u64))?;
        let mask = reader.u64(at.wrapping_add(table::MASK as u64))?;
        if entries == 0 {
            continue;
        }
        let room = mask.saturating_add(1);
        left = left.checked_sub(room).ok_or(LiveError::LedgerTooLarge)?;
        let mut done = 0;
        let mut bytes = Vec::new();
        while done < room {
            let count = (room - done).min(MAX_ENTRIES_PER_READ);
            bytes.resize((count * ENTRY_LEN) as usize, 0);
            reader.read(entries.wrapping_add(done * ENTRY_LEN), &mut bytes)?;
            let all = bytes.as_chunks::<{ ENTRY_LEN as usize }>().0;
            found
                .all
                .extend(all.iter().filter_map(|entry| block(entry, len)));
            done += count;
        }
    }
    if add_shadow_blocks(reader, ledger, len, &mut found.all)? {
        // A region may have got its shadow after its blocks were read from the table.
        found.all.sort_by_key(|block| block.address);
        found.all.dedup_by_key(|block| block.address);
    }
    Ok(found)
}

/// Adds the blocks that are recorded in shadows: tables for regions in which blocks lie close
/// together. Returns whether there are any shadows.
fn add_shadow_blocks<M: Memory>(
    reader: &BoundedMemoryReader<M>,
    ledger: &LiveLedger,
    stacks: u32,
    found: &mut Vec<BlockInUse>,
) -> Result<bool, LiveError> {
    const WORDS: u64 = shadow::WORDS as u64;
    let count = match ledger.shadows {
        0 => 0,
        at => reader.u64(at)?,
    };
    if count > MAX_SHADOWS {
        return Err(LiveError::LedgerTooLarge);
    }
    let chunks: [u8; 8 * shadow::MAX_SHADOW_CHUNKS] = match count {
        0 => return Ok(false),
        _ => reader.array(ledger.shadow)?,
    };
    let mut bytes = vec![0; 8 * shadow::WORDS];
    for number in 0..count {
        let (chunk, place) = shadow::locate_shadow(number);
        let chunk_at = match chunk < shadow::MAX_SHADOW_CHUNKS {
            true => u64_at(&chunks, 8 * chunk),
            false => 0,
        };
        if chunk_at == 0 {
            // The chunk is being made.
            continue;
        }
        let numbers = chunk_at.wrapping_add(shadow::chunk_len(chunk) * 8 * WORDS);
        let region = reader.u64(numbers.wrapping_add(8 * place))?;
        if region == 0 {
            continue;
        }
        reader.read_bounded(chunk_at.wrapping_add(place * 8 * WORDS), &mut bytes)?;
        for (i, word) in bytes.as_chunks::<8>().0.iter().enumerate() {
            let word = u64::from_ne_bytes(*word);
            let stack = word as u32;
            if word & shadow::PRESENT_FLAG != 0 && stack < stacks {
                let place = region.wrapping_mul(WORDS).wrapping_add(i as u64);
                found.push(BlockInUse {
                    address: place << shadow::GRAIN_BITS,
                    size: (word & !shadow::PRESENT_FLAG) >> 32,
                    stack: StackNumber::from_u32(stack),
                });
            }
        }
        if found.len() > MAX_BLOCKS {
            return Err(LiveError::LedgerTooLarge);
        }
    }
    Ok(true)
}

/// Decodes an entry of the table of blocks. Returns `None` if the entry is empty, or names a stack
/// that does not exist.
fn block(entry: &[u8; ENTRY_LEN as usize], stacks: u32) -> Option<BlockInUse> {
    let (first, second) = (u64_at(entry, 0), u64_at(entry, 8));
    let key = first & ((1 << table::ADDRESS_BITS) - 1);
    let stack = second as u32;
    (key != 0 && stack < stacks).then_some(BlockInUse {
        address: key << 3,
        size: (first >> table::ADDRESS_BITS) << 32 | second >> 32,
        stack: StackNumber::from_u32(stack),
    })
}
