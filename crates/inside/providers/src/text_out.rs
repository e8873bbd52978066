//! Passes a provider's texts to the engine.

use std::ffi::c_char;

/// Copies `text` and a zero into a buffer of `size` bytes. A longer text is cut.
///
/// # Safety
/// The buffer at `to` has `size` bytes.
pub(crate) unsafe fn give(text: &[u8], to: *mut c_char, size: usize) {
    let Some(most) = size.checked_sub(1) else {
        return;
    };
    let n = text.len().min(most);
    // SAFETY: the caller promises that the buffer has `size` bytes.
    unsafe {
        to.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), n);
        *to.add(n) = 0;
    }
}
