//! The profile formats, with the names that errors, `info` and the docs use.

/// A format of profiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ProfileFormat {
    /// pprof's protobuf, which heapprof itself writes.
    Pprof,
    /// Snapshots of Valgrind's Massif.
    Massif,
    /// JSON of Valgrind's DHAT and of the Rust crate dhat.
    Dhat,
    /// heaptrack's data as `heaptrack_interpret` writes it.
    Heaptrack,
    /// Leak reports of LeakSanitizer, alone or in AddressSanitizer.
    LeakSanitizer,
    /// Reports of memleak, a tool of bcc.
    Memleak,
    /// Maps of bpftrace whose keys are stacks.
    Bpftrace,
    /// Aggregations of dtrace whose keys are stacks.
    Dtrace,
    /// Events that `perf script` prints.
    PerfScript,
    /// Lines of the Perl module Devel::MProf.
    Mprof,
    /// JSON of speedscope.
    Speedscope,
    /// One stack in each line, the form that flame graph tools exchange.
    Folded,
    /// Text heap profiles of gperftools and tcmalloc.
    Gperftools,
    /// Dumps of jemalloc.
    Jemalloc,
    /// Text of Go's heap profile with `debug=1`.
    GoText,
    /// Text heap profiles of Google's Java agent.
    JavaHeapz,
    /// Binary CPU profiles of gperftools and of Google's Java agent.
    GperftoolsCpu,
    /// Text profiles of contention: contentionz, and Go's mutex and block profiles.
    Contention,
    /// Lists of threads with their stacks.
    Threadz,
    /// Go's counts of goroutines, threads and other things as text.
    GoCount,
    /// The output of `jeprof --raw` and `google-pprof --raw`.
    Symbolized,
    /// Perl's values, as Devel::MAT::Dumper writes them.
    Pmat,
    /// Captures of memray, a profiler of Python.
    Memray,
    /// Snapshots of Python's module tracemalloc.
    Tracemalloc,
}

impl ProfileFormat {
    /// Returns the short name of the format, e.g. `gperftools`. It is also the name of the format's
    /// page in the docs.
    pub fn name(self) -> &'static str {
        self.texts().0
    }

    /// Returns a description of the format in a few words.
    pub fn description(self) -> &'static str {
        self.texts().1
    }

    /// Whether a file of this format can hold several profiles. `FILE#N` names one of them.
    pub fn has_parts(self) -> bool {
        matches!(
            self,
            ProfileFormat::Massif
                | ProfileFormat::Memleak
                | ProfileFormat::Bpftrace
                | ProfileFormat::Folded
                | ProfileFormat::Speedscope
        )
    }

    /// Whether a file of this format may lack the type and unit of its numbers.
    pub fn leaves_values_open(self) -> bool {
        matches!(
            self,
            ProfileFormat::Folded
                | ProfileFormat::Dtrace
                | ProfileFormat::Bpftrace
                | ProfileFormat::PerfScript
                | ProfileFormat::Symbolized
        )
    }

    /// Returns what a profile of this format is instead of a heap profile, and what its values are;
    /// `None` if it is a heap profile, or can be one.
    pub(crate) fn other_subject(self) -> Option<&'static str> {
        match self {
            ProfileFormat::GperftoolsCpu => {
                Some("a CPU profile, whose values are samples and processor time")
            }
            ProfileFormat::Contention => {
                Some("a contention profile, whose values are waits for locks and their time")
            }
            ProfileFormat::Threadz => Some("a list of threads, whose values are threads"),
            ProfileFormat::GoCount => Some("a count of stacks, such as those of goroutines"),
            _ => None,
        }
    }

    fn texts(self) -> (&'static str, &'static str) {
        match self {
            ProfileFormat::Pprof => ("pprof", "pprof protobuf"),
            ProfileFormat::Massif => ("massif", "Valgrind Massif snapshots"),
            ProfileFormat::Dhat => ("dhat", "Valgrind DHAT JSON"),
            ProfileFormat::Heaptrack => ("heaptrack", "interpreted heaptrack data"),
            ProfileFormat::LeakSanitizer => ("leaksanitizer", "LeakSanitizer leak report"),
            ProfileFormat::Memleak => ("memleak", "bcc memleak report"),
            ProfileFormat::Bpftrace => ("bpftrace", "bpftrace maps by stack"),
            ProfileFormat::Dtrace => ("dtrace", "dtrace aggregations by stack"),
            ProfileFormat::PerfScript => ("perf-script", "perf script output"),
            ProfileFormat::Mprof => ("mprof", "output of Perl's Devel::MProf"),
            ProfileFormat::Speedscope => ("speedscope", "speedscope JSON"),
            ProfileFormat::Folded => ("folded", "folded stacks"),
            ProfileFormat::Gperftools => {
                ("gperftools", "heap profile text of gperftools or tcmalloc")
            }
            ProfileFormat::Jemalloc => ("jemalloc", "jemalloc heap dump"),
            ProfileFormat::GoText => ("go-text", "Go's heap profile as text"),
            ProfileFormat::JavaHeapz => ("java-heapz", "heap profile from Google's Java agent"),
            ProfileFormat::GperftoolsCpu => (
                "gperftools-cpu",
                "CPU profile of gperftools or Google's Java agent",
            ),
            ProfileFormat::Contention => ("contention", "contention profile as text"),
            ProfileFormat::Threadz => ("threadz", "threads and their stacks as text"),
            ProfileFormat::GoCount => (
                "go-count",
                "Go's goroutines, threads or other counts as text",
            ),
            ProfileFormat::Pmat => ("pmat", "Perl values from Devel::MAT::Dumper"),
            ProfileFormat::Memray => ("memray", "memray capture"),
            ProfileFormat::Tracemalloc => ("tracemalloc", "Python tracemalloc snapshot"),
            ProfileFormat::Symbolized => (
                "symbolized",
                "profile with symbols, from jeprof or google-pprof",
            ),
        }
    }
}
