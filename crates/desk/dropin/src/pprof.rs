//! `heapprof pprof`: pprof's command line and its output, byte for byte, on heapprof's engine.
//!
//! The steps come in pprof's order (google/pprof, internal/driver): read all sources, merge,
//! subtract a base, symbolize, drop uninteresting frames, add frames for labels, filter, aggregate,
//! report. This module repeats pprof's mistakes. docs/commands/pprof.md lists where heapprof's own
//! commands differ.

mod binaries;
mod config;
mod filters;
mod flag_table;
mod flags;
mod go_numbers;
mod image;
mod listings;
mod load;
mod object_tools;
mod page;
mod print;
mod profile_copy;
mod ranges;
mod remote;
mod remote_symbols;
mod setting_value;
mod shell;
mod sources;
mod symbols;
mod viewers;
mod views;

use std::sync::Arc;

use anyhow::{Result, bail};

use heapprof_formats::{ProfileFormat, ProfileReading};
use heapprof_profile::Profile;

use crate::host::{DropinHost, ToolReadOptions, WebPageRequest};
use crate::reshape;
use config::PprofConfig;
use flags::{FlagError, PprofArguments};
use views::LoadedViews;

/// Runs a pprof command line.
///
/// # Errors
/// pprof would not accept the command line, a source can't be read, or the report can't be written.
pub fn run(host: &dyn DropinHost, args: &[String]) -> Result<()> {
    run_with(host, args, false)
}

/// Runs a pprof command line, as [`run`] does. With `threads_as_counted`, threads keep their values
/// from the file, even if these do not add up to the file's totals.
pub(crate) fn run_with(
    host: &dyn DropinHost,
    args: &[String],
    threads_as_counted: bool,
) -> Result<()> {
    let typed = match PprofArguments::parse(args) {
        Ok(typed) => typed,
        Err(FlagError::Help) => {
            let help = host.help();
            return host.write(
                None,
                Box::new(move |out| Ok(out.write_all(help.as_bytes())?)),
            );
        }
        Err(FlagError::Invalid(why)) => bail!("pprof: {why}; heapprof pprof -h lists the flags"),
    };
    if typed.words.is_empty() {
        host.print_lines(&host.help());
        bail!("no profile source specified");
    }
    let config = PprofConfig::new(host, typed)?;
    // These formats do not read stacks unless a filter does. Adding up profiles does read them.
    let passed_on = matches!(config.format, "proto" | "tags" | "comments")
        && config.sources.len() == 1
        && config.base.is_none();
    let how = ToolReadOptions {
        convert: read_as_pprof,
        stacks_as_written: passed_on,
        threads_as_counted,
    };
    let page = match config.format {
        "http" => Some(page::page_request(&config)?),
        _ => None,
    };
    let (profile, copy) = load::load(&config, load::PprofFrameSelection::AsRequested(how))?;
    if config.format == "shell" {
        return shell::run(profile, &config);
    }
    if let Some(mut page) = page {
        if let (Some(copy), None) = (copy, &page.base) {
            // The server is not asked again: its next answer may be another profile.
            page.sources = vec![copy.display().to_string()];
        }
        let views = Arc::new(LoadedViews::new(profile, &config)?);
        return host.serve(&WebPageRequest {
            views: Some(views),
            ..page
        });
    }
    let mut shown = viewers::ShownFiles::default();
    let shown = shown.reserve(&config)?;
    print::report(profile, &config, shown)
}

/// Converts the result of reading a file to the profile that pprof works on, without empty labels.
fn read_as_pprof(reading: ProfileReading) -> Profile {
    let mut profile = reading.profile;
    if reading.format == ProfileFormat::Pprof {
        reshape::drop_empty_labels(&mut profile);
    }
    profile
}

pub use flag_table::help;
pub(crate) use image::draw;
pub(crate) use load::ToolReader;

/// A profile with all its frames, and the sample type to report.
pub(crate) struct LoadedProfile {
    pub(crate) profile: Profile,
    /// Index of the sample type.
    pub(crate) column: usize,
}

/// Loads the profile that pprof's flags select, as `reader` reads it: all frames stay, names are
/// not shortened, and no filter is applied.
pub(crate) fn load_all_frames(
    host: &dyn DropinHost,
    flags: &[String],
    reader: ToolReader,
) -> Result<LoadedProfile> {
    let typed = match PprofArguments::parse(flags) {
        Ok(typed) => typed,
        Err(FlagError::Invalid(why)) => bail!("{why}"),
        Err(FlagError::Help) => bail!("no profile source specified"),
    };
    let config = PprofConfig::new(host, typed)?;
    let (profile, _) = load::load(&config, load::PprofFrameSelection::AllFrames(reader))?;
    let column = print::column(&profile, &config.sample_index)?;
    Ok(LoadedProfile { profile, column })
}
