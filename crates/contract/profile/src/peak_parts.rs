//! The parts of a process's resident memory at its peak, as a recording has them in comments.

/// The beginning of a comment about a part.
const COMMENT_PREFIX: &str = "peak rss of ";

/// A part of the memory that was resident at the peak: the mappings of one kind and name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeakPart {
    /// The kind of the mappings, as heapprof-process names it.
    pub kind: String,
    /// The file or the kernel's name of the mappings; empty if they have none.
    pub name: String,
    /// Resident bytes.
    pub bytes: u64,
    /// Number of mappings.
    pub mappings: u64,
}

impl PeakPart {
    /// Returns the comment about the part.
    #[must_use]
    pub fn to_comment(&self) -> String {
        let Self {
            kind,
            name,
            bytes,
            mappings,
        } = self;
        format!("{COMMENT_PREFIX}{kind}: {bytes} bytes in {mappings} mappings: {name}")
    }

    /// Reads a comment; `None` if it is about something else.
    #[must_use]
    pub fn from_comment(comment: &str) -> Option<Self> {
        let rest = comment.strip_prefix(COMMENT_PREFIX)?;
        let (kind, rest) = rest.split_once(": ")?;
        let (bytes, rest) = rest.split_once(" bytes in ")?;
        let (mappings, name) = rest.split_once(" mappings: ")?;
        Some(Self {
            kind: kind.to_string(),
            name: name.to_string(),
            bytes: bytes.parse().ok()?,
            mappings: mappings.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_is_read_as_it_was_written() {
        for name in ["", "/data/a: b mappings: c"] {
            let part = PeakPart {
                kind: "heapprof's own".to_string(),
                name: name.to_string(),
                bytes: 4096,
                mappings: 2,
            };
            assert_eq!(PeakPart::from_comment(&part.to_comment()), Some(part));
        }
        for other in [
            "peak rss: 7 bytes",
            "peak rss of heap: -1 bytes in 1 mappings: ",
        ] {
            assert_eq!(PeakPart::from_comment(other), None);
        }
    }
}
