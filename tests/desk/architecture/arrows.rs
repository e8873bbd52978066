//! The arrows between our crates.

/// Which of our crates each crate may use. An arrow that is not here is an error.
pub(super) const ARROWS: &[(&str, &[&str])] = &[
    ("heapprof-profile", &[]),
    ("heapprof-environment", &[]),
    ("heapprof-books", &[]),
    (
        "heapprof-collect",
        &[
            "heapprof-books",
            "heapprof-environment",
            "heapprof-memory",
            "heapprof-profile",
        ],
    ),
    (
        "heapprof-attach",
        &["heapprof-books", "heapprof-memory", "heapprof-process"],
    ),
    (
        "heapprof-live",
        &[
            "heapprof-books",
            "heapprof-memory",
            "heapprof-process",
            "heapprof-profile",
        ],
    ),
    ("heapprof-process", &[]),
    (
        "heapprof-heapwalk",
        &[
            "heapprof-attach",
            "heapprof-graph",
            "heapprof-memory",
            "heapprof-process",
        ],
    ),
    ("heapprof-graph", &[]),
    (
        "heapprof-perl-heap",
        &["heapprof-graph", "heapprof-profile"],
    ),
    (
        "heapprof-fork",
        &[
            "heapprof-live",
            "heapprof-memory",
            "heapprof-perl",
            "heapprof-process",
            "heapprof-profile",
        ],
    ),
    (
        "heapprof-preload",
        &[
            "heapprof-books",
            "heapprof-collect",
            "heapprof-environment",
            "heapprof-memory",
            "heapprof-perl",
            "heapprof-python",
            "heapprof-wiretap",
        ],
    ),
    (
        "heapprof-perlwalk",
        &[
            "heapprof-heapwalk",
            "heapprof-memory",
            "heapprof-perl",
            "heapprof-perl-heap",
        ],
    ),
    ("heapprof-memory", &[]),
    ("heapprof-perl", &["heapprof-memory"]),
    ("heapprof-python", &["heapprof-memory"]),
    (
        "heapprof-formats",
        &["heapprof-perl-heap", "heapprof-profile"],
    ),
    ("heapprof-symbolize", &["heapprof-profile"]),
    ("heapprof-text", &[]),
    ("heapprof-totals", &["heapprof-profile", "heapprof-text"]),
    (
        "heapprof-dropin",
        &[
            "heapprof-formats",
            "heapprof-profile",
            "heapprof-symbolize",
            "heapprof-text",
            "heapprof-totals",
        ],
    ),
    (
        "heapprof-analysis",
        &["heapprof-profile", "heapprof-text", "heapprof-totals"],
    ),
    (
        "heapprof-report",
        &[
            "heapprof-analysis",
            "heapprof-heapwalk",
            "heapprof-perl-heap",
            "heapprof-process",
            "heapprof-profile",
            "heapprof-text",
            "heapprof-totals",
        ],
    ),
    ("heapprof-web", &[]),
    ("heapprof-wiretap", &[]),
    (
        "heapprof-alloc",
        &[
            "heapprof-collect",
            "heapprof-environment",
            "heapprof-wiretap",
        ],
    ),
    (
        "heapprof-cli",
        &[
            "heapprof-analysis",
            "heapprof-attach",
            "heapprof-dropin",
            "heapprof-environment",
            "heapprof-fork",
            "heapprof-formats",
            "heapprof-heapwalk",
            "heapprof-live",
            "heapprof-perl-heap",
            "heapprof-perlwalk",
            "heapprof-process",
            "heapprof-profile",
            "heapprof-report",
            "heapprof-symbolize",
            "heapprof-text",
            "heapprof-web",
            "heapprof-wiretap",
        ],
    ),
];
