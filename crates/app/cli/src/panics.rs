//! Makes a panic of the Parquet library end the program like an error.

use std::path::Path;

use crate::messages;

/// Makes every later panic print an error about `place` and exit with code 2, because the library
/// that reads Parquet panics on some damaged files.
#[allow(
    clippy::disallowed_methods,
    reason = "a panic never gets back to main, which decides exit codes otherwise"
)]
pub(crate) fn exit_on_panic(place: &Path) {
    let shown = place.display().to_string();
    std::panic::set_hook(Box::new(move |panic| {
        let why = panic.payload_as_str().unwrap_or("it panics");
        messages::error(&anyhow::anyhow!(
            "{shown}: a file is damaged: the Parquet library reports: {why}"
        ));
        std::process::exit(2);
    }));
}
