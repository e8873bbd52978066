//! Sizes in bytes as people write them.

/// A number of bytes such as `512`, `16GiB` or `1.5gb`.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let bytes = heapprof_profile::parse_bytes(text);
    bytes.ok_or_else(|| "not a size; write for example 512MiB or 16GiB".to_string())
}

/// A number of bytes that is a growth, so not 0.
pub(crate) fn growth(text: &str) -> Result<u64, String> {
    match size(text)? {
        0 => Err("must be more than 0 bytes".to_string()),
        bytes => Ok(bytes),
    }
}
