//! Guesses what kind of data is in a block.

use crate::heap::MallocHeap;
use crate::image::words;

/// The kind of data in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BlockContent {
    /// An object: its first word may lead to the table of a C++ class, or be the address of a
    /// function.
    Object,
    /// UTF-8 text.
    Text,
    /// Pointers to other blocks, in at least half of the words.
    Pointers,
    /// Zeros only.
    Zeros,
    /// Any other data.
    Data,
}

impl BlockContent {
    /// Returns the kind's name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Text => "text",
            Self::Pointers => "pointers",
            Self::Zeros => "zeros",
            Self::Data => "data",
        }
    }
}

/// Maximum number of bytes of a block that are read.
const MAX_EXAMINED_BYTES: usize = 512;

/// Guesses the kind of data in `bytes`. `is_code` returns whether an address lies in a mapped file
/// of the program or a library.
pub(crate) fn content(
    bytes: &[u8],
    heap: &MallocHeap,
    is_code: impl Fn(u64) -> bool,
) -> BlockContent {
    let bytes = &bytes[..bytes.len().min(MAX_EXAMINED_BYTES)];
    if bytes.iter().all(|&byte| byte == 0) {
        return BlockContent::Zeros;
    }
    let all: Vec<u64> = words(bytes).collect();
    if all.first().is_some_and(|&word| is_code(word)) {
        return BlockContent::Object;
    }
    // Text ends at a zero, if it does not fill the block.
    let end = bytes
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(bytes.len());
    let is_text =
        |byte: &u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace() || *byte >= 0x80;
    if end >= 4 && bytes[..end].iter().all(is_text) && std::str::from_utf8(&bytes[..end]).is_ok() {
        return BlockContent::Text;
    }
    let pointers = all
        .iter()
        .filter(|&&word| heap.find(word).is_some())
        .count();
    match pointers * 2 >= all.len() && pointers > 0 {
        true => BlockContent::Pointers,
        false => BlockContent::Data,
    }
}
