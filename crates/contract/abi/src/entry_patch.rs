//! The jumps that the library has planned in a running program: an attacher writes them while all
//! threads of the program are stopped, and puts the code back when it leaves.

use core::sync::atomic::{AtomicU64, Ordering};

/// Number of records in a [`EntryPatchTable`].
pub const MAX_ENTRY_PATCHES: usize = 2048;
/// Number of bytes of a jump.
pub const ENTRY_JUMP_LEN: usize = 5;
/// Value in [`EntryPatchRecord::moved`]: no instruction begins at this byte.
pub const NO_INSTRUCTION: u8 = u8::MAX;

/// A jump at the entry of a function. The code is in the lowest [`ENTRY_JUMP_LEN`] bytes of each
/// word, in the order of the memory.
#[derive(Debug)]
#[repr(C)]
pub struct EntryPatchRecord {
    /// Address of the function; 0 if the record is free. The library writes it last.
    pub at: AtomicU64,
    /// Address of the copies of the instructions that the jump replaces.
    pub trampoline: AtomicU64,
    /// The code that the jump replaces.
    pub original: AtomicU64,
    /// The jump.
    pub jump: AtomicU64,
    /// For each byte of the jump, the offset from `trampoline` of the instruction that begins
    /// there, or [`NO_INSTRUCTION`].
    pub moved: AtomicU64,
}

/// A table of jumps, in the library's memory.
pub type EntryPatchTable = [EntryPatchRecord; MAX_ENTRY_PATCHES];

/// A record of an [`EntryPatchTable`] as it is at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryPatch {
    /// Address of the function.
    pub at: u64,
    /// Address of the copies of the instructions that the jump replaces.
    pub trampoline: u64,
    /// The code that the jump replaces.
    pub original: [u8; ENTRY_JUMP_LEN],
    /// The jump.
    pub jump: [u8; ENTRY_JUMP_LEN],
    /// The offset from `trampoline` of the instruction that begins at each byte, or
    /// [`NO_INSTRUCTION`].
    pub moved: [u8; ENTRY_JUMP_LEN],
}

impl EntryPatch {
    /// Returns where a thread goes on that is stopped at an instruction that the jump replaces;
    /// `None` if the thread is elsewhere, or at the first instruction, which becomes the jump.
    #[must_use]
    pub fn moved_address(&self, pc: u64) -> Option<u64> {
        let offset = usize::try_from(pc.wrapping_sub(self.at)).ok()?;
        match *self.moved.get(offset).filter(|_| offset != 0)? {
            NO_INSTRUCTION => None,
            moved => Some(self.trampoline.wrapping_add(u64::from(moved))),
        }
    }

    /// Parses the bytes of an [`EntryPatchRecord`]; `None` if the record is free, or if there are
    /// not enough bytes.
    #[must_use]
    pub fn parse(record: &[u8]) -> Option<Self> {
        let word = |i: usize| record.get(8 * i..)?.first_chunk().copied();
        let bytes = |i| word(i)?.first_chunk().copied();
        let at = u64::from_ne_bytes(word(0)?);
        let patch = Self {
            at,
            trampoline: u64::from_ne_bytes(word(1)?),
            original: bytes(2)?,
            jump: bytes(3)?,
            moved: bytes(4)?,
        };
        (at != 0).then_some(patch)
    }
}

impl EntryPatchRecord {
    /// Creates a free record.
    #[must_use]
    pub const fn new() -> Self {
        const fn zero() -> AtomicU64 {
            AtomicU64::new(0)
        }
        Self {
            at: zero(),
            trampoline: zero(),
            original: zero(),
            jump: zero(),
            moved: zero(),
        }
    }

    /// Whether no jump is in the record.
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.at.load(Ordering::Relaxed) == 0
    }

    /// Stores a jump in a free record.
    pub fn store(&self, patch: &EntryPatch) {
        let word = |bytes: &[u8; ENTRY_JUMP_LEN]| {
            let mut word = [0; 8];
            word[..ENTRY_JUMP_LEN].copy_from_slice(bytes);
            u64::from_ne_bytes(word)
        };
        self.trampoline.store(patch.trampoline, Ordering::Relaxed);
        self.original
            .store(word(&patch.original), Ordering::Relaxed);
        self.jump.store(word(&patch.jump), Ordering::Relaxed);
        self.moved.store(word(&patch.moved), Ordering::Relaxed);
        self.at.store(patch.at, Ordering::Release);
    }

    /// Makes the record free.
    pub fn clear(&self) {
        self.at.store(0, Ordering::Release);
    }
}

impl Default for EntryPatchRecord {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATCH: EntryPatch = EntryPatch {
        at: 0x1000,
        trampoline: 0x9040,
        original: [0x55, 0x48, 0x89, 0xe5, 0x53],
        jump: [0xe9, 1, 2, 3, 4],
        moved: [0, 1, NO_INSTRUCTION, NO_INSTRUCTION, 4],
    };

    #[test]
    fn a_thread_goes_on_at_the_copy_of_its_instruction() {
        for (pc, expected) in [
            (0xfff, None),
            (0x1000, None),
            (0x1001, Some(0x9041)),
            (0x1002, None),
            (0x1004, Some(0x9044)),
            (0x1005, None),
        ] {
            assert_eq!(PATCH.moved_address(pc), expected, "{pc:#x}");
        }
    }

    #[test]
    fn a_record_is_parsed_as_it_was_stored() {
        let record = EntryPatchRecord::new();
        let bytes = |record: &EntryPatchRecord| {
            let EntryPatchRecord {
                at,
                trampoline,
                original,
                jump,
                moved,
            } = record;
            let words = [at, trampoline, original, jump, moved];
            let words = words.map(|word| word.load(Ordering::Relaxed).to_ne_bytes());
            let mut all = [0; size_of::<EntryPatchRecord>()];
            for (to, word) in all.chunks_mut(8).zip(words) {
                to.copy_from_slice(&word);
            }
            all
        };
        assert_eq!(EntryPatch::parse(&bytes(&record)), None);
        record.store(&PATCH);
        assert!(!record.is_free());
        assert_eq!(EntryPatch::parse(&bytes(&record)), Some(PATCH));
        assert_eq!(EntryPatch::parse(&bytes(&record)[..39]), None);
        record.clear();
        assert_eq!(EntryPatch::parse(&bytes(&record)), None);
    }
}
