//! Makes text of unknown origin safe to show. A profile, a database or a file name can contain any
//! text, such as escape sequences for terminals, and controls that make text look different from
//! what it is.
//!
//! In text for people, each of these characters is replaced by its number, for example `\u{202e}`.
//! In JSON, it is replaced by an escape such as `\u202e`. In formats for other programs (CSV, the
//! texts of pprof and jeprof), each such character becomes the same replacement character, U+FFFD.

use std::borrow::Cow;
use std::io::{self, Write};

/// Whether a character controls a terminal or the direction of text: C0, DEL, C1, and Unicode's
/// bidirectional controls.
fn is_control(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}')
        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Whether a UTF-8 character that begins with this byte may be a control character, or a character
/// that XML refuses.
const fn begins_refused_character(byte: u8) -> bool {
    byte < 0x20 || matches!(byte, 0x7f | 0xc2 | 0xd8 | 0xe2 | 0xef)
}

/// Returns the index of the first byte that may begin a control character, or a character that XML
/// refuses. Most blocks of 64 bytes have no such byte, and are skipped at once.
fn find_refused_character(bytes: &[u8]) -> Option<usize> {
    let block = |block: &&[u8]| {
        !block
            .iter()
            .fold(false, |any, &byte| any | begins_refused_character(byte))
    };
    let plain = 64 * bytes.chunks(64).take_while(block).count();
    let at = bytes
        .get(plain..)?
        .iter()
        .position(|&byte| begins_refused_character(byte));
    at.map(|at| plain + at)
}

/// Returns a text that is safe to show in terminals, Markdown and XML, on one line.
pub fn printable(text: &str) -> Cow<'_, str> {
    if find_refused_character(text.as_bytes()).is_none() {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            // XML refuses these two.
            '\u{fffe}' | '\u{ffff}' => shown.push('\u{fffd}'),
            c if is_control(c) => shown.extend(escape_character(c)),
            c => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

/// Makes each line of a text safe with [`printable`], and keeps the line breaks.
pub fn printable_lines(text: &str) -> String {
    let lines = text.split('\n').map(printable);
    lines.collect::<Vec<_>>().join("\n")
}

fn escape_character(c: char) -> impl Iterator<Item = char> {
    let short = matches!(c, '\t' | '\r' | '\n');
    let (default, unicode) = match short {
        true => (Some(c.escape_default()), None),
        false => (None, Some(c.escape_unicode())),
    };
    default
        .into_iter()
        .flatten()
        .chain(unicode.into_iter().flatten())
}

/// The replacement for a control character in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlReplacement {
    /// JSON's `\u202e`. JSON has control characters only within strings, and the serializer has
    /// already escaped those below U+0020.
    Json,
    /// U+FFFD. Line ends and tabs stay, because they separate rows and columns.
    Replacement,
}

/// A writer that replaces control characters.
pub struct EscapingWriter<W: Write> {
    writer: W,
    replacement: ControlReplacement,
    /// The first bytes of a character that is not complete yet, or a carriage return.
    pending: Vec<u8>,
}

impl<W: Write> EscapingWriter<W> {
    /// Makes a writer that writes to `writer`. Control characters are replaced by `stead`.
    pub fn new(writer: W, stead: ControlReplacement) -> Self {
        Self {
            writer,
            replacement: stead,
            pending: Vec::new(),
        }
    }

    /// Writes one character in UTF-8, or its replacement if it is a control character.
    fn write_character(&mut self, bytes: &[u8]) -> io::Result<()> {
        let c = std::str::from_utf8(bytes)
            .ok()
            .and_then(|text| text.chars().next());
        match (c, self.replacement) {
            (Some('\n' | '\t'), _) => self.writer.write_all(bytes),
            (Some(c), ControlReplacement::Json) if is_control(c) => {
                write!(self.writer, "\\u{:04x}", u32::from(c))
            }
            (Some(c), ControlReplacement::Replacement) if is_control(c) => {
                self.writer.write_all("\u{fffd}".as_bytes())
            }
            _ => self.writer.write_all(bytes),
        }
    }

    /// Returns the number of bytes of a character whose first byte is `first`.
    fn length(first: u8) -> usize {
        match first {
            0..0xc0 => 1,
            0xc0..0xe0 => 2,
            0xe0..0xf0 => 3,
            _ => 4,
        }
    }

    /// Completes the character in `pending`. Returns the bytes that were not used.
    fn finish_pending<'a>(&mut self, bytes: &'a [u8]) -> io::Result<&'a [u8]> {
        if self.pending == b"\r" && !bytes.is_empty() {
            self.pending.clear();
            match bytes[0] {
                b'\n' => self.writer.write_all(b"\r")?,
                _ => self.write_character(b"\r")?,
            }
            return Ok(bytes);
        }
        let Some(&first) = self.pending.first() else {
            return Ok(bytes);
        };
        let (more, rest) =
            bytes.split_at(bytes.len().min(Self::length(first) - self.pending.len()));
        self.pending.extend_from_slice(more);
        if self.pending.len() == Self::length(first) {
            let whole = std::mem::take(&mut self.pending);
            self.write_character(&whole)?;
        }
        Ok(rest)
    }
}

impl<W: Write> Write for EscapingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut rest = bytes;
        while !rest.is_empty() {
            if !self.pending.is_empty() {
                rest = self.finish_pending(rest)?;
                continue;
            }
            let (before, from) = rest.split_at(find_refused_character(rest).unwrap_or(rest.len()));
            self.writer.write_all(before)?;
            let Some(&first) = from.first() else {
                break;
            };
            let length = Self::length(first);
            if first == b'\r' || from.len() < length {
                let held = from.len().min(length);
                self.pending.extend_from_slice(&from[..held]);
                rest = &from[held..];
            } else {
                self.write_character(&from[..length])?;
                rest = &from[length..];
            }
        }
        Ok(bytes.len())
    }

    /// Writes the pending bytes and flushes the writer. It must be called at the end.
    fn flush(&mut self) -> io::Result<()> {
        let held = std::mem::take(&mut self.pending);
        self.write_character(&held)?;
        self.writer.flush()
    }
}

/// Calls `body` with an [`EscapingWriter`] around `writer`, and flushes it.
pub fn escaping<E: From<io::Error>>(
    writer: &mut dyn Write,
    stead: ControlReplacement,
    body: impl FnOnce(&mut dyn Write) -> Result<(), E>,
) -> Result<(), E> {
    let mut escaping = EscapingWriter::new(writer, stead);
    body(&mut escaping)?;
    Ok(escaping.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ODD_TEXT: &str = "a\u{1b}[31m\u{7f}\u{9b}\u{61c}\u{200f}\u{202e}\u{2066}\u{2069}b";

    #[test]
    fn eyes_see_what_is_there() {
        assert_eq!(printable("a\u{1b}[31mb\n"), "a\\u{1b}[31mb\\n");
        assert_eq!(printable("\u{ffff}é—\u{a0}"), "\u{fffd}é—\u{a0}");
        assert_eq!(
            printable(ODD_TEXT),
            "a\\u{1b}[31m\\u{7f}\\u{9b}\\u{61c}\\u{200f}\\u{202e}\\u{2066}\\u{2069}b"
        );
        assert_eq!(printable_lines("a\u{202e}\nb"), "a\\u{202e}\nb");
    }

    /// Checks that the output is the same, in whatever pieces the input comes.
    #[test]
    fn streams_hold_no_controls() {
        let json = serde_json::to_string(ODD_TEXT).unwrap() + " é—\u{2065}\n";
        let text = format!("{ODD_TEXT}\té—\u{2065}\r\n\rx\u{0}\n");
        let table = [
            (
                ControlReplacement::Json,
                json.as_str(),
                "\"a\\u001b[31m\\u007f\\u009b\\u061c\\u200f\\u202e\\u2066\\u2069b\" é—\u{2065}\n",
            ),
            (
                ControlReplacement::Replacement,
                text.as_str(),
                "a\u{fffd}[31m\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}b\té—\
                 \u{2065}\r\n\u{fffd}x\u{fffd}\n",
            ),
        ];
        for (stead, given, expected) in table {
            for piece in 1..given.len() {
                let mut out = Vec::new();
                escaping(&mut out, stead, |writer| {
                    given
                        .as_bytes()
                        .chunks(piece)
                        .try_for_each(|chunk| writer.write_all(chunk))
                })
                .unwrap();
                assert_eq!(String::from_utf8(out).unwrap(), expected, "{piece}");
            }
        }
    }
}
