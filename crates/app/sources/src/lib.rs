//! Finds and reads the profile that a user's argument names: a file or a part of it, standard
//! input, a URL, a stored profile, or a selector of stored moments. [`ProfileSources`] does this.
//!
//! The front end gives [`SourceSettings`] and a [`SourceHost`], which shows notes and progress,
//! puts errors into words, and reads processes and core files. [`without_secrets`] replaces the
//! secrets in an address by marks, and only a request contains the secrets again.
//! [`DebuginfodClient`] fetches debug files for their names.
#![forbid(unsafe_code)]
// The rules are for programs. Tests write where nobody else does.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod argument;
mod debuginfod;
mod default_profile;
mod fetch;
mod host;
mod largest_process;
mod own_recording;
mod settings;
mod shell_source;
mod source;
mod url;

pub use argument::{argument_without_secrets, line_without_secrets};
pub use debuginfod::{DEBUGINFOD_URLS, DebugFileFetch, DebuginfodClient};
pub use fetch::post;
pub use host::{SourceError, SourceHost};
pub use settings::SourceSettings;
pub use shell_source::{ShellSource, is_database};
pub use source::{
    ProfileSources, STDIN_PATH, SelectedSource, part_of_stdin, split_part, to_owned_profile,
};
pub use url::without_secrets;
