//! Tests of the collector with programs that are built, recorded and symbolized. They need
//! compilers. A test that needs something else (perl, gdb, root) names it when it is skipped.
#![allow(
    clippy::disallowed_methods,
    reason = "tests write into folders of their own"
)]
#![allow(clippy::print_stderr)]

// Which parts of a program's command line profiles contain.
mod command_line;
// Names for addresses, compared with binutils on programs of every kind; damaged files.
mod symbolize;
// Instructions with values, compared with lines and addresses.
mod assembly;
// Files that `symbolize` may overwrite.
mod symbolize_target;
// Names of functions without a linker name.
mod scopes;
// Debug files: where they are found, and which are refused.
mod debug_files;
// The environment variables of libheapprof.so, and their page in the documentation.
mod environment;
// The library and its header, unpacked.
mod preload_path;
// The functions of include/heapprof.h, called by programs.
mod c_api;
// Memory that forked children share, load and copy.
mod fork_audit;
// Where all of the memory of a program is.
mod why;
// Datagrams that report which code ran.
mod wiretap;
// The heap, walked from outside.
mod heapwalk;
// The kernel's figures of processes, at one moment and over time.
mod process;
mod watch;
// Programs with several allocators, and peaks of known size.
mod compare;
// Allocators that are linked into programs and libraries.
mod entry_hooks;
// Attaching to programs that were started without heapprof.
mod attach;
// The log of events.
mod log;
// Reports about what a recording could not see.
mod lacking;
// System call filters that kill.
mod filters;
// Forged ledgers, and libheapprof.so's promises about its code: instructions, calls, exports,
// needs.
mod forged;
mod gates;
// Hostile programs under the collector: how they end, and whether their numbers are right.
mod programs;
// Where the profiles of children are, and what `record` reports about all of them.
mod children;
// The view of a running program, in a terminal.
mod live;
// What other users may do with our files, and we with theirs. Other processes that keep `record`
// busy, and what a killed `record` leaves.
mod strangers;
mod trust;
// Programs whose file was replaced before their addresses get names.
mod replaced;
// What `record` passes on to a program, how it names profiles, and what it reports at the end.
mod record;
// Reports of `record` about lines that grow.
mod follow_lines;
// Frames of Perl.
mod scripts;
// Frames of Python.
mod python;
// Notebook cells.
mod cells;
mod python_hazards;
// Perl programs that could break a stack profiler.
mod perl_hazards;
// The module for Perl programs.
mod perl_module;
// The arenas from which Perl takes values.
mod perl_arenas;
// An account of all memory of a Perl program.
mod perl_account;
// References to the memory of a Perl program, found from outside.
mod perl_heap;
// Perl values, and the code that made them.
mod perl_values;
// Frames of interpreters that register themselves.
mod providers;
// Function names in reports: wrappers are left out, names are short, and code without symbols has
// names.
mod names;
mod outside;
// Programs in other root folders, with namespaces of their own.
mod containers;
// Profiles of killed programs.
mod death;
// Saved ledgers: where they are impossible, and to which process they belong.
mod kept;
// Children whose ledger is not saved in a file yet.
mod delay;
// Kernels that lack newer system calls.
mod old_kernel;
// Names of libraries that were closed while no descriptor was free.
mod unloaded;
// Programs with other C libraries, and static ones, that are started by a recorded program.
mod other_libc;
mod own_code;
// Recordings without names.
mod own_recordings;
mod shown_type;
// Each thread's share, with `record --threads`.
mod threads;
// Recordings with allocators other than libc's.
mod allocators;
// heapprof-alloc in Rust programs that count their own allocations.
mod alloc;
// Stacks compared with those of libgcc's unwinder and of gdb.
mod stacks;
// Programs that give up rights, and sampled values over many rounds, compared with theory.
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
// A program's own mappings.
mod mmap;
// Effects that a recorded program must not notice.
mod unnoticed;
