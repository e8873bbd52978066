//! The distinct stacks of samples, for the rows of `sample`, `frame` and `stack_function`.
//!
//! Stacks are numbered in the order of their texts, so that the numbers depend on the content
//! alone.

use std::hash::BuildHasher;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use heapprof_totals::call_tree::EntityStacks;

/// Distinct stacks of entities, each with its leaf first.
#[derive(Default)]
pub(crate) struct StackTable {
    entity: Vec<u32>,
    end: Vec<usize>,
    /// The stack of the frame that was located last.
    last: AtomicUsize,
    distinct: OnceLock<(Vec<usize>, Vec<usize>)>,
}

impl StackTable {
    pub(crate) fn len(&self) -> usize {
        self.end.len()
    }

    pub(crate) fn get(&self, stack: usize) -> &[u32] {
        let start = if stack == 0 { 0 } else { self.end[stack - 1] };
        &self.entity[start..self.end[stack]]
    }

    /// Returns the number of frames of all stacks.
    pub(crate) fn frames(&self) -> usize {
        self.entity.len()
    }

    /// Returns the stack of a frame and the frame's position in it. `frame` is counted over all
    /// stacks.
    pub(crate) fn locate(&self, frame: usize) -> (usize, usize) {
        // Frames are read one after the other, so the stack is mostly the last one again, or the
        // next one.
        let last = self.last.load(Ordering::Relaxed);
        let mut near = [last, last + 1].into_iter().filter(|&s| s < self.len());
        let stack = near
            .find(|&stack| self.range(stack).contains(&frame))
            .unwrap_or_else(|| self.end.partition_point(|&end| end <= frame));
        self.last.store(stack, Ordering::Relaxed);
        (stack, frame - self.range(stack).start)
    }

    /// Returns the frames of a stack, counted over all stacks.
    pub(crate) fn range(&self, stack: usize) -> std::ops::Range<usize> {
        let start = if stack == 0 { 0 } else { self.end[stack - 1] };
        start..self.end[stack]
    }

    /// Returns the frames of each stack, with each entity once. If an entity has several frames in
    /// a stack, the frame nearest to the leaf is taken. The first list has the numbers of the
    /// frames, counted over all stacks. The second list has, for each stack, its end in the first
    /// list.
    pub(crate) fn distinct(&self) -> &(Vec<usize>, Vec<usize>) {
        self.distinct.get_or_init(|| {
            let (mut frames, mut ends) = (Vec::new(), Vec::new());
            let entities = self
                .entity
                .iter()
                .max()
                .map_or(0, |&most| most as usize + 1);
            // `seen` holds, for each entity, the number of the last stack that held it, counted
            // from 1.
            let mut seen = vec![0; entities];
            for stack in 0..self.len() {
                for at in self.range(stack) {
                    let last = &mut seen[self.entity[at] as usize];
                    if *last != stack + 1 {
                        *last = stack + 1;
                        frames.push(at);
                    }
                }
                ends.push(frames.len());
            }
            (frames, ends)
        })
    }

    /// Makes the table of the distinct stacks of `all`. Also returns the number of each sample's
    /// stack in the table.
    pub(crate) fn new(all: &EntityStacks, rank: &[u32]) -> (Self, Vec<u32>) {
        let hasher = RandomState::default();
        let mut index: HashTable<u32> = HashTable::new();
        // `first` has the first sample with each distinct stack, and `of` has the distinct stack of
        // each sample.
        let mut first: Vec<u32> = Vec::new();
        let mut of = Vec::with_capacity(all.len());
        for i in 0..all.len() {
            let stack = all.get(i);
            let hash = hasher.hash_one(stack);
            let same = |&n: &u32| all.get(first[n as usize] as usize) == stack;
            let n = match index.find(hash, same) {
                Some(&n) => n,
                None => {
                    let n = first.len() as u32;
                    first.push(i as u32);
                    index.insert_unique(hash, n, |&n| {
                        hasher.hash_one(all.get(first[n as usize] as usize))
                    });
                    n
                }
            };
            of.push(n);
        }
        let mut order: Vec<u32> = (0..first.len() as u32).collect();
        let ranks = |n: u32| {
            all.get(first[n as usize] as usize)
                .iter()
                .rev()
                .map(|&e| rank[e as usize])
        };
        order.sort_by(|&a, &b| ranks(a).cmp(ranks(b)));
        let mut number = vec![0; order.len()];
        let mut table = Self::default();
        for (at, &n) in order.iter().enumerate() {
            number[n as usize] = at as u32;
            table
                .entity
                .extend_from_slice(all.get(first[n as usize] as usize));
            table.end.push(table.entity.len());
        }
        for n in &mut of {
            *n = number[*n as usize];
        }
        (table, of)
    }
}
