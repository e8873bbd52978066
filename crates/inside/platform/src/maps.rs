//! Parses the kernel's list of mappings, /proc/thread-self/maps.

use std::ffi::CStr;

use crate::sys::EngineFile;

/// Calls `each` with each line of the kernel's list of mappings. There may be a hundred thousand
/// lines. This allocates nothing: its buffer of `N` bytes is on the stack. A line that is longer
/// than the buffer comes in parts.
pub fn for_each_line<const N: usize>(mut each: impl FnMut(&[u8])) {
    // Linux before 3.17 has no folder for the thread.
    if !for_each_line_in::<N>(c"/proc/thread-self/maps", &mut each) {
        for_each_line_in::<N>(c"/proc/self/maps", each);
    }
}

/// Calls `each` with each line of the file at `path`, as [`for_each_line`] does. Returns false if
/// the file can't be opened.
pub fn for_each_line_in<const N: usize>(path: &CStr, mut each: impl FnMut(&[u8])) -> bool {
    let Ok(file) = EngineFile::open(path, libc::O_RDONLY, 0) else {
        return false;
    };
    let (mut buffer, mut filled) = ([0; N], 0);
    loop {
        let n = file.read(&mut buffer[filled..]);
        filled += n;
        let mut done = 0;
        while let Some(len) = buffer[done..filled].iter().position(|&b| b == b'\n') {
            each(&buffer[done..done + len]);
            done += len + 1;
        }
        let is_end = n == 0;
        if (is_end || done == 0 && filled == buffer.len()) && done < filled {
            each(&buffer[done..filled]);
            done = filled;
        }
        if is_end {
            return true;
        }
        buffer.copy_within(done..filled, 0);
        filled -= done;
    }
}

/// Parses the beginning of a line, `start-end `. Returns both addresses and the rest of the line.
pub fn parse_range(line: &[u8]) -> Option<(usize, usize, &[u8])> {
    let (start, n) = parse_hex(line);
    let rest = line.get(n..)?.strip_prefix(b"-")?;
    let (end, n) = parse_hex(rest);
    Some((start, end, rest.get(n..)?.strip_prefix(b" ")?))
}

/// Parses the hexadecimal number at the beginning of a text. Returns the number and its count of
/// digits.
pub fn parse_hex(text: &[u8]) -> (usize, usize) {
    let mut value = 0usize;
    for (i, byte) in text.iter().enumerate() {
        match (*byte as char).to_digit(16) {
            Some(digit) => value = value << 4 | digit as usize,
            None => return (value, i),
        }
    }
    (value, text.len())
}

/// Returns a path without escapes. The kernel writes a newline in a path as `\012`, and escapes
/// nothing else.
pub fn unescape_path(path: &[u8]) -> Box<[u8]> {
    const NEWLINE: &[u8] = b"\\012";
    if !path.contains(&b'\\') {
        return path.into();
    }
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&first, behind)) = rest.split_first() {
        match rest.strip_prefix(NEWLINE) {
            Some(after) => {
                bytes.push(b'\n');
                rest = after;
            }
            None => {
                bytes.push(first);
                rest = behind;
            }
        }
    }
    bytes.into()
}

/// Returns the text behind a decimal number (the inode number).
pub fn skip_number(text: &[u8]) -> &[u8] {
    let digits = text.iter().take_while(|b| b.is_ascii_digit()).count();
    text[digits..].trim_ascii_start()
}
