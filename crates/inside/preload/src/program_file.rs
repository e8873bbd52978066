//! Reads the headers of a program's file: which loader it has.

use std::ffi::{CStr, CString};

use heapprof_platform::sys;

/// Number of bytes that are read from an executable. They contain the header and the program
/// headers, which linkers usually put after it.
pub const MAX_HEADERS_LEN: usize = 1024;
/// Maximum length of a path.
pub const MAX_PATH_LEN: usize = 1024;
/// The kind of the program header that has the path of the loader.
pub const PT_INTERP: u32 = 3;

/// Returns the path of the loader of a program, or of the program that runs a script; `None` if it
/// has no loader.
pub fn loader_of(program: &CStr) -> Option<CString> {
    let mut beginning = [0; MAX_HEADERS_LEN];
    let mut file = sys::open_regular(program)?;
    let mut len = file.read_at(&mut beginning, 0);
    if let Some(line) = beginning[..len].strip_prefix(b"#!") {
        let line = line.split(|&byte| byte == b'\n').next()?.trim_ascii();
        let interpreter = line.split(|byte| byte.is_ascii_whitespace()).next()?;
        file = sys::open_regular(&CString::new(interpreter).ok()?)?;
        len = file.read_at(&mut beginning, 0);
    }
    let header = program_headers(&beginning[..len])?.find(|header| kind(header) == PT_INTERP)?;
    let offset = u64::from_le_bytes(header.get(8..16)?.try_into().ok()?);
    let mut path = [0; MAX_PATH_LEN];
    file.read_at(&mut path, offset);
    CStr::from_bytes_until_nul(&path).ok().map(CStr::to_owned)
}

/// Returns the program headers in the first bytes of an executable; `None` if it has no header. A
/// header that is cut off is returned as far as it is there.
pub fn program_headers(beginning: &[u8]) -> Option<impl Iterator<Item = &[u8]>> {
    let half = |at: usize| {
        let bytes = beginning.get(at..at + 2)?;
        Some(usize::from(u16::from_le_bytes(bytes.try_into().ok()?)))
    };
    let (size, count) = (half(54)?, half(56)?);
    let first =
        usize::try_from(u64::from_le_bytes(beginning.get(32..40)?.try_into().ok()?)).ok()?;
    Some((0..count).map(move |i| {
        let at = first.saturating_add(i * size);
        let rest = beginning.get(at..).unwrap_or_default();
        &rest[..rest.len().min(size)]
    }))
}

/// Returns the kind of a program header; 0 if it is cut off.
pub fn kind(header: &[u8]) -> u32 {
    let bytes = header.get(..4).and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, u32::from_le_bytes)
}
