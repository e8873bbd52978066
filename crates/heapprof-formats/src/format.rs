//! The formats by name, as errors, `info` and the docs call them.

/// A format of heap profiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// pprof's protobuf, heapprof's own.
    Pprof,
    /// The text of gperftools and tcmalloc.
    Gperftools,
    /// Dumps of jemalloc.
    Jemalloc,
    /// Go's `debug=1`.
    GoText,
    /// The text of Google's Java agent.
    JavaHeapz,
    /// What `jeprof --raw` and `google-pprof --raw` write.
    Symbolized,
}

impl Format {
    /// Its short name, e.g. `gperftools`: also the name of its page in the docs.
    pub fn name(self) -> &'static str {
        self.texts().0
    }

    /// What it is, in a few words.
    pub fn description(self) -> &'static str {
        self.texts().1
    }

    fn texts(self) -> (&'static str, &'static str) {
        match self {
            Format::Pprof => ("pprof", "pprof protobuf"),
            Format::Gperftools => ("gperftools", "heap profile text of gperftools or tcmalloc"),
            Format::Jemalloc => ("jemalloc", "heap dump of jemalloc"),
            Format::GoText => ("go-text", "Go's heap profile as text"),
            Format::JavaHeapz => ("java-heapz", "heap profile of Google's Java agent"),
            Format::Symbolized => (
                "symbolized",
                "profile with symbols, of jeprof or google-pprof",
            ),
        }
    }
}
