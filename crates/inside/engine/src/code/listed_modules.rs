//! Reads the loaded objects from the kernel's list of mappings and from the loader's list, for a
//! libc without `_dl_find_object`. No lock of the loader is taken, because this happens in the
//! middle of allocations: another thread may have that lock, and wait for the thread that
//! allocates.
//!
//! The kernel says what is mapped, and the object's headers say where its unwind tables are. The
//! loader's list says which of the mapped files are loaded. It may change at any time, so it is
//! read through the kernel, which checks that the memory is mapped.

use heapprof_platform::{loader, sys};

use crate::code::image::{ImageLayout, MappedImage};
use heapprof_platform::maps;

/// A loaded object, with its entry in the loader's list.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ListedModule {
    pub(crate) layout: ImageLayout,
    /// Address of the entry; 0 if it is not known.
    entry: usize,
}

impl ListedModule {
    /// Makes a module whose entry in the loader's list is not known.
    pub(crate) fn from_layout(layout: ImageLayout) -> Self {
        Self { layout, entry: 0 }
    }

    /// Whether the object is still in the loader's list. An object without an entry may be one that
    /// was being loaded when the list was read, which ended at `end`. libc closes some objects
    /// without calling dlclose, such as those that convert characters.
    pub(crate) fn is_current(&self, end: ListEnd) -> bool {
        match (self.entry, self.layout.dynamic) {
            (0, 0) => true,
            (0, _) => !end.has_grown(),
            (entry, dynamic) => is_listed(entry, dynamic),
        }
    }
}

/// An entry of the loader's list: the beginning of `struct link_map`.
struct ListEntry {
    at: usize,
    base: usize,
    dynamic: usize,
    next: usize,
    previous: usize,
}

impl ListEntry {
    /// Reads the entry at an address; `None` if that is not mapped.
    fn read(at: usize) -> Option<Self> {
        let mut words = [0; 40];
        if at == 0 || sys::read_memory(at, &mut words) != words.len() {
            return None;
        }
        let (words, _) = words.as_chunks();
        let [base, _, dynamic, next, previous] =
            std::array::from_fn(|i| usize::from_ne_bytes(words[i]));
        Some(Self {
            at,
            base,
            dynamic,
            next,
            previous,
        })
    }
}

/// Whether the loader's list leads to the entry at an address, which once was the entry of the
/// object with this dynamic section. The memory of an entry may have become that of another entry.
fn is_listed(entry: usize, dynamic: usize) -> bool {
    let Some(own) = ListEntry::read(entry).filter(|own| own.dynamic == dynamic) else {
        return false;
    };
    match own.previous {
        0 => entry == loader::first_map(),
        previous => ListEntry::read(previous).is_some_and(|before| before.next == entry),
    }
}

/// The end of the loader's list, at the moment when it was read. New objects are added there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListEnd {
    /// Address of the last entry; 0 if there is none.
    entry: usize,
    /// Address of that object's dynamic section.
    dynamic: usize,
}

impl ListEnd {
    /// The end of a list that is not known.
    pub(crate) const NONE: Self = Self {
        entry: 0,
        dynamic: 0,
    };

    /// Whether the list may have more objects by now. True if there is no list.
    pub(crate) fn has_grown(self) -> bool {
        let is_last = || ListEntry::read(self.entry).is_some_and(|entry| entry.next == 0);
        self.entry == 0 || !is_last() || !is_listed(self.entry, self.dynamic)
    }
}

/// Maximum number of objects that are read.
pub(crate) const MAX_MODULES: usize = 1024;

/// Returns the loaded objects, and the end of the loader's list. `None` if the kernel does not let
/// this process read its memory, or does not list its mappings.
pub(crate) fn read() -> Option<(Vec<ListedModule>, ListEnd)> {
    let entries = read_entries();
    // An object that is loaded from here on makes the list longer.
    let end = entries.last().map_or(ListEnd::NONE, |last| ListEnd {
        entry: last.at,
        dynamic: last.dynamic,
    });
    let mut modules = Vec::with_capacity(MAX_MODULES);
    let mut candidate: Option<(FileId, ImageLayout)> = None;
    maps::for_each_line::<512>(|line| {
        let Some(mapping) = KernelMapping::parse(line) else {
            return;
        };
        if mapping.offset == 0 && (mapping.file.is_file() || line.ends_with(b"[vdso]")) {
            // Some linkers (lld) put the headers and the beginning of the code into one page of the
            // file, which is then mapped twice.
            let layout = MappedImage::layout(mapping.start);
            let layout = layout.filter(|layout| layout.begins_with_code == mapping.is_code);
            candidate = layout.map(|layout| (mapping.file, layout)).or(candidate);
        }
        let Some((file, layout)) = candidate else {
            return;
        };
        let entry = entries
            .iter()
            .find(|entry| layout.dynamic != 0 && entry.dynamic == layout.dynamic);
        let is_code = mapping.is_code
            && mapping.file == file
            && (layout.start..layout.end).contains(&mapping.start);
        if (is_code || entry.is_some()) && modules.len() < MAX_MODULES {
            modules.push(ListedModule {
                layout,
                entry: entry.map_or(0, |entry| entry.at),
            });
            candidate = None;
        }
    });
    if modules.is_empty() {
        return None;
    }
    add_unmapped(&entries, &mut modules);
    Some((modules, end))
}

/// Adds the objects whose first mapping is not that of a file's beginning, as in a program that was
/// unpacked into memory.
fn add_unmapped(entries: &[ListEntry], modules: &mut Vec<ListedModule>) {
    for entry in entries {
        let is_it = |module: &ListedModule| module.layout.dynamic == entry.dynamic;
        if modules.len() == MAX_MODULES || modules.iter().any(is_it) {
            continue;
        }
        let layout = MappedImage::layout(entry.base);
        if let Some(layout) = layout.filter(|layout| layout.dynamic == entry.dynamic) {
            modules.push(ListedModule {
                layout,
                entry: entry.at,
            });
        }
    }
}

fn read_entries() -> Vec<ListEntry> {
    let mut entries = Vec::with_capacity(MAX_MODULES);
    let mut at = loader::first_map();
    while let Some(entry) = ListEntry::read(at).filter(|_| entries.len() < MAX_MODULES) {
        at = entry.next;
        entries.push(entry);
    }
    entries
}

/// The numbers of a file's device and of the file.
#[derive(Clone, Copy, PartialEq, Eq)]
struct FileId {
    device: (usize, usize),
    inode: u64,
}

impl FileId {
    fn is_file(self) -> bool {
        self.inode != 0
    }
}

/// A mapping, as the kernel lists it.
struct KernelMapping {
    start: usize,
    offset: usize,
    file: FileId,
    is_code: bool,
}

impl KernelMapping {
    /// Parses a line, `start-end rights offset major:minor inode path`.
    fn parse(line: &[u8]) -> Option<Self> {
        let (start, _, rest) = maps::parse_range(line)?;
        let (rights, rest) = rest.split_at_checked(4)?;
        let (offset, n) = maps::parse_hex(rest.strip_prefix(b" ")?);
        let rest = rest.get(n + 1..)?.strip_prefix(b" ")?;
        let (major, n) = maps::parse_hex(rest);
        let rest = rest.get(n..)?.strip_prefix(b":")?;
        let (minor, n) = maps::parse_hex(rest);
        let rest = rest.get(n..)?.strip_prefix(b" ")?;
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit());
        let inode = digits.fold(0u64, |number, digit| {
            number
                .wrapping_mul(10)
                .wrapping_add(u64::from(digit - b'0'))
        });
        Some(Self {
            start,
            offset,
            file: FileId {
                device: (major, minor),
                inode,
            },
            is_code: rights.get(2) == Some(&b'x'),
        })
    }
}

#[cfg(all(test, not(any(miri, shuttle))))]
mod tests {
    use heapprof_platform::weak;

    use super::*;

    #[test]
    fn a_line_is_parsed() {
        let of = |line: &str| {
            let mapping = KernelMapping::parse(line.as_bytes())?;
            let FileId { device, inode } = mapping.file;
            Some((
                mapping.start,
                mapping.offset,
                device,
                inode,
                mapping.is_code,
            ))
        };
        assert_eq!(
            of("7f10-7f20 r-xp 0000a000 fd:12 4711 /usr/lib/libc.so.6"),
            Some((0x7f10, 0xa000, (0xfd, 0x12), 4711, true))
        );
        assert_eq!(
            of("7f10-7f20 rw-p 00000000 00:00 0"),
            Some((0x7f10, 0, (0, 0), 0, false))
        );
        for line in [
            "",
            "7f10",
            "7f10-7f20 r-x",
            "7f10-7f20 r-xp 0 12",
            "x-y r-xp 0 0:0 0",
        ] {
            assert_eq!(of(line), None, "{line}");
        }
    }

    /// Checks that each object has the addresses that the loader itself finds.
    #[test]
    fn the_objects_are_those_of_the_loader() {
        let (modules, end) = read().unwrap();
        let functions = [
            read as *const () as usize,
            libc::getpid as *const () as usize,
            libc::getauxval as *const () as usize,
        ];
        for address in functions {
            let holds = |m: &&ListedModule| (m.layout.start..m.layout.end).contains(&address);
            let found = modules.iter().find(holds).unwrap();
            assert!(found.is_current(end));
            if let Some(expected) = weak::dl_find_object(address) {
                assert_eq!(found.layout.start, expected.map_start);
                assert_eq!(found.layout.end, expected.map_end);
                assert_eq!(found.layout.eh_frame_hdr, expected.eh_frame);
            }
        }
        let other = ListedModule {
            entry: functions[0],
            ..modules[0]
        };
        assert!(!other.is_current(end));
        a_change_of_the_list_is_noticed();
    }

    /// Checks that an object is noticed that is loaded later, and one that is closed. It is no test
    /// of its own, because no other test may load objects meanwhile.
    fn a_change_of_the_list_is_noticed() {
        let (_, before) = read().unwrap();
        assert!(!before.has_grown());
        let open = || {
            // SAFETY: a library of libc, which has no constructors that do harm.
            unsafe { libc::dlopen(c"libutil.so.1".as_ptr(), libc::RTLD_NOW) }
        };
        let handle = open();
        if handle.is_null() {
            return;
        }
        assert!(before.has_grown());
        let (modules, after) = read().unwrap();
        assert!(!after.has_grown());
        // SAFETY: the handle of a library that nothing uses.
        unsafe { libc::dlclose(handle) };
        let gone = modules
            .iter()
            .filter(|m| m.entry != 0 && !m.is_current(after));
        assert_eq!((gone.count(), after.has_grown()), (1, true));
    }
}
