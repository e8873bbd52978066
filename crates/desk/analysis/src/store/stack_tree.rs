//! The tree of stacks in a database, in which each stack is one frame on top of an earlier stack. A
//! tree that was read has the stacks of some samples, and all stacks below them.

use std::collections::BTreeMap;

use foldhash::HashMap;
use rusqlite::Connection;

use crate::error::AnalysisError;

/// Number of stacks with successive numbers that are read together.
const STACKS_PER_PAGE: i64 = 256;

/// A frame on top of another stack, as the number of that stack (0 for the empty stack) and the
/// number of the frame's location.
type ParentAndLocation = (i64, i64);

/// The stacks that were read, by their numbers.
pub(super) struct StackTree {
    pages: HashMap<i64, Box<[Option<ParentAndLocation>; STACKS_PER_PAGE as usize]>>,
}

/// The stacks of a page that are wanted, as one bit for each.
type WantedStacks = [u64; STACKS_PER_PAGE as usize / 64];

fn page_position(id: i64) -> (i64, usize) {
    (
        id.div_euclid(STACKS_PER_PAGE),
        id.rem_euclid(STACKS_PER_PAGE) as usize,
    )
}

impl StackTree {
    /// Reads these stacks and the stacks below them. Whole pages are read, so that each stack
    /// causes less than a page of unneeded reads.
    pub(super) fn read(
        connection: &Connection,
        ids: impl Iterator<Item = i64>,
    ) -> Result<Self, AnalysisError> {
        let mut wanted: BTreeMap<i64, WantedStacks> = BTreeMap::new();
        let mut last = 0;
        for id in ids {
            if id != last && id != 0 {
                let (page, at) = page_position(id);
                wanted.entry(page).or_default()[at / 64] |= 1 << (at % 64);
                last = id;
            }
        }
        let mut pages = HashMap::default();
        let mut statement = connection.prepare(
            "SELECT id, parent, location FROM stack WHERE id BETWEEN ?1 AND ?2 ORDER BY id DESC",
        )?;
        // Parents have smaller numbers, so all stacks that need a page are read before it.
        while let Some((page, mut bits)) = wanted.pop_last() {
            let mut nodes = Box::new([None; STACKS_PER_PAGE as usize]);
            let first = page.saturating_mul(STACKS_PER_PAGE);
            let mut rows = statement.query([first, first.saturating_add(STACKS_PER_PAGE - 1)])?;
            while let Some(row) = rows.next()? {
                let (id, parent): (i64, i64) = (row.get(0)?, row.get(1)?);
                let at = page_position(id).1;
                nodes[at] = Some((parent, row.get(2)?));
                if bits[at / 64] >> (at % 64) & 1 == 0 || parent == 0 || parent >= id {
                    continue;
                }
                let (of, at) = page_position(parent);
                match of == page {
                    true => bits[at / 64] |= 1 << (at % 64),
                    false => wanted.entry(of).or_default()[at / 64] |= 1 << (at % 64),
                }
            }
            pages.insert(page, nodes);
        }
        Ok(Self { pages })
    }

    /// Returns the stack below a stack, and the location of the topmost frame.
    pub(super) fn parent_and_location(&self, id: i64) -> Option<ParentAndLocation> {
        let (page, at) = page_position(id);
        self.pages.get(&page)?[at]
    }
}
