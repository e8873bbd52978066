//! Names that are not UTF-8. A file may have any name, but a PROFILE can also be a URL or a name in
//! the database, and several are joined in messages: so arguments are text, in which each byte that
//! is no text is a character of its own.
//!
//! A byte `b` is U+10FF00 + `b`, out of a private area. A name that has such a character of its own
//! is treated as if its bytes were no text, so that each name has one form.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};

const FIRST: u32 = 0x10_ff00;

fn character(byte: u8) -> char {
    char::from_u32(FIRST + u32::from(byte)).unwrap_or(char::REPLACEMENT_CHARACTER)
}

fn byte(c: char) -> Option<u8> {
    u32::from(c)
        .checked_sub(FIRST)
        .and_then(|byte| u8::try_from(byte).ok())
}

/// How an argument that may be a file's name is read.
pub(crate) fn parser() -> impl TypedValueParser<Value = String> {
    OsStringValueParser::new().map(|name| held(&name))
}

/// A name as text, whatever it is.
pub(crate) fn held(name: &OsStr) -> String {
    let mut text = String::with_capacity(name.len());
    for chunk in name.as_bytes().utf8_chunks() {
        for c in chunk.valid().chars() {
            match byte(c) {
                Some(_) => text.extend(c.encode_utf8(&mut [0; 4]).bytes().map(character)),
                None => text.push(c),
            }
        }
        text.extend(chunk.invalid().iter().map(|&byte| character(byte)));
    }
    text
}

/// The file's name that a text stands for.
pub(crate) fn path(text: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    for c in text.chars() {
        match byte(c) {
            Some(byte) => bytes.push(byte),
            None => bytes.extend(c.encode_utf8(&mut [0; 4]).bytes()),
        }
    }
    OsString::from_vec(bytes).into()
}

/// A text for eyes: U+FFFD for what is no text.
pub(crate) fn shown(text: &str) -> Cow<'_, str> {
    match text.chars().any(|c| byte(c).is_some()) {
        true => path(text).to_string_lossy().into_owned().into(),
        false => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_comes_back() {
        let table: &[(&[u8], &str)] = &[
            (b"a.pb.gz", "a.pb.gz"),
            (b"\xff\xfe.pb.gz", "\u{fffd}\u{fffd}.pb.gz"),
            (b"caf\xe9", "caf\u{fffd}"),
            ("é—\u{10ffff}".as_bytes(), "é—\u{10ffff}"),
            ("\u{10ff41}".as_bytes(), "\u{10ff41}"),
            (b"\xf4\x8f\xbf", "\u{fffd}"),
        ];
        for (name, seen) in table {
            let name = OsStr::from_bytes(name);
            assert_eq!(path(&held(name)), name);
            assert_eq!(shown(&held(name)), *seen);
        }
    }
}
