//! Tests of engines: two engines in one process, and an engine whose tables are in memory that the
//! test provides.

use std::sync::Barrier;

use heapprof_platform::lock::rank;
use heapprof_platform::pages::PageSource;
use heapprof_platform::pages::regions::{region, region_of};
use heapprof_platform::tls;

use super::sums;
use crate::engine::{ENGINE, Engine};
use crate::mode::RecordingMode;
use crate::options::RecordingOptions;
use crate::tables::filter::AddressFilter;
use crate::tables::spread::SpreadEstimate;
use crate::thread::state::engine_identity;

/// Makes an engine that is never freed, like `ENGINE`.
fn engine(pages: PageSource) -> &'static Engine {
    let filter = Box::leak(Box::new(AddressFilter::new()));
    Box::leak(Box::new(Engine::new(filter, pages)))
}

/// Starts an exact recording.
fn start(engine: &'static Engine) {
    assert!(engine.lifecycle().start(RecordingOptions {
        mode: RecordingMode::Exact,
        ..RecordingOptions::default()
    }));
}

/// Returns the address of a block. Each block has a different address, at which nothing is ever
/// read.
fn address(block: usize) -> *mut u8 {
    std::ptr::without_provenance_mut(0x1000_0000 + block * 4096)
}

/// Reports an allocation to an engine, as a hook does.
#[inline(never)]
fn allocate(engine: &'static Engine, block: usize, size: usize) {
    let events = engine.events();
    assert!(events.charge(size) || is_other(engine));
    let made = events.allocate(size, events.caller(), || address(block));
    assert_eq!(made, address(block));
}

/// Whether this thread served another engine last, so that it may still have that engine's
/// countdown.
fn is_other(engine: &'static Engine) -> bool {
    // SAFETY: the slot is this thread's own.
    unsafe { (*tls::current()).engine != engine_identity(&engine.process) }
}

fn free(engine: &'static Engine, block: usize) {
    assert!(engine.events().may_hold(address(block) as usize));
    engine.events().release(address(block));
}

/// Returns the sums of all stacks: allocated objects and bytes, and objects and bytes in use.
fn sums(engine: &'static Engine) -> [i64; 4] {
    engine.with_reentrancy_guard(|| {
        let each = sums::sums(engine).into_iter().map(|sum| {
            let in_use = sum.in_use();
            [sum.allocated[0], sum.allocated[1], in_use[0], in_use[1]]
        });
        each.fold([0; 4], |a, b| std::array::from_fn(|i| a[i] + b[i]))
    })
}

/// Forks with the handlers of an engine, and runs checks in the child. Returns the child's status.
/// Its exit code has one bit for each check that failed.
fn in_child<const N: usize>(engine: &'static Engine, check: impl FnOnce() -> [bool; N]) -> i32 {
    let forks = engine.forks();
    forks.before();
    // SAFETY: the child calls what is safe after a fork of a process with threads: the engine's own
    // functions, which take no lock of libc's but malloc's, and _exit.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        forks.in_child();
        let bits = (0..)
            .zip(check())
            .map(|(bit, holds)| i32::from(!holds) << bit);
        let code = bits.sum();
        // SAFETY: it ends the child, and runs nothing of the parent's.
        unsafe { libc::_exit(code) };
    }
    forks.in_parent();
    let mut status = 0;
    // SAFETY: a child of this test's, and a place for its status.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status
}

#[test]
fn fork_takes_a_lock_of_every_rank() {
    let ranks: Vec<u8> = ENGINE.locks().iter().map(|lock| lock.rank()).collect();
    // The ledger takes the last two, after all others.
    let others = (0..rank::COUNT).filter(|rank| ![rank::PARTS, rank::HEAP].contains(rank));
    assert_eq!(ranks, others.collect::<Vec<u8>>());
}

/// Tests two engines that record at once, each in its own thread. Then forks with the handlers of
/// each engine in turn: the child continues with the memory in use of this engine, and does not
/// touch the other engine.
#[test]
fn two_engines_record_beside_each_other_and_after_a_fork() {
    let engines = [
        engine(PageSource::from_kernel()),
        engine(PageSource::from_kernel()),
    ];
    std::thread::scope(|scope| {
        for (i, engine) in engines.into_iter().enumerate() {
            scope.spawn(move || {
                start(engine);
                for block in 0..10_000 {
                    allocate(engine, block, 100 + i);
                    if block % 4 != 0 {
                        free(engine, block);
                    }
                }
            });
        }
    });
    let expected = |i: i64| [10_000, 10_000 * (100 + i), 2_500, 2_500 * (100 + i)];
    assert_eq!(engines.map(sums), [expected(0), expected(1)]);
    // The handlers of one engine take the reentrancy guard, so each engine's own come in turn.
    for (i, engine) in engines.into_iter().enumerate() {
        // The thread that forks has served the other engine last.
        allocate(engines[1 - i], 20_000 + i, 1);
        free(engines[1 - i], 20_000 + i);
        let before = engines.map(sums);
        let status = in_child(engine, || {
            let left = 2_500 * (100 + i as i64);
            // A child begins with what it inherited.
            let begun = sums(engine) == [2_500, left, 2_500, left];
            allocate(engine, 1, 1);
            free(engine, 0);
            let [objects, bytes, in_use, _] = sums(engine);
            let goes_on = [objects, bytes, in_use] == [2_501, left + 1, 2_500];
            let is_untouched = sums(engines[1 - i]) == before[1 - i];
            [begun, goes_on, is_untouched]
        });
        assert_eq!(status, 0, "engine {i}");
    }
    // Each forking thread allocated and freed one block in the other engine.
    let more = |i: i64| std::array::from_fn(|k| expected(i)[k] + [1, 1, 0, 0][k]);
    assert_eq!(engines.map(sums), [more(0), more(1)]);
}

/// Tests that a child inherits the memory in use of all threads of its parent, as if one thread had
/// allocated it. This includes blocks that another thread freed, sizes, and, when sampling, the
/// spread of the sums.
#[test]
fn a_child_has_what_all_threads_have() {
    for (mode, period) in [(RecordingMode::Exact, 1), (RecordingMode::Sampled, 64)] {
        let engine = engine(PageSource::from_kernel());
        assert!(engine.lifecycle().start(RecordingOptions {
            mode,
            period,
            ..RecordingOptions::default()
        }));
        // A thread that comes when another one has ended would go on with the tables of that
        // thread.
        let have_all_allocated = Barrier::new(5);
        std::thread::scope(|scope| {
            for thread in 0..5 {
                let have_all_allocated = &have_all_allocated;
                scope.spawn(move || {
                    for block in 0..2_000 {
                        sampled(engine, thread * 10_000 + block, 50 + thread);
                    }
                    have_all_allocated.wait();
                });
            }
        });
        // Another thread frees.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for block in (0..2_000).step_by(3) {
                    engine.events().release(address(10_000 + block));
                }
            });
        });
        let whole = |engine: &'static Engine| {
            engine.with_reentrancy_guard(|| {
                let (sums, sizes) = sums::sums_and_sizes(engine);
                // Threads are added up in another order in a child, which changes the last bits of
                // a sum.
                let spread = |known: SpreadEstimate| {
                    let rounded = known.variance.map(|variance| variance as f32);
                    (known.samples, rounded)
                };
                let in_use = sums.iter().map(|sum| (sum.in_use(), spread(sum.spread[1])));
                // A stack that has nothing in use may be known to only one of the two processes.
                let in_use = in_use
                    .enumerate()
                    .filter(|(_, (in_use, _))| *in_use != [0; 2]);
                let in_use: Vec<_> = in_use.collect();
                let classes: Vec<i64> = sizes.classes.iter().map(|class| class.in_use).collect();
                (in_use, classes)
            })
        };
        let before = whole(engine);
        assert!(before.0.iter().any(|(_, (in_use, _))| in_use[0] > 1_000));
        assert!(engine.threads.all().count() > 1);
        let status = in_child(engine, || {
            let is_same = whole(engine) == before;
            let is_one = engine.threads.all().count() == 1;
            // The block that is left goes on.
            sampled(engine, 70_000, 1 << 20);
            engine.events().release(address(70_000));
            [is_same, is_one, whole(engine) == before]
        });
        assert_eq!(status, 0, "{mode:?}");
        assert!(whole(engine) == before);
    }
}

/// Reports an allocation to an engine if the countdown has run out, as a hook does.
fn sampled(engine: &'static Engine, block: usize, size: usize) {
    let events = engine.events();
    if events.charge(size) {
        events.allocate(size, events.caller(), || address(block));
    }
}

/// Tests that one thread can serve two engines in turn. Each engine has the events that were
/// reported to it.
#[test]
fn a_thread_goes_from_one_engine_to_another() {
    let engines = [
        engine(PageSource::from_kernel()),
        engine(PageSource::from_kernel()),
    ];
    engines.into_iter().for_each(start);
    for block in 0..100 {
        for engine in engines {
            allocate(engine, block, 10);
        }
        free(engines[0], block);
    }
    assert_eq!(
        engines.map(sums),
        [[100, 1000, 0, 0], [100, 1000, 100, 1000]]
    );
}

/// Tests that a thread begins a new countdown when it changes to another engine. The rest of the
/// old countdown chooses no allocation for the new engine.
#[test]
fn a_countdown_is_of_one_engine() {
    let engines = [
        engine(PageSource::from_kernel()),
        engine(PageSource::from_kernel()),
    ];
    for engine in engines {
        assert!(engine.lifecycle().start(RecordingOptions {
            mode: RecordingMode::Sampled,
            period: 1 << 39,
            ..RecordingOptions::default()
        }));
    }
    for block in 0..50 {
        for engine in engines {
            // The countdown ran out, as far as the hook can tell.
            engine.events().rewind();
            let events = engine.events();
            events.allocate(16, events.caller(), || address(block));
        }
    }
    assert_eq!(engines.map(sums), [[0; 4]; 2]);
}

/// Tests that all tables are in the provided memory, and that blocks that do not fit are counted as
/// dropped.
#[test]
fn tables_lie_in_memory_that_was_handed_in() {
    /// Number of blocks. It is small in an interpreter (Miri), which takes a thousand times as
    /// long.
    const BLOCKS: usize = if cfg!(miri) { 700 } else { 20_000 };
    let (small, large) = (engine(region_of(400 << 10)), engine(region()));
    for engine in [small, large] {
        // There may be no kernel, so this is the part of a start that concerns tables.
        engine.ledger.access.prepare();
        assert!(engine.restart(RecordingMode::Exact, 1));
        for block in 0..BLOCKS {
            allocate(engine, block, 10);
        }
    }
    let lost = |engine: &Engine| engine.process.dropped.lost_events() as i64;
    let all = BLOCKS as i64;
    assert_eq!(
        (sums(large), lost(large)),
        ([all, 10 * all, all, 10 * all], 0)
    );
    assert!(lost(small) > 0);
    let [_, _, objects, _] = sums(small);
    assert!(objects <= all && objects + lost(small) >= all, "{objects}");
}
