//! The stacks of a database, each of which is one frame on top of an earlier stack.

use rusqlite::Connection;

use crate::error::Error;

/// All stacks by their numbers. Removed stacks leave gaps between the numbers.
pub(super) struct StackTree {
    /// The numbers of the stacks, ascending.
    id: Vec<i64>,
    /// For each stack, the number of its parent (0 for the empty stack) and that of its location.
    above: Vec<(i64, i64)>,
}

impl StackTree {
    pub(super) fn read(connection: &Connection) -> Result<Self, Error> {
        let mut tree = Self {
            id: Vec::new(),
            above: Vec::new(),
        };
        let mut statement =
            connection.prepare("SELECT id, parent, location FROM stack ORDER BY id")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            tree.id.push(row.get(0)?);
            tree.above.push((row.get(1)?, row.get(2)?));
        }
        Ok(tree)
    }

    /// The numbers of all stacks, ascending.
    pub(super) fn ids(&self) -> &[i64] {
        &self.id
    }

    /// The position of a stack among all stacks.
    pub(super) fn position(&self, id: i64) -> Option<usize> {
        // If nothing was removed, the number of a stack gives its position.
        let dense = usize::try_from(id).ok().and_then(|at| at.checked_sub(1));
        match dense.filter(|&at| self.id.get(at) == Some(&id)) {
            Some(at) => Some(at),
            None => self.id.binary_search(&id).ok(),
        }
    }

    /// The parent and the location of the stack at a position.
    pub(super) fn above(&self, position: usize) -> (i64, i64) {
        self.above[position]
    }
}
