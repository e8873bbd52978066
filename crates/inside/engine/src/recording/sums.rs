//! The sums of each stack over the counters of all threads, at one moment.

use heapprof_abi::StackNumber;
use heapprof_platform::arch::undisturbed;
use heapprof_profile::SizeHistogram;

use crate::engine::Engine;
use crate::tables::sampler::{BYTE_BITS, OBJECT_BITS, rounded};
use crate::tables::spread::{self, SpreadEstimate};

/// One stack's sums over all threads.
#[derive(Clone, Copy, Default)]
pub(super) struct StackSums {
    pub(crate) allocated: [i64; 2],
    pub(crate) freed: [i64; 2],
    pub(crate) peak: [i64; 2],
    pub(crate) temporary: [i64; 2],
    /// The spread of the sums of allocated memory, and of the sums of memory in use. Both are empty
    /// for exact sums.
    pub(crate) spread: [SpreadEstimate; 2],
}

/// Returns the sums of every stack, in objects and bytes.
pub(super) fn sums(engine: &Engine) -> Vec<StackSums> {
    sums_and_sizes(engine).0
}

/// Returns the sums of every stack, and the number of objects in use by size.
pub(super) fn sums_and_sizes(engine: &Engine) -> (Vec<StackSums>, SizeHistogram) {
    let (stacks, shared) = (&engine.ledger.stacks, &engine.ledger.access);
    let is_exact = engine.process.recorded.is_exact();
    let mut sums = vec![StackSums::default(); stacks.len() as usize];
    let add = |to: &mut [i64; 2], what: [i64; 2]| {
        *to = [to[0].wrapping_add(what[0]), to[1].wrapping_add(what[1])];
    };
    let (mut spreads, mut sizes) = (Vec::new(), SizeHistogram::default());
    // All sums must be of one moment, or what was allocated meanwhile would count as in use.
    shared.run_at_rest(&engine.process, &engine.threads, || {
        sums.resize(stacks.len() as usize, StackSums::default());
        if !is_exact {
            undisturbed(&mut || spreads = add_spreads(engine, sums.len()));
        }
        for state in engine.threads.all() {
            state.sizes.add_to(&mut sizes);
            for (stack, sum) in sums.iter_mut().enumerate() {
                let of_stack = state.stack_sums(StackNumber::from_index(stack));
                if let Some(counters) = of_stack.counters {
                    add(&mut sum.allocated, counters.allocated.get());
                    add(&mut sum.freed, counters.freed.get());
                    add(&mut sum.peak, counters.peak(&shared.heap));
                }
                if let Some(temporary) = of_stack.temporary {
                    add(&mut sum.temporary, temporary.0.get());
                }
            }
        }
    });
    undisturbed(&mut || {
        for (sum, spread) in sums.iter_mut().zip(&spreads) {
            sum.spread = spread.parts();
        }
    });
    if !is_exact {
        let scale = |v: &mut [i64; 2]| *v = [rounded(v[0], OBJECT_BITS), rounded(v[1], BYTE_BITS)];
        for sum in &mut sums {
            // In use is rounded as allocated minus freed, so that nothing in use is exactly zero.
            let in_use = [
                sum.allocated[0] - sum.freed[0],
                sum.allocated[1] - sum.freed[1],
            ];
            let mut parts = [sum.allocated, in_use, sum.peak, sum.temporary];
            parts.iter_mut().for_each(scale);
            sum.allocated = parts[0];
            sum.freed = [parts[0][0] - parts[1][0], parts[0][1] - parts[1][1]];
            (sum.peak, sum.temporary) = (parts[2], parts[3]);
        }
    }
    (sums, sizes)
}

/// Returns the spread of the sums for each of the first `stacks` stacks: how certain these sums
/// are.
fn add_spreads(engine: &Engine, stacks: usize) -> Vec<spread::SpreadSum> {
    let mut sums = vec![spread::SpreadSum::default(); stacks];
    for state in engine.threads.all() {
        for (stack, sum) in sums.iter_mut().enumerate() {
            if let Some(spread) = state.stack_sums(StackNumber::from_index(stack)).spread {
                sum.add(spread);
            }
        }
    }
    sums
}

impl StackSums {
    pub(super) fn in_use(&self) -> [i64; 2] {
        [
            self.allocated[0] - self.freed[0],
            self.allocated[1] - self.freed[1],
        ]
    }
}
