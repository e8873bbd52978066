//! The collector: programs that are built, recorded and symbolized. These tests need compilers;
//! what else one needs (perl, gdb, root) it says when it is skipped.
#![allow(
    clippy::disallowed_methods,
    reason = "tests write into folders of their own"
)]
#![allow(clippy::print_stderr)]

// What profiles tell of a program's command line.
mod command_line;
// Names for addresses, compared with binutils on programs of every kind; damaged files.
mod symbolize;
// What `symbolize` may overwrite.
mod symbolize_target;
// Names of functions that have no linker name.
mod scopes;
// Debug files: where they are found, and which are refused.
mod debug_files;
// The environment variables of libheapprof.so, and the page of them.
mod environment;
// The library and its header, unpacked.
mod preload_path;
// The functions of include/heapprof.h, called by programs.
mod c_api;
// What forked children share, load and copy.
mod fork_audit;
// Datagrams that say which code ran.
mod wiretap;
// The heap, walked from outside.
mod heapwalk;
// Processes as the kernel sees them, at a moment and over time.
mod process;
mod watch;
// Programs with several allocators, and peaks of known size.
mod compare;
// Programs that were not started for it.
mod attach;
// The log of events.
mod log;
// What a recording lacks, and says so.
mod lacking;
// Filters of system calls that kill.
mod filters;
// What libheapprof.so promises about its code: instructions, calls, exports, needs.
mod forged;
mod gates;
// Hostile programs under the collector: how they end, and whether their numbers are right.
mod programs;
// Where the profiles of children are, and what record says of all of them.
mod children;
// The view of a running program, in a terminal.
mod live;
// What others may do with our files, and we with theirs.
// Strangers that keep record busy, and what a killed one leaves.
mod strangers;
mod trust;
// Programs whose file is another one when they get names.
mod replaced;
// What record passes on to a program, how it names profiles, and what it says of the end.
mod record;
// What record says of lines that grow.
mod follow_lines;
// Frames of Perl.
mod scripts;
// Frames of Python.
mod python;
// Notebooks' cells.
mod cells;
mod python_hazards;
// Perls that a profiler of stacks might trip over.
mod perl_hazards;
// The module for Perl programs.
mod perl_module;
// What Perl takes values from.
mod perl_arenas;
// Where all of a Perl program's memory is.
mod perl_account;
// What holds the memory of a Perl program, from outside.
mod perl_heap;
// Values of Perl, and who made them.
mod perl_values;
// Frames of interpreters that register themselves.
mod providers;
// What reports call functions: wrappers are left out, names are short, code without symbols has
// names.
mod names;
mod outside;
// What is left of programs that are killed.
mod death;
// Where books can't be kept, and whose they are.
mod kept;
// Children whose books are not kept in a file yet.
mod delay;
// Kernels that lack newer system calls.
mod old_kernel;
// Names of libraries that were closed when no descriptor was free.
mod unloaded;
// Programs of other C libraries, and static ones, that a recorded one starts.
mod other_libc;
mod own_code;
// Each thread's share, with `record --threads`.
mod threads;
// Recording over allocators other than libc's.
mod allocators;
// heapprof-alloc in Rust programs that count themselves.
mod alloc;
// Stacks compared with those of libgcc's unwinder and of gdb.
mod stacks;
// Sampled values over many rounds, compared with theory.
mod rights;
mod sampling;
// Processes that may not write their own profiles.
mod without_place;
// Exact values and the peak, compared with a replay of the events.
mod peak;
// The heap over time, and the sizes of allocations.
mod history;
// Profiles that are written while the program runs.
mod dumps;
// What a program maps itself.
mod mmap;
// What a recorded program must not notice.
mod unnoticed;
