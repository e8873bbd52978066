//! Texts that a provider gives to the engine.

use std::ffi::c_char;

/// Puts `text` and a zero into a text of `size` bytes.
///
/// # Safety
/// There is room for so many bytes.
pub unsafe fn give(text: &[u8], to: *mut c_char, size: usize) {
    let Some(most) = size.checked_sub(1) else {
        return;
    };
    let n = text.len().min(most);
    // SAFETY: the caller's promise.
    unsafe {
        to.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), n);
        *to.add(n) = 0;
    }
}
