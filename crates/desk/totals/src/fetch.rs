//! Makes the processor load memory before a report reads it, because the names of a stack and the
//! calls of a function are scattered over memory.

/// Reads bytes of memory that other code reads next, so that this memory is in the cache. `bytes`
/// should have one byte of each cache line. No read waits for another, so the processor does many
/// at once. The values are not needed; `black_box` keeps the compiler from removing the reads.
pub fn fetch(bytes: impl Iterator<Item = u8>) {
    std::hint::black_box(bytes.fold(0, |all, byte| all ^ byte));
}
