//! 32-bit numbers that stand for the 64-bit ids of a file until positions are known. Most ids are
//! small and stand for themselves.

use crate::hashing::HashMap;

use crate::parts::hash_table_memory;

/// Smallest id that does not stand for itself.
const FIRST_HUGE_ID: u64 = 1 << 31;

/// The ids of one table that do not stand for themselves, each with its stand-in.
#[derive(Default)]
pub(super) struct StandIns {
    huge: Vec<u64>,
    index: HashMap<u64, u32>,
}

impl StandIns {
    /// Returns the number that stands for an id until positions are known.
    #[inline]
    pub(super) fn stand_in_for(&mut self, id: u64) -> u32 {
        match id < FIRST_HUGE_ID {
            true => id as u32,
            false => self.stand_in_for_huge(id),
        }
    }

    #[cold]
    fn stand_in_for_huge(&mut self, id: u64) -> u32 {
        let huge = &mut self.huge;
        *self.index.entry(id).or_insert_with(|| {
            huge.push(id);
            (FIRST_HUGE_ID + huge.len() as u64 - 1) as u32
        })
    }

    /// Returns the id that a number stands for.
    pub(super) fn id(&self, stand_in: u32) -> u64 {
        match u64::from(stand_in).checked_sub(FIRST_HUGE_ID) {
            Some(at) => self.huge[at as usize],
            None => u64::from(stand_in),
        }
    }

    /// Estimates how many bytes the stand-ins take.
    pub(super) fn memory(&self) -> u64 {
        let huge = size_of_val(&self.huge[..]) as u64;
        huge + hash_table_memory::<(u64, u32)>(self.index.capacity())
    }

    /// Whether every id so far stands for itself.
    pub(super) fn is_empty(&self) -> bool {
        self.huge.is_empty()
    }
}
