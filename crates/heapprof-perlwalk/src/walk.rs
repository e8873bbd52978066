//! The walk: all values of all interpreters, and then what else malloc has given out.

use heapprof_heapwalk::{Heap, Image, Use};
use heapprof_memory::Memory;
use heapprof_perl::{Perl, Type, Version};
use heapprof_perl_heap::{Kind, Value, Values};

use crate::Address;
use crate::claims::{Claims, Part, whole};
use crate::error::Error;
use crate::fill::{Fill, Wanted};
use crate::find::Found;
use crate::layout::Layout;
use crate::reader::Reader;
use crate::rest::Rest;
use crate::roots::{Roots, head_arenas, other_arenas};
use crate::sv::{self, Sv};

/// So many words more than the memory has may be elements of arrays and hashes.
const MORE_WORDS: u64 = 1 << 20;

/// An interpreter, and how many values it has.
#[derive(Clone, Debug)]
pub struct Interpreter {
    /// Where it is.
    pub address: u64,
    /// How many values Perl says that it has (`PL_sv_count`).
    pub says: u64,
    /// How many there are of each type, by Perl's numbers.
    pub types: [u64; sv::TYPES],
}

/// What Perl calls its types (`SVt_PVAV` is `PVAV`), by their numbers.
const NAMES: [&str; sv::TYPES] = [
    "NULL", "IV", "NV", "PV", "INVLIST", "PVIV", "PVNV", "PVMG", "REGEXP", "PVGV", "PVLV", "PVAV",
    "PVHV", "PVCV", "PVFM", "PVIO", "PVOBJ",
];

impl Interpreter {
    /// How many values there are of each type, by what Perl calls it.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        NAMES.into_iter().zip(self.types)
    }

    /// How many values were found.
    #[must_use]
    pub fn found(&self) -> u64 {
        self.types.iter().sum()
    }
}

/// What malloc has given out.
#[derive(Clone, Copy, Debug, Default)]
pub struct Malloc {
    /// How many blocks.
    pub blocks: u64,
    /// How many bytes, with a word for each block.
    pub bytes: u64,
    /// How many bytes more are in blocks that threads keep for their next requests. malloc's own
    /// sums count these as given out.
    pub cached: u64,
}

/// What was found in a program.
#[derive(Debug)]
pub struct Walked {
    /// The version of its perl.
    pub version: Version,
    /// Its interpreters, the first one first.
    pub interpreters: Vec<Interpreter>,
    /// All values, and all else that malloc has given out.
    pub values: Values,
    /// What malloc says; `None` if its chunks are not known.
    pub malloc: Option<Malloc>,
    /// Whether malloc's chunks are known and Perl's values lie elsewhere: Perl has another malloc,
    /// as its own (`-Dusemymalloc`). Then sizes are what Perl asked for.
    pub has_other_malloc: bool,
    /// The address of the value that has what is at the address that was wanted.
    pub owner: Option<u64>,
    /// Whether arrays or hashes have more elements than memory has, which is damage.
    pub is_damaged: bool,
}

/// Reads the values of a program. `constants` is what the program can't write to, which need not be
/// in the copy. Without a `heap`, sizes are what Perl asked for, and other threads are not seen.
/// The value is told that has what is at the `wanted` address.
///
/// # Errors
/// There may be no perl, or one that is not known.
pub fn walk(
    image: &Image,
    constants: impl Memory,
    heap: Option<&Heap>,
    wanted: Option<u64>,
) -> Result<Walked, Error> {
    let found = Found::new(image, constants)?;
    let version = found.version();
    let has_threads = found.perl.interpreter_size().is_some();
    let layout = Layout::of(version, has_threads).ok_or(Error::Version(version))?;
    let addresses = found.interpreters(image, heap);
    if addresses.is_empty() {
        return Err(Error::NoInterpreter);
    }
    let has_heap = heap.is_some();
    let heap = heap.filter(|heap| has_arenas(&found.perl, image, heap, &addresses));
    let has_other_malloc = has_heap && heap.is_none();
    let regions = image.regions().iter();
    let words: u64 = regions.map(|region| region.bytes.len() as u64 / 8).sum();
    let mut fill = Fill::new(
        Reader::new(image),
        &found.perl,
        layout,
        Claims::new(heap),
        words + MORE_WORDS,
    );
    fill.wanted = Wanted::new(wanted, &fill.claims);
    let all = (1..).zip(&addresses);
    let all = all.map(|(number, &at)| {
        let outer = match number {
            1 => String::new(),
            number => format!("(interpreter {number})"),
        };
        Roots::new(at, outer, found.variables(at))
    });
    let mut roots: Vec<Roots> = all.collect();
    roots.iter_mut().for_each(|one| one.prepare(&mut fill));
    let mut interpreters = Vec::new();
    let mut arenas: Vec<(Address, Type)> = Vec::new();
    let mut left = 8 * words / sv::HEAD;
    for &at in &addresses {
        let heads = head_arenas(&found.perl, image, at, left);
        let count: usize = heads.iter().map(|arena| arena.1).sum();
        fill.builder.reserve(count);
        left -= count as u64;
        let types = values_of(&mut fill, &heads);
        let says = found.perl.value_count(image, at).unwrap_or(0);
        interpreters.push(Interpreter {
            address: at,
            says,
            types,
        });
        arenas.extend(other_arenas(&found.perl, image, at));
        arenas.extend(heads.iter().map(|&(first, _)| (first, Type::Heads)));
    }
    fill.name_pads();
    // Values have what they have, and only then what nobody has can be told.
    if let Some(heap) = heap {
        Rest::new(&mut fill, image, heap).arenas(&arenas);
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
            Part::Own(bytes, asked) => {
                value.size = value.size.saturating_add(bytes);
                value.asked = value.asked.saturating_add(asked);
            }
            Part::Shared(chunk, asked) => {
                let from = value.address;
                builder.lead_later(from, chunk.at, shared, true);
                if builder.number(chunk.at).is_none() {
                    builder.end(Value {
                        address: chunk.at,
                        size: whole(chunk),
                        asked,
                        kind: Kind::Shared,
                        ..Value::default()
                    });
                }
            }
        }
    });
    fill.lead_to_buffers();
    if let Some(heap) = heap {
        let mut rest = Rest::new(&mut fill, image, heap);
        rest.follow_perl(&roots);
        let mut own: Vec<_> = roots.iter().flat_map(Roots::places).collect();
        own.sort_unstable_by_key(|range| range.start);
        rest.follow_others(&own);
        rest.leftovers();
    }
    let is_damaged = fill.left == 0;
    let owner = fill.wanted.and_then(|wanted| wanted.owner(&fill.claims));
    Ok(Walked {
        version,
        interpreters,
        values: fill.builder.finish(),
        malloc: heap.map(malloc),
        has_other_malloc,
        owner,
        is_damaged,
    })
}

/// Whether the arenas of interpreters lie in chunks of this heap.
fn has_arenas(perl: &Perl, image: &Image, heap: &Heap, interpreters: &[Address]) -> bool {
    let arenas = interpreters.iter().filter_map(|&at| {
        let [_, arenas, _] = perl.value_roots(at)?;
        image.word(arenas).filter(|&arena| arena != 0)
    });
    let mut arenas = arenas.peekable();
    arenas.peek().is_none() || arenas.any(|arena| heap.find(arena).is_some())
}

/// Makes the values of all heads in these arenas. Returns how many there are of each type.
fn values_of(fill: &mut Fill<'_>, arenas: &[(Address, usize)]) -> [u64; sv::TYPES] {
    let mut types = [0; sv::TYPES];
    for &(first, count) in arenas {
        let bytes = fill.reader.bytes(first, count as u64 * sv::HEAD);
        let places = (first..).step_by(sv::HEAD as usize);
        for (at, bytes) in places.zip(bytes.as_chunks().0) {
            let head = Sv::new(at, bytes);
            // Another interpreter of damaged memory may have the same arena.
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

fn malloc(heap: &Heap) -> Malloc {
    let mut sum = Malloc::default();
    for chunk in &heap.chunks {
        match chunk.kind {
            Use::InUse | Use::Cache => {
                sum.blocks += 1;
                sum.bytes += whole(chunk);
            }
            Use::Cached => sum.cached += whole(chunk),
            Use::Free | Use::Fast | Use::Top => {}
        }
    }
    sum
}
