//! How much of a process's memory is its own, and how much it shares: `/proc/PID/smaps_rollup`.

use std::io;

/// Bytes of a process that are in memory, as the kernel divides them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sharing {
    /// All of them.
    pub rss: u64,
    /// Its part: of a page that three processes have, each has a third.
    pub pss: u64,
    /// What it has alone and has written.
    pub private_dirty: u64,
    /// What it has alone and has not written.
    pub private_clean: u64,
    /// What others have, too, and somebody has written.
    pub shared_dirty: u64,
    /// What others have, too, and nobody has written.
    pub shared_clean: u64,
    /// What is swapped out, besides.
    pub swap: u64,
    /// What lies in huge pages that the kernel made of its own accord.
    pub huge: u64,
    /// What lies in huge pages of `hugetlbfs`, which other sums do not have.
    pub hugetlb: u64,
}

impl Sharing {
    /// Reads it of a process.
    ///
    /// # Errors
    /// The process may be gone, or not this user's to read.
    pub fn of(pid: u32) -> io::Result<Self> {
        std::fs::read(format!("/proc/{pid}/smaps_rollup"))
            .map(|text| Self::parse(&String::from_utf8_lossy(&text)))
    }

    fn parse(text: &str) -> Self {
        let mut all = Self::default();
        for line in text.lines() {
            let Some((name, rest)) = line.split_once(':') else {
                continue;
            };
            let number = rest.split_whitespace().next();
            let Some(kib) = number.and_then(|number| number.parse::<u64>().ok()) else {
                continue;
            };
            let to = match name {
                "Rss" => &mut all.rss,
                "Pss" => &mut all.pss,
                "Private_Dirty" => &mut all.private_dirty,
                "Private_Clean" => &mut all.private_clean,
                "Shared_Dirty" => &mut all.shared_dirty,
                "Shared_Clean" => &mut all.shared_clean,
                "Swap" => &mut all.swap,
                "AnonHugePages" => &mut all.huge,
                "Private_Hugetlb" | "Shared_Hugetlb" => &mut all.hugetlb,
                _ => continue,
            };
            *to = to.saturating_add(kib.saturating_mul(1024));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_s_lines_are_read() {
        let text = "55d0-7fff ---p 00000000 00:00 0    [rollup]\nRss:   12 kB\nPss:  5 kB\n\
            Pss_Dirty:  4 kB\nShared_Clean: 7 kB\nShared_Dirty: 2 kB\nPrivate_Clean: 1 kB\n\
            Private_Dirty:  2 kB\nAnonHugePages: 2048 kB\nSwap: 3 kB\nnonsense\nSwap: x kB\n\
            Private_Hugetlb: 1 kB\nShared_Hugetlb: 2 kB\n";
        let read = Sharing::parse(text);
        let kib = |n: u64| n * 1024;
        assert_eq!((read.rss, read.pss), (kib(12), kib(5)));
        assert_eq!((read.private_dirty, read.private_clean), (kib(2), kib(1)));
        assert_eq!((read.shared_dirty, read.shared_clean), (kib(2), kib(7)));
        assert_eq!(
            (read.swap, read.huge, read.hugetlb),
            (kib(3), kib(2048), kib(3))
        );
    }

    /// Its own sums can be read, and its parts are all there is.
    #[test]
    fn the_parts_are_the_whole() {
        let own = Sharing::of(std::process::id()).unwrap();
        let parts = [
            own.private_dirty,
            own.private_clean,
            own.shared_dirty,
            own.shared_clean,
        ];
        assert_eq!(parts.iter().sum::<u64>(), own.rss);
        assert!(own.rss > 0 && Sharing::of(0).is_err());
    }
}
