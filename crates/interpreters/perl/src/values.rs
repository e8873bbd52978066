//! Reads a Perl value's type, class, and size in bytes.
//!
//! All fields that are read here have the same offsets and meanings in perls from 5.20 to 5.42. The
//! module that traces values was compiled with the headers of its perl, and compares these offsets
//! with the headers.
//!
//! The layout is that of Perl's sv.h, av.h and hv.h.

use heapprof_memory::Memory;

use crate::frame::BoundedText;
use crate::interpreter::PerlRuntime;
use crate::sv::{
    ARRAY, HASH, INTEGER, IS_BLESSED, IS_REFERENCE, IS_SHARED, LVALUE, NUMBER, REGEXP, TEXT,
    TYPE_COUNT, TYPE_MASK,
};

/// Size in bytes of a value's head.
pub const HEAD_BYTES: usize = crate::sv::HEAD_SIZE as usize;
/// The number of words that are read from the beginning of a body.
pub const BODY_WORDS: usize = 5;

/// Index, in a body, of the word with the address of the class.
const STASH_WORD: usize = 0;
/// Index, in a hash's body, of the word with the number of keys.
const KEY_COUNT_WORD: usize = 2;
/// Index, in a body, of the word with a text's capacity, an array's last index, or the number of a
/// hash's last bucket.
const LENGTH_WORD: usize = 3;
/// Index, in an array's body, of the word with the address of the array's memory. The elements may
/// begin later in this memory, because first elements may have been removed.
const ALLOCATION_WORD: usize = 4;
/// Maximum size of an array, a hash or a text, in words of 8 bytes. A larger number comes from a
/// value that changed while it was read.
const MAX_WORDS: u64 = 1 << 44;
/// Size of an entry of a hash, in bytes. Perl takes entries from arenas.
const HASH_ENTRY_SIZE: u64 = 24;

/// The head of a value.
#[derive(Clone, Copy, Debug)]
pub struct SvHead {
    pub(crate) any: u64,
    flags: u32,
    pub(crate) u: u64,
}

impl SvHead {
    /// Reads a head from its bytes.
    pub fn new(bytes: &[u8; HEAD_BYTES]) -> Self {
        let [any, count_and_flags, u] = core::array::from_fn(|i| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[8 * i..8 * i + 8]);
            u64::from_ne_bytes(word)
        });
        Self {
            any,
            flags: (count_and_flags >> 32) as u32,
            u,
        }
    }

    pub(crate) fn kind(&self) -> u32 {
        self.flags & TYPE_MASK
    }

    /// Whether the head is unused.
    pub fn is_free(&self) -> bool {
        self.kind() == TYPE_MASK
    }

    /// Whether at least one of these flags is set.
    pub fn has(&self, flags: u32) -> bool {
        self.flags & flags != 0
    }

    /// Returns the address of the value's body; `None` if there is no body, or if the body has
    /// neither a class nor the size of a buffer.
    pub fn body(&self) -> Option<u64> {
        (self.kind() >= TEXT && self.any != 0).then_some(self.any)
    }

    /// Returns the index of the type's name in [`TYPE_NAMES`].
    pub fn name(&self) -> u8 {
        match self.kind() {
            0..=7 if self.has(IS_REFERENCE) => REFERENCE_TYPE,
            kind => kind.min(TYPE_NAMES.len() as u32 - 2) as u8,
        }
    }
}

const REFERENCE_TYPE: u8 = 17;

/// The names that Perl's `ref` returns for types, by type number. The last entry is the name of
/// references.
pub const TYPE_NAMES: [&str; 18] = [
    "SCALAR", "SCALAR", "SCALAR", "SCALAR", "INVLIST", "SCALAR", "SCALAR", "SCALAR", "REGEXP",
    "GLOB", "LVALUE", "ARRAY", "HASH", "CODE", "FORMAT", "IO", "OBJECT", "REF",
];

/// The first words of a value's body, as many as [`BODY_WORDS`].
pub type SvBody = [u64; BODY_WORDS];

/// Returns the address of the value's class; `None` if the value is not blessed.
pub fn class_of(head: &SvHead, body: &SvBody) -> Option<u64> {
    (head.has(IS_BLESSED) && body[STASH_WORD] != 0).then_some(body[STASH_WORD])
}

/// Returns the address of a byte with the number of other values that share the value's text;
/// `None` if the text is not shared.
pub fn sharers_of(head: &SvHead, body: &SvBody) -> Option<u64> {
    let is_shared = has_text(head) && head.has(IS_SHARED) && body[LENGTH_WORD] != 0;
    is_shared.then(|| head.u.wrapping_add(body[LENGTH_WORD] - 1))
}

/// Returns an address in the value's buffer, which is outside of arenas; `None` if it has no
/// buffer.
pub(crate) fn buffer_address(head: &SvHead) -> Option<u64> {
    let has_one = has_text(head) || matches!(head.kind(), ARRAY | HASH);
    (has_one && head.u != 0).then_some(head.u)
}

/// Returns the address of a value's body if it is in an arena.
pub(crate) fn arena_body(head: &SvHead) -> Option<u64> {
    (head.kind() >= NUMBER && head.any != 0).then_some(head.any)
}

/// Whether a value has a text in a buffer. Other values may share the buffer.
fn has_text(head: &SvHead) -> bool {
    let may_have = matches!(head.kind(), TEXT..REGEXP | LVALUE);
    may_have && head.u != 0 && !head.has(IS_REFERENCE)
}

/// The kind of content in a value's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SvBufferKind {
    /// A text.
    Text = 0,
    /// The elements of an array.
    Array,
    /// The buckets of a hash.
    Hash,
}

/// Returns the kind and the size in bytes of a value's buffer, which is outside of arenas. The size
/// of a shared text is divided by the number of values that share it: this value and `others` other
/// ones.
pub fn buffer_of(head: &SvHead, body: &SvBody, others: u8) -> (SvBufferKind, u64) {
    // An empty array has a last index of -1.
    let words = |last: u64| last.wrapping_add(1).min(MAX_WORDS) * 8;
    match head.kind() {
        ARRAY => {
            let before = head.u.saturating_sub(body[ALLOCATION_WORD]).min(MAX_WORDS);
            let has_some = body[ALLOCATION_WORD] != 0;
            let bytes = if has_some {
                words(body[LENGTH_WORD]) + before
            } else {
                0
            };
            (SvBufferKind::Array, bytes)
        }
        HASH => {
            let bytes = if head.u == 0 {
                0
            } else {
                words(body[LENGTH_WORD])
            };
            (SvBufferKind::Hash, bytes)
        }
        _ if has_text(head) => {
            let bytes = body[LENGTH_WORD].min(8 * MAX_WORDS) / (u64::from(others) + 1);
            (SvBufferKind::Text, bytes)
        }
        _ => (SvBufferKind::Text, 0),
    }
}

impl PerlRuntime {
    /// Returns the size of a value in bytes: its head, its body, the entries of a hash, and its
    /// buffer. A shared text is divided between this value and `others` other ones.
    pub fn bytes_of(&self, head: &SvHead, body: &SvBody, others: u8) -> u64 {
        let entries = match head.kind() {
            HASH => body[KEY_COUNT_WORD].min(MAX_WORDS) * HASH_ENTRY_SIZE,
            _ => 0,
        };
        let own = HEAD_BYTES as u64 + self.body_size(head.kind(), head.flags);
        let (_, buffer) = buffer_of(head, body, others);
        own + entries + buffer
    }

    /// Returns the size of a value's body in an arena, in bytes.
    pub(crate) fn body_size_of(&self, head: &SvHead) -> u64 {
        self.body_size(head.kind(), head.flags)
    }

    /// Returns the size of a body in an arena, in bytes, by the value's type and flags.
    pub fn body_size(&self, kind: u32, flags: u32) -> u64 {
        let Some(sizes) = self.body_sizes() else {
            return 0;
        };
        match kind {
            0 | INTEGER => 0,
            // The first types stand for other things among arenas.
            HASH if sizes[1] != 0 && flags & self.layout.sv_has_aux != 0 => sizes[1],
            NUMBER | TEXT.. if (kind as usize) < TYPE_COUNT => sizes[kind as usize],
            _ => 0,
        }
    }

    /// Appends the name of the class at `stash`. Returns whether it could be read.
    pub fn class_name<M: Memory>(&self, memory: M, stash: u64, name: &mut BoundedText<'_>) -> bool {
        self.package(memory, stash, name).is_some()
    }

    /// Returns the addresses of three variables of an interpreter: the first free head, the newest
    /// arena of heads, and the count of values.
    pub fn value_roots(&self, interpreter: u64) -> Option<[u64; 3]> {
        let variables = self.variable.arenas?;
        let of = [
            variables.sv_root,
            variables.sv_arenaroot,
            variables.sv_count,
        ];
        Some(of.map(|variable| interpreter.wrapping_add(variable)))
    }
}

const _: () = assert!(REFERENCE_TYPE as usize == TYPE_NAMES.len() - 1);
