//! Tests that the comparison agrees with a whole walk, whatever changes in the thread's frames.

use std::collections::BTreeMap;
use std::vec::Vec;

use super::*;
use crate::frame::PythonFrame;
use crate::interpreter::PythonRuntime;
use crate::last::{FramePlaceWriter, LastPythonStack};
use crate::layout::{HASH_OFFSET, LAYOUTS};
use crate::walk::{MAX_FRAMES_PER_END, PythonFrameSink};

/// A memory that has words at certain addresses. Other addresses can't be read.
#[derive(Clone, Copy)]
struct Words<'a>(&'a BTreeMap<u64, u64>);

impl Memory for Words<'_> {
    fn read(self, at: u64, to: &mut [u8]) -> bool {
        to.iter_mut().zip(at..).all(|(to, at)| {
            let word = self.0.get(&(at & !7));
            word.map(|word| *to = word.to_ne_bytes()[at as usize % 8])
                .is_some()
        })
    }
}

/// Frames that were written, the innermost one first.
struct FrameList<'a>(&'a mut Vec<PythonFrame>);

impl FramePlaceWriter for FrameList<'_> {
    fn write(&mut self, place: usize, frame: PythonFrame) {
        self.0
            .resize(self.0.len().max(place + 1), PythonFrame::default());
        self.0[place] = frame;
    }
}

/// Walks a stack, and compares it with the last stack, whose frames are `known`. Returns all frames
/// of the stack: new frames that were written, and unchanged frames from `known`.
fn compared(
    python: &PythonRuntime,
    words: &BTreeMap<u64, u64>,
    last: &mut LastPythonStack,
    known: &[PythonFrame],
) -> Option<Vec<PythonFrame>> {
    let mut written = Vec::new();
    let mut to = last.compare(FrameList(&mut written));
    let walked = python.walk(Words(words), STATE, false, &mut to);
    let shared = to.finish(walked);
    // Of a deeper stack both ends are written, not in order.
    let walked = walked.filter(|walked| walked.frames <= 2 * MAX_FRAMES_PER_END);
    written.truncate(walked?.frames - shared);
    written.extend_from_slice(&known[known.len() - shared..]);
    assert_eq!(written.len(), walked?.frames);
    Some(written)
}

struct All(Vec<(u64, PythonFrame)>);

impl PythonFrameSink for All {
    fn put(&mut self, _: usize, at: u64, frame: PythonFrame) -> bool {
        self.0.push((at, frame));
        false
    }
}

const STATE: u64 = 0x10_0000;

fn put<const N: usize>(words: &mut BTreeMap<u64, u64>, at: u64, bytes: [u8; N]) {
    for (byte, at) in bytes.into_iter().zip(at..) {
        let word = words.entry(at & !7).or_default();
        let mut all = word.to_ne_bytes();
        all[at as usize % 8] = byte;
        *word = u64::from_ne_bytes(all);
    }
}

/// Makes the memory of a thread with these frames, the innermost one first. Each frame is given by
/// its code and its owner.
fn thread(layout: &PythonLayout, frames: &[(u64, u8)]) -> BTreeMap<u64, u64> {
    let mut words = BTreeMap::new();
    let all = &mut words;
    let place = |i: usize| 0x20_0000 + 0x200 * i as u64;
    let outer = |i: u64| 0x50_0000 + 0x40 * i;
    for code in 0..4 {
        let (at, name) = (0x30_0000 + 0x400 * code, 0x40_0000 + 0x100 * code);
        put(all, at + 88, [0; 32]);
        let file = if code == 3 { name } else { 0x48_0000 };
        put(all, at + u64::from(layout.filename), file.to_ne_bytes());
        put(all, at + u64::from(layout.name), name.to_ne_bytes());
        put(
            all,
            at + u64::from(layout.line_table),
            (7 * code).to_ne_bytes(),
        );
        put(
            all,
            at + u64::from(layout.first_line),
            (code as u32).to_ne_bytes(),
        );
        if let Some(version) = layout.version {
            put(
                all,
                at + u64::from(version),
                (code as u32 + 9).to_ne_bytes(),
            );
        }
        put(
            all,
            name + HASH_OFFSET,
            (code * 0x1_2345_6789).to_ne_bytes(),
        );
    }
    let mut entries = 0;
    for (i, &(code, owner)) in frames.iter().enumerate() {
        let previous = if i + 1 < frames.len() {
            place(i + 1)
        } else {
            0
        };
        let code = 0x30_0000 + 0x400 * code;
        put(
            all,
            place(i) + u64::from(layout.previous),
            previous.to_ne_bytes(),
        );
        put(all, place(i) + u64::from(layout.code), code.to_ne_bytes());
        put(
            all,
            place(i) + u64::from(layout.instruction),
            (code + i as u64).to_ne_bytes(),
        );
        if layout.chain != FrameChain::Objects {
            put(all, place(i) + u64::from(layout.owner), [owner]);
        }
        if owner != 0 {
            put(
                all,
                outer(entries) + OUTER_OFFSET,
                outer(entries + 1).to_ne_bytes(),
            );
            entries += 1;
        }
    }
    put(all, outer(entries) + OUTER_OFFSET, [0; 8]);
    let newest = match layout.chain {
        FrameChain::Objects | FrameChain::Direct => place(0),
        FrameChain::Entries | FrameChain::Shims => outer(0),
    };
    put(all, STATE + layout.newest, newest.to_ne_bytes());
    put(all, outer(0) + layout.newest_in, place(0).to_ne_bytes());
    words
}

/// Tests that the comparison agrees with a whole walk, whichever word changes.
#[test]
fn every_word_counts() {
    let stacks = [
        &[(0, 0)][..],
        &[(1, 0), (0, 3)],
        &[(2, 0), (1, 3), (1, 0), (0, 0), (2, 3)],
        &[(0, 3), (1, 0), (3, 0), (2, 0), (1, 3), (0, 0)],
        &[(1, 0), (3, 0), (0, 3), (1, 3), (2, 1), (0, 0), (0, 3)],
    ];
    for (layout, stack) in LAYOUTS
        .iter()
        .flat_map(|l| stacks.iter().map(move |s| (l, s)))
    {
        let what = (layout.minor, stack);
        let (python, words) = (PythonRuntime::with_layout(layout), thread(layout, stack));
        let walk = |words: &BTreeMap<u64, u64>| {
            let mut all = All(Vec::new());
            python
                .walk(Words(words), STATE, false, &mut all)
                .map(|walked| (walked, all.0))
        };
        let before = walk(&words);
        let mut last = LastPythonStack::new();
        let known = compared(&python, &words, &mut last, &[]).unwrap();
        assert!(python.is_unchanged(Words(&words), STATE, &last), "{what:?}");
        let (mut same, mut changed) = (0, 0);
        for (&at, &word) in &words {
            for other in [0, word + 1, word ^ 0x400, word ^ 1 << 35] {
                let mut words = words.clone();
                words.insert(at, other);
                let is_same = walk(&words) == before;
                let said = python.is_unchanged(Words(&words), STATE, &last);
                assert_eq!(said, is_same, "{what:?}: {at:x} {word:x} {other:x}");
                let whole =
                    walk(&words).filter(|(walked, _)| walked.frames <= 2 * MAX_FRAMES_PER_END);
                let whole = whole.map(|(_, all)| all.iter().map(|f| f.1).collect());
                let by_parts = compared(&python, &words, &mut last.clone(), &known);
                assert_eq!(by_parts, whole, "{what:?}: {at:x} {word:x} {other:x}");
                *(if said { &mut same } else { &mut changed }) += 1;
            }
        }
        assert!(same > 10 && changed > 10, "{what:?}: {same} {changed}");
        last.forget();
        assert!(
            !python.is_unchanged(Words(&words), STATE, &last),
            "{what:?}"
        );
    }
}
