//! Tells core files, programs and scripts from other files.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// A file that a process may be made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramFile {
    /// The core file of a dead process.
    Core,
    /// A program that the kernel runs.
    Program,
    /// A program that an interpreter runs.
    Script,
}

/// The type of a core file (`ET_CORE`).
const CORE_TYPE: u16 = 4;
/// The first bytes of an ELF file.
const ELF_MAGIC: [u8; 4] = *b"\x7fELF";
/// Number of bytes up to the end of the type (`e_type`).
const HEAD_SIZE: u64 = 18;
/// The endings of scripts, which need no `#!`.
const SCRIPT_EXTENSIONS: [&str; 7] = ["pl", "psgi", "t", "py", "rb", "js", "mjs"];

impl ProgramFile {
    /// Tells what a file is; `None` if it is another file, or can't be read.
    #[must_use]
    pub fn find(path: &Path) -> Option<Self> {
        // Opening a pipe would wait for its writer.
        if !std::fs::metadata(path).ok()?.is_file() {
            return None;
        }
        let mut head = Vec::new();
        let file = File::open(path).ok()?;
        file.take(HEAD_SIZE).read_to_end(&mut head).ok()?;
        let extension = path.extension().and_then(OsStr::to_str);
        match &head[..] {
            [b'#', b'!', ..] => Some(Self::Script),
            _ if !head.starts_with(&ELF_MAGIC) => extension
                .is_some_and(|of| SCRIPT_EXTENSIONS.contains(&of))
                .then_some(Self::Script),
            [.., low, high] if head.len() as u64 == HEAD_SIZE => {
                match u16::from_le_bytes([*low, *high]) {
                    CORE_TYPE => Some(Self::Core),
                    _ => Some(Self::Program),
                }
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_told_from_other_files() {
        let folder = tempfile::tempdir().unwrap();
        let own = std::env::current_exe().unwrap();
        assert_eq!(ProgramFile::find(&own), Some(ProgramFile::Program));
        for (name, text, expected) in [
            ("run", &b"#!/bin/sh\n"[..], Some(ProgramFile::Script)),
            ("app.py", b"import os", Some(ProgramFile::Script)),
            ("empty.py", b"", Some(ProgramFile::Script)),
            ("profile.folded", b"main;work 7", None),
            ("cut", b"\x7fELF", None),
        ] {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            assert_eq!(ProgramFile::find(&path), expected, "{name}");
        }
        assert_eq!(ProgramFile::find(Path::new("/dev/null")), None);
    }
}
