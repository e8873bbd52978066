//! What the records of a capture of memray say, and the functions that allocate and free.

/// What a record says.
pub(super) enum Record {
    /// The end. A program that is killed leaves none.
    End { is_marked: bool },
    /// A block was allocated or freed. A free has no size, except that of a mapping.
    Block {
        address: u64,
        size: u64,
        allocator: Allocator,
    },
    /// The running thread called a function: a code object and an offset in it, or, in old files,
    /// the number of a frame and 0.
    Push(u64, i64),
    /// The running thread returned from so many functions.
    Pop(u64),
    /// The thread that runs from here on.
    Thread(u64),
    /// The running thread's name.
    ThreadName(Vec<u8>),
    /// A function, with the table of its lines.
    Code {
        id: u64,
        name: Vec<u8>,
        file: Vec<u8>,
        first_line: i64,
        lines: Vec<u8>,
    },
    /// A function and a line in it, of old files.
    Frame {
        id: u64,
        name: Vec<u8>,
        file: Vec<u8>,
        line: i64,
    },
    /// The resident set in bytes, and the milliseconds since the start.
    Resident { bytes: u64, time: u64 },
    /// Of a file with sums: the number of a frame, and what [`Record::Push`] has.
    NumberedFrame { number: u64, code: u64, offset: i64 },
    /// Of a file with sums: a stack, as its innermost frame and the number of the stack outside.
    Stack { frame: u64, parent: u64 },
    /// Of a file with sums: what a thread holds of a stack and allocator.
    Sum(Sum),
    /// Something that a profile does not have.
    Other,
}

/// The sums of a stack.
pub(super) struct Sum {
    pub(super) thread: u64,
    pub(super) allocator: Allocator,
    pub(super) stack: u64,
    /// Blocks and bytes when the heap was largest.
    pub(super) peak: [u64; 2],
    /// Blocks and bytes at the end.
    pub(super) held: [u64; 2],
}

/// A function that allocates or frees, as newer files number it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Allocator(u8);

pub(super) const MMAP: Allocator = Allocator(14);
pub(super) const MUNMAP: Allocator = Allocator(15);

/// The names, from 1.
const NAMES: [&str; 15] = [
    "pymalloc_free",
    "pymalloc_malloc",
    "pymalloc_calloc",
    "pymalloc_realloc",
    "free",
    "malloc",
    "realloc",
    "calloc",
    "posix_memalign",
    "aligned_alloc",
    "memalign",
    "valloc",
    "pvalloc",
    "mmap",
    "munmap",
];

/// What files up to version 11 number from 1, in the numbers of newer files.
const OLD: [u8; 15] = [6, 5, 8, 7, 9, 10, 11, 12, 13, 14, 15, 2, 3, 4, 1];

impl Allocator {
    pub(super) fn of(number: u8) -> Option<Self> {
        (1..=NAMES.len())
            .contains(&number.into())
            .then_some(Self(number))
    }

    pub(super) fn of_old(number: u8) -> Option<Self> {
        let place = usize::from(number).checked_sub(1)?;
        OLD.get(place).map(|&number| Self(number))
    }

    pub(super) fn name(self) -> &'static str {
        NAMES[usize::from(self.0) - 1]
    }

    /// Whether it says a size: all do except those that free one block.
    pub(super) fn has_size(self) -> bool {
        !matches!(self.0, 1 | 5)
    }
}

#[cfg(test)]
impl Allocator {
    pub(super) const fn numbered(number: u8) -> Self {
        Self(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocators_have_other_numbers_in_old_files() {
        let old = (0..=16).map(|number| Allocator::of_old(number).map(Allocator::name));
        let names: Vec<_> = old.flatten().collect();
        assert_eq!(names[..4], ["malloc", "free", "calloc", "realloc"]);
        assert_eq!(names[9..12], ["mmap", "munmap", "pymalloc_malloc"]);
        assert_eq!(names.len(), 15);
        assert_eq!(Allocator::of(0).or(Allocator::of(16)), None);
    }
}
