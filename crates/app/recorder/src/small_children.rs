//! Leaves out children that held few bytes besides inherited ones.

use std::collections::{HashMap, HashSet};

use crate::files;
use crate::profile_entries::{SmallChild, WrittenProfile};

/// Minimum number of bytes that a child must have held to keep its profile. Inherited bytes do not
/// count.
pub const MIN_OWN_BYTES: i64 = 64 << 10;

/// Removes the profiles of children that held few bytes besides inherited ones. The processes in
/// `kept` keep their profiles. Returns how many children are left out, including small ones that
/// wrote no profile.
pub(crate) fn leave_out(
    written: &mut Vec<WrittenProfile>,
    wrote_none: &[SmallChild],
    kept: [u32; 2],
    least: i64,
) -> usize {
    let mut most = HashMap::<u32, i64>::new();
    for one in &*written {
        let own = most.entry(one.process).or_default();
        *own = (*own).max(one.own);
    }
    // A profile from before a shell became the program that it started is of no interest either.
    let is_small = |one: &WrittenProfile| {
        let (own, before) = (most[&one.process], one.is_before_exec);
        // What a process held after it installed a filter was not seen and is not known.
        let is_known = !one.is_before_filter;
        is_known && !kept.contains(&one.process) && (own < least || before && one.own < least)
    };
    let (small, large) = std::mem::take(written).into_iter().partition(is_small);
    *written = large;
    let small: Vec<WrittenProfile> = small;
    files::remove(&small.iter().collect::<Vec<_>>());
    let has_profile: HashSet<u32> = written.iter().map(|one| one.process).collect();
    let is_gone = |process: &u32| !has_profile.contains(process);
    let silent: Vec<u32> = distinct_processes(wrote_none).filter(is_gone).collect();
    let mut removed: HashSet<u32> = small
        .iter()
        .map(|one| one.process)
        .filter(is_gone)
        .collect();
    for process in &silent {
        removed.remove(process);
    }
    silent.len() + removed.len()
}

/// Returns the process ids of small children that wrote no profile. A child is returned once, even
/// if it became other programs by exec. A process id is returned twice if two children had it, one
/// after the other.
pub(crate) fn distinct_processes(small: &[SmallChild]) -> impl Iterator<Item = u32> {
    let mut goes_on = HashSet::new();
    let is_new = move |one: &&SmallChild| {
        let was_there = goes_on.remove(&one.process);
        if one.is_before_exec {
            goes_on.insert(one.process);
        }
        !was_there
    };
    small.iter().filter(is_new).map(|one| one.process)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_one_whatever_it_became() {
        let small = |process, is_before_exec| SmallChild {
            process,
            is_before_exec,
        };
        let said = [
            small(7, true),
            small(8, false),
            small(7, true),
            small(7, false),
            // The kernel gave the number to another process.
            small(7, true),
            small(9, true),
        ];
        assert_eq!(distinct_processes(&said).collect::<Vec<_>>(), [7, 8, 7, 9]);
    }
}
