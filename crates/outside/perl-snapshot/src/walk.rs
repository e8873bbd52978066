//! Walks a program: makes all values of all interpreters, and then values of all other memory that
//! malloc has given out.

use heapprof_heap::{ChunkUse, MallocHeap, ProcessImage};
use heapprof_memory::Memory;
use heapprof_perl::{ArenaType, PerlRuntime, PerlVersion};
use heapprof_perl_values::{PerlValue, PerlValueKind, ValueGraph};

use crate::PerlAddress;
use crate::claims::{ChunkClaims, ChunkShare, allocated_bytes};
use crate::error::PerlWalkError;
use crate::fill::{ValueFiller, WantedAddress};
use crate::find::LocatedPerl;
use crate::layout::ValueLayout;
use crate::reader::PerlMemoryReader;
use crate::remaining_chunks::RemainingChunks;
use crate::roots::{InterpreterRoots, head_arenas, other_arenas};
use crate::sv::{self, ValueHead};

/// Number of elements that all arrays and hashes together may have in addition to the number of
/// words in the memory. With more elements, the memory must be damaged.
const EXTRA_WORDS: u64 = 1 << 20;

/// An interpreter, and the counts of its values.
#[derive(Clone, Debug)]
pub struct PerlInterpreter {
    /// Address of the interpreter.
    pub address: u64,
    /// Number of values in Perl's own count (`PL_sv_count`).
    pub reported_count: u64,
    /// Number of values of each type, in the order of Perl's type numbers.
    pub types: [u64; sv::TYPE_COUNT],
}

/// Perl's names of its types (`SVt_PVAV` is `PVAV`), by their numbers.
const TYPE_NAMES: [&str; sv::TYPE_COUNT] = [
    "NULL", "IV", "NV", "PV", "INVLIST", "PVIV", "PVNV", "PVMG", "REGEXP", "PVGV", "PVLV", "PVAV",
    "PVHV", "PVCV", "PVFM", "PVIO", "PVOBJ",
];

impl PerlInterpreter {
    /// Returns the number of values of each type, with Perl's name of the type.
    pub fn named_types(&self) -> impl Iterator<Item = (&'static str, u64)> {
        TYPE_NAMES.into_iter().zip(self.types)
    }

    /// Returns the number of values that were found.
    #[must_use]
    pub fn found_count(&self) -> u64 {
        self.types.iter().sum()
    }
}

/// Sums of the blocks that malloc has given out.
#[derive(Clone, Copy, Debug, Default)]
pub struct MallocTotals {
    /// Number of blocks.
    pub blocks: u64,
    /// Bytes of the blocks, including malloc's own word for each block.
    pub bytes: u64,
    /// Bytes of free blocks that threads keep in their caches for later requests. Only malloc's own
    /// sums count these blocks as given out.
    pub cached: u64,
}

/// The values and other memory of a program.
#[derive(Debug)]
pub struct PerlSnapshot {
    /// The version of the program's perl.
    pub version: PerlVersion,
    /// The perl's interpreters, the first one first.
    pub interpreters: Vec<PerlInterpreter>,
    /// All values, and all other memory that malloc has given out.
    pub values: ValueGraph,
    /// malloc's sums; `None` if its chunks are not known.
    pub malloc: Option<MallocTotals>,
    /// Whether Perl uses a malloc other than the C library's, such as its own (`-Dusemymalloc`):
    /// the C library's chunks are known, but Perl's values are not in them. Sizes are then the
    /// sizes that Perl requested.
    pub has_other_malloc: bool,
    /// Address of the value that owns the address `wanted` of [`walk()`].
    pub owner: Option<u64>,
    /// Whether arrays or hashes have more elements than fit into the memory. Then the memory is
    /// damaged.
    pub is_damaged: bool,
}

/// Reads the values of a program. `constants` reads the memory that the program can't write to,
/// which the image may lack. Without a `heap`, sizes are the sizes that Perl requested, and the
/// interpreters of other threads are not found. If `wanted` is an address, the value that owns it
/// is found as well.
///
/// # Errors
/// The program has no perl or no interpreter, or its perl can't be read.
pub fn walk(
    image: &ProcessImage,
    constants: impl Memory,
    heap: Option<&MallocHeap>,
    wanted: Option<u64>,
) -> Result<PerlSnapshot, PerlWalkError> {
    let found = LocatedPerl::new(image, constants)?;
    let version = found.version();
    let has_threads = found.perl.interpreter_size().is_some();
    let layout =
        ValueLayout::for_version(version, has_threads).ok_or(PerlWalkError::Version(version))?;
    let addresses = found.interpreters(image, heap);
    if addresses.is_empty() {
        return Err(PerlWalkError::NoInterpreter);
    }
    let has_heap = heap.is_some();
    let heap = heap.filter(|heap| has_arenas(&found.perl, image, heap, &addresses));
    let has_other_malloc = has_heap && heap.is_none();
    let regions = image.regions().iter();
    let words: u64 = regions.map(|region| region.bytes.len() as u64 / 8).sum();
    let mut fill = ValueFiller::new(
        PerlMemoryReader::new(image),
        &found.perl,
        layout,
        ChunkClaims::new(heap),
        words + EXTRA_WORDS,
    );
    fill.wanted = WantedAddress::new(wanted, &fill.claims);
    let all = (1..).zip(&addresses);
    let all = all.map(|(number, &at)| {
        let outer = match number {
            1 => String::new(),
            number => format!("(interpreter {number})"),
        };
        InterpreterRoots::new(at, outer, found.variables(at))
    });
    let mut roots: Vec<InterpreterRoots> = all.collect();
    roots.iter_mut().for_each(|one| one.prepare(&mut fill));
    let mut interpreters = Vec::new();
    let mut arenas: Vec<(PerlAddress, ArenaType)> = Vec::new();
    let mut left = 8 * words / sv::HEAD_SIZE;
    for &at in &addresses {
        let heads = head_arenas(&found.perl, image, at, left);
        let count: usize = heads.iter().map(|arena| arena.1).sum();
        fill.builder.reserve(count);
        left -= count as u64;
        let types = values_of(&mut fill, &heads);
        let says = found.perl.value_count(image, at).unwrap_or(0);
        interpreters.push(PerlInterpreter {
            address: at,
            reported_count: says,
            types,
        });
        arenas.extend(other_arenas(&found.perl, image, at));
        arenas.extend(heads.iter().map(|&(first, _)| (first, ArenaType::Heads)));
    }
    fill.name_pads();
    // All claims of values are known now, so the chunks that no value has can be determined.
    if let Some(heap) = heap {
        RemainingChunks::new(&mut fill, image, heap).arenas(&arenas);
    }
    for one in &roots {
        one.add(&mut fill);
        one.claim_keys(&mut fill, image);
    }
    let builder = &mut fill.builder;
    let shared = fill.steps.shared;
    fill.claims.settle(|number, part| {
        let value = builder.value_mut(number);
        match part {
            ChunkShare::Own(bytes, asked) => {
                value.size = value.size.saturating_add(bytes);
                value.asked = value.asked.saturating_add(asked);
            }
            ChunkShare::Shared(chunk, asked) => {
                let from = value.address;
                builder.lead_later(from, chunk.at, shared, true);
                if builder.number(chunk.at).is_none() {
                    builder.end(PerlValue {
                        address: chunk.at,
                        size: allocated_bytes(chunk),
                        asked,
                        kind: PerlValueKind::Shared,
                        ..PerlValue::default()
                    });
                }
            }
        }
    });
    fill.lead_to_buffers();
    if let Some(heap) = heap {
        let mut rest = RemainingChunks::new(&mut fill, image, heap);
        rest.follow_perl(&roots);
        let mut own: Vec<_> = roots.iter().flat_map(InterpreterRoots::places).collect();
        own.sort_unstable_by_key(|range| range.start);
        rest.follow_others(&own);
        rest.leftovers();
    }
    let is_damaged = fill.left == 0;
    let owner = fill.wanted.and_then(|wanted| wanted.owner(&fill.claims));
    Ok(PerlSnapshot {
        version,
        interpreters,
        values: fill.builder.finish(),
        malloc: heap.map(malloc_totals),
        has_other_malloc,
        owner,
        is_damaged,
    })
}

/// Whether the arenas of interpreters are in chunks of a heap.
fn has_arenas(
    perl: &PerlRuntime,
    image: &ProcessImage,
    heap: &MallocHeap,
    interpreters: &[PerlAddress],
) -> bool {
    let arenas = interpreters.iter().filter_map(|&at| {
        let [_, arenas, _] = perl.value_roots(at)?;
        image.word(arenas).filter(|&arena| arena != 0)
    });
    let mut arenas = arenas.peekable();
    arenas.peek().is_none() || arenas.any(|arena| heap.find(arena).is_some())
}

/// Makes the values of all heads in the arenas `arenas`. Returns the number of values of each type.
fn values_of(fill: &mut ValueFiller<'_>, arenas: &[(PerlAddress, usize)]) -> [u64; sv::TYPE_COUNT] {
    let mut types = [0; sv::TYPE_COUNT];
    for &(first, count) in arenas {
        let bytes = fill.reader.bytes(first, count as u64 * sv::HEAD_SIZE);
        let places = (first..).step_by(sv::HEAD_SIZE as usize);
        for (at, bytes) in places.zip(bytes.as_chunks().0) {
            let head = ValueHead::new(at, bytes);
            // In damaged memory, another interpreter may have the same arena.
            let is_new = fill.builder.number(at).is_none();
            if let Some(of_type) = types.get_mut(head.kind() as usize).filter(|_| is_new) {
                *of_type += 1;
                fill.heads += 1;
                fill.fill(&head);
            }
        }
    }
    types
}

fn malloc_totals(heap: &MallocHeap) -> MallocTotals {
    let mut sum = MallocTotals::default();
    for chunk in &heap.chunks {
        match chunk.kind {
            ChunkUse::InUse | ChunkUse::Cache => {
                sum.blocks += 1;
                sum.bytes += allocated_bytes(chunk);
            }
            ChunkUse::Cached => sum.cached += allocated_bytes(chunk),
            ChunkUse::Free | ChunkUse::Fast | ChunkUse::Top => {}
        }
    }
    sum
}
