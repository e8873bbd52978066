//! ELF files: build ids, links to debug files, and conversion of mapped addresses to virtual
//! addresses.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use object::{
    CompressionFormat, Object, ObjectSection, ObjectSegment, SectionFlags, SegmentFlags, elf,
};

use crate::storage::FileStorage;
use crate::summary::SymbolizeWarning;

/// An open ELF file.
pub(crate) struct ElfBinary<'a> {
    pub(crate) path: PathBuf,
    pub(crate) data: &'a [u8],
    pub(crate) object: object::File<'a>,
}

/// Largest ratio by which zlib can compress data; real debug information is compressed less. The
/// limit exists because memory of the claimed size is allocated.
const MAX_COMPRESSION_RATIO: u64 = 1032;

/// Inflated size, in bytes, up to which sections are accepted at any ratio, because they do no
/// harm. zstd can compress a few repeated bytes beyond [`MAX_COMPRESSION_RATIO`].
const ALWAYS_ACCEPTED_BYTES: u64 = 64 << 20;

/// The range and the file offset of a mapping.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MappedRange {
    pub(crate) memory_start: u64,
    pub(crate) memory_limit: u64,
    pub(crate) file_offset: u64,
}

impl<'a> ElfBinary<'a> {
    /// Opens an ELF file. Returns `Ok(None)` if there is no such file.
    pub(crate) fn open(
        path: &Path,
        storage: &'a FileStorage,
    ) -> Result<Option<Self>, SymbolizeWarning> {
        let data = match storage.map(path) {
            Ok(data) => data,
            Err(error) if is_absent(&error) => return Ok(None),
            Err(error) => {
                return Err(SymbolizeWarning::Unreadable {
                    file: path.into(),
                    error: error.to_string(),
                });
            }
        };
        Self::parse(path, data).map(Some)
    }

    /// Parses the bytes of an ELF file. `path` appears in messages.
    pub(crate) fn parse(path: &Path, data: &'a [u8]) -> Result<Self, SymbolizeWarning> {
        if !data.starts_with(&elf::ELFMAG) {
            return Err(SymbolizeWarning::NotElf { file: path.into() });
        }
        match object::File::parse(data) {
            Ok(object) => Ok(Self {
                path: path.into(),
                data,
                object,
            }),
            Err(error) => Err(SymbolizeWarning::Damaged {
                file: path.into(),
                what: error.to_string(),
            }),
        }
    }

    pub(crate) fn build_id(&self) -> Option<&'a [u8]> {
        // A damaged note counts as missing.
        self.object.build_id().ok().flatten()
    }

    /// Returns the content of a section, inflated if it is compressed. The result is empty if the
    /// section is missing or has no bytes in this file.
    pub(crate) fn section(&self, name: &str, storage: &'a FileStorage) -> Result<&'a [u8], String> {
        let Some(section) = self.object.section_by_name(name) else {
            return Ok(&[]);
        };
        let packed = section.compressed_data().map_err(|e| e.to_string())?;
        let is_packed = packed.format != CompressionFormat::None;
        let most = MAX_COMPRESSION_RATIO.saturating_mul(packed.data.len() as u64);
        if is_packed && packed.uncompressed_size > most.max(ALWAYS_ACCEPTED_BYTES) {
            return Err(format!(
                "claims to inflate to {} bytes",
                packed.uncompressed_size
            ));
        }
        Ok(match packed.decompress().map_err(|e| e.to_string())? {
            Cow::Borrowed(bytes) => bytes,
            Cow::Owned(bytes) => storage.keep(bytes),
        })
    }

    /// Whether a section exists and has bytes in this file.
    pub(crate) fn has_section(&self, name: &str) -> bool {
        let section = self.object.section_by_name(name);
        section.is_some_and(|s| s.size() > 0 && s.file_range().is_some())
    }

    /// Whether the file is a debug file without code, such as `objcopy --only-keep-debug` makes.
    pub(crate) fn is_debug_only(&self) -> bool {
        let text = self.object.section_by_name(".text");
        text.is_some_and(|s| s.size() > 0 && s.file_range().is_none())
    }

    /// Converts an address in a mapping to a virtual address, which symbols and debug information
    /// use.
    pub(crate) fn virtual_address(&self, place: MappedRange, address: u64) -> Option<u64> {
        if place.memory_start == 0 && place.file_offset == 0 {
            // Nothing is mapped at 0, so the writer of the profile used the file's own addresses.
            return Some(address);
        }
        let offset = address
            .checked_sub(place.memory_start)?
            .checked_add(place.file_offset)?;
        let within = |(executable, segment): (bool, &ElfSegment)| {
            let inside = offset.checked_sub(segment.offset)?;
            (segment.executable == executable && inside < segment.file_size)
                .then(|| segment.address.wrapping_add(inside))
        };
        let segments = self.segments();
        // Neighbouring segments may share a page of the file. Code is in the executable segment.
        let of_kind = |executable| segments.iter().find_map(|s| within((executable, s)));
        of_kind(true)
            .or_else(|| of_kind(false))
            .or_else(|| stripped_of_bytes(&segments, place, address))
    }

    /// Returns the bytes of the code at the virtual addresses from `start` to `end`, or up to the
    /// end of its segment. The result is empty if no code is there.
    pub(crate) fn code(&self, start: u64, end: u64) -> &'a [u8] {
        let found = self.segments().into_iter().find_map(|segment| {
            let inside = start.checked_sub(segment.address)?;
            let length = segment.file_size.checked_sub(inside)?;
            let length = length.min(end.checked_sub(start)?);
            let offset = segment.offset.checked_add(inside)?;
            let range = offset as usize..offset.checked_add(length)? as usize;
            segment.executable.then(|| self.data.get(range)).flatten()
        });
        found.unwrap_or_default()
    }

    /// Returns the lowest virtual address of the file. prelink may change it after the debug file
    /// was split off.
    pub(crate) fn base(&self) -> Option<u64> {
        self.segments().iter().map(|s| s.address).min()
    }

    fn segments(&self) -> Vec<ElfSegment> {
        let segments = self.object.segments().map(|segment| {
            let executable = match segment.flags() {
                SegmentFlags::Elf { p_flags, .. } => p_flags.0 & elf::PF_X.0 != 0,
                _ => false,
            };
            let (offset, file_size) = segment.file_range();
            ElfSegment {
                address: segment.address(),
                size: segment.size(),
                offset,
                file_size,
                executable,
            }
        });
        segments.collect()
    }

    /// Returns the end address of each section that has code, by section index; 0 for other
    /// sections.
    pub(crate) fn code_ends(&self) -> Vec<u64> {
        self.section_ends(elf::SHF_EXECINSTR.0)
    }

    /// Returns the end address of each section that is loaded, by section index; 0 for other
    /// sections.
    pub(crate) fn loaded_ends(&self) -> Vec<u64> {
        self.section_ends(elf::SHF_ALLOC.0)
    }

    fn section_ends(&self, flag: u64) -> Vec<u64> {
        let mut ends = Vec::new();
        for section in self.object.sections() {
            let has_flag = match section.flags() {
                SectionFlags::Elf { sh_flags, .. } => sh_flags.0 & flag != 0,
                _ => false,
            };
            let index = section.index().0;
            if ends.len() <= index {
                ends.resize(index + 1, 0);
            }
            if has_flag {
                ends[index] = section.address().saturating_add(section.size());
            }
        }
        ends
    }
}

struct ElfSegment {
    address: u64,
    size: u64,
    offset: u64,
    file_size: u64,
    executable: bool,
}

/// Converts an address to a virtual address by the segments of a debug file. objcopy leaves these
/// segments without bytes (except for headers and notes), so their file offsets are meaningless.
/// But a loader maps each segment from the page in which it begins. So the offset and the length of
/// the mapping show which segment is mapped.
fn stripped_of_bytes(segments: &[ElfSegment], place: MappedRange, address: u64) -> Option<u64> {
    const PAGE_SIZE: u64 = 4096;
    let mut code = segments.iter().filter(|s| s.executable);
    let only = code.next()?;
    if code.next().is_some() || only.file_size >= only.size {
        return None;
    }
    let lowest = segments.iter().min_by_key(|s| s.address)?;
    // A mapping from the file's beginning may be the code segment, if the linker put that first or
    // packed the file tightly, or it may be the whole file. The length of the mapping decides.
    let pages = (only.size + only.address % PAGE_SIZE).next_multiple_of(PAGE_SIZE);
    let mapped = place.memory_limit.saturating_sub(place.memory_start);
    let segment = if place.file_offset == 0 && mapped > pages {
        lowest
    } else {
        only
    };
    let found = address
        .checked_sub(place.memory_start)?
        .checked_add(segment.address & !(PAGE_SIZE - 1))?;
    let inside = |s: &ElfSegment| {
        found
            .checked_sub(s.address)
            .is_some_and(|inside| inside < s.size)
    };
    segments.iter().any(inside).then_some(found)
}

fn is_absent(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{InvalidFilename, NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory | InvalidFilename)
}

/// Returns bytes in hex, as build ids are written.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
