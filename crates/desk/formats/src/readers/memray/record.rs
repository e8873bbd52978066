//! Records of a capture of memray, and the functions that allocate and free.

/// A record of a capture.
pub(super) enum MemrayRecord {
    /// The end of the capture. It has no end mark if the program was killed.
    End { is_marked: bool },
    /// A block was allocated or freed. A free has no size, unless it frees a mapping.
    Block {
        address: u64,
        size: u64,
        allocator: MemrayAllocator,
    },
    /// The running thread called a function. The values are a code object and an offset in it, or,
    /// in old files, the number of a frame and 0.
    Push(u64, i64),
    /// The running thread returned from this number of functions.
    Pop(u64),
    /// From now on, the given thread is running.
    Thread(u64),
    /// Name of the running thread.
    ThreadName(Vec<u8>),
    /// The description of a function, with the table of its lines.
    Code {
        id: u64,
        name: Vec<u8>,
        file: Vec<u8>,
        first_line: i64,
        lines: Vec<u8>,
    },
    /// The description of a frame in an old file: a function and a line in it.
    Frame {
        id: u64,
        name: Vec<u8>,
        file: Vec<u8>,
        line: i64,
    },
    /// The resident set in bytes, and the milliseconds since the start.
    Resident { bytes: u64, time: u64 },
    /// A frame in a file with sums: its number, and the values as in [`MemrayRecord::Push`].
    NumberedFrame { number: u64, code: u64, offset: i64 },
    /// A stack in a file with sums: its innermost frame, and the number of the stack of the
    /// callers.
    Stack { frame: u64, parent: u64 },
    /// The sums of a thread, stack and allocator, in a file with sums.
    Sum(MemrayStackSum),
    /// A record that a profile does not need.
    Other,
}

/// The sums of a thread, stack and allocator, in a file with sums.
pub(super) struct MemrayStackSum {
    pub(super) thread: u64,
    pub(super) allocator: MemrayAllocator,
    pub(super) stack: u64,
    /// Number of blocks and bytes when the heap was largest.
    pub(super) peak: [u64; 2],
    /// Number of blocks and bytes at the end.
    pub(super) in_use: [u64; 2],
}

/// A function that allocates or frees, as its number in files from version 12 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct MemrayAllocator(u8);

pub(super) const MMAP: MemrayAllocator = MemrayAllocator(14);
pub(super) const MUNMAP: MemrayAllocator = MemrayAllocator(15);

/// Names of the allocating and freeing functions, from number 1.
const ALLOCATOR_NAMES: [&str; 15] = [
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

/// Numbers of functions in files from version 12 on, by the numbers 1 to 15 that the same functions
/// have in older files.
const OLD_ALLOCATOR_NUMBERS: [u8; 15] = [6, 5, 8, 7, 9, 10, 11, 12, 13, 14, 15, 2, 3, 4, 1];

impl MemrayAllocator {
    pub(super) fn from_number(number: u8) -> Option<Self> {
        (1..=ALLOCATOR_NAMES.len())
            .contains(&number.into())
            .then_some(Self(number))
    }

    pub(super) fn from_old_number(number: u8) -> Option<Self> {
        let place = usize::from(number).checked_sub(1)?;
        OLD_ALLOCATOR_NUMBERS.get(place).map(|&number| Self(number))
    }

    pub(super) fn name(self) -> &'static str {
        ALLOCATOR_NAMES[usize::from(self.0) - 1]
    }

    /// Whether records of this function have a size. Only functions that free one block have none.
    pub(super) fn has_size(self) -> bool {
        !matches!(self.0, 1 | 5)
    }
}

#[cfg(test)]
impl MemrayAllocator {
    pub(super) const fn with_number(number: u8) -> Self {
        Self(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocators_have_other_numbers_in_old_files() {
        let old = (0..=16)
            .map(|number| MemrayAllocator::from_old_number(number).map(MemrayAllocator::name));
        let names: Vec<_> = old.flatten().collect();
        assert_eq!(names[..4], ["malloc", "free", "calloc", "realloc"]);
        assert_eq!(names[9..12], ["mmap", "munmap", "pymalloc_malloc"]);
        assert_eq!(names.len(), 15);
        assert_eq!(
            MemrayAllocator::from_number(0).or(MemrayAllocator::from_number(16)),
            None
        );
    }
}
