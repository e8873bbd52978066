//! `heapprof pprof`: pprof's command line and its output, byte for byte, on heapprof's engine.
//!
//! The steps come in pprof's order (google/pprof, internal/driver): read all sources, merge,
//! subtract a base, symbolize, drop uninteresting frames; then frames of labels, filters,
//! aggregation, report. What it prints wrong is printed so here too; docs/commands/pprof.md lists
//! where heapprof's own commands differ.

mod binaries;
mod config;
mod filters;
mod flags;
mod image;
mod load;
mod ranges;
mod remote;
mod report;
mod saved;
mod sources;
mod symbols;

use std::process::ExitCode;

use anyhow::{Result, bail};

use heapprof_profile::Profile;

use crate::args::help_of;
use crate::source::Sources;
use crate::{messages, output};
use config::Config;
use flags::{Typed, Wrong};

/// Does what the command line says.
pub(crate) fn run(sources: &Sources, args: &[String]) -> Result<ExitCode> {
    let typed = match Typed::parse(args) {
        Ok(typed) => typed,
        Err(Wrong::Help) => {
            output::write(None, |out| Ok(out.write_all(help_of("pprof").as_bytes())?))?;
            return Ok(ExitCode::SUCCESS);
        }
        Err(Wrong::Because(why)) => bail!("pprof: {why}; heapprof pprof -h lists the flags"),
    };
    if typed.words.is_empty() {
        messages::help(&help_of("pprof"));
        bail!("no profile source specified");
    }
    let config = Config::new(typed)?;
    // These do not look at stacks, if no filter does; a sum does.
    let passed_on = matches!(config.format, "proto" | "tags" | "comments")
        && config.sources.len() == 1
        && config.base.is_none();
    let as_written = sources.stacks_as_written();
    let sources = if passed_on { &as_written } else { sources };
    let profile = load::load(sources, &config, load::Keep::AsAsked)?;
    report::report(profile, &config)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) use load::Reader;

/// A profile with all its frames, and what it is to be reported by.
pub(crate) struct Loaded {
    pub(crate) profile: Profile,
    /// Position of the sample type.
    pub(crate) column: usize,
}

/// The profile that pprof's flags ask for as another tool reads it, with no frame dropped and whole
/// names, before filters.
pub(crate) fn load_all_frames(
    sources: &Sources,
    flags: &[String],
    reader: Reader,
) -> Result<Loaded> {
    let typed = match Typed::parse(flags) {
        Ok(typed) => typed,
        Err(Wrong::Because(why)) => bail!("{why}"),
        Err(Wrong::Help) => bail!("no profile source specified"),
    };
    let config = Config::new(typed)?;
    let profile = load::load(sources, &config, load::Keep::AllFrames(reader))?;
    let column = report::column(&profile, &config.sample_index)?;
    Ok(Loaded { profile, column })
}
