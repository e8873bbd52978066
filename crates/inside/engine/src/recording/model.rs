//! Tests the ledger's protocol under many orders of its threads' steps, by means of shuttle.
//! Threads claim parts of the live table, other threads take the parts away, budgets are taken
//! back, a thread forks, a recording restarts.
//!
//! The tested code is the real code, except that `atomic.rs` and the waits of `sys.rs` are replaced
//! by shuttle's. Shuttle runs one thread at a time, and decides at each step which thread runs
//! next. The model's memory is sequentially consistent. The model does not test that the kernel's
//! barrier prevents reordering by the processor.

use heapprof_abi::{MappingGeneration, StackNumber};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use shuttle::thread;
use shuttle::{Config, Runner};

use heapprof_platform::pages::PageSource;
use heapprof_platform::sys;
use heapprof_platform::tls;

use super::fork;
use crate::engine::Engine;
use crate::ledger::access;
use crate::ledger::live::{LiveBlock, TableFull};
use crate::mode::RecordingMode;
use crate::tables::counters::EventWeight;
use crate::tables::filter::AddressFilter;
use crate::tables::stacks::NewStack;
use crate::thread::state::ThreadState;

/// Number of random orders that each test tries.
const RANDOM: usize = 1_000;
/// Number of orders with random priorities of threads that each test tries.
const PRIORITIES: usize = 1_000;
/// Number of times that the priorities change in one try.
const CHANGES: usize = 4;

/// Address of the first block. All blocks are in one part of the live table, so that threads
/// compete for it.
const BASE: usize = 0x7f00_0000_0000;
/// The only stack that allocates.
const STACK: StackNumber = StackNumber::from_u32(0);

/// Tries a model in random orders, and in orders with random priorities. Each try has a separate
/// world.
fn explore(model: fn(&'static World)) {
    let ground = Ground {
        filter: Box::leak(Box::new(AddressFilter::new())),
        region: sys::map(REGION).expose_provenance(),
    };
    assert_ne!(ground.region, 0);
    let model = move || ground.with_world(model);
    let mut config = Config::new();
    config.stack_size = 1 << 20;
    Runner::new(RandomScheduler::new(RANDOM), config.clone()).run(model);
    Runner::new(PctScheduler::new(CHANGES, PRIORITIES), config).run(model);
}

/// Number of bytes of the memory for all tables of a world.
const REGION: usize = 64 << 20;

/// The memory that the worlds of a test use one after another.
#[derive(Clone, Copy)]
struct Ground {
    filter: &'static AddressFilter,
    /// The address of the memory for tables.
    region: usize,
}

/// An engine, and the test's own data about it.
struct World {
    engine: Engine,
    /// Whether a thread is using the only part of the live table in which the test has blocks.
    is_in_part: AtomicBool,
    /// Number of bytes in use, by the test's own count.
    in_use: AtomicI64,
}

impl Ground {
    /// Runs `model` in a new world, with an exact recording.
    fn with_world(self, model: fn(&'static World)) {
        let region = std::ptr::with_exposed_provenance_mut(self.region);
        // SAFETY: the mapping is this test's own, and the last try is over.
        let pages = unsafe {
            sys::discard(region, REGION);
            PageSource::from_region(region, REGION)
        };
        let world = Box::into_raw(Box::new(World {
            engine: Engine::new(self.filter, pages),
            is_in_part: AtomicBool::new(false),
            in_use: AtomicI64::new(0),
        }));
        // SAFETY: it was made above, and is dropped when all threads of the model have ended.
        unsafe {
            let engine = &(*world).engine;
            engine.ledger.access.prepare();
            let stacks = &engine.ledger.stacks;
            let number = stacks.find_or_insert(
                &engine.process,
                77,
                MappingGeneration::FIRST,
                NewStack::new(&[1]),
            );
            assert_eq!(number, Some(STACK));
            assert!(engine.restart(RecordingMode::Exact, 1));
            model(&*world);
            drop(Box::from_raw(world));
        }
    }
}

impl World {
    /// Returns a state for this thread. The thread gives it back at its end.
    fn state(&'static self) -> &'static ThreadState {
        // SAFETY: there is memory for it, and the slot is this thread's own.
        unsafe {
            let state = &*self.engine.threads.acquire(&self.engine.process);
            (*tls::current()).state = std::ptr::from_ref(state).cast();
            state
        }
    }

    /// Makes an event of the current recording. Returns `None` if there is no recording, or if
    /// another recording begins meanwhile.
    fn event<R>(
        &self,
        state: &ThreadState,
        event: impl FnOnce(&mut access::OpenLedger<'_>) -> Option<R>,
    ) -> Option<R> {
        let process = &self.engine.process;
        // Both are read in this order, as an event reads them.
        let epoch = process.recorded.epoch();
        if !process.recorded.is_running() {
            return None;
        }
        state.epoch.set(epoch);
        let mut open = self.engine.ledger.access.open(process, state)?;
        event(&mut open)
    }

    /// Records an allocation. Returns whether it is in the ledger.
    fn allocate(&self, state: &ThreadState, block: usize, size: u64) -> bool {
        let counters = state
            .counters(STACK, &self.engine.process.pages)
            .expect("memory");
        let weight = EventWeight {
            objects: 1,
            bytes: size,
        };
        let made = self.event(state, |open| {
            if !open.count_allocation(counters, weight).is_counted() {
                return None;
            }
            // The bytes belong to the recording that counted them.
            self.in_use.fetch_add(size as i64, Ordering::SeqCst);
            let stack = STACK;
            let live = &self.engine.ledger.live;
            let inserted = live.insert::<true>(
                live.find_spot(BASE + block * 16),
                LiveBlock { stack, size },
                open,
            );
            if open.is_overtaken() {
                return None;
            }
            assert_eq!(inserted, Ok::<_, TableFull>(None));
            Some(())
        });
        made.is_some()
    }

    /// Records a free of a block that is in the ledger, unless a new recording has removed the
    /// block.
    fn free(&self, state: &ThreadState, block: usize) {
        let counters = state
            .counters(STACK, &self.engine.process.pages)
            .expect("memory");
        self.event(state, |open| {
            let live = &self.engine.ledger.live;
            let freed = live.remove(live.find_spot(BASE + block * 16), open)?;
            if open.is_overtaken() {
                return None;
            }
            let weight = EventWeight {
                objects: 1,
                bytes: freed.size,
            };
            open.count_free(counters, weight);
            self.in_use.fetch_sub(freed.size as i64, Ordering::SeqCst);
            Some(())
        });
    }

    /// Uses the part that has all blocks, as the live table does. Checks that no other thread uses
    /// it meanwhile.
    fn use_part(&self, state: &ThreadState) {
        self.event(state, |open| {
            self.engine.ledger.live.with_table(BASE, open, |_, _, _| {
                assert!(!self.is_in_part.swap(true, Ordering::SeqCst));
                thread::yield_now();
                self.is_in_part.store(false, Ordering::SeqCst);
            })
        });
    }

    /// Returns the number of bytes in use, by the counters of all threads.
    fn counted(&self) -> i64 {
        let of_each = |state: &ThreadState| {
            let counters = state.stack_sums(STACK).counters;
            counters.map_or(0, |counters| counters.in_use()[1])
        };
        self.engine.threads.all().map(of_each).sum()
    }

    /// Lets the heap fall far below its peak, so that threads count in budgets.
    fn relax(&'static self) {
        let state = self.state();
        assert!(self.allocate(state, 1_000, 1 << 20));
        self.free(state, 1_000);
        self.engine
            .ledger
            .access
            .heap
            .relax_if_low(&self.engine.process);
        state.release();
    }
}

/// Starts a thread for each element of `work`, and waits for the threads.
fn run(world: &'static World, work: Vec<Box<dyn FnOnce(&'static World) + Send>>) {
    let threads: Vec<_> = work
        .into_iter()
        .map(|work| thread::spawn(move || work(world)))
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

/// Wraps the work of a thread, so that it gets a state.
fn with_state(
    work: impl FnOnce(&'static World, &'static ThreadState) + Send + 'static,
) -> Box<dyn FnOnce(&'static World) + Send> {
    Box::new(move |world| {
        let state = world.state();
        work(world, state);
        state.release();
    })
}

/// Tests that no two threads use a part at the same time: threads claim it and use it, while
/// another thread takes it from its owner.
#[test]
fn a_part_has_one_user_at_a_time() {
    explore(|world| {
        let user = || {
            with_state(|world, state| {
                (0..2).for_each(|_| world.use_part(state));
            })
        };
        let taker = Box::new(|world: &'static World| {
            let engine = &world.engine;
            let changing = engine.ledger.access.lock_changes(&engine.process);
            let owners = engine.ledger.live.owners();
            assert!(access::share(&engine.threads, owners.clone(), &changing));
            assert!(owners.into_iter().all(|owner| owner.is_shared()));
        });
        run(world, vec![user(), user(), taker]);
    });
}

/// Tests that the size in use is exact after budgets are taken back, whatever threads count
/// meanwhile.
#[test]
fn what_is_drained_is_exact() {
    explore(|world| {
        world.relax();
        let user = |first: usize| {
            with_state(move |world, state| {
                for block in first..first + 2 {
                    assert!(world.allocate(state, block, 3_000));
                }
                world.free(state, first);
            })
        };
        let drainer = Box::new(|world: &'static World| {
            let engine = &world.engine;
            let shared = &engine.ledger.access;
            {
                let changing = shared.lock_changes(&engine.process);
                shared.collect_budgets(&engine.threads, &changing);
            }
            shared.run_at_rest(&engine.process, &engine.threads, || {
                assert_eq!(shared.heap.in_use(), world.counted());
            });
        });
        run(world, vec![user(0), user(10), drainer]);
        let heap = &world.engine.ledger.access.heap;
        assert_eq!((heap.in_use(), heap.peak_bytes()), (6_000, 1 << 20));
        assert_eq!(world.counted(), 6_000);
    });
}

/// Tests that the counted peak is the true one: events near the peak make all threads count event
/// by event.
#[test]
fn a_peak_is_never_missed() {
    explore(|world| {
        world.relax();
        let user = |first: usize| {
            with_state(move |world, state| {
                assert!(world.allocate(state, first, 600 << 10));
                world.free(state, first);
                assert!(world.allocate(state, first + 1, 600 << 10));
            })
        };
        run(world, vec![user(0), user(10)]);
        let heap = &world.engine.ledger.access.heap;
        // Both second blocks are in use at the end, and there never were more than two.
        assert_eq!(heap.peak_bytes(), 1_200 << 10);
        assert_eq!(world.counted(), 1_200 << 10);
    });
}

/// Tests that a copy of the memory is whole: when a thread has taken all locks for a fork, no
/// thread is in the middle of an event.
#[test]
fn a_fork_copies_what_is_whole() {
    explore(|world| {
        world.relax();
        let user = |first: usize| {
            with_state(move |world, state| {
                assert!(world.allocate(state, first, 100));
                world.use_part(state);
                world.free(state, first);
            })
        };
        let forker = Box::new(|world: &'static World| {
            let engine = &world.engine;
            let held = fork::acquire(engine);
            assert_eq!(held.count_ones() as usize, engine.locks().len());
            let process = &engine.process;
            let (whole, counting) = engine.ledger.acquire_for_fork(process, &engine.threads);
            assert!(whole && counting);
            assert!(!world.is_in_part.load(Ordering::SeqCst));
            assert!(engine.ledger.live.owners().all(|owner| owner.is_shared()));
            fork::release(engine, held, counting);
        });
        run(world, vec![user(0), user(10), forker]);
        assert_eq!((world.counted(), world.engine.ledger.live.len()), (0, 0));
        assert_eq!(world.engine.ledger.access.heap.in_use(), 0);
    });
}

/// Tests that a new recording has all of its own events, and none of the earlier recording.
#[test]
fn a_new_recording_has_its_own_events_only() {
    explore(|world| {
        let user = |first: usize| {
            with_state(move |world, state| {
                for block in first..first + 2 {
                    world.allocate(state, block, 100);
                }
                world.free(state, first);
            })
        };
        let starter = Box::new(|world: &'static World| {
            assert!(world.engine.restart(RecordingMode::Exact, 1));
        });
        run(world, vec![user(0), user(10), starter]);
        let ledger = &world.engine.ledger;
        let in_use = world.counted();
        assert_eq!(in_use, ledger.live.len() as i64 * 100);
        assert_eq!(ledger.access.heap.in_use(), in_use);
    });
}
