//! Peers: files and output of other tools, compared with heapprof's. Tests of a tool that is not
//! installed are skipped with a message.
#![allow(
    clippy::disallowed_methods,
    reason = "tests write into folders of their own"
)]
#![allow(clippy::print_stderr)]

// Files of other tools, compared with the results of these tools and of pprof.
mod formats;
// jeprof and google-pprof on the same dumps.
mod perl_pprof;
// Files of tracers, compared with the output of their own printers.
mod foreign;
// Formats for other tools, read by these tools.
mod writers;
// The Firefox Profiler's format, table by table.
mod firefox;
// `convert --to callgrind`, read by callgrind_annotate.
mod callgrind;
// jeprof's command line and rows, compared with the real jeprof.
mod jeprof;
// The real pprof, if it is available (ignored unless requested).
mod oracle;
