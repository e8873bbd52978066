//! Merges an interpreter's frames with the native frames of the same stack.

use heapprof_abi::FrameAddress;

use crate::stack::capture::{CUT, PlacedFrame};

/// Inserts an interpreter's frames into the native frames, where native code entered the
/// interpreter. `frames` has the entry and the word of each frame, innermost first. `native` and
/// the result are innermost first, too. The result begins with a label. Returns the number of
/// words.
///
/// A run is a group of an interpreter's frames, up to a frame that native code has entered. A run
/// replaces the native frame whose memory contains the run's entry. If the entry's address is not
/// known, the run replaces the next frame of the run loop.
pub(crate) fn merge_frames(
    label: u64,
    native: &[PlacedFrame],
    frames: impl Iterator<Item = (u64, u64)> + Clone,
    run_loop: std::ops::Range<u64>,
    to: &mut [u64],
) -> usize {
    let mut n = 0;
    let mut add = |word: u64| {
        if let Some(to) = to.get_mut(n) {
            *to = word;
            n += 1;
        }
    };
    add(label);
    let is_loop = |frame: &PlacedFrame| {
        let address = FrameAddress::from_word(frame.pc);
        run_loop.contains(&address.lookup_address())
    };
    // A frame's own memory lies between its callee's return address and its own, at which its
    // caller's memory begins.
    let holds = |i: usize, entry: u64| {
        let end = native.get(i + 1).map_or(0, |older| older.slot);
        native[i].pc != CUT && (native[i].slot..end).contains(&entry)
    };
    let last_loop = native.iter().rposition(is_loop);
    // Number of native frames that were added.
    let mut natives = 0;
    let (mut run, mut rest) = (frames.clone(), frames);
    let mut waiting = 0;
    while let Some((entry, _)) = rest.next() {
        waiting += 1;
        let is_outermost = rest.clone().next().is_none();
        if entry == 0 && !is_outermost {
            continue;
        }
        let found = match entry {
            0 | 1 => native[natives..].iter().position(is_loop),
            _ => (natives..native.len()).position(|i| holds(i, entry)),
        };
        // If a native frame was left out, its run is added with the next one.
        let Some(at) = found.map(|at| natives + at) else {
            continue;
        };
        for frame in &native[natives..at] {
            add(frame.pc);
        }
        natives = at + 1;
        // The last frame of the run loop is replaced by all frames that are left.
        let is_last = entry <= 1 && Some(at) == last_loop;
        let run = run.by_ref();
        run.take(if is_last { usize::MAX } else { waiting })
            .for_each(|(_, word)| add(word));
        if is_last {
            break;
        }
        waiting = 0;
    }
    for frame in &native[natives..] {
        add(frame.pc);
    }
    run.for_each(|(_, word)| add(word));
    n
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Merges native frames, each with its pc and its beginning, with an interpreter's frames, each
    /// with its word and its entry. The run loop's code is from 100 to 199.
    fn merge(native: &[(u64, u64)], frames: &[(u64, u64)]) -> Vec<u64> {
        let native: Vec<PlacedFrame> = native
            .iter()
            .map(|&(pc, slot)| PlacedFrame { pc, slot })
            .collect();
        let frames = frames.iter().map(|&(word, entry)| (entry, word));
        let mut to = [0; 32];
        let n = merge_frames(9, &native, frames, 100..200, &mut to);
        assert_eq!(to[0], 9);
        to[1..n].to_vec()
    }

    #[test]
    fn runs_stand_where_native_code_entered() {
        // A leaf, two frames of the run loop with a library's between them, and main.
        let native = [(10, 16), (150, 32), (20, 64), (160, 80), (30, 128)];
        type Case = (&'static [(u64, u64)], &'static [u64]);
        let table: [Case; 9] = [
            // Entries without a place: a run for each frame of the loop.
            (&[(1, 1), (2, 1)], &[10, 1, 20, 2, 30]),
            (&[(1, 0), (2, 1), (3, 0), (4, 1)], &[10, 1, 2, 20, 3, 4, 30]),
            // The last frame of the loop is replaced by all that is left.
            (&[(1, 1), (2, 1), (3, 1)], &[10, 1, 20, 2, 3, 30]),
            (&[(1, 0)], &[10, 1, 20, 160, 30]),
            // Entries with a place, whatever the pc is.
            (&[(1, 40), (2, 100)], &[10, 1, 20, 2, 30]),
            (&[(1, 0), (2, 70), (3, 100)], &[10, 150, 1, 2, 3, 30]),
            (&[(1, 20), (2, 0), (3, 40)], &[1, 2, 3, 20, 160, 30]),
            // An entry whose place is in no frame: its run is added with the next one, or last.
            (&[(1, 500), (2, 100)], &[10, 150, 20, 1, 2, 30]),
            (&[(1, 40), (2, 500)], &[10, 1, 20, 160, 30, 2]),
        ];
        for (frames, expected) in table {
            assert_eq!(merge(&native, frames), expected, "{frames:?}");
        }
        // The middle of the native stack was left out.
        let cut = [(10, 16), (CUT, 0), (160, 80), (30, 128)];
        assert_eq!(merge(&cut, &[(1, 60), (2, 100)]), [10, CUT, 1, 2, 30]);
        assert_eq!(merge(&[], &[(1, 1)]), [1]);
    }
}
