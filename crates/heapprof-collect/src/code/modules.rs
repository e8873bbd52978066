//! Which loaded object holds an address: glibc's lock-free answer, or a snapshot where libc has
//! none.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::platform::lock::Locked;
use crate::platform::weak;

/// A loaded object, as far as unwinding needs it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Module {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) eh_frame_hdr: usize,
}

/// The object that holds `pc`.
pub(crate) fn find(pc: usize) -> Option<Module> {
    if weak::has_dl_find_object() {
        let found = weak::dl_find_object(pc)?;
        let module = Module {
            start: found.map_start,
            end: found.map_end,
            eh_frame_hdr: found.eh_frame,
        };
        // For a static executable glibc tells where the code is, and the tables lie outside of
        // that.
        let whole = module.start <= module.eh_frame_hdr && module.eh_frame_hdr < module.end;
        if whole || module.eh_frame_hdr == 0 {
            return Some(module);
        }
    }
    let known = || SNAPSHOT.with(|s| s.iter().find(|m| m.start <= pc && pc < m.end).copied());
    known().or_else(|| {
        refresh();
        known()
    })
}

/// Where the loaded object that holds an address begins.
pub fn object_at(address: usize) -> Option<usize> {
    find(address).map(|module| module.start)
}

/// How often objects were closed since the start.
pub(crate) fn unload_epoch() -> u32 {
    UNLOADS.load(Ordering::Acquire)
}

/// Says that objects were unloaded: what was remembered about stacks may no longer hold.
pub(crate) fn note_unload() {
    UNLOADS.fetch_add(1, Ordering::AcqRel);
    if !weak::has_dl_find_object() {
        refresh();
    }
}

static UNLOADS: AtomicU32 = AtomicU32::new(0);
const CAPACITY: usize = 1024;
static SNAPSHOT: Locked<Snapshot> = Locked::new(Snapshot {
    module: [Module {
        start: 0,
        end: 0,
        eh_frame_hdr: 0,
    }; CAPACITY],
    len: 0,
});

/// The lock that fork must hold.
pub(crate) fn lock() -> &'static crate::platform::lock::Lock {
    &SNAPSHOT.lock
}

/// The loaded objects, for a libc without `_dl_find_object` (glibc before 2.35, musl) and for
/// static executables. They are read under the loader's lock, when an address is new.
struct Snapshot {
    module: [Module; CAPACITY],
    len: usize,
}

impl std::ops::Deref for Snapshot {
    type Target = [Module];
    fn deref(&self) -> &[Module] {
        &self.module[..self.len]
    }
}

fn refresh() {
    // The objects are collected without our lock, so that nobody waits for the loader's lock while
    // holding ours.
    let mut new = Vec::with_capacity(CAPACITY);
    // SAFETY: the callback gets the vector and lives no longer than the call.
    unsafe { libc::dl_iterate_phdr(Some(collect), (&raw mut new).cast()) };
    SNAPSHOT.with(|snapshot| {
        snapshot.len = new.len();
        snapshot.module[..new.len()].copy_from_slice(&new);
    });
}

unsafe extern "C" fn collect(info: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> i32 {
    // SAFETY: the loader passes valid headers, and `data` is the vector of `refresh`.
    let (info, all) = unsafe { (&*info, &mut *data.cast::<Vec<Module>>()) };
    // SAFETY: as the loader says.
    let headers =
        unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let base = info.dlpi_addr as usize;
    let mut module = Module {
        start: usize::MAX,
        end: 0,
        eh_frame_hdr: 0,
    };
    for header in headers {
        let start = base.wrapping_add(header.p_vaddr as usize);
        match header.p_type {
            libc::PT_LOAD => {
                module.start = module.start.min(start);
                module.end = module.end.max(start + header.p_memsz as usize);
            }
            libc::PT_GNU_EH_FRAME => module.eh_frame_hdr = start,
            _ => {}
        }
    }
    if all.len() < CAPACITY {
        all.push(module);
    }
    0
}
