//! Inflates `.gnu_debugdata`, a symbol table that distributions leave in stripped programs. It is
//! an ELF file that is compressed with xz.

use std::io::Read;

use lzma_rust2::XzReader;

/// Maximum inflated size of a symbol table in bytes. Libraries of 200 MB have tables of a few MB.
const MAX_SYMBOL_TABLE_BYTES: u64 = 256 << 20;
/// Maximum size of the xz dictionary in KiB. xz's best compression uses 64 MiB.
const MAX_DICTIONARY_KIB: u32 = 65 << 10;

/// Returns the inflated ELF file of the section.
pub(crate) fn inflate(section: &[u8]) -> Result<Vec<u8>, String> {
    let mut output = Vec::new();
    let input = XzReader::new_mem_limit(section, true, MAX_DICTIONARY_KIB);
    match input
        .take(MAX_SYMBOL_TABLE_BYTES + 1)
        .read_to_end(&mut output)
    {
        Ok(_) if output.len() as u64 > MAX_SYMBOL_TABLE_BYTES => {
            Err(".gnu_debugdata: inflates to more than 256 MiB".to_string())
        }
        Ok(_) => Ok(output),
        Err(error) => Err(format!(".gnu_debugdata: {error}")),
    }
}
