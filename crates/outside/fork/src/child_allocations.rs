//! Finds the allocations on inherited pages that only the child still has.
//!
//! Each block in use is known by its address, its size and the stack that allocated it, in the
//! parent or in the child. The block's bytes on unshared pages count for this stack. The other
//! bytes of these pages are in no block: they are the allocator's data and free memory, variables
//! of libraries, or the program's stack. So all parts add up to the size of the pages.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use heapprof_live::{BlockInUse, LiveError, LiveProcess, LiveProfileRow, StackNumber};
use heapprof_process::{PAGE_SIZE, PageSet, SmapsMapping};
use heapprof_profile::Profile;
use heapprof_profile::fork::{COW_TYPES, KIND_LABEL};

use crate::fork_state::to_signed;
use crate::perl::{PerlInventory, PerlValuePart, read_inventory};

/// Kind of blocks that were allocated before the fork.
const DATA_KIND: &str = "data";
/// Kind of blocks that the child has allocated in inherited memory.
const NEW_BLOCKS_KIND: &str = "new blocks";
/// Kind of keys that several hashes share.
const SHARED_KEYS_KIND: &str = "shared keys";

/// A mapping with inherited pages that are no longer shared.
pub(crate) struct UnsharedMapping {
    range: Range<u64>,
    /// The name of the mapping.
    name: String,
    /// Number of bytes on unshared pages for which no block was found yet.
    left: u64,
    /// Whether blocks were found in the mapping.
    has_blocks: bool,
}

impl UnsharedMapping {
    /// Makes a mapping with `pages` unshared pages. `name` is the name of the mapped file.
    pub(crate) fn new(area: &SmapsMapping<'_>, name: &str, pages: u64) -> Self {
        Self {
            range: area.start..area.end,
            name: name.to_string(),
            left: pages * PAGE_SIZE,
            has_blocks: false,
        }
    }

    /// Returns how a report shows the bytes that are in no block: the text in place of a stack, and
    /// the kind.
    fn rest(&self) -> (String, &'static str) {
        match &*self.name {
            _ if self.has_blocks => ("(free memory and malloc's own)".to_string(), "malloc"),
            "[heap]" => ("(free memory and malloc's own)".to_string(), "malloc"),
            "[stack]" => ("(the program's stack)".to_string(), "stack"),
            "" => (
                "(memory that malloc has not given out)".to_string(),
                "anonymous",
            ),
            name if name.starts_with('/') => (format!("(variables of {name})"), "variables"),
            name => (format!("(memory named {name})"), "anonymous"),
        }
    }
}

/// Numbers of blocks and of bytes, by stack and kind.
type BlameSums = HashMap<(Option<StackNumber>, &'static str), (f64, i64)>;

/// Counts the bytes on unshared pages, by stack and kind.
struct BlameCounter<'a> {
    unshared: &'a PageSet,
    pieces: Vec<UnsharedMapping>,
    sums: BlameSums,
}

impl BlameCounter<'_> {
    /// Counts the bytes in `range` that are on unshared pages. Returns their number.
    fn count(&mut self, range: Range<u64>, stack: Option<StackNumber>, kind: &'static str) -> u64 {
        let bytes = self.unshared.bytes_in(range.clone());
        if bytes != 0 {
            self.add(bytes, 1.0, range.start, stack, kind);
        }
        bytes
    }

    /// Counts `bytes` bytes for each of `blocks` blocks of a stack, if `at` is in a mapping with
    /// unshared pages.
    fn add(
        &mut self,
        bytes: u64,
        blocks: f64,
        at: u64,
        stack: Option<StackNumber>,
        kind: &'static str,
    ) {
        let next = self
            .pieces
            .partition_point(|region| region.range.start <= at);
        let region = next.checked_sub(1).map(|i| &mut self.pieces[i]);
        let Some(region) = region.filter(|region| region.range.contains(&at)) else {
            return;
        };
        // Memory that changed meanwhile is not counted twice, and estimates never exceed all bytes.
        let bytes = ((bytes as f64 * blocks).round() as u64).min(region.left);
        region.left -= bytes;
        region.has_blocks = true;
        let sum = self.sums.entry((stack, kind)).or_default();
        sum.0 += blocks;
        sum.1 = sum.1.saturating_add(to_signed(bytes));
    }
}

/// Facts about a child that are not in its ledger.
pub(crate) struct BlamedChild {
    /// The parent, if it still exists and can be read.
    pub(crate) parent: Option<LiveProcess>,
    /// Number of stacks at the fork. Stacks with lower numbers are the same in the parent and the
    /// child.
    pub(crate) stacks: u32,
    /// Number of forks between the first process and the child.
    pub(crate) generation: u8,
}

/// Makes a profile of the allocations on the child's unshared pages.
pub(crate) fn blame(
    process: &LiveProcess,
    child: &BlamedChild,
    unshared: &PageSet,
    pieces: Vec<UnsharedMapping>,
) -> Result<Profile, LiveError> {
    let mut blocks = process.blocks()?;
    let all = sort_blocks(std::mem::take(&mut blocks.all));
    let weights = |size: u64| blocks.weight(size);
    let held = read_inventory(process, unshared);
    let mut counting = BlameCounter {
        unshared,
        pieces,
        sums: BlameSums::new(),
    };
    let is_new = |stack: StackNumber| {
        let of = blocks.generations.get(stack.to_index());
        of.is_some_and(|&of| of >= child.generation)
    };
    let mut kinds: HashMap<usize, &'static str> = HashMap::new();
    for &(at, kind) in &held.arenas {
        kinds.extend(find_block(&all, at).map(|i| (i, kind)));
    }
    for &at in &held.keys {
        kinds.extend(find_block(&all, at).map(|i| (i, SHARED_KEYS_KIND)));
    }
    let taken = count_parts(
        &parts_with_owners(child, &held, &all, unshared),
        &all,
        &mut counting,
    );
    for (i, block) in all.iter().enumerate() {
        let range = block.address..block.address.saturating_add(block.size);
        let kind = match kinds.get(&i) {
            Some(&kind) => kind,
            None if is_new(block.stack) => NEW_BLOCKS_KIND,
            None => DATA_KIND,
        };
        // Parts of an arena that belong to values were counted already.
        let taken = taken.get(&i).copied().unwrap_or(0);
        let bytes = unshared.bytes_in(range).saturating_sub(taken);
        if bytes != 0 {
            let blocks = weights(block.size);
            counting.add(bytes, blocks, block.address, Some(block.stack), kind);
        }
    }
    profile(process, counting)
}

/// Sorts blocks by their addresses, and removes duplicates.
fn sort_blocks(mut blocks: Vec<BlockInUse>) -> Vec<BlockInUse> {
    blocks.sort_unstable_by_key(|block| block.address);
    blocks.dedup_by_key(|block| block.address);
    blocks
}

/// Returns the heads and bodies of Perl values, each with the stack of the value's own block if
/// that stack is known. The parent's values come first, because the parent still has the blocks
/// that the child has freed or moved.
fn parts_with_owners(
    child: &BlamedChild,
    held: &PerlInventory,
    all: &[BlockInUse],
    unshared: &PageSet,
) -> Vec<(PerlValuePart, Option<StackNumber>)> {
    let mut found = Vec::new();
    let stack_of = |blocks: &[BlockInUse], part: &PerlValuePart| {
        let owner = part.in_block.and_then(|at| find_block(blocks, at));
        owner.map(|owner| blocks[owner].stack)
    };
    let parent = child.parent.as_ref();
    if let Some((parent, blocks)) = parent.and_then(|of| Some((of, of.blocks().ok()?.all))) {
        let blocks = sort_blocks(blocks);
        let is_shared = |stack: &StackNumber| stack.to_u32() < child.stacks;
        for part in crate::perl::read_inventory(parent, unshared).parts {
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

/// Counts the heads and bodies of Perl values. Returns, by the index of each block, how many of the
/// counted bytes are in the block.
fn count_parts(
    parts: &[(PerlValuePart, Option<StackNumber>)],
    all: &[BlockInUse],
    counting: &mut BlameCounter<'_>,
) -> HashMap<usize, u64> {
    let mut taken: HashMap<usize, u64> = HashMap::new();
    for (part, stack) in parts {
        // If blocks are a sample, most arenas are not among them.
        let arena = find_block(all, part.range.start);
        let stack = stack.or(arena.map(|arena| all[arena].stack));
        let bytes = counting.count(part.range.clone(), stack, part.kind);
        if let Some(arena) = arena {
            *taken.entry(arena).or_default() += bytes;
        }
    }
    taken
}

/// Returns the index of the block that contains an address.
fn find_block(all: &[BlockInUse], at: u64) -> Option<usize> {
    let i = all
        .partition_point(|block| block.address <= at)
        .checked_sub(1)?;
    (at - all[i].address < all[i].size).then_some(i)
}

/// Makes the profile of the counted bytes and of the bytes that are in no block.
fn profile(process: &LiveProcess, counting: BlameCounter<'_>) -> Result<Profile, LiveError> {
    let mut sums: Vec<_> = counting.sums.into_iter().collect();
    sums.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    let mut left: HashMap<(String, &str), [i64; 2]> = HashMap::new();
    for region in counting.pieces.iter().filter(|region| region.left != 0) {
        let sum = left.entry(region.rest()).or_default();
        sum[0] += 1;
        sum[1] = sum[1].saturating_add(to_signed(region.left));
    }
    let mut left: Vec<_> = left.into_iter().collect();
    left.sort_unstable();
    let of_stacks = sums
        .iter()
        .map(|&((stack, kind), (objects, bytes))| LiveProfileRow {
            stack,
            place: "(perl arenas)",
            kind,
            values: vec![objects.round() as i64, bytes],
        });
    let of_rest = left.iter().map(|((place, kind), values)| LiveProfileRow {
        stack: None,
        place,
        kind,
        values: values.to_vec(),
    });
    let rows: Vec<LiveProfileRow<'_>> = of_stacks.chain(of_rest).collect();
    process.profile_of(&COW_TYPES, KIND_LABEL, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(of: impl IntoIterator<Item = u64>) -> PageSet {
        let mut set = PageSet::default();
        of.into_iter().for_each(|page| set.insert(page * PAGE_SIZE));
        set
    }

    fn piece(name: &str, from: u64, to: u64, pages: u64) -> UnsharedMapping {
        let [from, to] = [from, to].map(|page| page * PAGE_SIZE);
        let text = format!("{from:x}-{to:x} rw-p 0 0:0 0 {name}\n");
        UnsharedMapping::new(&heapprof_process::areas(&text)[0], name, pages)
    }

    #[test]
    fn an_address_lies_in_one_block_or_in_none() {
        let block = |address, size, stack| BlockInUse {
            address,
            size,
            stack: StackNumber::from_u32(stack),
        };
        let all = sort_blocks(vec![
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
            assert_eq!(find_block(&all, at), wanted, "{at}");
        }
    }

    #[test]
    fn parts_add_up_to_the_pages() {
        // Pages 1 and 3 of a heap of four, and page 10 of a library's variables.
        let unshared = pages([1, 3, 10]);
        let mut counting = BlameCounter {
            unshared: &unshared,
            pieces: vec![piece("[heap]", 0, 4, 2), piece("/lib/x.so", 10, 11, 1)],
            sums: BlameSums::new(),
        };
        let [first, new, elsewhere] = [7, 8, 9].map(|number| Some(StackNumber::from_u32(number)));
        // A part of the block is on page 2, which is shared.
        let bytes = counting.count(PAGE_SIZE + 100..2 * PAGE_SIZE + 100, first, DATA_KIND);
        assert_eq!(bytes, PAGE_SIZE - 100);
        assert_eq!(
            counting.count(2 * PAGE_SIZE..3 * PAGE_SIZE, first, DATA_KIND),
            0
        );
        // A sample stands for more bytes than there are: they are limited to all that are left.
        counting.add(PAGE_SIZE, 1000.0, 3 * PAGE_SIZE, new, NEW_BLOCKS_KIND);
        // No mapping is known there.
        counting.add(PAGE_SIZE, 1.0, 7 * PAGE_SIZE, elsewhere, NEW_BLOCKS_KIND);
        let blamed: i64 = counting.sums.values().map(|sum| sum.1).sum();
        let left: u64 = counting.pieces.iter().map(|piece| piece.left).sum();
        assert_eq!(
            to_signed(left) + blamed,
            to_signed(unshared.len() * PAGE_SIZE)
        );
        assert_eq!(counting.sums[&(first, DATA_KIND)], (1.0, 3996));
        assert_eq!(counting.sums[&(new, NEW_BLOCKS_KIND)], (1000.0, 4196));
        assert!(!counting.sums.contains_key(&(elsewhere, NEW_BLOCKS_KIND)));
        let of_file = counting.pieces[1].rest();
        assert_eq!(of_file.0, "(variables of /lib/x.so)");
    }
}
