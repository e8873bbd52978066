//! The files of loaded objects, mapped to be read.

use std::ffi::{CStr, CString};

use heapprof_platform::loader::ListedObject;
use heapprof_platform::maps;
use heapprof_platform::sys::{self, EngineFile, PAGE_SIZE};
use object::read::elf::{ElfFile64, ProgramHeader as _};
use object::{Endianness, Object as _, elf};

/// A file that is mapped to be read.
pub(super) struct MappedFile(&'static [u8]);

impl MappedFile {
    /// Maps a regular file. Returns `None` if it can't be read.
    fn open(path: &CStr) -> Option<Self> {
        let file: EngineFile = sys::open_regular(path)?;
        let len = usize::try_from(file.stat()?.st_size).ok()?;
        let at = sys::map_to_read(&file, len);
        if len == 0 || at.is_null() {
            return None;
        }
        // SAFETY: the file's bytes are mapped until this is dropped. The files of running programs
        // are not made shorter: that would end the program, too.
        Some(Self(unsafe { std::slice::from_raw_parts(at, len) }))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.0
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own.
        unsafe { sys::unmap(self.0.as_ptr().cast_mut(), self.0.len()) };
    }
}

/// An executable segment of a loaded object.
#[derive(Clone, Copy)]
pub(super) struct CodeSegment {
    /// Where it begins in the file.
    pub offset: usize,
    /// Its address in the process.
    pub start: usize,
    /// Number of its bytes in the file.
    pub len: usize,
}

/// The file of a loaded object.
pub(super) struct ObjectFile {
    mapped: MappedFile,
    path: CString,
    /// What is added to the addresses in the file.
    pub base: usize,
    /// The executable segments.
    segments: Vec<CodeSegment>,
    /// Address of the file's first bytes in the process, and their number: at most a page.
    head: (usize, usize),
}

impl ObjectFile {
    /// Opens the file of an object in the loader's list. Returns `None` if it has none, or if it
    /// can't be read.
    pub(super) fn open(object: &ListedObject<'_>) -> Option<Self> {
        if !object.is_program {
            return Self::open_at(object, object.path.to_owned());
        }
        // A program that was started by the loader's name is another file.
        Self::open_at(object, c"/proc/self/exe".to_owned())
            .filter(Self::is_loaded)
            .or_else(|| Self::open_at(object, path_at(object.dynamic)?))
    }

    fn open_at(object: &ListedObject<'_>, path: CString) -> Option<Self> {
        let mapped = MappedFile::open(&path)?;
        let file = ElfFile64::<Endianness>::parse(mapped.0).ok()?;
        let (mut segments, mut head) = (Vec::new(), (0, 0));
        for header in file.elf_program_headers() {
            let endian = Endianness::Little;
            if header.p_type(endian) != elf::PT_LOAD {
                continue;
            }
            let start = object.base.wrapping_add(header.p_vaddr(endian) as usize);
            let (offset, len) = (header.p_offset(endian), header.p_filesz(endian) as usize);
            if offset == 0 {
                head = (start, len.min(PAGE_SIZE));
            }
            if header.p_flags(endian).0 & elf::PF_X.0 != 0 {
                segments.push(CodeSegment {
                    offset: offset as usize,
                    start,
                    len,
                });
            }
        }
        Some(Self {
            mapped,
            path,
            base: object.base,
            segments,
            head,
        })
    }

    /// Returns the bytes of the file.
    pub(super) fn bytes(&self) -> &[u8] {
        self.mapped.0
    }

    /// Whether the file begins as the object does in memory, with its build id. A file of that name
    /// may have taken its place.
    pub(super) fn is_loaded(&self) -> bool {
        let (at, len) = self.head;
        let mut loaded = [0; PAGE_SIZE];
        let loaded = &mut loaded[..len];
        len != 0 && sys::read_memory(at, loaded) == len && self.bytes().get(..len) == Some(&*loaded)
    }

    /// Returns the segment of the object's code that contains an address of the process.
    pub(super) fn segment(&self, address: usize) -> Option<CodeSegment> {
        let mut segments = self.segments.iter().copied();
        segments.find(|one| (one.start..one.start + one.len).contains(&address))
    }

    /// Opens the file with the symbols for debuggers, by the build id.
    pub(super) fn debug_file(&self) -> Option<MappedFile> {
        let file = ElfFile64::<Endianness>::parse(self.bytes()).ok()?;
        let id = file.build_id().ok()??;
        let (first, rest) = id.split_first()?;
        let mut path = format!("/usr/lib/debug/.build-id/{first:02x}/");
        for byte in rest {
            path.push_str(&format!("{byte:02x}"));
        }
        path.push_str(".debug");
        let found = MappedFile::open(&CString::new(path).ok()?)?;
        let debug = ElfFile64::<Endianness>::parse(found.0).ok()?;
        (debug.build_id().ok()? == Some(id)).then_some(found)
    }

    /// Returns the path of the file, to be shown. The kernel knows the whole path; the loader has
    /// the one that the program gave.
    pub(super) fn shown_path(&self) -> String {
        let path = path_at(self.head.0).unwrap_or_else(|| self.path.clone());
        path.to_string_lossy().into_owned()
    }
}

/// Returns the path of the file that is mapped at an address.
fn path_at(address: usize) -> Option<CString> {
    let mut found = None;
    maps::for_each_line::<8192>(|line| {
        if let Some((start, end, rest)) = maps::parse_range(line)
            && (start..end).contains(&address)
        {
            let path = rest.iter().position(|&byte| byte == b'/');
            let path = path.map(|from| maps::unescape_path(&rest[from..]));
            found = path.and_then(|path| CString::new(path).ok());
        }
    });
    found
}
