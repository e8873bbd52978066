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
    ("contract/profile", &["abi"]),
    ("contract/abi", &[]),
    ("contract/wiretap", &[]),
    ("inside/platform", &["abi", "memory"]),
    ("inside/engine", &["abi", "platform", "profile"]),
    (
        "inside/providers",
        &["engine", "memory", "perl", "platform", "python"],
    ),
    (
        "inside/preload",
        &[
            "abi",
            "engine",
            "memory",
            "platform",
            "providers",
            "wiretap",
        ],
    ),
    ("inside/alloc", &["abi", "engine", "platform", "wiretap"]),
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
    ("outside/heap", &["attach", "objects", "memory", "process"]),
    ("outside/perl-values", &["objects", "profile"]),
    (
        "outside/perl-snapshot",
        &["heap", "memory", "perl", "perl-values"],
    ),
    ("outside/objects", &[]),
    ("desk/formats", &["perl-values", "profile"]),
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
            "heap",
            "perl-values",
            "process",
            "profile",
            "text",
            "totals",
        ],
    ),
    ("desk/web", &[]),
    ("app/files", &[]),
    ("app/carried", &["files", "symbolize"]),
    ("app/bench", &["analysis", "process", "profile"]),
    (
        "app/sources",
        &[
            "analysis",
            "dropin",
            "files",
            "formats",
            "profile",
            "stores",
            "symbolize",
            "text",
        ],
    ),
    ("app/stores", &["analysis", "files", "report", "wiretap"]),
    (
        "app/page",
        &[
            "analysis", "formats", "profile", "report", "sources", "text", "web",
        ],
    ),
    (
        "app/terminal",
        &["analysis", "process", "profile", "report", "text"],
    ),
    ("app/watch", &["analysis", "process", "report"]),
    (
        "app/inspect",
        &[
            "analysis",
            "files",
            "formats",
            "heap",
            "live",
            "perl-snapshot",
            "perl-values",
            "process",
            "profile",
            "recorder",
            "report",
            "symbolize",
        ],
    ),
    (
        "app/recorder",
        &[
            "abi",
            "analysis",
            "files",
            "fork",
            "live",
            "process",
            "profile",
            "report",
            "symbolize",
            "terminal",
            "text",
        ],
    ),
    (
        "app/cli",
        &[
            "abi",
            "analysis",
            "attach",
            "bench",
            "carried",
            "dropin",
            "files",
            "formats",
            "heap",
            "inspect",
            "live",
            "perl-values",
            "perl-snapshot",
            "page",
            "process",
            "profile",
            "recorder",
            "report",
            "sources",
            "stores",
            "symbolize",
            "terminal",
            "text",
            "watch",
            "web",
            "wiretap",
        ],
    ),
];

/// The name of the package in a folder of `crates/`.
pub(super) fn package_name(folder: &str) -> String {
    format!("heapprof-{}", folder.rsplit('/').next().unwrap_or(folder))
}
