//! `-comments`: the profile's comments, those that headers hide as well.

use std::io::{self, Write};

use heapprof_profile::Profile;

/// Prints each comment on a line.
pub fn comments(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    for &comment in &profile.comment {
        writeln!(out, "{}", profile.text(comment))?;
    }
    Ok(())
}
