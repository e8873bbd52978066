//! Composes the answer to "where is the memory of this program?" from all instruments. The program
//! is held once: the kernel's figures and the copy of its memory are of one moment.

use std::fmt;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use heapprof_analysis::QuestionSource;
use heapprof_heap::{
    HeapWalkError, ImageRegion, MallocHeap, ProcessImage, is_fragmented, trimmable_bytes,
};
use heapprof_live::CoreLedger;
use heapprof_process::{
    Cgroup, MappingHints, MappingKind, MeasuredMapping, MemoryBreakdown, MemoryTexts, MemoryUsage,
    ProcessIdentity, SmapsMapping, StatusCounters, explain, measured_mappings,
};
use heapprof_profile::Profile;
use heapprof_recorder::outside::{open_core, read_core};
use heapprof_recorder::rights::is_root;
use heapprof_report::{
    AnswerPart, AnswerRecording, AnswerTotal, MemoryAnswer, PartHolder, PartKind, unwalked_parts,
};

use crate::memory_division::{AllocatorView, MemoryDivision};
use crate::named_process::title_of;
use crate::part_holders::{
    anonymous_holders, free_holders, malloc_findings, mapped_holders, other_allocator,
    perl_findings, python_holders, scaled_holders,
};
use crate::python_pools::PythonPools;
use crate::recorded_functions::RecordedFunctions;
use crate::target::{ProcessHold, WalkTarget, WalkTargetKind};
use crate::words::{V8_DETAIL, count_of, shown};

/// Why a process can't be looked into.
#[derive(Debug)]
pub enum UnseenMemory {
    /// The kernel does not let this user look into its memory.
    NotAllowed,
    /// The copy of its memory would need most of the memory that is free.
    TooLarge {
        /// Bytes that would be copied.
        copied: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// Another reason.
    Other(HeapWalkError),
}

/// An answer, and why it has less than it could have.
#[derive(Debug)]
pub struct ProcessAnswer {
    /// The answer.
    pub answer: MemoryAnswer,
    /// The moment of the answer.
    pub moment: Instant,
    /// What tells the program that the process runs from one that it becomes later: when the
    /// process began, and where its stack begins.
    pub program: Option<(u64, u64)>,
    /// Why the process could not be looked into, if it could not.
    pub unseen: Option<UnseenMemory>,
}

/// Answers where the memory of a process is. `profile` is what a recording knows of it.
///
/// # Errors
/// The process may be gone, or have no memory of its own.
pub fn process_answer(pid: u32, profile: Option<Profile>) -> io::Result<ProcessAnswer> {
    let mut answer = MemoryAnswer {
        name: title_of(pid),
        pid: Some(pid),
        cgroup: Cgroup::from_pid(pid).filter(|cgroup| cgroup.limit.is_some()),
        ..MemoryAnswer::default()
    };
    let source = profile.map(|profile| QuestionSource::new(format!("pid:{pid}"), profile));
    let functions = recorded_functions(source, &mut answer);
    let opened = open(pid);
    let moment = Instant::now();
    let unseen = match opened {
        Ok((target, image, hold, breakdown)) => {
            let breakdown = breakdown?;
            answer.hold = Some(hold.time);
            add_figures(&mut answer, &breakdown);
            let seen = SeenMemory {
                target: &target,
                image: &image,
                mappings: &breakdown.regions,
            };
            seen.add_parts(&mut answer, functions);
            None
        }
        Err(unseen) => {
            match explain(pid) {
                Ok(breakdown) => {
                    add_figures(&mut answer, &breakdown);
                    let division = MemoryDivision::new(&breakdown.regions, None);
                    let mut holders = |part| mapped_holders(&division, part);
                    add_divided(&mut answer, &division, &mut holders);
                }
                Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                    add_counters(&mut answer, &StatusCounters::from_pid(pid)?);
                }
                Err(error) => return Err(error),
            }
            add_functions(&mut answer, functions);
            Some(unseen)
        }
    };
    let identity = ProcessIdentity::from_pid(pid).ok();
    Ok(ProcessAnswer {
        answer,
        moment,
        program: identity.map(|found| (found.began, found.stack)),
        unseen,
    })
}

impl fmt::Display for UnseenMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAllowed if is_root() => {
                let why = heapprof_process::refused_to_root().trim_start_matches(": ");
                write!(f, "the kernel does not allow it, because {why}")
            }
            Self::NotAllowed => f.write_str(
                "the kernel does not allow it; run heapprof as its user or as root (where \
                 kernel.yama.ptrace_scope is not 0, as root)",
            ),
            Self::TooLarge { copied, free } => write!(
                f,
                "a copy of {} does not fit into the {} that are free",
                shown(*copied),
                shown(*free)
            ),
            Self::Other(error) => error.fmt(f),
        }
    }
}

/// Answers where the memory of a dead program is, from its core file alone. `program` is the path
/// where the program is now.
///
/// # Errors
/// The file may be no core file, or one that can't be read.
pub fn core_answer(path: &Path, program: Option<&Path>) -> Result<MemoryAnswer, HeapWalkError> {
    let (target, image) = WalkTarget::from_core(path, program)?;
    let mut answer = MemoryAnswer {
        name: path.display().to_string(),
        basis: AnswerTotal::InCoreFile,
        ..MemoryAnswer::default()
    };
    let source = match open_core(path).map(|(file, _)| CoreLedger::open(file)) {
        Ok(Ok(_)) => match read_core(path) {
            Ok(profile) => Some(QuestionSource::new(answer.name.clone(), profile)),
            Err(error) => {
                let note = format!("what was recorded cannot be read: {error:#}");
                answer.notes.push(note);
                None
            }
        },
        // Nothing was recorded.
        _ => None,
    };
    let functions = recorded_functions(source, &mut answer);
    let outlines = mapping_outlines(&image);
    let image = image.without_zero_pages();
    let mappings = mappings_of_core(&outlines, &image);
    answer.total = mappings.iter().map(|mapping| mapping.usage.rss).sum();
    let seen = SeenMemory {
        target: &target,
        image: &image,
        mappings: &mappings,
    };
    seen.add_parts(&mut answer, functions);
    Ok(answer)
}

/// Returns the functions of a recording. If they can't be found, the answer gets a note.
fn recorded_functions(
    source: Option<QuestionSource>,
    answer: &mut MemoryAnswer,
) -> Option<RecordedFunctions> {
    match RecordedFunctions::new(source?, Some(heapprof_profile::IN_USE)) {
        Ok(functions) => Some(functions),
        Err(error) => {
            let note = format!("what is recorded cannot be read: {error:#}");
            answer.notes.push(note);
            None
        }
    }
}

type OpenedProcess = (
    WalkTarget,
    ProcessImage,
    ProcessHold,
    io::Result<MemoryBreakdown>,
);

/// Copies a process's memory, and reads the kernel's figures in the same moment.
fn open(pid: u32) -> Result<OpenedProcess, UnseenMemory> {
    let copied = copied_bytes(pid);
    let free = free_memory();
    // The lists of blocks and pointers may need as much again, or more if the blocks are small.
    if copied.saturating_mul(2) > free {
        return Err(UnseenMemory::TooLarge { copied, free });
    }
    let opened = WalkTarget::from_process_with(pid, || MemoryTexts::read(pid));
    let (target, image, hold, texts) = opened.map_err(|error| match error {
        HeapWalkError::NotAllowed => UnseenMemory::NotAllowed,
        error => UnseenMemory::Other(error),
    })?;
    Ok((target, image, hold, texts.map(|texts| texts.divide())))
}

/// Returns the number of bytes that a copy of a process's memory has, or a little more.
fn copied_bytes(pid: u32) -> u64 {
    let counters = StatusCounters::from_pid(pid).ok();
    let of = |name| counters.as_ref().and_then(|of| of.get(name)).unwrap_or(0);
    of("RssAnon") + of("RssShmem") + of("VmSwap")
}

/// Returns the bytes that heapprof can allocate before the machine swaps, or before its own control
/// group reaches its limit.
fn free_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let free = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    let free = free.and_then(|free| free.split_whitespace().next()?.parse::<u64>().ok());
    let of_group = Cgroup::from_pid(std::process::id())
        .and_then(|cgroup| Some(cgroup.limit?.saturating_sub(cgroup.anonymous?)));
    let of_machine = free.map_or(u64::MAX, |free| free << 10);
    of_machine.min(of_group.unwrap_or(u64::MAX))
}

fn add_figures(answer: &mut MemoryAnswer, breakdown: &MemoryBreakdown) {
    let total = &breakdown.total;
    answer.total = total.rss;
    answer.swapped = total.swap;
    answer.shared = total.shared_clean + total.shared_dirty;
    // Libraries are shared, too, but clean. Files may be mapped for several processes.
    let is_private = |mapping: &&MeasuredMapping| {
        !matches!(
            mapping.kind,
            MappingKind::Shared | MappingKind::Huge | MappingKind::File | MappingKind::Own
        )
    };
    let private = breakdown.regions.iter().filter(is_private);
    answer.shared_by_fork = private.map(|mapping| mapping.usage.shared_dirty).sum();
    answer.peak = breakdown.counters.get("VmHWM");
    answer.page_tables = breakdown.counters.get("VmPTE").unwrap_or(0);
    answer.hugetlb = total.hugetlb;
    if !breakdown.is_as_kernel_sums {
        let other = "the total is the sum of its mappings: the kernel has no smaps_rollup, or the \
                     process changed in the meantime";
        answer.notes.push(other.to_string());
    }
}

/// Adds the parts that the kernel tells everybody.
fn add_counters(answer: &mut MemoryAnswer, counters: &StatusCounters) {
    let of = |name| counters.get(name).unwrap_or(0);
    answer.total = of("VmRSS");
    answer.peak = counters.get("VmHWM");
    answer.swapped = of("VmSwap");
    answer.page_tables = of("VmPTE");
    let parts = [
        (
            PartKind::UnseenPrivate,
            of("RssAnon"),
            "malloc, stacks, anonymous mappings",
        ),
        (PartKind::UnseenFiles, of("RssFile"), ""),
        (PartKind::Shared, of("RssShmem"), ""),
    ];
    let parts = parts.into_iter().filter(|(_, bytes, _)| *bytes > 0);
    let parts = parts.map(|(kind, bytes, detail)| AnswerPart {
        detail: detail.to_string(),
        ..AnswerPart::new(kind, bytes)
    });
    answer.parts = parts.collect();
    answer.sort_parts();
}

/// Adds the parts of a division, the largest first.
fn add_divided(
    answer: &mut MemoryAnswer,
    division: &MemoryDivision,
    holders: &mut dyn FnMut(PartKind) -> Vec<PartHolder>,
) {
    let parts = division.parts.iter().map(|(kind, bytes)| AnswerPart {
        holders: holders(*kind),
        ..AnswerPart::new(*kind, *bytes)
    });
    answer.parts.extend(parts);
    answer.sort_parts();
}

/// Makes the functions of a recording the holders of the part that they allocated most likely:
/// malloc's, with Python's if the functions have more than malloc, and with anonymous mappings if
/// they have more than both, unless both are far too small for them, as they are beside another
/// allocator. Then it is the largest of the parts that allocators have. If the functions have more
/// than their part, each has its share of the part. If the recording knows less than half of the
/// part, or if the holders are Perl's variables, the part keeps its holders.
fn add_functions(answer: &mut MemoryAnswer, functions: Option<RecordedFunctions>) {
    let Some(functions) = functions else {
        return;
    };
    answer.recording = Some(AnswerRecording {
        period: functions.period,
        bytes: functions.bytes,
    });
    let is_malloc = |kind| {
        matches!(
            kind,
            PartKind::MallocInUse | PartKind::Malloc | PartKind::PythonObjects
        )
    };
    let is_other = |kind| matches!(kind, PartKind::Anonymous | PartKind::UnseenPrivate);
    let of_malloc = answer.parts.iter().filter(|part| is_malloc(part.kind));
    let of_malloc: u64 = of_malloc.map(|part| part.bytes).sum();
    let is_all_malloc = of_malloc.saturating_mul(2) >= functions.bytes;
    // The parts are in order of their sizes.
    let mut parts = answer.parts.iter();
    let found =
        parts.position(|part| is_malloc(part.kind) || !is_all_malloc && is_other(part.kind));
    let Some(mut found) = found else {
        return;
    };
    if functions.bytes > answer.parts[found].bytes && is_malloc(answer.parts[found].kind) {
        answer.join_python();
        found = position_of(answer, PartKind::MallocAndPython).unwrap_or(found);
    }
    // An allocator that is linked into the program maps its memory itself, and malloc has blocks
    // beside. Those of malloc have a few bytes more than they were asked for, so an eighth more is
    // not malloc's.
    let part = &answer.parts[found];
    let is_too_small = functions.bytes > part.bytes.saturating_add(part.bytes / 8);
    if is_too_small || part.kind == PartKind::Anonymous {
        answer.join_allocators();
        found = position_of(answer, PartKind::MallocAndOthers).unwrap_or(found);
    }
    let is_perl = answer.is_perl;
    let part = &mut answer.parts[found];
    let mut recorded = format!("{} recorded", shown(functions.bytes));
    if !functions.error.is_empty() {
        recorded += &format!(", {}", functions.error);
    }
    let words = [&*recorded, &*part.detail].into_iter();
    let words: Vec<&str> = words.filter(|words| !words.is_empty()).collect();
    part.detail = words.join("; ");
    part.growth = functions.growth;
    let is_most = functions.bytes.saturating_mul(2) >= part.bytes;
    if is_most && !functions.holders.is_empty() && !is_perl {
        part.holders = scaled_holders(functions.holders, functions.bytes, part.bytes);
    }
}

/// Returns where a part is among the parts of an answer.
fn position_of(answer: &MemoryAnswer, kind: PartKind) -> Option<usize> {
    answer.parts.iter().position(|part| part.kind == kind)
}

/// The memory of a program that was copied.
struct SeenMemory<'a> {
    target: &'a WalkTarget,
    image: &'a ProcessImage,
    mappings: &'a [MeasuredMapping],
}

impl SeenMemory<'_> {
    /// Adds all parts, with the best holders that there are.
    fn add_parts(&self, answer: &mut MemoryAnswer, functions: Option<RecordedFunctions>) {
        let Self {
            target,
            image,
            mappings,
        } = self;
        let walked = MallocHeap::walk(image);
        let heap = walked.as_ref().ok();
        let pools = PythonPools::find(image);
        let view = AllocatorView {
            image,
            heap,
            pools: &pools,
        };
        let division = MemoryDivision::new(mappings, Some(&view));
        let perl = perl_findings(target, image, heap);
        // Of a perl, Perl's values say more.
        let in_use = division.parts.get(&PartKind::MallocInUse);
        let in_use = in_use.copied().unwrap_or(0);
        let walks_blocks = heap.filter(|_| perl.is_none());
        let mut malloc = walks_blocks
            .map(|heap| malloc_findings(target, image, heap, &pools))
            .unwrap_or_default();
        (answer.leaked, answer.is_perl) = (malloc.leaked, perl.is_some());
        add_divided(answer, &division, &mut |part| match part {
            PartKind::MallocInUse => match &perl {
                Some(perl) => perl.holders_within(in_use),
                None => std::mem::take(&mut malloc.holders),
            },
            PartKind::MallocFree => {
                heap.map_or_else(Vec::new, |heap| free_holders(&division, heap))
            }
            PartKind::PythonObjects => python_holders(&pools),
            PartKind::Own => Vec::new(),
            PartKind::Anonymous => anonymous_holders(&division, mappings, target, image),
            part => mapped_holders(&division, part),
        });
        for part in &mut answer.parts {
            part.detail = match part.kind {
                PartKind::MallocInUse => match &perl {
                    Some(perl) => {
                        let values = count_of(perl.values, "Perl value");
                        format!("{} in {values}", shown(perl.bytes.min(in_use)))
                    }
                    None => {
                        let blocks = count_of(malloc.blocks, "block");
                        match malloc.leaked.saturating_mul(100) > part.bytes {
                            true => format!("{} leaked; {blocks}", shown(malloc.leaked)),
                            false => blocks,
                        }
                    }
                },
                PartKind::MallocFree => {
                    let trimmable = heap.map_or(0, |heap| trimmable_bytes(image, heap));
                    let trimmable = trimmable.min(part.bytes);
                    // A hole that is smaller than a page can't be given back.
                    match is_fragmented(part.bytes, trimmable) {
                        true => {
                            format!(
                                "fragmented: malloc_trim would free only {}",
                                shown(trimmable)
                            )
                        }
                        false => format!("malloc_trim(0) would give back {}", shown(trimmable)),
                    }
                }
                PartKind::PythonObjects => {
                    format!(
                        "{} in use by objects",
                        shown(pools.bytes_in_use().min(part.bytes))
                    )
                }
                PartKind::Stacks => self.stack_detail(),
                PartKind::V8Heap => V8_DETAIL.to_string(),
                PartKind::Anonymous => match other_allocator(mappings) {
                    Some(library) => format!("of its malloc ({library}) and of others"),
                    None => String::new(),
                },
                _ => String::new(),
            };
        }
        match &walked {
            Ok(heap) => answer.notes.extend(unwalked_parts(image, heap)),
            Err(error) if answer.part(PartKind::Malloc).is_some() => {
                answer
                    .notes
                    .push(format!("malloc's memory was not examined: {error}"));
            }
            Err(_) => {}
        }
        if let Some(library) = other_allocator(mappings) {
            answer.notes.push(format!(
                "Its malloc is {library}; heapprof does not see how much of its memory is free."
            ));
        }
        add_functions(answer, functions);
    }

    /// Returns the number of threads, and the addresses that their stacks reserve.
    fn stack_detail(&self) -> String {
        let stacks = self.mappings.iter();
        let stacks = stacks.filter(|mapping| mapping.kind == MappingKind::ThreadStack);
        let reserved: u64 = stacks
            .map(|mapping| mapping.range.end - mapping.range.start)
            .sum();
        let threads = count_of(self.image.threads.len() as u64, "thread");
        match reserved {
            // A core file does not have what was only reserved.
            _ if matches!(self.target.what, WalkTargetKind::Core(..)) => threads,
            0 => threads,
            reserved => format!("{threads}; {} reserved", shown(reserved)),
        }
    }
}

/// A mapping of a core file, without its bytes.
struct MappingOutline {
    range: Range<u64>,
    name: String,
    rights: &'static str,
    is_own: bool,
}

/// Returns the mappings of which a core file has bytes. A core file does not say which files have
/// code: a file is taken for one if the program has variables of it, and pages that it may not
/// write to.
fn mapping_outlines(image: &ProcessImage) -> Vec<MappingOutline> {
    let has_constants = |name: &str| image.files.iter().any(|map| map.path == name.as_bytes());
    let outline = |region: &ImageRegion| MappingOutline {
        range: region.range(),
        rights: match (region.is_writable, region.is_shared) {
            (true, true) => "rw-s",
            (true, false) if has_constants(&region.name) => "rwxp",
            (true, false) => "rw-p",
            (false, true) => "r--s",
            (false, false) => "r--p",
        },
        name: region.name.clone(),
        is_own: region.is_own,
    };
    image.regions().iter().map(outline).collect()
}

/// Returns the mappings of a core file, with the bytes that `image` has.
fn mappings_of_core(outlines: &[MappingOutline], image: &ProcessImage) -> Vec<MeasuredMapping> {
    let area = |outline: &MappingOutline| {
        let rss = image.present(outline.range.clone());
        let usage = MemoryUsage {
            rss,
            ..MemoryUsage::default()
        };
        (outline.range.clone(), usage)
    };
    let areas = outlines.iter().map(|outline| {
        let (range, usage) = area(outline);
        SmapsMapping {
            start: range.start,
            end: range.end,
            rights: outline.rights,
            name: &outline.name,
            usage,
            // heapprof's own memory has this flag.
            flags: if outline.is_own { "rr" } else { "" },
        }
    });
    let areas: Vec<SmapsMapping<'_>> = areas.collect();
    let hints = MappingHints {
        program: None,
        stack_pointers: image.threads.iter().map(|thread| thread.stack).collect(),
        threads: image.threads.len(),
    };
    measured_mappings(&areas, &hints)
}
