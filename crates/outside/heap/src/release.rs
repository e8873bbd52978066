//! Finds the release of glibc that a program has, by a text in libc.

use heapprof_memory::Memory;
use heapprof_process::PAGE_SIZE;
use heapprof_process::maps::ProcessMapping;

use crate::image::ProcessImage;

/// The text before the release in libc's own description: `GNU C Library (…) stable release version
/// 2.36.`
const RELEASE_PREFIX: &[u8] = b" release version ";
/// Maximum number of bytes of libc that are searched.
const MAX_LIBC_SIZE: u64 = 64 << 20;

/// Returns the release, such as `2.36`. Returns `None` if libc's file can't be read, or has no such
/// text.
pub fn release(image: &ProcessImage, memory: impl Memory) -> Option<String> {
    let is_libc = |map: &&ProcessMapping| {
        let name = map
            .path
            .rsplit(|&byte| byte == b'/')
            .next()
            .unwrap_or_default();
        name.starts_with(b"libc.so") || name.starts_with(b"libc-2.")
    };
    let of_libc = || image.files.iter().filter(is_libc);
    // Older linkers put constants beside code.
    let constant = of_libc().filter(|map| !map.is_code);
    let mut left = MAX_LIBC_SIZE;
    for map in constant.chain(of_libc().filter(|map| map.is_code)) {
        // Each page is searched together with the one before, because the text may lie across both.
        let mut page = [0; 2 * PAGE_SIZE as usize];
        let mut at = map.start;
        while at < map.end && left > 0 {
            let half = PAGE_SIZE as usize;
            page.copy_within(half.., 0);
            if !memory.read(at, &mut page[half..]) {
                break;
            }
            if let Some(found) = version(&page) {
                return Some(found);
            }
            at += PAGE_SIZE;
            left -= PAGE_SIZE;
        }
    }
    None
}

/// Returns the version that follows [`RELEASE_PREFIX`].
fn version(bytes: &[u8]) -> Option<String> {
    let at = bytes
        .windows(RELEASE_PREFIX.len())
        .position(|words| words == RELEASE_PREFIX)?;
    let rest = &bytes[at + RELEASE_PREFIX.len()..];
    let is_part = |byte: &u8| byte.is_ascii_digit() || *byte == b'.';
    let len = rest.iter().take_while(|byte| is_part(byte)).count();
    // A version that reaches the end of `bytes` may go on behind it.
    let found = std::str::from_utf8(rest.get(..len).filter(|_| len < rest.len())?).ok()?;
    let found = found.trim_end_matches('.');
    (!found.is_empty()).then(|| found.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_what_follows_the_words() {
        for (text, expected) in [
            (
                "GNU C Library (Debian) stable release version 2.36.\nCopyright",
                Some("2.36"),
            ),
            ("development release version 2.43.9000.", Some("2.43.9000")),
            ("stable release version 2.3", None),
            ("stable release version x", None),
            ("nothing", None),
        ] {
            let found = version(
                format!("{text}{}", if text.ends_with('.') { "\n" } else { "" }).as_bytes(),
            );
            assert_eq!(found.as_deref(), expected, "{text}");
        }
    }
}
