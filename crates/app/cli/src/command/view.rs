//! The settings of the terminal view that come from the command line: its colours, and how it
//! writes files.

use std::path::Path;

use anyhow::Result;
use heapprof_profile::{Profile, encode};
use heapprof_terminal::ScreenStyle;
use heapprof_terminal::run::ViewActions;

use super::report::write_page_of_file;
use crate::args::{ColorMode, FileMode};
use crate::output;

/// The functions with which the view writes files.
pub(super) const VIEW_ACTIONS: ViewActions = ViewActions {
    write_profile,
    write_report: write_page_of_file,
};

/// Writes a profile that only this user may read.
fn write_profile(profile: &Profile, path: &Path) -> Result<()> {
    output::profile(FileMode(0o600), Some(path), |writer| {
        Ok(encode(profile, writer)?)
    })
}

/// Returns the style of the screen, with colours if they are wanted.
pub(super) fn screen_style(color: ColorMode) -> ScreenStyle {
    // The view has a terminal wherever it is shown.
    ScreenStyle {
        is_coloured: color.has_colour(|| true),
    }
}
