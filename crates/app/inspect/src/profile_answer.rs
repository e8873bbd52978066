//! Answers where the memory of a profile is: of a recording at its peak, with what was resident
//! beside the heap, of any other profile by its default values.

use anyhow::Result;
use heapprof_analysis::comment::{self, DumpTime};
use heapprof_analysis::{QuestionSource, coverage};
use heapprof_process::{MAPPING_KINDS, MeasuredMapping, MemoryUsage};
use heapprof_profile::{IN_USE, PEAK, PeakPart, Profile};
use heapprof_report::{AnswerPart, AnswerRecording, AnswerTotal, MemoryAnswer, PartKind};

use crate::memory_division::MemoryDivision;
use crate::part_holders::{mapped_holders, scaled_holders};
use crate::recorded_functions::RecordedFunctions;
use crate::words::{V8_DETAIL, shown};

/// What the comments of a profile say of its process.
#[derive(Debug, Default)]
struct RecordedProcess {
    /// The program, with its script or title.
    name: Option<String>,
    /// The largest resident memory.
    peak: Option<PeakResident>,
    /// The parts of the resident memory at the peak, if the recording divided it.
    parts: Vec<PeakPart>,
    /// Whether the profile was written at the program's end, with most of the peak in use.
    kept_at_end: bool,
}

/// The largest resident memory of a process.
#[derive(Clone, Copy, Debug)]
struct PeakResident {
    /// All bytes.
    bytes: u64,
    /// The bytes without the collector's own tables.
    of_program: u64,
}

impl RecordedProcess {
    fn new(profile: &Profile) -> Self {
        let texts = profile.comment.iter();
        let comments: Vec<String> = texts.map(|&text| profile.text(text).to_string()).collect();
        let [_, peak] = coverage::resident(&comments, [None, None]);
        let has_type = |name| profile.find_sample_type(name).is_ok();
        let default = profile.text(profile.default_sample_type);
        let peak_resident = peak.and_then(|peak| {
            Some(PeakResident {
                bytes: u64::try_from(peak.bytes).ok()?,
                of_program: u64::try_from(peak.program_bytes()).ok()?,
            })
        });
        Self {
            name: comment::program_and_title(&comments),
            peak: peak_resident.filter(|_| has_type(PEAK)),
            parts: coverage::peak_parts(&comments),
            kept_at_end: default == IN_USE
                && has_type(PEAK)
                && comment::dump_time(&comments) == DumpTime::AtExit,
        }
    }
}

/// Answers where the memory of a profile is.
///
/// # Errors
/// The profile may have no values in bytes.
pub fn profile_answer(source: QuestionSource) -> Result<MemoryAnswer> {
    let process = RecordedProcess::new(&source.profile);
    let name = source.name.clone();
    let blocks = total(&source.profile, "peak_objects");
    let functions = RecordedFunctions::new(source, process.peak.map(|_| PEAK))?;
    let mut answer = MemoryAnswer {
        name: process.name.unwrap_or(name),
        recording: (functions.period > 0).then_some(AnswerRecording {
            period: functions.period,
            bytes: functions.bytes,
        }),
        kept_at_end: process.kept_at_end,
        ..MemoryAnswer::default()
    };
    let recorded = match process.peak {
        Some(peak) => {
            answer.basis = AnswerTotal::PeakResident;
            let heap = RecordedHeap {
                bytes: functions.bytes,
                error: sampling_error(functions.bytes, functions.period),
                blocks,
            };
            add_resident(&mut answer, peak, &process.parts, heap)
        }
        None => {
            answer.basis = AnswerTotal::InProfile;
            answer.total = functions.bytes;
            functions.bytes
        }
    };
    let mut detail = functions.sample_type.clone();
    if recorded < functions.bytes {
        detail += &format!(", {} requested", shown(functions.bytes));
    }
    if recorded < functions.bytes / 10 * 9 {
        let of_each = "more was requested than was resident, so each function is shown with its \
                       share of the resident memory";
        answer.notes.push(of_each.to_string());
    }
    if !functions.error.is_empty() {
        detail += &format!(", {}", functions.error);
    }
    answer.parts.push(AnswerPart {
        detail,
        holders: scaled_holders(functions.holders, functions.bytes, recorded),
        ..AnswerPart::new(PartKind::Recorded, recorded)
    });
    answer.sort_parts();
    Ok(answer)
}

/// What a recording knows of the heap at the peak.
#[derive(Clone, Copy, Debug, Default)]
struct RecordedHeap {
    bytes: u64,
    /// How many more bytes the heap may have had, because only samples were recorded.
    error: u64,
    blocks: u64,
}

impl RecordedHeap {
    /// Returns what the part of the memory may be that was not recorded, if its size needs no other
    /// reason.
    fn explain(self, rest: u64) -> Option<&'static str> {
        /// The bytes by which malloc makes a block larger on average, with its own word.
        const ROUNDING: u64 = 16;
        let rounding = self.blocks.saturating_mul(ROUNDING);
        match rest {
            rest if rest <= rounding => Some("malloc's rounding"),
            rest if rest <= rounding.saturating_add(self.error) => {
                Some("within the error of the sample, or malloc's rounding")
            }
            _ => None,
        }
    }
}

/// Returns how many more bytes a sampled heap may have had, with a probability of 97.5 %: about
/// twice the standard deviation of an estimate from one sample every `period` bytes. It is 0 if all
/// allocations are recorded.
fn sampling_error(bytes: u64, period: u64) -> u64 {
    (2.0 * (bytes as f64 * period as f64).sqrt()) as u64
}

/// Returns the sum of a sample type's values; 0 if the profile does not have it.
fn total(profile: &Profile, sample_type: &str) -> u64 {
    let Ok(column) = profile.find_sample_type(sample_type) else {
        return 0;
    };
    u64::try_from(profile.samples.total(column)).unwrap_or(0)
}

/// Adds what was resident at the peak beside the heap that the recording knows. Returns how much of
/// the heap was resident.
fn add_resident(
    answer: &mut MemoryAnswer,
    peak: PeakResident,
    parts: &[PeakPart],
    recorded_heap: RecordedHeap,
) -> u64 {
    let heap = recorded_heap.bytes;
    let mappings: Vec<MeasuredMapping> = parts.iter().filter_map(mapping_of).collect();
    let sizes = mappings.iter().map(|mapping| mapping.usage.rss);
    let seen = sizes.fold(0, u64::saturating_add);
    if mappings.is_empty() {
        let recorded = heap.min(peak.of_program);
        let rest = peak.of_program - recorded;
        answer.total = peak.of_program;
        add_unrecorded(answer, rest, "code, files, stacks, free memory");
        return recorded;
    }
    let division = MemoryDivision::new(&mappings, None);
    let grown = peak.bytes.saturating_sub(seen);
    answer.total = seen.max(peak.bytes);
    for (kind, bytes) in &division.parts {
        // What was recorded lies in memory of no file.
        if !matches!(kind, PartKind::Malloc | PartKind::Anonymous) {
            answer.parts.push(AnswerPart {
                holders: match kind {
                    PartKind::Own => Vec::new(),
                    kind => mapped_holders(&division, *kind),
                },
                detail: match kind {
                    PartKind::V8Heap => V8_DETAIL.to_string(),
                    _ => String::new(),
                },
                ..AnswerPart::new(*kind, *bytes)
            });
        }
    }
    let of_no_file = |kind| division.parts.get(&kind).copied().unwrap_or(0);
    let (malloc, anonymous) = (
        of_no_file(PartKind::Malloc),
        of_no_file(PartKind::Anonymous),
    );
    let private = malloc.saturating_add(anonymous);
    let recorded = heap.min(private.saturating_add(grown));
    let rest = private.saturating_add(grown) - recorded;
    // What was recorded may be in malloc's heap and in mappings, so only bounds are known.
    let detail = match rest / 2 {
        _ if let Some(why) = recorded_heap.explain(rest) => why,
        half if grown > half => "it grew too fast for a closer look",
        half if anonymous.saturating_sub(recorded) > half => {
            "mapped by the program, or by another allocator"
        }
        half if malloc.saturating_sub(recorded) > half => "free in malloc",
        _ => "free in malloc, or in other allocators",
    };
    add_unrecorded(answer, rest, detail);
    recorded
}

/// Returns a mapping that stands for a part; `None` if the kind is unknown.
fn mapping_of(part: &PeakPart) -> Option<MeasuredMapping> {
    let kind = MAPPING_KINDS
        .iter()
        .find(|(_, name, _)| *name == part.kind)?;
    Some(MeasuredMapping {
        range: 0..0,
        kind: kind.0,
        name: part.name.clone(),
        is_anonymous: false,
        mappings: part.mappings,
        usage: MemoryUsage {
            rss: part.bytes,
            ..MemoryUsage::default()
        },
    })
}

fn add_unrecorded(answer: &mut MemoryAnswer, bytes: u64, detail: &str) {
    if bytes > 0 {
        answer.parts.push(AnswerPart {
            detail: detail.to_string(),
            ..AnswerPart::new(PartKind::Unrecorded, bytes)
        });
    }
}

#[cfg(test)]
mod tests {
    use heapprof_process::MappingKind;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn part(kind: MappingKind, name: &str, mib: u64) -> PeakPart {
        PeakPart {
            kind: kind.name().to_string(),
            name: name.to_string(),
            bytes: mib * MIB,
            mappings: 1,
        }
    }

    /// Returns the parts of an answer as text, and the recorded bytes in MiB.
    fn parts(peak: u64, parts: &[PeakPart], heap: u64) -> (Vec<String>, u64) {
        let mut answer = MemoryAnswer::default();
        let peak = PeakResident {
            bytes: peak * MIB,
            of_program: (peak - 1) * MIB,
        };
        let recorded = add_resident(&mut answer, peak, parts, heap_of(heap)) / MIB;
        let sum: u64 = answer.parts.iter().map(|part| part.bytes).sum();
        assert_eq!(sum + recorded * MIB, answer.total);
        let text = |part: &AnswerPart| format!("{} {}", part.kind.name(), part.bytes / MIB);
        (answer.parts.iter().map(text).collect(), recorded)
    }

    /// Returns a heap that is known exactly, in few blocks.
    fn heap_of(mib: u64) -> RecordedHeap {
        RecordedHeap {
            bytes: mib * MIB,
            ..RecordedHeap::default()
        }
    }

    #[test]
    fn an_error_and_rounding_come_before_other_reasons() {
        let heap = RecordedHeap {
            bytes: 60 * MIB,
            error: 8 * MIB,
            blocks: 200_000,
        };
        for (rest, expected) in [
            (3 * MIB, Some("malloc's rounding")),
            (
                11 * MIB,
                Some("within the error of the sample, or malloc's rounding"),
            ),
            (12 * MIB, None),
        ] {
            assert_eq!(heap.explain(rest), expected, "{rest}");
        }
    }

    #[test]
    fn what_is_beside_the_heap_has_parts() {
        let known = [
            part(MappingKind::Heap, "[heap]", 30),
            part(MappingKind::Anonymous, "", 20),
            part(MappingKind::File, "/data", 100),
            part(MappingKind::Own, "", 1),
        ];
        let beside = |rest: &[&str]| -> Vec<String> {
            let all = rest.iter().chain(&["mapped files 100", "heapprof's own 1"]);
            let mut all: Vec<String> = all.map(|text| (*text).to_string()).collect();
            all.sort();
            all
        };
        let sorted = |(mut parts, recorded): (Vec<String>, u64)| {
            parts.sort();
            (parts, recorded)
        };
        // (Peak, heap, the rest, and how much of the heap was resident.)
        for (peak, heap, rest, recorded) in [
            (151, 45, vec!["not recorded 5"], 45),
            (151, 400, vec![], 50),
            // The program grew after the division.
            (171, 45, vec!["not recorded 25"], 45),
            (171, 70, vec![], 70),
        ] {
            let found = sorted(parts(peak, &known, heap));
            assert_eq!(found, (beside(&rest), recorded), "{peak} {heap}");
        }
        // Why a part was not recorded.
        for (peak, heap, why) in [
            (151, 5, "free in malloc"),
            (151, 25, "free in malloc, or in other allocators"),
            (151, 45, "free in malloc, or in other allocators"),
            (191, 45, "it grew too fast for a closer look"),
        ] {
            let mut answer = MemoryAnswer::default();
            let peak = PeakResident {
                bytes: peak * MIB,
                of_program: (peak - 1) * MIB,
            };
            add_resident(&mut answer, peak, &known, heap_of(heap));
            let part = answer.part(PartKind::Unrecorded).unwrap();
            assert_eq!(part.detail, why, "{heap}");
        }
        let heap = [part(MappingKind::Heap, "[heap]", 150)];
        let mapped = [part(MappingKind::Anonymous, "", 190)];
        let mut answer = MemoryAnswer::default();
        let peak = PeakResident {
            bytes: 150 * MIB,
            of_program: 150 * MIB,
        };
        add_resident(&mut answer, peak, &heap, heap_of(20));
        let part = answer.part(PartKind::Unrecorded).unwrap();
        assert_eq!(part.detail, "free in malloc");
        let mut answer = MemoryAnswer::default();
        add_resident(
            &mut answer,
            PeakResident {
                bytes: 190 * MIB,
                of_program: 190 * MIB,
            },
            &mapped,
            heap_of(8),
        );
        let part = answer.part(PartKind::Unrecorded).unwrap();
        assert_eq!(
            part.detail,
            "mapped by the program, or by another allocator"
        );
        // The memory was not divided.
        let unknown = (vec!["not recorded 355".to_string()], 45);
        assert_eq!(parts(401, &[], 45), unknown);
        assert_eq!(parts(51, &[], 60), (vec![], 50));
    }
}
