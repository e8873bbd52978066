//! All eight values of 50 sites, the peak among them, equal a brute-force replay of the program's
//! events.
//!
//! programs/oracle_peak.c generates its events from a seed and logs nothing. The same generator
//! here repeats them.

use std::path::Path;

use crate::programs::build;
use crate::sampling::{functions, sums};
use crate::stacks::read;
use heapprof_tests::built::have;
use heapprof_tests::expectations::Sums;
use heapprof_tests::harness::command;

const SITES: usize = 50;
const SLOTS: u64 = 300;
const STEPS: u64 = 4000;
/// Number of following events of its thread within which the free of a temporary allocation comes.
const TEMPORARY: u64 = 8;

const TYPES: [&str; 8] = [
    "alloc_objects",
    "alloc_space",
    "inuse_objects",
    "inuse_space",
    "peak_objects",
    "peak_space",
    "temporary_objects",
    "temporary_space",
];

/// An allocation or a free. A reallocation is both.
enum Event {
    Allocated {
        site: usize,
        size: i64,
    },
    /// A free of the block that the event with this number allocated.
    Freed(usize),
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) % n
    }

    fn size(&mut self) -> u64 {
        match self.below(8) {
            0 => 0,
            1 => 64,
            2 => 1 + self.below(100_000),
            _ => 1 + self.below(2000),
        }
    }
}

/// Returns the events that the program generates from a seed.
fn events(seed: u64) -> Vec<Event> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15u64.wrapping_mul(1 + seed));
    let mut slots = vec![None; SLOTS as usize];
    let mut events = Vec::new();
    for step in 0..STEPS {
        let slot = random.below(SLOTS) as usize;
        let what = random.below(16);
        let rises = (step / 500) % 2 == 0;
        let old: Option<usize> = slots[slot];
        if let Some(old) = old
            && what < if rises { 4 } else { 11 }
        {
            events.push(Event::Freed(old));
            slots[slot] = None;
            continue;
        }
        let site = random.below(SITES as u64) as usize;
        let size = random.size();
        // The numbers mean malloc, calloc, realloc, memalign, posix_memalign, aligned_alloc and
        // reallocarray.
        let how = match old {
            Some(_) if what % 2 == 1 => 2,
            Some(_) => 6,
            None => what % 7,
        };
        let size = size as i64 * [1, 3, 1, 1, 1, 1, 2][how as usize];
        slots[slot] = None;
        if let Some(old) = old {
            events.push(Event::Freed(old));
            if size == 0 {
                continue;
            }
        }
        slots[slot] = Some(events.len());
        events.push(Event::Allocated { site, size });
    }
    events
}

/// Computes the values of each site by brute force: the heap is summed up after every event.
fn replay(events: &[Event]) -> [[i64; 8]; SITES] {
    let mut values = [[0; 8]; SITES];
    let mut live = std::collections::BTreeMap::new();
    let mut highest = 0;
    // Until the first free after the peak, only empty blocks can be allocated at the height of the
    // peak. They belong to the peak.
    let mut at_peak = false;
    for (number, event) in events.iter().enumerate() {
        match *event {
            Event::Allocated { site, size } => {
                live.insert(number, (site, size));
                values[site][0] += 1;
                values[site][1] += size;
                let total: i64 = live.values().map(|(_, size)| size).sum();
                at_peak |= total > highest;
                highest = highest.max(total);
            }
            Event::Freed(allocated) => {
                let (site, size) = live.remove(&allocated).unwrap();
                at_peak = false;
                if (number - allocated) as u64 <= TEMPORARY {
                    values[site][6] += 1;
                    values[site][7] += size;
                }
            }
        }
        let mut in_use = [[0; 2]; SITES];
        for &(site, size) in live.values() {
            in_use[site][0] += 1;
            in_use[site][1] += size;
        }
        for (values, in_use) in values.iter_mut().zip(&in_use) {
            values[2..4].copy_from_slice(in_use);
            if at_peak {
                values[4..6].copy_from_slice(in_use);
            }
        }
    }
    values
}

fn compare(binary: &Path, seed: u64) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let output = command(folder.path())
        .args(["record", "--exact", "--no-symbolize", "-o", "out.pb.gz"])
        .arg("--")
        .arg(binary)
        .arg(seed.to_string())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let profile = folder.path().join("out.pb.gz");
    let sums = sums(&profile, binary, &functions(binary));
    let expected = replay(&events(seed));
    for (site, values) in expected.iter().enumerate() {
        for (at, (kind, expected)) in TYPES.iter().zip(values).enumerate() {
            let found = sums.get(&format!("f{site}")).map_or(0, |sums| sums[at]);
            if found != *expected {
                return Err(format!("f{site}: {kind} is {found}, not {expected}"));
            }
        }
    }
    // The program has no other blocks, so this is also the height of the peak.
    let peak: i64 = expected.iter().map(|values| values[5]).sum();
    let total = Sums::from_profile(&read(&profile));
    match total.total("peak_space") {
        found if found == peak => Ok(()),
        found => Err(format!("the peak is {found}, not {peak}")),
    }
}

#[test]
fn all_values_equal_a_replay() {
    let Some(binaries) = build("oracle_peak.c") else {
        return;
    };
    let failures: Vec<String> = (0..30)
        .filter_map(|seed| {
            let failed = compare(&binaries[0], seed).err();
            failed.map(|what| format!("seed {seed}: {what}"))
        })
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Each thread keeps a block, and all rise and fall together, on many stacks, during dumps. The
/// heap at the end is at most the peak, and the peak is at least what the program itself measured.
#[test]
fn threads_that_go_on_during_a_dump() {
    if !have(&["gcc"]) {
        return;
    }
    let source = r#"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static atomic_long live, most;
__attribute__((noinline)) static void fill(unsigned depth, unsigned path);
__attribute__((noinline)) static void odd(unsigned depth, unsigned path) { fill(depth, path); __asm__(""); }
__attribute__((noinline)) static void even(unsigned depth, unsigned path) { fill(depth, path); __asm__(""); }
static void fill(unsigned depth, unsigned path) {
    if (depth == 0) free(realloc(malloc(8), 16));
    else if (path & 1) odd(depth - 1, path >> 1);
    else even(depth - 1, path >> 1);
    __asm__("");
}
static void *work(void *unused) {
    for (unsigned i = 0;; i++) {
        long size = 50000 + i % 7 * 10000;
        void *volatile block = malloc(size);
        long now = atomic_fetch_add(&live, size) + size;
        long before = atomic_load(&most);
        while (now > before && !atomic_compare_exchange_weak(&most, &before, now)) {}
        atomic_fetch_sub(&live, size);
        free(block);
    }
}
int main(void) {
    for (unsigned path = 0; path < 4096; path++) fill(12, path);
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        pthread_create(&thread, 0, work, 0);
    }
    usleep(100000);
    printf("%ld\n", atomic_load(&most));
    fflush(stdout);
}
"#;
    let built = heapprof_tests::built::build(source, "gcc -O1 -pthread");
    for round in 0..8 {
        let output = command(built.folder.path())
            .args([
                "record",
                "--exact",
                "--no-symbolize",
                "-o",
                "out.pb.gz",
                "./program",
            ])
            .output()
            .unwrap();
        let most = String::from_utf8_lossy(&output.stdout);
        let most: i64 = most.trim().parse().unwrap();
        let total = Sums::from_profile(&read(&built.path("out.pb.gz")));
        let (in_use, peak) = (total.total("inuse_space"), total.total("peak_space"));
        assert!(
            in_use <= peak,
            "round {round}: {in_use} in use, peak {peak}"
        );
        assert!(
            most <= peak,
            "round {round}: {most} were in use, peak {peak}"
        );
    }
}
