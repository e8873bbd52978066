//! The stacks of a database, each of which is one frame on top of an earlier stack: those that some
//! samples have, and all that these lie on.

use std::collections::BTreeMap;

use foldhash::HashMap;
use rusqlite::Connection;

use crate::error::Error;

/// So many stacks with successive numbers are read together.
const PAGE: i64 = 256;

/// A frame on top of another stack: the number of that stack (0 for the empty one), and that of the
/// frame's location.
type Node = (i64, i64);

/// Some stacks by their numbers.
pub(super) struct StackTree {
    pages: HashMap<i64, Box<[Option<Node>; PAGE as usize]>>,
}

/// Which stacks of a page are wanted.
type Wanted = [u64; PAGE as usize / 64];

fn place(id: i64) -> (i64, usize) {
    (id.div_euclid(PAGE), id.rem_euclid(PAGE) as usize)
}

impl StackTree {
    /// Reads these stacks and those below them. What it reads in vain is less than a page for each
    /// stack.
    pub(super) fn read(
        connection: &Connection,
        ids: impl Iterator<Item = i64>,
    ) -> Result<Self, Error> {
        let mut wanted: BTreeMap<i64, Wanted> = BTreeMap::new();
        let mut last = 0;
        for id in ids {
            if id != last && id != 0 {
                let (page, at) = place(id);
                wanted.entry(page).or_default()[at / 64] |= 1 << (at % 64);
                last = id;
            }
        }
        let mut pages = HashMap::default();
        let mut statement = connection.prepare(
            "SELECT id, parent, location FROM stack WHERE id BETWEEN ?1 AND ?2 ORDER BY id DESC",
        )?;
        // Parents have smaller numbers, so all that want a page come before it.
        while let Some((page, mut bits)) = wanted.pop_last() {
            let mut nodes = Box::new([None; PAGE as usize]);
            let first = page.saturating_mul(PAGE);
            let mut rows = statement.query([first, first.saturating_add(PAGE - 1)])?;
            while let Some(row) = rows.next()? {
                let (id, parent): (i64, i64) = (row.get(0)?, row.get(1)?);
                let at = place(id).1;
                nodes[at] = Some((parent, row.get(2)?));
                if bits[at / 64] >> (at % 64) & 1 == 0 || parent == 0 || parent >= id {
                    continue;
                }
                let (of, at) = place(parent);
                match of == page {
                    true => bits[at / 64] |= 1 << (at % 64),
                    false => wanted.entry(of).or_default()[at / 64] |= 1 << (at % 64),
                }
            }
            pages.insert(page, nodes);
        }
        Ok(Self { pages })
    }

    /// The stack below a stack, and the location of its last frame.
    pub(super) fn above(&self, id: i64) -> Option<Node> {
        let (page, at) = place(id);
        self.pages.get(&page)?[at]
    }
}
