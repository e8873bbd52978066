//! The numbers of texts, which many values share.

/// The number of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TextId(u32);

impl TextId {
    /// The empty text.
    pub(crate) const NONE: Self = Self(0);

    pub(crate) fn new(index: usize) -> Self {
        Self(index as u32)
    }

    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}
