//! A program whose main returns while another thread forks again and again. It must end.

#![allow(
    clippy::disallowed_methods,
    reason = "the end of the process is what it is about"
)]

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use heapprof_alloc::{HeapProf, RecordingMode, RecordingOptions};

#[global_allocator]
static ALLOCATOR: HeapProf = HeapProf::system();

static BEGUN: AtomicBool = AtomicBool::new(false);
const ROUNDS: u32 = 40;
const CODE: i32 = 3;

/// Waits for a child and returns its wait status.
fn wait(child: i32) -> i32 {
    let mut status = 0;
    // SAFETY: `child` is a child of this process, and `status` is valid to write.
    while unsafe { libc::waitpid(child, &raw mut status, 0) } != child {}
    status
}

fn fork_on() {
    loop {
        // SAFETY: the child calls only the kernel.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: this only ends the child.
            unsafe { libc::syscall(libc::SYS_exit_group, 0) };
        }
        BEGUN.store(true, SeqCst);
        wait(child);
    }
}

fn main() {
    let mode = RecordingMode::Exact;
    assert!(heapprof_alloc::start(RecordingOptions {
        mode,
        ..RecordingOptions::default()
    }));
    // With this much memory a fork takes a while.
    let large = std::hint::black_box(vec![1u8; 64 << 20]);
    for round in 0..ROUNDS {
        // SAFETY: this process has one thread.
        let child = unsafe { libc::fork() };
        if child == 0 {
            std::thread::spawn(fork_on);
            while !BEGUN.load(SeqCst) {
                std::hint::spin_loop();
            }
            std::thread::sleep(Duration::from_micros(u64::from(round % 10) * 300));
            // This does what main's return does, but with an exit code.
            std::process::exit(CODE);
        }
        assert_eq!(libc::WEXITSTATUS(wait(child)), CODE);
    }
    drop(large);
}
