//! The parts of a process that a recording does not contain, and how to record them.

use heapprof_analysis::coverage::{ManagedRuntime, RssBreakdown};
use heapprof_profile::{EarlyEndReason, EarlyEnds};

use crate::advice::{AdviceWords, ReportAdvice};
use crate::measure::{UnitFormatter, percent, plural};
use crate::table::printable;

/// Returns the heap's share of the resident memory: `5.00% of peak RSS 3MiB`. The share may be
/// above 100%, because a program need not touch all memory that it has in use.
pub fn coverage(resident: RssBreakdown, name: &str) -> Option<String> {
    let share = percent(resident.heap?, resident.program_bytes());
    let shown = UnitFormatter::new("bytes", None)
        .ok()?
        .show(resident.program_bytes());
    let beyond = match resident.heap? > resident.program_bytes() {
        true => ", so part of the heap was never touched",
        false => "",
    };
    Some(format!("{share} of {name} {shown}{beyond}"))
}

/// Returns a note about a process's memory outside the heap, and how to record it. Returns `None`
/// if this memory is at most half of the process's memory, or less than 16 MiB.
pub fn beside_heap(
    peak: RssBreakdown,
    runtime: Option<&ManagedRuntime>,
    words: AdviceWords,
) -> Option<String> {
    // The usual limit of the code, libraries and stacks of a program, in bytes.
    const USUAL_NON_HEAP_BYTES: i64 = 16 << 20;
    let rest = peak.bytes_beside_heap()?;
    if rest < USUAL_NON_HEAP_BYTES || rest <= peak.program_bytes() / 2 {
        return None;
    }
    let measure = UnitFormatter::new("bytes", None).ok()?;
    let own = match runtime {
        None => String::new(),
        Some(ManagedRuntime::Python) => format!(
            "; Python keeps small objects in its own arenas, which {} counts",
            words.0(ReportAdvice::RecordPythonObjects)
        ),
        Some(ManagedRuntime::UnreadablePython(why)) => {
            let why = printable(why);
            format!("; Python keeps small objects in its own arenas: they are {why}")
        }
        Some(ManagedRuntime::Java) => {
            "; Java's heap belongs to the JVM; jcmd PID GC.class_histogram shows it".to_string()
        }
        Some(ManagedRuntime::JavaScript) => {
            "; JavaScript's heap belongs to V8; node --heap-prof shows it".to_string()
        }
        Some(ManagedRuntime::DotNet) => {
            "; .NET's heap belongs to its runtime; dotnet-gcdump shows it".to_string()
        }
        Some(ManagedRuntime::Php) => {
            "; PHP uses its own arenas, which USE_ZEND_ALLOC=0 switches off".to_string()
        }
    };
    Some(format!(
        "{} of the peak RSS is not heap; it is code, stacks, files and what the program maps \
         itself, which {} counts{own}",
        measure.show(rest),
        words.0(ReportAdvice::RecordMappings)
    ))
}

/// Returns a note about missed frees: blocks that were allocated again although no free was
/// recorded. `None` if there are none.
pub fn unseen_frees([blocks, bytes]: [u64; 2]) -> Option<String> {
    if blocks == 0 {
        return None;
    }
    let measure = UnitFormatter::new("bytes", None).ok()?;
    let size = measure.show(bytes);
    let frees = match blocks {
        1 => format!("the free of 1 block ({size}) was noticed only when its address was"),
        _ => format!(
            "the frees of {blocks} blocks ({size}) were noticed only when their addresses were"
        ),
    };
    Some(format!(
        "{frees} allocated again; other blocks that are freed the same way may still count as in \
         use"
    ))
}

/// Returns the number of stacks that end early for one reason, with their file:
/// `3 stacks (100 allocations, 97.66KiB) in /tmp/p, which has no unwind tables`.
pub(crate) fn early_ends_in(ends: &EarlyEnds, measure: &UnitFormatter) -> String {
    let (stacks, objects) = (
        plural(&ends.stacks.to_string(), "stack"),
        plural(&ends.objects.to_string(), "allocation"),
    );
    let place = match (ends.reason, ends.file.as_str()) {
        (None, _) => "in other files".to_string(),
        (Some(EarlyEndReason::NoFile), _) => {
            "in code that is not in a file, such as JIT code".to_string()
        }
        (Some(reason), "") => format!("in a file with {}", reason.text()),
        (Some(reason), file) => format!("in {}, which has {}", printable(file), reason.text()),
    };
    format!("{stacks} ({objects}, {}) {place}", measure.show(ends.bytes))
}

/// Returns a note about stacks that lack their outermost callers. The note has the file with most
/// of these stacks, and a way to record the callers. Returns `None` if the stacks have less than a
/// hundredth of the `allocated` bytes.
pub fn early_ends(all: &[EarlyEnds], allocated: Option<i64>) -> Option<String> {
    let most = all.iter().max_by_key(|ends| ends.bytes)?;
    let bytes = all
        .iter()
        .fold(0i64, |sum, ends| sum.saturating_add(ends.bytes));
    if allocated.is_some_and(|allocated| bytes < allocated / 100) {
        return None;
    }
    let stacks = all
        .iter()
        .fold(0u64, |sum, ends| sum.saturating_add(ends.stacks));
    let measure = UnitFormatter::new("bytes", None).ok()?;
    let share = allocated.filter(|&allocated| allocated > 0);
    let share = share.map_or_else(String::new, |allocated| {
        format!(", {} of what was allocated", percent(bytes, allocated))
    });
    let what = match stacks {
        1 => "a stack ends",
        _ => "stacks end",
    };
    let which = match all.len() {
        1 => early_ends_in(most, &measure),
        _ => format!(
            "{} ({}), most of them: {}",
            plural(&stacks.to_string(), "stack"),
            measure.show(bytes),
            early_ends_in(most, &measure)
        ),
    };
    let advice = match most.reason {
        Some(EarlyEndReason::NoTables | EarlyEndReason::NotCovered) => {
            "; code that is built with -fasynchronous-unwind-tables or -fno-omit-frame-pointer \
             shows them"
        }
        Some(EarlyEndReason::NoFile) => {
            "; code that is generated at run time shows them if it keeps frame pointers (java \
             -XX:+PreserveFramePointer)"
        }
        Some(EarlyEndReason::NoCaller) | None => "",
    };
    Some(format!(
        "some callers are missing, because {what} early: {which}{share}{advice}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(file: &str, reason: Option<EarlyEndReason>, bytes: i64) -> EarlyEnds {
        EarlyEnds {
            file: file.to_string(),
            reason,
            stacks: 1,
            objects: 2,
            bytes,
        }
    }

    #[test]
    fn the_file_that_lacks_most_callers_is_named() {
        let no_tables = ends("/tmp/p", Some(EarlyEndReason::NoTables), 2048);
        assert_eq!(
            early_ends(std::slice::from_ref(&no_tables), Some(4096)).unwrap(),
            "some callers are missing, because a stack ends early: 1 stack (2 allocations, 2KiB) \
             in /tmp/p, which has no unwind tables, 50.00% of what was allocated; code that is \
             built with -fasynchronous-unwind-tables or -fno-omit-frame-pointer shows them"
        );
        let made = ends("", Some(EarlyEndReason::NoFile), 1024);
        let both = early_ends(&[made, no_tables.clone()], None).unwrap();
        assert!(
            both.starts_with(
                "some callers are missing, because stacks end early: 2 stacks (3KiB), most of \
                 them: 1 stack (2 allocations, 2KiB) in /tmp/p"
            ),
            "{both}"
        );
        assert_eq!(early_ends(&[no_tables], Some(2048 * 101)), None);
        assert_eq!(early_ends(&[], Some(1)), None);
    }

    /// Checks that the advice is about something that the user can do.
    #[test]
    fn a_python_that_cannot_be_read_gets_advice_that_fits() {
        let peak = RssBreakdown {
            bytes: 40 << 20,
            own: 0,
            heap: Some(1 << 20),
        };
        let words = AdviceWords(|advice| format!("{advice:?}"));
        let said = |runtime: ManagedRuntime| beside_heap(peak, Some(&runtime), words).unwrap();
        assert!(said(ManagedRuntime::Python).contains("which RecordPythonObjects counts"));
        let other = said(ManagedRuntime::UnreadablePython(
            "missing, because".to_string(),
        ));
        assert!(
            other.ends_with("they are missing, because") && !other.contains("RecordPythonObjects")
        );
    }

    #[test]
    fn unseen_frees_are_counted() {
        assert_eq!(unseen_frees([0, 0]), None);
        assert_eq!(
            unseen_frees([2, 2048]).unwrap(),
            "the frees of 2 blocks (2KiB) were noticed only when their addresses were allocated \
             again; other blocks that are freed the same way may still count as in use"
        );
    }
}
