//! The largest holders of the parts of a program's memory that nobody recorded, in the best words
//! that there are.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use heapprof_heap::{
    BlockKind, BlockKinds, ChunkMarks, ChunkState, ChunkUse, ImageRegion, MallocHeap,
    PointerSource, ProcessImage, block_owners,
};
use heapprof_perl_snapshot::walk;
use heapprof_perl_values::{PerlValueAnalysis, perl_spelling};
use heapprof_process::{MappingKind, MeasuredMapping};
use heapprof_report::{PartHolder, PartKind};

use crate::memory_division::{AnonymousMemory, FreePlace, MemoryDivision};
use crate::python_pools::PythonPools;
use crate::target::{WalkTarget, WalkTargetKind};
use crate::words::{base_name, count_of, shown};

/// Maximum number of holders that a part has. What more there are is one sum.
const MAX_HOLDERS: usize = 1000;

/// What a walk of a heap says about malloc's blocks.
#[derive(Debug, Default)]
pub(crate) struct MallocFindings {
    /// The largest holders of blocks in use.
    pub(crate) holders: Vec<PartHolder>,
    /// Resident bytes of blocks that leaked.
    pub(crate) leaked: u64,
    /// Number of blocks in use.
    pub(crate) blocks: u64,
}

/// The owner of blocks: where the roots are that reach them first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum BlockOwner {
    /// A variable, by its name and its file.
    Variable(String, String),
    /// Other memory of a file.
    File(String),
    /// The stack or a register of a thread, by the thread's number.
    Thread(u32),
    /// Memory that is neither malloc's nor a file's. The flag says whether it has Python's pools.
    Elsewhere(bool),
}

impl BlockOwner {
    /// Returns the name of the owner, and the file that it is in.
    fn words(self) -> (String, String) {
        match self {
            // The tag says which of two ABIs of the standard library the variable has.
            Self::Variable(name, file) => (name.replace("[abi:cxx11]", ""), file),
            Self::File(file) => (file, String::new()),
            Self::Thread(tid) => (format!("reached from thread {tid}"), String::new()),
            Self::Elsewhere(true) => ("Python's objects".to_string(), String::new()),
            Self::Elsewhere(false) => ("memory outside malloc".to_string(), String::new()),
        }
    }
}

/// Finds the holders of malloc's blocks: the variables that lead to them, and what leaked, by size
/// and kind of the blocks that nothing points to, with what only these lead to. Each block counts
/// with its touched pages.
pub(crate) fn malloc_findings(
    target: &WalkTarget,
    image: &ProcessImage,
    heap: &MallocHeap,
    pools: &PythonPools,
) -> MallocFindings {
    let marks = ChunkMarks::new(image, heap);
    let mut kinds = BlockKinds::new(image, heap, |address| target.name(image, address));
    let mut numbers: BTreeMap<BlockOwner, u32> = BTreeMap::new();
    let owners = block_owners(image, heap, &marks, |root| {
        let owner = owner_of(target, image, pools, root);
        let next = numbers.len() as u32;
        *numbers.entry(owner).or_insert(next)
    });
    let mut by_owner = vec![0; numbers.len()];
    let mut leaked: BTreeMap<(BlockKind, u64), LeakedBlocks> = BTreeMap::new();
    let firsts = marks.firsts();
    let mut found = MallocFindings::default();
    for (block, chunk) in heap.chunks.iter().enumerate() {
        if !chunk.is_in_use() {
            continue;
        }
        found.blocks += 1;
        let bytes = image.present(chunk.bytes());
        let state = marks.states[block];
        if matches!(state, ChunkState::Leaked | ChunkState::Indirect) {
            found.leaked += bytes;
            let first = &heap.chunks[firsts[block] as usize];
            let kind = (kinds.classify(first), first.size);
            leaked.entry(kind).or_default().add(bytes, state);
        } else if let Some(owner) = owners[block] {
            by_owner[owner as usize] += bytes;
        }
    }
    let groups = leaked.into_iter().map(|((kind, size), blocks)| PartHolder {
        bytes: blocks.bytes,
        name: format!("leaked: {} of {size} B", kinds.name(kind)),
        extent: blocks.extent(),
        ..PartHolder::default()
    });
    found.holders.extend(groups);
    found
        .holders
        .extend(numbers.into_iter().map(|(owner, number)| {
            let (name, place) = owner.words();
            PartHolder {
                bytes: by_owner[number as usize],
                name,
                place,
                ..PartHolder::default()
            }
        }));
    sort(&mut found.holders);
    found
}

/// Leaked blocks of one kind and size, and the blocks that only these lead to.
#[derive(Clone, Copy, Debug, Default)]
struct LeakedBlocks {
    /// Number of blocks that nothing points to.
    heads: u64,
    /// Number of blocks that only leaked blocks point to.
    reached: u64,
    /// Resident bytes of both.
    bytes: u64,
}

impl LeakedBlocks {
    fn add(&mut self, bytes: u64, state: ChunkState) {
        match state {
            ChunkState::Indirect => self.reached += 1,
            _ => self.heads += 1,
        }
        self.bytes += bytes;
    }

    /// Returns the number of blocks, as `50 blocks, 100 below` if they lead to other blocks.
    fn extent(&self) -> String {
        let heads = count_of(self.heads, "block");
        match self.reached {
            0 => heads,
            reached => format!("{heads}, {reached} below"),
        }
    }
}

/// Returns the owner of the blocks that a root leads to.
fn owner_of(
    target: &WalkTarget,
    image: &ProcessImage,
    pools: &PythonPools,
    root: PointerSource,
) -> BlockOwner {
    let at = match root {
        PointerSource::Root(at) => at,
        PointerSource::Register(thread) => {
            let tid = image.threads.get(thread as usize);
            return BlockOwner::Thread(tid.map_or(0, |thread| thread.tid));
        }
        _ => return BlockOwner::Elsewhere(false),
    };
    let region = image.region(at);
    let range = region.map(ImageRegion::range).unwrap_or_default();
    let mut threads = image.threads.iter();
    if let Some(thread) = threads.find(|thread| range.contains(&thread.stack)) {
        return BlockOwner::Thread(thread.tid);
    }
    let path = region.map_or("", |region| region.name.as_str());
    let variable = target.variable(image, at).map(|(_, name)| name);
    // Variables without an initial value lie behind the mappings of their file.
    let of_file = image
        .place(at)
        .map(|(map, _)| String::from_utf8_lossy(&map.path));
    match (variable, path, of_file) {
        (Some(name), "", Some(file)) => BlockOwner::Variable(name, base_name(&file).to_string()),
        (Some(name), path, _) => BlockOwner::Variable(name, base_name(path).to_string()),
        (None, "", _) => BlockOwner::Elsewhere(pools.are_in(&range)),
        (None, path, _) => BlockOwner::File(base_name(path).to_string()),
    }
}

fn sort(holders: &mut Vec<PartHolder>) {
    holders.retain(|holder| holder.bytes > 0);
    holders.sort_by(|one, other| {
        let one_key = (Reverse(one.bytes), &one.name, &one.place);
        one_key.cmp(&(Reverse(other.bytes), &other.name, &other.place))
    });
    holders.truncate(MAX_HOLDERS);
}

/// Returns where malloc has its free memory: by arena if there are several, else by its lists.
pub(crate) fn free_holders(division: &MemoryDivision, heap: &MallocHeap) -> Vec<PartHolder> {
    let mut largest_holes: BTreeMap<u16, u64> = BTreeMap::new();
    for chunk in heap
        .chunks
        .iter()
        .filter(|chunk| chunk.kind == ChunkUse::Free)
    {
        let largest = largest_holes.entry(chunk.arena).or_default();
        *largest = chunk.size.max(*largest);
    }
    let holes = |arena: u16| match largest_holes.get(&arena) {
        Some(largest) => format!("holes of at most {}", shown(*largest)),
        None => String::new(),
    };
    let mut holders: Vec<PartHolder> = Vec::new();
    if heap.arenas.len() < 2 {
        holders.extend(
            division
                .free
                .iter()
                .map(|((arena, place), bytes)| PartHolder {
                    bytes: *bytes,
                    name: match place {
                        FreePlace::Bins => "between blocks in use".to_string(),
                        FreePlace::Caches => "lists of small blocks".to_string(),
                        FreePlace::Top => "at the end of the heap".to_string(),
                    },
                    extent: match place {
                        FreePlace::Bins => holes(*arena),
                        FreePlace::Caches | FreePlace::Top => String::new(),
                    },
                    ..PartHolder::default()
                }),
        );
    } else {
        let mut by_arena: BTreeMap<u16, u64> = BTreeMap::new();
        for ((arena, _), bytes) in &division.free {
            *by_arena.entry(*arena).or_default() += bytes;
        }
        holders.extend(by_arena.into_iter().map(|(number, bytes)| PartHolder {
            bytes,
            name: match heap.arenas.get(usize::from(number)) {
                Some(arena) if !arena.is_main => format!("arena {:#x}", arena.at),
                _ => "the main arena".to_string(),
            },
            extent: holes(number),
            ..PartHolder::default()
        }));
    }
    sort(&mut holders);
    holders
}

/// The variables of a Perl program that retain the most, and the number and bytes of all values.
#[derive(Debug, Default)]
pub(crate) struct PerlFindings {
    pub(crate) holders: Vec<PartHolder>,
    pub(crate) values: u64,
    pub(crate) bytes: u64,
}

impl PerlFindings {
    /// Returns the holders with at most `most` bytes each. The length of a value is what the
    /// program says, and may be anything.
    pub(crate) fn holders_within(&self, most: u64) -> Vec<PartHolder> {
        let within = |holder: &PartHolder| PartHolder {
            bytes: holder.bytes.min(most),
            ..holder.clone()
        };
        self.holders.iter().map(within).collect()
    }
}

/// Finds what Perl's variables retain; `None` if the program is no perl that can be read.
pub(crate) fn perl_findings(
    target: &WalkTarget,
    image: &ProcessImage,
    heap: Option<&MallocHeap>,
) -> Option<PerlFindings> {
    let walked = target.rights.acting(|| match &target.what {
        WalkTargetKind::Process(_, memory) => walk(image, memory, heap, None),
        WalkTargetKind::Core(_, core) => walk(image, core, heap, None),
    });
    let walked = walked.ok()?.ok()?;
    let found = PerlValueAnalysis::new(walked.values);
    let summary = found.summary();
    let holders = summary.holders.into_iter().take(MAX_HOLDERS);
    let holders = holders.map(|holder| PartHolder {
        bytes: holder.retained,
        name: perl_spelling(&holder.path),
        extent: match holder.objects {
            1 => String::new(),
            objects => count_of(objects, "variable"),
        },
        ..PartHolder::default()
    });
    Some(PerlFindings {
        holders: holders.collect(),
        values: summary.values.objects,
        bytes: summary.values.bytes,
    })
}

/// Returns the holders of `bytes` as holders of `part` bytes: each has its share of what is left if
/// that is less.
pub(crate) fn scaled_holders(
    mut holders: Vec<PartHolder>,
    bytes: u64,
    part: u64,
) -> Vec<PartHolder> {
    if part < bytes {
        for holder in &mut holders {
            let share = u128::from(holder.bytes) * u128::from(part) / u128::from(bytes);
            holder.bytes = u64::try_from(share).unwrap_or(part);
        }
    }
    holders
}

/// Returns the sizes of Python's small objects, the size with the most bytes first.
pub(crate) fn python_holders(pools: &PythonPools) -> Vec<PartHolder> {
    let by_size = pools.by_size().into_iter();
    let holder = |(size, objects): (u64, u64)| PartHolder {
        bytes: size * objects,
        name: format!("objects of at most {size} B"),
        extent: count_of(objects, "object"),
        ..PartHolder::default()
    };
    let mut holders: Vec<PartHolder> = by_size.map(holder).collect();
    sort(&mut holders);
    holders
}

/// Returns the named mappings of a part.
pub(crate) fn mapped_holders(division: &MemoryDivision, part: PartKind) -> Vec<PartHolder> {
    let named = division.named.iter().filter(|((of, _), _)| *of == part);
    let holder = |((_, name), (bytes, mappings)): (&(PartKind, String), &(u64, u64))| PartHolder {
        bytes: *bytes,
        name: match part {
            // A library is known by its name, a file by its path.
            PartKind::Code => base_name(name).to_string(),
            _ => name.clone(),
        },
        extent: match (part, mappings) {
            (PartKind::Code, _) | (_, 1) => String::new(),
            (PartKind::Stacks, mappings) => count_of(*mappings, "stack"),
            (_, mappings) => count_of(*mappings, "mapping"),
        },
        ..PartHolder::default()
    };
    let mut holders: Vec<PartHolder> = named.map(holder).collect();
    sort(&mut holders);
    holders
}

/// Returns who has the anonymous memory: the program's own name for it, or the file whose variables
/// point to it, with the variable.
pub(crate) fn anonymous_holders(
    division: &MemoryDivision,
    mappings: &[MeasuredMapping],
    target: &WalkTarget,
    image: &ProcessImage,
) -> Vec<PartHolder> {
    let pointers = pointers_from_variables(division, mappings, image);
    let mut holders: BTreeMap<(String, String), u64> = BTreeMap::new();
    let (mut unowned, mut unowned_bytes) = (0, 0);
    for (memory, found) in division.anonymous.iter().zip(pointers) {
        let key = match found {
            _ if !memory.name.is_empty() => (memory.name.clone(), String::new()),
            Some((file, at)) => {
                let variable = target.variable(image, at).map(|(_, name)| name);
                (
                    variable.unwrap_or_else(|| file.to_string()),
                    file.to_string(),
                )
            }
            None => {
                unowned += 1;
                unowned_bytes += memory.bytes;
                continue;
            }
        };
        *holders.entry(key).or_default() += memory.bytes;
    }
    let holder = |((name, file), bytes): ((String, String), u64)| PartHolder {
        bytes,
        place: if file == name { String::new() } else { file },
        name,
        ..PartHolder::default()
    };
    let mut holders: Vec<PartHolder> = holders.into_iter().map(holder).collect();
    if unowned > 0 {
        holders.push(PartHolder {
            bytes: unowned_bytes,
            name: "(no variable points to it)".to_string(),
            extent: count_of(unowned, "mapping"),
            ..PartHolder::default()
        });
    }
    sort(&mut holders);
    holders
}

/// The beginnings of the names of libraries that replace malloc.
const ALLOCATOR_LIBRARIES: [&str; 6] = [
    "libjemalloc",
    "libtcmalloc",
    "libmimalloc",
    "libsnmalloc",
    "librpmalloc",
    "libhoard",
];

/// Returns the library that replaces malloc, if the program has one of those that are known.
pub(crate) fn other_allocator(mappings: &[MeasuredMapping]) -> Option<&str> {
    let is_allocator = |name: &&str| {
        ALLOCATOR_LIBRARIES
            .iter()
            .any(|start| name.starts_with(start))
    };
    mappings
        .iter()
        .map(|mapping| base_name(&mapping.name))
        .find(is_allocator)
}

/// Returns for each anonymous mapping the file with the most variables that point into it, and the
/// address of the first of these variables.
fn pointers_from_variables<'a>(
    division: &MemoryDivision,
    mappings: &'a [MeasuredMapping],
    image: &ProcessImage,
) -> Vec<Option<(&'a str, u64)>> {
    let all: &[AnonymousMemory] = &division.anonymous;
    let mut counts: Vec<BTreeMap<&str, (u64, u64)>> = vec![BTreeMap::new(); all.len()];
    let is_code = |mapping: &&MeasuredMapping| {
        matches!(mapping.kind, MappingKind::Program | MappingKind::Library)
    };
    // Only what was copied can have pointers: a mapping may be far larger.
    for region in image.regions().iter().filter(|region| region.is_root()) {
        let next = mappings.partition_point(|mapping| mapping.range.end <= region.start);
        let Some(mapping) = mappings.get(next).filter(is_code) else {
            continue;
        };
        let end = region.range().end.min(mapping.range.end);
        for at in (region.start.next_multiple_of(8)..end).step_by(8) {
            let Some(word) = region.word(at) else {
                break;
            };
            let next = all.partition_point(|memory| memory.range.start <= word);
            let Some(found) = next
                .checked_sub(1)
                .filter(|&at| all[at].range.contains(&word))
            else {
                continue;
            };
            let (count, _) = counts[found]
                .entry(base_name(&mapping.name))
                .or_insert((0, at));
            *count += 1;
        }
    }
    let most = |files: BTreeMap<&'a str, (u64, u64)>| {
        let most = files
            .into_iter()
            .max_by_key(|(_, (count, at))| (*count, Reverse(*at)));
        most.map(|(file, (_, at))| (file, at))
    };
    counts.into_iter().map(most).collect()
}
