//! Reads the memory of a process or a mapping by the kernel's categories: the lines of
//! `/proc/PID/smaps` and `/proc/PID/smaps_rollup`.

use std::io;

use crate::lines::bytes_of;

/// The memory of a process or a mapping in bytes, by the kernel's categories. All categories but
/// `size`, `swap`, `swap_pss` and `hugetlb` are parts of the resident memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUsage {
    /// Mapped addresses; 0 in sums from `smaps_rollup`, which does not have them.
    pub size: u64,
    /// All memory that is resident.
    pub rss: u64,
    /// Proportional share of the resident memory: a page of three processes counts a third for
    /// each.
    pub pss: u64,
    /// Memory that no other process has mapped, and that was not written.
    pub private_clean: u64,
    /// Memory that no other process has mapped, and that was written.
    pub private_dirty: u64,
    /// Memory that other processes have mapped, too, and that was not written.
    pub shared_clean: u64,
    /// Memory that other processes have mapped, too, and that was written.
    pub shared_dirty: u64,
    /// Memory that belongs to no file.
    pub anonymous: u64,
    /// Memory that was accessed recently.
    pub referenced: u64,
    /// Proportional share of the memory that may not be swapped out.
    pub locked: u64,
    /// Memory that the process no longer needs, so that the kernel may take it when memory is
    /// short.
    pub lazy_free: u64,
    /// Memory that is swapped out. It is not in `rss`.
    pub swap: u64,
    /// Proportional share of the memory that is swapped out.
    pub swap_pss: u64,
    /// Memory in transparent huge pages, which the kernel makes by itself.
    pub huge: u64,
    /// Memory in huge pages of `hugetlbfs`, which is in no other category.
    pub hugetlb: u64,
}

/// A field of [`MemoryUsage`].
pub struct UsageField {
    /// The field's name in reports: the kernel's word in lower case, except for `uss`.
    pub name: &'static str,
    /// The meaning of the field, in a sentence.
    pub meaning: &'static str,
    /// Returns the bytes of the field.
    pub get: fn(&MemoryUsage) -> u64,
    /// Sets the bytes of the field. Does nothing for a field that is computed from others.
    pub set: fn(&mut MemoryUsage, u64),
}

macro_rules! field {
    ($name:ident, $meaning:literal) => {
        UsageField {
            name: stringify!($name),
            meaning: $meaning,
            get: |usage| usage.$name,
            set: |usage, bytes| usage.$name = bytes,
        }
    };
}

/// The fields, in the order of reports.
pub const USAGE_FIELDS: &[UsageField] = &[
    field!(
        size,
        "Address space that is mapped. It costs nothing until it is touched."
    ),
    field!(
        rss,
        "Memory that is resident, including what other processes share."
    ),
    field!(
        pss,
        "Its proportional share: of a page that three processes share, each has a third. Over all \
         processes, the shares add up to what they use together."
    ),
    UsageField {
        name: "uss",
        meaning: "Memory that only it has (private_clean and private_dirty): it is freed when the \
                  process ends.",
        get: MemoryUsage::uss,
        set: |_, _| {},
    },
    field!(
        private_clean,
        "Memory that only it has and has not written to. It is also in a file, so the kernel can \
         drop it."
    ),
    field!(
        private_dirty,
        "Memory that only it has, and has written to."
    ),
    field!(
        shared_clean,
        "Memory that other processes have mapped, too, and that none has written to."
    ),
    field!(
        shared_dirty,
        "Memory that other processes have mapped, too, and one has written to: before a fork, or \
         in shared memory."
    ),
    field!(
        anonymous,
        "Memory that is not from a file: heap, stacks, and private copies of file pages."
    ),
    field!(
        referenced,
        "Memory that was accessed since the kernel last checked."
    ),
    field!(
        locked,
        "Its proportional share of the memory that is locked (mlock)."
    ),
    field!(
        lazy_free,
        "Memory that it gave back (MADV_FREE), which still counts until the kernel takes it."
    ),
    field!(swap, "Memory that is swapped out. It is not in rss."),
    field!(swap_pss, "Its proportional share of what is swapped out."),
    field!(
        huge,
        "The part of rss in huge pages that the kernel chose (THP)."
    ),
    field!(
        hugetlb,
        "hugetlbfs huge pages. The kernel counts them neither in rss nor in pss."
    ),
];

impl MemoryUsage {
    /// Reads the sums of a process's memory.
    ///
    /// # Errors
    /// The process may be gone, or this user may not read it.
    pub fn from_pid(pid: u32) -> io::Result<Self> {
        let text = crate::read(pid, "smaps_rollup")?;
        let mut all = Self::default();
        text.lines().for_each(|line| all.take(line));
        Ok(all)
    }

    /// Adds the number in a line of the kernel, if the line belongs to a field.
    pub(crate) fn take(&mut self, line: &str) {
        let Some((name, bytes)) = bytes_of(line) else {
            return;
        };
        let to = match name {
            "Size" => &mut self.size,
            "Rss" => &mut self.rss,
            "Pss" => &mut self.pss,
            "Private_Clean" => &mut self.private_clean,
            "Private_Dirty" => &mut self.private_dirty,
            "Shared_Clean" => &mut self.shared_clean,
            "Shared_Dirty" => &mut self.shared_dirty,
            "Anonymous" => &mut self.anonymous,
            "Referenced" => &mut self.referenced,
            "Locked" => &mut self.locked,
            "LazyFree" => &mut self.lazy_free,
            "Swap" => &mut self.swap,
            "SwapPss" => &mut self.swap_pss,
            "AnonHugePages" | "ShmemPmdMapped" | "FilePmdMapped" => &mut self.huge,
            "Private_Hugetlb" | "Shared_Hugetlb" => &mut self.hugetlb,
            _ => return,
        };
        *to = to.saturating_add(bytes);
    }

    /// Returns the memory that no other process has mapped, clean or dirty, in bytes.
    #[must_use]
    pub fn uss(&self) -> u64 {
        self.private_clean.saturating_add(self.private_dirty)
    }

    /// Adds the bytes of `other`, field by field.
    pub fn add(&mut self, other: &Self) {
        *self = self.each(other, u64::saturating_add);
    }

    /// Subtracts the bytes of `other`, field by field; the result is 0 where `other` has more.
    #[must_use]
    pub fn less(&self, other: &Self) -> Self {
        self.each(other, u64::saturating_sub)
    }

    fn each(&self, other: &Self, of: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            size: of(self.size, other.size),
            rss: of(self.rss, other.rss),
            pss: of(self.pss, other.pss),
            private_clean: of(self.private_clean, other.private_clean),
            private_dirty: of(self.private_dirty, other.private_dirty),
            shared_clean: of(self.shared_clean, other.shared_clean),
            shared_dirty: of(self.shared_dirty, other.shared_dirty),
            anonymous: of(self.anonymous, other.anonymous),
            referenced: of(self.referenced, other.referenced),
            locked: of(self.locked, other.locked),
            lazy_free: of(self.lazy_free, other.lazy_free),
            swap: of(self.swap, other.swap),
            swap_pss: of(self.swap_pss, other.swap_pss),
            huge: of(self.huge, other.huge),
            hugetlb: of(self.hugetlb, other.hugetlb),
        }
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
        let mut read = MemoryUsage::default();
        text.lines().for_each(|line| read.take(line));
        let kib = |n: u64| n * 1024;
        assert_eq!((read.rss, read.pss), (kib(12), kib(5)));
        assert_eq!((read.private_dirty, read.private_clean), (kib(2), kib(1)));
        assert_eq!((read.shared_dirty, read.shared_clean), (kib(2), kib(7)));
        assert_eq!(
            (read.swap, read.huge, read.hugetlb),
            (kib(3), kib(2048), kib(3))
        );
        assert_eq!(read.uss(), kib(3));
        let mut both = read;
        both.add(&read);
        assert_eq!(both.less(&read), read);
    }

    /// Tests that a process can read its own sums, and that the parts add up to all resident
    /// memory.
    #[test]
    fn the_parts_are_the_whole() {
        let own = MemoryUsage::from_pid(std::process::id()).unwrap();
        let parts = [
            own.private_dirty,
            own.private_clean,
            own.shared_dirty,
            own.shared_clean,
        ];
        assert_eq!(parts.iter().sum::<u64>(), own.rss);
        assert!(own.rss > 0 && MemoryUsage::from_pid(0).is_err());
    }

    #[test]
    fn names_are_told_apart() {
        let mut names: Vec<&str> = USAGE_FIELDS.iter().map(|field| field.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), USAGE_FIELDS.len());
    }
}
