//! Tests a capture on a stack that is not the thread's own, and the hash that distinguishes stacks.

use heapprof_platform::pages::PageSource;

use super::*;
use crate::code::ProgramCode;
use crate::process::EngineProcess;

/// Tests that only the thread's own stack is read directly. On processors other than x86-64, call
/// sites have no stack at all.
#[test]
fn what_is_not_on_the_own_stack_is_not_recorded() {
    // SAFETY: all zeros are valid.
    let mut record = unsafe { Box::<LastStack>::new_zeroed().assume_init() };
    record.reset();
    let (code, process) = (
        ProgramCode::new(),
        EngineProcess::new(PageSource::from_kernel()),
    );
    let unwinder = Unwinder {
        code: &code,
        process: &process,
    };
    for slot in [
        0,
        8,
        usize::MAX - 7,
        usize::MAX,
        (&raw const *record).addr() + 1,
    ] {
        let captured = record.capture(CallSite { slot, bp: 0 }, unwinder);
        assert_eq!(captured, CaptureOutcome::Unrecorded, "{slot:#x}");
    }
}

/// Tests that two stacks have different hashes if they differ by a swap of two return addresses. A
/// term of the hash depends on the position of the frame.
#[test]
fn swapped_frames_change_the_sum() {
    for bit in 0..24 {
        let (p, q) = (0x50_0376, 0x50_0376 ^ 1 << bit);
        let changes: std::collections::HashSet<u64> = (0..2048)
            .map(|i| hash_term(p, i).wrapping_sub(hash_term(q, i)))
            .collect();
        assert_eq!(changes.len(), 2048, "addresses that differ in bit {bit}");
    }
}
