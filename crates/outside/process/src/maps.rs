//! Reads the mappings of a process from `/proc/PID/maps`.

use std::ops::Range;

/// A mapping of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessMapping {
    /// Address of the first byte.
    pub start: u64,
    /// Address after the last byte.
    pub end: u64,
    /// Offset of the first byte in the mapped file.
    pub offset: u64,
    /// Whether the process may write to the mapping.
    pub is_writable: bool,
    /// Whether the process may execute the mapping as code.
    pub is_code: bool,
    /// Whether the process's writes are private, so that they do not change the mapped file.
    pub is_private: bool,
    /// Path of the mapped file; empty for memory without a file.
    pub path: Vec<u8>,
}

impl ProcessMapping {
    /// Returns the addresses of the mapping.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.start..self.end
    }
}

/// Returns the mapping in which the image of an object file begins. `maps` are in ascending order,
/// and `number` is the index of a mapping of the same file.
///
/// Some linkers (lld) put the file's headers and the beginning of its code into one page of the
/// file. This page is then mapped twice, and the image begins with the first of these mappings,
/// which is not code.
#[must_use]
pub fn image_start(maps: &[ProcessMapping], number: usize) -> Option<&ProcessMapping> {
    /// Maximum number of mappings of one object that are searched.
    const MAX_MAPPINGS: usize = 64;
    let path = &maps.get(number)?.path;
    let is_first_page = |map: &&ProcessMapping| map.offset == 0 && map.path == *path;
    let mut before = maps[..=number].iter().rev().take(MAX_MAPPINGS);
    let found = before.find(is_first_page)?;
    let headers = before.next().filter(is_first_page);
    headers
        .filter(|map| found.is_code && !map.is_code)
        .or(Some(found))
}

/// Parses the text of `/proc/PID/maps`. Malformed lines are left out. The kernel makes this text in
/// pieces, and reports a mapping that grows between two pieces twice. The later report counts, so
/// no two mappings overlap.
#[must_use]
pub fn parse(text: &[u8]) -> Vec<ProcessMapping> {
    let mut all: Vec<ProcessMapping> = Vec::new();
    for mapping in text.split(|&byte| byte == b'\n').filter_map(line) {
        let overlaps =
            |before: &ProcessMapping| before.start < mapping.end && mapping.start < before.end;
        while all.last().is_some_and(overlaps) {
            all.pop();
        }
        all.push(mapping);
    }
    all
}

fn line(line: &[u8]) -> Option<ProcessMapping> {
    // range perms offset dev inode path
    let mut rest = line;
    let mut field = || {
        rest = rest.trim_ascii_start();
        let end = rest.iter().position(|&byte| byte == b' ');
        let (field, behind) = rest.split_at(end.unwrap_or(rest.len()));
        rest = behind;
        std::str::from_utf8(field).ok()
    };
    let (range, perms, offset) = (field()?, field()?, field()?);
    let (_device, _inode) = (field()?, field()?);
    let (start, end) = range.split_once('-')?;
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let (start, end) = (hex(start)?, hex(end)?);
    (start < end).then_some(ProcessMapping {
        start,
        end,
        offset: hex(offset)?,
        is_writable: perms.contains('w'),
        is_code: perms.contains('x'),
        is_private: perms.contains('p'),
        path: rest.trim_ascii_start().to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_begins_with_its_headers() {
        let start = |text: &str, number| {
            let maps = parse(text.as_bytes());
            image_start(&maps, number).map(|map| map.start)
        };
        // GNU ld, with and without a page for the headers, lld, and two instances of one file.
        let separate = "1000-2000 r--p 0 0:0 7 /a\n2000-3000 r-xp 1000 0:0 7 /a\n";
        let joined = "1000-2000 r-xp 0 0:0 7 /a\n2000-3000 rw-p 0 0:0 7 /a\n";
        let lld =
            "1000-2000 r--p 0 0:0 7 /a\n2000-3000 r-xp 0 0:0 7 /a\n3000-4000 rw-p 1000 0:0 7 /a\n";
        let twice = "1000-2000 r-xp 0 0:0 7 /a\n2000-3000 r-xp 0 0:0 7 /a\n";
        let other = "1000-2000 r--p 0 0:0 7 /a\n2000-3000 r-xp 1000 0:0 8 /b\n";
        for (text, number, expected) in [
            (separate, 1, Some(0x1000)),
            (joined, 0, Some(0x1000)),
            (lld, 0, Some(0x1000)),
            (lld, 1, Some(0x1000)),
            (lld, 2, Some(0x1000)),
            (twice, 1, Some(0x2000)),
            (other, 1, None),
            (other, 2, None),
        ] {
            assert_eq!(start(text, number), expected, "{text}{number}");
        }
    }

    #[test]
    fn the_kernel_s_lines_are_read() {
        let text = b"55d0-55e0 r-xp 00000010 08:01 77    /bin/a b\n\
            7f20-7f30 rw-p 00000000 00:00 0\n\
            nonsense\n\
            9-1 rw-p 0 0 0\n\
            7f20-7f80 rw-p 00000000 00:00 0\n\
            7fff-8fff r-xp 00000000 00:00 0    [vdso]\n";
        let all = parse(text);
        assert_eq!(all.len(), 3);
        // It grew while the text was made.
        assert_eq!((all[1].start, all[1].end), (0x7f20, 0x7f80));
        assert_eq!(
            (all[0].start, all[0].end, all[0].offset),
            (0x55d0, 0x55e0, 0x10)
        );
        assert_eq!(all[0].path, b"/bin/a b");
        assert!(all[0].is_code && !all[0].is_writable);
        assert!(all[1].is_writable && all[1].path.is_empty());
        assert_eq!(all[2].path, b"[vdso]");
    }
}
