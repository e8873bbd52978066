//! The hostile programs, built for musl by musl-gcc: the same output, the same exit code, and
//! correct numbers.

use std::path::PathBuf;

use heapprof_tests::built::is_here;
use heapprof_tests::needs;

use super::{
    ACCOUNTING, Case, DEADLOCK, LIFECYCLE, LINKAGE, PROCESS, RECORD_TIMEOUT, STACKS, compile_with,
    run_built,
};

/// Programs that need what musl lacks, with what that is.
const GLIBC_ONLY: &[(&str, &str)] = &[
    ("accounting_aligned.c", "pvalloc"),
    ("accounting_realloc.c", "a realloc to 0 that frees"),
    ("accounting_single.c", "a strdup with unwind tables"),
    ("accounting_unmatched.c", "__libc_malloc"),
    ("lifecycle_atexit.c", "on_exit"),
    ("linkage_deepbind.c", "RTLD_DEEPBIND"),
    ("linkage_family.c", "mallopt"),
    ("linkage_imports.c", "_r_debug"),
    ("linkage_libc.c", "a strdup with unwind tables"),
    ("deadlock_handler.c", "a fork that never hangs by itself"),
    (
        "deadlock_return_in_fork.c",
        "a fork that never hangs by itself",
    ),
    ("deadlock_stopped.c", "a fork that never hangs by itself"),
    ("deadlock_streams.c", "a way to lock the list of streams"),
    ("lifecycle_small_stacks.c", "stacks of at least 16 KiB"),
    ("stack_backtrace.c", "backtrace"),
    ("stack_dlclose_threads.c", "a dlclose that unloads"),
    ("stack_shrink.c", "getcontext"),
    ("stack_signal.c", "a raise with unwind tables"),
    ("stack_ucontext.c", "getcontext"),
];

/// Cases of programs that musl's heap ends in another way.
const GLIBC_CASES: &[(&str, &str)] = &[
    ("lifecycle_ends.c", "double-free"),
    ("lifecycle_ends.c", "smashed-stack"),
    ("lifecycle_ends.c", "damaged-heap"),
];

/// Whether musl-gcc can build a program.
fn is_for_musl(program: &str) -> bool {
    let is_glibc_only = GLIBC_ONLY.iter().any(|(name, _)| *name == program);
    program.ends_with(".c") && !is_glibc_only
}

fn build(program: &'static str) -> Option<Vec<PathBuf>> {
    is_for_musl(program).then(|| compile_with("musl-gcc", program, &[]))?
}

fn run_all(cases: &[Case]) {
    if !cfg!(target_arch = "x86_64") {
        return;
    }
    if !is_here("musl-gcc") {
        needs::cannot("musl-gcc");
        return;
    }
    let is_glibcs = |case: &&Case| {
        let is_it = |(program, arg): &(&str, &str)| *program == case.program && case.args == [*arg];
        GLIBC_CASES.iter().any(is_it)
    };
    run_built(
        cases.iter().filter(|case| !is_glibcs(case)),
        RECORD_TIMEOUT,
        build,
    );
}

#[test]
fn accounting() {
    run_all(ACCOUNTING);
}

#[test]
fn linkage() {
    run_all(LINKAGE);
}

#[test]
fn lifecycle() {
    run_all(LIFECYCLE);
}

#[test]
fn process() {
    run_all(PROCESS);
}

#[test]
fn stacks() {
    run_all(STACKS);
}

#[test]
fn deadlock() {
    run_all(DEADLOCK);
}
