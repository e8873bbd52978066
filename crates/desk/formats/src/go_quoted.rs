//! Reads texts that Go quoted with `%q`, as the labels of goroutines in its text profiles.
//!
//! Source of the escapes: the Go specification, "String literals". A label set is `{"key":"value",
//! "key":"value"}` (runtime/pprof, label.go).

use std::collections::BTreeMap;

/// Reads a label set. Bytes that are not UTF-8 become U+FFFD. Returns `None` if the text is no
/// label set.
pub(crate) fn label_set(text: &str) -> Option<BTreeMap<String, String>> {
    let mut rest = text.trim().strip_prefix('{')?.strip_suffix('}')?;
    let mut labels = BTreeMap::new();
    while !rest.is_empty() {
        let (key, behind) = quoted(rest)?;
        let behind = behind.trim_start().strip_prefix(':')?.trim_start();
        let (value, behind) = quoted(behind)?;
        labels.insert(key, value);
        let behind = behind.trim_start();
        rest = match behind.strip_prefix(',') {
            Some(more) if !more.trim().is_empty() => more.trim_start(),
            None if behind.is_empty() => behind,
            _ => return None,
        };
    }
    Some(labels)
}

/// Reads the quoted text at the beginning of `text`. Also returns what is behind it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut rest = text.strip_prefix('"')?;
    let mut bytes = Vec::new();
    loop {
        let c = rest.chars().next()?;
        rest = &rest[c.len_utf8()..];
        match c {
            '"' => return Some((String::from_utf8_lossy(&bytes).into_owned(), rest)),
            '\\' => rest = escape(rest, &mut bytes)?,
            c => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

/// Reads the escape behind a backslash, and returns what is behind it.
fn escape<'a>(text: &'a str, bytes: &mut Vec<u8>) -> Option<&'a str> {
    let kind = text.chars().next()?;
    let rest = &text[kind.len_utf8()..];
    let byte = match kind {
        'a' => 7,
        'b' => 8,
        'f' => 12,
        'n' => b'\n',
        'r' => b'\r',
        't' => b'\t',
        'v' => 11,
        '\\' | '"' | '\'' => kind as u8,
        'x' => {
            let (number, rest) = digits(rest, 2, 16)?;
            bytes.push(u8::try_from(number).ok()?);
            return Some(rest);
        }
        '0'..='7' => {
            let (number, rest) = digits(text, 3, 8)?;
            bytes.push(u8::try_from(number).ok()?);
            return Some(rest);
        }
        'u' | 'U' => {
            let (number, rest) = digits(rest, if kind == 'u' { 4 } else { 8 }, 16)?;
            let c = char::from_u32(number)?;
            bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            return Some(rest);
        }
        _ => return None,
    };
    bytes.push(byte);
    Some(rest)
}

/// Reads a number of `count` digits, and returns what is behind it.
fn digits(text: &str, count: usize, radix: u32) -> Option<(u32, &str)> {
    let digits = text.get(..count)?;
    let is_number = digits.chars().all(|c| c.is_digit(radix));
    let number = u32::from_str_radix(digits, radix).ok();
    number
        .filter(|_| is_number)
        .map(|number| (number, &text[count..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_sets() {
        for (text, expected) in [
            ("{}", Some(vec![])),
            (r#"{"a":"b"}"#, Some(vec![("a", "b")])),
            (
                r#"{"a":"b", "c":"d,\"}"}"#,
                Some(vec![("a", "b"), ("c", "d,\"}")]),
            ),
            (
                r#"{"pool":"a\x1bb\a\t\\\u00e9\U0001f600\101é"}"#,
                Some(vec![("pool", "a\x1bb\x07\t\\é\u{1f600}Aé")]),
            ),
            (r#"{"bad":"\xff!"}"#, Some(vec![("bad", "\u{fffd}!")])),
            (r#"{"a":"b",}"#, None),
            (r#"{"a":"b" "c":"d"}"#, None),
            (r#"{"a":"\q"}"#, None),
            (r#"{"a":"\x+1"}"#, None),
            (r#"{"a":"\ud800"}"#, None),
            (r#"{"a":"\777"}"#, None),
            (r#"{"a":"\xé"}"#, None),
            (r#"{"a":"b"#, None),
            (r#"{"a"}"#, None),
            ("", None),
        ] {
            let expected = expected.map(|pairs| {
                let owned = |(key, value): (&str, &str)| (key.to_string(), value.to_string());
                pairs.into_iter().map(owned).collect::<BTreeMap<_, _>>()
            });
            assert_eq!(label_set(text), expected, "{text}");
        }
    }
}
