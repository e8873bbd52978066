//! Handles forks during a recording: takes the locks for a fork, and continues in the parent and in
//! the child.

#[cfg(not(shuttle))]
use std::sync::atomic::Ordering;

use heapprof_platform::lock::WaitPolicy;
use heapprof_platform::sys;
use heapprof_platform::table_file::TableMemory;
use heapprof_platform::weak::{self, StreamLockAction, single_threaded};

use crate::drop_counters;
use crate::engine::Engine;
use crate::event::reentrancy_guard::is_inside_engine;
use crate::event::{entry, moment};
#[cfg(not(shuttle))]
use crate::outside;
use crate::process::ForkState;
use crate::recording::lines;
#[cfg(not(shuttle))]
use crate::recording::{audit, delay, shared_ledger};

/// The engine's handle for fork's handlers. A thread that forks has the reentrancy guard of all
/// engines, so in a process with two engines, only one engine's handlers are called for a fork.
#[derive(Clone, Copy)]
pub struct EngineForks(&'static Engine);

impl Engine {
    /// Returns the handle that fork's handlers call.
    pub const fn forks(&'static self) -> EngineForks {
        EngineForks(self)
    }
}

/// Number of bytes of memory that the engine reserves for the options that a child reads.
const MAX_CHILD_MEMORY: usize = 64 << 10;

/// Takes the locks for fork. Returns a bit for each lock, which is set if the lock was taken. Locks
/// that were not taken belong to threads that are interrupted in an event.
pub(super) fn acquire(engine: &Engine) -> u32 {
    let mut held = 0;
    for (i, lock) in engine.locks().iter().enumerate() {
        held |= u32::from(lock.acquire_for_fork(&engine.process)) << i;
        // The first lock waits for a thread that dumps.
        engine.process.set_forking(true);
    }
    held
}

/// Releases the locks in `held`, and everything that the ledger's `acquire_for_fork` took.
/// `counting` says whether that includes the heap's lock.
pub(super) fn release(engine: &Engine, held: u32, counting: bool) {
    engine.ledger.release_after_fork(counting);
    engine.process.set_forking(false);
    for (i, lock) in engine.locks().iter().enumerate() {
        if held >> i & 1 == 1 {
            lock.release_after_fork();
        }
    }
}

impl EngineForks {
    /// Prepares for a fork. Takes the locks, so that no lock in the child belongs to a thread that
    /// exists only in the parent. If that fails, notes that the child is torn: its tables may be
    /// half written.
    pub fn before(self) {
        let Self(engine) = self;
        let process = &engine.process;
        if is_inside_engine() || process.is_abandoned() {
            // A signal handler forks in the middle of an event, so this thread itself may have
            // taken locks.
            return;
        }
        // No thread should have the loader's locks while this thread forks. A thread that has them
        // may wait for ours, so this comes first.
        engine.code.modules.loading.before_fork();
        // libc takes the lock of its streams after fork's handlers ran. The thread that has that
        // lock may wait for a stream, and the owner of the stream may wait for our locks. So libc's
        // lock is taken here, before ours.
        let streams = !single_threaded();
        if streams {
            weak::streams(StreamLockAction::Lock);
        }
        // If a signal handler ended the process now, it would dump while this thread has the locks.
        let mask = process.block_signals();
        entry::hold_reentrancy_guard();
        let held = acquire(engine);
        let mut whole = held.count_ones() as usize == engine.locks().len();
        let mut counting = false;
        if whole {
            (whole, counting) = engine.ledger.acquire_for_fork(process, &engine.threads);
        }
        let keeping = process.pages.table_file.lock_pieces();
        whole = whole && keeping;
        if whole && process.pages.table_file.is_shared() {
            // The counters in the file that the child would find belong to this process, and go on.
            whole = engine.ledger.leave_heir(process, &engine.threads);
        }
        process.fork.save(ForkState {
            mask,
            streams,
            locks: held,
            counting,
            keeping,
            whole,
            is_closing: engine.code.modules.loading.is_inside(),
        });
        if !whole {
            drop_counters::count(&process.dropped.torn);
        }
    }

    /// Releases the locks that [`before`](Self::before) took. Returns the state that the caller
    /// must restore.
    fn release_locks(self) -> ForkState {
        let kept = self.0.process.fork.load();
        if kept.keeping {
            self.0.process.pages.table_file.unlock_pieces();
        }
        release(self.0, kept.locks, kept.counting);
        kept
    }

    /// Continues in the parent after a fork: releases the locks that [`before`](Self::before) took.
    pub fn in_parent(self) {
        if !entry::has_reentrancy_guard() {
            return;
        }
        // The next thread that forks leaves another heir.
        let heir = self.0.ledger.take_heir();
        let kept = self.release_locks();
        self.0.ledger.give_back_heir(&self.0.process, heir);
        entry::release_reentrancy_guard(self.0);
        sys::restore_signals(kept.mask);
        if kept.streams {
            weak::streams(StreamLockAction::Unlock);
        }
        self.0.code.modules.loading.after_fork();
    }

    /// Continues in the child after a fork. The child's profile starts with the inherited memory in
    /// use, as if the child had allocated this memory itself.
    pub fn in_child(self) {
        let Self(engine) = self;
        let (process, dumping) = (&engine.process, &engine.dumping);
        #[cfg(not(shuttle))]
        let parent = process.id.load(Ordering::Relaxed);
        dumping.reset_in_child();
        // No system call is made here: the program may be in a sandbox.
        let is_closing = entry::has_reentrancy_guard() && process.fork.load().is_closing;
        engine.code.modules.in_child(is_closing);
        engine.threads.names.note_fork();
        process.recorded.resume();
        if !entry::has_reentrancy_guard() {
            // What the handler interrupted may be half written, and threads that are no longer
            // there may have taken locks.
            #[cfg(not(shuttle))]
            outside::hide(engine);
            process.abandon();
            process.pages.table_file.stop_waiting();
            // SAFETY: this is fork's handler in the child. What it interrupted goes on with the
            // tables that it has.
            if unsafe { entry::separate_inside_event(engine) } {
                engine.threads.forget_others();
            }
            return;
        }
        let kept = self.release_locks();
        // No reader must take this ledger for the child's before it is, or if it never is.
        #[cfg(not(shuttle))]
        outside::hide(engine);
        let keeps = process.pages.table_file.is_shared();
        let is_running = process.recorded.is_running();
        let asked = match is_running && kept.whole && engine.reserve(MAX_CHILD_MEMORY) {
            true => dumping.options_for_children(process),
            false => None,
        };
        #[cfg(not(shuttle))]
        let waits = process.pages.table_file.is_there()
            && asked
                .as_ref()
                .is_some_and(|asked| delay::may_begin(engine, asked));
        #[cfg(not(shuttle))]
        let file = asked.as_ref().filter(|_| keeps && !waits);
        #[cfg(not(shuttle))]
        let file = file.and_then(|asked| shared_ledger::make_file_if_asked(engine, asked));
        #[cfg(shuttle)]
        let waits = false;
        #[cfg(shuttle)]
        let file: Option<sys::EngineFile> = None;
        let memory = match &file {
            Some(file) => TableMemory::File(file),
            None if waits => TableMemory::Movable,
            None => TableMemory::Private,
        };
        let had_state = entry::has_state(engine);
        // SAFETY: this is fork's handler in the child, and the thread is in no event.
        let has_parted = unsafe { entry::separate_tables(engine, memory) };
        let whole = kept.whole && has_parted;
        if !whole {
            // Some locks are never released in the child, because the threads that have them exist
            // only in the parent.
            process.abandon();
        }
        if has_parted {
            // SAFETY: this is fork's handler in the child.
            unsafe { engine.rebase(whole) };
        }
        match waits && whole {
            #[cfg(not(shuttle))]
            true => delay::begin(engine),
            _ => process.pages.table_file.stop_waiting(),
        }
        #[cfg(not(shuttle))]
        if whole {
            outside::publish(engine);
        }
        if whole {
            if had_state && !entry::has_state(engine) {
                entry::give_state(engine);
            }
            entry::reseed_random(engine);
            moment::begin_history(engine);
        }
        match dumping.begin_child(process) {
            true if whole => lines::inherit(engine),
            true => {}
            false => process.recorded.stop(),
        }
        #[cfg(not(shuttle))]
        let asked = asked.filter(|_| whole);
        #[cfg(not(shuttle))]
        if let Some(asked) = &asked {
            shared_ledger::publish(engine, file.as_ref().map(|file| (file, asked)));
        }
        // The file is closed before a signal's handler may fork.
        drop(file);
        #[cfg(not(shuttle))]
        if let Some(asked) = asked {
            audit::report_fork(engine, &asked, parent);
        }
        entry::release_reentrancy_guard(engine);
        sys::restore_signals(kept.mask);
        if kept.streams {
            weak::streams(StreamLockAction::Reset);
        }
    }
}
