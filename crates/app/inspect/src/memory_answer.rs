//! Composes the answer to "where is the memory of this program?" from all instruments. The program
//! is held once: the kernel's figures and the copy of its memory are of one moment.

use std::io::{self, ErrorKind};
use std::path::Path;

use anyhow::Result;
use heapprof_analysis::QuestionSource;
use heapprof_heap::{HeapWalkError, ImageRegion, MallocHeap, ProcessImage};
use heapprof_process::{
    Cgroup, MappingHints, MeasuredMapping, MemoryBreakdown, MemoryUsage, SmapsMapping,
    StatusCounters, explain, measured_mappings,
};
use heapprof_profile::Profile;
use heapprof_recorder::outside::process_title;
use heapprof_report::{
    AnswerPart, AnswerRecording, AnswerTotal, MemoryAnswer, PartHolder, PartKind,
};

use crate::memory_division::{AllocatorView, MemoryDivision};
use crate::part_holders::{
    anonymous_holders, free_holders, malloc_findings, mapped_holders, other_allocator,
    perl_findings, python_holders,
};
use crate::python_pools::PythonPools;
use crate::recorded_functions::RecordedFunctions;
use crate::target::{ProcessHold, WalkTarget};
use crate::words::{count_of, shown};

/// Why a process can't be looked into.
#[derive(Debug)]
pub enum UnseenMemory {
    /// The kernel does not let this user look into its memory.
    NotAllowed,
    /// The copy of its memory would need most of the memory that is free.
    TooLarge(u64),
    /// Another reason.
    Other(HeapWalkError),
}

/// An answer, and why it has less than it could have.
#[derive(Debug)]
pub struct ProcessAnswer {
    /// The answer.
    pub answer: MemoryAnswer,
    /// Why the process could not be looked into, if it could not.
    pub unseen: Option<UnseenMemory>,
}

/// Answers where the memory of a process is. `profile` is what a recording knows of it.
///
/// # Errors
/// The process may be gone.
pub fn process_answer(pid: u32, profile: Option<Profile>) -> Result<ProcessAnswer> {
    let mut answer = MemoryAnswer {
        name: name_of(pid),
        pid: Some(pid),
        cgroup: Cgroup::from_pid(pid).filter(|cgroup| cgroup.limit.is_some()),
        ..MemoryAnswer::default()
    };
    let source = profile.map(|profile| QuestionSource::new(format!("pid:{pid}"), profile));
    let functions = source.map(|source| RecordedFunctions::new(source, Some("inuse_space")));
    let functions = functions.transpose()?;
    let unseen = match open(pid) {
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
                    add_parts(&mut answer, &division, &mut |part| {
                        mapped_holders(&division, part)
                    });
                }
                Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                    add_counters(&mut answer, &StatusCounters::from_pid(pid)?);
                }
                Err(error) => return Err(error.into()),
            }
            add_functions(&mut answer, functions);
            Some(unseen)
        }
    };
    Ok(ProcessAnswer { answer, unseen })
}

/// Answers where the memory of a dead program is, from its core file alone. `program` is the path
/// where the program is now.
///
/// # Errors
/// The file may be no core file, or one that can't be read.
pub fn core_answer(path: &Path, program: Option<&Path>) -> Result<MemoryAnswer, HeapWalkError> {
    let (target, image) = WalkTarget::from_core(path, program)?;
    let touched = image.without_zero_pages();
    let mappings = mappings_of_core(&image, &touched);
    let mut answer = MemoryAnswer {
        name: path.display().to_string(),
        basis: AnswerTotal::InCoreFile,
        total: mappings.iter().map(|mapping| mapping.usage.rss).sum(),
        ..MemoryAnswer::default()
    };
    let recorded = heapprof_recorder::outside::read_core(path).ok();
    let source = recorded.map(|profile| QuestionSource::new(answer.name.clone(), profile));
    let functions =
        source.and_then(|source| RecordedFunctions::new(source, Some("inuse_space")).ok());
    let seen = SeenMemory {
        target: &target,
        image: &touched,
        mappings: &mappings,
    };
    seen.add_parts(&mut answer, functions);
    if image.missing > 0 {
        answer.notes.push(format!(
            "{} bytes of its memory are not in the core file",
            image.missing
        ));
    }
    Ok(answer)
}

/// Answers where the memory of a profile is, by the values of `sample_type` or by the profile's
/// default. `peak_resident` is the largest resident memory of its process, if that is known.
///
/// # Errors
/// The profile may have no values in bytes.
pub fn profile_answer(
    source: QuestionSource,
    sample_type: Option<&str>,
    peak_resident: Option<u64>,
) -> Result<MemoryAnswer> {
    let name = source.name.clone();
    let functions = RecordedFunctions::new(source, sample_type)?;
    let at_peak = functions.sample_type == heapprof_profile::PEAK;
    let resident = peak_resident.filter(|bytes| at_peak && *bytes > functions.bytes);
    let mut answer = MemoryAnswer {
        name,
        basis: match resident {
            Some(_) => AnswerTotal::PeakResident,
            None => AnswerTotal::InProfile,
        },
        total: resident.unwrap_or(functions.bytes),
        ..MemoryAnswer::default()
    };
    let part = |kind, bytes| AnswerPart {
        kind,
        bytes,
        detail: String::new(),
        holders: Vec::new(),
        growth: None,
    };
    answer.recording = (functions.period > 0).then_some(AnswerRecording {
        period: functions.period,
        bytes: functions.bytes,
    });
    let mut detail = functions.sample_type.clone();
    if let Some(error) = functions.error {
        detail += &format!(", ±{error:.0}%");
    }
    answer.parts.push(AnswerPart {
        detail,
        holders: functions.holders,
        ..part(PartKind::Recorded, functions.bytes)
    });
    if let Some(resident) = resident {
        answer.parts.push(AnswerPart {
            detail: "code, stacks, files, and what malloc keeps".to_string(),
            ..part(PartKind::Unrecorded, resident - functions.bytes)
        });
    }
    answer
        .parts
        .sort_by_key(|part| std::cmp::Reverse(part.bytes));
    Ok(answer)
}

type OpenedProcess = (
    WalkTarget,
    ProcessImage,
    ProcessHold,
    io::Result<MemoryBreakdown>,
);

/// Copies a process's memory, and reads the kernel's figures in the same moment.
fn open(pid: u32) -> Result<OpenedProcess, UnseenMemory> {
    let resident = StatusCounters::from_pid(pid)
        .ok()
        .and_then(|of| of.get("VmRSS"));
    if let Some(resident) = resident.filter(|resident| *resident > free_memory() / 10 * 8) {
        return Err(UnseenMemory::TooLarge(resident));
    }
    let opened = WalkTarget::from_process_with(pid, || explain(pid));
    opened.map_err(|error| match error {
        HeapWalkError::NotAllowed => UnseenMemory::NotAllowed,
        error => UnseenMemory::Other(error),
    })
}

/// Returns the bytes that a program can allocate before the machine swaps.
fn free_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let free = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    let free = free.and_then(|free| free.split_whitespace().next()?.parse::<u64>().ok());
    free.map_or(u64::MAX, |free| free << 10)
}

/// Returns the name of a process, with the script that it runs.
fn name_of(pid: u32) -> String {
    let name = heapprof_process::comm(pid);
    match process_title(&name, pid) {
        Some(script) => format!("{name} {script}"),
        None => name,
    }
}

fn add_figures(answer: &mut MemoryAnswer, breakdown: &MemoryBreakdown) {
    let total = &breakdown.total;
    answer.total = total.rss;
    answer.swapped = total.swap;
    answer.shared = total.shared_clean + total.shared_dirty;
    answer.peak = breakdown.counters.get("VmHWM");
    answer.page_tables = breakdown.counters.get("VmPTE").unwrap_or(0);
    if !breakdown.is_as_kernel_sums {
        let changed = "it changed while it was read, so the total is that of its mappings";
        answer.notes.push(changed.to_string());
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
        (PartKind::Anonymous, of("RssAnon")),
        (PartKind::Files, of("RssFile")),
        (PartKind::Shared, of("RssShmem")),
    ];
    let parts = parts.into_iter().filter(|(_, bytes)| *bytes > 0);
    answer.parts = parts
        .map(|(kind, bytes)| AnswerPart {
            kind,
            bytes,
            detail: String::new(),
            holders: Vec::new(),
            growth: None,
        })
        .collect();
    answer
        .parts
        .sort_by_key(|part| std::cmp::Reverse(part.bytes));
}

/// Adds the parts of a division, the largest first.
fn add_parts(
    answer: &mut MemoryAnswer,
    division: &MemoryDivision,
    holders: &mut dyn FnMut(PartKind) -> Vec<PartHolder>,
) {
    let parts = division.parts.iter().map(|(kind, bytes)| AnswerPart {
        kind: *kind,
        bytes: *bytes,
        detail: String::new(),
        holders: holders(*kind),
        growth: None,
    });
    answer.parts.extend(parts);
    answer
        .parts
        .sort_by_key(|part| std::cmp::Reverse(part.bytes));
}

/// Makes the functions of a recording the holders of the part that they allocated most likely:
/// malloc's, unless that is far too small for them, as it is beside another allocator. Then it is
/// the largest of the parts that allocators have.
fn add_functions(answer: &mut MemoryAnswer, functions: Option<RecordedFunctions>) {
    let Some(functions) = functions else {
        return;
    };
    answer.recording = Some(AnswerRecording {
        period: functions.period,
        bytes: functions.bytes,
    });
    // Which part's bytes could be those of the recording: malloc's first, then any allocator's.
    let is_malloc = |part: &AnswerPart| {
        matches!(
            part.kind,
            PartKind::MallocInUse | PartKind::Malloc | PartKind::PythonObjects
        )
    };
    let is_large = |part: &AnswerPart| part.bytes.saturating_mul(2) >= functions.bytes;
    let is_allocators = |part: &AnswerPart| is_malloc(part) || part.kind == PartKind::Anonymous;
    // The parts are in order of their sizes.
    let position = |is_it: &dyn Fn(&AnswerPart) -> bool| answer.parts.iter().position(is_it);
    let found = position(&|part| is_malloc(part) && is_large(part));
    let found = found.or_else(|| position(&is_allocators));
    let largest = found.map(|at| &mut answer.parts[at]);
    let (Some(part), false) = (largest, functions.holders.is_empty()) else {
        return;
    };
    part.holders = functions.holders;
    part.detail = match functions.error {
        Some(error) => format!("{} recorded, ±{error:.0}%", shown(functions.bytes)),
        None => format!("{} recorded", shown(functions.bytes)),
    };
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
        let heap = MallocHeap::walk(image).ok();
        let heap = heap.as_ref();
        let pools = PythonPools::find(image);
        let view = AllocatorView {
            image,
            heap,
            pools: &pools,
        };
        let division = MemoryDivision::new(mappings, Some(&view));
        let mut malloc = heap
            .map(|heap| malloc_findings(target, image, heap, &pools))
            .unwrap_or_default();
        let perl = perl_findings(target, image, heap);
        (answer.leaked, answer.is_perl) = (malloc.leaked, perl.is_some());
        let in_use = division
            .parts
            .get(&PartKind::MallocInUse)
            .copied()
            .unwrap_or(0);
        add_parts(answer, &division, &mut |part| match part {
            PartKind::MallocInUse => match &perl {
                Some(perl) if perl.bytes * 2 > in_use => perl.holders.clone(),
                _ => std::mem::take(&mut malloc.holders),
            },
            PartKind::MallocFree => free_holders(&division, &malloc.summary),
            PartKind::PythonObjects => python_holders(&pools),
            PartKind::Own => Vec::new(),
            PartKind::Anonymous => anonymous_holders(&division, mappings, target, image),
            part => mapped_holders(&division, part),
        });
        for part in &mut answer.parts {
            let mut detail = Vec::new();
            match part.kind {
                PartKind::MallocInUse => {
                    detail.push(match &perl {
                        Some(perl) => {
                            let values = count_of(perl.values, "Perl value");
                            format!("{} in {values}", shown(perl.bytes))
                        }
                        None => count_of(malloc.blocks, "block"),
                    });
                    if malloc.leaked * 100 > in_use {
                        detail.push(format!("{} leaked", shown(malloc.leaked)));
                    }
                }
                PartKind::MallocFree => {
                    let trimmable = malloc.summary.trimmable.min(part.bytes);
                    detail.push(format!(
                        "malloc_trim(0) would give back {}",
                        shown(trimmable)
                    ));
                }
                PartKind::PythonObjects => {
                    detail.push(format!("{} in use by objects", shown(pools.bytes_in_use())));
                }
                PartKind::Malloc => detail.push("of another allocator than glibc's".to_string()),
                PartKind::Stacks => {
                    detail.push(count_of(self.image.threads.len() as u64, "thread"));
                }
                _ => {}
            }
            part.detail = detail.join("; ");
        }
        if let Some(library) = other_allocator(mappings) {
            answer.notes.push(format!(
                "its malloc is {library}; what that has free and in use is not told apart"
            ));
        }
        add_functions(answer, functions);
    }
}

/// Returns the mappings that a core file shows, with the bytes of their pages that `touched` has. A
/// core file does not say which files have code: a file of which the program has variables is taken
/// for one.
fn mappings_of_core(image: &ProcessImage, touched: &ProcessImage) -> Vec<MeasuredMapping> {
    let area = |region: &'_ ImageRegion| {
        let range = region.range();
        let rss = touched.present(range.clone());
        let usage = MemoryUsage {
            rss,
            ..MemoryUsage::default()
        };
        (range, usage)
    };
    let area = image.regions().iter().map(|region| {
        let (range, usage) = area(region);
        SmapsMapping {
            start: range.start,
            end: range.end,
            rights: match (region.is_writable, region.is_shared) {
                (true, true) => "rw-s",
                (true, false) if region.name.starts_with('/') => "rwxp",
                (true, false) => "rw-p",
                (false, true) => "r--s",
                (false, false) => "r--p",
            },
            name: &region.name,
            usage,
            flags: if region.is_own { "rr" } else { "" },
        }
    });
    let areas: Vec<SmapsMapping<'_>> = area.collect();
    let hints = MappingHints {
        program: None,
        stack_pointers: image.threads.iter().map(|thread| thread.stack).collect(),
        threads: image.threads.len(),
    };
    measured_mappings(&areas, &hints)
}
