//! The callers and callees of each entity, with their sums.
//!
//! Each sample counts once for an entity, as in `cum`. Under recursion, the caller is the caller of
//! the outermost frame, and the callee is the callee of the innermost frame. So the callers' values
//! add up to `cum`, and the callees' values together with `flat` do, too.
//!
//! A large profile has millions of pairs of an entity and a neighbour. The pairs are processed for
//! one group of entities after the other: the pairs of each entity are stored next to each other,
//! then added up. So memory stays small, and no search is needed.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use heapprof_profile::Profile;

use crate::view::ProfileView;

/// The relation of a neighbour to an entity: caller or callee.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeighbourSide {
    /// The neighbour called the entity.
    Caller,
    /// The entity called the neighbour.
    Callee,
}

/// Stands for no neighbour: the missing caller of a stack's root, or the missing callee of a
/// stack's leaf.
pub const NO_NEIGHBOUR: u32 = u32::MAX;

/// Approximate number of passes over the samples in which all pairs are processed.
const TARGET_WALKS: usize = 4;

/// Minimum number of pairs that a pass over the samples processes, if there are that many. Fewer
/// pairs are not worth another pass.
const MIN_PAIRS_PER_WALK: usize = 1 << 16;

/// Sums by entity, side and neighbour, in this order.
#[derive(Debug, Default)]
pub struct NeighbourSums {
    /// The ends of the lists of neighbours. The callers of entity `e` end at `end[2 * e]`, and its
    /// callees at `end[2 * e + 1]`.
    end: Vec<usize>,
    neighbour: Vec<u32>,
    value: Vec<i64>,
    /// The result of the last call of `list`.
    last: AtomicUsize,
}

impl NeighbourSums {
    /// Returns the number of neighbours of all entities.
    #[expect(clippy::len_without_is_empty, reason = "nobody asks whether it is")]
    pub fn len(&self) -> usize {
        self.value.len()
    }

    /// Returns the positions of an entity's neighbours.
    pub fn range_of(&self, entity: usize) -> Range<usize> {
        match self.end.get(2 * entity + 1) {
            Some(&end) => entity.checked_sub(1).map_or(0, |e| self.end[2 * e + 1])..end,
            None => 0..0,
        }
    }

    /// Returns the number of the list that contains a position. Even numbers are lists of callers,
    /// and odd ones are lists of callees.
    fn list(&self, at: usize) -> usize {
        // Positions are read one after the other, so the list is mostly the last one again.
        let last = self.last.load(Ordering::Relaxed);
        let start = last.checked_sub(1).map_or(0, |before| self.end[before]);
        if (start..self.end[last]).contains(&at) {
            return last;
        }
        let list = self.end.partition_point(|&end| end <= at);
        self.last.store(list, Ordering::Relaxed);
        list
    }

    /// Returns the entity whose neighbour is at a position.
    pub fn entity(&self, at: usize) -> u32 {
        self.list(at) as u32 / 2
    }

    /// Returns the side of the neighbour at a position.
    pub fn side(&self, at: usize) -> NeighbourSide {
        match self.list(at) % 2 {
            0 => NeighbourSide::Caller,
            _ => NeighbourSide::Callee,
        }
    }

    /// Returns the neighbour at a position, or [`NO_NEIGHBOUR`].
    pub fn neighbour(&self, at: usize) -> u32 {
        self.neighbour[at]
    }

    /// Returns the sum of the neighbour at a position.
    pub fn value(&self, at: usize) -> i64 {
        self.value[at]
    }
}

/// Returns the neighbours of the entities for which `wanted` is true, with sums of one column of
/// the samples.
pub fn neighbours(
    profile: &Profile,
    view: &ProfileView,
    entity_of: &[u32],
    wanted: &[bool],
    column: usize,
) -> NeighbourSums {
    let mut walk = NeighbourWalk {
        profile,
        view,
        entity_of,
        column,
        stack: Vec::new(),
        found: Vec::new(),
        place: vec![0; wanted.len()],
    };
    // The number of samples that hold each entity.
    let mut samples = vec![0usize; wanted.len()];
    walk.each(wanted, |entity, _, _, _| samples[entity as usize] += 1);
    let all: usize = samples.iter().sum();
    let most = (all / TARGET_WALKS).max(MIN_PAIRS_PER_WALK);
    let mut result = NeighbourSums::default();
    let mut adder = NeighbourAdder::new(wanted.len());
    let mut start = 0;
    while start < wanted.len() {
        // A walk takes as many entities as fit, but at least one.
        let (mut end, mut pairs) = (start, 0);
        while end < wanted.len() && (end == start || pairs + samples[end] <= most) {
            pairs += samples[end];
            end += 1;
        }
        let mut of: Vec<bool> = vec![false; wanted.len()];
        of[start..end].copy_from_slice(&wanted[start..end]);
        // The samples of an entity stand together. `next` holds the place for the next sample of
        // each entity.
        let mut next = Vec::with_capacity(end - start);
        let mut filled = 0;
        for count in &samples[start..end] {
            next.push(filled);
            filled += count;
        }
        let mut sides = [vec![0u32; pairs], vec![0u32; pairs]];
        let mut values = vec![0i64; pairs];
        walk.each(&of, |entity, caller, callee, value| {
            let next = &mut next[entity as usize - start];
            (sides[0][*next], sides[1][*next]) = (caller, callee);
            values[*next] = value;
            *next += 1;
        });
        let mut first = 0;
        for end in next {
            for side in &sides {
                adder.add(&side[first..end], &values[first..end], &mut result);
            }
            first = end;
        }
        start = end;
    }
    result
}

/// The samples of a profile, and the buffers for repeated passes over them.
struct NeighbourWalk<'a> {
    profile: &'a Profile,
    view: &'a ProfileView,
    entity_of: &'a [u32],
    column: usize,
    stack: Vec<u32>,
    /// The wanted entities of a stack, each with the positions of its innermost and outermost
    /// frames. `place` holds the index in this list for each entity, and is valid if the entry at
    /// this index names the entity.
    found: Vec<(u32, usize, usize)>,
    place: Vec<usize>,
}

impl NeighbourWalk<'_> {
    /// Calls the closure `each(entity, caller, callee, value)` for each wanted entity of each
    /// sample.
    fn each(&mut self, wanted: &[bool], mut each: impl FnMut(u32, u32, u32, i64)) {
        let Self {
            stack,
            found,
            place,
            ..
        } = self;
        let samples = &self.profile.samples;
        for i in 0..samples.len() {
            let value = samples.values(i)[self.column];
            if value == 0 || !self.view.stack(samples, i, stack) {
                continue;
            }
            found.clear();
            for (at, frame) in stack.iter_mut().enumerate() {
                let entity = self.entity_of[*frame as usize];
                *frame = entity;
                if !wanted[entity as usize] {
                    continue;
                }
                match found.get_mut(place[entity as usize]) {
                    Some(known) if known.0 == entity => known.2 = at,
                    _ => {
                        place[entity as usize] = found.len();
                        found.push((entity, at, at));
                    }
                }
            }
            for &(entity, innermost, outermost) in found.iter() {
                let callee = innermost
                    .checked_sub(1)
                    .map_or(NO_NEIGHBOUR, |below| stack[below]);
                let caller = stack.get(outermost + 1).copied().unwrap_or(NO_NEIGHBOUR);
                each(entity, caller, callee, value);
            }
        }
    }
}

/// Adds up the values of equal neighbours in a list.
struct NeighbourAdder {
    /// The sum of each neighbour. The last element is the sum of [`NO_NEIGHBOUR`].
    sum: Vec<i64>,
    /// The number of the last list that contained each neighbour.
    seen: Vec<usize>,
    list: usize,
    found: Vec<u32>,
}

impl NeighbourAdder {
    fn new(entities: usize) -> Self {
        Self {
            sum: vec![0; entities + 1],
            seen: vec![0; entities + 1],
            list: 0,
            found: Vec::new(),
        }
    }

    /// Adds up the values of one list and appends the sums to `result`.
    fn add(&mut self, neighbours: &[u32], values: &[i64], result: &mut NeighbourSums) {
        self.list += 1;
        self.found.clear();
        let nobody = self.sum.len() - 1;
        for (&neighbour, value) in neighbours.iter().zip(values) {
            let at = (neighbour as usize).min(nobody);
            if self.seen[at] != self.list {
                self.seen[at] = self.list;
                self.sum[at] = 0;
                self.found.push(neighbour);
            }
            self.sum[at] += value;
        }
        self.found.sort_unstable();
        for &neighbour in &self.found {
            result.neighbour.push(neighbour);
            result
                .value
                .push(self.sum[(neighbour as usize).min(nobody)]);
        }
        result.end.push(result.value.len());
    }
}
