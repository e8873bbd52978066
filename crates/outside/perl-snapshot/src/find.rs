//! Finds the perl of a program, and its interpreters.

use std::collections::HashSet;

use heapprof_heap::{MallocHeap, ProcessImage};
use heapprof_memory::Memory;
use heapprof_memory::loaded_modules::{LoadedObject, executable, objects_from_executable};
use heapprof_perl::{InterpreterLocator, PerlRuntime, PerlVersion};

use crate::PerlAddress;
use crate::error::PerlWalkError;
use crate::layout::{places, variables};
use crate::reader::PerlMemoryReader;

/// Maximum number of loaded objects that are searched.
const MAX_OBJECTS: usize = 10_000;
/// Maximum number of bytes, exclusive, that malloc adds to an interpreter's size.
const MALLOC_ROUNDING: u64 = 32;
/// Offset, in an arena's first head, of the number of heads in the arena (4 bytes).
const ARENA_HEADS_OFFSET: u64 = 8;
const MAX_ARENA_HEADS: u32 = 170;
/// Number of the oldest perl series (5.22) whose structures are known.
const OLDEST_SERIES: u8 = 22;

/// A copy of a program's memory, with a reader for the read-only memory that the copy may lack.
#[derive(Clone, Copy)]
struct ImageWithConstants<'a, M> {
    image: &'a ProcessImage,
    constants: M,
}

impl<M: Memory> Memory for ImageWithConstants<'_, M> {
    fn read(self, at: PerlAddress, to: &mut [u8]) -> bool {
        let end = at.saturating_add(to.len() as u64);
        let bytes = self.image.bytes(at..end);
        if bytes.len() == to.len() {
            to.copy_from_slice(bytes);
            return true;
        }
        self.constants.read(at, to)
    }
}

/// A variable of an interpreter: its name, its address and its size in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InterpreterVariable {
    pub(crate) name: &'static str,
    pub(crate) at: PerlAddress,
    pub(crate) size: u64,
}

/// The perl of a program. `variables` is only used if each variable of the interpreter has a
/// symbol.
pub(crate) struct LocatedPerl {
    pub(crate) perl: PerlRuntime,
    variables: Vec<InterpreterVariable>,
}

impl LocatedPerl {
    /// Finds the perl of a program. `constants` reads the memory that the program can't write to.
    pub(crate) fn new(image: &ProcessImage, constants: impl Memory) -> Result<Self, PerlWalkError> {
        let memory = ImageWithConstants { image, constants };
        let first = executable(memory, &image.auxiliary).ok_or(PerlWalkError::NoPerl)?;
        let mut refused = None;
        for object in objects_from_executable(memory, first.object).take(MAX_OBJECTS) {
            match PerlRuntime::find(memory, object, Some(first.object)) {
                Some(Ok(perl)) => {
                    if perl.version.version < OLDEST_SERIES {
                        return Err(PerlWalkError::Version(perl.version));
                    }
                    let variables = match perl.locator {
                        InterpreterLocator::Variables => {
                            find_variables_by_name(memory, object, first.object)
                        }
                        _ => Vec::new(),
                    };
                    return Ok(Self { perl, variables });
                }
                Some(Err(error)) => refused = Some(error),
                None => {}
            }
        }
        Err(refused.map_or(PerlWalkError::NoPerl, PerlWalkError::Unreadable))
    }

    pub(crate) fn version(&self) -> PerlVersion {
        self.perl.version
    }

    /// Returns the variables of an interpreter.
    pub(crate) fn variables(&self, interpreter: PerlAddress) -> Vec<InterpreterVariable> {
        let Some(size) = self.perl.interpreter_size() else {
            return self.variables.clone();
        };
        let places = places(self.version());
        let ends = places.iter().skip(1).map(|place| place.0).chain([size]);
        let all = places.iter().zip(ends);
        let all = all.map(|(&(at, name), end)| InterpreterVariable {
            name,
            at: interpreter.wrapping_add(at),
            size: end.saturating_sub(at),
        });
        all.collect()
    }

    /// Returns the addresses of interpreters that have values, the first interpreter first.
    pub(crate) fn interpreters(
        &self,
        image: &ProcessImage,
        heap: Option<&MallocHeap>,
    ) -> Vec<PerlAddress> {
        let first = self.perl.first_interpreter(image);
        let reader = PerlMemoryReader::new(image);
        let mut all: Vec<PerlAddress> = first.into_iter().collect();
        if let (Some(size), Some(heap)) = (self.perl.interpreter_size(), heap) {
            let chunks = heap.chunks.iter().filter(|chunk| {
                chunk.is_in_use() && (size..size + MALLOC_ROUNDING).contains(&chunk.size)
            });
            let others = chunks.map(|chunk| chunk.at);
            let others =
                others.filter(|&at| Some(at) != first && self.is_interpreter(&reader, heap, at));
            all.extend(others);
        }
        let mut seen = HashSet::new();
        all.retain(|&at| seen.insert(at));
        all
    }

    /// Whether an interpreter with arenas is at `at`. The arenas must be in chunks of malloc.
    fn is_interpreter(
        &self,
        reader: &PerlMemoryReader<'_>,
        heap: &MallocHeap,
        at: PerlAddress,
    ) -> bool {
        let Some([_, arenas, count]) = self.perl.value_roots(at) else {
            return false;
        };
        let arena = reader.word(arenas);
        let is_arena = heap
            .find(arena)
            .is_some_and(|found| heap.chunks[found].at == arena);
        is_arena
            && (1..=MAX_ARENA_HEADS).contains(&reader.half(arena.wrapping_add(ARENA_HEADS_OFFSET)))
            && reader.word(count) != 0
    }
}

/// Finds the variables of a perl without threads by their symbols. If the executable has its own
/// copy of a variable, the address of the copy is used.
fn find_variables_by_name<M: Memory>(
    memory: M,
    object: LoadedObject,
    executable: LoadedObject,
) -> Vec<InterpreterVariable> {
    let find = |name: &'static str| {
        let symbol = format!("PL_{name}");
        let own = object.symbol(memory, &symbol)?;
        let copy = executable.symbol(memory, &symbol);
        Some(InterpreterVariable {
            name,
            at: copy.unwrap_or(own).address,
            size: own.size,
        })
    };
    variables().filter_map(find).collect()
}
