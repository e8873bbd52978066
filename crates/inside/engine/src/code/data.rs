//! The memory that the kernel counts as a process's data (VmData), divided by its use.
//!
//! VmData is the size of all private writable mappings, except the main stack. The kernel lists the
//! mappings in /proc/thread-self/smaps.

use heapprof_platform::sys;

use heapprof_platform::maps;

/// The sizes of a process's data by use, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProcessData {
    /// Size of all data, without the engine's own mappings.
    pub(crate) all: u64,
    /// Size of the engine's own mappings.
    pub(crate) own: u64,
    /// Size of the variables of the program's file and of its libraries.
    pub(crate) of_files: u64,
}

/// A mapping of /proc/thread-self/smaps while its lines are parsed.
#[derive(Clone, Copy, Default)]
struct DataMapping {
    end: usize,
    len: u64,
    is_data: bool,
    is_of_file: bool,
    /// Number of bytes of the mapping that are variables: the whole mapping if it is of a file, or
    /// the beginning of an anonymous mapping that follows the mapping of a file.
    of_file: u64,
}

/// Returns the data of this process; `None` if the kernel does not show it. `end_of` returns the
/// end of the loaded object that contains an address. If an anonymous mapping follows the mapping
/// of a file, its bytes count as the file's variables only up to the end of the object. The kernel
/// may have merged the variables with an unrelated mapping, or the whole mapping may be unrelated.
pub(crate) fn read_data(end_of: impl Fn(usize) -> Option<usize>) -> Option<ProcessData> {
    let mut all = ProcessData::default();
    let mut last: Option<DataMapping> = None;
    maps::for_each_line_in::<4096>(c"/proc/thread-self/smaps", |line| {
        if let Some(mapping) = parse_mapping(line, last, &end_of) {
            last = Some(mapping);
        } else if let (Some(flags), Some(mapping)) = (line.strip_prefix(b"VmFlags:"), last) {
            add(&mut all, mapping, flags);
        }
    });
    last.map(|_| all)
}

/// Parses the first line of a mapping. `last` is the mapping before it.
fn parse_mapping(
    line: &[u8],
    last: Option<DataMapping>,
    end_of: &impl Fn(usize) -> Option<usize>,
) -> Option<DataMapping> {
    let (start, end, rest) = maps::parse_range(line)?;
    let flags = rest.get(..4)?;
    let mut fields = rest.split(|&byte| byte == b' ').filter(|f| !f.is_empty());
    let inode = fields.nth(3)?;
    let (is_of_file, len) = (inode != b"0", (end - start) as u64);
    let follows = !is_of_file
        && fields.next().is_none()
        && last.is_some_and(|last| last.end == start && last.is_of_file);
    let of_file = match (is_of_file, follows) {
        (true, _) => len,
        (_, true) => {
            let object = end_of(start - 1).unwrap_or(start);
            (object
                .next_multiple_of(sys::PAGE_SIZE)
                .saturating_sub(start) as u64)
                .min(len)
        }
        _ => 0,
    };
    Some(DataMapping {
        end,
        len,
        is_data: flags[1] == b'w' && flags[3] == b'p',
        is_of_file,
        of_file,
    })
}

fn add(all: &mut ProcessData, mapping: DataMapping, flags: &[u8]) {
    let has = |wanted: &[u8]| flags.split(|&byte| byte == b' ').any(|flag| flag == wanted);
    // The main stack has this flag, because it grows down.
    if !mapping.is_data || has(b"gd") {
        return;
    }
    // The engine marks its mappings in this way: see `sys::map`.
    if !mapping.is_of_file && has(b"rr") && has(b"nr") {
        all.own += mapping.len;
        return;
    }
    all.all += mapping.len;
    all.of_files += mapping.of_file;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the kernel's VmData of this process, in bytes.
    fn counted() -> u64 {
        let text = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = text
            .lines()
            .find(|line| line.starts_with("VmData:"))
            .unwrap();
        let number = line.split_whitespace().nth(1).unwrap();
        number.parse::<u64>().unwrap() * 1024
    }

    /// Tests that the memory behind a file counts as variables only up to the end of the object.
    #[test]
    fn variables_end_where_the_object_ends() {
        let file = b"7f0000000000-7f0000002000 rw-p 00001000 08:01 77 /usr/lib/a.so";
        let behind = b"7f0000002000-7f0000009000 rw-p 00000000 00:00 0";
        let heap = b"7f0000002000-7f0000009000 rw-p 00000000 00:00 0 [heap]";
        let apart = b"7f0000003000-7f0000009000 rw-p 00000000 00:00 0";
        let of = |end: Option<usize>, line: &[u8]| {
            let file = parse_mapping(file, None, &|_| None).unwrap();
            assert_eq!(file.of_file, 0x2000);
            parse_mapping(line, Some(file), &|address| {
                assert_eq!(address, 0x7f00_0000_1fff);
                end
            })
            .unwrap()
            .of_file
        };
        assert_eq!(of(Some(0x7f00_0000_3808), behind), 0x2000);
        assert_eq!(of(Some(0x7f00_0000_1808), behind), 0);
        assert_eq!(of(Some(0x7f00_0001_0000), behind), 0x7000);
        assert_eq!(of(None, behind), 0);
        assert_eq!(of(Some(0x7f00_0000_3808), heap), 0);
        assert_eq!(of(Some(0x7f00_0000_3808), apart), 0);
    }

    #[test]
    fn the_parts_are_what_the_kernel_counts() {
        const LEN: usize = 3 << 20;
        let at = sys::map(LEN);
        assert!(!at.is_null());
        // Other tests may map something meanwhile.
        let is_right = || {
            let (before, data, after) = (counted(), read_data(|_| None).unwrap(), counted());
            let sum = data.all + data.own;
            before == after && sum == before && data.own >= LEN as u64 && data.of_files > 0
        };
        assert!(
            (0..100).any(|_| is_right()),
            "{:?} {}",
            read_data(|_| None),
            counted()
        );
        // SAFETY: nothing refers to the mapping.
        unsafe { sys::unmap(at, LEN) };
    }
}
