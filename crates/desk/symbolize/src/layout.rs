//! The layout of an ELF file: its type and its loadable segments, for callers that compute where a
//! file was loaded by rules of their own.

use std::path::Path;

use object::Endianness;
use object::elf::{ET_DYN, ET_EXEC, ET_REL, FileHeader32, FileHeader64, PF_X, PT_LOAD, SHT_SYMTAB};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, Sym};

use crate::storage::FileStorage;
use crate::summary::SymbolizeWarning;

/// The type of an ELF file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectKind {
    /// An executable at a fixed address.
    Fixed,
    /// A shared library, or an executable that is loaded at any address.
    Shared,
    /// An object file that is not linked, such as a kernel module.
    Relocatable,
    /// Any other type, such as a core file. The number is that of the file's header.
    Other(u16),
}

/// A loadable segment, as the program header describes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadSegment {
    /// The offset in the file.
    pub offset: u64,
    /// The virtual address.
    pub address: u64,
    /// The number of bytes in the file.
    pub file_size: u64,
    /// The number of bytes in memory.
    pub memory_size: u64,
    /// The alignment.
    pub alignment: u64,
    /// Whether the segment holds code.
    pub executable: bool,
}

/// The type and the loadable segments of an ELF file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectLayout {
    /// The type of the file.
    pub kind: ObjectKind,
    /// The loadable segments, in the file's order.
    pub segments: Vec<LoadSegment>,
    /// The virtual address of the section `.text`.
    pub text: Option<u64>,
    /// The value of the requested symbol.
    pub symbol: Option<u64>,
}

/// Reads the layout of an ELF file, and the value of a symbol of its symbol table, if one is given.
///
/// # Errors
/// The file can't be read, is not an ELF file, or is damaged.
pub fn read_layout(path: &Path, symbol: Option<&str>) -> Result<ObjectLayout, SymbolizeWarning> {
    let storage = FileStorage::new();
    let bytes = storage
        .map(path)
        .map_err(|error| SymbolizeWarning::Unreadable {
            file: path.into(),
            error: error.to_string(),
        })?;
    let layout = match bytes.get(..5) {
        Some([0x7f, b'E', b'L', b'F', 1]) => layout::<FileHeader32<Endianness>>(bytes, symbol),
        Some([0x7f, b'E', b'L', b'F', _]) => layout::<FileHeader64<Endianness>>(bytes, symbol),
        _ => return Err(SymbolizeWarning::NotElf { file: path.into() }),
    };
    layout.map_err(|error| SymbolizeWarning::Damaged {
        file: path.into(),
        what: error.to_string(),
    })
}

fn layout<H: FileHeader<Endian = Endianness>>(
    bytes: &[u8],
    symbol: Option<&str>,
) -> Result<ObjectLayout, object::Error> {
    let header = H::parse(bytes)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, bytes)?;
    let segments = header.program_headers(endian, bytes)?.iter();
    let segments = segments.filter(|segment| segment.p_type(endian) == PT_LOAD);
    let value = |name: &str| {
        let symbols = sections.symbols(endian, bytes, SHT_SYMTAB).ok()?;
        let named =
            |symbol: &&H::Sym| symbol.name(endian, symbols.strings()) == Ok(name.as_bytes());
        let found = symbols.iter().find(named)?;
        Some(found.st_value(endian).into())
    };
    Ok(ObjectLayout {
        kind: match header.e_type(endian) {
            ET_EXEC => ObjectKind::Fixed,
            ET_DYN => ObjectKind::Shared,
            ET_REL => ObjectKind::Relocatable,
            other => ObjectKind::Other(other.0),
        },
        segments: segments
            .map(|segment| LoadSegment {
                offset: segment.p_offset(endian).into(),
                address: segment.p_vaddr(endian).into(),
                file_size: segment.p_filesz(endian).into(),
                memory_size: segment.p_memsz(endian).into(),
                alignment: segment.p_align(endian).into(),
                executable: segment.p_flags(endian).0 & PF_X.0 != 0,
            })
            .collect(),
        text: sections
            .section_by_name(endian, b".text")
            .map(|(_, section)| section.sh_addr(endian).into()),
        symbol: symbol.and_then(value),
    })
}

#[cfg(test)]
#[allow(
    clippy::disallowed_methods,
    reason = "tests write into folders of their own"
)]
mod tests {
    use super::*;

    /// The layout of this test itself, which is an ELF file.
    #[test]
    fn a_program_has_code() {
        let layout = read_layout(&std::env::current_exe().unwrap(), Some("no such symbol"));
        let layout = layout.unwrap();
        assert!(matches!(
            layout.kind,
            ObjectKind::Fixed | ObjectKind::Shared
        ));
        assert_eq!(layout.symbol, None);
        let text = layout.text.unwrap();
        let holds = |s: &&LoadSegment| (s.address..s.address + s.memory_size).contains(&text);
        let code: Vec<_> = layout.segments.iter().filter(holds).collect();
        assert!(matches!(code[..], [one] if one.executable), "{layout:?}");
    }

    #[test]
    fn other_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        for (bytes, says) in [
            (&b"#!/bin/sh"[..], "is not an ELF file"),
            (b"", "is not an ELF file"),
            (b"\x7fELF", "is not an ELF file"),
            (b"\x7fELF\x02\x01", "is damaged"),
        ] {
            std::fs::write(&file, bytes).unwrap();
            let error = read_layout(&file, None).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        let error = read_layout(&folder.path().join("none"), None).unwrap_err();
        assert!(error.to_string().contains("cannot be read"), "{error}");
    }
}
