//! Peers: what other tools write and print, beside what heapprof makes of it. Tests of a tool that
//! is not installed are skipped, and say so.
#![allow(
    clippy::disallowed_methods,
    reason = "tests write into folders of their own"
)]
#![allow(clippy::print_stderr)]

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
// convert --to callgrind beside callgrind_annotate.
mod callgrind;
// jeprof's command line and rows, beside the real one.
mod jeprof;
// The real pprof, if it was built (ignored unless asked for).
mod oracle;
