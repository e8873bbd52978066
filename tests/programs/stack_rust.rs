//! scenario: stacks: a Rust program: collections, closures, panics that are caught, threads
// build: rustc -O -g
use std::alloc::{Layout, alloc, dealloc};
use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind};

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn rust_block(size: usize) -> *mut u8 {
    // SAFETY: the size is not zero, and the alignment is a power of two.
    black_box(unsafe { alloc(Layout::from_size_align(size, 8).unwrap()) })
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn rust_vector(count: usize) -> *mut Vec<u64> {
    let mut vector = Vec::with_capacity(count);
    vector.push(1u64);
    black_box(Box::into_raw(Box::new(vector)))
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn rust_before_panic(size: usize) -> *mut u8 {
    black_box(rust_block(size))
}

#[inline(never)]
fn deep(depth: usize, work: &dyn Fn()) {
    if depth == 0 {
        work();
    } else {
        deep(black_box(depth) - 1, work);
    }
    black_box(());
}

fn main() {
    std::panic::set_hook(Box::new(|_| {}));
    for round in 0..300 {
        let caught = catch_unwind(AssertUnwindSafe(|| {
            deep(round % 40, &|| {
                rust_before_panic(48);
                panic!("on purpose");
            });
        }));
        assert!(caught.is_err());
        let block = rust_block(32);
        // SAFETY: the block was allocated with this layout.
        unsafe { dealloc(block, Layout::from_size_align(32, 8).unwrap()) };
        rust_vector(10);
    }
    let threads: Vec<_> = (0..4)
        .map(|_| {
            std::thread::spawn(|| {
                for _ in 0..100 {
                    rust_block(16);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let lines = "function rust_before_panic alloc_objects 300 alloc_space 14400 inuse_objects 300 inuse_space 14400
function rust_block alloc_objects 1000 alloc_space 30400 inuse_objects 700 inuse_space 20800
function rust_vector alloc_objects 600 alloc_space 31200 inuse_objects 600 inuse_space 31200
";
    if let Some(file) = std::env::var_os("HEAPPROF_TEST_EXPECT") {
        std::fs::write(file, lines).unwrap();
    }
    println!("rust");
}
