//! Tests that need the whole of heapprof: laws on every sample profile, real processes, goldens.
//!
//! `HEAPPROF_BLESS=1` writes the expected files anew instead of comparing with them.
#![allow(
    clippy::disallowed_methods,
    reason = "tests write into folders of their own"
)]
#![allow(clippy::print_stderr)]

// The tools of the tests.
mod built;
mod exercise;
mod expectations;
mod harness;
mod samples;
mod wire;

// Laws that hold for every profile.
mod laws;
// Profiles that must be read in any order and packing.
mod encodings;
// Profiles that must be refused, each with its message; the docs page of them.
mod malformed;
// Files of other tools, beside what those tools and pprof make of them.
mod formats;
// jeprof and google-pprof on the same dumps.
mod perl_pprof;
// Files of tracers, beside what their own printers say of them.
mod foreign;
// Forms for other tools, and what those tools make of them.
mod writers;
// The Firefox Profiler's form, table by table.
mod firefox;
// Damaged files of other tools, each with its message.
mod refused;
// Random damage: no panic, no hang, bounded memory.
mod mutation;
// Adding up, scaling and comparing profiles.
mod arithmetic;
// Small cases of flat, cum, filters and granularities, as folded text.
mod questions;
// How much memory reports take.
mod memory;
// Frames without symbols in two runs.
mod addresses;
// The call graph: what calls weigh, what is trimmed.
mod graph;
// What is in use, and what LeakSanitizer's rules suppress of it.
mod leaks;
// The database: sharing, removal, interruption, two processes at once.
mod store;
// The command line: exit codes, errors, output files, formats.
mod cli;
// Command lines that can't be read.
mod unnoticed;
mod usage;
// Names that control a terminal, in every report and format.
mod escapes;
// Options, arguments and standard streams that did something else than they should.
mod arguments;
// Where profiles come from: standard input, parts of files, servers, the newest recording.
mod sources;
// Names for addresses, compared with binutils on programs of every kind; damaged files.
mod symbolize;
// What `symbolize` may overwrite.
mod symbolize_target;
// Names of functions that have no linker name.
mod scopes;
// Debug files: where they are found, and which are refused.
mod debug_files;
// convert --to callgrind beside callgrind_annotate.
mod callgrind;
// How sure estimates are, in every report; gates that noise does not break.
mod spread;
// What reports print, on real profiles.
mod golden;
// The examples of the docs and of the README.
mod docs;
// The environment variables of libheapprof.so, and the page of them.
mod environment;
// The library and its header, unpacked.
mod preload_path;
// The functions of include/heapprof.h, called by programs.
mod c_api;
// What libheapprof.so promises about its code: instructions, calls, exports, needs.
mod gates;
// Hostile programs under the collector: how they end, and whether their numbers are right.
mod programs;
// Where the profiles of children are, and what record says of all of them.
mod children;
// What others may do with our files, and we with theirs.
mod trust;
// What record passes on to a program, how it names profiles, and what it says of the end.
mod record;
// What reports call functions: wrappers are left out, names are short, code without symbols has
// names.
mod names;
mod own_code;
// Runs of programs that may hang.
mod watched;
// Recording over allocators other than libc's.
mod allocators;
// heapprof-alloc in Rust programs that count themselves.
mod alloc;
// Stacks compared with those of libgcc's unwinder and of gdb.
mod stacks;
// Sampled values over many rounds, compared with theory.
mod sampling;
// Exact values and the peak, compared with a replay of the events.
mod peak;
// Profiles that are written while the program runs.
mod dumps;
// What a program maps itself.
mod mmap;
// The rules of the architecture, the generated code, the house style.
mod architecture;
// Bugs that were found, and stay fixed.
mod regression;
// pprof's command line and reports: 48 golden cases of the real one.
mod pprof;
// jeprof's command line and rows, beside the real one.
mod jeprof;
// The real pprof, if it was built (ignored unless asked for).
mod oracle;
