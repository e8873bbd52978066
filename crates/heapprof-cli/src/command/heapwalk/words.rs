//! Blocks, and what points to them, in words.

use anyhow::{Context, Result};
use heapprof_heapwalk::{Heap, Image, Kinds, Marks, Source, State, Thread, referrers, retained};
use heapprof_report::{PointedTo, RetainedBlock};

/// The most blocks of which it is told what they retain.
const MOST_RETAINED: usize = 10_000;
/// How many bytes of a block are shown.
const SHOWN: u64 = 4096;

/// A walked heap, and names for what is in it.
pub(super) struct Words<'a> {
    pub(super) image: &'a Image,
    pub(super) heap: &'a Heap,
    pub(super) marks: &'a Marks,
    pub(super) kinds: Kinds<'a>,
}

impl Words<'_> {
    /// The block at an address.
    fn block(&self, at: u64) -> Result<usize> {
        let found = self.heap.find(at);
        found.with_context(|| format!("{at:#x}: is in no block of this heap"))
    }

    /// What a block is: the name of its class, or its kind of content.
    pub(super) fn what(&mut self, number: usize) -> &str {
        let kind = self.kinds.of(&self.heap.chunks[number]);
        self.kinds.name(kind)
    }

    fn called(&mut self, number: usize) -> String {
        let chunk = &self.heap.chunks[number];
        let state = self.marks.states[number];
        let what = match state {
            State::Free => String::new(),
            _ => format!(", {}", self.what(number)),
        };
        let (at, size, state) = (chunk.at, chunk.size, state.name());
        format!("{at:#x}, {size} B, {state}{what}")
    }

    /// What leads to a block; `at` is the address of the word that does.
    fn source(&mut self, at: u64, source: Source) -> String {
        match source {
            Source::Nothing => "nothing".to_string(),
            Source::Register(thread) => {
                let thread = self.image.threads.get(thread as usize);
                format!(
                    "a register of thread {}",
                    thread.map_or(0, |thread| thread.tid)
                )
            }
            Source::Root(root) => {
                let region = self.image.region(root);
                let (name, thread) = region.map_or(("", None), |region| {
                    let range = region.range();
                    let has_stack = |thread: &&Thread| range.contains(&thread.stack);
                    let thread = self.image.threads.iter().find(has_stack);
                    (region.name.as_str(), thread)
                });
                match (name, thread) {
                    (_, Some(thread)) => format!("{root:#x}, the stack of thread {}", thread.tid),
                    ("", None) => format!("{root:#x}, memory of no file"),
                    (name, None) => format!("{root:#x}, {name}"),
                }
            }
            Source::Chunk(number) => {
                let begin = self.heap.chunks[number as usize].at;
                let words = self.called(number as usize);
                match at.checked_sub(begin) {
                    Some(offset) if at != 0 => format!("+{offset} of the block {words}"),
                    _ => format!("the block {words}"),
                }
            }
        }
    }

    /// Who points to the block at an address.
    pub(super) fn who(&mut self, at: u64) -> Result<PointedTo> {
        let number = self.block(at)?;
        let (way, root) = self.marks.way(number);
        let mut steps = Vec::new();
        // What has leaked has a way, too: from the first block of its chain.
        if root != Source::Nothing || way.len() > 1 {
            if root != Source::Nothing {
                steps.push(self.source(0, root));
            }
            let blocks = way.iter().rev();
            steps.extend(blocks.map(|&block| format!("the block {}", self.called(block))));
        }
        let found = referrers(self.image, self.heap, self.marks, number).into_iter();
        Ok(PointedTo {
            block: self.called(number),
            way: steps,
            has_root: root != Source::Nothing,
            referrers: found
                .map(|one| (self.source(one.at, one.source), one.offset))
                .collect(),
        })
    }

    /// The blocks through which others are reached, the one that retains most first.
    pub(super) fn most_retained(&mut self) -> Vec<RetainedBlock> {
        let retained = retained(self.image, self.heap, self.marks);
        let mut blocks: Vec<usize> = (0..retained.len())
            .filter(|&block| retained[block] > self.heap.chunks[block].size)
            .collect();
        blocks.sort_by_key(|&block| (std::cmp::Reverse(retained[block]), block));
        blocks.truncate(MOST_RETAINED);
        let roots = self.marks.roots();
        let row = |block: usize| RetainedBlock {
            retained: retained[block],
            size: self.heap.chunks[block].size,
            at: self.heap.chunks[block].at,
            what: self.what(block).to_string(),
            root: self.source(0, roots[block]),
        };
        blocks.into_iter().map(row).collect()
    }

    /// The bytes of a block as a table of hexadecimal numbers and text.
    pub(super) fn bytes(&mut self, at: u64) -> Result<String> {
        let number = self.block(at)?;
        let mut text = format!("{}\n", self.called(number));
        let chunk = &self.heap.chunks[number];
        let shown = self.image.bytes(chunk.at..chunk.at + chunk.size.min(SHOWN));
        for (row, at) in shown.chunks(16).zip((chunk.at..).step_by(16)) {
            let hex: Vec<String> = row.iter().map(|byte| format!("{byte:02x}")).collect();
            let letter = |byte: &u8| match byte {
                0x20..0x7f => char::from(*byte),
                _ => '.',
            };
            let letters: String = row.iter().map(letter).collect();
            text += &format!("{at:#x}  {:<47}  {letters}\n", hex.join(" "));
        }
        let left = chunk.size.saturating_sub(shown.len() as u64);
        if left > 0 {
            text += &format!("({left} bytes more)\n");
        }
        Ok(text)
    }
}
