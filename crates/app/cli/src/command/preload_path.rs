//! `heapprof setup preload-path`: prints the path of the library that `record` preloads, or of the
//! library's header. Users who preload or link the library themselves need this path.

use anyhow::Result;

use crate::{output, preload};

pub(super) fn run(header: bool) -> Result<()> {
    let path = if header {
        preload::header()?
    } else {
        preload::library()?
    };
    output::text(None, &format!("{}\n", path.display()))
}
