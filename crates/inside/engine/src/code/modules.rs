//! Finds the loaded object that contains an address. It calls glibc's function for this, which
//! takes no lock. If libc has no such function, it searches a snapshot of the loaded objects, which
//! is read anew after a change.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

use heapprof_platform::lock::{ForkLock, LockedValue, rank};
use heapprof_platform::table_file::TableLifetime;
use heapprof_platform::{sys, weak};

use crate::code::frame_index::{FrameIndex, FrameIndexes};
use crate::code::image::ImageLayout;
use crate::code::listed_modules::{self, ListEnd, ListedModule, MAX_MODULES};
use crate::code::loader_guard::LoaderAccess;
use crate::process::EngineProcess;

/// A loaded object, with the data that unwinding needs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LoadedModule {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) eh_frame_hdr: usize,
    /// The index that replaces the table of `.eh_frame_hdr`, if the object has no table.
    pub(crate) index: Option<FrameIndex>,
}

impl From<ListedModule> for LoadedModule {
    fn from(listed: ListedModule) -> Self {
        Self {
            start: listed.layout.start,
            end: listed.layout.end,
            eh_frame_hdr: listed.layout.eh_frame_hdr,
            index: None,
        }
    }
}

impl LoadedModule {
    /// Whether the object's unwind tables have no search table, because the linker made none. False
    /// if another thread closes the object meanwhile and its memory is unmapped.
    pub(crate) fn lacks_table(&self) -> bool {
        /// Offset, in the `.eh_frame_hdr`, of the byte that names the encoding of the search table.
        const TABLE_ENCODING: usize = 3;
        /// Encoding of a missing search table.
        const OMITTED: u8 = 0xff;
        let at = self.eh_frame_hdr.wrapping_add(TABLE_ENCODING);
        if self.eh_frame_hdr == 0 || !(self.start..self.end).contains(&at) {
            return true;
        }
        let mut encoding = [0];
        sys::read_memory(at, &mut encoding) == 1 && encoding == [OMITTED]
    }
}

/// The loaded objects. For a libc that reports objects only under a lock, they are in a snapshot.
/// This also counts unloads, and threads that are closing objects.
pub(crate) struct LoadedModules {
    /// Number of changes, or possible changes, of the loaded objects.
    unloads: AtomicU32,
    /// Number of threads that close objects now.
    closers: AtomicU32,
    /// The threads that use the loader, and the threads that fork.
    pub(crate) loading: LoaderAccess,
    /// The loaded objects, for a libc without `_dl_find_object` (glibc before 2.35, musl) and for
    /// static executables.
    snapshot: LockedValue<{ rank::MODULES }, ModuleSnapshot>,
    /// The indexes that replace missing tables of objects.
    pub(crate) indexes: FrameIndexes,
}

/// A list of loaded objects, in memory that is never freed.
struct ModuleSnapshot {
    module: *mut ListedModule,
    len: usize,
    /// The end of the loader's list when the objects were read.
    list_end: ListEnd,
}

// SAFETY: the list is reached only under its lock.
unsafe impl Send for ModuleSnapshot {}

impl ModuleSnapshot {
    /// Returns the objects.
    fn all(&self) -> &[ListedModule] {
        match self.module.is_null() {
            true => &[],
            // SAFETY: `len` objects were written.
            false => unsafe { std::slice::from_raw_parts(self.module, self.len) },
        }
    }

    /// Replaces the list by `new`, if there is memory for it.
    fn replace(&mut self, process: &EngineProcess, new: &[ListedModule], list_end: ListEnd) {
        if self.module.is_null() {
            let len = MAX_MODULES * size_of::<ListedModule>();
            self.module = process.pages.map(len, TableLifetime::Own).cast();
        }
        if !self.module.is_null() {
            self.len = new.len().min(MAX_MODULES);
            self.list_end = list_end;
            // SAFETY: there is room for `MAX_MODULES` objects.
            unsafe { self.module.copy_from_nonoverlapping(new.as_ptr(), self.len) };
        }
    }
}

impl LoadedModules {
    /// Makes a list without objects.
    pub(crate) const fn new() -> Self {
        Self {
            unloads: AtomicU32::new(0),
            closers: AtomicU32::new(0),
            loading: LoaderAccess::new(),
            snapshot: LockedValue::new(ModuleSnapshot {
                module: std::ptr::null_mut(),
                len: 0,
                list_end: ListEnd::NONE,
            }),
            indexes: FrameIndexes::new(),
        }
    }

    /// Returns the object that contains `pc`.
    pub(crate) fn find(&self, process: &EngineProcess, pc: usize) -> Option<LoadedModule> {
        let mut module = self.find_loaded(process, pc)?;
        // Few objects have an index. The object's memory is read only for one that does, because
        // another object may have come to its place.
        let index = self.indexes.find(module.start);
        module.index = index.filter(|_| module.lacks_table());
        Some(module)
    }

    fn find_loaded(&self, process: &EngineProcess, pc: usize) -> Option<LoadedModule> {
        if weak::has_dl_find_object() {
            let found = weak::dl_find_object(pc)?;
            let module = LoadedModule {
                start: found.map_start,
                end: found.map_end,
                eh_frame_hdr: found.eh_frame,
                index: None,
            };
            // For a static executable, glibc reports the addresses of the code, and the tables lie
            // outside of them.
            let whole = module.start <= module.eh_frame_hdr && module.eh_frame_hdr < module.end;
            if whole || module.eh_frame_hdr == 0 {
                return Some(module);
            }
        }
        if self.closers() != 0 {
            // By now another object may lie there, whose unwind tables lie elsewhere.
            self.refresh(process);
        }
        let holds = |m: &&ListedModule| m.layout.start <= pc && pc < m.layout.end;
        let look = || {
            let known = |s: &mut ModuleSnapshot| (s.all().iter().find(holds).copied(), s.list_end);
            self.snapshot.with(process, known)
        };
        let (known, list_end) = look();
        let is_current = known.map_or_else(|| !list_end.has_grown(), |m| m.is_current(list_end));
        if is_current {
            return known.map(LoadedModule::from);
        }
        self.refresh(process);
        look().0.map(LoadedModule::from)
    }

    /// Returns the number of changes, or possible changes, of the loaded objects. After a change,
    /// remembered stacks may be wrong.
    #[inline(always)]
    pub(crate) fn unloads(&self) -> u32 {
        self.unloads.load(Ordering::Acquire)
    }

    /// Notes that objects were unloaded, so that remembered stacks may be wrong.
    pub(crate) fn note_unload(&self, process: &EngineProcess) {
        self.unloads.fetch_add(1, Ordering::AcqRel);
        if !weak::has_dl_find_object() {
            self.refresh(process);
        }
    }

    /// Notes that more of the loaded code can be unwound than before. So remembered stacks may end
    /// too early.
    pub(crate) fn note_index(&self) {
        self.unloads.fetch_add(1, Ordering::AcqRel);
    }

    /// Notes that a thread is about to close objects.
    pub(crate) fn begin_close(&self) {
        self.closers.fetch_add(1, Ordering::AcqRel);
        self.unloads.fetch_add(1, Ordering::AcqRel);
    }

    /// Notes that a thread has closed its objects.
    pub(crate) fn end_close(&self) {
        // In a forked child there may be fewer such threads than when this one began.
        let less = |closers: u32| closers.checked_sub(1);
        let (new, old) = (Ordering::AcqRel, Ordering::Acquire);
        let _ = self.closers.fetch_update(new, old, less);
        self.unloads.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns how many threads close objects now.
    pub(crate) fn closers(&self) -> u32 {
        self.closers.load(Ordering::Acquire)
    }

    /// Notes that the current walk leads through code that a thread may be closing. The walked
    /// stack must not be remembered.
    pub(crate) fn note_unsure(&self) {
        self.unloads.fetch_add(1, Ordering::AcqRel);
    }

    /// Resets the counts in a forked child, which has only the thread that forked. `is_closing`
    /// says whether that thread closes an object.
    pub(crate) fn in_child(&self, is_closing: bool) {
        self.loading.in_child();
        self.closers.store(u32::from(is_closing), Ordering::Release);
        self.unloads.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns the lock that fork must take.
    pub(crate) fn locks(&self) -> [&dyn ForkLock; 1] {
        let Self {
            unloads: _,
            closers: _,
            loading: _,
            snapshot,
            indexes: _,
        } = self;
        [&snapshot.lock]
    }

    fn refresh(&self, process: &EngineProcess) {
        let (new, list_end) = listed_modules::read().unwrap_or_else(|| {
            let mut new: Vec<ListedModule> = Vec::with_capacity(MAX_MODULES);
            // The objects are collected without the engine's lock, so that no thread waits for the
            // loader's lock while it has the engine's.
            let at_loader = self.loading.enter_at_once();
            // SAFETY: the callback gets the vector and lives no longer than the call.
            unsafe { libc::dl_iterate_phdr(Some(collect_module), (&raw mut new).cast()) };
            drop(at_loader);
            (new, ListEnd::NONE)
        });
        self.snapshot.with(process, |snapshot| {
            snapshot.replace(process, &new, list_end)
        });
    }
}

unsafe extern "C" fn collect_module(
    info: *mut libc::dl_phdr_info,
    _: usize,
    data: *mut c_void,
) -> i32 {
    // SAFETY: the loader passes valid headers, and `data` is the vector of `refresh`.
    let (info, all) = unsafe { (&*info, &mut *data.cast::<Vec<ListedModule>>()) };
    // SAFETY: as the loader says.
    let headers =
        unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let base = info.dlpi_addr as usize;
    let mut layout = ImageLayout::EMPTY;
    for header in headers {
        let at = base.wrapping_add(header.p_vaddr as usize);
        layout.add(header.p_type, header.p_flags, at, header.p_memsz as usize);
    }
    // What the loader itself has reported counts as current.
    layout.dynamic = 0;
    if all.len() < MAX_MODULES {
        all.push(ListedModule::from_layout(layout));
    }
    0
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn a_child_has_the_thread_that_forked() {
        let modules = LoadedModules::new();
        let is_new = |change: &dyn Fn()| {
            let before = modules.unloads();
            change();
            modules.unloads() != before
        };
        let [begin, end, fork]: [&dyn Fn(); 3] =
            [&|| modules.begin_close(), &|| modules.end_close(), &|| {
                modules.in_child(modules.loading.is_inside())
            }];
        assert!(is_new(begin) && is_new(begin) && is_new(end));
        assert_eq!(modules.closers(), 1);
        // Another thread closed an object.
        assert!(is_new(fork));
        assert_eq!(modules.closers(), 0);
        // This thread closes an object, and so did a library's destructor.
        let at_loader = modules.loading.enter();
        assert!(is_new(begin) && is_new(begin) && is_new(fork));
        assert_eq!(modules.closers(), 1);
        drop(at_loader);
        assert!(is_new(end) && is_new(end));
        assert_eq!(modules.closers(), 0);
    }
}
