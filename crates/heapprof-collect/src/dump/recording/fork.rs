//! What fork does to a recording: which locks are held meanwhile, and how parent and child go on.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use super::turn::{self, DUMPING};
use super::{DEFAULT, EXEC, NAMING, OPTIONS, PROCESS_ID, RAISE, RAISED, clock, go_on};
use crate::books::{access, begin, engine};
use crate::code::{mappings, modules};
use crate::dump::output::Naming;
use crate::dump::snapshot;
use crate::platform::lock::{self, Lock};
use crate::platform::weak::{self, Streams, single_threaded};
use crate::platform::{arena, sys};
use crate::stack::walk;
use crate::tables::counters::PROCESS;
use crate::tables::dropped::{self, DROPPED};
use crate::thread::{entry, state};
use crate::{apart, mode, trigger};

fn fork_locks() -> impl Iterator<Item = &'static Lock> {
    let ours = [
        &DUMPING,
        &OPTIONS.lock,
        &NAMING.lock,
        begin::lock(),
        trigger::lock(),
        walk::lock(),
    ];
    let regions = [
        crate::books::regions::lock(),
        access::lock(),
        state::lock(),
        &DEFAULT.lock,
    ];
    let [known, closed] = mappings::locks();
    let [by_hash, arena] = engine::STACKS.locks();
    // Outer locks come before the locks that are taken while the outer ones are held.
    ours.into_iter().chain(regions).chain([
        known,
        closed,
        modules::lock(),
        by_hash,
        arena,
        arena::lock(),
    ])
}

/// Whether the tables were not at rest when this thread forked.
static TORN: AtomicBool = AtomicBool::new(false);
/// Which of [`fork_locks`] the forking thread holds, with one bit for each. The others are held by
/// threads that are held up in an event.
static FORK_HELD: AtomicU32 = AtomicU32::new(0);

/// Takes the locks for fork. Returns whether it got all.
fn acquire_for_fork() -> bool {
    let (mut held, mut all) = (0, true);
    for (i, lock) in fork_locks().enumerate() {
        // A thread that dumps is not held up, because it has its signals blocked. But it may take
        // long.
        let taken = match i {
            0 => {
                lock.acquire();
                lock::set_forking(true);
                true
            }
            _ => lock.acquire_for_fork(),
        };
        held |= u32::from(taken) << i;
        all &= taken;
    }
    FORK_HELD.store(held, Ordering::Relaxed);
    all
}

/// What [`before_fork`] leaves to be put back: the signal mask, and whether it holds libc's
/// streams. Only whoever holds the locks writes and reads these.
static FORK_MASK: AtomicU64 = AtomicU64::new(0);
static FORK_STREAMS: AtomicBool = AtomicBool::new(false);
/// Whether the forking thread holds the lock of the sums.
static FORK_COUNTING: AtomicBool = AtomicBool::new(false);

/// Called before fork. Takes the locks, so that no thread that the child will not have holds one.
/// If that fails, notes that the child is torn: its tables may be half written.
pub fn before_fork() {
    if apart::is_apart() || lock::is_abandoned() {
        // A signal handler forks in the middle of an event, so this thread itself may hold locks.
        return;
    }
    // libc takes the lock of its streams after fork's handlers ran. Whoever holds it may wait for a
    // stream, and the stream's owner may wait for our locks. So it comes before ours.
    let streams = !single_threaded();
    if streams {
        weak::streams(Streams::Lock);
    }
    // If a signal handler ended the process now, it would dump while this thread holds the locks.
    let mask = sys::block_signals();
    entry::hold_apart();
    let mut whole = acquire_for_fork();
    FORK_MASK.store(mask, Ordering::Relaxed);
    FORK_STREAMS.store(streams, Ordering::Relaxed);
    if whole {
        access::collect_budgets();
        // A thread that is held up in the middle of an event keeps its parts of the table. In the
        // child, these parts are half written.
        whole = single_threaded() || access::share(engine::LIVE.owners());
        whole = engine::LIVE.acquire_all() && whole;
        let counting = PROCESS.lock().acquire_for_fork();
        FORK_COUNTING.store(counting, Ordering::Relaxed);
        whole &= counting;
    }
    TORN.store(!whole, Ordering::Relaxed);
    if !whole {
        dropped::count(&DROPPED.torn);
    }
}

/// Gives back the locks that [`before_fork`] took. Returns the signal mask that is to be put back,
/// and whether libc's streams are held.
fn let_go() -> (u64, bool) {
    let kept = (
        FORK_MASK.load(Ordering::Relaxed),
        FORK_STREAMS.load(Ordering::Relaxed),
    );
    engine::LIVE.release_all();
    if FORK_COUNTING.swap(false, Ordering::Relaxed) {
        PROCESS.lock().release();
    }
    lock::set_forking(false);
    let held = FORK_HELD.load(Ordering::Relaxed);
    for (i, lock) in fork_locks().enumerate() {
        if held >> i & 1 == 1 {
            lock.release();
        }
    }
    kept
}

/// Called after fork, in the parent. Gives back what [`before_fork`] took.
pub fn after_fork_in_parent() {
    if !entry::is_held() {
        return;
    }
    let (mask, streams) = let_go();
    entry::end_apart();
    sys::restore_signals(mask);
    if streams {
        weak::streams(Streams::Unlock);
    }
}

/// Called after fork, in the child. The child's profile starts with what it inherited in use, as if
/// it had allocated that itself.
pub fn after_fork_in_child() {
    trigger::forget();
    turn::forked();
    RAISE.store(0, Ordering::Release);
    RAISED.store(0, Ordering::Release);
    EXEC.store(i64::MIN, Ordering::Relaxed);
    go_on();
    mode::resume();
    if !entry::is_held() {
        // What the handler interrupted may be half written, and threads that are no longer there
        // may hold locks.
        state::forget_other_threads();
        mode::stop();
        lock::abandon();
        return;
    }
    lock::is_no_orphan();
    let torn = TORN.load(Ordering::Relaxed);
    if torn {
        // Threads that the child does not have hold some locks for good.
        mode::stop();
        lock::abandon();
    }
    let (mask, streams) = let_go();
    state::forget_other_threads();
    engine::LIVE.disown();
    access::prepare();
    PROCESS_ID.store(sys::process_id(), Ordering::Relaxed);
    if !torn {
        entry::draw_anew();
        begin::rebase();
        snapshot::begin();
    }
    NAMING.with(Naming::forked);
    let (triggers, follow) = OPTIONS
        .with(|o| o.as_ref().map(|o| (o.triggers, o.follow_children)))
        .unzip();
    if follow == Some(false) {
        mode::stop();
    }
    clock::forked(triggers);
    entry::end_apart();
    sys::restore_signals(mask);
    if streams {
        weak::streams(Streams::Reset);
    }
}
