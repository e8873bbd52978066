//! Tells core files and programs from other files.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The type of a core file (`ET_CORE`).
pub const CORE_TYPE: u16 = 4;

/// The first bytes of an ELF file.
const ELF_MAGIC: [u8; 4] = *b"\x7fELF";
/// Number of bytes up to the end of the type (`e_type`).
const HEAD_SIZE: usize = 18;

/// Returns the type of an ELF file (`e_type`); `None` if the file is no ELF file, or can't be read.
#[must_use]
pub fn elf_type(path: &Path) -> Option<u16> {
    // Opening a pipe would wait for its writer.
    if !std::fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let mut head = [0; HEAD_SIZE];
    File::open(path).ok()?.read_exact(&mut head).ok()?;
    (head[..4] == ELF_MAGIC).then(|| u16::from_le_bytes([head[16], head[17]]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_told_from_other_files() {
        let own = std::env::current_exe().unwrap();
        assert!(elf_type(&own).is_some_and(|found| found != CORE_TYPE));
        assert_eq!(elf_type(Path::new(file!())), None);
        assert_eq!(elf_type(Path::new("/dev/null")), None);
    }
}
