//! The program's code: which files are mapped, how to unwind from an address, what was unmapped
//! since.

pub(crate) mod cfi;
pub(crate) mod data;
pub(crate) mod image;
pub(crate) mod mappings;
pub(crate) mod maps;
pub(crate) mod modules;
pub(crate) mod rule;
pub(crate) mod seen;

use std::sync::atomic::{AtomicPtr, Ordering};

use crate::platform::lock::{ForkLock, rank};
use crate::platform::process::Process;
use crate::tables::probe_table::ProbeTable;
use crate::stack::end::Entries;
use mappings::Mappings;
use modules::{Module, Modules};
use seen::Seen;

/// What is known of the program's code.
pub(crate) struct Code {
    pub(crate) mappings: Mappings,
    pub(crate) modules: Modules,
    /// Rules by return address (an interrupted pc stands in as pc + 1).
    pub(crate) rules: ProbeTable<{ rank::RULES }>,
    /// Which objects unwinding has met.
    /// Where the kernel started the program.
    pub(crate) entries: Entries,
    pub(crate) seen: Seen,
    /// Who wants to know when unwinding meets code of an object: [`Watcher`] as a pointer.
    watcher: AtomicPtr<()>,
}

/// Is told where the object begins.
pub(crate) type Watcher = fn(usize);

impl Code {
    /// Nothing is known yet.
    pub(crate) const fn new() -> Self {
        Self {
            mappings: Mappings::new(),
            modules: Modules::new(),
            rules: ProbeTable::new(),
            seen: Seen::new(),
            watcher: AtomicPtr::new(std::ptr::null_mut()),
        }
    }
            entries: Entries::new(),

    /// Called when unwinding meets a module at an address without rules.
    pub(crate) fn touched(&self, process: &Process, module: &Module) {
        self.seen.note(module.start);
        let watcher = self.watcher.load(Ordering::Acquire);
        if !watcher.is_null() {
            // SAFETY: nothing else is stored there.
            let watcher = unsafe { std::mem::transmute::<*mut (), Watcher>(watcher) };
            watcher(module.start);
        }
        if self.modules.unloads() != 0 {
            self.mappings.touched(process, module);
        }
    }

    /// Has `watcher` told of the object whenever unwinding meets an address without rules. It runs
    /// inside allocations.
    pub(crate) fn watch(&self, watcher: Watcher) {
        self.watcher.store(watcher as *mut (), Ordering::Release);
    }

    /// Forgets the rules of code that is no longer there.
    pub(crate) fn forget_gone(&self, process: &Process, reserve: impl Fn(usize) -> bool) {
        let gone = self.mappings.note_gone(process, reserve);
        if gone.is_empty() {
            return;
        }
        for range in gone {
            // A return address may be the one behind the last instruction.
            let addresses = range.start as u64..range.end as u64 + 1;
            self.rules.remove_range(process, addresses);
        }
        self.modules.note_unload(process);
        self.seen.clear();
    }

    /// The locks that fork must hold.
    pub(crate) fn locks(&self) -> [&dyn ForkLock; 4] {
        let Self {
            mappings,
            modules,
            rules,
            seen: _,
            watcher: _,
        } = self;
        let ([known, closed], [snapshot]) = (mappings.locks(), modules.locks());
        [known, closed, snapshot, &rules.lock]
    }
}
            entries: _,
