//! Makes the processor fetch what a report reads next: the names of a stack and the calls of a
//! function are scattered over memory.

/// Reads one byte of each place. None of these reads waits for another, so that the processor has
/// many of them on the way; whoever reads the places then finds them in its cache. Nobody needs the
/// bytes: `black_box` keeps the reads.
pub fn fetch(bytes: impl Iterator<Item = u8>) {
    std::hint::black_box(bytes.fold(0, |all, byte| all ^ byte));
}
