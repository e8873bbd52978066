//! The desk: profiles from files and databases, reports, the command line, the docs and the rules
//! of the architecture. These tests need no compiler, except for a few examples of the docs.
//!
//! `HEAPPROF_BLESS=1` writes the expected files anew instead of comparing with them.
#![allow(
    clippy::disallowed_methods,
    reason = "tests write into folders of their own"
)]
#![allow(clippy::print_stderr)]

// Profiles that must be read in any order and packing.
mod encodings;
// The report page.
mod report;
// The wiretap: programs that report which code runs, and the listener.
mod wiretap;
// The server of the report page.
mod web;
// The generated sample profiles, and the README of all samples.
mod samples;
// Profiles that must be refused, each with its message; the docs page about them.
mod malformed;
// Damaged files of other tools, each with its message.
mod refused;
// Random damage: no panic, no hang, bounded memory.
mod mutation;
// The memory that reports take.
mod memory;
// Files of Devel::MAT, compared with its own counts.
mod perl_heap;
mod pmat;
// Frames without symbols in two runs.
mod addresses;
// Functions with one name in several files.
mod same_name;
// The instructions of functions.
mod assembly;
// Linker names in files of other tools.
mod linker_names;
// Memory in use, and what LeakSanitizer's rules suppress of it.
mod leaks;
// The database: sharing, removal, interruption, two processes at once.
mod store;
// Databases that earlier heapprofs wrote.
mod older_databases;
// Many moments of many processes: labels, selectors, growth, pruning.
mod series;
// The command line: exit codes, errors, output files, formats.
mod cli;
// Flame graphs: their contents, and the colours of differences.
mod flame;
// Command lines that can't be read.
mod usage;
// Names that control a terminal, in every report and format.
mod escapes;
// Faults of options, arguments and standard streams.
mod arguments;
// Passwords and tokens in URLs of profiles.
mod secrets;
// The terminal view in windows of absurd sizes.
mod terminal;
// The shell of heapprof's own commands.
mod shell;
// The sources of profiles: standard input, parts of files, servers, the newest recording.
mod sources;
// The uncertainty of estimates, in every report; gates that noise does not break.
mod spread;
// Output of reports on real profiles.
mod golden;
// The examples of the docs and of the README.
mod docs;
// Bugs that are fixed.
mod regression;
// The rules of the architecture, the generated code, the house style.
mod architecture;
// pprof's command line and reports: 48 golden cases of the real pprof.
mod pprof;
