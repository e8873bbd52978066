//! Descriptions of blocks, and of the pointers to them, in words.

use std::collections::HashMap;

use heapprof_heap::{
    BlockKinds, ChunkMarks, ChunkState, ImageRegion, ImageThread, MallocHeap, PointerSource,
    ProcessImage, referrers, retained_sizes,
};
use heapprof_text::printable;

use super::points::{BlockReferrers, RetainedBlock};

/// Maximum number of rows that show the memory that a block or variable retains.
const MAX_RETAINED_BLOCKS: usize = 10_000;
/// Maximum number of bytes of a block that are shown.
const MAX_SHOWN_BYTES: u64 = 4096;

/// A walked heap, with all that is needed to describe its blocks in words.
pub struct HeapDescriber<'a> {
    /// The memory of the process.
    pub image: &'a ProcessImage,
    /// The heap of malloc, with its blocks.
    pub heap: &'a MallocHeap,
    /// The states of the blocks.
    pub marks: &'a ChunkMarks,
    /// The classes of blocks, or the kinds of their content.
    pub kinds: BlockKinds<'a>,
    /// A function that finds the variable at an address, and returns its beginning and its name.
    pub variable: Box<dyn Fn(u64) -> Option<(u64, String)> + 'a>,
}

impl HeapDescriber<'_> {
    /// Returns the number of the block at an address.
    fn block(&self, at: u64) -> Option<usize> {
        self.heap.find(at)
    }

    /// Returns the class of a block, or the kind of its content.
    pub fn block_class(&mut self, number: usize) -> &str {
        let kind = self.kinds.classify(&self.heap.chunks[number]);
        self.kinds.name(kind)
    }

    fn describe_block(&mut self, number: usize) -> String {
        let chunk = &self.heap.chunks[number];
        let state = self.marks.states[number];
        let what = match state {
            ChunkState::Free => String::new(),
            _ => format!(", {}", self.block_class(number)),
        };
        let (at, size, state) = (chunk.at, chunk.size, state.name());
        format!("{at:#x}, {size} B, {state}{what}")
    }

    /// Describes the source of a pointer to a block; `at` is the address of the pointer.
    fn source(&mut self, at: u64, source: PointerSource) -> String {
        match source {
            PointerSource::Nothing => "nothing".to_string(),
            PointerSource::Register(_) => self.holder(source).1,
            PointerSource::Root(root) => format!("{root:#x}, {}", self.holder(source).1),
            PointerSource::Chunk(number) => {
                let begin = self.heap.chunks[number as usize].at;
                let words = self.describe_block(number as usize);
                match at.checked_sub(begin) {
                    Some(offset) if at != 0 => format!("+{offset} of the block {words}"),
                    _ => format!("the block {words}"),
                }
            }
        }
    }

    /// Finds all pointers to the block at an address; `None` if no block is there.
    pub fn find_pointers_to(&mut self, at: u64) -> Option<BlockReferrers> {
        let number = self.block(at)?;
        let (way, root) = self.marks.way(number);
        let mut steps = Vec::new();
        // A leaked block has a way, too: from the first block of its chain.
        if root != PointerSource::Nothing || way.len() > 1 {
            if root != PointerSource::Nothing {
                steps.push(self.source(0, root));
            }
            let blocks = way.iter().rev();
            steps.extend(blocks.map(|&block| format!("the block {}", self.describe_block(block))));
        }
        let found = referrers(self.image, self.heap, self.marks, number).into_iter();
        Some(BlockReferrers {
            block: self.describe_block(number),
            way: steps,
            has_root: root != PointerSource::Nothing,
            referrers: found
                .map(|one| (self.source(one.at, one.source), one.offset))
                .collect(),
        })
    }

    /// Describes the memory that contains a root, such as a stack or a variable, and returns its
    /// beginning and the description.
    fn holder(&self, root: PointerSource) -> (u64, String) {
        let at = match root {
            PointerSource::Root(at) => at,
            PointerSource::Register(thread) => {
                let tid = self.image.threads.get(thread as usize);
                let tid = tid.map_or(0, |thread| thread.tid);
                return (0, format!("a register of thread {tid}"));
            }
            _ => return (0, "nothing".to_string()),
        };
        let region = self.image.region(at);
        let start = region.map_or(0, |region| region.start);
        let range = region.map(ImageRegion::range).unwrap_or_default();
        let has_stack = |thread: &&ImageThread| range.contains(&thread.stack);
        if let Some(thread) = self.image.threads.iter().find(has_stack) {
            return (start, format!("the stack of thread {}", thread.tid));
        }
        let file = region.map_or("", |region| region.name.as_str());
        match ((self.variable)(at), file) {
            (Some((start, name)), "") => (start, name),
            (Some((start, name)), file) => (start, format!("{name} in {file}")),
            (None, "") => (start, "anonymous memory".to_string()),
            (None, file) => (start, file.to_string()),
        }
    }

    /// Returns the blocks and variables that retain other blocks, largest first, and the number of
    /// rows that are left out.
    pub fn most_retained(&mut self) -> (Vec<RetainedBlock>, usize) {
        let mut holders: Vec<(u64, String)> = Vec::new();
        let mut numbers: HashMap<(u64, String), u32> = HashMap::new();
        let retained = retained_sizes(self.image, self.heap, self.marks, |root| {
            let holder = self.holder(root);
            *numbers.entry(holder).or_insert_with_key(|holder| {
                holders.push(holder.clone());
                holders.len() as u32 - 1
            })
        });
        // Each entry is a number and the bytes that it retains; the numbers of holders follow those
        // of the blocks.
        let chunks = &self.heap.chunks;
        let blocks = (0..).zip(&retained.blocks);
        let blocks = blocks.filter(|&(block, &bytes): &(usize, _)| bytes > chunks[block].size);
        let held = (chunks.len()..).zip(&retained.holders);
        let held = held.filter(|(_, bytes)| **bytes > 0);
        let mut all: Vec<(usize, u64)> =
            blocks.chain(held).map(|(at, &bytes)| (at, bytes)).collect();
        all.sort_by_key(|&(at, bytes)| (std::cmp::Reverse(bytes), at));
        let left_out = all.len().saturating_sub(MAX_RETAINED_BLOCKS);
        all.truncate(MAX_RETAINED_BLOCKS);
        let roots = self.marks.roots();
        let row = |(number, retained): (usize, u64)| match chunks.get(number) {
            Some(chunk) => RetainedBlock {
                retained,
                size: chunk.size,
                at: chunk.at,
                what: self.block_class(number).to_string(),
                root: self.source(0, roots[number]),
            },
            None => {
                let (at, what) = &holders[number - chunks.len()];
                RetainedBlock {
                    retained,
                    size: 0,
                    at: *at,
                    what: what.clone(),
                    root: String::new(),
                }
            }
        };
        (all.into_iter().map(row).collect(), left_out)
    }

    /// Returns the bytes of a block as a table of hexadecimal numbers and text; `None` if no block
    /// is at the address.
    pub fn bytes(&mut self, at: u64) -> Option<String> {
        let number = self.block(at)?;
        let mut text = format!("{}\n", printable(&self.describe_block(number)));
        let chunk = &self.heap.chunks[number];
        let shown = self
            .image
            .bytes(chunk.at..chunk.at + chunk.size.min(MAX_SHOWN_BYTES));
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
            text += &format!("({left} more bytes)\n");
        }
        Some(text)
    }
}

/// Describes the parts of the memory that could not be walked.
pub fn unwalked_parts(image: &ProcessImage, heap: &MallocHeap) -> Vec<String> {
    let mut notes = Vec::new();
    let unwalked = heap.unwalked_bytes();
    if unwalked > 0 {
        notes.push(format!(
            "{unwalked} bytes could not be walked, because malloc's data there is damaged; what \
             they point to counts as reached"
        ));
    }
    if !heap.has_all_arenas {
        notes.push(
            "malloc's list of arenas is damaged or cut off; blocks of arenas that are missing from \
             it are not counted"
                .to_string(),
        );
    }
    if heap.missing_main_bytes > 0 {
        notes.push(format!(
            "about {} bytes of the main arena lie outside the heap (brk), where heapprof does not \
             find them; blocks there are not counted, and what they point to counts as reached",
            heap.missing_main_bytes
        ));
    }
    if heap.broken_links > 0 {
        notes.push(format!(
            "broken lists of free blocks: {}; some free blocks may be reported as leaked",
            heap.broken_links
        ));
    }
    if image.missing > 0 {
        notes.push(format!(
            "{} bytes of memory are missing; what only they point to counts as leaked",
            image.missing
        ));
    }
    notes
}
