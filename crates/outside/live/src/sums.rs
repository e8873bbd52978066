//! Adds up the sums of each stack over all threads, and the counts by size.
//!
//! Threads are read one after the other while the program goes on, so an allocation may be counted
//! without its free, or a free without its allocation. Sums may be off by the events of the
//! milliseconds that reading takes. They are never below zero.

use heapprof_abi::{
    BYTE_BITS, OBJECT_BITS, SIZE_COUNT, counters, heap, spread as layout_of_spread,
};
use heapprof_memory::Memory;
use heapprof_profile::recording_texts::rounded;
use heapprof_profile::{SIZE_CLASS_COUNT, SizeHistogram};

use crate::bounded_reads::{BoundedMemoryReader, u64_at};
use crate::error::LiveError;
use crate::ledger::LiveLedger;

/// Maximum number of thread states that are read. The state of an ended thread remains, and the
/// next new thread uses it.
const MAX_THREADS: usize = 1 << 17;
/// Maximum number of stacks; no program has more.
pub(crate) const MAX_STACKS: u32 = 1 << 22;

/// The uncertainty of one sum: the number of samples, and the variances of objects and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct SumUncertainty {
    pub(crate) samples: u64,
    pub(crate) variance: [f64; 2],
}

/// One stack's sums, in objects and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct LiveStackSums {
    pub(crate) allocated: [i64; 2],
    pub(crate) in_use: [i64; 2],
    pub(crate) peak: [i64; 2],
    pub(crate) temporary: [i64; 2],
    /// Uncertainty of the sums of allocated memory and of memory in use; zero for exact sums.
    pub(crate) spread: [SumUncertainty; 2],
}

/// The sums of all stacks, over all threads.
pub(crate) struct AllThreadSums {
    pub(crate) sums: Vec<LiveStackSums>,
    pub(crate) sizes: SizeHistogram,
    /// Whether the heap was at its peak when the sums were read.
    pub(crate) is_at_peak: bool,
}

/// One stack's sums over all threads, before they are rounded.
#[derive(Clone, Copy, Default)]
struct UnroundedSums {
    allocated: [i64; 2],
    freed: [i64; 2],
    peak: [i64; 2],
    temporary: [i64; 2],
    spread: [SumUncertainty; 2],
}

/// Reads the sums of all threads. `is_exact` is true if the recording counts every allocation; sums
/// of samples have a finer unit and are rounded.
pub(crate) fn read_sums<M: Memory>(
    reader: &BoundedMemoryReader<M>,
    ledger: &LiveLedger,
    is_exact: bool,
) -> Result<AllThreadSums, LiveError> {
    let stacks = reader.u32(ledger.stacks)?;
    if stacks > MAX_STACKS {
        return Err(LiveError::LedgerDamaged(
            "it has more stacks than a program can have",
        ));
    }
    let len = stacks as usize;
    let phase_now = || reader.u64(ledger.heap.wrapping_add(heap::PHASE as u64));
    let phase = match ledger.is_copy {
        true => 2 * newest_fall(reader, ledger, len)?,
        false => phase_now()?,
    };
    let mut raw: Vec<UnroundedSums> = Vec::new();
    let mut sizes = SizeHistogram::default();
    each_thread(reader, ledger, |thread| {
        let at = |offset: u32| thread.wrapping_add(u64::from(offset));
        reader.elements(at(ledger.thread.counters), len, |stack, bytes| {
            add_counters(stack_entry(&mut raw, stack), bytes, phase);
            Ok(())
        })?;
        reader.elements(
            at(ledger.thread.temporary),
            len,
            |stack, bytes: &[u8; 16]| {
                add(
                    &mut stack_entry(&mut raw, stack).temporary,
                    read_pair(bytes, 0),
                );
                Ok(())
            },
        )?;
        if !is_exact {
            reader.elements(at(ledger.thread.spread), len, |stack, bytes| {
                add_spread(&mut stack_entry(&mut raw, stack).spread, bytes);
                Ok(())
            })?;
        }
        add_sizes(&mut sizes, &reader.array(at(ledger.thread.sizes))?);
        Ok(())
    })?;
    // If the heap is rising to a new peak now, the present heap is the peak.
    let is_at_peak = match ledger.is_copy {
        true => is_rising(&raw),
        false => phase_now()? & 1 == 1,
    };
    Ok(AllThreadSums {
        // Both vectors have elements of one size, so the second one uses the memory of the first
        // one.
        sums: raw
            .into_iter()
            .map(|raw| round_sums(&raw, is_exact, is_at_peak))
            .collect(),
        sizes,
        is_at_peak,
    })
}

/// Calls `each` with the address of each thread's state.
fn each_thread<M: Memory>(
    reader: &BoundedMemoryReader<M>,
    ledger: &LiveLedger,
    mut each: impl FnMut(u64) -> Result<(), LiveError>,
) -> Result<(), LiveError> {
    let mut thread = reader.u64(ledger.threads)?;
    let mut threads = 0;
    while thread != 0 {
        threads += 1;
        if threads > MAX_THREADS {
            return Err(LiveError::LedgerDamaged("its list of threads has no end"));
        }
        each(thread)?;
        thread = reader.u64(thread.wrapping_add(ledger.thread.next.into()))?;
    }
    Ok(())
}

/// Returns how many times the heap has fallen from a peak, as of the newest change of any counter.
fn newest_fall<M: Memory>(
    reader: &BoundedMemoryReader<M>,
    ledger: &LiveLedger,
    stacks: usize,
) -> Result<u64, LiveError> {
    let mut newest = 0;
    each_thread(reader, ledger, |thread| {
        let counters = thread.wrapping_add(ledger.thread.counters.into());
        reader.elements(counters, stacks, |_, bytes: &[u8; counters::LEN]| {
            newest = newest.max(u64_at(bytes, counters::FALL));
            Ok(())
        })
    })?;
    Ok(newest.min(u64::MAX / 2))
}

/// Whether more bytes are in use than at the last peak from which the heap has fallen.
fn is_rising(raw: &[UnroundedSums]) -> bool {
    let bytes =
        |of: fn(&UnroundedSums) -> i64| raw.iter().map(|raw| i128::from(of(raw))).sum::<i128>();
    bytes(|raw| subtract(raw.allocated, raw.freed)[1]) > bytes(|raw| raw.peak[1])
}

fn stack_entry(raw: &mut Vec<UnroundedSums>, stack: usize) -> &mut UnroundedSums {
    if raw.len() <= stack {
        raw.resize(stack + 1, UnroundedSums::default());
    }
    &mut raw[stack]
}

fn read_pair(bytes: &[u8], at: usize) -> [i64; 2] {
    [u64_at(bytes, at) as i64, u64_at(bytes, at + 8) as i64]
}

fn add(to: &mut [i64; 2], what: [i64; 2]) {
    *to = [to[0].wrapping_add(what[0]), to[1].wrapping_add(what[1])];
}

fn subtract(a: [i64; 2], b: [i64; 2]) -> [i64; 2] {
    [a[0].wrapping_sub(b[0]), a[1].wrapping_sub(b[1])]
}

/// Adds a thread's counters of one stack. `phase` is the present phase of the heap: twice the
/// number of falls from a peak, plus one while the heap rises to a new peak.
fn add_counters(raw: &mut UnroundedSums, bytes: &[u8; counters::LEN], phase: u64) {
    let (allocated, freed) = (
        read_pair(bytes, counters::ALLOCATED),
        read_pair(bytes, counters::FREED),
    );
    add(&mut raw.allocated, allocated);
    add(&mut raw.freed, freed);
    let is_now = phase & 1 == 1 || u64_at(bytes, counters::FALL) != phase >> 1;
    let at_peak = match is_now {
        true => subtract(allocated, freed),
        false => read_pair(bytes, counters::AT_PEAK),
    };
    add(&mut raw.peak, at_peak);
}

fn add_spread(spread: &mut [SumUncertainty; 2], bytes: &[u8; layout_of_spread::LEN]) {
    for (known, bytes) in spread.iter_mut().zip(bytes.as_chunks::<24>().0) {
        let number = |at: usize| f64::from_bits(u64_at(bytes, at));
        known.samples = known.samples.wrapping_add(u64_at(bytes, 0));
        known.variance[0] += number(8);
        known.variance[1] += number(16);
    }
}

fn add_sizes(sizes: &mut SizeHistogram, bytes: &[u8; 16 * SIZE_COUNT]) {
    for count in 0..SIZE_COUNT {
        let class = &mut sizes.classes[count.saturating_sub(1).min(SIZE_CLASS_COUNT - 1)];
        let allocated = u64_at(bytes, 8 * count) as i64;
        let freed = u64_at(bytes, 8 * (SIZE_COUNT + count)) as i64;
        class.allocated = class.allocated.wrapping_add(allocated);
        class.in_use = class.in_use.wrapping_add(allocated.wrapping_sub(freed));
    }
}

/// Rounds sums to objects and bytes. Each result is at least zero and at most the sum of
/// allocations.
fn round_sums(raw: &UnroundedSums, is_exact: bool, is_at_peak: bool) -> LiveStackSums {
    let in_use = subtract(raw.allocated, raw.freed);
    let scale = |v: [i64; 2]| {
        let v = match is_exact {
            true => v,
            false => [rounded(v[0], OBJECT_BITS), rounded(v[1], BYTE_BITS)],
        };
        v.map(|n| n.max(0))
    };
    let [allocated, freed] = raw.spread;
    let left = SumUncertainty {
        samples: allocated.samples.wrapping_sub(freed.samples),
        variance: [
            allocated.variance[0] - freed.variance[0],
            allocated.variance[1] - freed.variance[1],
        ],
    };
    // Counters that are read a moment later may be more than all that was allocated a moment
    // earlier.
    let allocated_by = scale(raw.allocated);
    let part = |v: [i64; 2]| {
        let v = scale(v);
        [v[0].min(allocated_by[0]), v[1].min(allocated_by[1])]
    };
    LiveStackSums {
        allocated: allocated_by,
        in_use: part(in_use),
        peak: part(if is_at_peak { in_use } else { raw.peak }),
        temporary: part(raw.temporary),
        spread: [allocated, left].map(sanitize_uncertainty),
    }
}

/// Removes impossible values, which can come from rounding or from a damaged ledger.
fn sanitize_uncertainty(known: SumUncertainty) -> SumUncertainty {
    if known.samples as i64 <= 0 {
        return SumUncertainty::default();
    }
    let fit = |v: f64| if v.is_finite() { v.max(0.0) } else { 0.0 };
    SumUncertainty {
        variance: known.variance.map(fit),
        ..known
    }
}
