//! A program that runs out of memory and continues: no dump may end it. Arguments: the way in which
//! dumps are made, and the path of the last one.

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use heapprof_alloc::{HeapProf, RecordingMode, RecordingOptions};

/// An allocator that never has more than `LIMIT` bytes in use. The field counts the bytes in use.
struct Limited(AtomicUsize);

static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);

// SAFETY: every block comes from the system allocator, or the call returns null.
unsafe impl GlobalAlloc for Limited {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let used = self.0.fetch_add(layout.size(), Relaxed) + layout.size();
        if used > LIMIT.load(Relaxed) {
            self.0.fetch_sub(layout.size(), Relaxed);
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        self.0.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: HeapProf<Limited> = HeapProf::new(Limited(AtomicUsize::new(0)));

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, road, last] = &arguments[..] else {
        panic!("short ROAD FILE");
    };
    let mut options = RecordingOptions {
        mode: RecordingMode::Exact,
        ..RecordingOptions::default()
    };
    options.output.pattern = b"short.pb.gz".to_vec();
    match road.as_str() {
        "peak" => options.triggers.peak = true,
        "growth" => options.triggers.growth = Some(1 << 20),
        "interval" => options.triggers.interval = Some(Duration::from_millis(10)),
        _ => {}
    }
    assert!(heapprof_alloc::start(options));
    let mut kept: Vec<Vec<u8>> = Vec::with_capacity(100_000);
    LIMIT.store(8 << 20, Relaxed);
    loop {
        let mut block = Vec::new();
        if block.try_reserve_exact(1000).is_err() {
            break;
        }
        kept.push(black_box(block));
    }
    let mut room = Vec::new();
    while room.try_reserve_exact(1).is_ok() && kept.len() < kept.capacity() {
        kept.push(std::mem::take(&mut room));
    }
    // From here on not a single byte is left.
    for _ in 0..100 {
        match road.as_str() {
            "dump" => drop(black_box(heapprof_alloc::dump_to("short.pb.gz"))),
            "profile" => drop(black_box(heapprof_alloc::profile())),
            "interval" => std::thread::sleep(Duration::from_millis(3)),
            _ => {}
        }
    }
    drop(kept);
    let dumped = heapprof_alloc::dump_to(last);
    // A panic reads debug information.
    LIMIT.store(usize::MAX, Relaxed);
    dumped.unwrap();
}
