//! The library and its header, unpacked where programs can load them.

use std::path::PathBuf;
use std::process::Command;

use heapprof_tests::harness::heapprof;

fn paths(cache: &tempfile::TempDir) -> [PathBuf; 2] {
    ["preload-path --header", "preload-path"].map(|args| {
        let output = Command::new(heapprof())
            .args(args.split(' '))
            .env("XDG_CACHE_HOME", cache.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{args}: {output:?}");
        let path = PathBuf::from(String::from_utf8(output.stdout).unwrap().trim());
        assert!(path.starts_with(cache.path()), "{}", path.display());
        path
    })
}

/// Unpacked files that differ in any byte are unpacked again: programs load them, so only the files
/// inside this binary may be used.
#[test]
fn what_is_not_to_the_byte_what_was_unpacked_is_unpacked_again() {
    let cache = tempfile::tempdir().unwrap();
    let unpacked = paths(&cache);
    assert_eq!(unpacked[0].parent(), unpacked[1].parent());
    for path in &unpacked {
        let whole = std::fs::read(path).unwrap();
        let mut last_byte = whole.clone();
        *last_byte.last_mut().unwrap() ^= 1;
        let longer = [&whole[..], b"more"].concat();
        for damaged in [&last_byte[..], &longer, &whole[..whole.len() / 2], b""] {
            std::fs::write(path, damaged).unwrap();
            assert_eq!(paths(&cache), unpacked);
            assert!(std::fs::read(path).unwrap() == whole, "{}", path.display());
        }
        std::fs::remove_file(path).unwrap();
        assert_eq!(paths(&cache), unpacked);
        assert!(std::fs::read(path).unwrap() == whole, "{}", path.display());
    }
}
