//! The layers of our crates, and the arrows between them.

/// The layers: which others each may use besides itself.
pub(super) const LAYERS: &[(&str, &[&str])] = &[
    ("contract", &[]),
    ("interpreters", &["contract"]),
    ("inside", &["contract", "interpreters"]),
    ("outside", &["contract", "interpreters"]),
    ("desk", &["contract", "outside"]),
    ("app", &["contract", "outside", "desk"]),
];

/// Our crates by their folders in `crates/`, and which others each may use, by their names without
/// `heapprof-`. An arrow that is not here is an error.
pub(super) const ARROWS: &[(&str, &[&str])] = &[
    ("contract/profile", &[]),
    ("contract/abi", &[]),
    ("contract/wiretap", &[]),
    ("inside/collect", &["abi", "memory", "profile"]),
    (
        "inside/preload",
        &["abi", "collect", "memory", "perl", "python", "wiretap"],
    ),
    ("inside/alloc", &["abi", "collect", "wiretap"]),
    ("interpreters/memory", &[]),
    ("interpreters/perl", &["memory"]),
    ("interpreters/python", &["memory"]),
    ("outside/process", &[]),
    ("outside/attach", &["abi", "memory", "process"]),
    ("outside/live", &["abi", "memory", "process", "profile"]),
    (
        "outside/fork",
        &["live", "memory", "perl", "process", "profile"],
    ),
    (
        "outside/heapwalk",
        &["attach", "graph", "memory", "process"],
    ),
    ("outside/perl-heap", &["graph", "profile"]),
    (
        "outside/perlwalk",
        &["heapwalk", "memory", "perl", "perl-heap"],
    ),
    ("outside/graph", &[]),
    ("desk/formats", &["perl-heap", "profile"]),
    ("desk/symbolize", &["profile"]),
    ("desk/totals", &["profile", "text"]),
    (
        "desk/dropin",
        &["formats", "profile", "symbolize", "text", "totals"],
    ),
    ("desk/text", &[]),
    ("desk/analysis", &["profile", "text", "totals"]),
    (
        "desk/report",
        &[
            "analysis",
            "heapwalk",
            "perl-heap",
            "process",
            "profile",
            "text",
            "totals",
        ],
    ),
    ("desk/web", &[]),
    (
        "app/cli",
        &[
            "analysis",
            "attach",
            "dropin",
            "fork",
            "formats",
            "heapwalk",
            "live",
            "perl-heap",
            "perlwalk",
            "process",
            "profile",
            "report",
            "symbolize",
            "text",
            "web",
            "wiretap",
        ],
    ),
];

/// The name of the package in a folder of `crates/`.
pub(super) fn package_name(folder: &str) -> String {
    format!("heapprof-{}", folder.rsplit('/').next().unwrap_or(folder))
}
