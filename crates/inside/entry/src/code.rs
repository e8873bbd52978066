//! The code of a file that is loaded, as far as plans read it.

/// The code of a loaded file, with the place of one function in it.
#[derive(Clone, Copy, Debug)]
pub struct FunctionCode<'a> {
    /// The bytes of the executable segment.
    pub segment: &'a [u8],
    /// The address of the segment's first byte.
    pub segment_start: u64,
    /// The function's address.
    pub start: u64,
    /// Number of bytes of the function; 0 if the symbol does not say.
    pub size: u64,
    /// The address of the next function that a symbol names, or the segment's end.
    pub next: u64,
}

impl<'a> FunctionCode<'a> {
    /// Returns the bytes from an address to the segment's end; `None` outside the segment.
    pub(crate) fn bytes_from(&self, at: u64) -> Option<&'a [u8]> {
        let from = usize::try_from(at.checked_sub(self.segment_start)?).ok()?;
        self.segment.get(from..).filter(|bytes| !bytes.is_empty())
    }

    /// Returns the address behind the function. Without a size, it is the next function, but not
    /// further than any function of an allocator reaches.
    pub(crate) fn end(&self) -> u64 {
        const MAX_FUNCTION_LEN: u64 = 1 << 16;
        let size = match self.size {
            0 => self.next.saturating_sub(self.start).min(MAX_FUNCTION_LEN),
            size => size,
        };
        self.start.saturating_add(size)
    }
}
