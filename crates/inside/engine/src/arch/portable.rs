//! Signal frames of processors that have no folder here: their layout is not known.

use crate::arch::InterruptedRegisters;

/// Number of bytes of a signal frame that are read.
pub(crate) const SIGNAL_FRAME_LEN: usize = 0;

/// Returns true: any word may be part of a handler's frame.
pub(crate) fn is_signal_frame(_at: usize, _end: usize, _word: impl Fn(usize) -> usize) -> bool {
    true
}

/// Returns false: the code to which handlers return is not known.
pub(crate) fn is_restorer(_pc: usize) -> bool {
    false
}

/// Returns `None`: the registers of an interrupted thread are not found.
pub(crate) fn interrupted_registers(
    _slot: usize,
    _read: &mut dyn FnMut(usize) -> Option<usize>,
) -> Option<InterruptedRegisters> {
    None
}
