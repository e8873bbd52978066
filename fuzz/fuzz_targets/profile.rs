//! Fuzz target that feeds any bytes to all readers: `cargo +nightly fuzz run profile`.
#![no_main]

#[path = "../../tests/tools/exercise.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    exercise::exercise(bytes, true);
});
