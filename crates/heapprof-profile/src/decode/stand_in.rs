//! Numbers of 32 bits that stand for the ids in a file until positions are known: most ids are
//! small numbers and stand for themselves.

use crate::hashing::HashMap;

use crate::parts::hashed;

/// Ids from this one on are represented by numbers of our own.
const HUGE: u64 = 1 << 31;

/// The huge ids of one table.
#[derive(Default)]
pub(super) struct StandIns {
    huge: Vec<u64>,
    index: HashMap<u64, u32>,
}

impl StandIns {
    /// What stands for an id until positions are known.
    #[inline]
    pub(super) fn of(&mut self, id: u64) -> u32 {
        match id < HUGE {
            true => id as u32,
            false => self.of_huge(id),
        }
    }

    #[cold]
    fn of_huge(&mut self, id: u64) -> u32 {
        let huge = &mut self.huge;
        *self.index.entry(id).or_insert_with(|| {
            huge.push(id);
            (HUGE + huge.len() as u64 - 1) as u32
        })
    }

    /// The id that a number stands for.
    pub(super) fn id(&self, stand_in: u32) -> u64 {
        match u64::from(stand_in).checked_sub(HUGE) {
            Some(at) => self.huge[at as usize],
            None => u64::from(stand_in),
        }
    }

    /// About how many bytes they take.
    pub(super) fn memory(&self) -> u64 {
        let huge = size_of_val(&self.huge[..]) as u64;
        huge + hashed::<(u64, u32)>(self.index.capacity())
    }

    /// Whether each id stands for itself.
    pub(super) fn is_empty(&self) -> bool {
        self.huge.is_empty()
    }
}
