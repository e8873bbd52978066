//! Reads source files that a profile names. A profile is data, so it may name any file.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Maximum size of a source file, in bytes.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// Reads a source file. A device or a pipe is an error, because its content may have no end. Of a
/// file that says that it is empty, such as those of the kernel, nothing is read.
pub(crate) fn read_source(path: &Path) -> io::Result<Vec<u8>> {
    let known = std::fs::metadata(path)?;
    if known.is_dir() {
        return Err(io::Error::from(io::ErrorKind::IsADirectory));
    }
    if !known.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    if length > MAX_FILE_BYTES {
        let limit = MAX_FILE_BYTES >> 20;
        let why = format!("it is larger than {limit} MiB, heapprof's limit for source text");
        return Err(io::Error::other(why));
    }
    let mut bytes = Vec::new();
    file.take(length).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn files_of_any_kind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.c");
        let mut source = File::create_new(&path).unwrap();
        source.write_all(b"int a;\n").unwrap();
        assert_eq!(read_source(&path).unwrap(), b"int a;\n");
        let error = |path: &Path| read_source(path).unwrap_err();
        let kind = error(folder.path()).kind();
        assert_eq!(kind, io::ErrorKind::IsADirectory);
        assert_eq!(
            error(&folder.path().join("b.c")).kind(),
            io::ErrorKind::NotFound
        );
        let device = error(Path::new("/dev/zero")).to_string();
        assert!(device.contains("no regular file"), "{device}");
        // This file of the kernel is as long as the address space, and says that it is empty.
        assert!(
            read_source(Path::new("/proc/self/pagemap"))
                .unwrap()
                .is_empty()
        );
        let large = folder.path().join("large");
        File::create_new(&large)
            .unwrap()
            .set_len(MAX_FILE_BYTES + 1)
            .unwrap();
        let why = error(&large).to_string();
        assert!(why.contains("larger than 64 MiB"), "{why}");
    }
}
