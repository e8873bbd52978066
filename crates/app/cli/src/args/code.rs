//! Whose code rows are: what of allocators, wrappers and libraries is left out.

use clap::Args;

use heapprof_page::check_wrappers;

#[derive(Debug, Args)]
pub(crate) struct CodeArgs {
    /// Also show the functions of libraries and of a language's runtime; without it, their memory
    /// is attributed to the nearest caller in the program's own code
    #[arg(long)]
    pub(crate) all_code: bool,
    /// Attribute the memory of libraries to the program's own code (the default)
    #[arg(long, conflicts_with_all = ["all_code", "all_frames"], hide_short_help = true)]
    pub(crate) own_code: bool,
    /// Leave out allocation wrappers, as malloc is left out: functions whose names (without
    /// parameters) match
    #[arg(long, value_name = "REGEX", value_parser = regex)]
    #[arg(conflicts_with = "all_frames", hide_short_help = true)]
    pub(crate) wrappers: Option<String>,
    /// Keep frames that the drop_frames of the profile would cut
    #[arg(long, hide_short_help = true)]
    pub(crate) all_frames: bool,
}

/// Reads a regular expression, and returns it as it stands.
pub(super) fn regex(text: &str) -> Result<String, String> {
    check_wrappers(text).map(|()| text.to_string())
}
