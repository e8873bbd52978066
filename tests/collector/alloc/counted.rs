//! Counts what its functions allocate, records itself with heapprof-alloc, and writes a profile in
//! the way that its first argument names.
//!
//! Usage: `alloc_counted ROAD OUTPUT`. It is built as an example of heapprof-alloc, with
//! `--cfg bump` over its own allocator.
#![allow(clippy::vec_box)] // Each block is counted for itself.
#![allow(missing_docs, unexpected_cfgs)]
#![cfg_attr(not(bump), allow(dead_code))]
#![allow(
    clippy::disallowed_methods,
    reason = "it writes into a folder of its own"
)]

use std::alloc::{GlobalAlloc, Layout};
use std::hint::black_box;
use std::io::Write;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering::Relaxed};

use heapprof_alloc::{DumpOutput, HeapProf, RecordingMode, RecordingOptions};

#[cfg(not(bump))]
#[global_allocator]
static ALLOCATOR: HeapProf = HeapProf::system();

#[cfg(bump)]
#[global_allocator]
static ALLOCATOR: HeapProf<Bump> = HeapProf::new(Bump(AtomicUsize::new(0)));

/// An allocator that never releases memory and has no realloc or alloc_zeroed of its own.
struct Bump(AtomicUsize);

const ROOM: usize = 1 << 30;

// SAFETY: the blocks are pieces of a mapping, and each piece is returned only once.
unsafe impl GlobalAlloc for Bump {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if self.0.load(Relaxed) == 0 {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            // SAFETY: this makes a new mapping. The first allocation happens before other threads
            // exist.
            let start = unsafe { libc::mmap(std::ptr::null_mut(), ROOM, protection, flags, -1, 0) };
            self.0.store(start as usize, Relaxed);
        }
        let size = layout.size() + layout.align() + 16;
        let at = self.0.fetch_add(size, Relaxed);
        at.next_multiple_of(layout.align().max(16)) as *mut u8
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

struct Tally {
    name: &'static str,
    /// Objects and bytes allocated, then objects and bytes freed.
    counts: [AtomicI64; 4],
}

impl Tally {
    const fn new(name: &'static str) -> Self {
        Self {
            name,
            counts: [const { AtomicI64::new(0) }; 4],
        }
    }

    fn allocated(&self, bytes: usize) {
        self.counts[0].fetch_add(1, Relaxed);
        self.counts[1].fetch_add(bytes as i64, Relaxed);
    }

    fn freed(&self, bytes: usize) {
        self.counts[2].fetch_add(1, Relaxed);
        self.counts[3].fetch_add(bytes as i64, Relaxed);
    }
}

static BOXES: Tally = Tally::new("alloc_counted::boxes");
static VECTORS: Tally = Tally::new("alloc_counted::vectors");
static ZEROED: Tally = Tally::new("alloc_counted::zeroed");
static ALIGNED: Tally = Tally::new("alloc_counted::aligned");
static IN_THREAD: Tally = Tally::new("alloc_counted::in_thread");
static UNRECORDED: Tally = Tally::new("alloc_counted::unrecorded");
static SAMPLED: Tally = Tally::new("alloc_counted::many");
static ALL: [&Tally; 6] = [&BOXES, &VECTORS, &ZEROED, &ALIGNED, &IN_THREAD, &UNRECORDED];

#[inline(never)]
fn boxes(n: usize) -> usize {
    for i in 0..n {
        let block = black_box(Box::new([i as u8; 24]));
        BOXES.allocated(24);
        if i % 3 == 0 {
            std::mem::forget(block);
        } else {
            drop(block);
            BOXES.freed(24);
        }
    }
    n
}

/// Grows a vector. Each growth counts as a free and a new allocation.
#[inline(never)]
fn vectors(n: usize) -> Vec<u64> {
    let mut all: Vec<u64> = Vec::with_capacity(4);
    VECTORS.allocated(4 * 8);
    for _ in 0..n {
        let before = all.capacity();
        all.resize(before, 1);
        all.reserve_exact(4);
        VECTORS.freed(before * 8);
        VECTORS.allocated(all.capacity() * 8);
    }
    black_box(all)
}

#[inline(never)]
fn zeroed(bytes: usize) -> Vec<u8> {
    let all = black_box(vec![0; bytes]);
    assert!(all.iter().all(|&byte| byte == 0));
    ZEROED.allocated(bytes);
    all
}

#[inline(never)]
fn aligned(n: usize) {
    let layout = Layout::from_size_align(1000, 4096).unwrap();
    for _ in 0..n {
        // SAFETY: the layout has a size.
        let block = black_box(unsafe { std::alloc::alloc(layout) });
        assert_eq!(block as usize % 4096, 0);
        ALIGNED.allocated(1000);
    }
}

#[inline(never)]
fn in_thread(n: usize) -> Vec<Box<[u8; 40]>> {
    let mut all = Vec::with_capacity(n);
    IN_THREAD.allocated(n * 8);
    for i in 0..n {
        all.push(Box::new([i as u8; 40]));
        IN_THREAD.allocated(40);
    }
    black_box(all)
}

#[inline(never)]
fn unrecorded(n: usize) -> Vec<Box<[u8; 56]>> {
    black_box((0..n).map(|i| Box::new([i as u8; 56])).collect())
}

#[inline(never)]
fn many(n: usize) {
    for i in 0..n {
        drop(black_box(Box::new([i as u8; 1000])));
        SAMPLED.allocated(1000);
    }
}

fn work() {
    // The first event of this thread in this recording grows a block.
    std::mem::forget(vectors(50));
    boxes(3000);
    std::mem::forget(zeroed(100_000));
    aligned(20);
    let threads = (0..4).map(|_| std::thread::spawn(|| in_thread(1000)));
    let threads: Vec<_> = threads.collect();
    for (i, thread) in threads.into_iter().enumerate() {
        let blocks = thread.join().unwrap();
        if i % 2 == 0 {
            IN_THREAD.freed(blocks.capacity() * 8);
            blocks.iter().for_each(|block| IN_THREAD.freed(block.len()));
        } else {
            std::mem::forget(blocks);
        }
    }
}

fn expect(child: bool) {
    let Some(path) = std::env::var_os("HEAPPROF_TEST_EXPECT") else {
        return;
    };
    let mut path = path.into_string().unwrap();
    if child {
        path = format!("{path}.{}", std::process::id());
    }
    let mut file = std::fs::File::create(path).unwrap();
    for tally in ALL {
        let [objects, bytes, freed, freed_bytes] =
            [0, 1, 2, 3].map(|i| tally.counts[i].load(Relaxed));
        let (name, objects_left, bytes_left) = (tally.name, objects - freed, bytes - freed_bytes);
        writeln!(
            file,
            "function {name} alloc_objects {objects} alloc_space {bytes} inuse_objects \
             {objects_left} inuse_space {bytes_left}"
        )
        .unwrap();
    }
    // The estimate may be off by five standard deviations of 512 KiB samples.
    let [objects, bytes] = [0, 1].map(|i| SAMPLED.counts[i].load(Relaxed));
    let off = (bytes as f64 * 524_288.0).sqrt() * 5.0;
    writeln!(
        file,
        "sampled {} {objects} {} {bytes} {}",
        SAMPLED.name,
        off as i64 / 1000,
        off as i64
    )
    .unwrap();
}

fn options(mode: RecordingMode, output: &str) -> RecordingOptions {
    let output = DumpOutput {
        pattern: output.into(),
        ..DumpOutput::default()
    };
    RecordingOptions {
        mode,
        output,
        ..RecordingOptions::default()
    }
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let (road, output) = (words[1].as_str(), words[2].as_str());
    assert!(heapprof_alloc::profile().is_empty() && heapprof_alloc::dump().is_err());
    let early = unrecorded(100);
    // The result of this recording is discarded. Its effect on the countdowns of samples does not
    // matter.
    heapprof_alloc::start(options(RecordingMode::Sampled, ""));
    let forgotten = unrecorded(20_000);
    heapprof_alloc::stop();
    assert!(!heapprof_alloc::is_running());
    let stopped = unrecorded(100);
    match road {
        "sampled" => assert!(heapprof_alloc::start(options(
            RecordingMode::Sampled,
            output
        ))),
        "environment" => assert!(heapprof_alloc::start_from_environment().unwrap()),
        _ => assert!(heapprof_alloc::start(options(RecordingMode::Exact, output))),
    }
    assert!(heapprof_alloc::is_running());
    drop((early, forgotten, stopped));
    work();
    match road {
        "sampled" => {
            many(200_000);
            heapprof_alloc::dump_to(output).unwrap();
        }
        "demand" => {
            heapprof_alloc::dump_to(output).unwrap();
        }
        "stop" => {
            heapprof_alloc::stop();
            drop(unrecorded(100));
            heapprof_alloc::dump_to(output).unwrap();
        }
        "bytes" => std::fs::write(output, heapprof_alloc::profile()).unwrap(),
        "environment" => {
            let path = heapprof_alloc::dump().unwrap();
            std::fs::rename(path, output).unwrap();
        }
        "exit" => heapprof_alloc::dump_at_exit(),
        "fork" => {
            heapprof_alloc::dump_at_exit();
            // SAFETY: the threads are joined.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // Inherited blocks count as the child's own.
                for tally in ALL {
                    for (allocated, freed) in [(0, 2), (1, 3)] {
                        tally.counts[allocated]
                            .fetch_sub(tally.counts[freed].swap(0, Relaxed), Relaxed);
                    }
                }
                boxes(300);
                expect(true);
                return;
            }
            let mut status = 1;
            // SAFETY: `status` is valid to write.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            assert_eq!(status, 0);
        }
        _ => panic!("what is {road}?"),
    }
    expect(false);
}
