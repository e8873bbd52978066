//! The ledger: blocks in use, and sums by stack.

pub(crate) mod access;
pub(crate) mod live;
pub(crate) mod regions;

use std::sync::atomic::{AtomicPtr, Ordering};

use crate::drop_counters::count;
use crate::mode::RecordingMode;
use crate::process::EngineProcess;
use crate::tables::counters::{StackCounters, TemporarySum};
use crate::tables::filter::{self, AddressFilter};
use crate::tables::spread::{self, StackSpread};
use crate::tables::stacks::ProcessStacks;
use crate::thread::state::{ThreadState, ThreadStates};
use access::LedgerAccess;
use heapprof_abi::StackNumber;
use heapprof_platform::arch::undisturbed;
use heapprof_platform::lock::{ForkLock, FutexLock, LockedValue, rank};
use heapprof_platform::table_file::TableLifetime;
use heapprof_platform::weak::single_threaded;
use live::LiveTable;
use regions::ProgramMappings;

/// The engine's ledger of blocks and of stacks. The sums by stack are in the threads' states.
pub(crate) struct Ledger {
    pub(crate) stacks: ProcessStacks,
    pub(crate) live: LiveTable,
    pub(crate) access: LedgerAccess,
    pub(crate) regions: LockedValue<{ rank::REGIONS }, ProgramMappings>,
    /// The filter that chooses the frees that the engine must see. The hooks read it, too.
    pub(crate) filter: &'static AddressFilter,
    /// Locked while a recording begins, so that no other recording fills the tables while they are
    /// cleared.
    pub(crate) starting: FutexLock<{ rank::STARTING }>,
    /// The heir: the sums of all live memory, in private memory. A forked child gets it if the
    /// child does not get the threads' counters. Null while no such child is being forked.
    heir: AtomicPtr<ThreadState>,
}

impl Ledger {
    /// Creates an empty ledger. `filter` chooses the frees that the engine must see.
    pub(crate) const fn new(filter: &'static AddressFilter) -> Self {
        Self {
            stacks: ProcessStacks::new(),
            live: LiveTable::new(),
            access: LedgerAccess::new(),
            regions: LockedValue::new(ProgramMappings::new()),
            filter,
            starting: FutexLock::new(),
            heir: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// Clears the blocks and sums of an earlier recording, whose ledger no thread opens any more.
    /// Returns false if that is impossible, because a thread is interrupted in the middle of an
    /// event.
    pub(crate) fn restart(
        &self,
        process: &EngineProcess,
        threads: &ThreadStates,
        mode: RecordingMode,
    ) -> bool {
        // Stacks keep their numbers, and the hooks keep their filter.
        let Self {
            stacks: _,
            live,
            access: shared,
            regions,
            filter,
            starting: _,
            heir: _,
        } = self;
        regions.with(process, ProgramMappings::clear);
        {
            let changing = shared.lock_changes(process);
            shared.collect_budgets(threads, &changing);
            if !access::wait_for_all(threads)
                || !access::share(threads, live.owners(), &changing)
                || !live.clear(process)
            {
                return false;
            }
        }
        self.restart_counters(threads, SumsToKeep::Nothing);
        shared.heap.restart(0);
        filter.fill(if mode == RecordingMode::Exact {
            filter::STUCK_SLOT
        } else {
            0
        });
        true
    }

    /// Restarts all sums in a forked child. Inherited live memory counts as allocated by the child,
    /// and is the child's first peak.
    ///
    /// # Safety
    /// The caller is fork's handler in the child, which has one thread, and the parts of the live
    /// table have no owners.
    pub(crate) unsafe fn rebase(
        &self,
        process: &'static EngineProcess,
        threads: &'static ThreadStates,
    ) {
        // Blocks, regions and stacks are inherited.
        let Self {
            stacks: _,
            live: _,
            access: shared,
            regions: _,
            filter: _,
            starting: _,
            heir,
        } = self;
        // If the parent's counters are not kept in a file, the child has a copy of them.
        let has_heir = !heir.load(Ordering::Acquire).is_null() || self.leave_heir(process, threads);
        let heir = self.take_heir();
        let give = |own: &'static ThreadState| {
            self.restart_state(own, SumsToKeep::Nothing);
            // SAFETY: this is what `leave_heir` made, here or before the fork.
            if let Some(heir) = unsafe { heir.as_ref() } {
                self.inherit(process, heir, own);
            }
        };
        // SAFETY: a forked child has one thread, which runs fork's handler. No block has an owner:
        // the caller disowned them.
        let has_all = has_heir && unsafe { threads.keep_own(process, give) };
        self.give_back_heir(process, heir);
        if !has_all {
            threads.forget_others();
            self.restart_counters(threads, SumsToKeep::InUse);
        }
        shared.heap.restart(shared.heap.in_use());
    }

    /// Makes an heir for a child that is about to be forked, with the sums of all live memory. No
    /// thread counts meanwhile. Returns false if there is no memory for the heir.
    pub(crate) fn leave_heir(&self, process: &EngineProcess, threads: &ThreadStates) -> bool {
        let len = size_of::<ThreadState>();
        let heir = process
            .pages
            .map(len, TableLifetime::Own)
            .cast::<ThreadState>();
        // SAFETY: null, or zeroed memory, which is a valid state for what is done with it here.
        let Some(state) = (unsafe { heir.as_ref() }) else {
            return false;
        };
        self.add_up_for_heir(process, threads, state);
        self.heir.store(heir, Ordering::Release);
        true
    }

    /// Adds all live memory to an heir. The heir stores it in its sums of temporary allocations,
    /// which take a quarter of the memory that counters would take.
    fn add_up_for_heir(&self, process: &EngineProcess, threads: &ThreadStates, heir: &ThreadState) {
        let (len, pages) = (self.stacks.len() as usize, &process.pages);
        for state in threads.all() {
            heir.sizes.take_over(&state.sizes);
            let add = |stack, counters: &StackCounters| {
                let in_use = counters.in_use();
                if in_use == [0, 0] {
                    return;
                }
                let to = heir.temporary.touch(stack, pages, TableLifetime::Own);
                // SAFETY: null, or mapped for as long as the heir.
                match unsafe { to.as_ref() } {
                    Some(TemporarySum(sum)) => {
                        let before = sum.get();
                        sum.set([0, 1].map(|i| before[i].wrapping_add(in_use[i])));
                    }
                    None => count(&process.dropped.no_memory),
                }
            };
            // SAFETY: counters are made of atomics, as is what is known of samples.
            unsafe { state.counters.each(len, add) };
            let add = |stack: usize, spread: &StackSpread| {
                if !spread.is_untouched()
                    && let Some(to) =
                        heir.spread_in(TableLifetime::Own, StackNumber::from_index(stack), pages)
                {
                    let mut known = spread::SpreadSum::default();
                    undisturbed(&mut || {
                        known.add(to);
                        known.add(spread);
                    });
                    to.restart_from(&known);
                }
            };
            // SAFETY: as above.
            unsafe { state.spread.each(len, add) };
        }
    }

    /// Adds the sums of an heir to an empty state, as if the state's thread had allocated the live
    /// memory. Sums for which there is no memory count as dropped.
    fn inherit(&self, process: &EngineProcess, heir: &ThreadState, own: &ThreadState) {
        let (len, pages) = (self.stacks.len() as usize, &process.pages);
        own.sizes.take_over(&heir.sizes);
        let give = |stack: usize, TemporarySum(sum): &TemporarySum| {
            let in_use = sum.get();
            if in_use != [0, 0] {
                match own.counters(StackNumber::from_index(stack), pages) {
                    Some(counters) => counters.restart_from(in_use),
                    None => count(&process.dropped.no_memory),
                }
            }
        };
        // SAFETY: they are made of atomics.
        unsafe { heir.temporary.each(len, give) };
        let give = |stack: usize, spread: &StackSpread| {
            if !spread.is_untouched()
                && let Some(to) = own.spread(StackNumber::from_index(stack), pages)
            {
                let mut known = spread::SpreadSum::default();
                undisturbed(&mut || known.add(spread));
                to.restart_from(&known);
            }
        };
        // SAFETY: as above.
        unsafe { heir.spread.each(len, give) };
    }

    /// Takes the heir that [`leave_heir`](Self::leave_heir) made. The caller passes it to
    /// [`give_back_heir`](Self::give_back_heir).
    pub(crate) fn take_heir(&self) -> *mut ThreadState {
        self.heir.swap(std::ptr::null_mut(), Ordering::AcqRel)
    }

    /// Frees the memory of an heir.
    pub(crate) fn give_back_heir(&self, process: &EngineProcess, heir: *mut ThreadState) {
        // SAFETY: null, or what `leave_heir` made, which nothing uses any more.
        unsafe {
            if let Some(state) = heir.as_ref() {
                state.give_back(&process.pages);
                process.pages.unmap(heir.cast(), size_of::<ThreadState>());
            }
        }
    }

    /// Restarts the sums of all stacks. No thread adds to them meanwhile.
    fn restart_counters(&self, threads: &ThreadStates, kept: SumsToKeep) {
        threads
            .all()
            .for_each(|state| self.restart_state(state, kept));
    }

    fn restart_state(&self, state: &ThreadState, kept: SumsToKeep) {
        state.sizes.restart(kept == SumsToKeep::InUse);
        for stack in self.stacks.numbers() {
            let of_stack = state.stack_sums(stack);
            if let Some(counters) = of_stack.counters {
                if counters.is_untouched() {
                    continue;
                }
                counters.restart(kept == SumsToKeep::InUse);
            }
            if let Some(temporary) = of_stack.temporary {
                temporary.0.set([0, 0]);
            }
            if let Some(spread) = of_stack.spread {
                spread.restart(kept == SumsToKeep::InUse);
            }
        }
    }

    /// Returns how many bytes of the ledger's tables are resident. The threads' tables are not
    /// included.
    pub(crate) fn resident(&self, process: &EngineProcess) -> usize {
        let live = self.live.resident(&process.pages);
        self.stacks.resident(process) + live + self.filter.resident()
    }

    /// Returns the locks that fork must take before it takes the parts of the live table and the
    /// heap's lock.
    pub(crate) fn locks(&self) -> [&dyn ForkLock; 5] {
        let Self {
            stacks,
            live: _,
            access: shared,
            regions,
            filter: _,
            starting,
            heir: _,
        } = self;
        let ([by_hash, frames], [changing]) = (stacks.locks(), shared.locks());
        [by_hash, frames, changing, &regions.lock, starting]
    }

    /// Takes all parts of the live table, and the heap's lock. Fork calls this after it has taken
    /// [`locks`](Self::locks). The first result says whether all parts and the heap's lock were
    /// taken. The second result says whether the heap's lock was taken. A thread that is
    /// interrupted in the middle of an event keeps its parts, which are then half written in the
    /// child.
    pub(crate) fn acquire_for_fork(
        &self,
        process: &EngineProcess,
        threads: &ThreadStates,
    ) -> (bool, bool) {
        self.access.collect_budgets_for_fork(threads);
        let mut whole = single_threaded() || access::share_for_fork(threads, self.live.owners());
        whole = self.live.acquire_all(process) && whole;
        let counting = self.access.heap.lock().acquire_for_fork(process);
        (whole && counting, counting)
    }

    /// Releases the parts that [`acquire_for_fork`](Self::acquire_for_fork) took and, if `counting`
    /// is true, the heap's lock.
    pub(crate) fn release_after_fork(&self, counting: bool) {
        self.live.release_all();
        if counting {
            self.access.heap.lock().release_after_fork();
        }
    }
}

/// The sums that a restart keeps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SumsToKeep {
    Nothing,
    InUse,
}
