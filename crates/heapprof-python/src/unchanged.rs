//! Whether a thread's stack is still the one that was seen last: a walk that writes nothing.
//!
//! Most allocations come from where the one before came from. This walk takes the same fields as
//! [`walk`](crate::walk), compares each frame with the one that is expected there, and stops at the
//! first that differs.

use heapprof_memory::Memory;

use crate::interpreter::Python;
use crate::last::{Last, Seen};
use crate::layout::{Chain, Layout, OUTER};
use crate::walk::{MARK, known_version_of};

impl Python {
    /// Whether a walk of the thread with this state would give the stack that was remembered. False
    /// if something can't be read, or if no stack was remembered.
    #[inline(always)]
    pub fn is_unchanged<M: Memory>(&self, memory: M, state: u64, last: &Last) -> bool {
        let same = self.layout.as_constant(
            #[inline(always)]
            |layout| compare(memory, layout, state, last.seen()),
        );
        same.is_some()
    }
}

#[inline(always)]
fn compare<M: Memory>(memory: M, layout: &Layout, state: u64, last: &[Seen]) -> Option<()> {
    let newest = memory.u64(state + layout.newest)?;
    match layout.chain {
        Chain::Objects => objects(memory, layout, newest, last),
        Chain::Entries => {
            let at = memory.u64(newest + layout.newest_in)?;
            entries(memory, layout, at, newest, last)
        }
        Chain::Shims => shims(memory, layout, memory.u64(newest + layout.newest_in)?, last),
        Chain::Direct => shims(memory, layout, newest, last),
    }
}

/// Whether the frames from `at` on are these, and no others.
#[inline(always)]
pub(crate) fn objects<M: Memory>(
    memory: M,
    layout: &Layout,
    mut at: u64,
    last: &[Seen],
) -> Option<()> {
    for seen in last.iter().rev() {
        (at == seen.at).then_some(())?;
        let fields = [layout.previous, layout.code, layout.instruction];
        let [previous, code, place] = memory.known_fields(at, fields)?;
        let is_same = code == seen.frame.code && u64::from(place as u32) == seen.frame.place;
        is_same.then_some(())?;
        (known_version_of(memory, layout, code)? == seen.frame.version).then_some(())?;
        at = previous;
    }
    (at == 0 && !last.is_empty()).then_some(())
}

/// As [`objects`], where native code entered at `outer` for the first of the frames that it did.
#[inline(always)]
pub(crate) fn entries<M: Memory>(
    memory: M,
    layout: &Layout,
    mut at: u64,
    mut outer: u64,
    last: &[Seen],
) -> Option<()> {
    for seen in last.iter().rev() {
        (at == seen.at).then_some(())?;
        let fields = [
            layout.previous,
            layout.code,
            layout.instruction,
            layout.owner_word(),
        ];
        let [previous, code, place, owner] = memory.known_fields(at, fields)?;
        (code == seen.frame.code && place == seen.frame.place).then_some(())?;
        (known_version_of(memory, layout, code)? == seen.frame.version).then_some(())?;
        let mut entry = 0;
        if layout.owner_of(owner) != 0 {
            let next = memory.u64(outer + OUTER)?;
            (entry, outer) = if next == 0 { (1, outer) } else { (outer, next) };
        }
        (entry == seen.frame.entry).then_some(())?;
        at = previous;
    }
    (at == 0 && !last.is_empty()).then_some(())
}

/// As [`objects`].
#[inline(always)]
pub(crate) fn shims<M: Memory>(
    memory: M,
    layout: &Layout,
    mut at: u64,
    last: &[Seen],
) -> Option<()> {
    let mut left = last.iter().rev();
    let mut expected = left.next();
    // Where native code entered the evaluator for the frame before: as it is, if that has been seen
    // yet, and as it was.
    let (mut entry, mut known) = (0, None);
    // More links than this may be between few frames only if memory is overwritten.
    for _ in 0..=4 * last.len() {
        if at == 0 {
            return (expected.is_none() && known == Some(entry)).then_some(());
        }
        let fields = [
            layout.previous,
            layout.code,
            layout.instruction,
            layout.owner_word(),
        ];
        let [previous, code, place, owner] = memory.fields(at, fields)?;
        let owner = layout.owner_of(owner);
        if owner >= layout.shim {
            if owner == layout.shim && entry == 0 && known.is_some() {
                entry = at;
            }
        } else {
            let code = code & !MARK;
            let version = || {
                layout
                    .version
                    .and_then(|version| memory.u32(code + u64::from(version)))
            };
            match expected {
                Some(seen) if at == seen.at => {
                    let is_same = code == seen.frame.code && place == seen.frame.place;
                    (is_same && known.is_none_or(|known| entry == known)).then_some(())?;
                    (version()? == seen.frame.version).then_some(())?;
                    (entry, known) = (0, Some(seen.frame.entry));
                    expected = left.next();
                }
                _ => {
                    let [filename, name] = memory.fields(code, [layout.filename, layout.name])?;
                    (filename == name).then_some(())?;
                }
            }
        }
        at = previous;
    }
    None
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::vec::Vec;

    use super::*;
    use crate::last::Write;
    use crate::layout::{HASH, LAYOUTS};
    use crate::walk::{EACH_END, Frame, Frames};

    /// Words at addresses. Others can't be read.
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
    struct Written<'a>(&'a mut Vec<Frame>);

    impl Write for Written<'_> {
        fn write(&mut self, place: usize, frame: Frame) {
            self.0.resize(self.0.len().max(place + 1), Frame::default());
            self.0[place] = frame;
        }
    }

    /// The stack as it is compared with the last one, of which the frames are known that are not
    /// written again.
    fn compared(
        python: &Python,
        words: &BTreeMap<u64, u64>,
        last: &mut Last,
        known: &[Frame],
    ) -> Option<Vec<Frame>> {
        let mut written = Vec::new();
        let mut to = last.compare(Written(&mut written));
        let walked = python.walk(Words(words), STATE, false, &mut to);
        let shared = to.finish(walked);
        // Of a deeper one both ends are written, not in order.
        let walked = walked.filter(|walked| walked.frames <= 2 * EACH_END);
        written.truncate(walked?.frames - shared);
        written.extend_from_slice(&known[known.len() - shared..]);
        assert_eq!(written.len(), walked?.frames);
        Some(written)
    }

    struct All(Vec<(u64, Frame)>);

    impl Frames for All {
        fn put(&mut self, _: usize, at: u64, frame: Frame) -> bool {
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

    /// A thread with such frames, each given by its code and its owner, the innermost one first.
    fn thread(layout: &Layout, frames: &[(u64, u8)]) -> BTreeMap<u64, u64> {
        let mut words = BTreeMap::new();
        let all = &mut words;
        let place = |i: usize| 0x20_0000 + 0x200 * i as u64;
        let outer = |i: u64| 0x50_0000 + 0x40 * i;
        for code in 0..4 {
            let (at, name) = (0x30_0000 + 0x400 * code, 0x40_0000 + 0x100 * code);
            put(all, at + 88, [0; 16]);
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
            put(all, name + HASH, (code * 0x1_2345_6789).to_ne_bytes());
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
            if layout.chain != Chain::Objects {
                put(all, place(i) + u64::from(layout.owner), [owner]);
            }
            if owner != 0 {
                put(
                    all,
                    outer(entries) + OUTER,
                    outer(entries + 1).to_ne_bytes(),
                );
                entries += 1;
            }
        }
        put(all, outer(entries) + OUTER, [0; 8]);
        let newest = match layout.chain {
            Chain::Objects | Chain::Direct => place(0),
            Chain::Entries | Chain::Shims => outer(0),
        };
        put(all, STATE + layout.newest, newest.to_ne_bytes());
        put(all, outer(0) + layout.newest_in, place(0).to_ne_bytes());
        words
    }

    /// It says what a whole walk says, whatever word is another one.
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
            let (python, words) = (Python::with_layout(layout), thread(layout, stack));
            let walk = |words: &BTreeMap<u64, u64>| {
                let mut all = All(Vec::new());
                python
                    .walk(Words(words), STATE, false, &mut all)
                    .map(|walked| (walked, all.0))
            };
            let before = walk(&words);
            let mut last = Last::new();
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
                    let whole = walk(&words).filter(|(walked, _)| walked.frames <= 2 * EACH_END);
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
}
