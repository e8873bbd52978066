//! What the file of a process's program says about it. Unlike the process's memory, the file is
//! complete even while the program starts.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::c_library::CLibrary;
use crate::error::AttachError;

/// The file of a program.
pub(crate) struct ProgramFile {
    /// Whether it is a 64-bit program for x86-64.
    pub(crate) is_for_this_machine: bool,
    /// The path of the loader that it names; `None` if it is linked statically.
    pub(crate) loader: Option<String>,
}

impl ProgramFile {
    /// Reads the file of a process's program.
    ///
    /// # Errors
    /// The file can't be opened.
    pub(crate) fn read(pid: u32) -> io::Result<Self> {
        const CLASS_64: u8 = 2;
        const X86_64: u8 = 62;
        let file = File::open(format!("/proc/{pid}/exe"))?;
        let mut head = [0; 64];
        let is_read = file.read_exact_at(&mut head, 0).is_ok();
        let is_for_this_machine = is_read && head[4] == CLASS_64 && head[18] == X86_64;
        Ok(Self {
            is_for_this_machine,
            loader: is_for_this_machine.then(|| loader(&file, &head)).flatten(),
        })
    }

    /// Returns the reason why the program can't be attached to, if the file shows one.
    pub(crate) fn refusal(&self) -> Option<AttachError> {
        if !self.is_for_this_machine {
            return Some(AttachError::OtherMachine);
        }
        match self.loader.as_deref().map(CLibrary::from_loader) {
            None => Some(AttachError::StaticallyLinked),
            Some(None) => Some(AttachError::OtherLibrary),
            Some(Some(_)) => None,
        }
    }
}

/// Returns the path of the loader that a program names (PT_INTERP, as in the ELF specification).
fn loader(file: &File, head: &[u8; 64]) -> Option<String> {
    const PT_INTERP: u32 = 3;
    const MAX_PATH_LEN: u64 = 4096;
    let word = |bytes: &[u8], at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
    let half = |at: usize| u64::from(u16::from_le_bytes([head[at], head[at + 1]]));
    let (start, size, count) = (word(head, 32), half(54), half(56));
    (0..count).find_map(|i| {
        let mut header = [0; 56];
        let at = start.saturating_add(i * size);
        file.read_exact_at(&mut header, at).ok()?;
        if header[..4] != PT_INTERP.to_le_bytes() {
            return None;
        }
        let mut path = vec![0; word(&header, 32).min(MAX_PATH_LEN) as usize];
        let len = file.read_at(&mut path, word(&header, 8)).ok()?;
        path.truncate(len);
        let path = path.split(|&byte| byte == 0).next().unwrap_or_default();
        Some(String::from_utf8_lossy(path).into_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_names_its_loader() {
        let own = ProgramFile::read(std::process::id()).unwrap();
        assert!(own.is_for_this_machine);
        assert!(
            own.loader
                .as_deref()
                .is_some_and(|path| path.starts_with('/'))
        );
        assert!(own.refusal().is_none());
        assert!(ProgramFile::read(u32::MAX).is_err());
    }
}
