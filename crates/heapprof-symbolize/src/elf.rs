//! An ELF file: its build id, its links to debug files, and how a mapping of it becomes virtual
//! addresses.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use object::{
    CompressionFormat, Object, ObjectSection, ObjectSegment, SectionFlags, SegmentFlags, elf,
};

use crate::storage::Storage;
use crate::summary::Warning;

/// An open ELF file.
pub(crate) struct Elf<'a> {
    pub(crate) path: PathBuf,
    pub(crate) data: &'a [u8],
    pub(crate) object: object::File<'a>,
}

/// zlib can't pack tighter than this, and nobody's debug information does. Memory is taken as
/// claimed.
const MOST_PACKED: u64 = 1032;

/// zstd packs a few repeated bytes tighter; so much is no harm.
const ALWAYS_TAKEN: u64 = 64 << 20;

/// The part of a mapping that addresses depend on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) memory_start: u64,
    pub(crate) memory_limit: u64,
    pub(crate) file_offset: u64,
}

impl<'a> Elf<'a> {
    /// `Ok(None)` when there is no such file.
    pub(crate) fn open(path: &Path, storage: &'a Storage) -> Result<Option<Self>, Warning> {
        let data = match storage.map(path) {
            Ok(data) => data,
            Err(error) if is_absent(&error) => return Ok(None),
            Err(error) => {
                return Err(Warning::Unreadable {
                    file: path.into(),
                    error: error.to_string(),
                });
            }
        };
        Self::parse(path, data).map(Some)
    }

    /// From bytes; `path` is for messages.
    pub(crate) fn parse(path: &Path, data: &'a [u8]) -> Result<Self, Warning> {
        if !data.starts_with(&elf::ELFMAG) {
            return Err(Warning::NotElf { file: path.into() });
        }
        match object::File::parse(data) {
            Ok(object) => Ok(Self {
                path: path.into(),
                data,
                object,
            }),
            Err(error) => Err(Warning::Damaged {
                file: path.into(),
                what: error.to_string(),
            }),
        }
    }

    pub(crate) fn build_id(&self) -> Option<&'a [u8]> {
        // A damaged note is no note.
        self.object.build_id().ok().flatten()
    }

    /// A section's content, inflated if need be; empty when it is not there or has no bytes in this
    /// file.
    pub(crate) fn section(&self, name: &str, storage: &'a Storage) -> Result<&'a [u8], String> {
        let Some(section) = self.object.section_by_name(name) else {
            return Ok(&[]);
        };
        let packed = section.compressed_data().map_err(|e| e.to_string())?;
        let is_packed = packed.format != CompressionFormat::None;
        let most = MOST_PACKED.saturating_mul(packed.data.len() as u64);
        if is_packed && packed.uncompressed_size > most.max(ALWAYS_TAKEN) {
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

    /// Whether the section is there, with bytes.
    pub(crate) fn has_section(&self, name: &str) -> bool {
        let section = self.object.section_by_name(name);
        section.is_some_and(|s| s.size() > 0 && s.file_range().is_some())
    }

    /// Whether the code was left out, as `objcopy --only-keep-debug` does.
    pub(crate) fn is_debug_only(&self) -> bool {
        let text = self.object.section_by_name(".text");
        text.is_some_and(|s| s.size() > 0 && s.file_range().is_none())
    }

    /// The virtual address, as symbols and debug information count, of an address in memory.
    pub(crate) fn virtual_address(&self, place: Place, address: u64) -> Option<u64> {
        if place.memory_start == 0 && place.file_offset == 0 {
            // Nothing is mapped at 0: whoever wrote the profile counts as the file does.
            return Some(address);
        }
        let offset = address
            .checked_sub(place.memory_start)?
            .checked_add(place.file_offset)?;
        let within = |(executable, segment): (bool, &Segment)| {
            let inside = offset.checked_sub(segment.offset)?;
            (segment.executable == executable && inside < segment.file_size)
                .then(|| segment.address.wrapping_add(inside))
        };
        let segments = self.segments();
        // Neighbours may share a page of the file; code is in the executable one.
        let of_kind = |executable| segments.iter().find_map(|s| within((executable, s)));
        of_kind(true)
            .or_else(|| of_kind(false))
            .or_else(|| stripped_of_bytes(&segments, place, address))
    }

    /// The lowest address the file wants to be loaded at; prelink moves it after the debug file was
    /// split off.
    pub(crate) fn base(&self) -> Option<u64> {
        self.segments().iter().map(|s| s.address).min()
    }

    fn segments(&self) -> Vec<Segment> {
        let segments = self.object.segments().map(|segment| {
            let executable = match segment.flags() {
                SegmentFlags::Elf { p_flags, .. } => p_flags.0 & elf::PF_X.0 != 0,
                _ => false,
            };
            let (offset, file_size) = segment.file_range();
            Segment {
                address: segment.address(),
                size: segment.size(),
                offset,
                file_size,
                executable,
            }
        });
        segments.collect()
    }

    /// For each section, by index: the end of its code, 0 when it holds none.
    pub(crate) fn code_ends(&self) -> Vec<u64> {
        let mut ends = Vec::new();
        for section in self.object.sections() {
            let executable = match section.flags() {
                SectionFlags::Elf { sh_flags, .. } => sh_flags.0 & elf::SHF_EXECINSTR.0 != 0,
                _ => false,
            };
            let index = section.index().0;
            if ends.len() <= index {
                ends.resize(index + 1, 0);
            }
            if executable {
                ends[index] = section.address().saturating_add(section.size());
            }
        }
        ends
    }
}

struct Segment {
    address: u64,
    size: u64,
    offset: u64,
    file_size: u64,
    executable: bool,
}

/// A debug file alone: objcopy leaves its segments without bytes (but for headers and notes), so
/// their file offsets say nothing. A loader maps each segment from the page it begins in, and the
/// mapping tells which segment that was.
fn stripped_of_bytes(segments: &[Segment], place: Place, address: u64) -> Option<u64> {
    const PAGE: u64 = 4096;
    let mut code = segments.iter().filter(|s| s.executable);
    let only = code.next()?;
    if code.next().is_some() || only.file_size >= only.size {
        return None;
    }
    let lowest = segments.iter().min_by_key(|s| s.address)?;
    // From the file's beginning it is the segment of code where linkers put that first or pack it
    // tightly, or all of the file: the mapping is as long as one of these.
    let pages = (only.size + only.address % PAGE).next_multiple_of(PAGE);
    let mapped = place.memory_limit.saturating_sub(place.memory_start);
    let segment = if place.file_offset == 0 && mapped > pages {
        lowest
    } else {
        only
    };
    let found = address
        .checked_sub(place.memory_start)?
        .checked_add(segment.address & !(PAGE - 1))?;
    let inside = |s: &Segment| {
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

/// Bytes as build ids are written.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
