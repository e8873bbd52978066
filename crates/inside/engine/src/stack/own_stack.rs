//! Finds the bounds of a thread's own stack in libc's descriptor of the thread, or else through the
//! kernel.

use heapprof_platform::sys;
#[cfg(all(target_arch = "x86_64", target_env = "gnu", not(miri)))]
use heapprof_platform::{loader, sys::PAGE_SIZE};

use crate::stack::walk::StackBounds;
use heapprof_platform::maps;

/// Returns the bounds of this thread's own stack; empty bounds if they can't be found. Allocates
/// nothing.
///
/// Any other stack on which the thread may run (a coroutine's, a signal's) can be unmapped at any
/// time, and must not be read directly. `slot` is an address in the thread's current frame. `local`
/// is an address in its static thread-local storage, which libc puts above the stack of every
/// thread except the main thread.
pub(crate) fn find(slot: usize, local: usize) -> StackBounds {
    let local = static_local(local);
    described(local).unwrap_or_else(|| find_mapped(slot, local))
}

/// Returns an address in this thread's static thread-local storage. `local` is such an address,
/// except in a library that musl has loaded into a running program.
#[cfg(all(target_arch = "x86_64", target_env = "gnu", not(miri)))]
fn static_local(local: usize) -> usize {
    match loader::is_musl() {
        // musl's descriptor of the thread is at its end. SAFETY: always succeeds.
        true => unsafe { libc::pthread_self() as usize },
        false => local,
    }
}

#[cfg(not(all(target_arch = "x86_64", target_env = "gnu", not(miri))))]
fn static_local(local: usize) -> usize {
    local
}

/// Returns the bounds of this thread's own stack from libc's descriptor of the thread. In glibc the
/// stack ends at `local`. Returns `None` if the bounds are not found.
///
/// This is quicker than reading the kernel's list of mappings, which grows with each thread.
#[cfg(all(target_arch = "x86_64", target_env = "gnu", not(miri)))]
fn described(local: usize) -> Option<StackBounds> {
    match loader::is_musl() {
        true => described_by_musl(),
        false => described_by_glibc(local),
    }
}

/// Finds the bounds in glibc's `struct pthread`, at the end of the thread's stack. It has the
/// stack's beginning, length and guard side by side. The layout of this structure is not public, so
/// this function searches it for three words that fit. The main thread has no such words.
#[cfg(all(target_arch = "x86_64", target_env = "gnu", not(miri)))]
fn described_by_glibc(local: usize) -> Option<StackBounds> {
    /// Number of words that are searched. Every `struct pthread` has more words: it has 2304 bytes
    /// since glibc 2.17. The first word of the structure is its own address.
    const DESCRIPTOR_WORDS: usize = 2048 / 8;
    /// Largest distance between the structure's beginning and the end of the stack.
    const MAX_DISTANCE_ABOVE: usize = 16 << 10;
    /// Possible lengths of a stack, in bytes. Addresses are larger numbers, so no address is
    /// mistaken for a length.
    const STACK_LENGTHS: std::ops::Range<usize> = 16 << 10..1 << 38;
    // SAFETY: always succeeds.
    let this = unsafe { libc::pthread_self() } as usize;
    let header = this as *const usize;
    // SAFETY: the thread pointer leads to the header that the ABI of thread-local storage requires;
    // glibc's has its own address in two words.
    if unsafe { [header.read(), header.add(2).read()] } != [this; 2] {
        return None;
    }
    // Other threads write to some words of the structure, but not to these three.
    // SAFETY: the structure is glibc's, and at least that large.
    let word = |i: usize| unsafe { header.add(i).read_volatile() };
    (0..DESCRIPTOR_WORDS - 2).find_map(|i| {
        let [start, len, guard] = [word(i), word(i + 1), word(i + 2)];
        let end = start.checked_add(len)?;
        let holds = start < local && local < this && this < end && end - this <= MAX_DISTANCE_ABOVE;
        let is_stack =
            holds && STACK_LENGTHS.contains(&len) && guard < len && guard % PAGE_SIZE == 0;
        is_stack.then_some(StackBounds { start, end: local })
    })
}

/// Finds the bounds in musl's `struct pthread`, above the thread's stack. It has the beginning and
/// the length of the thread's mapping, and then the end and the length of the stack in it. The
/// layout of this structure is not public, so this function searches it for four words that fit.
/// The main thread has no such words.
#[cfg(all(target_arch = "x86_64", target_env = "gnu", not(miri)))]
fn described_by_musl() -> Option<StackBounds> {
    /// Number of words that are searched. Every `struct pthread` of musl has more words.
    const DESCRIPTOR_WORDS: usize = 192 / 8;
    // SAFETY: always succeeds.
    let this = unsafe { libc::pthread_self() } as usize;
    let header = this as *const usize;
    // SAFETY: the structure is musl's, and at least that large. Other threads write to some of its
    // words, but not to these four.
    let word = |i: usize| unsafe { header.add(i).read_volatile() };
    if word(0) != this {
        return None;
    }
    (1..DESCRIPTOR_WORDS - 3).find_map(|i| {
        let [map, map_len, stack_end, len] = std::array::from_fn(|at| word(i + at));
        let start = stack_end.checked_sub(len)?;
        let map_end = map.checked_add(map_len)?;
        let is_stack = map != 0
            && map % PAGE_SIZE == 0
            && map <= start
            && start < stack_end
            && stack_end <= this
            && this < map_end;
        let end = stack_end;
        is_stack.then_some(StackBounds { start, end })
    })
}

#[cfg(not(all(target_arch = "x86_64", target_env = "gnu", not(miri))))]
fn described(_local: usize) -> Option<StackBounds> {
    None
}

/// Finds the bounds of this thread's own stack in the kernel's list of mappings.
fn find_mapped(slot: usize, local: usize) -> StackBounds {
    let (mut main, mut below_local) = (StackBounds::default(), StackBounds::default());
    // The buffer is small, because this runs at a thread's first allocation, on whatever stack that
    // comes.
    maps::for_each_line::<512>(|line| {
        let Some((start, end, _)) = maps::parse_range(line) else {
            return;
        };
        if line.ends_with(b"[stack]") {
            // The main thread's stack may grow at any time.
            main = StackBounds {
                start: lowest_start(end),
                end,
            };
        } else if start <= local && local < end {
            below_local = StackBounds { start, end: local };
        }
    });
    let holds = |bounds: &StackBounds| bounds.start <= slot && slot < bounds.end;
    match (holds(&below_local), holds(&main)) {
        (true, _) => below_local,
        (_, true) => main,
        _ if sys::is_main_thread() => main,
        _ => below_local,
    }
}

/// Returns the lowest address to which the main thread's stack may grow.
fn lowest_start(end: usize) -> usize {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is valid to write.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_STACK, &raw mut limit) } == 0;
    let limit = if known && limit.rlim_cur < 1 << 30 {
        limit.rlim_cur as usize
    } else {
        8 << 20
    };
    end.saturating_sub(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_this_stack() {
        let local = 0u8;
        let address = &raw const local as usize;
        let holds = |bounds: StackBounds| bounds.start <= address && address < bounds.end;
        let block = || heapprof_platform::tls::current() as usize;
        assert!(holds(find(address, block())));
        // A thread's own stack is found wherever it is running.
        let elsewhere = std::thread::spawn(move || find(address, block()));
        let other = elsewhere.join().unwrap();
        assert!(!holds(other) && other.end != 0);
        let heap = Box::new(0u8);
        assert!(holds(find(&raw const *heap as usize, block())));
    }

    /// Tests that libc and the kernel report the same bounds, except for the guard below the stack.
    #[cfg(all(target_arch = "x86_64", target_env = "gnu", not(miri)))]
    #[test]
    fn libc_and_the_kernel_agree() {
        for size in [32 << 10, 64 << 10, 1 << 20, 8 << 20] {
            let threads = std::thread::Builder::new().stack_size(size);
            let both = || {
                let local = heapprof_platform::tls::current() as usize;
                (
                    described(local),
                    find_mapped(&raw const local as usize, local),
                )
            };
            let (said, seen) = threads.spawn(both).unwrap().join().unwrap();
            let said = said.expect("libc's descriptor");
            assert_eq!(said.end, seen.end);
            assert!(said.start <= seen.start, "{said:x?} {seen:x?}");
        }
    }
}
