//! The values of single addresses, for reports about instructions.

use std::collections::{BTreeMap, HashSet};
use std::ops::AddAssign;

use crate::jeprof::stacks::JeprofStacks;

/// The values of an address, of an instruction, or of a source line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CodeValues {
    pub(super) flat: i128,
    pub(super) cum: i128,
}

impl AddAssign for CodeValues {
    fn add_assign(&mut self, other: Self) {
        self.flat += other.flat;
        self.cum += other.cum;
    }
}

/// The values of all addresses in stacks.
#[derive(Debug, Default)]
pub(super) struct AddressValues {
    of_address: BTreeMap<u64, CodeValues>,
    /// The sum of all stacks with an address.
    pub(super) total: i128,
}

impl AddressValues {
    /// Adds up a sample type by address. An address counts once for each stack.
    pub(super) fn new(stacks: &JeprofStacks, column: usize) -> Self {
        let mut values = Self::default();
        let profile = &stacks.profile;
        let mut seen = HashSet::new();
        for i in 0..profile.samples.len() {
            let sample = profile.samples.values(i);
            let value = i128::from(sample.get(column).copied().unwrap_or_default());
            let locations = profile.samples.stack(i).iter();
            let addresses = locations
                .filter_map(|l| profile.location.get(l.index()))
                .map(|location| location.address)
                // As in rows, addresses in the upper half come from damaged stacks.
                .filter(|&address| i64::try_from(address).is_ok());
            seen.clear();
            for address in addresses {
                if seen.is_empty() {
                    values.of_address.entry(address).or_default().flat += value;
                    values.total += value;
                }
                if seen.insert(address) {
                    values.of_address.entry(address).or_default().cum += value;
                }
            }
        }
        values
    }

    /// Whether an address in this range is in a stack.
    pub(super) fn has_any(&self, begin: u64, end: u64) -> bool {
        begin < end && self.of_address.range(begin..end).next().is_some()
    }

    /// Returns the sum of the addresses in this range.
    pub(super) fn sum(&self, begin: u64, end: u64) -> CodeValues {
        let mut sum = CodeValues::default();
        if begin < end {
            for (_, &values) in self.of_address.range(begin..end) {
                sum += values;
            }
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jeprof::names::NameShortener;
    use crate::jeprof::tool::PerlTool;
    use heapprof_profile::{LabelSetIndex, ProfileBuilder};

    #[test]
    fn an_address_counts_once_for_a_stack() {
        let mut builder = ProfileBuilder::new(&[("space", "bytes")]);
        let mut place = |address| builder.location(None, address, false, &[]);
        let (a, b, kernel) = (place(0x10), place(0x20), place(u64::MAX));
        let samples = &mut builder.profile.samples;
        samples.push([a, b, a], &[5], LabelSetIndex(0));
        samples.push([kernel, b], &[2], LabelSetIndex(0));
        samples.push([kernel], &[1], LabelSetIndex(0));
        let names = NameShortener::new(false).unwrap();
        let stacks = JeprofStacks::new(builder.finish(), PerlTool::Jeprof, &names);
        let values = AddressValues::new(&stacks, 0);
        assert_eq!(values.total, 7);
        for (begin, end, flat, cum) in [
            (0x10, 0x11, 5, 5),
            (0x20, 0x21, 2, 7),
            (0x0f, 0x30, 7, 12),
            (0x11, 0x20, 0, 0),
            (0x30, 0x10, 0, 0),
        ] {
            assert_eq!(values.sum(begin, end), CodeValues { flat, cum });
            assert_eq!(values.has_any(begin, end), cum != 0);
        }
    }
}
