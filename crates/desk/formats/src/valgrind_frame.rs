//! Reads frames of Valgrind's tools, such as `0x1091BC: label (pantry.c:15)` and `0x48417B4: malloc
//! (in /usr/lib/x.so)`.
//!
//! Inlined functions are separate frames at the same address, innermost first. But a frame that
//! equals the first frame at the address is a recursive call.

use foldhash::{HashMap, HashMapExt};
use heapprof_profile::LocationIndex;

use crate::error::FormatError;
use crate::figures::{decimal, hex};
use crate::tally::{FrameModule, SampleTally, TextFrame};
use crate::texts::TextTable;

/// Reads the text of a frame. A text without an address is a name.
pub(crate) fn parse(text: &str) -> TextFrame<'_> {
    let (address, rest) = text
        .strip_prefix("0x")
        .and_then(|text| text.split_once(": "))
        .and_then(|(digits, rest)| Some((hex(digits.as_bytes())?, rest)))
        .unwrap_or((0, text));
    let mut frame = TextFrame {
        address,
        name: rest,
        ..TextFrame::default()
    };
    if let Some(inside) = rest.strip_suffix(')') {
        if let Some((name, module)) = inside.rsplit_once(" (in ") {
            frame.name = name;
            frame.module = FrameModule {
                name: module,
                ..FrameModule::default()
            };
        } else if let Some((name, place)) = inside.rsplit_once(" (")
            && let Some((file, line, column)) = place_of(place)
        {
            frame = TextFrame {
                name,
                file,
                line,
                column,
                ..frame
            };
        }
    }
    if frame.name == "???" {
        frame.name = "";
    }
    frame
}

/// Splits `file:line` or `file:line:column`.
fn place_of(place: &str) -> Option<(&str, i64, i64)> {
    let number = |text: &str| i64::try_from(decimal(text.as_bytes())?).ok();
    let (rest, last) = place.rsplit_once(':')?;
    let last = number(last)?;
    if rest.contains(['(', ')']) {
        return None;
    }
    match rest
        .rsplit_once(':')
        .map(|(file, line)| (file, number(line)))
    {
        Some((file, Some(line))) if !file.is_empty() => Some((file, line, last)),
        _ => Some((rest, last, 0)),
    }
}

/// Turns stacks of frames into stacks of locations.
pub(crate) struct ValgrindStacks<'a> {
    frames: &'a TextTable,
    /// The address of each frame; 0 if it has none.
    address: Vec<u64>,
    known: HashMap<Box<[u32]>, LocationIndex>,
    stack: Vec<LocationIndex>,
}

impl<'a> ValgrindStacks<'a> {
    pub(crate) fn new(frames: &'a TextTable) -> Self {
        let texts = (0..frames.len()).filter_map(|i| frames.get(i as u32));
        Self {
            frames,
            address: texts.map(|text| parse(text).address).collect(),
            known: HashMap::new(),
            stack: Vec::new(),
        }
    }

    /// Returns the locations of a stack of frames, leaf first. Frame numbers that are not in the
    /// table are left out. Too much memory is an error.
    pub(crate) fn locations(
        &mut self,
        tally: &mut SampleTally,
        frames: &[u32],
    ) -> Result<&[LocationIndex], FormatError> {
        let address = |number: u32| self.address.get(number as usize).copied().unwrap_or(0);
        self.stack.clear();
        let mut rest = frames;
        while let Some((&first, others)) = rest.split_first() {
            let here = address(first);
            let inlined = others
                .iter()
                .take_while(|&&f| f != first && here != 0 && address(f) == here)
                .count();
            let (group, next) = rest.split_at(1 + inlined);
            rest = next;
            let location = match self.known.get(group) {
                Some(&location) => location,
                None => {
                    let texts = group.iter().filter_map(|&f| self.frames.get(f));
                    let parsed: Vec<TextFrame<'_>> = texts.map(parse).collect();
                    let location = tally.location(&parsed)?;
                    self.known.insert(group.into(), location);
                    location
                }
            };
            self.stack.push(location);
        }
        Ok(&self.stack)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::FormatReadOptions;

    #[test]
    fn texts() {
        let frame = |address, name, file, line, column, module| TextFrame {
            address,
            name,
            file,
            line,
            column,
            module: FrameModule {
                name: module,
                ..FrameModule::default()
            },
        };
        let table = [
            (
                "0x1091BC: label (pantry.c:15)",
                frame(0x1091bc, "label", "pantry.c", 15, 0, ""),
            ),
            (
                "0x10250148c: alloc::vec::Vec<T,A>::append (src/vec.rs:1469:9)",
                frame(
                    0x10250148c,
                    "alloc::vec::Vec<T,A>::append",
                    "src/vec.rs",
                    1469,
                    9,
                    "",
                ),
            ),
            (
                "0x4841F2F: operator new(unsigned long) (in /usr/lib/a b (1)/x.so)",
                frame(
                    0x4841f2f,
                    "operator new(unsigned long)",
                    "",
                    0,
                    0,
                    "/usr/lib/a b (1)/x.so",
                ),
            ),
            (
                "0x48F97B9: ??? (in /usr/lib/libstdc++.so.6)",
                frame(0x48f97b9, "", "", 0, 0, "/usr/lib/libstdc++.so.6"),
            ),
            ("0x40053B: ???", frame(0x40053b, "", "", 0, 0, "")),
            (
                "0x12: f(int (*)(char:1))",
                frame(0x12, "f(int (*)(char:1))", "", 0, 0, ""),
            ),
            (
                "0x12: void (anonymous namespace)::f<int>(int)",
                frame(
                    0x12,
                    "void (anonymous namespace)::f<int>(int)",
                    "",
                    0,
                    0,
                    "",
                ),
            ),
            ("[root]", frame(0, "[root]", "", 0, 0, "")),
            ("0xZZ: x", frame(0, "0xZZ: x", "", 0, 0, "")),
            ("", frame(0, "", "", 0, 0, "")),
        ];
        for (text, expected) in table {
            assert_eq!(parse(text), expected, "{text}");
        }
    }

    #[test]
    fn inlined_frames_share_a_location_and_recursion_does_not() {
        let mut frames = TextTable::default();
        let [a, b, c] = ["0x10: a (x.c:1)", "0x10: b (x.c:2)", "0x20: c (x.c:3)"]
            .map(|text| frames.intern(text).unwrap());
        assert_eq!(frames.intern("0x10: a (x.c:1)"), Some(a));
        let mut tally = SampleTally::new(&[("space", "bytes")], &FormatReadOptions::default());
        let mut stacks = ValgrindStacks::new(&frames);
        let stack = stacks
            .locations(&mut tally, &[a, b, a, b, c, c, 99])
            .unwrap()
            .to_vec();
        assert_eq!(stack.len(), 5);
        assert_eq!((stack[0], stack[2]), (stack[1], stack[3]));
        let none = tally.text_label_set("", "");
        tally.add(&stack, none, &[1]).unwrap();
        let profile = tally.finish();
        let names: Vec<usize> = profile
            .location
            .iter()
            .map(|l| profile.lines(l).len())
            .collect();
        assert_eq!(names, [2, 1, 0]);
    }
}
