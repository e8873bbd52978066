//! Why a file was not read. Each message is one line; the caller puts the file's name before it.

use std::borrow::Cow;
use std::io;

/// Why a file could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Errors of pprof's protobuf, and those that concern every format: gzip, size, reading.
    #[error(transparent)]
    Profile(#[from] heapprof_profile::Error),
    /// A line that its format does not have, or not there.
    #[error("line {line}: expected {expected}, found {found}")]
    Line {
        /// From 1; one past the last line when the file ends too soon.
        line: u64,
        /// What should be there.
        expected: Cow<'static, str>,
        /// What is there, shortened.
        found: String,
    },
    /// The zstd layer is damaged.
    #[error("the zstd data is damaged ({0}); copy or download it again")]
    Zstd(String),
    /// No format knows it.
    #[error("is no profile that heapprof knows: it {kind}{}", Tried(tried))]
    Unknown {
        /// What it is instead.
        kind: String,
        /// The names of the formats it was compared with.
        tried: Vec<&'static str>,
    },
}

struct Tried<'a>(&'a [&'static str]);

impl std::fmt::Display for Tried<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            [] => Ok(()),
            names => write!(f, "; tried {}", names.join(", ")),
        }
    }
}

/// Streams carry our errors inside those of `io`; this takes them out again.
impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        match error.downcast::<Error>() {
            Ok(ours) => ours,
            Err(error) => match error.downcast::<heapprof_profile::Error>() {
                Ok(profile) => Error::Profile(profile),
                Err(error) => Error::Profile(heapprof_profile::Error::Io(error)),
            },
        }
    }
}

/// Text for an error: on one line, in quotes, and not too long.
pub(crate) fn shortened(text: &[u8]) -> String {
    /// More than any number or name that tells what is wrong.
    const MOST: usize = 60;
    let text = text.trim_ascii();
    if text.is_empty() {
        return "an empty line".to_string();
    }
    // A character takes up to four bytes, and no more are looked at.
    let text = String::from_utf8_lossy(&text[..text.len().min(4 * MOST + 4)]);
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn found_text_is_short_and_on_one_line() {
        let long = "x".repeat(1000);
        let table = [
            (&b"  a line \r"[..], "\"a line\"".to_string()),
            (b"\t\x1b[2Jq\"\0", "\"\\u{1b}[2Jq\\\"\\0\"".to_string()),
            (b"", "an empty line".to_string()),
            (b"caf\xe9", "\"caf\u{fffd}\"".to_string()),
            (long.as_bytes(), format!("\"{}\"…", "x".repeat(60))),
        ];
        for (text, expected) in table {
            assert_eq!(shortened(text), expected);
        }
    }
}
