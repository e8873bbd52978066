//! What the kernel counts as a process's data (VmData), divided by what it is.
//!
//! VmData is the size of all mappings that the process alone may write, except its main stack. The
//! kernel lists them in /proc/self/smaps.

use crate::code::maps;

/// The parts of a process's data, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Data {
    /// All of it, except the engine's own mappings.
    pub(crate) all: u64,
    /// The engine's own mappings.
    pub(crate) own: u64,
    /// What the program's file and its libraries keep their variables in.
    pub(crate) of_files: u64,
}

/// A mapping while its lines are read.
#[derive(Clone, Copy, Default)]
struct Mapping {
    end: usize,
    len: u64,
    is_data: bool,
    is_of_file: bool,
    /// Whether its pages belong to the variables of a file that ends where it begins.
    follows_file: bool,
}

/// The data of this process; `None` if the kernel does not show it.
pub(crate) fn data() -> Option<Data> {
    let mut all = Data::default();
    let mut last: Option<Mapping> = None;
    maps::lines_of::<4096>(c"/proc/thread-self/smaps", |line| {
        if let Some(mapping) = mapping_of(line, last) {
            last = Some(mapping);
        } else if let (Some(flags), Some(mapping)) = (line.strip_prefix(b"VmFlags:"), last) {
            add(&mut all, mapping, flags);
        }
    });
    last.map(|_| all)
}

/// The mapping that a line begins, after the `last` one.
fn mapping_of(line: &[u8], last: Option<Mapping>) -> Option<Mapping> {
    let (start, end, rest) = maps::range(line)?;
    let flags = rest.get(..4)?;
    let mut fields = rest.split(|&byte| byte == b' ').filter(|f| !f.is_empty());
    let inode = fields.nth(3)?;
    let is_of_file = inode != b"0";
    Some(Mapping {
        end,
        len: (end - start) as u64,
        is_data: flags[1] == b'w' && flags[3] == b'p',
        is_of_file,
        follows_file: !is_of_file
            && fields.next().is_none()
            && last.is_some_and(|last| last.end == start && last.is_of_file),
    })
}

fn add(all: &mut Data, mapping: Mapping, flags: &[u8]) {
    let has = |wanted: &[u8]| flags.split(|&byte| byte == b' ').any(|flag| flag == wanted);
    // The main stack grows down.
    if !mapping.is_data || has(b"gd") {
        return;
    }
    // The engine marks its mappings in this way: see `sys::map`.
    if !mapping.is_of_file && has(b"rr") && has(b"nr") {
        all.own += mapping.len;
        return;
    }
    all.all += mapping.len;
    if mapping.is_of_file || mapping.follows_file {
        all.of_files += mapping.len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::sys;

    /// What the kernel itself adds up.
    fn counted() -> u64 {
        let text = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = text
            .lines()
            .find(|line| line.starts_with("VmData:"))
            .unwrap();
        let number = line.split_whitespace().nth(1).unwrap();
        number.parse::<u64>().unwrap() * 1024
    }

    #[test]
    fn the_parts_are_what_the_kernel_counts() {
        const LEN: usize = 3 << 20;
        let at = sys::map(LEN);
        assert!(!at.is_null());
        // Other tests may map something meanwhile.
        let is_right = || {
            let (before, data, after) = (counted(), data().unwrap(), counted());
            let sum = data.all + data.own;
            before == after && sum == before && data.own >= LEN as u64 && data.of_files > 0
        };
        assert!((0..100).any(|_| is_right()), "{:?} {}", data(), counted());
        // SAFETY: nobody refers to it.
        unsafe { sys::unmap(at, LEN) };
    }
}
