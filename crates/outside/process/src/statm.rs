//! Reads `/proc/PID/statm`: the few numbers that cost least to read.

use std::io;

/// Sizes of a process's memory in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatmSizes {
    /// Mapped addresses (VmSize).
    pub size: u64,
    /// Memory that is resident (VmRSS).
    pub rss: u64,
    /// Resident memory that belongs to files, or is shared memory.
    pub shared: u64,
    /// Addresses of code.
    pub text: u64,
    /// Addresses of private memory that can be written, with stacks (VmData and VmStk).
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

    /// Reads the text of `/proc/PID/statm`; `None` if it is malformed.
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
