//! The functions of musl's allocator, in forms that lead to no hook. In musl, calloc calls malloc,
//! and memalign calls aligned_alloc, in such a way that another library can replace the function
//! that is called. So the hooks would count these blocks twice.

use std::ffi::CStr;

use heapprof_platform::sys::PAGE_SIZE;

use super::{fail, next, real, set_aligned_functions};

/// Returns the function of malloc's family that this library calls in a program of musl; 0 if there
/// is none.
pub fn function(name: &CStr) -> usize {
    let next = |name| next(name).unwrap_or_default() as usize;
    match name.to_bytes() {
        b"calloc" => allocate_zeroed as *const () as usize,
        // Both take any power of two and any size.
        b"memalign" => next(c"aligned_alloc"),
        b"valloc" => allocate_page_aligned as *const () as usize,
        b"pvalloc" => allocate_pages as *const () as usize,
        _ => next(name),
    }
}

/// The function calloc.
unsafe extern "C" fn allocate_zeroed(count: usize, size: usize) -> *mut u8 {
    let Some(len) = count.checked_mul(size) else {
        return fail(libc::ENOMEM);
    };
    // SAFETY: malloc's contract; the block has `len` bytes.
    unsafe {
        let block = (real().malloc)(len);
        if !block.is_null() {
            clear(block, len);
        }
        block
    }
}

/// Clears `len` bytes at `block`. A page that holds only zeros is not written: memory from the
/// kernel is used only when it is written. musl's calloc does the same if malloc is not its own.
///
/// # Safety
/// The memory is valid for writes.
unsafe fn clear(block: *mut u8, len: usize) {
    let end = block as usize + len;
    let mut at = block as usize;
    while at < end {
        let next = ((at / PAGE_SIZE + 1) * PAGE_SIZE).min(end);
        // SAFETY: the caller's contract. The bytes may never have been written, so they are read as
        // the kernel or an earlier owner left them.
        unsafe {
            if next - at < PAGE_SIZE || !is_zero_page(at as *const u64) {
                std::ptr::write_bytes(at as *mut u8, 0, next - at);
            }
        }
        at = next;
    }
}

/// Whether a page holds only zeros.
///
/// # Safety
/// The page at `at` can be read.
unsafe fn is_zero_page(at: *const u64) -> bool {
    // SAFETY: the caller's contract. The reads are volatile, because the memory is uninitialized.
    (0..PAGE_SIZE / size_of::<u64>()).all(|i| unsafe { at.add(i).read_volatile() } == 0)
}

/// Makes all functions fail that allocate aligned memory, as they do in musl if malloc is another
/// library's and aligned_alloc is not. musl itself takes the hook for the other library's.
pub fn refuse_alignment() {
    unsafe extern "C" fn refuse_aligned(_align: usize, _size: usize) -> *mut u8 {
        fail(libc::ENOMEM)
    }
    unsafe extern "C" fn refuse_page_aligned(_size: usize) -> *mut u8 {
        fail(libc::ENOMEM)
    }
    set_aligned_functions(refuse_aligned, refuse_page_aligned);
}

/// The function valloc.
unsafe extern "C" fn allocate_page_aligned(size: usize) -> *mut u8 {
    // SAFETY: memalign takes any power of two.
    unsafe { (real().memalign)(PAGE_SIZE, size) }
}

/// The function pvalloc, which musl itself lacks.
unsafe extern "C" fn allocate_pages(size: usize) -> *mut u8 {
    match size.checked_next_multiple_of(PAGE_SIZE) {
        // SAFETY: memalign takes any power of two.
        Some(len) => unsafe { (real().memalign)(PAGE_SIZE, len) },
        None => fail(libc::ENOMEM),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_cleared_to_its_end() {
        for (len, offset) in [
            (0, 0),
            (1, 3),
            (PAGE_SIZE - 1, 1),
            (PAGE_SIZE, 0),
            (5 * PAGE_SIZE + 7, 24),
        ] {
            for begin in [0, PAGE_SIZE + 100] {
                let mut memory = vec![0u8; 8 * PAGE_SIZE];
                let at = begin + offset;
                memory[at..at + len].fill(0xaa);
                memory[at + len] = 1;
                // SAFETY: the vector is longer than that.
                unsafe { clear(memory.as_mut_ptr().add(at), len) };
                assert!(memory[..at + len].iter().all(|&byte| byte == 0), "{len}");
                assert_eq!(memory[at + len], 1, "{len}");
            }
        }
    }
}
