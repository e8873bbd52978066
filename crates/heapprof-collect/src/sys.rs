//! The kernel's calls, made directly: libc's wrappers set errno, which belongs to the program.

use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

#[cfg(target_arch = "x86_64")]
use std::arch::asm;

/// One system call.
///
/// # Safety
/// The kernel's contract for call number `n` with these arguments.
#[cfg(target_arch = "x86_64")]
pub unsafe fn call(n: libc::c_long, args: [usize; 6]) -> isize {
    let result;
    // SAFETY: the caller vouches for the arguments; rcx and r11 are what `syscall` clobbers.
    unsafe {
        asm!("syscall", inlateout("rax") n as isize => result,
            in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
            in("r10") args[3], in("r8") args[4], in("r9") args[5],
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

/// One system call; elsewhere than on x86-64 through libc, with errno put back.
///
/// # Safety
/// The kernel's contract for call number `n` with these arguments.
#[cfg(not(target_arch = "x86_64"))]
pub unsafe fn call(n: libc::c_long, args: [usize; 6]) -> isize {
    // SAFETY: the caller vouches for the arguments; errno is this thread's own.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        let result = libc::syscall(n, args[0], args[1], args[2], args[3], args[4], args[5]);
        let failed = *errno;
        *errno = before;
        if result == -1 {
            -(failed as isize)
        } else {
            result as isize
        }
    }
}

/// Fresh zeroed private memory; null when the kernel refuses.
pub fn map(len: usize) -> *mut u8 {
    let prot = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as usize;
    // SAFETY: a new anonymous mapping touches no memory that exists.
    let at = unsafe { call(libc::SYS_mmap, [0, len, prot, flags, usize::MAX, 0]) };
    if (-4095..0).contains(&at) {
        return std::ptr::null_mut();
    }
    // Shown in /proc/PID/maps as [anon:heapprof], so that ours can be told from the program's.
    const PR_SET_VMA: usize = 0x5356_4d41;
    let name = c"heapprof".as_ptr() as usize;
    // SAFETY: names the mapping just made; a kernel without support answers EINVAL.
    unsafe { call(libc::SYS_prctl, [PR_SET_VMA, 0, at as usize, len, name, 0]) };
    at as *mut u8
}

/// Gives back what [`map`] gave.
///
/// # Safety
/// `at..at+len` came from [`map`] and nothing refers to it any more.
pub unsafe fn unmap(at: *mut u8, len: usize) {
    // SAFETY: as the caller vouches.
    unsafe { call(libc::SYS_munmap, [at as usize, len, 0, 0, 0, 0]) };
}

/// Moves a mapping of ours to a new length; null when the kernel refuses.
///
/// # Safety
/// As for [`unmap`].
pub unsafe fn remap(at: *mut u8, len: usize, new_len: usize) -> *mut u8 {
    let may_move = libc::MREMAP_MAYMOVE as usize;
    // SAFETY: as the caller vouches.
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

/// Registers for [`barrier`]; whether the kernel has it.
pub(crate) fn register_barrier() -> bool {
    const REGISTER_PRIVATE_EXPEDITED: usize = 1 << 4;
    // SAFETY: takes no memory.
    unsafe {
        call(
            libc::SYS_membarrier,
            [REGISTER_PRIVATE_EXPEDITED, 0, 0, 0, 0, 0],
        ) == 0
    }
}

/// Runs a memory barrier on every core that runs a thread of this process; whether the kernel did.
pub(crate) fn barrier() -> bool {
    const PRIVATE_EXPEDITED: usize = 1 << 3;
    // SAFETY: takes no memory.
    unsafe { call(libc::SYS_membarrier, [PRIVATE_EXPEDITED, 0, 0, 0, 0, 0]) == 0 }
}

/// Lets another thread run.
pub(crate) fn yield_now() {
    // SAFETY: takes no arguments.
    unsafe { call(libc::SYS_sched_yield, [0; 6]) };
}

/// Whether this process has the thread that the kernel knows by this number.
pub(crate) fn is_thread(number: i32) -> bool {
    let args = [process_id() as usize, number as usize, 0, 0, 0, 0];
    // SAFETY: no signal is sent.
    unsafe { call(libc::SYS_tgkill, args) == 0 }
}

/// Sleeps a moment.
pub(crate) fn nap() {
    sleep(50_000);
}

/// Sleeps for so many nanoseconds, less than a second, or until a signal comes.
pub fn sleep(nanoseconds: u64) {
    let time = [0, nanoseconds];
    // SAFETY: the time is valid.
    unsafe { call(libc::SYS_nanosleep, [time.as_ptr() as usize, 0, 0, 0, 0, 0]) };
}

/// Gives the pages behind part of a mapping of ours back; the addresses stay.
///
/// # Safety
/// As for [`unmap`].
pub(crate) unsafe fn discard(at: *mut u8, len: usize) {
    let args = [at as usize, len, libc::MADV_DONTNEED as usize, 0, 0, 0];
    // SAFETY: as the caller vouches.
    unsafe { call(libc::SYS_madvise, args) };
}

/// The size of a large page.
pub(crate) const LARGE: usize = 2 << 20;

/// As [`map`], for tables that will be filled: from [`LARGE`] on with large pages if the kernel has any, which take fewer
/// faults and misses in the TLB.
pub(crate) fn map_dense(len: usize) -> *mut u8 {
    if len < LARGE {
        return map(len);
    }
    let len = len.next_multiple_of(4096);
    let mapped = map(len + LARGE);
    if mapped.is_null() {
        return map(len);
    }
    let before = mapped.addr().next_multiple_of(LARGE) - mapped.addr();
    // SAFETY: both ends are parts of the mapping that nobody knows of.
    unsafe {
        let start = mapped.add(before);
        if before != 0 {
            unmap(mapped, before);
        }
        unmap(start.add(len), LARGE - before);
        // A wish, no more.
        let wish = [start as usize, len, libc::MADV_HUGEPAGE as usize, 0, 0, 0];
        call(libc::SYS_madvise, wish);
        start
    }
}

/// Whether at least half of the pages of a mapping are in memory.
pub(crate) fn is_mostly_resident(at: *const u8, len: usize) -> bool {
    let mut pages = [0u8; 512];
    let step = pages.len() * 4096;
    let (mut resident, mut all) = (0, 0);
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
        // SAFETY: the kernel writes a byte a page, and there is room for as many.
        if unsafe { call(libc::SYS_mincore, args) } != 0 {
            return false;
        }
        let told = &pages[..part.div_ceil(4096)];
        resident += told.iter().filter(|&&page| page & 1 == 1).count();
        all += told.len();
    }
    resident * 2 >= all
}

/// Sleeps until `word` is no longer `expected`, or for no reason at all.
pub fn futex_wait(word: &AtomicU32, expected: u32) {
    wait(word, expected, std::ptr::null());
}

/// As [`futex_wait`], for so many nanoseconds at most.
pub(crate) fn futex_wait_for(word: &AtomicU32, expected: u32, nanoseconds: i64) {
    let time = libc::timespec {
        tv_sec: nanoseconds / 1_000_000_000,
        tv_nsec: nanoseconds % 1_000_000_000,
    };
    wait(word, expected, &raw const time);
}

fn wait(word: &AtomicU32, expected: u32, most: *const libc::timespec) {
    const WAIT_PRIVATE: usize = 128;
    let (at, most) = (word.as_ptr() as usize, most as usize);
    let args = [at, WAIT_PRIVATE, expected as usize, most, 0, 0];
    // SAFETY: the word and the time, if there is one, outlive the call.
    unsafe { call(libc::SYS_futex, args) };
}

/// Wakes one sleeper on `word`.
pub fn futex_wake(word: &AtomicU32) {
    const WAKE_PRIVATE: usize = 129;
    // SAFETY: the word outlives the call.
    unsafe {
        call(
            libc::SYS_futex,
            [word.as_ptr() as usize, WAKE_PRIVATE, 1, 0, 0, 0],
        )
    };
}

/// A clock's time.
pub(crate) fn nanoseconds(clock: libc::clockid_t) -> i64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is valid to write.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// This process.
pub fn process_id() -> i32 {
    // SAFETY: takes no arguments.
    unsafe { call(libc::SYS_getpid, [0; 6]) as i32 }
}

/// The process that started this one.
pub fn parent_id() -> i32 {
    // SAFETY: takes no arguments.
    unsafe { call(libc::SYS_getppid, [0; 6]) as i32 }
}

/// An open file that closes itself.
pub struct File(i32);

impl File {
    /// Opens `path`; the error is an errno.
    pub fn open(path: &CStr, flags: i32, mode: u32) -> Result<Self, i32> {
        let flags = (flags | libc::O_CLOEXEC) as usize;
        let at = libc::AT_FDCWD as usize;
        // SAFETY: the path ends in a zero byte.
        let fd = unsafe {
            call(
                libc::SYS_openat,
                [at, path.as_ptr() as usize, flags, mode as usize, 0, 0],
            )
        };
        if fd < 0 {
            Err(-fd as i32)
        } else {
            Ok(Self(fd as i32).out_of_the_way())
        }
    }

    /// The same file by a number that the program does not come to: it may close all that it does not know, go on using one
    /// that it closed, and have its own files at once where ours was.
    fn out_of_the_way(self) -> Self {
        const FIRST: usize = 200;
        let args = [
            self.0 as usize,
            libc::F_DUPFD_CLOEXEC as usize,
            FIRST,
            0,
            0,
            0,
        ];
        // SAFETY: the file is ours. The kernel refuses a number beyond the process's limit.
        match unsafe { call(libc::SYS_fcntl, args) } {
            high if high >= 0 => Self(high as i32),
            _ => self,
        }
    }

    /// From now on writes wait for room, in a file that was opened without waiting.
    pub(crate) fn wait_for_room(&self) {
        let args = [self.0 as usize, libc::F_SETFL as usize, 0, 0, 0, 0];
        // SAFETY: the file is ours.
        unsafe { call(libc::SYS_fcntl, args) };
    }

    /// Reads what comes next; 0 at the end and on errors.
    pub fn read(&self, buf: &mut [u8]) -> usize {
        loop {
            // SAFETY: the kernel writes at most `buf.len()` bytes into `buf`.
            let n = unsafe {
                let args = [
                    self.0 as usize,
                    buf.as_mut_ptr() as usize,
                    buf.len(),
                    0,
                    0,
                    0,
                ];
                call(libc::SYS_read, args)
            };
            if n != -libc::EINTR as isize {
                return n.max(0) as usize;
            }
        }
    }

    /// Writes all of `bytes`; the error is an errno.
    pub fn write_all(&self, mut bytes: &[u8]) -> Result<(), i32> {
        while !bytes.is_empty() {
            // SAFETY: the kernel reads at most `bytes.len()` bytes of `bytes`.
            let n = unsafe {
                let args = [
                    self.0 as usize,
                    bytes.as_ptr() as usize,
                    bytes.len(),
                    0,
                    0,
                    0,
                ];
                call(libc::SYS_write, args)
            };
            match n {
                0 => return Err(libc::EIO),
                n if n > 0 => bytes = &bytes[n as usize..],
                n if n == -libc::EINTR as isize => {}
                n => {
                    take_back(-n as i32);
                    return Err(-n as i32);
                }
            }
        }
        Ok(())
    }
}

impl std::io::Write for File {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        File::write_all(self, bytes).map_err(std::io::Error::from_raw_os_error)?;
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Takes the signal that came with a failed write off the queue: it is ours, and blocked while we write.
pub(crate) fn take_back(errno: i32) {
    let signal = match errno {
        libc::EFBIG => libc::SIGXFSZ,
        libc::EPIPE => libc::SIGPIPE,
        _ => return,
    };
    let (set, no_wait) = (1u64 << (signal - 1), [0u64; 2]);
    let args = [
        &raw const set as usize,
        0,
        no_wait.as_ptr() as usize,
        8,
        0,
        0,
    ];
    // SAFETY: set and time are valid; without a pending signal it answers EAGAIN at once.
    unsafe { call(libc::SYS_rt_sigtimedwait, args) };
}

/// Writes to a descriptor of the program's, once.
pub fn write_to(fd: i32, bytes: &[u8]) {
    // SAFETY: the kernel reads at most `bytes.len()` bytes of `bytes`.
    unsafe {
        call(
            libc::SYS_write,
            [fd as usize, bytes.as_ptr() as usize, bytes.len(), 0, 0, 0],
        )
    };
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: the descriptor is ours.
        unsafe { call(libc::SYS_close, [self.0 as usize, 0, 0, 0, 0, 0]) };
    }
}

/// All of a small file such as those under /proc.
pub fn read_file(path: &CStr) -> Vec<u8> {
    let mut all = Vec::new();
    let Ok(file) = File::open(path, libc::O_RDONLY, 0) else {
        return all;
    };
    loop {
        let len = all.len();
        all.resize(len + 16384, 0);
        let n = file.read(&mut all[len..]);
        all.truncate(len + n);
        if n == 0 {
            return all;
        }
    }
}

/// From now on the calling thread has no open files but stderr, and opens its own; not where the kernel can't do that
/// (before 5.9).
pub(crate) fn leave_files() {
    const UNSHARE: usize = 1 << 1;
    let behind = [3, u32::MAX as usize, UNSHARE, 0, 0, 0];
    // SAFETY: the table that is emptied is a new one of this thread's.
    unsafe {
        if call(libc::SYS_close_range, behind) == 0 {
            call(libc::SYS_close_range, [0, 1, 0, 0, 0, 0]);
        }
    }
}

/// Where a link leads to, as far as there is room; empty where there is none.
pub(crate) fn read_link<'a>(path: &CStr, buf: &'a mut [u8]) -> &'a [u8] {
    let (at, to) = (libc::AT_FDCWD as usize, buf.as_mut_ptr() as usize);
    let args = [at, path.as_ptr() as usize, to, buf.len(), 0, 0];
    // SAFETY: the path ends in a zero byte, and the kernel writes no more than there is room for.
    let n = unsafe { call(libc::SYS_readlinkat, args) };
    &buf[..n.max(0) as usize]
}

/// Whether there is something at a path that is neither a file nor a folder: a device, a pipe, a socket, or a link to one.
pub(crate) fn is_special(path: &CStr) -> bool {
    // SAFETY: the path ends in a zero byte, and the kernel writes no more than its structure.
    let kind = unsafe {
        let mut found: libc::stat = std::mem::zeroed();
        let (at, to) = (libc::AT_FDCWD as usize, &raw mut found as usize);
        let args = [at, path.as_ptr() as usize, to, 0, 0, 0];
        if call(libc::SYS_newfstatat, args) < 0 {
            return false;
        }
        found.st_mode & libc::S_IFMT
    };
    !matches!(kind, libc::S_IFREG | libc::S_IFDIR)
}

/// Renames a file; the error is an errno.
pub fn rename(from: &CStr, to: &CStr) -> Result<(), i32> {
    let at = libc::AT_FDCWD as usize;
    // SAFETY: both paths end in a zero byte.
    let n = unsafe {
        let args = [at, from.as_ptr() as usize, at, to.as_ptr() as usize, 0, 0];
        call(libc::SYS_renameat2, args)
    };
    if n < 0 { Err(-n as i32) } else { Ok(()) }
}

/// Removes a file, if it is there; whether it was.
pub fn unlink(path: &CStr) -> bool {
    let at = libc::AT_FDCWD as usize;
    // SAFETY: the path ends in a zero byte.
    unsafe { call(libc::SYS_unlinkat, [at, path.as_ptr() as usize, 0, 0, 0, 0]) == 0 }
}

/// What an errno means, for those that a file which can't be written has.
pub fn error_text(errno: i32) -> &'static str {
    match errno {
        libc::EACCES | libc::EPERM => "not permitted",
        libc::EDQUOT | libc::ENOSPC => "no space left",
        libc::EFBIG => "file too large",
        libc::EISDIR => "is a folder",
        libc::EMFILE | libc::ENFILE => "too many open files",
        libc::ENAMETOOLONG => "name too long",
        libc::ENOENT => "no such folder",
        libc::ENOTDIR => "not a folder",
        libc::EROFS => "read-only file system",
        _ => "cannot be written",
    }
}

/// Copies memory of this process that may not be there; how many bytes could be read, up to the first page that is not there,
/// and no more than eight pages' parts.
pub fn read_memory(at: usize, buf: &mut [u8]) -> usize {
    const PAGE: usize = 4096;
    // The kernel copies a part as a whole or not at all.
    let mut parts = [[0usize; 2]; 8];
    let (mut from, mut left, mut count) = (at, buf.len(), 0);
    for part in &mut parts {
        let len = left.min(PAGE - from % PAGE);
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

/// The calling thread's id.
pub fn thread_id() -> i32 {
    // SAFETY: without arguments, it only tells.
    unsafe { call(libc::SYS_gettid, [0; 6]) as i32 }
}

/// Whether this is the thread that the process began with, or that forked it.
pub(crate) fn is_main_thread() -> bool {
    thread_id() == process_id()
}

/// Has the kernel give children of this process zeroes in place of a mapping's content; whether it will.
pub(crate) fn wipe_on_fork(at: *mut u8, len: usize) -> bool {
    const WIPE_ON_FORK: usize = 18;
    // SAFETY: advice about our own mapping.
    unsafe { call(libc::SYS_madvise, [at as usize, len, WIPE_ON_FORK, 0, 0, 0]) == 0 }
}

/// Whether the program shut itself in: nothing of ours makes a system call any more.
static SHUT_IN: AtomicBool = AtomicBool::new(false);

/// Says that any system call of ours may be the program's end from now on.
pub fn shut_in() {
    SHUT_IN.store(true, Ordering::Relaxed);
}

/// Whether [`shut_in`] was called.
pub fn is_shut_in() -> bool {
    SHUT_IN.load(Ordering::Relaxed)
}

/// No mask of a thread's: two signals can't be blocked.
const NOT_BLOCKED: u64 = u64::MAX;

/// Blocks all signals of this thread, unless the program is shut in; what was blocked before, for [`restore_signals`].
pub fn block_signals() -> u64 {
    if is_shut_in() {
        return NOT_BLOCKED;
    }
    // Not libc's own for new identities: the thread that changes them waits for all others to take it.
    const SETXID: u64 = 1 << 32;
    let (all, mut before) = (!SETXID, 0u64);
    let args = [
        libc::SIG_SETMASK as usize,
        &raw const all as usize,
        &raw mut before as usize,
        8,
        0,
        0,
    ];
    // SAFETY: both masks are 8 bytes, as the kernel's are.
    unsafe { call(libc::SYS_rt_sigprocmask, args) };
    before
}

/// Puts back the mask that [`block_signals`] found.
pub fn restore_signals(before: u64) {
    if before == NOT_BLOCKED {
        return;
    }
    let args = [
        libc::SIG_SETMASK as usize,
        &raw const before as usize,
        0,
        8,
        0,
        0,
    ];
    // SAFETY: the mask is 8 bytes, as the kernel's is.
    unsafe { call(libc::SYS_rt_sigprocmask, args) };
}

/// Asks for a cache line ahead of its use.
#[inline(always)]
pub(crate) fn hint(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address is allowed.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast())
    };
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}
