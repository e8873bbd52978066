//! How much of a process its heap is: what the kernel had in memory for it, less what the collector
//! itself holds.

use crate::comment;

/// What of the program was in memory, seen by the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resident {
    /// Bytes.
    pub bytes: i64,
    /// Those of the collector's own tables.
    pub own: i64,
    /// Bytes of the heap at the same moment, where the profile says.
    pub heap: Option<i64>,
}

impl Resident {
    /// Bytes that are the program's.
    pub fn of_program(self) -> i64 {
        (self.bytes - self.own).max(1)
    }

    /// The program's bytes that are no heap.
    pub fn beside_heap(self) -> Option<i64> {
        Some((self.of_program() - self.heap?).max(0))
    }
}

/// What was resident when the profile was dumped, and at the most, as its comments say; `heap` is
/// beside them.
pub fn resident(comments: &[String], heap: [Option<i64>; 2]) -> [Option<Resident>; 2] {
    // Tables only grow, so the peak has as much of them.
    let own = comment::bytes(comments, "own tables").unwrap_or(0);
    let of = |key, heap| {
        let bytes = comment::bytes(comments, key)?;
        Some(Resident { bytes, own, heap })
    };
    [of("rss", heap[0]), of("peak rss", heap[1])]
}

/// A runtime with a heap of its own beside malloc's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runtime {
    /// CPython: small objects are in arenas that it maps.
    Python,
    /// The JVM.
    Java,
    /// V8.
    JavaScript,
    /// .NET.
    DotNet,
    /// PHP's Zend engine.
    Php,
}

/// The runtime that the mapped files of a program show.
pub fn runtime<'a>(files: impl IntoIterator<Item = &'a str>) -> Option<Runtime> {
    files.into_iter().find_map(|file| {
        let name = file.rsplit('/').next().unwrap_or_default();
        let starts = |with: &str| name.strip_prefix(with);
        let is_version = |rest: &str| rest.chars().all(|c| c.is_ascii_digit() || c == '.');
        match name {
            _ if starts("libpython").is_some() => Some(Runtime::Python),
            _ if starts("python").is_some_and(is_version) => Some(Runtime::Python),
            "libjvm.so" => Some(Runtime::Java),
            "node" | "nodejs" => Some(Runtime::JavaScript),
            _ if starts("libnode.so").is_some() => Some(Runtime::JavaScript),
            "libcoreclr.so" => Some(Runtime::DotNet),
            _ if starts("libphp").is_some() => Some(Runtime::Php),
            _ if starts("php").is_some_and(is_version) => Some(Runtime::Php),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!((now.of_program(), now.beside_heap()), (300, Some(200)));
        assert_eq!((peak.of_program(), peak.beside_heap()), (400, Some(100)));
        let [now, peak] = resident(&comments[..1], [None, None]);
        assert_eq!((now.unwrap().of_program(), peak), (900, None));
        assert_eq!(now.unwrap().beside_heap(), None);
    }

    #[test]
    fn runtimes_by_their_files() {
        let table = [
            (
                &["/bin/x", "/usr/lib/libpython3.12.so.1.0"][..],
                Some(Runtime::Python),
            ),
            (&["/usr/bin/python3.11"], Some(Runtime::Python)),
            (&["/usr/bin/python-config"], None),
            (&["/jre/lib/server/libjvm.so"], Some(Runtime::Java)),
            (&["/usr/bin/node"], Some(Runtime::JavaScript)),
            (&["/usr/lib/libnodesource.so"], None),
            (&["/usr/bin/php8.2"], Some(Runtime::Php)),
            (&[], None),
        ];
        for (files, expected) in table {
            assert_eq!(runtime(files.iter().copied()), expected, "{files:?}");
        }
    }
}
