//! `.gnu_debugdata`: a symbol table that distributions leave in stripped programs, itself an ELF file in xz.

use std::io::{self, Write};

/// What a symbol table may take; libraries of 200 MB have tables of a few.
const LARGEST: usize = 256 << 20;

/// The ELF file in the section.
pub(crate) fn inflate(section: &[u8]) -> Result<Vec<u8>, String> {
    let mut output = Bounded(Vec::new());
    let mut input = io::BufReader::new(section);
    match lzma_rs::xz_decompress(&mut input, &mut output) {
        Ok(()) => Ok(output.0),
        Err(error) => Err(format!(".gnu_debugdata: {error}")),
    }
}

struct Bounded(Vec<u8>);

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > LARGEST {
            return Err(io::Error::other("inflates to more than 256 MiB"));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
