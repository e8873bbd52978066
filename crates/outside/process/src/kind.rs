//! Finds the purpose of each mapping: heap, stack, library … The kernel names some mappings. The
//! others are recognized by their addresses: glibc's arenas begin at multiples of 64 MiB, pages of
//! V8's heap at multiples of 256 KiB, and a thread's stack is where its stack pointer leads, or has
//! a guard page before it.

use std::ops::Range;

use crate::region::{NamedMapping, file_name, regions};
use crate::smaps::SmapsMapping;
use crate::usage::MemoryUsage;

/// The purpose of a mapping. [`MAPPING_KINDS`] explains each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MappingKind {
    /// The first part of malloc's memory (brk).
    Heap,
    /// An arena of glibc's malloc.
    Arena,
    /// Private memory that belongs to no file and has no other known purpose.
    Anonymous,
    /// The heap of V8, the JavaScript engine.
    V8Heap,
    /// The stack of the first thread.
    Stack,
    /// The stack of another thread.
    ThreadStack,
    /// The program's own file.
    Program,
    /// A file with code.
    Library,
    /// A file without code.
    File,
    /// Memory that several processes may write to.
    Shared,
    /// A mapping of `hugetlbfs`.
    Huge,
    /// A mapping that the kernel has made, such as the vdso.
    Kernel,
    /// heapprof's own memory or library.
    Own,
}

/// All kinds in the order of reports, with their names and explanations.
pub const MAPPING_KINDS: &[(MappingKind, &str, &str)] = &[
    (
        MappingKind::Heap,
        "heap",
        "The main part of malloc's memory, which grows upwards (brk).",
    ),
    (
        MappingKind::Arena,
        "malloc arenas",
        "Further arenas of glibc's malloc: each thread may have one, in pieces of 64 MiB.",
    ),
    (
        MappingKind::Anonymous,
        "anonymous",
        "Private memory that is not from a file: malloc's large blocks, other allocators, \
         interpreters.",
    ),
    (
        MappingKind::V8Heap,
        "V8's heap",
        "Objects and code of JavaScript, in pages of 256 KiB that V8 maps itself.",
    ),
    (
        MappingKind::Stack,
        "stack",
        "The stack of the first thread.",
    ),
    (
        MappingKind::ThreadStack,
        "thread stacks",
        "Stacks of other threads, recognized by their stack pointers or guard pages.",
    ),
    (
        MappingKind::Program,
        "program",
        "The program's file: code, constants and variables.",
    ),
    (
        MappingKind::Library,
        "libraries",
        "Files with code: shared libraries and modules, with their variables.",
    ),
    (
        MappingKind::File,
        "files",
        "Files without code that are mapped: data, fonts, databases, locales.",
    ),
    (
        MappingKind::Shared,
        "shared memory",
        "Memory that several processes may write to: shm, memfd, System V, tmpfs.",
    ),
    (
        MappingKind::Huge,
        "huge pages",
        "hugetlbfs mappings. They are in neither rss nor pss.",
    ),
    (
        MappingKind::Kernel,
        "kernel's",
        "Mappings that the kernel has added, such as vdso.",
    ),
    (
        MappingKind::Own,
        "heapprof's own",
        "heapprof's tables and its library, which would not be there without a recording.",
    ),
];

/// glibc's HEAP_MAX_SIZE: each part of an arena begins at a multiple of this number of bytes.
const HEAP_MAX_SIZE: u64 = 64 << 20;
/// Each page of V8's heap begins at a multiple of this number of bytes (`kPageSizeBits` in
/// src/base/build_config.h of V8).
const V8_PAGE_SIZE: u64 = 256 << 10;
/// The beginnings of the names of programs and libraries that have V8 inside.
const V8_FILES: [&str; 8] = [
    "node",
    "nodejs",
    "libnode.so",
    "libv8.so",
    "d8",
    "chrome",
    "chromium",
    "electron",
];
/// The addresses at which Go's runtime puts its heap on x86-64 and aarch64 (`mallocinit` in
/// runtime/malloc.go).
const GO_ARENAS: std::ops::Range<u64> = 0xc0_0000_0000..0x100_0000_0000;
/// Largest size in bytes of a mapping that is taken for a stack because of its guard alone.
const MAX_STACK_SIZE: u64 = 32 << 20;
/// Largest size of a stack's guard mapping in bytes.
const MAX_GUARD_SIZE: u64 = 64 << 10;

impl MappingKind {
    /// Returns the name of the kind in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// Returns the meaning of the kind, in a sentence.
    #[must_use]
    pub fn meaning(self) -> &'static str {
        self.row().2
    }

    fn row(self) -> &'static (Self, &'static str, &'static str) {
        // The rows are in the order of the enum.
        &MAPPING_KINDS[self as usize]
    }
}

/// Facts about a process that help to recognize the purpose of its mappings.
#[derive(Clone, Debug, Default)]
pub struct MappingHints {
    /// Path of the program's file, if it is known.
    pub program: Option<String>,
    /// Stack pointers of all threads but the first, as far as they are known.
    pub stack_pointers: Vec<u64>,
    /// Number of threads.
    pub threads: usize,
}

/// A mapping of a process, with its purpose and its memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeasuredMapping {
    /// The addresses of the mapping.
    pub range: Range<u64>,
    /// The purpose of the mapping.
    pub kind: MappingKind,
    /// The name of the mapping: the mapped file, or the kernel's name; empty if it has none.
    pub name: String,
    /// Whether the mapping itself belongs to no file. It may have the name of the file whose
    /// variables it continues, and other memory that the kernel has joined with these.
    pub is_anonymous: bool,
    /// Number of mappings: 1, or more if this stands for several of one kind and name.
    pub mappings: u64,
    /// The memory of the mapping.
    pub usage: MemoryUsage,
}

/// Finds the purpose of each mapping. The mappings are in order of their addresses.
#[must_use]
pub fn measured_mappings(areas: &[SmapsMapping<'_>], hints: &MappingHints) -> Vec<MeasuredMapping> {
    let regions: Vec<_> = regions(areas).collect();
    let measured = regions.iter().zip(kinds(&regions, hints));
    let measured = measured.map(|(region, kind)| MeasuredMapping {
        range: region.area.start..region.area.end,
        kind,
        name: region.name.to_string(),
        is_anonymous: region.area.name.is_empty(),
        mappings: 1,
        usage: region.area.usage,
    });
    measured.collect()
}

/// Returns the kind of each mapping, in the order of the mappings.
fn kinds(regions: &[NamedMapping<'_>], around: &MappingHints) -> Vec<MappingKind> {
    let code: std::collections::HashSet<&str> = regions
        .iter()
        .filter(|region| region.area.rights.contains('x') && region.name.starts_with('/'))
        .map(|region| region.name)
        .collect();
    let one = |i: usize| {
        let region = &regions[i];
        if region.is_own {
            return MappingKind::Own;
        }
        if region.area.has_flag("ht") {
            return MappingKind::Huge;
        }
        if let Some(kind) = kind_by_name(region, around, &code) {
            return kind;
        }
        let is_writable = region.area.rights.starts_with("rw");
        let range = region.area.start..region.area.end;
        let pointers = &around.stack_pointers;
        let has_pointer = pointers.iter().any(|pointer| range.contains(pointer))
            // Go has the stacks of its threads in its heap.
            && !GO_ARENAS.contains(&range.start);
        let is_like_stack =
            || range.end - range.start <= MAX_STACK_SIZE && is_behind_guard(regions, i);
        if is_writable && (has_pointer || around.threads > 1 && is_like_stack()) {
            return MappingKind::ThreadStack;
        }
        MappingKind::Anonymous
    };
    let mut kinds: Vec<MappingKind> = (0..regions.len()).map(one).collect();
    let has_v8 = code.iter().any(|path| is_v8_file(path));
    // Addresses that are reserved for a kind are of that kind, too.
    for i in 0..regions.len() {
        if kinds[i] == MappingKind::Anonymous
            && let Some(count) = count_arena_mappings(regions, i)
        {
            kinds[i..i + count].fill(MappingKind::Arena);
        }
        if has_v8
            && kinds[i] == MappingKind::Anonymous
            && regions[i].area.start.is_multiple_of(V8_PAGE_SIZE)
        {
            kinds[i] = MappingKind::V8Heap;
        }
        if kinds[i] == MappingKind::ThreadStack && is_behind_guard(regions, i) {
            kinds[i - 1] = MappingKind::ThreadStack;
        }
    }
    kinds
}

/// Returns the kind that a mapping's name implies. Returns `None` for memory that belongs to no
/// file.
fn kind_by_name(
    region: &NamedMapping<'_>,
    around: &MappingHints,
    code: &std::collections::HashSet<&str>,
) -> Option<MappingKind> {
    const SHARED_PREFIXES: [&str; 5] =
        ["/dev/shm/", "/SYSV", "/memfd:", "/dev/zero", "[anon_shmem:"];
    let name = region.name;
    if name.starts_with("/anon_hugepage") {
        return Some(MappingKind::Huge);
    }
    if SHARED_PREFIXES.iter().any(|begin| name.starts_with(begin)) {
        return Some(MappingKind::Shared);
    }
    if name.starts_with('/') {
        let file = name.strip_suffix(" (deleted)").unwrap_or(name);
        return Some(match () {
            () if around.program.as_deref() == Some(file) => MappingKind::Program,
            () if code.contains(name) => MappingKind::Library,
            () => MappingKind::File,
        });
    }
    match name {
        "[heap]" => Some(MappingKind::Heap),
        "[stack]" => Some(MappingKind::Stack),
        // glibc's own names (its tunable decorate_maps).
        _ if name.starts_with("[anon: glibc: malloc arena") => Some(MappingKind::Arena),
        _ if name.starts_with("[anon: glibc: pthread stack") => Some(MappingKind::ThreadStack),
        _ if name.starts_with("[stack:") => Some(MappingKind::ThreadStack),
        _ if name.is_empty() || name.starts_with("[anon:") => None,
        _ if name.starts_with('[') => Some(MappingKind::Kernel),
        // Another name that says nothing, such as anon_inode:[perf_event].
        _ => Some(MappingKind::File),
    }
}

/// Whether a file has V8 inside, by its name, which a version may follow.
fn is_v8_file(path: &str) -> bool {
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    let name = path.rsplit('/').next().unwrap_or(path);
    let rest = V8_FILES.iter().filter_map(|file| name.strip_prefix(file));
    let is_version = |rest: &str| rest.chars().all(|c| c.is_ascii_digit() || ".-".contains(c));
    rest.into_iter().any(is_version)
}

fn is_unnamed(area: &SmapsMapping<'_>) -> bool {
    file_name(area).is_empty() && area.rights.ends_with('p')
}

/// Returns the number of mappings in the arena that begins with mapping `i`. An arena is 64 MiB of
/// addresses without a name. Returns `None` if no arena begins there.
fn count_arena_mappings(regions: &[NamedMapping<'_>], i: usize) -> Option<usize> {
    let first = regions[i].area;
    let start = first.start;
    if !start.is_multiple_of(HEAP_MAX_SIZE) || !first.rights.starts_with("rw") {
        return None;
    }
    let mut end = start;
    for (count, region) in regions[i..].iter().enumerate() {
        if end == start + HEAP_MAX_SIZE {
            return Some(count);
        }
        if region.area.start != end
            || !is_unnamed(region.area)
            || region.area.end > start + HEAP_MAX_SIZE
        {
            return None;
        }
        end = region.area.end;
    }
    (end == start + HEAP_MAX_SIZE).then_some(regions.len() - i)
}

/// Whether the mapping before mapping `i` is a guard, as before a thread's stack: small, adjacent
/// and without access rights.
fn is_behind_guard(regions: &[NamedMapping<'_>], i: usize) -> bool {
    let Some(guard) = i.checked_sub(1).map(|i| regions[i].area) else {
        return false;
    };
    guard.end == regions[i].area.start
        && guard.rights.starts_with("---")
        && is_unnamed(guard)
        && guard.end - guard.start <= MAX_GUARD_SIZE
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
1000-2000 r-xp 00000000 08:01 1 /bin/program
2000-3000 rw-p 00001000 08:01 1 /bin/program
3000-4000 rw-p 00000000 00:00 0
5000-6000 rw-p 00000000 00:00 0 [heap]
4000000-4021000 rw-p 00000000 00:00 0
4021000-8000000 ---p 00000000 00:00 0
8000000-8021000 rw-p 00000000 00:00 0
8021000-8022000 ---p 00000000 00:00 0
8022000-8100000 rw-p 00000000 00:00 0
9000000-9100000 rw-p 00000000 00:00 0
9200000-9300000 rw-p 00000000 00:00 0
9300000-9400000 r-xp 00000000 08:01 2 /lib/a.so (deleted)
9400000-9500000 rw-p 00000000 08:01 2 /lib/a.so (deleted)
9500000-9600000 r--p 00000000 08:01 3 /usr/share/data
9600000-9700000 rw-s 00000000 00:01 4 /dev/shm/x
9700000-9800000 rw-s 00000000 00:01 5 /memfd:y (deleted)
9800000-9900000 rw-s 00000000 00:01 5 /memfd:heapprof (deleted)
9900000-9a00000 rw-p 00000000 00:0f 6 /mnt/huge/z
VmFlags: rd wr mr mw me ht
9a00000-9b00000 rw-p 00000000 00:00 0 [anon:name]
9b00000-9c00000 rw-p 00000000 00:00 0 [stack]
9c00000-9d00000 r-xp 00000000 00:00 0 [vdso]
";

    #[test]
    fn mappings_have_kinds() {
        let areas = crate::areas(SMAPS);
        let regions: Vec<_> = regions(&areas).collect();
        let mut around = MappingHints {
            program: Some("/bin/program".to_string()),
            stack_pointers: vec![0x0900_1000],
            threads: 3,
        };
        let expected = [
            MappingKind::Program,
            MappingKind::Program,
            MappingKind::Program,
            MappingKind::Heap,
            MappingKind::Arena,
            MappingKind::Arena,
            // The mapping does not reach to the next multiple of 64 MiB.
            MappingKind::Anonymous,
            MappingKind::ThreadStack,
            MappingKind::ThreadStack,
            MappingKind::ThreadStack,
            MappingKind::Anonymous,
            MappingKind::Library,
            MappingKind::Library,
            MappingKind::File,
            MappingKind::Shared,
            MappingKind::Shared,
            MappingKind::Own,
            MappingKind::Huge,
            MappingKind::Anonymous,
            MappingKind::Stack,
            MappingKind::Kernel,
        ];
        assert_eq!(kinds(&regions, &around), expected);
        // One thread has one stack, whatever a guard page is for.
        around.threads = 1;
        assert_eq!(kinds(&regions, &around)[8], MappingKind::Anonymous);
    }

    #[test]
    fn the_heap_of_v8_is_known_by_its_program() {
        let smaps = |program: &str| {
            format!(
                "1000-2000 r-xp 00000000 08:01 1 {program}\n\
                 100000-140000 rw-p 00000000 00:00 0\n\
                 150000-190000 rw-p 00000000 00:00 0\n"
            )
        };
        for (program, expected) in [
            ("/usr/bin/node", MappingKind::V8Heap),
            ("/usr/lib/libnode.so.108 (deleted)", MappingKind::V8Heap),
            ("/usr/bin/node-server", MappingKind::Anonymous),
        ] {
            let smaps = smaps(program);
            let areas = crate::areas(&smaps);
            let regions: Vec<_> = regions(&areas).collect();
            let found = kinds(&regions, &MappingHints::default());
            assert_eq!(found[1..], [expected, MappingKind::Anonymous], "{program}");
        }
    }

    #[test]
    fn each_kind_has_a_row() {
        for (kind, name, meaning) in MAPPING_KINDS {
            assert_eq!((kind.name(), kind.meaning()), (*name, *meaning));
        }
        assert_eq!(MAPPING_KINDS.len(), MappingKind::Own as usize + 1);
    }
}
