//! Allocates in eight threads through a global allocator, and prints what the function `work` asked
//! for, as work.c does.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

struct CountingAllocator;
static TOTALS: [AtomicI64; 4] = [const { AtomicI64::new(0) }; 4];
thread_local! { static IS_WORKING: Cell<bool> = const { Cell::new(false) }; }

fn count(changes: [i64; 4]) {
    if IS_WORKING.get() {
        for (total, change) in TOTALS.iter().zip(changes) {
            total.fetch_add(change, Relaxed);
        }
    }
}

unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let size = layout.size() as i64;
        count([1, size, 1, size]);
        unsafe { INNER.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let size = layout.size() as i64;
        count([1, size, 1, size]);
        unsafe { INNER.alloc_zeroed(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count([0, 0, -1, -(layout.size() as i64)]);
        unsafe { INNER.dealloc(at, layout) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count([1, size as i64, 0, size as i64 - layout.size() as i64]);
        unsafe { INNER.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[inline(never)]
fn work() -> Vec<Vec<u8>> {
    IS_WORKING.set(true);
    let mut all = Vec::new();
    for i in 0..20_000usize {
        let mut kept = Vec::new();
        for k in 0..(i % 50) {
            kept.push(k as u8);
        }
        let zeros = vec![0u8; i % 4000];
        let text = format!("{i} {}", "x".repeat(i % 20));
        if i % 3 == 0 && !text.is_empty() && zeros.len() < 4000 {
            all.push(kept);
        }
    }
    IS_WORKING.set(false);
    all
}

fn main() {
    let threads: Vec<_> = (0..8).map(|_| std::thread::spawn(work)).collect();
    let kept: Vec<_> = threads.into_iter().map(|one| one.join().unwrap()).collect();
    let totals: Vec<String> = TOTALS.iter().map(|one| one.load(Relaxed).to_string()).collect();
    println!("{}", totals.join(" "));
    std::mem::forget(kept);
    std::process::exit(3);
}
