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
