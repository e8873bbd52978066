//! Numbers the nodes of the tree of all stacks, from the root.
//!
//! Samples are grouped frame by frame, so that samples whose stacks begin alike are in one group. A
//! lookup of each frame in a table of all nodes took ten times as long for a million samples,
//! because such a table fits in no cache.

use super::Samples;

/// Implements [`Samples::number_stacks`].
pub(super) fn number<E>(
    samples: &Samples,
    locations: &[i64],
    mut number: impl FnMut(i64, i64, u64) -> Result<i64, E>,
) -> Result<Vec<i64>, E> {
    let mut stack_of = vec![0; samples.len()];
    let mut order: Vec<u32> = (0..samples.len() as u32).collect();
    let mut keyed: Vec<(i64, u32)> = Vec::new();
    // The groups of samples that are still to be divided. The samples of a group have a node in
    // common; a task holds their range in `order`.
    let mut tasks = vec![(0, order.len(), 0, 0)];
    while let Some((start, end, depth, node)) = tasks.pop() {
        let frame = |sample: u32| -> Option<i64> {
            let stack = samples.stack(sample as usize);
            let at = stack.len().checked_sub(depth + 1)?;
            Some(locations[stack[at].index()])
        };
        if let [alone] = order[start..end] {
            let rest = samples.stack(alone as usize).iter().rev().skip(depth);
            let mut node = node;
            for location in rest {
                node = number(node, locations[location.index()], 1)?;
            }
            stack_of[alone as usize] = node;
            continue;
        }
        keyed.clear();
        for &sample in &order[start..end] {
            match frame(sample) {
                Some(location) => keyed.push((location, sample)),
                None => stack_of[sample as usize] = node,
            }
        }
        keyed.sort_unstable();
        let mut at = start;
        for run in keyed.chunk_by(|a, b| a.0 == b.0) {
            let child = number(node, run[0].0, run.len() as u64)?;
            for (slot, &(_, sample)) in order[at..].iter_mut().zip(run) {
                *slot = sample;
            }
            tasks.push((at, at + run.len(), depth + 1, child));
            at += run.len();
        }
    }
    Ok(stack_of)
}

#[cfg(test)]
mod tests {
    use crate::{LabelSetIndex, LocationIndex, Samples};

    #[test]
    fn each_beginning_of_stacks_is_one_node() {
        let mut samples = Samples::new(0);
        // Stacks are leaf first. Locations 1 and 3 count as the same place.
        for stack in [
            &[2, 1, 0][..],
            &[2, 3, 0],
            &[1, 0],
            &[],
            &[0],
            &[2, 1, 0, 0],
        ] {
            let stack = stack.iter().map(|&l| LocationIndex(l));
            samples.push(stack, &[], LabelSetIndex(0));
        }
        let mut nodes = Vec::new();
        let stacks = samples.number_stacks(&[10, 11, 12, 11], |parent, location, frames| {
            nodes.push((parent, location, frames));
            Ok::<_, ()>(nodes.len() as i64)
        });
        let stacks = stacks.unwrap();
        let frames: u64 = nodes.iter().map(|n| n.2).sum();
        assert_eq!(frames as usize, samples.frames());
        // Collects the locations of a stack, from the leaf to the root.
        let up = |mut stack: i64| {
            let mut locations = Vec::new();
            while let Some(&(parent, location, _)) = nodes.get((stack - 1) as usize) {
                assert!(parent < stack);
                locations.push(location);
                stack = parent;
            }
            locations
        };
        let expected = [
            &[12, 11, 10][..],
            &[12, 11, 10],
            &[11, 10],
            &[],
            &[10],
            &[12, 11, 10, 10],
        ];
        let found: Vec<Vec<i64>> = stacks.iter().map(|&stack| up(stack)).collect();
        assert_eq!(found, expected);
        assert_eq!(nodes.len(), 6);
        assert_eq!(stacks[0], stacks[1]);
    }
}
