//! The wrappers: functions that Python calls instead of its own allocators.

use std::arch::naked_asm;
use std::ffi::c_void;
use std::sync::atomic::Ordering;

use heapprof_engine::{CallSite, ENGINE};

use super::{
    LAST_REALLOCATED_BLOCK, MIN_ARENA_SIZE, PYTHON_OBJECTS, PythonAllocator, PythonObjects,
    RELEASED_BLOCK, UNKNOWN_ALLOCATOR,
};

/// Records a block, if it is small enough. Removes the wrappers instead, if heapprof has detached.
#[inline(always)]
fn record(made: *mut u8, size: usize, slot: usize, bp: usize) {
    let most = PYTHON_OBJECTS.most.load(Ordering::Relaxed);
    // pymalloc passes a request for nothing on to malloc, for one byte. mimalloc makes a block for
    // it.
    let size = if most == usize::MAX {
        size.max(1)
    } else {
        size
    };
    let is_small = size.wrapping_sub(1) < most;
    if is_small && !made.is_null() && ENGINE.events().charge(size) {
        ENGINE
            .events()
            .record_allocation(made, size, CallSite { slot, bp });
    } else if most == 0 {
        // SAFETY: the caller of a wrapper has a GIL.
        unsafe { PYTHON_OBJECTS.unwrap() };
    }
}

/// Defines a wrapper for each domain. Each wrapper passes its arguments and the stack pointer and
/// base pointer at its call to the function `$to`.
///
/// A wrapper ignores its context. Another interpreter with its own GIL may read Python's table
/// while it is written, and then call a wrapper with the old context.
macro_rules! wrapper {
    (
        $names:ident: $first:ident, $second:ident
        ($($argument:ident: $type:ty),*), $slot:literal, $bp:literal => $to:ident
    ) => {
        wrapper!(@ $first, 0, ($($argument: $type),*), $slot, $bp, $to);
        wrapper!(@ $second, 1, ($($argument: $type),*), $slot, $bp, $to);
        pub(super) const $names: [unsafe extern "C" fn($($type),*) -> *mut u8; 2] =
            [$first, $second];
    };
    (
        @ $name:ident, $domain:literal, ($($argument:ident: $type:ty),*),
        $slot:literal, $bp:literal, $to:ident
    ) => {
        #[unsafe(naked)]
        unsafe extern "C" fn $name($($argument: $type),*) -> *mut u8 {
            naked_asm!(
                ".cfi_startproc",
                concat!("mov ", $slot, ", rsp"),
                concat!("mov ", $bp, ", rbp"),
                "jmp {to}",
                ".cfi_endproc",
                to = sym $to::<$domain>,
            )
        }
    };
}

/// Returns the wrapped allocator of a domain.
#[inline(always)]
fn wrapped_allocator<const DOMAIN: usize>() -> PythonAllocator {
    // SAFETY: the allocator is written before the wrappers are in Python's table, and then only
    // with the same content.
    unsafe { *PYTHON_OBJECTS.wrapped[DOMAIN].get() }
}

wrapper!(
    MALLOC: malloc_of_mem, malloc_of_obj
    (context: *mut c_void, size: usize), "rdx", "rcx" => made_by_malloc
);
unsafe extern "C" fn made_by_malloc<const DOMAIN: usize>(
    _: *mut c_void,
    size: usize,
    slot: usize,
    bp: usize,
) -> *mut u8 {
    let wrapped = wrapped_allocator::<DOMAIN>();
    // SAFETY: as Python calls it.
    let made = wrapped.malloc.map_or(std::ptr::null_mut(), |f| unsafe {
        f(wrapped.context, size)
    });
    record(made, size, slot, bp);
    made
}

wrapper!(
    CALLOC: calloc_of_mem, calloc_of_obj
    (context: *mut c_void, n: usize, each: usize), "rcx", "r8" => made_by_calloc
);
unsafe extern "C" fn made_by_calloc<const DOMAIN: usize>(
    _: *mut c_void,
    n: usize,
    each: usize,
    slot: usize,
    bp: usize,
) -> *mut u8 {
    let wrapped = wrapped_allocator::<DOMAIN>();
    // SAFETY: as Python calls it.
    let made = wrapped.calloc.map_or(std::ptr::null_mut(), |f| unsafe {
        f(wrapped.context, n, each)
    });
    record(made, n.saturating_mul(each), slot, bp);
    made
}

/// Possible numbers of bytes that debug hooks put between the start of malloc's block and the start
/// of Python's block. Each hook puts 16 bytes there. There may be two hooks: one for the domain,
/// and one for the allocator that it calls.
const HOOK_PREFIX_LENGTHS: [usize; 3] = [0, 16, 32];

wrapper!(
    REALLOC: realloc_of_mem, realloc_of_obj
    (context: *mut c_void, old: *mut u8, size: usize), "rcx", "r8" => made_by_realloc
);
unsafe extern "C" fn made_by_realloc<const DOMAIN: usize>(
    _: *mut c_void,
    old: *mut u8,
    size: usize,
    slot: usize,
    bp: usize,
) -> *mut u8 {
    let wrapped = wrapped_allocator::<DOMAIN>();
    if PYTHON_OBJECTS.has_mimalloc() && PYTHON_OBJECTS.most.load(Ordering::Relaxed) != 0 {
        // Another thread may get the old block before this one has noted its end.
        let real = || {
            wrapped.realloc.map_or(std::ptr::null_mut(), |f| {
                // SAFETY: as Python calls it.
                unsafe { f(wrapped.context, old, size) }
            })
        };
        let place = CallSite { slot, bp };
        return ENGINE.events().reallocate(old, size.max(1), place, real);
    }
    LAST_REALLOCATED_BLOCK.set(0);
    // SAFETY: as Python calls it.
    let made = wrapped.realloc.map_or(std::ptr::null_mut(), |f| unsafe {
        f(wrapped.context, old, size)
    });
    // If the block was malloc's, malloc's hook has recorded the new one, however small.
    let passed_on = LAST_REALLOCATED_BLOCK.get();
    let is_malloc_s =
        passed_on != 0 && HOOK_PREFIX_LENGTHS.contains(&(old as usize).wrapping_sub(passed_on));
    if made.is_null() || is_malloc_s {
        return made;
    }
    // No other thread can have got the old block meanwhile, because this thread has the GIL.
    if !old.is_null() && ENGINE.events().may_hold(old as usize) {
        ENGINE.events().release_known(old);
    }
    record(made, size, slot, bp);
    made
}

/// Defines the wrapper of free. Freeing an unrecorded block costs no more than a lookup in a table.
macro_rules! free {
    ($name:ident, $domain:literal) => {
        #[unsafe(naked)]
        unsafe extern "C" fn $name(context: *mut c_void, block: *mut u8) {
            naked_asm!(
                ".cfi_startproc",
                "mov rax, rsi",
                "shr rax, 4",
                "movzx eax, ax",
                "lea rcx, [rip + heapprof_filter]",
                "cmp byte ptr [rcx + rax], 0",
                "jne 2f",
                "lea rcx, [rip + {objects}]",
                "mov rax, qword ptr [rcx + {at} + {free}]",
                "mov rdi, qword ptr [rcx + {at}]",
                "jmp rax",
                "2: jmp {freed}",
                ".cfi_endproc",
                objects = sym PYTHON_OBJECTS,
                at = const std::mem::offset_of!(PythonObjects, wrapped)
                    + $domain * size_of::<PythonAllocator>(),
                free = const std::mem::offset_of!(PythonAllocator, free),
                freed = sym release_and_free::<$domain>,
            )
        }
    };
}

free!(free_of_mem, 0);
free!(free_of_obj, 1);
pub(super) const FREE: [unsafe extern "C" fn(*mut c_void, *mut u8); 2] = [free_of_mem, free_of_obj];

unsafe extern "C" fn release_and_free<const DOMAIN: usize>(_: *mut c_void, block: *mut u8) {
    let wrapped = wrapped_allocator::<DOMAIN>();
    // Most blocks are small ones. If a block is malloc's, malloc's hook must not record its end
    // again.
    if !block.is_null() && ENGINE.events().release_known(block) {
        RELEASED_BLOCK.set(block as usize);
    }
    if let Some(free) = wrapped.free {
        // SAFETY: as Python calls it.
        unsafe { free(wrapped.context, block) };
    }
    RELEASED_BLOCK.set(0);
}

pub(super) unsafe extern "C" fn arena_alloc(_: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: the arena allocator is not written while Python allocates, which needs the GIL.
    let wrapped = unsafe { *PYTHON_OBJECTS.wrapped_arenas.get() };
    let Some(alloc) = wrapped.alloc else {
        return std::ptr::null_mut();
    };
    // SAFETY: as Python calls it.
    let make = || unsafe { alloc(wrapped.context, size) };
    if size < MIN_ARENA_SIZE {
        return make();
    }
    let made = ENGINE.lifecycle().with_reentrancy_guard(make);
    if made.is_null() {
        // From here on small requests may go to malloc.
        PYTHON_OBJECTS.set_state(UNKNOWN_ALLOCATOR);
    } else {
        PYTHON_OBJECTS
            .arenas
            .fetch_add(size as u64, Ordering::Relaxed);
    }
    made
}

pub(super) unsafe extern "C" fn arena_free(_: *mut c_void, arena: *mut c_void, size: usize) {
    // SAFETY: the arena allocator is not written while Python frees, which needs the GIL.
    let wrapped = unsafe { *PYTHON_OBJECTS.wrapped_arenas.get() };
    let Some(free) = wrapped.free else { return };
    // SAFETY: as Python calls it.
    unsafe { free(wrapped.context, arena, size) };
    if size >= MIN_ARENA_SIZE {
        // Some arenas may have been made before the wrappers were there.
        let _ = PYTHON_OBJECTS
            .arenas
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |bytes| {
                Some(bytes.saturating_sub(size as u64))
            });
    }
}

#[cfg(test)]
mod tests {
    use heapprof_profile::ALLOCATOR_REGEX;
    use regex::Regex;

    /// Checks that reports leave out the wrappers. This depends on the names of this crate and its
    /// modules.
    #[test]
    fn reports_leave_these_functions_out() {
        let allocator = Regex::new(&format!("^(?:{ALLOCATOR_REGEX})$")).unwrap();
        let module = module_path!().trim_end_matches("::tests");
        for name in ["malloc", "calloc", "realloc"] {
            for generic in ["", "::<0>"] {
                let name = format!("{module}::made_by_{name}{generic}");
                assert!(allocator.is_match(&name), "{name}");
            }
        }
    }
}
