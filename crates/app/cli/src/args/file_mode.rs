//! `--file-mode`: who may read the profiles and databases that a command makes.

use anyhow::{Result, bail};
use clap::Args;

/// The rights of a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileMode(pub(crate) u32);

/// A profile shows what a program did, so only its user reads it, unless they say otherwise.
const OWNER_ONLY_MODE: FileMode = FileMode(0o600);

#[derive(Debug, Args)]
pub(crate) struct FileModeArgs {
    /// File mode of new profiles and databases, 600 to 666, whatever the umask is
    /// [env: HEAPPROF_FILE_MODE] [default: 600]
    #[arg(long, value_name = "MODE", value_parser = file_mode)]
    file_mode: Option<FileMode>,
}

impl FileModeArgs {
    /// Whether a mode stands on the command line.
    pub(crate) fn is_typed(&self) -> bool {
        self.file_mode.is_some()
    }

    /// The mode: as typed, otherwise as the environment says (an empty variable says nothing),
    /// otherwise for the user alone.
    pub(crate) fn mode(&self) -> Result<FileMode> {
        if let Some(mode) = self.file_mode {
            return Ok(mode);
        }
        let set = std::env::var_os(FILE_MODE_VARIABLE).filter(|text| !text.is_empty());
        let Some(text) = set else {
            return Ok(OWNER_ONLY_MODE);
        };
        match text.to_str().map(file_mode) {
            Some(Ok(mode)) => Ok(mode),
            _ => bail!(
                "{FILE_MODE_VARIABLE}: {}: {INVALID_MODE_TEXT}",
                text.display()
            ),
        }
    }
}

/// The variable, which the collector obeys too.
const FILE_MODE_VARIABLE: &str = heapprof_abi::environment::FILE_MODE.name;
const INVALID_MODE_TEXT: &str = "is not a file mode from 600 to 666, such as 640 or 644";

fn file_mode(text: &str) -> Result<FileMode, String> {
    let mode = heapprof_files::parse_mode(text).map(FileMode);
    mode.ok_or_else(|| INVALID_MODE_TEXT.to_string())
}
