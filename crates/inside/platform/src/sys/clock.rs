//! The time, read from the kernel itself. A program may export a `clock_gettime` of its own, which
//! may wait for a lock that the calling thread has, or may return a wrong time.

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use heapprof_memory::loaded_modules::LoadedObject;
use heapprof_memory::{Memory, OwnMemory};

use super::call;
use crate::arch::CLOCK_FUNCTION_NAME;

/// Type of the vDSO's function that reads a clock. It needs no system call for most clocks.
type ClockGettime = unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> c_int;

/// Address of the vDSO's function that reads a clock; null before the first search, and
/// [`NO_FUNCTION`] if there is no such function. The function has the same address in a forked
/// child.
static CLOCK_FUNCTION: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());
const NO_FUNCTION: *mut () = ptr::without_provenance_mut(1);

/// Returns a clock's time in nanoseconds.
pub fn nanoseconds(clock: libc::clockid_t) -> i64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let mut function = CLOCK_FUNCTION.load(Ordering::Relaxed);
    if function.is_null() {
        function = find();
        CLOCK_FUNCTION.store(function, Ordering::Relaxed);
    }
    let is_known = function != NO_FUNCTION && {
        // SAFETY: `find` found it, and the kernel's function has this type.
        let function = unsafe { std::mem::transmute::<*mut (), ClockGettime>(function) };
        // SAFETY: `time` is valid to write.
        unsafe { function(clock, &raw mut time) == 0 }
    };
    if !is_known {
        let args = [clock as usize, &raw mut time as usize, 0, 0, 0, 0];
        // SAFETY: `time` is valid to write.
        unsafe { call(libc::SYS_clock_gettime, args) };
    }
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// Searches the vDSO, an object that the kernel maps into each process, for the function that reads
/// a clock.
#[cold]
fn find() -> *mut () {
    // SAFETY: the call only reads a number. It returns 0 if there is no such object.
    let header = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) };
    let found = match header {
        0 => None,
        header => symbol(header),
    };
    found.map_or(NO_FUNCTION, |at| {
        ptr::with_exposed_provenance_mut(at as usize)
    })
}

/// Returns the address of the function that reads a clock. `header` is the address of the vDSO's
/// ELF header.
fn symbol(header: u64) -> Option<u64> {
    const PT_LOAD: u32 = 1;
    const PT_DYNAMIC: u32 = 2;
    // SAFETY: the object is the kernel's, and complete: its header leads to its tables, which are
    // all mapped.
    let memory = unsafe { OwnMemory::new() };
    let headers = header + memory.u64(header + 32)?;
    let count = u64::from(memory.u16(header + 56)?);
    let (mut base, mut dynamic) = (None, None);
    for at in (0..count).map(|i| headers + 56 * i) {
        let address = memory.u64(at + 16)?;
        match memory.u32(at)? {
            PT_LOAD if base.is_none() => {
                let offset = memory.u64(at + 8)?;
                base = Some(header.wrapping_add(offset).wrapping_sub(address));
            }
            PT_DYNAMIC => dynamic = Some(address),
            _ => {}
        }
    }
    let base = base?;
    let object = LoadedObject::at(base, base.wrapping_add(dynamic?));
    object
        .symbol(memory, CLOCK_FUNCTION_NAME)
        .map(|found| found.address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells_the_time_without_a_call() {
        // Under an emulator there may be no such object.
        // SAFETY: the call only reads a number.
        let has_object = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) } != 0;
        assert_eq!(find() != NO_FUNCTION, has_object);
        let own = || {
            let mut time = libc::timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            let args = [
                libc::CLOCK_MONOTONIC as usize,
                &raw mut time as usize,
                0,
                0,
                0,
                0,
            ];
            // SAFETY: `time` is valid to write.
            unsafe { call(libc::SYS_clock_gettime, args) };
            time.tv_sec * 1_000_000_000 + time.tv_nsec
        };
        let before = own();
        let between = nanoseconds(libc::CLOCK_MONOTONIC);
        assert!((before..=own()).contains(&between));
    }
}
