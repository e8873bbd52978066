//! `heapprof preload-path`: where the library is that `record` preloads, for those who preload or
//! link it themselves.

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
