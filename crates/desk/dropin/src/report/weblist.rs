//! `-weblist`: a web page with the source lines of matching functions, and below each line its
//! instructions with their values and inlined calls.
//!
//! The steps come in pprof's order: find the addresses of samples whose functions match,
//! disassemble the code around these addresses, assign each instruction to the lines of its
//! functions, cut the lines into functions, write the page. Source: google/pprof,
//! internal/report/source.go.

mod cut;
mod instructions;
mod page;
mod samples;
mod text;

use std::io::Write;

use heapprof_profile::Profile;

use self::instructions::InstructionMap;
use self::page::ListingPage;
use self::samples::SampledAddresses;
use super::list::SourceReader;
use super::object::ObjectTool;
use super::options::PprofReportOptions;
use crate::error::DropinError;

/// Prints a page with the functions whose name, file or mapped file matches
/// [`PprofReportOptions::symbol`], or which are at this address. `note` prints a note for the user.
pub fn weblist(
    profile: &Profile,
    options: &PprofReportOptions,
    tool: &dyn ObjectTool,
    read: SourceReader<'_>,
    note: &dyn Fn(&str),
    out: &mut dyn Write,
) -> Result<(), DropinError> {
    let samples = SampledAddresses::new(profile, options, tool, note);
    if !samples.is_matched() {
        let symbol = options.symbol.as_ref().map(ToString::to_string);
        return Err(DropinError::NoMatch(symbol.unwrap_or_default()));
    }
    let mut map = InstructionMap::default();
    map.add_disassembled(&samples, options, tool, note);
    map.add_unmapped(&samples);
    map.add_values(&samples);
    ListingPage {
        profile,
        options,
        samples: &samples,
        map: &map,
        read,
    }
    .write(out)
}
