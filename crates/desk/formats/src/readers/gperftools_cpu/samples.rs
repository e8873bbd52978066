//! The samples of a CPU profile, as pprof makes them of the words: addresses of calls, without the
//! frames that only the profiler makes.

use foldhash::{HashMap, HashMapExt};
use heapprof_profile::{LocationIndex, ProfileBuilder};

use super::words::{CpuProfileKind, WordReader};
use crate::error::FormatError;
use crate::memory_budget::MemoryBudget;
use crate::reading::FormatReadOptions;
use crate::stacks::{self, AddressLocations};

/// Maximum number of frames of the signal handler that are removed from all stacks.
const MAX_HANDLER_FRAMES: usize = 2;
/// A frame below the leaf belongs to the signal handler if at most one of this many stacks lacks
/// it.
const STACKS_PER_EXCEPTION: usize = 32;

/// The samples of a file, in order.
pub(super) struct CpuSamples {
    /// The stacks of all samples, one after the other, each leaf first.
    addresses: Vec<u64>,
    samples: Vec<CpuSample>,
}

struct CpuSample {
    /// The number of samples, and the time that they stand for.
    values: [i64; 2],
    /// Number of frames of the stack.
    depth: usize,
}

impl CpuSamples {
    /// Reads the samples up to the end mark, or up to the end of the file, as pprof does.
    pub(super) fn read(
        words: &mut WordReader<'_>,
        period: i64,
        options: &FormatReadOptions,
    ) -> Result<Self, FormatError> {
        let mut all = Self {
            addresses: Vec::new(),
            samples: Vec::new(),
        };
        let mut budget = MemoryBudget::new(options);
        loop {
            let start = words.offset();
            let Some(count) = words.next()? else {
                break;
            };
            let begin = all.addresses.len();
            let depth = words.required("the depth of a stack")?;
            for _ in 0..depth {
                all.addresses.push(words.required("an address of a stack")?);
                budget.grow(size_of::<u64>(), || all.memory())?;
            }
            let stack = &all.addresses[begin..];
            if count == 0 && stack == [0] {
                all.addresses.truncate(begin);
                break;
            }
            let time = i64::try_from(count).ok();
            let time = time.and_then(|count| Some([count, count.checked_mul(period)?]));
            let values = time.ok_or_else(|| FormatError::Byte {
                offset: start,
                defect: format!(
                    "expected a number of samples whose time fits in 64 bits, found {count}"
                ),
            })?;
            let depth = stack.len();
            all.samples.push(CpuSample { values, depth });
            budget.grow(size_of::<CpuSample>(), || all.memory())?;
        }
        Ok(all)
    }

    /// Returns the number of bytes that the samples take.
    fn memory(&self) -> u64 {
        let addresses = self.addresses.capacity() * size_of::<u64>();
        let samples = self.samples.capacity() * size_of::<CpuSample>();
        (addresses + samples) as u64
    }

    /// Turns return addresses into addresses inside the calls. The leaf is not a call.
    pub(super) fn move_to_calls(&mut self) {
        let mut rest = &mut self.addresses[..];
        for sample in &self.samples {
            let (stack, tail) = rest.split_at_mut(sample.depth);
            for address in stack.iter_mut().skip(1) {
                *address = address.wrapping_sub(1);
            }
            rest = tail;
        }
    }

    /// Removes the frames of the signal handler, which unwinding finds between the leaf and its
    /// caller. They are the frames that nearly all stacks have at this place.
    pub(super) fn remove_handler_frames(&mut self) {
        for _ in 0..MAX_HANDLER_FRAMES {
            let Some(handler) = self.handler_frame() else {
                // Another search would find the same.
                return;
            };
            let (mut from, mut to) = (0, 0);
            for sample in &mut self.samples {
                let end = from + sample.depth;
                let is_handled = sample.depth > 1 && self.addresses[from + 1] == handler;
                if is_handled {
                    self.addresses[to] = self.addresses[from];
                    (from, to) = (from + 2, to + 1);
                }
                self.addresses.copy_within(from..end, to);
                to += end - from;
                from = end;
                sample.depth -= usize::from(is_handled);
            }
            self.addresses.truncate(to);
        }
    }

    /// Returns the address that nearly all stacks have below their leaf.
    fn handler_frame(&self) -> Option<u64> {
        let mut stacks_with: HashMap<u64, usize> = HashMap::new();
        for stack in self.stacks() {
            if let Some(&below) = stack.get(1) {
                *stacks_with.entry(below).or_default() += 1;
            }
        }
        let all = self.samples.len();
        let least = all - all / STACKS_PER_EXCEPTION;
        let found = stacks_with.into_iter().find(|&(_, stacks)| stacks >= least);
        found.map(|(address, _)| address)
    }

    fn stacks(&self) -> impl Iterator<Item = &[u64]> {
        let mut rest = &self.addresses[..];
        self.samples.iter().map(move |sample| {
            let (stack, tail) = rest.split_at(sample.depth);
            rest = tail;
            stack
        })
    }

    /// Adds the samples to a profile.
    pub(super) fn put_into(
        &self,
        builder: &mut ProfileBuilder,
        locations: &mut AddressLocations,
        kind: CpuProfileKind,
    ) -> Result<(), FormatError> {
        let labels = builder.label_set(&mut []);
        let profile = &mut builder.profile;
        for (sample, addresses) in self.samples.iter().zip(self.stacks()) {
            let mut stack: Vec<LocationIndex> = Vec::with_capacity(addresses.len());
            for &address in addresses {
                stack.push(locations.get(profile, address)?);
            }
            if kind == CpuProfileKind::Native && stacks::has_leaf_twice(addresses) {
                stack.remove(1);
            }
            locations.count_sample(stack.len(), || profile.memory() + self.memory())?;
            profile.samples.push(stack, &sample.values, labels);
        }
        Ok(())
    }
}
