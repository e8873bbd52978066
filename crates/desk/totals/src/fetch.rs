//! Makes the processor fetch the memory that a report reads next, because the names of a stack and
//! the calls of a function are scattered over memory.

/// Reads one byte of each place, so that code that reads the places next finds them in the cache.
/// None of these reads waits for another, so the processor has many of them under way at once. The
/// bytes are not needed; `black_box` keeps the compiler from removing the reads.
pub fn fetch(bytes: impl Iterator<Item = u8>) {
    std::hint::black_box(bytes.fold(0, |all, byte| all ^ byte));
}
