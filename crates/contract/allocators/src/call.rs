//! What a call of an allocator's function does.

/// What a call of an allocator's function does. The fields are the positions of arguments, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocatorCall {
    /// Returns a block of `size` bytes.
    Allocate {
        /// Number of bytes.
        size: u8,
    },
    /// Returns a block for `count` objects of `size` bytes.
    AllocateMany {
        /// Number of objects.
        count: u8,
        /// Number of bytes of an object.
        size: u8,
    },
    /// Stores the address of a block of `size` bytes at `result`, and returns an error number.
    AllocateInto {
        /// Address of a pointer.
        result: u8,
        /// Number of bytes.
        size: u8,
    },
    /// Resizes `block`, which may be null, to `size` bytes, and returns where it is now.
    Resize {
        /// The block.
        block: u8,
        /// Number of bytes.
        size: u8,
    },
    /// Resizes `block`, which may be null, for `count` objects of `size` bytes, and returns where
    /// it is now.
    ResizeMany {
        /// The block.
        block: u8,
        /// Number of objects.
        count: u8,
        /// Number of bytes of an object.
        size: u8,
    },
    /// Resizes `block` where it is, and returns its real size, which may be the old one.
    ResizeInPlace {
        /// The block.
        block: u8,
        /// Number of bytes.
        size: u8,
    },
    /// Resizes `block` where it is, and returns it; null if that is not possible.
    Expand {
        /// The block.
        block: u8,
        /// Number of bytes.
        size: u8,
    },
    /// Frees `block`, which may be null.
    Free {
        /// The block.
        block: u8,
    },
}

/// Whether a function allocates or frees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocatorRole {
    /// The function returns a block, or resizes one.
    Allocates,
    /// The function takes a block back.
    Frees,
}

impl AllocatorCall {
    /// Returns whether the function allocates or frees.
    #[must_use]
    pub const fn role(self) -> AllocatorRole {
        match self {
            Self::Free { .. } => AllocatorRole::Frees,
            _ => AllocatorRole::Allocates,
        }
    }

    /// Returns the same call of a function that has one more argument before all others.
    #[must_use]
    pub(crate) const fn behind_one(self) -> Self {
        match self {
            Self::Allocate { size } => Self::Allocate { size: size + 1 },
            Self::AllocateMany { count, size } => Self::AllocateMany {
                count: count + 1,
                size: size + 1,
            },
            Self::AllocateInto { result, size } => Self::AllocateInto {
                result: result + 1,
                size: size + 1,
            },
            Self::Resize { block, size } => Self::Resize {
                block: block + 1,
                size: size + 1,
            },
            Self::ResizeMany { block, count, size } => Self::ResizeMany {
                block: block + 1,
                count: count + 1,
                size: size + 1,
            },
            Self::ResizeInPlace { block, size } => Self::ResizeInPlace {
                block: block + 1,
                size: size + 1,
            },
            Self::Expand { block, size } => Self::Expand {
                block: block + 1,
                size: size + 1,
            },
            Self::Free { block } => Self::Free { block: block + 1 },
        }
    }
}
