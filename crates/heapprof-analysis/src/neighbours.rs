//! Who calls an entity and whom it calls.
//!
//! Each sample counts once an entity, as in `cum`: under recursion the caller is that of the outermost
//! frame and the callee that of the innermost. So the callers' values add up to `cum`, and so do the
//! callees' with `flat`.

use foldhash::{HashMap, HashMapExt};
use heapprof_profile::Profile;

use crate::view::View;

/// Which way a neighbour lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Side {
    Caller,
    Callee,
}

/// No neighbour: the entity is the root of the stack (as a caller), or its leaf (as a callee).
pub(crate) const NOBODY: u32 = u32::MAX;

/// Sums by entity, side and neighbour, ordered.
pub(crate) type Neighbours = Vec<(u32, Side, u32, i64)>;

/// The neighbours of the entities in `wanted`, for one column of a profile's samples.
pub(crate) fn neighbours(
    profile: &Profile,
    view: &View,
    entity_of: &[u32],
    wanted: &[bool],
    column: usize,
) -> Neighbours {
    let mut sums: HashMap<(u32, Side, u32), i64> = HashMap::new();
    let mut stack = Vec::new();
    // The wanted entities of a stack, each with its innermost and its outermost frame; and for each
    // entity where in that list it is, valid when the entry names it.
    let mut found: Vec<(u32, usize, usize)> = Vec::new();
    let mut place = vec![0usize; wanted.len()];
    for i in 0..profile.samples.len() {
        let value = profile.samples.values(i)[column];
        if value == 0 || !view.stack(&profile.samples, i, &mut stack) {
            continue;
        }
        found.clear();
        for (at, frame) in stack.iter_mut().enumerate() {
            let entity = entity_of[*frame as usize];
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
        for &(entity, innermost, outermost) in &found {
            let callee = innermost
                .checked_sub(1)
                .map_or(NOBODY, |below| stack[below]);
            let caller = stack.get(outermost + 1).copied().unwrap_or(NOBODY);
            *sums.entry((entity, Side::Callee, callee)).or_default() += value;
            *sums.entry((entity, Side::Caller, caller)).or_default() += value;
        }
    }
    let mut all: Neighbours = sums
        .into_iter()
        .map(|((e, side, n), v)| (e, side, n, v))
        .collect();
    all.sort_unstable();
    all
}
