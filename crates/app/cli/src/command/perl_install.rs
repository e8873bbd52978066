//! `heapprof setup perl-install`: builds the module Devel::HeapProf for a perl, in a place where
//! `record` finds it.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::{output, perl_module};

pub(super) fn run(perl: Option<PathBuf>) -> Result<()> {
    let perl = perl.unwrap_or_else(|| Path::new("perl").to_path_buf());
    let installed = perl_module::install(&perl)?;
    let text = format!(
        "Devel::HeapProf for {} is in {}; heapprof record loads it\n",
        installed.perl,
        installed.folder.display()
    );
    output::text(None, &text)
}
