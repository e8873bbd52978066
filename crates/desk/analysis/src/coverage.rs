//! The heap's share of a process's memory, without the memory of the collector itself, and the
//! allocators and runtimes whose memory is not in a profile.

use heapprof_profile::PeakPart;

use crate::comment;

/// The beginning of a comment that names an allocator whose blocks were not recorded.
pub const UNSEEN_ALLOCATOR_PREFIX: &str = "allocator not seen: ";

/// Returns the comments about allocators whose blocks were not recorded, without
/// [`UNSEEN_ALLOCATOR_PREFIX`].
pub(crate) fn unseen_allocators(comments: &[String]) -> Vec<String> {
    let said = comments
        .iter()
        .filter_map(|comment| comment.strip_prefix(UNSEEN_ALLOCATOR_PREFIX));
    said.map(str::to_string).collect()
}

/// The resident memory (RSS) of a process at one moment, as the kernel counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RssBreakdown {
    /// The resident bytes of the process.
    pub bytes: i64,
    /// The part of `bytes` that belongs to the collector's own tables.
    pub own: i64,
    /// The bytes of the heap when the RSS was measured, if the profile has them.
    pub heap: Option<i64>,
}

impl RssBreakdown {
    /// Returns the resident bytes of the process, without the collector's own tables.
    pub fn program_bytes(self) -> i64 {
        self.bytes - self.own
    }

    /// Returns the resident bytes of the program that are not heap; `None` if the bytes of the heap
    /// are not known.
    pub fn bytes_beside_heap(self) -> Option<i64> {
        Some((self.program_bytes() - self.heap?).max(0))
    }
}

/// Returns the RSS when the profile was dumped, and the highest RSS, according to the comments.
/// `heap` holds the bytes of the heap at these two moments.
///
/// Every command takes RSS from this function. Commands show the first value with the memory in use
/// at the end. They show the second value, peak RSS, with the peak of the heap. Both are shown
/// without the collector's own tables.
pub fn resident(comments: &[String], heap: [Option<i64>; 2]) -> [Option<RssBreakdown>; 2] {
    // The tables only grow, so this is also their largest size up to the peak.
    let own = comment::find_single_bytes(comments, "own tables").unwrap_or(0);
    let of = |key, heap| {
        // A forked child shares pages of its parent's tables, and their size may be more than its
        // whole RSS.
        let bytes = comment::find_single_bytes(comments, key).filter(|&bytes| bytes > own)?;
        Some(RssBreakdown { bytes, own, heap })
    };
    [of("rss", heap[0]), of("peak rss", heap[1])]
}

/// Returns the parts of the resident memory at its peak, according to the comments; empty if the
/// recording did not divide the memory, or if the parts are of another time or program: if they add
/// up to less than half of the peak, or to more than twice as much.
pub fn peak_parts(comments: &[String]) -> Vec<PeakPart> {
    // A sum of several profiles has no peak, and the parts of all of them.
    let [_, Some(peak)] = resident(comments, [None, None]) else {
        return Vec::new();
    };
    let peak = u64::try_from(peak.bytes).unwrap_or(0);
    let parts = comments
        .iter()
        .filter_map(|text| PeakPart::from_comment(text));
    let parts: Vec<PeakPart> = parts.collect();
    let sum = parts
        .iter()
        .fold(0, |sum: u64, part| sum.saturating_add(part.bytes));
    match sum / 2 <= peak {
        true => parts,
        false => Vec::new(),
    }
}

/// A runtime that has a heap of its own besides the malloc heap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ManagedRuntime {
    /// CPython, which keeps small objects in arenas that it maps.
    Python,
    /// CPython whose small objects can't be recorded, with the reason.
    UnreadablePython(String),
    /// The Java virtual machine (JVM).
    Java,
    /// V8.
    JavaScript,
    /// .NET.
    DotNet,
    /// PHP's Zend engine.
    Php,
}

/// Returns the managed runtime whose heap is missing from a profile with these comments. The names
/// of the program's mapped files reveal the runtime.
pub fn unseen_runtime<'a>(
    files: impl IntoIterator<Item = &'a str>,
    comments: &[String],
) -> Option<ManagedRuntime> {
    match runtime(files)? {
        ManagedRuntime::Python => unseen_python(comments),
        other => Some(other),
    }
}

/// Returns the CPython runtime if its small objects are missing from the profile; `None` if they
/// were recorded. If they could not be recorded, the result has the reason, so that no report
/// advises the user to record them.
fn unseen_python(comments: &[String]) -> Option<ManagedRuntime> {
    let said = small_object_comments(comments).next();
    if said.is_some_and(are_recorded) {
        return None;
    }
    if let Some(missing) = said {
        return Some(ManagedRuntime::UnreadablePython(missing.to_string()));
    }
    let unreadable = comments
        .iter()
        .find_map(|comment| comment.strip_prefix("frames missing: python: "));
    Some(match unreadable {
        Some(why) => ManagedRuntime::UnreadablePython(format!("missing, because {why}")),
        None => ManagedRuntime::Python,
    })
}

/// Whether a profile has Python's small objects, which Python does not get from malloc.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PythonSmallObjects {
    /// Small objects were recorded, or the program has no Python.
    #[default]
    Recorded,
    /// The user did not ask for small objects.
    NotRequested,
    /// The user asked for small objects, but they are missing. The text is the reason in the
    /// profile.
    Missing(String),
}

/// Whether a profile with these comments has Python stacks.
pub(crate) fn has_python(comments: &[String]) -> bool {
    let mut frames = comments
        .iter()
        .filter_map(|comment| comment.strip_prefix("frames: "));
    frames.any(|frames| frames.contains("python"))
}

/// Returns the comments of the collector about Python's small objects, without their prefix.
fn small_object_comments(comments: &[String]) -> impl Iterator<Item = &str> {
    comments
        .iter()
        .filter_map(|comment| comment.strip_prefix("python: small objects: "))
}

fn are_recorded(said: &str) -> bool {
    said.starts_with("recorded")
}

/// Returns the state of Python's small objects in a profile with these comments.
pub(crate) fn small_objects(comments: &[String]) -> PythonSmallObjects {
    match small_object_comments(comments).next() {
        Some(said) if are_recorded(said) => PythonSmallObjects::Recorded,
        Some(said) => PythonSmallObjects::Missing(said.to_string()),
        None if has_python(comments) => PythonSmallObjects::NotRequested,
        None => PythonSmallObjects::Recorded,
    }
}

/// Returns the runtime that the names of a program's mapped files reveal.
fn runtime<'a>(files: impl IntoIterator<Item = &'a str>) -> Option<ManagedRuntime> {
    files.into_iter().find_map(|file| {
        let name = file.rsplit('/').next().unwrap_or_default();
        let starts = |with: &str| name.strip_prefix(with);
        let is_version = |rest: &str| rest.chars().all(|c| c.is_ascii_digit() || c == '.');
        // A `t` after the version means a Python without the GIL, and a `d` means a debug build.
        let is_python = |rest: &str| is_version(rest.trim_end_matches(['t', 'd']));
        match name {
            _ if starts("libpython").is_some() => Some(ManagedRuntime::Python),
            _ if starts("python").is_some_and(is_python) => Some(ManagedRuntime::Python),
            "libjvm.so" => Some(ManagedRuntime::Java),
            "node" | "nodejs" => Some(ManagedRuntime::JavaScript),
            _ if starts("libnode.so").is_some() => Some(ManagedRuntime::JavaScript),
            "libcoreclr.so" => Some(ManagedRuntime::DotNet),
            _ if starts("libphp").is_some() => Some(ManagedRuntime::Php),
            _ if starts("php").is_some_and(is_version) => Some(ManagedRuntime::Php),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_another_time_or_program_are_none() {
        for (peak, sizes, expected) in [
            ("100 bytes", &[40, 20][..], 2),
            // It grew after the parts were read.
            ("100 bytes", &[40, 9], 2),
            ("100 bytes", &[190, 20], 0),
            ("100 bytes", &[u64::MAX, u64::MAX], 0),
            ("unknown", &[40, 20], 0),
        ] {
            let part = |bytes: &u64| PeakPart {
                kind: "heap".to_string(),
                bytes: *bytes,
                ..PeakPart::default()
            };
            let parts = sizes.iter().map(|bytes| part(bytes).to_comment());
            let comments: Vec<String> = parts.chain([format!("peak rss: {peak}")]).collect();
            assert_eq!(peak_parts(&comments).len(), expected, "{comments:?}");
            // A sum of two profiles has the parts of both.
            let other = [comments, vec!["peak rss: 90 bytes".to_string()]].concat();
            assert_eq!(peak_parts(&other).len(), 0, "{other:?}");
        }
    }

    #[test]
    fn small_objects_are_seen_or_not() {
        let of = |texts: &[&str]| {
            let comments: Vec<String> = texts.iter().map(ToString::to_string).collect();
            small_objects(&comments)
        };
        let python = "frames: script, of python";
        let said = |what: &str| format!("python: small objects: {what}");
        assert_eq!(
            of(&["frames: script, of perl"]),
            PythonSmallObjects::Recorded
        );
        assert_eq!(of(&[python]), PythonSmallObjects::NotRequested);
        assert_eq!(
            of(&[python, &said("recorded, from malloc")]),
            PythonSmallObjects::Recorded
        );
        let missing = "missing, because nobody could look";
        assert_eq!(
            of(&[python, &said(missing)]),
            PythonSmallObjects::Missing(missing.to_string())
        );
    }

    #[test]
    fn what_cannot_be_recorded_of_python_is_not_advised() {
        let of = |texts: &[&str]| {
            let comments: Vec<String> = texts.iter().map(ToString::to_string).collect();
            unseen_runtime(["/usr/bin/python3.13t"], &comments)
        };
        assert_eq!(of(&[]), Some(ManagedRuntime::Python));
        assert_eq!(
            of(&["frames: script, of python"]),
            Some(ManagedRuntime::Python)
        );
        assert_eq!(of(&["python: small objects: recorded"]), None);
        assert_eq!(
            of(&["frames missing: python: this Python 3.9 is a debug build"]),
            Some(ManagedRuntime::UnreadablePython(
                "missing, because this Python 3.9 is a debug build".to_string()
            ))
        );
        assert_eq!(
            of(&["python: small objects: missing, because nobody could look"]),
            Some(ManagedRuntime::UnreadablePython(
                "missing, because nobody could look".to_string()
            ))
        );
    }

    #[test]
    fn tables_of_ours_are_not_the_program_s() {
        let texts = [
            "rss: 900 bytes",
            "peak rss: 1000 bytes",
            "own tables: 600 bytes",
        ];
        let comments = texts.map(str::to_string);
        let [now, peak] = resident(&comments, [Some(100), Some(300)]);
        let (now, peak) = (now.unwrap(), peak.unwrap());
        assert_eq!(
            (now.program_bytes(), now.bytes_beside_heap()),
            (300, Some(200))
        );
        assert_eq!(
            (peak.program_bytes(), peak.bytes_beside_heap()),
            (400, Some(100))
        );
        let [now, peak] = resident(&comments[..1], [None, None]);
        assert_eq!((now.unwrap().program_bytes(), peak), (900, None));
        assert_eq!(now.unwrap().bytes_beside_heap(), None);
        // Nothing remains that could belong to the program.
        let tables = ["rss: 900 bytes", "own tables: 900 bytes"].map(str::to_string);
        assert_eq!(resident(&tables, [Some(1), None]), [None, None]);
    }

    #[test]
    fn runtimes_by_their_files() {
        let table = [
            (
                &["/bin/x", "/usr/lib/libpython3.12.so.1.0"][..],
                Some(ManagedRuntime::Python),
            ),
            (&["/usr/bin/python3.11"], Some(ManagedRuntime::Python)),
            (&["/usr/bin/python3.14t"], Some(ManagedRuntime::Python)),
            (&["/usr/bin/python-config"], None),
            (&["/jre/lib/server/libjvm.so"], Some(ManagedRuntime::Java)),
            (&["/usr/bin/node"], Some(ManagedRuntime::JavaScript)),
            (&["/usr/lib/libnodesource.so"], None),
            (&["/usr/bin/php8.2"], Some(ManagedRuntime::Php)),
            (&[], None),
        ];
        for (files, expected) in table {
            let found = runtime(files.iter().copied());
            assert_eq!(found, expected, "{files:?}");
        }
    }
}
