//! Texts of the page: escaped for HTML, padded, and indented as Go does it.

/// Escapes a text for HTML as Go's package html/template does, which also escapes `+`.
pub(super) fn escape(text: &[u8], out: &mut Vec<u8>) {
    for &byte in text {
        match byte {
            0 => out.extend_from_slice("\u{fffd}".as_bytes()),
            b'"' => out.extend_from_slice(b"&#34;"),
            b'&' => out.extend_from_slice(b"&amp;"),
            b'\'' => out.extend_from_slice(b"&#39;"),
            b'+' => out.extend_from_slice(b"&#43;"),
            b'<' => out.extend_from_slice(b"&lt;"),
            b'>' => out.extend_from_slice(b"&gt;"),
            byte => out.push(byte),
        }
    }
}

/// Escapes a text for HTML as pprof itself does before it gives the text to Go's package
/// html/template, which then escapes it again.
pub(super) fn escape_before(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\0' => escaped.push('\u{fffd}'),
            '"' => escaped.push_str("&#34;"),
            '&' => escaped.push_str("&amp;"),
            '\'' => escaped.push_str("&#39;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Returns the column in which the text of a source line begins. Tab stops are 8 columns apart.
pub(super) fn indentation(line: &[u8]) -> usize {
    let mut column = 0usize;
    for byte in line {
        match byte {
            b' ' => column += 1,
            b'\t' => column = (column + 1).next_multiple_of(8),
            _ => break,
        }
    }
    column
}

/// Returns the text of a source line as characters. Each invalid byte becomes U+FFFD.
pub(super) fn characters(line: &[u8]) -> String {
    let mut text = String::with_capacity(line.len());
    for chunk in line.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| '\u{fffd}'));
    }
    text
}

/// Width of the text of an instruction or an inlined call.
const TEXT_WIDTH: usize = 80;

/// Returns a text without tabs, padded to [`TEXT_WIDTH`].
pub(super) fn padded(text: &str) -> String {
    let mut padded = String::with_capacity(text.len().max(TEXT_WIDTH));
    let mut column = 0usize;
    for c in text.chars() {
        column += 1;
        if c == '\t' {
            let stop = column.next_multiple_of(8);
            padded.extend(std::iter::repeat_n(' ', stop - column + 1));
            column = stop;
        } else {
            padded.push(c);
        }
    }
    padded.extend(std::iter::repeat_n(' ', TEXT_WIDTH.saturating_sub(column)));
    padded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes() {
        let mut out = Vec::new();
        escape(b"a+b<\"c\"&'d'>\0\xff", &mut out);
        let expected = b"a&#43;b&lt;&#34;c&#34;&amp;&#39;d&#39;&gt;\xef\xbf\xbd\xff";
        assert_eq!(out, expected);
        assert_eq!(
            escape_before("a+b<\"c\"&'d'>\0é"),
            "a+b&lt;&#34;c&#34;&amp;&#39;d&#39;&gt;\u{fffd}é"
        );
    }

    #[test]
    fn columns() {
        let table = [("", 0), ("x", 0), ("  x", 2), ("\tx", 8), ("  \t x", 9)];
        for (line, expected) in table {
            assert_eq!(indentation(line.as_bytes()), expected, "{line:?}");
        }
        for (text, expected) in [
            ("", ""),
            ("\tx", "        x"),
            ("ab\tc", "ab      c"),
            ("1234567\tc", "1234567 c"),
            ("12345678\tc", "12345678        c"),
        ] {
            assert_eq!(padded(text), format!("{expected:80}"), "{text:?}");
        }
        assert_eq!(padded(&"x".repeat(90)), "x".repeat(90));
        assert_eq!(characters(b"a\xe2\x82b"), "a\u{fffd}\u{fffd}b");
    }
}
