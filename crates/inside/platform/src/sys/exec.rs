//! Prepares a program that is to be executed: the files that it inherits, and the execution itself.

use std::ffi::CStr;

use super::call;
use super::file::EngineFile;

impl EngineFile {
    /// Sets whether programs that this process executes inherit the file.
    pub fn set_inherited(&self, is_inherited: bool) {
        let flags = if is_inherited { 0 } else { libc::FD_CLOEXEC };
        let args = [
            self.number() as usize,
            libc::F_SETFD as usize,
            flags as usize,
            0,
            0,
            0,
        ];
        // SAFETY: takes no memory.
        unsafe { call(libc::SYS_fcntl, args) };
    }

    /// Copies a whole file into a new file in memory, which nobody can change. Fails if the
    /// kernel refuses, or if this process may not write a file of that size. The error is an errno.
    pub fn copy_into_memory(&self, name: &CStr) -> Result<Self, i32> {
        const SEALS: i32 =
            libc::F_SEAL_WRITE | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        let len = self.stat().ok_or(libc::EBADF)?.st_size;
        // Beyond this limit the kernel sends a signal.
        let limit = super::soft_limit(libc::RLIMIT_FSIZE as usize);
        if limit.is_some_and(|limit| limit < len as u64) {
            return Err(libc::EFBIG);
        }
        let flags = (libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) as usize;
        let made = [name.as_ptr() as usize, flags, 0, 0, 0, 0];
        // SAFETY: the name ends in a zero byte.
        let made = Self::from_number(unsafe { call(libc::SYS_memfd_create, made) })?;
        let (mut offset, number) = (0i64, made.number() as usize);
        while offset < len {
            let left = (len - offset) as usize;
            let at = &raw mut offset as usize;
            let args = [number, self.number() as usize, at, left, 0, 0];
            // SAFETY: the kernel moves the offset on, and touches no other memory.
            match unsafe { call(libc::SYS_sendfile, args) } {
                count if count > 0 => {}
                error if error == -libc::EINTR as isize => {}
                // The file became shorter.
                0 => return Err(libc::EIO),
                error => return Err(-error as i32),
            }
        }
        // SAFETY: takes no memory.
        match unsafe {
            let seal = libc::F_ADD_SEALS as usize;
            call(libc::SYS_fcntl, [number, seal, SEALS as usize, 0, 0, 0])
        } {
            0 => Ok(made),
            error => Err(-error as i32),
        }
    }
}

/// Whether a path leads to a file.
pub fn is_there(path: &CStr) -> bool {
    EngineFile::open(path, libc::O_PATH, 0).is_ok()
}

/// Executes a program in place of this one. Returns only if the kernel refuses. `path` and `words`
/// are the addresses of the path and of the list of words, which the kernel checks.
pub fn execute(path: usize, words: usize, variables: &[usize]) {
    if variables.last() != Some(&0) {
        return;
    }
    let args = [path, words, variables.as_ptr() as usize, 0, 0, 0];
    // SAFETY: the kernel checks all addresses, and the list of variables ends with a null.
    unsafe { call(libc::SYS_execve, args) };
}
