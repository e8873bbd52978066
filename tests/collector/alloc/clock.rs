//! A program with its own `clock_gettime`, which takes a lock and allocates. Prints the number of
//! calls of it while the program allocated. Argument: path of the profile.

use std::ffi::c_int;
use std::hint::black_box;
use std::io::Write;
use std::sync::Mutex;

use heapprof_alloc::{HeapProf, RecordingMode, RecordingOptions};

#[global_allocator]
static ALLOCATOR: HeapProf = HeapProf::system();

static CALLS: Mutex<u32> = Mutex::new(0);

/// Replaces libc's function of this name.
///
/// # Safety
/// `time` is valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(_: libc::clockid_t, time: *mut libc::timespec) -> c_int {
    // A thread that calls this during one of its own events or dumps waits forever.
    let mut calls = CALLS.lock().unwrap();
    *calls += 1;
    drop(black_box(vec![0u8; 100]));
    // SAFETY: the caller's contract.
    unsafe {
        (*time).tv_sec = 1;
        (*time).tv_nsec = 0;
    }
    0
}

fn main() {
    let path = std::env::args().nth(1).expect("clock FILE");
    let options = RecordingOptions {
        mode: RecordingMode::Exact,
        ..RecordingOptions::default()
    };
    assert!(heapprof_alloc::start(options));
    let held = CALLS.lock().unwrap();
    let kept: Vec<Vec<u8>> = (0..1000).map(|_| black_box(vec![0; 1000])).collect();
    heapprof_alloc::dump_to(&path).unwrap();
    let calls = *held;
    drop((held, kept));
    let text = format!("{calls}\n");
    std::io::stdout().write_all(text.as_bytes()).unwrap();
}
