//! The program's code: mapped files, unwind rules, and code that was unmapped.

pub(crate) mod cfi;
pub(crate) mod closed_code;
pub(crate) mod data;
pub(crate) mod entries;
pub(crate) mod frame_index;
pub(crate) mod image;
pub(crate) mod lasting_code;
pub(crate) mod listed_modules;
pub(crate) mod loader_guard;
pub(crate) mod mappings;
pub(crate) mod modules;
pub(crate) mod unwound_objects;

use std::ops::Range;
use std::sync::atomic::{AtomicPtr, Ordering};

use heapprof_abi::FrameAddress;
use heapprof_platform::lock::{ForkLock, rank};
use heapprof_platform::weak;

use crate::process::EngineProcess;
use crate::tables::probe_table::ProbeTable;
use entries::EntryPoints;
use lasting_code::LastingCode;
use mappings::CodeMappings;
use modules::{LoadedModule, LoadedModules};
use unwound_objects::SeenObjects;

/// All data about the program's code.
pub(crate) struct ProgramCode {
    pub(crate) mappings: CodeMappings,
    pub(crate) modules: LoadedModules,
    /// Unwind rules, by the address of a frame.
    pub(crate) rules: ProbeTable<{ rank::RULES }>,
    /// Addresses at which the kernel started the program.
    pub(crate) entries: EntryPoints,
    /// The loaded objects that a stack walk has reached.
    pub(crate) seen: SeenObjects,
    /// Code that dlclose can't unmap.
    pub(crate) lasting: LastingCode,
    /// The [`CodeWatcher`] that is called for addresses without unwind rules, as a pointer.
    watcher: AtomicPtr<()>,
}

/// Maximum number of bytes of a path, with the zero at its end.
const MAX_PATH_LEN: usize = 4096;

/// A listener for code that is new to the engine. Its argument is the start address of a loaded
/// object.
pub(crate) type CodeWatcher = fn(usize);

impl ProgramCode {
    /// Makes the data of a program whose code is not known yet.
    pub(crate) const fn new() -> Self {
        Self {
            mappings: CodeMappings::new(),
            modules: LoadedModules::new(),
            rules: ProbeTable::new(),
            entries: EntryPoints::new(),
            seen: SeenObjects::new(),
            lasting: LastingCode::new(),
            watcher: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// Notes a module that a stack walk has reached, at an address whose unwind rule is not stored.
    /// Returns whether the module has replaced another module at its addresses.
    pub(crate) fn note_module(&self, process: &EngineProcess, module: &LoadedModule) -> bool {
        let is_closing = || self.modules.closers() != 0;
        let is_other = self.mappings.note_module(process, module, is_closing);
        if is_other {
            self.modules.indexes.forget(&(module.start..module.end));
            self.seen.clear();
        }
        if self.seen.is_new(module.start) {
            self.note_new(process, module);
        }
        let watcher = self.watcher.load(Ordering::Acquire);
        if !watcher.is_null() {
            // SAFETY: only `watch` stores a pointer there, and it is a [`CodeWatcher`].
            let watcher = unsafe { std::mem::transmute::<*mut (), CodeWatcher>(watcher) };
            watcher(module.start);
        }
        is_other
    }

    /// Notes an object that a stack walk has reached for the first time. The object's code is
    /// written to the saved ledger before the stack, so that the code of the stack is known even if
    /// the process is killed.
    #[cold]
    fn note_new(&self, process: &EngineProcess, module: &LoadedModule) {
        if process.pages.table_file.is_there() {
            // A scan finds the unwind tables of some objects, and code that came without the
            // loader.
            if !self.mappings.note_met(process, module) || module.lacks_table() {
                self.seen.request_scan();
            }
        }
        self.seen.note(module.start);
    }

    /// Whether the unwind rule of `address` may be stored. While a thread closes objects, only
    /// rules of lasting code are stored. Other rules are then computed at each walk, so that
    /// [`note_module`](Self::note_module) notices a replaced module.
    pub(crate) fn may_keep_rule(&self, address: usize) -> bool {
        self.modules.closers() == 0 || self.lasting.holds(address)
    }

    /// Notes which of the known code stays mapped until the process ends. If dlopen may already
    /// have loaded code, only the program's file, the loader, libc and this engine count as
    /// lasting.
    pub(crate) fn note_lasting(&self, process: &EngineProcess) {
        let own = [
            libc::getauxval as *const () as usize,
            Self::note_lasting as *const () as usize,
        ];
        let (is_all, entries) = (self.lasting.expects_all(), self.entries.all());
        let lasts = |range: &Range<usize>| {
            let holds = |address: &usize| range.contains(address);
            is_all || entries.iter().any(holds) || own.iter().any(holds)
        };
        let mut there = self.mappings.present_ranges(process);
        there.retain(lasts);
        self.lasting.note(there);
    }

    /// Prepares for a thread that closes objects. Until [`end_close`](Self::end_close), rules of
    /// code that may be unmapped are not stored, because other code may take its addresses at any
    /// time. `has_memory` says whether there is memory for notes about this code.
    pub(crate) fn begin_close(&self, process: &EngineProcess, has_memory: bool) {
        self.modules.begin_close();
        let stays = |address| self.lasting.holds(address);
        if has_memory {
            self.mappings.note_closing(process, stays);
        }
        let has_gone = |word| !stays(FrameAddress::from_word(word).lookup_address() as usize);
        self.rules.remove(process, has_gone);
    }

    /// Undoes [`begin_close`](Self::begin_close), after the thread has closed its objects and the
    /// closed code is forgotten.
    pub(crate) fn end_close(&self) {
        self.modules.end_close();
    }

    /// Indexes the unwind tables of objects whose linker made no search table. This is called by
    /// one thread at a time, just after a scan of the mapped code.
    pub(crate) fn index_frames(&self, process: &EngineProcess) {
        let mut path = [0; MAX_PATH_LEN];
        let is_new = |start: usize| {
            let module = self.modules.find(process, start);
            module.filter(|module| {
                module.lacks_table() && !self.modules.indexes.is_known(module.start)
            })
        };
        while let Some((module, path)) = self.mappings.find_first(process, is_new, &mut path) {
            if self.modules.indexes.add(&(module.start..module.end), path) && self.rules.len() != 0
            {
                let addresses = module.start as u64..module.end as u64 + 1;
                self.rules.remove_range(process, addresses);
                self.modules.note_index();
            }
            if !self.modules.indexes.is_known(module.start) {
                // There is no room for more indexes.
                return;
            }
        }
    }

    /// Sets the listener that is called when a stack walk reaches an address without unwind rules.
    /// The listener runs inside allocations.
    pub(crate) fn watch(&self, watcher: CodeWatcher) {
        self.watcher.store(watcher as *mut (), Ordering::Release);
    }

    /// Returns the addresses of objects whose mappings are unknown. A stack walk has reached them,
    /// but no scan was possible.
    pub(crate) fn unknown_objects(&self, process: &EngineProcess) -> Vec<Range<usize>> {
        let object = |start| {
            let found = weak::dl_find_object(start)?;
            (found.map_start == start).then_some(found.map_start..found.map_end)
        };
        let met = self.seen.all().filter_map(object);
        met.filter(|range| !self.mappings.knows(process, range))
            .collect()
    }

    /// Notes which of some objects with unknown mappings were unloaded. `objects` has their
    /// addresses.
    pub(crate) fn note_unknown_gone(&self, process: &EngineProcess, objects: Vec<Range<usize>>) {
        let is_there = |range: &Range<usize>| {
            let found = weak::dl_find_object(range.start);
            found.is_some_and(|found| found.map_start == range.start && found.map_end == range.end)
        };
        for range in objects.into_iter().filter(|range| !is_there(range)) {
            let addresses = range.start as u64..range.end as u64 + 1;
            self.mappings.note_unknown_gone(process, range);
            self.rules.remove_range(process, addresses);
            self.modules.note_unload(process);
            self.seen.clear();
        }
    }

    /// Removes the rules of code that is no longer mapped.
    pub(crate) fn forget_gone(&self, process: &EngineProcess, reserve: impl Fn(usize) -> bool) {
        let is_last = || self.modules.closers() <= 1;
        let gone = self.mappings.note_gone(process, is_last, reserve);
        if gone.is_empty() {
            return;
        }
        for range in gone {
            self.modules.indexes.forget(&range);
            // A return address may be that behind the last instruction.
            let addresses = range.start as u64..range.end as u64 + 1;
            self.rules.remove_range(process, addresses);
        }
        self.modules.note_unload(process);
        self.seen.clear();
    }

    /// Returns the locks that fork must take.
    pub(crate) fn locks(&self) -> [&dyn ForkLock; 4] {
        let Self {
            mappings,
            modules,
            rules,
            entries: _,
            seen: _,
            lasting: _,
            watcher: _,
        } = self;
        let ([known, closed], [snapshot]) = (mappings.locks(), modules.locks());
        [known, closed, snapshot, &rules.lock]
    }
}
