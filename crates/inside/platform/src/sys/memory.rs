//! Mappings, and reads of memory that may not be mapped.

use std::ops::Range;
use std::sync::atomic::AtomicU64;

use super::{EngineFile, call, process_id};

/// Number of bytes of a page.
pub const PAGE_SIZE: usize = 4096;

/// Maps fresh zeroed private memory. Returns null if the kernel refuses.
pub fn map(len: usize) -> *mut u8 {
    let prot = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as usize;
    // SAFETY: a new anonymous mapping touches no memory that exists.
    let at = unsafe { call(libc::SYS_mmap, [0, len, prot, flags, usize::MAX, 0]) };
    if (-4095..0).contains(&at) {
        return std::ptr::null_mut();
    }
    mark_as_own(at as usize..at as usize + len);
    at as *mut u8
}

/// Marks memory without a file as heapprof's own. It appears in /proc/PID/maps as
/// `[anon:heapprof]`, which distinguishes it from the program's memory. `range` consists of whole
/// pages.
pub fn mark_as_own(range: Range<usize>) {
    const PR_SET_VMA: usize = 0x5356_4d41;
    let (at, len) = (range.start, range.len());
    let name = c"heapprof".as_ptr() as usize;
    // Many kernels can't name mappings. There, an advice without effect on memory without a file
    // distinguishes the engine's mappings from the program's in smaps, and keeps the kernel from
    // joining them.
    // SAFETY: neither call changes memory. A kernel without support, or a range that is not mapped,
    // is answered with an error.
    unsafe {
        call(libc::SYS_prctl, [PR_SET_VMA, 0, at, len, name, 0]);
        let advice = libc::MADV_RANDOM as usize;
        call(libc::SYS_madvise, [at, len, advice, 0, 0, 0]);
    }
}

/// Maps fresh zeroed private memory at `at`, the start of a page. Returns false if the kernel
/// refuses, or if anything is mapped there.
pub fn map_at(at: usize, len: usize) -> bool {
    let prot = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    // A kernel before 4.17 takes the address as a wish.
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: a new anonymous mapping touches no memory that exists.
    let made = unsafe {
        call(
            libc::SYS_mmap,
            [at, len, prot, flags as usize, usize::MAX, 0],
        )
    };
    if (-4095..0).contains(&made) {
        return false;
    }
    if made as usize == at {
        mark_as_own(at..at + len);
        return true;
    }
    // SAFETY: the mapping was just made, and nobody has its address.
    unsafe { call(libc::SYS_munmap, [made as usize, len, 0, 0, 0, 0]) };
    false
}

/// Makes whole pages of the engine's own memory executable, and no longer writable. Returns false
/// if the kernel refuses.
///
/// # Safety
/// The memory contains code, and is not written to any more.
pub unsafe fn make_executable(at: usize, len: usize) -> bool {
    let prot = (libc::PROT_READ | libc::PROT_EXEC) as usize;
    // SAFETY: the caller's contract.
    unsafe { call(libc::SYS_mprotect, [at, len, prot, 0, 0, 0]) == 0 }
}

/// Maps the first `len` bytes of a file to be read. Returns null if the kernel refuses.
pub fn map_to_read(file: &EngineFile, len: usize) -> *const u8 {
    let (prot, flags) = (libc::PROT_READ as usize, libc::MAP_PRIVATE as usize);
    let args = [0, len, prot, flags, file.number() as usize, 0];
    // SAFETY: a new mapping touches no memory that exists.
    match unsafe { call(libc::SYS_mmap, args) } {
        at if at > 0 => at as *const u8,
        _ => std::ptr::null(),
    }
}

/// Maps the first word of a file, so that this process sees each change of it. Returns `None` if
/// the file is not a regular file, or is shorter than a word. The mapping is never removed.
pub fn map_word(file: &EngineFile) -> Option<&'static AtomicU64> {
    let found = file.stat()?;
    if found.st_mode & libc::S_IFMT != libc::S_IFREG || found.st_size < size_of::<u64>() as i64 {
        return None;
    }
    let (prot, flags) = (libc::PROT_READ as usize, libc::MAP_SHARED as usize);
    let fd = file.number() as usize;
    // SAFETY: a new mapping touches no memory that exists.
    let at = unsafe { call(libc::SYS_mmap, [0, PAGE_SIZE, prot, flags, fd, 0]) };
    // SAFETY: the mapping is a page long and stays. It is only loaded from. Only the user of
    // `record` may write the file, and could end this process in other ways, too.
    (at > 0).then(|| unsafe { &*(at as *const AtomicU64) })
}

/// Makes a word that this process shares with all its forked children. Returns `None` if there is
/// no memory. The mapping is never removed.
pub fn shared_word() -> Option<&'static AtomicU64> {
    let prot = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let flags = (libc::MAP_SHARED | libc::MAP_ANONYMOUS) as usize;
    // SAFETY: a new mapping touches no memory that exists.
    let at = unsafe { call(libc::SYS_mmap, [0, PAGE_SIZE, prot, flags, usize::MAX, 0]) };
    // SAFETY: the mapping is a page of zeros, and stays.
    (at > 0).then(|| unsafe { &*(at as *const AtomicU64) })
}

/// Unmaps memory that [`map`] mapped.
///
/// # Safety
/// `at..at+len` came from [`map`] and nothing refers to it any more.
pub unsafe fn unmap(at: *mut u8, len: usize) {
    // SAFETY: the caller's contract.
    unsafe { call(libc::SYS_munmap, [at as usize, len, 0, 0, 0, 0]) };
}

/// Changes the length of one of the engine's mappings. The mapping may move. Returns null if the
/// kernel refuses.
///
/// # Safety
/// `at..at+len` came from [`map`] and nothing refers to it any more.
pub unsafe fn remap(at: *mut u8, len: usize, new_len: usize) -> *mut u8 {
    let may_move = libc::MREMAP_MAYMOVE as usize;
    // SAFETY: the caller's contract.
    let at = unsafe {
        call(
            libc::SYS_mremap,
            [at as usize, len, new_len, may_move, 0, 0],
        )
    };
    if (-4095..0).contains(&at) {
        std::ptr::null_mut()
    } else {
        at as *mut u8
    }
}

/// Discards pages of one of the engine's mappings. The addresses stay mapped.
///
/// # Safety
/// `at..at+len` came from [`map`] and nothing refers to its content any more.
pub unsafe fn discard(at: *mut u8, len: usize) {
    let args = [at as usize, len, libc::MADV_DONTNEED as usize, 0, 0, 0];
    // SAFETY: the caller's contract.
    unsafe { call(libc::SYS_madvise, args) };
}

/// Number of bytes of a large page.
pub const LARGE_PAGE_SIZE: usize = 2 << 20;

/// Maps fresh zeroed private memory for a table that will be filled. From a length of
/// [`LARGE_PAGE_SIZE`] on, the memory has large pages if the kernel has any, because large pages
/// cause fewer faults and fewer misses in the TLB.
pub fn map_dense(len: usize) -> *mut u8 {
    if len < LARGE_PAGE_SIZE {
        return map(len);
    }
    let len = len.next_multiple_of(PAGE_SIZE);
    let mapped = map(len + LARGE_PAGE_SIZE);
    if mapped.is_null() {
        return map(len);
    }
    let before = mapped.addr().next_multiple_of(LARGE_PAGE_SIZE) - mapped.addr();
    // SAFETY: both ends are parts of the mapping that no other code knows of.
    unsafe {
        let start = mapped.add(before);
        if before != 0 {
            unmap(mapped, before);
        }
        unmap(start.add(len), LARGE_PAGE_SIZE - before);
        // The kernel may ignore this advice.
        let wish = [start as usize, len, libc::MADV_HUGEPAGE as usize, 0, 0, 0];
        call(libc::SYS_madvise, wish);
        start
    }
}

/// Returns how many bytes of a mapping are resident, in whole pages; 0 if the kernel does not
/// report it.
// It is called for each of many tables, and each copy of it would clear a buffer of its own.
#[inline(never)]
pub fn resident(at: *const u8, len: usize) -> usize {
    let before = at.addr() % PAGE_SIZE;
    let (at, len) = (at.wrapping_sub(before), len + before);
    let mut pages = [0u8; 512];
    let step = pages.len() * PAGE_SIZE;
    let mut resident = 0;
    for from in (0..len).step_by(step) {
        let part = (len - from).min(step);
        let args = [
            at as usize + from,
            part,
            pages.as_mut_ptr() as usize,
            0,
            0,
            0,
        ];
        // SAFETY: the kernel writes one byte for each page, and there is room for them.
        if unsafe { call(libc::SYS_mincore, args) } != 0 {
            return 0;
        }
        let reported = &pages[..part.div_ceil(PAGE_SIZE)];
        resident += reported.iter().filter(|&&page| page & 1 == 1).count();
    }
    resident * PAGE_SIZE
}

/// Copies memory of this process into `buf`, up to the first page that is not mapped. Copies at
/// most to the end of the eighth page. Returns the number of copied bytes, which may be 0.
pub fn read_memory(at: usize, buf: &mut [u8]) -> usize {
    // The kernel copies a part as a whole or not at all.
    let mut parts = [[0usize; 2]; 8];
    let (mut from, mut left, mut count) = (at, buf.len(), 0);
    for part in &mut parts {
        let len = left.min(PAGE_SIZE - from % PAGE_SIZE);
        if len == 0 {
            break;
        }
        *part = [from, len];
        (from, left, count) = (from.wrapping_add(len), left - len, count + 1);
    }
    let local = [buf.as_mut_ptr() as usize, buf.len()];
    let pid = process_id() as usize;
    let (local, remote) = (local.as_ptr() as usize, parts.as_ptr() as usize);
    // SAFETY: the kernel checks each part, and writes only into `buf`.
    let n = unsafe {
        call(
            libc::SYS_process_vm_readv,
            [pid, local, 1, remote, count, 0],
        )
    };
    n.max(0) as usize
}

/// Copies `N` bytes of this process from each address of `from`. Stops at the first address whose
/// bytes can't all be read. Returns the number of addresses whose bytes were read.
pub fn read_each<const N: usize>(from: &[u64], to: &mut [[u8; N]]) -> usize {
    /// Maximum number of reads that the kernel does in one call.
    const MAX_READS: usize = 512;
    let count = from.len().min(to.len()).min(MAX_READS);
    let mut parts = [[0usize; 2]; MAX_READS];
    for (part, &at) in parts.iter_mut().zip(&from[..count]) {
        *part = [at as usize, N];
    }
    let local = [to.as_mut_ptr() as usize, count * N];
    let pid = process_id() as usize;
    let (local, remote) = (local.as_ptr() as usize, parts.as_ptr() as usize);
    // SAFETY: the kernel checks each part, and writes only into `to`.
    let n = unsafe {
        call(
            libc::SYS_process_vm_readv,
            [pid, local, 1, remote, count, 0],
        )
    };
    n.max(0) as usize / N
}

/// Makes the kernel give children of this process zeros instead of a mapping's content. Returns
/// whether the kernel supports it.
pub fn wipe_on_fork(at: *mut u8, len: usize) -> bool {
    const WIPE_ON_FORK: usize = 18;
    // SAFETY: advice about a mapping of the engine.
    unsafe { call(libc::SYS_madvise, [at as usize, len, WIPE_ON_FORK, 0, 0, 0]) == 0 }
}
