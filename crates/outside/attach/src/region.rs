//! The region: memory that heapprof maps in a program for its stub, the letter and a stack.

use std::ops::Range;

use heapprof_abi::letter::{
    AttachLetter, CODE_LEN, LETTER_MAGIC, LETTER_VERSION, REGION_LEN, STATE_OFFSET,
};
use heapprof_memory::Memory;

use crate::arch::stub;
use crate::error::AttachError;
use crate::memory::TargetMemory;
use crate::process::TargetProcess;
use crate::thread::StoppedThread;

/// A region in a program, given by its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AttachRegion(u64);

/// Returns a letter field's offset in the region.
macro_rules! field {
    ($field:ident) => {
        (::heapprof_abi::letter::CODE_LEN
            + ::std::mem::offset_of!(::heapprof_abi::letter::AttachLetter, $field)) as u64
    };
}
pub(crate) use field;

impl AttachRegion {
    /// Returns the region at an address.
    pub(crate) fn at(start: u64) -> Self {
        Self(start)
    }

    /// Finds the region that an earlier heapprof made in a program.
    pub(crate) fn find(process: &TargetProcess) -> Option<Self> {
        let mut mark = [0; LETTER_MAGIC.len()];
        let mut all = process.maps.iter();
        let found = all.find(|map| {
            let may_be = map.is_code && map.path.is_empty();
            may_be && process.memory().read(map.start, &mut mark) && mark == LETTER_MAGIC
        });
        found.map(|map| Self(map.start))
    }

    /// Makes a region by system calls of a thread of the program. `behind` is the number of bytes
    /// that are reserved after the region.
    pub(crate) fn make(
        process: &TargetProcess,
        thread: &StoppedThread,
        behind: u64,
    ) -> Result<Self, AttachError> {
        let at = map(process, thread, REGION_LEN as u64 + behind)?;
        let rights = (libc::PROT_READ | libc::PROT_EXEC) as u64;
        let args = [at, CODE_LEN as u64, rights, 0, 0, 0];
        call(process, thread, libc::SYS_mprotect, args)
            .map_err(|error| AttachError::CallFailed("mprotect of memory for code", error))?;
        Ok(Self(at))
    }

    /// Writes the stub's code into a new region.
    pub(crate) fn write_code(self, memory: TargetMemory<'_>) -> Result<(), AttachError> {
        self.write(memory, 0, stub::code())
    }

    pub(crate) fn write(
        self,
        memory: TargetMemory<'_>,
        at: u64,
        bytes: &[u8],
    ) -> Result<(), AttachError> {
        let written = memory.write(self.0.wrapping_add(at), bytes);
        written.map_err(|error| AttachError::KernelError("its memory can't be written", error))
    }

    pub(crate) fn u32(self, memory: TargetMemory<'_>, at: u64) -> Result<u32, AttachError> {
        memory.u32(self.0 + at).ok_or(AttachError::NoProcess)
    }

    pub(crate) fn u64(self, memory: TargetMemory<'_>, at: u64) -> Result<u64, AttachError> {
        memory.u64(self.0 + at).ok_or(AttachError::NoProcess)
    }

    /// Reads the text in the letter.
    pub(crate) fn text(self, memory: TargetMemory<'_>) -> String {
        let mut text = [0; 256];
        let read = memory.text(self.0 + field!(text), &mut text).unwrap_or(0);
        let text = String::from_utf8_lossy(&text[..read]).into_owned();
        text.replace(|of: char| of.is_control(), " ")
    }

    /// Whether the letter has this version's layout, or was never written.
    pub(crate) fn is_readable(self, memory: TargetMemory<'_>) -> bool {
        let is = |at, right: u32| {
            let found = memory.u32(self.0 + at);
            found.is_some_and(|found| found == right || found == 0)
        };
        is(field!(version), LETTER_VERSION) && is(field!(size), size_of::<AttachLetter>() as u32)
    }

    /// Returns the address at which the code begins, the end of the stack, and the address of the
    /// letter.
    pub(crate) fn entry_addresses(self) -> (u64, u64, u64) {
        (
            self.0 + stub::ENTRY_OFFSET,
            self.0 + REGION_LEN as u64,
            self.0 + CODE_LEN as u64,
        )
    }

    /// Whether an address lies in the region.
    pub(crate) fn contains(self, address: u64) -> bool {
        address.wrapping_sub(self.0) < REGION_LEN as u64
    }

    /// Returns the address range of the region's code.
    pub(crate) fn code(self) -> Range<u64> {
        self.0..self.0 + CODE_LEN as u64
    }

    /// Returns the address of the region.
    pub(crate) fn start(self) -> u64 {
        self.0
    }

    /// Returns the address after the region.
    pub(crate) fn end(self) -> u64 {
        self.0 + REGION_LEN as u64
    }

    /// Clears the bytes that must be zero when the processor's state is restored by XRSTOR.
    pub(crate) fn clear_state(self, memory: TargetMemory<'_>) -> Result<(), AttachError> {
        /// Offset of the XSAVE header after the legacy area. XRSTOR checks the header.
        const XSAVE_HEADER_OFFSET: u64 = 512;
        self.write(
            memory,
            (CODE_LEN + STATE_OFFSET) as u64 + XSAVE_HEADER_OFFSET,
            &[0; 64],
        )
    }
}

/// Maps `len` bytes of memory in a program by a system call of its thread `thread`. Returns the
/// address of the memory.
pub(crate) fn map(
    process: &TargetProcess,
    thread: &StoppedThread,
    len: u64,
) -> Result<u64, AttachError> {
    let rights = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
    let args = [0, len, rights, flags, u64::MAX, 0];
    call(process, thread, libc::SYS_mmap, args)
        .map_err(|error| AttachError::CallFailed("mmap", error))
}

/// Makes a system call in a stopped thread.
fn call(
    process: &TargetProcess,
    thread: &StoppedThread,
    number: libc::c_long,
    args: [u64; 6],
) -> std::io::Result<u64> {
    let missing = || std::io::Error::from(std::io::ErrorKind::NotFound);
    let at = process.system_call().ok_or_else(missing)?;
    match thread.call(at, number, args)? {
        failed @ -4095..0 => Err(std::io::Error::from_raw_os_error(-failed as i32)),
        got => Ok(got as u64),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use heapprof_abi::letter::LIBRARY_PATH_PREFIX;

    use super::*;
    use crate::memory::TargetMemoryFile;

    const REGION: AttachRegion = AttachRegion(0x10_0000);

    /// Returns a memory of zeros that is large enough for the region. It is not on a disk.
    fn memory() -> TargetMemoryFile {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let file = File::from(rustix::fs::memfd_create("region", flags).unwrap());
        file.set_len(REGION.end() + 4096).unwrap();
        TargetMemoryFile::new(file)
    }

    #[test]
    fn a_region_is_code_then_a_letter_then_a_stack() {
        let (entry, stack, letter) = REGION.entry_addresses();
        assert_eq!(entry, REGION.start() + LETTER_MAGIC.len() as u64);
        assert_eq!(letter, REGION.start() + CODE_LEN as u64);
        assert_eq!((stack, stack % 16), (REGION.end(), 0));
        assert_eq!(REGION.code(), REGION.start()..letter);
        assert!(REGION.contains(REGION.start()) && REGION.contains(REGION.end() - 1));
        assert!(!REGION.contains(REGION.end()) && !REGION.contains(REGION.start() - 1));
        // The saved state is behind the letter's fields, aligned for XSAVE.
        let state = letter + STATE_OFFSET as u64;
        assert!(state + (24 << 10) < stack && state.is_multiple_of(64));
    }

    #[test]
    fn fields_are_behind_the_code() {
        let memory = memory();
        let memory = memory.memory();
        REGION
            .write(memory, field!(version), &7u32.to_ne_bytes())
            .unwrap();
        REGION
            .write(memory, field!(period), &(1u64 << 40).to_ne_bytes())
            .unwrap();
        assert_eq!(memory.u32(REGION.start() + CODE_LEN as u64), Some(7));
        assert_eq!(REGION.u32(memory, field!(version)).unwrap(), 7);
        assert_eq!(REGION.u64(memory, field!(period)).unwrap(), 1 << 40);
        assert_eq!(REGION.u64(memory, field!(owner_began)).unwrap(), 0);
        let gone = AttachRegion::at(1 << 61);
        assert!(matches!(gone.u32(memory, 0), Err(AttachError::NoProcess)));
    }

    #[test]
    fn the_code_is_written_to_the_beginning() {
        let memory = memory();
        REGION.write_code(memory.memory()).unwrap();
        let mut found = vec![0; CODE_LEN];
        assert!(memory.memory().read(REGION.start(), &mut found));
        let (code, rest) = found.split_at(stub::code().len());
        assert!(code == stub::code() && rest.iter().all(|&byte| byte == 0));
    }

    /// Tests that a letter of zeros, which was never written, is accepted, and that a letter of
    /// another version is refused.
    #[test]
    fn a_letter_of_another_version_is_not_read() {
        let size = size_of::<AttachLetter>() as u32;
        for (version, size, expected) in [
            (0, 0, true),
            (LETTER_VERSION, size, true),
            (LETTER_VERSION, 0, true),
            (LETTER_VERSION + 1, size, false),
            (LETTER_VERSION - 1, size, false),
            (LETTER_VERSION, size + 8, false),
        ] {
            let memory = memory();
            let memory = memory.memory();
            REGION
                .write(memory, field!(version), &version.to_ne_bytes())
                .unwrap();
            REGION
                .write(memory, field!(size), &size.to_ne_bytes())
                .unwrap();
            assert_eq!(REGION.is_readable(memory), expected, "{version} {size}");
        }
    }

    #[test]
    fn the_loader_s_message_is_one_line() {
        let memory = memory();
        let memory = memory.memory();
        assert_eq!(REGION.text(memory), "");
        let text = b"cannot open:\n\x1b[31mno \xff such file\0rest";
        REGION.write(memory, field!(text), text).unwrap();
        assert_eq!(
            REGION.text(memory),
            "cannot open:  [31mno \u{fffd} such file"
        );
        // A text without an end is as long as its field.
        REGION.write(memory, field!(text), &[b'x'; 256]).unwrap();
        assert_eq!(REGION.text(memory).len(), 256);
        assert!(LIBRARY_PATH_PREFIX.len() + "4294967295".len() < 256);
    }

    /// Tests that only the header of the saved state is cleared. The legacy area before it is
    /// always written in full.
    #[test]
    fn the_header_of_the_state_is_cleared() {
        let memory = memory();
        let memory = memory.memory();
        let state = (CODE_LEN + STATE_OFFSET) as u64;
        REGION.write(memory, state, &[7; 1024]).unwrap();
        REGION.clear_state(memory).unwrap();
        let mut found = [0; 1024];
        assert!(memory.read(REGION.start() + state, &mut found));
        for (at, &byte) in found.iter().enumerate() {
            assert_eq!(byte == 0, (512..576).contains(&at), "{at}");
        }
    }

    #[test]
    fn a_memory_is_not_read_beyond_its_addresses() {
        let file = memory();
        let memory = file.memory();
        let mut bytes = [0; 8];
        assert!(memory.read(REGION.end(), &mut bytes));
        assert!(!memory.read(REGION.end() + 4092, &mut bytes));
        assert!(!memory.read(1 << 62, &mut bytes));
        assert!(!memory.read(u64::MAX, &mut bytes));
    }
}
