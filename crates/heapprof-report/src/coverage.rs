//! What a recording does not see of a process, and how to see it.

use heapprof_analysis::{Resident, Runtime};

use crate::measure::{Measure, percent};

/// The heap's share of what was resident: `5.00% of peak RSS 3MiB`. The share may be above 100%,
/// because memory in use may never have been touched.
pub fn coverage(resident: Resident, name: &str) -> Option<String> {
    let share = percent(resident.heap?, resident.of_program());
    let shown = Measure::new("bytes", None)
        .ok()?
        .show(resident.of_program());
    let beyond = match resident.heap? > resident.of_program() {
        true => ", more than was touched",
        false => "",
    };
    Some(format!("{share} of {name} {shown}{beyond}"))
}

/// Says what the larger part of a process is, if it is not the heap, and what shows it.
pub fn beside_heap(peak: Resident, runtime: Option<&Runtime>) -> Option<String> {
    // The code, libraries and stacks of any program usually take at most this much.
    const USUAL: i64 = 16 << 20;
    let rest = peak.beside_heap()?;
    if rest < USUAL || rest <= peak.of_program() / 2 {
        return None;
    }
    let measure = Measure::new("bytes", None).ok()?;
    let own = match runtime {
        None => String::new(),
        Some(Runtime::Python) => "; Python has small objects in arenas of its own, which record \
                                  --python-objects=yes counts"
            .to_string(),
        Some(Runtime::UnreadablePython(why)) => {
            format!("; Python has small objects in arenas of its own: they are {why}")
        }
        Some(Runtime::FreeThreadedPython) => {
            "; a Python that was built without the GIL has all objects in an allocator of its own \
             (mimalloc), which heapprof does not see: record the same program under a Python with \
             the GIL to see them"
                .to_string()
        }
        Some(Runtime::Java) => {
            "; Java's heap is the JVM's own, which jcmd PID GC.class_histogram shows".to_string()
        }
        Some(Runtime::JavaScript) => {
            "; JavaScript's heap is V8's own, which node --heap-prof shows".to_string()
        }
        Some(Runtime::DotNet) => {
            "; .NET's heap is its runtime's own, which dotnet-gcdump shows".to_string()
        }
        Some(Runtime::Php) => {
            "; PHP has arenas of its own, which USE_ZEND_ALLOC=0 switches off".to_string()
        }
    };
    Some(format!(
        "{} of the peak RSS is not heap; it is code, stacks, files and what the program maps \
         itself, which record --mmap counts{own}",
        measure.show(rest)
    ))
}
