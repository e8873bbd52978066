//! Inspects a program that is about to be executed. If the program has no loader, or is built for
//! another architecture, this library can't be loaded into it. This is reported to `record`, which
//! can then explain why such a child is missing. In another root folder, the program gets another
//! environment.

use std::ffi::CStr;

use heapprof_engine::ENGINE;
use heapprof_platform::sys;

use crate::environment;
use crate::other_root;
use crate::program_file::{MAX_HEADERS_LEN, MAX_PATH_LEN, PT_INTERP, kind, program_headers};

/// Prepares an exec. `path` is the address of the path that the program passes, and `passed` are
/// the addresses of the words and of the environment, if they are known.
pub fn before_path(path: usize, passed: Option<[usize; 2]>) {
    let mut buffer = [0; MAX_PATH_LEN];
    if let Some(path) = text(path, &mut buffer) {
        before_file(path, passed);
    }
}

/// Prepares an exec by name, as [`before_path`] does. `name` is the address of the name that the
/// program passes. A name without a slash is searched in the folders of `PATH`.
pub fn before_name(name: usize, passed: Option<[usize; 2]>) {
    let mut buffer = [0; MAX_PATH_LEN];
    let Some(name) = text(name, &mut buffer) else {
        return;
    };
    if name.to_bytes().contains(&b'/') {
        return before_file(name, passed);
    }
    let Some(folders) = environment::search_path() else {
        return;
    };
    let mut place = [0; MAX_PATH_LEN];
    for folder in folders.split(|&byte| byte == b':') {
        let folder = if folder.is_empty() { b"." } else { folder };
        let parts = [folder, b"/", name.to_bytes_with_nul()];
        if parts.iter().map(|part| part.len()).sum::<usize>() > place.len() {
            continue;
        }
        let mut at = 0;
        for part in parts {
            place[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        if let Ok(path) = CStr::from_bytes_until_nul(&place)
            && sys::is_executable(path)
        {
            return before_file(path, passed);
        }
    }
}

/// Reads the text at an address, which may be invalid; `None` if there is no text at the address,
/// or if it is too long.
fn text(at: usize, buffer: &mut [u8; MAX_PATH_LEN]) -> Option<&CStr> {
    let len = sys::read_memory(at, buffer);
    CStr::from_bytes_until_nul(&buffer[..len]).ok()
}

fn before_file(path: &CStr, passed: Option<[usize; 2]>) {
    if !sys::is_executable(path) {
        return;
    }
    let is_reported = report_file(path);
    if let Some([words, variables]) = passed {
        other_root::execute(path, words, variables, is_reported);
    }
}

/// Reports a program that this library can't be loaded into. Returns whether it is such a program.
fn report_file(path: &CStr) -> bool {
    let Some(file) = sys::open_regular(path) else {
        return false;
    };
    let mut beginning = [0; MAX_HEADERS_LEN];
    let len = file.read_at(&mut beginning, 0);
    drop(file);
    // The loader itself has no loader, but it loads what it is given.
    let name = path.to_bytes().rsplit(|&byte| byte == b'/').next();
    let is_loader = name.is_some_and(|name| name.starts_with(b"ld-"));
    let obstacle = obstacle(&beginning[..len]).filter(|_| !is_loader);
    if let Some(why) = obstacle {
        ENGINE.lifecycle().with_reentrancy_guard(|| {
            environment::report_becoming_unrecorded(why, path.to_bytes(), false)
        });
    }
    obstacle.is_some()
}

/// Returns the reason why this library can't be loaded into a program; `None` if it can.
/// `beginning` holds the first bytes of the program's file.
fn obstacle(beginning: &[u8]) -> Option<&'static str> {
    const EM_X86_64: u16 = 62;
    const EM_AARCH64: u16 = 183;
    const EM_386: u16 = 3;
    const EM_ARM: u16 = 40;
    const EM_RISCV: u16 = 243;
    let half = |at: usize| {
        let bytes = beginning.get(at..at + 2)?;
        Some(u16::from_le_bytes(bytes.try_into().ok()?))
    };
    if !beginning.starts_with(b"\x7fELF") {
        return None;
    }
    match half(18)? {
        EM_X86_64 if beginning[4] == 2 => {}
        EM_X86_64 | EM_386 => return Some("it is a 32-bit program"),
        EM_AARCH64 => return Some("it is built for another architecture (aarch64)"),
        EM_ARM => return Some("it is built for another architecture (arm)"),
        EM_RISCV => return Some("it is built for another architecture (riscv)"),
        _ => return Some("it is built for another architecture"),
    }
    for header in program_headers(beginning)? {
        // Headers further behind are not searched.
        if header.len() < 4 || kind(header) == PT_INTERP {
            return None;
        }
    }
    Some("it is statically linked")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes the beginning of an executable with a class, a machine and kinds of program headers.
    fn executable(class: u8, machine: u16, headers: &[u32]) -> Vec<u8> {
        let mut bytes = vec![0; 64 + 56 * headers.len()];
        let mut put = |at: usize, new: &[u8]| bytes[at..at + new.len()].copy_from_slice(new);
        put(0, b"\x7fELF");
        put(4, &[class, 1, 1]);
        put(18, &machine.to_le_bytes());
        put(32, &64u64.to_le_bytes());
        put(54, &56u16.to_le_bytes());
        put(56, &(headers.len() as u16).to_le_bytes());
        for (i, kind) in headers.iter().enumerate() {
            put(64 + 56 * i, &kind.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn what_the_loader_cannot_load_into_is_named() {
        let other = "it is built for another architecture";
        for (class, machine, headers, expected) in [
            (2, 62, &[6, 3, 1][..], None),
            (2, 62, &[1, 1, 2], Some("it is statically linked")),
            (2, 62, &[], Some("it is statically linked")),
            (1, 62, &[3], Some("it is a 32-bit program")),
            (1, 3, &[3], Some("it is a 32-bit program")),
            (
                2,
                183,
                &[3],
                Some("it is built for another architecture (aarch64)"),
            ),
            (
                1,
                40,
                &[3],
                Some("it is built for another architecture (arm)"),
            ),
            (
                2,
                243,
                &[3],
                Some("it is built for another architecture (riscv)"),
            ),
            (2, 21, &[3], Some(other)),
        ] {
            let found = obstacle(&executable(class, machine, headers));
            assert_eq!(found, expected, "{class} {machine} {headers:?}");
        }
        for script in [&b"#!/bin/sh\n"[..], b"", b"\x7fEL"] {
            assert_eq!(obstacle(script), None, "{script:?}");
        }
    }

    /// Checks that a file is assumed to have a loader if it is cut off, or if its headers are
    /// behind the bytes that are read.
    #[test]
    fn what_is_not_known_is_no_obstacle() {
        let whole = executable(2, 62, &[1, 1, 2]);
        // The kind of the last header ends here.
        let needed = 64 + 2 * 56 + 4;
        for len in 0..needed {
            assert_eq!(obstacle(&whole[..len]), None, "{len}");
        }
        assert!(obstacle(&whole[..needed]).is_some());
        let mut behind = whole;
        behind[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(obstacle(&behind), None);
    }

    #[test]
    fn a_path_is_read_only_where_it_is_whole() {
        let mut buffer = [0; MAX_PATH_LEN];
        let read = |at: usize| {
            let mut buffer = [0; MAX_PATH_LEN];
            text(at, &mut buffer).map(CStr::to_owned)
        };
        let path = c"/bin/true";
        assert_eq!(read(path.as_ptr() as usize).as_deref(), Some(path));
        for at in [0, 8, usize::MAX - 4, 1 << 62] {
            assert_eq!(text(at, &mut buffer), None, "{at:#x}");
        }
        let long = vec![b'x'; 2 * MAX_PATH_LEN];
        assert_eq!(read(long.as_ptr() as usize), None);
    }
}
