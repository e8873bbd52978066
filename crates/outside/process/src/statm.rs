//! Reads `/proc/PID/statm`, whose few numbers are the cheapest to read.

use std::io;

/// Sizes of a process's memory in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatmSizes {
    /// Bytes of mapped addresses (VmSize).
    pub size: u64,
    /// Bytes of resident memory (VmRSS).
    pub rss: u64,
    /// Bytes of resident memory that belong to files or are shared memory.
    pub shared: u64,
    /// Bytes of code addresses.
    pub text: u64,
    /// Bytes of addresses for private writable memory, with stacks (VmData and VmStk).
    pub data: u64,
}

impl StatmSizes {
    /// Reads the sizes of a process.
    ///
    /// # Errors
    /// The process may be gone.
    pub fn from_pid(pid: u32) -> io::Result<Self> {
        Self::parse(&crate::read(pid, "statm")?).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Parses the text of `/proc/PID/statm`; `None` if it is malformed.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let page = rustix::param::page_size() as u64;
        // size resident shared text lib data dt
        let mut fields = text.split_whitespace();
        let mut next = || Some(fields.next()?.parse::<u64>().ok()?.saturating_mul(page));
        let (size, rss, shared, text) = (next()?, next()?, next()?, next()?);
        let _lib = next()?;
        Some(Self {
            size,
            rss,
            shared,
            text,
            data: next()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_become_bytes() {
        let page = rustix::param::page_size() as u64;
        let read = StatmSizes::parse("9 5 3 2 0 4 0\n").unwrap();
        let found = [read.size, read.rss, read.shared, read.text, read.data];
        assert_eq!(found, [9, 5, 3, 2, 4].map(|pages| pages * page));
        for wrong in ["", "1 2 3", "a b c d e f g"] {
            assert_eq!(StatmSizes::parse(wrong), None, "{wrong}");
        }
        assert!(StatmSizes::from_pid(std::process::id()).unwrap().rss > 0);
    }
}
