//! Recognizes JSON of other tools by names in a file's first bytes. The JSON is not parsed.

use super::SPEEDSCOPE_ADVICE;

/// Description of JSON of an unknown kind.
pub(crate) const UNKNOWN_JSON: &str = "is JSON";

/// Advice on what to do with a file.
enum JsonAdvice {
    Speedscope,
    Other(&'static str),
}
use JsonAdvice::{Other, Speedscope};

/// Table of JSON kinds: names that are all in the file, the kind of the file, and advice. The first
/// row that matches counts.
const JSON_KINDS: &[(&[&str], &str, JsonAdvice)] = &[
    (
        &["snapshot", "node_fields"],
        "a V8 heap snapshot (.heapsnapshot), which has objects but not where they were allocated",
        Other("the memory panel of Chrome's developer tools reads it"),
    ),
    (
        &["head", "callFrame", "selfSize"],
        "a V8 heap profile (.heapprofile)",
        Speedscope,
    ),
    (
        &["nodes", "callFrame"],
        "a V8 CPU profile (.cpuprofile)",
        Speedscope,
    ),
    (
        &["head", "functionName", "hitCount"],
        "a V8 CPU profile (.cpuprofile)",
        Speedscope,
    ),
    (
        &["meta", "preprocessedProfileVersion"],
        "a Firefox profiler profile, as samply writes it",
        Speedscope,
    ),
    (
        &["meta", "libs", "processType"],
        "a Firefox profiler profile",
        Speedscope,
    ),
    (&["traceEvents"], "a trace in Chrome's format", Speedscope),
    (
        &["ph", "ts", "pid"],
        "a trace in Chrome's format",
        Speedscope,
    ),
    (
        &["ph", "cat", "pid"],
        "a trace in Chrome's format",
        Speedscope,
    ),
    (
        &["version", "mode", "interval", "gc_samples"],
        "a stackprof profile",
        Other("convert its dump to folded stacks: stackprof --stackcollapse DUMP > out.txt"),
    ),
    (
        &["total_num_allocations", "total_bytes_allocated"],
        "memray statistics, without stacks",
        Other("memray's own reports read its capture: memray tree CAPTURE"),
    ),
    (
        &["flamebearer", "names"],
        "a Pyroscope flame graph",
        Other("export it as pprof there"),
    ),
    (
        &["elapsed_time_sec", "max_footprint_mb"],
        "a Scalene profile, which is by line, without stacks",
        Other("scalene view reads it"),
    ),
    (
        &["type", "attached_probes", "data"],
        "bpftrace JSON output",
        Other("print text, without -f json"),
    ),
    (
        &["resourceProfiles"],
        "an OpenTelemetry profile as JSON",
        Other("export it as pprof"),
    ),
    (
        &["sampleType", "stringTable"],
        "a pprof profile as JSON",
        Other("write it as protobuf, as pprof -proto does"),
    ),
    (
        &["name", "value", "children"],
        "a tree of stacks for d3-flame-graph",
        Other("write folded stacks, one per line: main;f 7"),
    ),
];

/// Describes a JSON text that begins with `head`; `None` if it is not JSON.
pub(super) fn kind(head: &[u8]) -> Option<String> {
    let inside = match head.trim_ascii_start() {
        [b'[', rest @ ..] => rest.trim_ascii_start().strip_prefix(b"{")?,
        text => text.strip_prefix(b"{")?,
    };
    // An object begins with a name, or is empty. `{main};f` of folded stacks has neither.
    if !matches!(inside.trim_ascii_start().first(), Some(b'"' | b'}') | None) {
        return None;
    }
    let has = |name: &&str| {
        let quoted = format!("\"{name}\"");
        memchr::memmem::find(inside, quoted.as_bytes()).is_some()
    };
    let known = JSON_KINDS.iter().find(|(names, ..)| names.iter().all(has));
    Some(match known {
        Some((_, what, Speedscope)) => format!("is {what}; {SPEEDSCOPE_ADVICE}"),
        Some((_, what, Other(then))) => format!("is {what}; {then}"),
        None => UNKNOWN_JSON.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that kinds are recognized from the beginnings of files, as the tools write them.
    #[test]
    fn kinds_by_their_beginning() {
        let table = [
            (
                r#"{"snapshot":{"meta":{"node_fields":["type","name","id"]"#,
                "is a V8 heap snapshot",
            ),
            (
                r#"{"head":{"callFrame":{"functionName":"(root)","scriptId":"0","url":""},"selfSize":0,"id":1,"children":["#,
                "is a V8 heap profile",
            ),
            (
                r#"{"nodes":[{"id":1,"callFrame":{"functionName":"(root)"},"hitCount":0}"#,
                "is a V8 CPU profile",
            ),
            (
                r#"{"typeId":"CPU","head":{"functionName":"(root)","url":"","hitCount":0"#,
                "is a V8 CPU profile",
            ),
            (
                r#"{"traceEvents":[{"pid":1"#,
                "is a trace in Chrome's format",
            ),
            (
                "[\n{\"name\":\"f\",\"ph\":\"X\",\"ts\":1,\"dur\":2,\"pid\":1,\"tid\":1},",
                "is a trace in Chrome's format",
            ),
            (
                r#"{"version":1.2,"mode":"object","interval":1,"samples":7,"gc_samples":0,"missed_samples":0,"frames":{"#,
                "is a stackprof profile",
            ),
            (
                r#"{"meta":{"interval":1,"preprocessedProfileVersion":44},"libs":["#,
                "is a Firefox profiler profile",
            ),
            (
                r#"{"meta":{"version":24,"processType":0},"libs":["#,
                "is a Firefox profiler profile",
            ),
            (
                r#"{"total_num_allocations": 7, "total_bytes_allocated": 96"#,
                "is memray statistics",
            ),
            (
                r#"{"version":1,"flamebearer":{"names":["total"]"#,
                "is a Pyroscope flame graph",
            ),
            (
                r#"{"name":"root","value":7,"children":[{"name""#,
                "is a tree of stacks",
            ),
            (r#"{"a": 1}"#, UNKNOWN_JSON),
            ("{}", UNKNOWN_JSON),
            ("[{", UNKNOWN_JSON),
        ];
        for (text, expected) in table {
            let found = kind(text.as_bytes()).unwrap();
            assert!(found.starts_with(expected), "{text}: {found}");
        }
        for text in ["{main};f 7\n", "[main] 7\n", "", "[1,2]"] {
            assert_eq!(kind(text.as_bytes()), None, "{text}");
        }
    }
}
