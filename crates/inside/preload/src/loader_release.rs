//! Compares the release of glibc that this library needs with that of a program in another root
//! folder. glibc's loader does not start a program if a preloaded library needs a later release.

use std::ffi::CStr;

use heapprof_platform::sys::{self, EngineFile};

use crate::program_file;

/// The beginning of the names of glibc's symbol versions.
const VERSION_PREFIX: &[u8] = b"GLIBC_2.";
/// The words before the release in the banner of glibc's loader, which it has since 2.33.
const BANNER: &[u8] = b"release version 2.";
/// Every program is expected to have at least this release.
const OLDEST_RELEASE: u32 = 17;
/// Number of bytes that are read at a time.
const PIECE_LEN: usize = 64 << 10;
/// Number of bytes in which two pieces overlap: more than what is searched for.
const OVERLAP: usize = 32;

/// Whether the glibc of a program is known to be older than a library needs. `program` is the path
/// of the program.
pub fn is_too_old(program: &CStr, library: &EngineFile) -> bool {
    let needed = latest_after(library, VERSION_PREFIX).unwrap_or(0);
    if needed <= OLDEST_RELEASE {
        return false;
    }
    let Some(loader) = program_file::loader_of(program) else {
        return false;
    };
    // Other libcs do not look at versions.
    let is_glibc = loader.to_bytes().windows(8).any(|part| part == b"ld-linux");
    let Some(loader) = sys::open_regular(&loader).filter(|_| is_glibc) else {
        return false;
    };
    latest_after(&loader, BANNER).is_none_or(|release| release < needed)
}

/// Returns the largest number that follows `prefix` anywhere in a file.
fn latest_after(file: &EngineFile, prefix: &[u8]) -> Option<u32> {
    let mut piece = vec![0; PIECE_LEN];
    let (mut offset, mut latest) = (0, None);
    loop {
        let len = file.read_at(&mut piece, offset);
        latest = latest.max(latest_in(&piece[..len], prefix));
        if len < PIECE_LEN {
            return latest;
        }
        offset += (PIECE_LEN - OVERLAP) as u64;
    }
}

fn latest_in(bytes: &[u8], prefix: &[u8]) -> Option<u32> {
    let found = bytes.windows(prefix.len()).enumerate();
    let found = found.filter(|(_, part)| *part == prefix);
    let numbers = found.filter_map(|(at, _)| {
        let digits = bytes[at + prefix.len()..].iter();
        let digits = digits.take(3).take_while(|byte| byte.is_ascii_digit());
        digits.fold(None, |number: Option<u32>, digit| {
            Some(number.unwrap_or(0) * 10 + u32::from(digit - b'0'))
        })
    });
    numbers.max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_number_after_a_prefix_is_found() {
        for (text, prefix, expected) in [
            (
                &b"GLIBC_2.2.5\0GLIBC_2.17\0GLIBC_2.4"[..],
                VERSION_PREFIX,
                Some(17),
            ),
            (b"GLIBC_2.", VERSION_PREFIX, None),
            (b"GLIBC_PRIVATE", VERSION_PREFIX, None),
            (
                b"ld.so (X) stable release version 2.36.\n",
                BANNER,
                Some(36),
            ),
            (b"", BANNER, None),
        ] {
            assert_eq!(latest_in(text, prefix), expected, "{text:?}");
        }
    }

    #[test]
    fn a_file_is_searched_in_pieces() {
        let own = sys::open_regular(c"/proc/self/exe").unwrap();
        assert!(latest_after(&own, VERSION_PREFIX).is_some());
        let loader = program_file::loader_of(c"/proc/self/exe").unwrap();
        assert!(loader.to_bytes().starts_with(b"/lib"), "{loader:?}");
    }
}
