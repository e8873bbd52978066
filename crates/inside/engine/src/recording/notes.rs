//! The comments of a profile about the heap's history and the sizes of allocations.

use heapprof_profile::{HeapHistory, HeapMoment, HeapPeak, ResidentMoment, SizeHistogram};

use crate::engine::Engine;
use crate::recording::sums::StackSums;
use crate::tables::sizes::objects_from_units;

/// Returns the comments with the history up to now, and with the sizes of allocations. `resident`
/// is the process's number of resident bytes; 0 if it is not known.
pub(super) fn notes(
    engine: &Engine,
    sums: &[StackSums],
    mut sizes: SizeHistogram,
    resident: u64,
) -> [String; 2] {
    let (dumping, process) = (&engine.dumping, &engine.process);
    let micros = dumping.elapsed_micros();
    let total = |of: fn(&StackSums) -> [i64; 2]| {
        let each = sums.iter().map(of);
        each.fold([0i64; 2], |sum, of| {
            [0, 1].map(|i| sum[i].saturating_add(of[i]))
        })
    };
    let [objects, bytes] = total(StackSums::in_use);
    // The last moment has the sums of the samples, to the byte.
    let mut moments = dumping.history.before(process, micros);
    moments.push(HeapMoment {
        micros,
        bytes,
        objects,
    });
    let peak = total(|sums| sums.peak)[1];
    let history = HeapHistory {
        moments,
        resident: match i64::try_from(resident) {
            Ok(bytes @ 1..) => vec![ResidentMoment { micros, bytes }],
            _ => Vec::new(),
        },
        peak: Some(HeapPeak {
            micros: if peak == bytes {
                micros
            } else {
                dumping.history.peak_at()
            },
            bytes: peak,
        }),
    };
    if !process.recorded.is_exact() {
        for class in &mut sizes.classes {
            class.allocated = objects_from_units(class.allocated);
            class.in_use = objects_from_units(class.in_use);
        }
    }
    [history.comment(), sizes.comment()]
}
