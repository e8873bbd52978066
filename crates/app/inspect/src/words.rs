//! Small words of answers: numbers with nouns, bytes, and the names of files.

use heapprof_report::{UnitFormatter, plural};

/// What V8's heap has.
pub(crate) const V8_DETAIL: &str = "JavaScript's objects and code";

/// Returns a number with its noun.
pub(crate) fn count_of(number: u64, one: &str) -> String {
    plural(&number.to_string(), one)
}

/// Returns bytes as text.
pub(crate) fn shown(bytes: u64) -> String {
    UnitFormatter::new("bytes", None).map_or_else(|_| bytes.to_string(), |of| of.show(bytes))
}

/// Returns the last part of a path, without the kernel's word for a deleted file.
pub(crate) fn base_name(path: &str) -> &str {
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_nouns() {
        assert_eq!(count_of(1, "block"), "1 block");
        assert_eq!(count_of(20, "block"), "20 blocks");
        assert_eq!(shown(3 << 20), "3MiB");
    }

    #[test]
    fn files_are_known_by_their_last_name() {
        assert_eq!(base_name("/usr/lib/libz.so.1 (deleted)"), "libz.so.1");
        assert_eq!(base_name("[heap]"), "[heap]");
    }
}
