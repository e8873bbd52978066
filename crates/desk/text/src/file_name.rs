//! Encodes file names, which may have any bytes, as text.
//!
//! Arguments are text, because a PROFILE can be a file, a URL or a name in the database, and
//! because a message may contain several arguments. But a file name need not be UTF-8. In the text
//! of a name, each byte that is not UTF-8 becomes one character: a byte `b` is U+10FF00 + `b`, from
//! a private area. If a name itself contains such a character, each byte of that character is
//! encoded in this way, too, so that each name has exactly one text.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use crate::printable;

const FIRST_BYTE_CHARACTER: u32 = 0x10_ff00;

fn character(byte: u8) -> char {
    char::from_u32(FIRST_BYTE_CHARACTER + u32::from(byte)).unwrap_or(char::REPLACEMENT_CHARACTER)
}

fn byte(c: char) -> Option<u8> {
    u32::from(c)
        .checked_sub(FIRST_BYTE_CHARACTER)
        .and_then(|byte| u8::try_from(byte).ok())
}

/// Encodes a file name of any bytes as text.
pub fn encode_name(name: &OsStr) -> String {
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

/// Decodes the text of [`encode_name`] to the file name.
pub fn path(text: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    for c in text.chars() {
        match byte(c) {
            Some(byte) => bytes.push(byte),
            None => bytes.extend(c.encode_utf8(&mut [0; 4]).bytes()),
        }
    }
    OsString::from_vec(bytes).into()
}

/// Decodes a name that is to be shown. U+FFFD stands for bytes that are not UTF-8.
pub fn shown(text: &str) -> Cow<'_, str> {
    match text.chars().any(|c| byte(c).is_some()) {
        true => path(text).to_string_lossy().into_owned().into(),
        false => text.into(),
    }
}

/// Quotes a file name for a shell, for commands that people copy.
pub fn quoted(name: &OsStr) -> String {
    let bytes = name.as_bytes();
    if bytes.starts_with(b"-") {
        return quoted(&OsString::from_vec([b"./", bytes].concat()));
    }
    let text = name.to_str().filter(|text| printable(text) == *text);
    let Some(text) = text else {
        // Bytes that are not text, or must not be printed, are written as numbers.
        let mut shell = "$'".to_string();
        for chunk in bytes.utf8_chunks() {
            for c in chunk.valid().chars() {
                match c {
                    '\'' | '\\' => shell.extend(['\\', c]),
                    c if printable(c.encode_utf8(&mut [0; 4])) == c.to_string() => shell.push(c),
                    c => shell.extend(c.encode_utf8(&mut [0; 4]).bytes().map(hex)),
                }
            }
            shell.extend(chunk.invalid().iter().copied().map(hex));
        }
        return shell + "'";
    };
    let plain = |c: char| c.is_alphanumeric() || "/._-+=:,@%".contains(c);
    match !text.is_empty() && text.chars().all(plain) {
        true => text.to_string(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

fn hex(byte: u8) -> String {
    format!("\\x{byte:02x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_the_name_back() {
        let table: &[(&[u8], &str)] = &[
            (b"a.pb.gz", "a.pb.gz"),
            ("/tmp/é.gz".as_bytes(), "/tmp/é.gz"),
            (b"-x", "./-x"),
            (b"", "''"),
            (b"two words", "'two words'"),
            (b"it's", r"'it'\''s'"),
            (b"caf\xe9's \\", r"$'caf\xe9\'s \\'"),
            (b"a\x1b[1m\n", r"$'a\x1b[1m\x0a'"),
            ("\u{202e}x".as_bytes(), r"$'\xe2\x80\xaex'"),
        ];
        for (name, shell) in table {
            let name = OsStr::from_bytes(name);
            assert_eq!(quoted(name), *shell);
            let echo = format!("printf %s {shell}");
            let bash = std::process::Command::new("bash")
                .args(["-c", &echo])
                .output();
            if let (Ok(bash), false) = (bash, name.as_bytes().starts_with(b"-")) {
                assert_eq!(OsStr::from_bytes(&bash.stdout), name);
            }
        }
    }

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
            assert_eq!(path(&encode_name(name)), name);
            assert_eq!(shown(&encode_name(name)), *seen);
        }
    }
}
