//! Reads stacks one after the other. Most stacks share their oldest frames with the previous stack,
//! and these frames are not read again.

use heapprof_abi::{MappingGeneration, StackNumber};

use super::ProcessStacks;

/// The stack that was read last, and the chain of its bases.
#[derive(Default)]
pub(crate) struct ExpandedStack {
    /// The stack's frames, oldest first.
    frames: Vec<u64>,
    /// The stack and its bases. Each entry also has the number of oldest frames of the base that
    /// belong to the stack. The base nearest to the root comes first.
    chain: Vec<(StackNumber, usize)>,
    /// The entries that the next stack adds to `chain`, the newest first. The field `newer` has the
    /// frames that the next stack adds to `frames`, the newest first.
    links: Vec<(StackNumber, usize)>,
    newer: Vec<u64>,
}

impl ExpandedStack {
    /// Returns the frames of the stack that was read last, oldest first.
    pub(crate) fn frames(&self) -> &[u64] {
        &self.frames
    }

    /// Reads a stack. Returns its generation of mappings, and the number of oldest frames that it
    /// shares with the previous stack.
    pub(crate) fn read(
        &mut self,
        stacks: &ProcessStacks,
        number: StackNumber,
    ) -> (MappingGeneration, usize) {
        let (mut number, mut entry) = (number, stacks.entry(number));
        let generation = entry.generation;
        let mut wanted = usize::from(entry.frames);
        let known = loop {
            // A stack is built on one with a lower number, so a higher number cannot follow.
            while self.chain.last().is_some_and(|last| last.0 > number) {
                self.chain.pop();
            }
            let here = self.chain.pop_if(|last| last.0 == number);
            self.links.push((number, wanted));
            let known = here.map_or(0, |(_, has)| has.min(wanted));
            let from_base = usize::from(entry.from_base);
            // The last of its own frames is next to the base's.
            let own = wanted - from_base.max(known);
            let skipped = usize::from(entry.frames) - wanted;
            self.newer.extend(&entry.own()[skipped..skipped + own]);
            if here.is_some() || from_base == 0 {
                break known;
            }
            (number, wanted) = (entry.base, from_base);
            entry = stacks.entry(number);
        };
        if known == 0 {
            self.chain.clear();
        }
        self.chain.extend(self.links.drain(..).rev());
        (generation, self.go_on(known))
    }

    /// Replaces the stack by a stack without a number, which has only the frame `frame`. Returns
    /// the number of frames that it shares with the previous stack, 0 or 1.
    pub(crate) fn set(&mut self, frame: u64) -> usize {
        self.chain.clear();
        self.newer.push(frame);
        self.go_on(0)
    }

    /// Replaces all frames except the `known` oldest ones by the frames in the field `newer`.
    /// Returns the number of unchanged oldest frames.
    fn go_on(&mut self, known: usize) -> usize {
        let newer = self.newer.iter().rev();
        let pairs = newer.zip(&self.frames[known..]);
        let same = known + pairs.take_while(|(a, b)| a == b).count();
        self.frames.truncate(same);
        self.newer.truncate(self.newer.len() - (same - known));
        self.frames.extend(self.newer.drain(..).rev());
        same
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::EngineProcess;
    use crate::tables::stacks::NewStack;
    use heapprof_platform::pages::regions::region;

    /// Tests that a stack has the same frames whichever stack was read before it. Also tests that
    /// the returned number is the number of frames that both stacks share.
    #[test]
    fn each_stack_is_read_as_by_itself_after_any_other() {
        let (process, stacks) = (EngineProcess::new(region()), ProcessStacks::new());
        let generation = |number: usize| MappingGeneration::from_u32(number as u32 / 100);
        let mut random = 1u64;
        let mut below = |n: usize| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 33) as usize % n
        };
        let mut all: Vec<Vec<u64>> = Vec::new();
        for i in 0..300 {
            // The stack has a part of an earlier one, and some more frames.
            let base = (i > 0).then(|| below(i));
            let shared = base.map_or(0, |base| below(all[base].len() + 1));
            let mut frames = base.map_or(Vec::new(), |base| all[base][..shared].to_vec());
            frames.extend((0..below(5)).map(|_| 1 + below(3) as u64));
            let base = base.map(|base| (StackNumber::from_index(base), shared));
            let stack = NewStack::based_on(base, &frames);
            let id = stacks.find_or_insert(&process, 10 + i as u64, generation(i), stack);
            assert_eq!(id, Some(StackNumber::from_index(i)));
            all.push(frames);
        }
        let mut expanded = ExpandedStack::default();
        let mut last: Vec<u64> = Vec::new();
        let in_order: Vec<usize> = (0..all.len()).collect();
        let anyhow: Vec<usize> = (0..3000).map(|_| below(all.len())).collect();
        for (step, id) in in_order.into_iter().chain(anyhow).enumerate() {
            if step % 50 == 49 {
                let same = expanded.set(2);
                assert_eq!(same, usize::from(last.first() == Some(&2)));
                last = vec![2];
            }
            let (found, same) = expanded.read(&stacks, StackNumber::from_index(id));
            assert_eq!(expanded.frames(), &all[id][..], "step {step}");
            assert_eq!(found, generation(id));
            let pairs = last.iter().zip(&all[id]);
            let expected = pairs.take_while(|(a, b)| a == b).count();
            assert_eq!(same, expected, "step {step}");
            last.clone_from(&all[id]);
        }
    }
}
