//! Reads the kernel's memory counters of a process in `/proc/PID/status`, and explains each
//! counter.

use std::io;

use crate::lines::bytes_of;

/// A memory counter in `/proc/PID/status`.
pub struct StatusCounter {
    /// The kernel's name of the counter.
    pub name: &'static str,
    /// The meaning of the counter, in a sentence.
    pub meaning: &'static str,
}

macro_rules! counters {
    ($($name:literal $meaning:literal;)*) => {
        /// The counters that are read, in the kernel's order.
        pub const COUNTERS: &[StatusCounter] =
            &[$(StatusCounter { name: $name, meaning: $meaning }),*];
    };
}

counters! {
    "VmPeak" "The largest address space that it ever had mapped (the peak of VmSize).";
    "VmSize" "Address space that is mapped now, touched or not: VIRT in top, VSZ in ps.";
    "VmLck" "Memory that it has locked (mlock), so that it is not swapped out.";
    "VmPin" "Memory that a device or the kernel has pinned.";
    "VmHWM" "The most that it ever had in memory (the peak of VmRSS), its \"high water mark\".";
    "VmRSS" "Memory that is resident now: RES in top. The sum of RssAnon, RssFile and RssShmem.";
    "RssAnon" "The part that is not from a file: heap, stacks, and private copies of file pages.";
    "RssFile" "The part that is from files: code, and files that it has mapped.";
    "RssShmem" "The part that is shared memory and tmpfs.";
    "VmData" "Address space of private writable memory, without the first thread's stack.";
    "VmStk" "Address space of the first thread's stack. Other threads' stacks are in VmData.";
    "VmExe" "Address space of the program's own code.";
    "VmLib" "Address space of the code of libraries.";
    "VmPTE" "The kernel's page tables for it. They are not in VmRSS.";
    "VmSwap" "The part of its private memory that is swapped out. Shared memory is not included.";
    "HugetlbPages" "Huge pages of hugetlbfs. They are not in VmRSS.";
}

/// The value of each counter in [`COUNTERS`], in the order of that list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusCounters(Vec<Option<u64>>);

impl StatusCounters {
    /// Reads the counters of a process.
    ///
    /// # Errors
    /// The process may be gone.
    pub fn from_pid(pid: u32) -> io::Result<Self> {
        Ok(Self::parse(&crate::read(pid, "status")?))
    }

    fn parse(text: &str) -> Self {
        let found: Vec<(&str, u64)> = text.lines().filter_map(bytes_of).collect();
        let value = |counter: &StatusCounter| {
            let line = found.iter().find(|(name, _)| *name == counter.name);
            line.map(|(_, bytes)| *bytes)
        };
        Self(COUNTERS.iter().map(value).collect())
    }

    /// Returns each counter with its value in bytes. The value is `None` if this kernel does not
    /// report the counter.
    pub fn iter(&self) -> impl Iterator<Item = (&'static StatusCounter, Option<u64>)> {
        COUNTERS.iter().zip(self.0.iter().copied())
    }

    /// Returns the value of the counter with this name, in bytes.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<u64> {
        self.iter().find(|(counter, _)| counter.name == name)?.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_by_their_names() {
        let read = StatusCounters::parse(
            "Name:\tVmRSS: 9 kB\nVmPeak:\t  12 kB\nVmRSS:\t3 kB\nThreads:\t4\n",
        );
        assert_eq!(read.get("VmPeak"), Some(12 << 10));
        assert_eq!(read.get("VmRSS"), Some(3 << 10));
        assert_eq!((read.get("VmHWM"), read.get("Threads")), (None, None));
        assert_eq!(read.iter().count(), COUNTERS.len());
        let own = StatusCounters::from_pid(std::process::id()).unwrap();
        assert!(own.get("VmHWM") >= own.get("RssAnon"));
    }
}
