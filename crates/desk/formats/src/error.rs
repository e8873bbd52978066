//! Errors for files that could not be read. Each message is one line. The caller puts the file's
//! name before it.

use std::borrow::Cow;
use std::io;

use heapprof_profile::Error as ProfileError;

/// Reason why a file could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// An error in pprof's protobuf, or an error that any format can have: in gzip, in the size, or
    /// while reading.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// A line that does not follow the format, or does not belong at its position in the file.
    #[error("line {line}: expected {expected}, found {found}")]
    Line {
        /// The number of the line, from 1. It is one past the last line if the file ends too soon.
        line: u64,
        /// Description of the text that was expected.
        expected: Cow<'static, str>,
        /// Text that is there, shortened.
        found: String,
    },
    /// JSON that is damaged or does not follow its format.
    #[error("line {line}, column {column}: {defect}")]
    Json {
        /// The number of the line, from 1.
        line: usize,
        /// The column in bytes, from 1; 0 before the first byte of a line.
        column: usize,
        /// Description of the defect: what was expected and what was found.
        defect: String,
    },
    /// A place in a binary file where the content does not follow the format.
    #[error("byte {offset}: {defect}")]
    Byte {
        /// Offset of the place in the unpacked file, in bytes.
        offset: u64,
        /// Description of the defect: what was expected and what was found.
        defect: String,
    },
    /// A known format in a version that can't be read.
    #[error("{0}")]
    Version(String),
    /// Two statements of the file that cannot both be true.
    #[error("line {line}: {defect}")]
    Contradiction {
        /// Number of the line at which the contradiction was found, from 1.
        line: u64,
        /// Description of the contradiction.
        defect: String,
    },
    /// The file has more entries of some kind than may be kept in memory.
    #[error("has more than {0}, which is more than heapprof keeps in memory")]
    TooMuch(String),
    /// The requested part is not in the file.
    #[error("has no {asked}; it has {present}")]
    NoPart {
        /// The requested part.
        asked: String,
        /// Parts that the file has.
        present: String,
    },
    /// [`FormatReadOptions::part`](crate::FormatReadOptions) was set, but the format has no parts.
    #[error("{0}")]
    NotInParts(String),
    /// [`FormatReadOptions::values`](crate::FormatReadOptions) was set, but the file itself names
    /// its values.
    #[error("{0}")]
    ValuesKnown(String),
    /// A file of Perl's values can't be read.
    #[error("cannot be read as a Devel::MAT dump of Perl values: {0}")]
    Pmat(#[from] heapprof_perl_values::pmat::PmatError),
    /// The zstd layer is damaged.
    #[error("the zstd data is damaged ({0}); copy or download it again")]
    Zstd(String),
    /// The lz4 layer is damaged.
    #[error("the lz4 data is damaged ({0}); copy or download it again")]
    Lz4(String),
    /// The file inflates to far more bytes than packed text usually does.
    #[error(
        "inflates to more than {bytes} bytes and {times} times its own size, which would take too \
         long"
    )]
    TooDense {
        /// Number of bytes to which any file may inflate, however small it is.
        bytes: u64,
        /// Maximum ratio of inflated size to file size for text that is longer than `bytes`.
        times: u64,
        /// A limit for the inflated size that the message suggests, in bytes. It is sixteen times
        /// the current limit.
        limit: u64,
    },
    /// The file is of no known format.
    #[error(
        "is not in a format that heapprof reads: it {kind}{}",
        TriedFormats(tried)
    )]
    Unknown {
        /// Kind of the file, in words.
        kind: String,
        /// Names of the formats that the file was compared with.
        tried: Vec<&'static str>,
    },
}

impl FormatError {
    /// Adds the position in a binary file to an error about a number that does not fit in 64 bits.
    pub(crate) fn at_byte(self, offset: u64) -> Self {
        match self {
            FormatError::Profile(defect @ ProfileError::Overflow { .. }) => FormatError::Byte {
                offset,
                defect: defect.to_string(),
            },
            other => other,
        }
    }

    /// Adds the line to an error about a number that does not fit in 64 bits. Other errors contain
    /// their position already.
    pub(crate) fn at_line(self, line: u64) -> Self {
        match self {
            FormatError::Profile(defect @ ProfileError::Overflow { .. }) => {
                FormatError::Contradiction {
                    line,
                    defect: defect.to_string(),
                }
            }
            other => other,
        }
    }
}

struct TriedFormats<'a>(&'a [&'static str]);

impl std::fmt::Display for TriedFormats<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            [] => Ok(()),
            names => write!(f, "; tried {}", names.join(", ")),
        }
    }
}

/// Converts an error of a stream. If the error contains one of this crate's errors, that error is
/// returned.
impl From<io::Error> for FormatError {
    fn from(error: io::Error) -> Self {
        match error.downcast::<FormatError>() {
            Ok(ours) => ours,
            Err(error) => match error.downcast::<ProfileError>() {
                Ok(profile) => FormatError::Profile(profile),
                Err(error) => FormatError::Profile(ProfileError::Io(error)),
            },
        }
    }
}

/// Rewords serde's errors about JSON, on one line.
impl From<serde_json::Error> for FormatError {
    fn from(error: serde_json::Error) -> Self {
        /// Longest text of a defect. All of serde's texts with a name in them are shorter.
        const MAX_DEFECT_CHARS: usize = 160;
        let (line, column) = (error.line(), error.column());
        if error.is_io() {
            return FormatError::from(io::Error::from(error));
        }
        let text = error.to_string();
        let place = format!(" at line {line} column {column}");
        let text = text.strip_suffix(&place).unwrap_or(&text);
        let defect = in_our_words(text);
        let escaped = defect.chars().flat_map(|c| {
            let control = c.is_control().then(|| c.escape_default());
            control
                .into_iter()
                .flatten()
                .chain((!c.is_control()).then_some(c))
        });
        let defect = escaped.take(MAX_DEFECT_CHARS).collect();
        FormatError::Json {
            line,
            column,
            defect,
        }
    }
}

/// Rewords serde's texts, so that they name the expected and the actual data.
fn in_our_words(text: &str) -> String {
    let known = ["invalid type: ", "invalid value: ", "invalid length "];
    let found = known.iter().find_map(|start| text.strip_prefix(start));
    if let Some((found, expected)) = found.and_then(|found| found.rsplit_once(", expected ")) {
        return format!("expected {expected}, found {found}");
    }
    if let Some(inside) = text.strip_prefix("EOF while parsing ") {
        return format!("expected the rest of {inside}, found the end of the file");
    }
    if let Some(field) = text.strip_prefix("missing field ") {
        return format!("expected {field}, found the end of its object");
    }
    match text {
        "trailing characters" => "expected the end of the file, found more".to_string(),
        text => text.to_string(),
    }
}

/// Quotes text for an error, on one line and not too long.
pub(crate) fn shortened(text: &[u8]) -> String {
    /// Maximum number of quoted characters. Every number or name that shows what is wrong is
    /// shorter.
    const MAX_QUOTED_CHARS: usize = 60;
    let text = text.trim_ascii();
    if text.is_empty() {
        return "an empty line".to_string();
    }
    // A character takes up to four bytes, so more bytes are not needed.
    let text = String::from_utf8_lossy(&text[..text.len().min(4 * MAX_QUOTED_CHARS + 4)]);
    match text.char_indices().nth(MAX_QUOTED_CHARS) {
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
