//! The profile that is meant when none is named: the newest recording in the current folder.

use anyhow::{Context, Result, bail};

/// Path of the newest `heapprof.*.pb.gz` here.
pub(crate) fn newest() -> Result<String> {
    let entries = std::fs::read_dir(".").context("the current folder cannot be read")?;
    let newest = entries
        .filter_map(Result::ok)
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let ours = name.starts_with("heapprof.") && name.ends_with(".pb.gz");
            let time = entry
                .metadata()
                .ok()
                .filter(|m| m.is_file())?
                .modified()
                .ok()?;
            // Of equally old ones the last name: an order that does not depend on the folder's.
            ours.then_some((time, name))
        })
        .max();
    match newest {
        Some((_, name)) => Ok(name),
        None => bail!(
            "no PROFILE is named, and there is no heapprof.*.pb.gz in this folder; name a file"
        ),
    }
}
