//! The desk: profiles from files and databases, reports, the command line, the docs and the rules
//! of the house. These tests need no compiler, except for a few examples of the docs.
//!
//! `HEAPPROF_BLESS=1` writes the expected files anew instead of comparing with them.
#![allow(
    clippy::disallowed_methods,
    reason = "tests write into folders of their own"
)]
#![allow(clippy::print_stderr)]

// Profiles that must be read in any order and packing.
mod encodings;
// The page to look at.
mod report;
// What programs say of the code that runs, and who listens.
mod wiretap;
// The server of that page.
mod web;
// The made sample profiles, and the README of all.
mod samples;
// Profiles that must be refused, each with its message; the docs page of them.
mod malformed;
// Damaged files of other tools, each with its message.
mod refused;
// Random damage: no panic, no hang, bounded memory.
mod mutation;
// How much memory reports take.
mod memory;
// Files of Devel::MAT, beside its own counts.
mod perl_heap;
mod pmat;
// Frames without symbols in two runs.
mod addresses;
// Functions of one name in several files.
mod same_name;
// What is in use, and what LeakSanitizer's rules suppress of it.
mod leaks;
// The database: sharing, removal, interruption, two processes at once.
mod store;
// Many moments of many processes: labels, selectors, growth, what is kept.
mod series;
// The command line: exit codes, errors, output files, formats.
mod cli;
// Flame graphs: what they hold, how differences are painted.
mod flame;
// Command lines that can't be read.
mod usage;
// Names that control a terminal, in every report and format.
mod escapes;
// Options, arguments and standard streams that did something else than they should.
mod arguments;
// Passwords and tokens in addresses of profiles.
mod secrets;
// The terminal view in windows of absurd sizes.
mod terminal;
// Where profiles come from: standard input, parts of files, servers, the newest recording.
mod sources;
// How sure estimates are, in every report; gates that noise does not break.
mod spread;
// What reports print, on real profiles.
mod golden;
// The examples of the docs and of the README.
mod docs;
// Bugs that were found, and stay fixed.
mod regression;
// The rules of the architecture, the generated code, the house style.
mod architecture;
// pprof's command line and reports: 48 golden cases of the real one.
mod pprof;
