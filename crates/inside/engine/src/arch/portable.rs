//! Signal frames of processors that have no folder here: their layout is not known.

/// Number of bytes of a signal frame that are read.
pub(crate) const SIGNAL_FRAME_LEN: usize = 0;

/// Returns true: any word may be part of a handler's frame.
pub(crate) fn is_signal_frame(_at: usize, _end: usize, _word: impl Fn(usize) -> usize) -> bool {
    true
}
