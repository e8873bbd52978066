//! Whose allocations lie on pages that a child has inherited and has alone.
//!
//! Each block in use is known by its address, its size and the stack that allocated it, in the
//! parent or in the child. The bytes of it that lie on such pages count for that stack. What lies
//! there besides is nobody's block: the allocator's own memory and what it keeps free, variables of
//! libraries, the program's stack. So the parts add up to the pages.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use heapprof_live::{Block, Error, Process, Row};
use heapprof_process::{Area, PAGE, PageSet};
use heapprof_profile::Profile;
use heapprof_profile::fork::{COW_TYPES, KIND_LABEL};

use crate::forked::signed;
use crate::perl::{Held, Part, held};

/// A block of the parent's.
const DATA: &str = "data";
/// A block that the child has allocated in inherited memory.
const NEW: &str = "new blocks";
/// A key of hashes.
const KEY: &str = "shared keys";

/// A mapping with pages that are not shared.
pub(crate) struct Piece {
    range: Range<u64>,
    /// What it is called.
    name: String,
    /// Bytes of these pages that no block was found for yet.
    left: u64,
    /// Whether there are blocks in it.
    has_blocks: bool,
}

impl Piece {
    /// A mapping with so many such pages, and the name of its file.
    pub(crate) fn new(area: &Area<'_>, name: &str, pages: u64) -> Self {
        Self {
            range: area.start..area.end,
            name: name.to_string(),
            left: pages * PAGE,
            has_blocks: false,
        }
    }

    /// What stands in the place of a stack for what is left, and of which kind that is.
    fn rest(&self) -> (String, &'static str) {
        match &*self.name {
            _ if self.has_blocks => ("(free memory and malloc's own)".to_string(), "malloc"),
            "[heap]" => ("(free memory and malloc's own)".to_string(), "malloc"),
            "[stack]" => ("(the program's stack)".to_string(), "stack"),
            "" => (
                "(memory that malloc has not given)".to_string(),
                "anonymous",
            ),
            name if name.starts_with('/') => (format!("(variables of {name})"), "variables"),
            name => (format!("(memory called {name})"), "anonymous"),
        }
    }
}

/// Values by stack and kind.
type Sums = HashMap<(Option<u32>, &'static str), (f64, i64)>;

/// What is being counted.
struct Counting<'a> {
    unshared: &'a PageSet,
    pieces: Vec<Piece>,
    sums: Sums,
}

impl Counting<'_> {
    /// Counts the bytes in `range` that lie on the pages. Returns how many that are.
    fn count(&mut self, range: Range<u64>, stack: Option<u32>, kind: &'static str) -> u64 {
        let bytes = self.unshared.bytes_in(range.clone());
        if bytes != 0 {
            self.add(bytes, 1.0, range.start, stack, kind);
        }
        bytes
    }

    /// Adds what one or more blocks of a stack have there.
    fn add(&mut self, bytes: u64, blocks: f64, at: u64, stack: Option<u32>, kind: &'static str) {
        let next = self
            .pieces
            .partition_point(|region| region.range.start <= at);
        let region = next.checked_sub(1).map(|i| &mut self.pieces[i]);
        let Some(region) = region.filter(|region| region.range.contains(&at)) else {
            return;
        };
        // What was changed meanwhile is not counted twice, and estimates are not more than all.
        let bytes = ((bytes as f64 * blocks).round() as u64).min(region.left);
        region.left -= bytes;
        region.has_blocks = true;
        let sum = self.sums.entry((stack, kind)).or_default();
        sum.0 += blocks;
        sum.1 = sum.1.saturating_add(signed(bytes));
    }
}

/// What is known of a child besides its books.
pub(crate) struct Child {
    /// Its parent, if that is there and can be read.
    pub(crate) parent: Option<Process>,
    /// How many stacks both had when it was forked.
    pub(crate) stacks: u32,
    /// How many forks lie between the first process and it.
    pub(crate) generation: u8,
}

/// A profile of the allocations on pages that are not shared.
pub(crate) fn blame(
    process: &Process,
    child: &Child,
    unshared: &PageSet,
    pieces: Vec<Piece>,
) -> Result<Profile, Error> {
    let mut blocks = process.blocks()?;
    let all = in_order(std::mem::take(&mut blocks.all));
    let weights = |size: u64| blocks.weight(size);
    let held = held(process, unshared);
    let mut counting = Counting {
        unshared,
        pieces,
        sums: Sums::new(),
    };
    let is_new = |stack: u32| {
        let of = blocks.generations.get(stack as usize);
        of.is_some_and(|&of| of >= child.generation)
    };
    let mut kinds: HashMap<usize, &'static str> = HashMap::new();
    for &(at, kind) in &held.arenas {
        kinds.extend(place(&all, at).map(|i| (i, kind)));
    }
    for &at in &held.keys {
        kinds.extend(place(&all, at).map(|i| (i, KEY)));
    }
    let taken = count_parts(&owned(child, &held, &all, unshared), &all, &mut counting);
    for (i, block) in all.iter().enumerate() {
        let range = block.address..block.address.saturating_add(block.size);
        let kind = match kinds.get(&i) {
            Some(&kind) => kind,
            None if is_new(block.stack) => NEW,
            None => DATA,
        };
        // The parts of an arena that values have were counted.
        let taken = taken.get(&i).copied().unwrap_or(0);
        let bytes = unshared.bytes_in(range).saturating_sub(taken);
        if bytes != 0 {
            let blocks = weights(block.size);
            counting.add(bytes, blocks, block.address, Some(block.stack), kind);
        }
    }
    profile(process, counting)
}

/// Blocks by their addresses, each once.
fn in_order(mut blocks: Vec<Block>) -> Vec<Block> {
    blocks.sort_unstable_by_key(|block| block.address);
    blocks.dedup_by_key(|block| block.address);
    blocks
}

/// The heads and bodies of values, first as the parent has them: what the child has freed or moved
/// was somebody's when it was forked. With each is the stack of its owner, if that is known.
fn owned(
    child: &Child,
    held: &Held,
    all: &[Block],
    unshared: &PageSet,
) -> Vec<(Part, Option<u32>)> {
    let mut found = Vec::new();
    let stack_of = |blocks: &[Block], part: &Part| {
        let owner = part.in_block.and_then(|at| place(blocks, at));
        owner.map(|owner| blocks[owner].stack)
    };
    let parent = child.parent.as_ref();
    if let Some((parent, blocks)) = parent.and_then(|of| Some((of, of.blocks().ok()?.all))) {
        let blocks = in_order(blocks);
        let is_shared = |stack: &u32| *stack < child.stacks;
        for part in crate::perl::held(parent, unshared).parts {
            let stack = stack_of(&blocks, &part).filter(is_shared);
            found.push((part, stack));
        }
    }
    let known: HashSet<u64> = found.iter().map(|(part, _)| part.range.start).collect();
    for part in &held.parts {
        if !known.contains(&part.range.start) {
            found.push((part.clone(), stack_of(all, part)));
        }
    }
    found
}

/// Counts the heads and bodies of values. Returns how many bytes of each block they have.
fn count_parts(
    parts: &[(Part, Option<u32>)],
    all: &[Block],
    counting: &mut Counting<'_>,
) -> HashMap<usize, u64> {
    let mut taken: HashMap<usize, u64> = HashMap::new();
    for (part, stack) in parts {
        // If blocks are a sample, most arenas are not among them.
        let arena = place(all, part.range.start);
        let stack = stack.or(arena.map(|arena| all[arena].stack));
        let bytes = counting.count(part.range.clone(), stack, part.kind);
        if let Some(arena) = arena {
            *taken.entry(arena).or_default() += bytes;
        }
    }
    taken
}

/// The block that an address lies in, by its place among all.
fn place(all: &[Block], at: u64) -> Option<usize> {
    let i = all
        .partition_point(|block| block.address <= at)
        .checked_sub(1)?;
    (at - all[i].address < all[i].size).then_some(i)
}

/// The profile of what was counted, and of what is left.
fn profile(process: &Process, counting: Counting<'_>) -> Result<Profile, Error> {
    let mut sums: Vec<_> = counting.sums.into_iter().collect();
    sums.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    let mut left: HashMap<(String, &str), [i64; 2]> = HashMap::new();
    for region in counting.pieces.iter().filter(|region| region.left != 0) {
        let sum = left.entry(region.rest()).or_default();
        sum[0] += 1;
        sum[1] = sum[1].saturating_add(signed(region.left));
    }
    let mut left: Vec<_> = left.into_iter().collect();
    left.sort_unstable();
    let of_stacks = sums.iter().map(|&((stack, kind), (objects, bytes))| Row {
        stack,
        place: "(perl arenas)",
        kind,
        values: vec![objects.round() as i64, bytes],
    });
    let of_rest = left.iter().map(|((place, kind), values)| Row {
        stack: None,
        place,
        kind,
        values: values.to_vec(),
    });
    let rows: Vec<Row<'_>> = of_stacks.chain(of_rest).collect();
    process.profile_of(&COW_TYPES, KIND_LABEL, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(of: impl IntoIterator<Item = u64>) -> PageSet {
        let mut set = PageSet::default();
        of.into_iter().for_each(|page| set.insert(page * PAGE));
        set
    }

    fn piece(name: &str, from: u64, to: u64, pages: u64) -> Piece {
        let [from, to] = [from, to].map(|page| page * PAGE);
        let text = format!("{from:x}-{to:x} rw-p 0 0:0 0 {name}\n");
        Piece::new(&heapprof_process::areas(&text)[0], name, pages)
    }

    #[test]
    fn an_address_lies_in_one_block_or_in_none() {
        let block = |address, size, stack| Block {
            address,
            size,
            stack,
        };
        let all = in_order(vec![
            block(300, 10, 2),
            block(100, 50, 0),
            block(300, 10, 3),
            block(200, 0, 1),
        ]);
        assert_eq!(all.len(), 3);
        for (at, wanted) in [
            (99, None),
            (100, Some(0)),
            (149, Some(0)),
            (150, None),
            (200, None),
            (309, Some(2)),
            (310, None),
            (u64::MAX, None),
        ] {
            assert_eq!(place(&all, at), wanted, "{at}");
        }
    }

    #[test]
    fn parts_add_up_to_the_pages() {
        // Pages 1 and 3 of a heap of four, and page 10 of a library's variables.
        let unshared = pages([1, 3, 10]);
        let mut counting = Counting {
            unshared: &unshared,
            pieces: vec![piece("[heap]", 0, 4, 2), piece("/lib/x.so", 10, 11, 1)],
            sums: Sums::new(),
        };
        // Half of it lies on page 2, which is shared.
        let bytes = counting.count(PAGE + 100..2 * PAGE + 100, Some(7), DATA);
        assert_eq!(bytes, PAGE - 100);
        assert_eq!(counting.count(2 * PAGE..3 * PAGE, Some(7), DATA), 0);
        // A sample stands for more than is there: it is not more than all.
        counting.add(PAGE, 1000.0, 3 * PAGE, Some(8), NEW);
        // Nothing is known there.
        counting.add(PAGE, 1.0, 7 * PAGE, Some(9), NEW);
        let blamed: i64 = counting.sums.values().map(|sum| sum.1).sum();
        let left: u64 = counting.pieces.iter().map(|piece| piece.left).sum();
        assert_eq!(signed(left) + blamed, signed(unshared.len() * PAGE));
        assert_eq!(counting.sums[&(Some(7), DATA)], (1.0, 3996));
        assert_eq!(counting.sums[&(Some(8), NEW)], (1000.0, 4196));
        assert!(!counting.sums.contains_key(&(Some(9), NEW)));
        let of_file = counting.pieces[1].rest();
        assert_eq!(of_file.0, "(variables of /lib/x.so)");
    }
}
