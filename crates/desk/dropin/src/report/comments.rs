//! `-comments`: the profile's comments, including those that report headers hide.

use std::io::{self, Write};

use heapprof_profile::Profile;

/// Prints each comment on a line.
pub fn comments(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    for &comment in &profile.comment {
        writeln!(out, "{}", profile.text(comment))?;
    }
    Ok(())
}
