//! Makes a profile of a heap's blocks, grouped by state. If the process is recorded, blocks are
//! also grouped by the stack that allocated them.

use std::collections::HashMap;

use anyhow::{Context, Result};
use heapprof_heap::{ChunkState, ImageRegion, ProcessImage};
use heapprof_live::{
    BlocksInUse, LedgerSnapshot, LiveError, LiveProcess, LiveProfileRow, StackNumber,
};
use heapprof_profile::{Profile, ProfileBuilder};
use heapprof_recorder::outside::{give_names, namer, namer_of, open_core};
use heapprof_report::HeapDescriber;

use crate::target::{WalkTarget, WalkTargetKind};

/// The sample types of a walked heap; the default one comes second.
const HEAP_SAMPLE_TYPES: [(&str, &str); 8] = [
    ("leaked_objects", "count"),
    ("leaked_space", "bytes"),
    ("maybe_objects", "count"),
    ("maybe_space", "bytes"),
    ("reached_objects", "count"),
    ("reached_space", "bytes"),
    ("free_objects", "count"),
    ("free_space", "bytes"),
];
/// The key of the label for the state of a block.
const STATE_LABEL_KEY: &str = "state";

/// The key by which blocks are grouped in a profile.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct BlockGroupKey {
    /// The number of the stack that allocated the blocks, if it is known.
    stack: Option<StackNumber>,
    state: &'static str,
    /// Frames that replace an unknown stack, root first.
    frames: Vec<String>,
}

/// The ledger of a recording at the time when the memory was copied.
enum RecordedLedger<'a> {
    Process(LedgerSnapshot<&'a ProcessImage>, u32),
    Core(heapprof_live::CoreLedger),
}

impl<'a> RecordedLedger<'a> {
    /// Finds the ledger of the recording. Returns `None` if nothing is recorded. If the ledger
    /// can't be read, says why in `missing`, and returns `None`.
    fn find_or_note(
        target: &WalkTarget,
        image: &'a ProcessImage,
        missing: &mut Option<MissingStacks>,
    ) -> Option<Self> {
        match Self::find(target, image) {
            Ok(found) => Some(found),
            Err(LiveError::NotRecorded) => None,
            Err(error) => {
                // The blocks are still reported, without their stacks.
                *missing = Some(MissingStacks::Unread(error));
                None
            }
        }
    }

    fn find(target: &WalkTarget, image: &'a ProcessImage) -> Result<Self, LiveError> {
        match &target.what {
            WalkTargetKind::Process(pid, memory) => {
                // Only the process itself can tell whether the ledger is its own, and not a
                // parent's.
                LiveProcess::open(*pid)?;
                let own = image.regions().iter().filter(|region| region.is_own);
                let pieces = own.map(ImageRegion::range);
                let ledger = LedgerSnapshot::new(image, pieces, memory, &image.files)?;
                Ok(Self::Process(ledger, *pid))
            }
            WalkTargetKind::Core(path, _) => {
                let (file, _) = open_core(path)?;
                heapprof_live::CoreLedger::open(file).map(Self::Core)
            }
        }
    }

    fn blocks(&self) -> Result<BlocksInUse, LiveError> {
        match self {
            Self::Process(ledger, _) => ledger.blocks(),
            Self::Core(core) => core.frozen().blocks(),
        }
    }

    /// Makes a profile with the stacks of the recording.
    fn profile(&self, target: &WalkTarget, rows: &[(BlockGroupKey, [i64; 8])]) -> Result<Profile> {
        // The last frame says what a block is and is passed alone, so that a class's name is
        // shortened as such.
        let places = rows.iter().map(|(place, _)| place.frames.last().cloned());
        let places: Vec<String> = places.map(Option::unwrap_or_default).collect();
        let rows = rows.iter().zip(&places);
        let rows = rows.map(|((place, values), frames)| LiveProfileRow {
            stack: place.stack,
            place: frames,
            kind: place.state,
            values: values.to_vec(),
        });
        let rows: Vec<LiveProfileRow<'_>> = rows.collect();
        let profile = match self {
            Self::Process(ledger, _) => {
                ledger.profile_of(&HEAP_SAMPLE_TYPES, STATE_LABEL_KEY, &rows)
            }
            Self::Core(core) => {
                core.frozen()
                    .profile_of(&HEAP_SAMPLE_TYPES, STATE_LABEL_KEY, &rows)
            }
        };
        let mut profile = profile.context("the stacks of its recording")?;
        target.place_files(&mut profile);
        let mut namer = match self {
            Self::Process(_, pid) => namer_of(*pid),
            Self::Core(_) => namer(None),
        };
        give_names(&mut profile, &mut namer, target.rights)?;
        Ok(profile)
    }
}

/// Why blocks of a profile have no stacks.
#[derive(Debug)]
pub enum MissingStacks {
    /// The ledger of the recording can't be read.
    Unread(LiveError),
    /// The recording does not know all blocks that leaked.
    Unknown {
        /// Number of blocks that leaked and have a stack.
        with_stack: u64,
        /// Number of blocks that leaked.
        leaked: u64,
    },
}

/// The profile of a heap's blocks.
#[derive(Debug)]
pub struct BlocksProfile {
    /// The profile.
    pub profile: Profile,
    /// Why blocks have no stacks, if some of a recorded process have none.
    pub missing: Option<MissingStacks>,
}

/// Makes the profile of a walked heap.
///
/// # Errors
/// The ledger of the recording may be damaged.
pub fn blocks_profile(target: &WalkTarget, words: &mut HeapDescriber<'_>) -> Result<BlocksProfile> {
    let (heap, marks) = (words.heap, words.marks);
    let mut missing = None;
    let recorded = RecordedLedger::find_or_note(target, words.image, &mut missing);
    let blocks = recorded.as_ref().map(RecordedLedger::blocks).transpose()?;
    let known: HashMap<u64, StackNumber> = blocks
        .iter()
        .flat_map(|blocks| &blocks.all)
        .map(|block| (block.address, block.stack))
        .collect();
    let mut sums: HashMap<BlockGroupKey, [i64; 8]> = HashMap::new();
    let (mut leaked, mut with_stack) = (0u64, 0u64);
    for (number, (chunk, &state)) in heap.chunks.iter().zip(&marks.states).enumerate() {
        let first = match state {
            ChunkState::Leaked | ChunkState::Indirect => 0,
            ChunkState::Maybe => 2,
            ChunkState::Reached => 4,
            ChunkState::Free => 6,
        };
        let stack = known.get(&chunk.at).copied();
        let stack = stack.filter(|_| state != ChunkState::Free);
        let frames = match (stack, state) {
            (Some(_), _) => Vec::new(),
            (None, ChunkState::Free) => vec!["free".to_string(), size_class(chunk.size)],
            (None, _) => vec![
                state.name().to_string(),
                size_class(chunk.size),
                words.block_class(number).to_string(),
            ],
        };
        if first == 0 && recorded.is_some() {
            leaked += 1;
            with_stack += u64::from(stack.is_some());
        }
        let place = BlockGroupKey {
            stack,
            state: state.name(),
            frames,
        };
        let values = sums.entry(place).or_default();
        values[first] += 1;
        values[first + 1] += i64::try_from(chunk.size).unwrap_or(i64::MAX);
    }
    if with_stack < leaked {
        missing = Some(MissingStacks::Unknown { with_stack, leaked });
    }
    let mut rows: Vec<(BlockGroupKey, [i64; 8])> = sums.into_iter().collect();
    rows.sort();
    let mut profile = match &recorded {
        Some(recorded) if !known.is_empty() => recorded.profile(target, &rows)?,
        _ => profile_without_stacks(&rows),
    };
    let default = profile.strings.intern("leaked_space");
    profile.default_sample_type = default;
    Ok(BlocksProfile { profile, missing })
}

/// Makes a profile of an unrecorded heap. The frames are a block's state, its size class and its
/// kind.
fn profile_without_stacks(rows: &[(BlockGroupKey, [i64; 8])]) -> Profile {
    let mut builder = ProfileBuilder::new(&HEAP_SAMPLE_TYPES);
    for (place, values) in rows {
        let frames: Vec<&str> = place.frames.iter().map(String::as_str).collect();
        builder.add_named(&frames, values, &mut []);
    }
    builder.finish()
}

/// Returns the size class of `size` as text: the range between two powers of two.
fn size_class(size: u64) -> String {
    let size = size.max(1);
    let low = 1u64 << size.ilog2();
    format!("{low} B to {} B", low.saturating_mul(2) - 1)
}
