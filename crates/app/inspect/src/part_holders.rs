//! The largest holders of the parts of a program's memory that nobody recorded, in the best words
//! that there are.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use heapprof_heap::{BlockKinds, ChunkMarks, ChunkState, HeapSummary, MallocHeap, ProcessImage};
use heapprof_perl_snapshot::walk;
use heapprof_perl_values::PerlValueAnalysis;
use heapprof_process::{MappingKind, MeasuredMapping};
use heapprof_report::{HeapDescriber, PartHolder, PartKind};

use crate::memory_division::{AnonymousMemory, FreePlace, MemoryDivision};
use crate::python_pools::PythonPools;
use crate::target::{WalkTarget, WalkTargetKind};
use crate::words::{base_name, count_of, shown};

/// Maximum number of holders that a part has.
const MAX_HOLDERS: usize = 100;
/// The share of malloc's blocks, as a divisor, from which leaked blocks are holders.
const LEAK_DIVISOR: u64 = 100;

/// What a description says of memory of which nothing else is known.
const UNNAMED_MEMORY: &str = "memory of no file";

/// What a walk of a heap says about malloc's blocks.
#[derive(Debug, Default)]
pub(crate) struct MallocFindings {
    /// The sums of the heap.
    pub(crate) summary: HeapSummary,
    /// The largest holders of blocks in use.
    pub(crate) holders: Vec<PartHolder>,
    /// Bytes of blocks that leaked.
    pub(crate) leaked: u64,
    /// Number of blocks in use.
    pub(crate) blocks: u64,
}

/// Finds the holders of malloc's blocks: the variables that retain them, and what leaked, by size
/// and kind.
pub(crate) fn malloc_findings(
    target: &WalkTarget,
    image: &ProcessImage,
    heap: &MallocHeap,
    pools: &PythonPools,
) -> MallocFindings {
    let marks = ChunkMarks::new(image, heap);
    let mut words = HeapDescriber {
        image,
        heap,
        marks: &marks,
        kinds: BlockKinds::new(image, heap, |address| target.name(image, address)),
        variable: Box::new(|address| target.variable(image, address)),
    };
    let summary = HeapSummary::new(image, heap, &marks, &mut words.kinds);
    let in_use = summary.states.iter().enumerate();
    let in_use = in_use.filter(|(state, _)| *state != ChunkState::Free as usize);
    let (blocks, bytes) = in_use.fold((0, 0), |(blocks, bytes), (_, sum)| {
        (blocks + sum.blocks, bytes + sum.bytes)
    });
    let state = |state: ChunkState| summary.states[state as usize].bytes;
    let leaked = state(ChunkState::Leaked) + state(ChunkState::Indirect);
    let mut holders = Vec::new();
    if leaked * LEAK_DIVISOR > bytes {
        let is_leaked = |state| matches!(state, ChunkState::Leaked | ChunkState::Indirect);
        let groups = summary.groups.iter().filter(|group| is_leaked(group.state));
        holders.extend(groups.take(MAX_HOLDERS).map(|group| PartHolder {
            bytes: group.sum.bytes,
            name: format!("leaked: {} of {} B", group.what, group.size),
            detail: count_of(group.sum.blocks, "block"),
            growth: None,
        }));
    }
    let (retained, _) = words.most_resident();
    let mut elsewhere = [0, 0];
    let mut by_variable: BTreeMap<(String, String), u64> = BTreeMap::new();
    let variables = retained
        .into_iter()
        .filter(|row| row.root.is_empty() && row.size == 0);
    for row in variables {
        if row.what == UNNAMED_MEMORY {
            elsewhere[usize::from(pools.contains_any(image, row.at))] += row.retained;
            continue;
        }
        let (name, file) = row.what.rsplit_once(" in ").unwrap_or((&row.what, ""));
        let is_variable = target.variable(image, row.at).is_some();
        let of_file = image
            .place(row.at)
            .filter(|_| is_variable && file.is_empty());
        let of_file = of_file.map(|(map, _)| String::from_utf8_lossy(&map.path).into_owned());
        let file = of_file.as_deref().unwrap_or(file);
        let name = match name.starts_with('/') {
            // The memory of a file is no variable of it.
            true => base_name(name).to_string(),
            false => name.replace("[abi:cxx11]", ""),
        };
        let key = (name, base_name(file).to_string());
        *by_variable.entry(key).or_default() += row.retained;
    }
    holders.extend(
        by_variable
            .into_iter()
            .map(|((name, detail), bytes)| PartHolder {
                bytes,
                name,
                detail,
                growth: None,
            }),
    );
    let elsewhere = ["what is mapped elsewhere", "Python's objects"]
        .iter()
        .zip(elsewhere);
    holders.extend(
        elsewhere
            .filter(|(_, bytes)| *bytes > 0)
            .map(|(name, bytes)| PartHolder {
                bytes,
                name: (*name).to_string(),
                ..PartHolder::default()
            }),
    );
    sort(&mut holders);
    MallocFindings {
        summary,
        holders,
        leaked,
        blocks,
    }
}

fn sort(holders: &mut Vec<PartHolder>) {
    holders.sort_by(|one, other| {
        (Reverse(one.bytes), &one.name, &one.detail).cmp(&(
            Reverse(other.bytes),
            &other.name,
            &other.detail,
        ))
    });
    holders.truncate(MAX_HOLDERS);
}

/// Returns where malloc has its free memory: by arena if there are several, else by its lists.
pub(crate) fn free_holders(division: &MemoryDivision, summary: &HeapSummary) -> Vec<PartHolder> {
    let arenas = || summary.arenas.iter().filter(|arena| arena.at != 0);
    let holes = |largest: u64| match largest {
        0 => String::new(),
        largest => format!("holes of at most {}", shown(largest)),
    };
    let mut holders: Vec<PartHolder> = match arenas().count() {
        0 | 1 => {
            let largest = arenas().map(|arena| arena.largest_free).max().unwrap_or(0);
            let places = division.free.iter().map(|((_, place), bytes)| PartHolder {
                bytes: *bytes,
                name: match place {
                    FreePlace::Bins => "between blocks in use".to_string(),
                    FreePlace::Caches => "lists of small blocks".to_string(),
                    FreePlace::Top => "at the end of the heap".to_string(),
                },
                detail: match place {
                    FreePlace::Bins => holes(largest),
                    FreePlace::Caches | FreePlace::Top => String::new(),
                },
                growth: None,
            });
            places.collect()
        }
        _ => {
            let of_arena = (0..).zip(arenas()).map(|(number, arena)| {
                let free = division.free.iter().filter(|((of, _), _)| *of == number);
                PartHolder {
                    bytes: free.map(|(_, bytes)| bytes).sum(),
                    name: match number {
                        0 => "the main arena".to_string(),
                        _ => format!("arena {:#x}", arena.at),
                    },
                    detail: holes(arena.largest_free),
                    growth: None,
                }
            });
            of_arena.collect()
        }
    };
    holders.retain(|holder| holder.bytes > 0);
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
        name: variable_name(&holder.path),
        detail: match holder.objects {
            1 => String::new(),
            objects => count_of(objects, "variable"),
        },
        growth: None,
    });
    Some(PerlFindings {
        holders: holders.collect(),
        values: summary.values.objects,
        bytes: summary.values.bytes,
    })
}

/// Returns a path to a Perl variable as Perl code spells the variable: `main::;Shop::;%cache` is
/// `%Shop::cache`. A path that begins elsewhere stays as it is.
fn variable_name(path: &str) -> String {
    let steps: Vec<&str> = path.split(';').collect();
    if let ["(main program)", rest @ ..] = &steps[..]
        && rest.first().is_some_and(|step| step.starts_with("my "))
    {
        return rest.concat();
    }
    let packages = steps.iter().take_while(|step| step.ends_with("::")).count();
    let Some(variable) = steps.get(packages).filter(|_| packages > 0) else {
        return path.to_string();
    };
    let sigil = variable
        .chars()
        .next()
        .filter(|sigil| "$@%&*".contains(*sigil));
    let Some(sigil) = sigil else {
        return path.to_string();
    };
    let package = match &steps[..packages] {
        ["main::"] => "main::".to_string(),
        ["main::", rest @ ..] => rest.concat(),
        all => all.concat(),
    };
    let name = &variable[sigil.len_utf8()..];
    let rest = steps[packages + 1..]
        .iter()
        .map(|step| match step.starts_with("my ") {
            true => format!(" {step}"),
            false => (*step).to_string(),
        });
    format!("{sigil}{package}{name}{}", rest.collect::<String>())
}

/// Returns the sizes of Python's small objects, the size with the most bytes first.
pub(crate) fn python_holders(pools: &PythonPools) -> Vec<PartHolder> {
    let by_size = pools.by_size().into_iter();
    let holder = |(size, objects): (u64, u64)| PartHolder {
        bytes: size * objects,
        name: format!("objects of at most {size} B"),
        detail: count_of(objects, "object"),
        growth: None,
    };
    let mut holders: Vec<PartHolder> = by_size.map(holder).collect();
    sort(&mut holders);
    holders
}

/// Returns the named mappings of a part.
pub(crate) fn mapped_holders(division: &MemoryDivision, part: PartKind) -> Vec<PartHolder> {
    let named = division.named.iter().filter(|((of, _), _)| *of == part);
    let holder =
        |((_, name), (bytes, mappings)): (&(PartKind, String), &(u64, usize))| PartHolder {
            bytes: *bytes,
            name: match part {
                // A library is known by its name, a file by its path.
                PartKind::Code => base_name(name).to_string(),
                _ => name.clone(),
            },
            detail: match (part, mappings) {
                (PartKind::Code, _) | (_, 1) => String::new(),
                (_, mappings) => count_of(*mappings as u64, "mapping"),
            },
            growth: None,
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
    let holder = |((name, detail), bytes): ((String, String), u64)| PartHolder {
        bytes,
        detail: if detail == name {
            String::new()
        } else {
            detail
        },
        name,
        growth: None,
    };
    let mut holders: Vec<PartHolder> = holders.into_iter().map(holder).collect();
    if unowned > 0 {
        holders.push(PartHolder {
            bytes: unowned_bytes,
            name: "no variable leads there".to_string(),
            detail: count_of(unowned, "mapping"),
            growth: None,
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
    for mapping in mappings.iter().filter(is_code) {
        for at in mapping.range.clone().step_by(8) {
            let Some(region) = image.region(at).filter(|region| region.is_root()) else {
                continue;
            };
            let Some(word) = region.word(at) else {
                continue;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn perl_variables_are_spelled_as_in_perl() {
        for (path, expected) in [
            ("main::;@rows", "@main::rows"),
            ("main::;Shop::;Order::;%cache", "%Shop::Order::cache"),
            ("main::;Shop::;%cache;{key}", "%Shop::cache{key}"),
            ("(main program);my $x", "my $x"),
            ("main::;&work;my @list", "&main::work my @list"),
            ("(running);(temporary)", "(running);(temporary)"),
            ("", ""),
        ] {
            assert_eq!(variable_name(path), expected);
        }
    }
}
