//! Compares the live table with a map, also while parts of the table change their owner.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;

use heapprof_abi::StackNumber;
use heapprof_platform::pages::regions::region;

use super::*;
use crate::ledger::access::{self, LedgerAccess};
use crate::thread::state::{ThreadState, ThreadStates};

/// Number of steps of a random walk. Under an interpreter a step takes a thousand times as long.
const STEPS: u64 = if cfg!(miri) { 1_500 } else { 300_000 };

/// A live table, with the state that is needed to open the ledger.
struct Ledger {
    process: EngineProcess,
    threads: ThreadStates,
    shared: LedgerAccess,
    live: LiveTable,
}

impl Ledger {
    fn leaked() -> &'static Self {
        let ledger = Self {
            process: EngineProcess::new(region()),
            threads: ThreadStates::new(),
            shared: LedgerAccess::new(),
            live: LiveTable::new(),
        };
        ledger.shared.prepare();
        Box::leak(Box::new(ledger))
    }

    fn state(&'static self) -> &'static ThreadState {
        // SAFETY: a state of this thread's own, and there is memory for it.
        unsafe { &*self.threads.acquire(&self.process) }
    }

    fn put(
        &self,
        state: &ThreadState,
        address: usize,
        block: LiveBlock,
    ) -> Result<Option<LiveBlock>, TableFull> {
        let mut open = self.shared.open(&self.process, state).unwrap();
        self.live
            .insert::<true>(self.live.find_spot(address), block, &mut open)
    }

    fn take(&self, state: &ThreadState, address: usize) -> Option<LiveBlock> {
        let mut open = self.shared.open(&self.process, state).unwrap();
        self.live.remove(self.live.find_spot(address), &mut open)
    }
}

/// Allocates and frees blocks at random `addresses`, and compares each step with a map.
fn walk(ledger: &'static Ledger, addresses: impl Fn(u64) -> usize, seed: u64, steps: u64) {
    let (mut model, mut x) = (HashMap::new(), 88_172_645_463_325_252u64 ^ seed << 7);
    let state = ledger.state();
    for step in 0..steps {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        let address = addresses(x);
        let block = LiveBlock {
            stack: StackNumber::from_u32(step as u32),
            size: if x & 64 == 0 { 1 << 44 } else { x % 900 },
        };
        if x >> 40 & 1 == 0 {
            assert_eq!(
                ledger.put(state, address, block),
                Ok(model.insert(address, block))
            );
        } else {
            assert_eq!(ledger.take(state, address), model.remove(&address));
        }
    }
    for (address, block) in model {
        assert_eq!(ledger.take(state, address), Some(block));
    }
    state.release();
}

#[test]
fn behaves_as_a_map_does() {
    let ledger = Ledger::leaked();
    walk(
        ledger,
        |x| 0x7f00_0000_0000 + (x % 9_000) as usize * 16,
        0,
        STEPS,
    );
    assert_eq!(ledger.live.len(), 0);
    let huge = LiveBlock {
        stack: StackNumber::from_u32(1),
        size: 1 << 60,
    };
    assert_eq!(ledger.put(ledger.state(), 4096, huge), Err(TableFull));
}

/// Tests blocks in shadows, and blocks that have no word in a shadow: very large ones, and those at
/// odd addresses.
#[test]
fn behaves_as_a_map_does_wherever_blocks_begin() {
    let ledger = Ledger::leaked();
    let addresses = |x: u64| 0x7f00_0000_0000 + (x % 20_000) as usize * 8;
    walk(ledger, addresses, 3, STEPS);
    assert_eq!(ledger.live.len(), 0);
    assert!(cfg!(miri) || ledger.live.shadows.count.load(Ordering::Relaxed) > 0);
    // When all blocks are forgotten at once, none of them is left.
    let state = ledger.state();
    let mut model = HashMap::new();
    for i in 0..2_000 {
        let size = if i % 7 == 0 { 1 << 40 } else { 40 };
        let block = LiveBlock {
            stack: StackNumber::from_u32(i),
            size,
        };
        let address = addresses(u64::from(i) * 9);
        assert_eq!(ledger.put(state, address, block), Ok(None));
        model.insert(address, block);
    }
    assert_eq!(ledger.live.len(), model.len());
    {
        let changing = ledger.shared.lock_changes(&ledger.process);
        access::share(&ledger.threads, ledger.live.owners(), &changing);
    }
    assert!(ledger.live.clear(&ledger.process));
    assert_eq!(ledger.live.len(), 0);
    for address in model.into_keys() {
        assert_eq!(ledger.take(state, address), None);
    }
    walk(ledger, addresses, 4, STEPS);
    assert_eq!(ledger.live.len(), 0);
}

/// Tests that sampled blocks get no shadows, because they are far apart.
#[test]
fn sampled_blocks_have_no_shadows() {
    let ledger = Ledger::leaked();
    let state = ledger.state();
    for i in 0..500 {
        let block = LiveBlock {
            stack: StackNumber::from_u32(1),
            size: 16,
        };
        let mut open = ledger.shared.open(&ledger.process, state).unwrap();
        let done = ledger.live.insert::<false>(
            ledger.live.find_spot(0x10_0000 + i * 16),
            block,
            &mut open,
        );
        assert_eq!(done, Ok(None));
    }
    assert_eq!(ledger.live.shadows.count.load(Ordering::Relaxed), 0);
    let taken = (0..500).filter(|i| ledger.take(state, 0x10_0000 + i * 16).is_some());
    assert_eq!(taken.count(), 500);
}

/// Tests threads that use separate addresses in the same parts, while the parts change their owner.
#[test]
fn parts_change_hands() {
    let ledger = Ledger::leaked();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4usize)
            .map(|i| {
                let addresses = move |x: u64| {
                    // This is mostly a region that no other thread has blocks in.
                    let region = if x >> 50 & 15 == 0 { 0 } else { 1 + i };
                    0x7f00_0000_0000 + (region << 16) + (x % 500) as usize * 128 + i * 32
                };
                scope.spawn(move || walk(ledger, addresses, i as u64, STEPS))
            })
            .collect();
        let done = &done;
        scope.spawn(move || {
            while !done.load(Ordering::Relaxed) {
                {
                    let changing = ledger.shared.lock_changes(&ledger.process);
                    access::share(&ledger.threads, ledger.live.owners(), &changing);
                }
                ledger.live.acquire_all(&ledger.process);
                ledger.live.disown();
                ledger.live.release_all();
                std::thread::sleep(std::time::Duration::from_micros(50));
            }
        });
        workers.into_iter().for_each(|w| w.join().unwrap());
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(ledger.live.len(), 0);
}
