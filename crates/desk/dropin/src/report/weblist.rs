//! `-weblist`: a web page with the source lines of matching functions, and below each line its
//! instructions with their values and inlined calls.
//!
//! The steps come in pprof's order: find the addresses of samples whose functions match,
//! disassemble the code around these addresses, assign each instruction to the lines of its
//! functions, cut the lines into functions, write the page. Source: google/pprof,
//! internal/report/source.go.

mod cut;
mod instructions;
mod listing;
mod page;
mod samples;
mod text;

use std::io::{self, Write};

use heapprof_profile::Profile;

pub use self::listing::{
    InstructionRow, LineCode, ListingFunction, ListingLine, ListingOrder, ListingRow,
};

use self::instructions::InstructionMap;
use self::listing::SourceListing;
use self::page::{page_end, page_start, push_row};
use self::samples::SampledAddresses;
use super::header::profile_labels;
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
    let values = options.values();
    let legend = profile_labels(profile, options, &values);
    let mut text = page_start(&legend, &values.show(options.total));
    let mut show = |row: ListingRow| {
        push_row(&row, &mut text);
        out.write_all(&text)?;
        text.clear();
        Ok(())
    };
    let order = ListingOrder::Name;
    source_listing(profile, options, order, tool, read, note, &mut show)?;
    // A page without functions has no row yet.
    out.write_all(&text)?;
    Ok(out.write_all(page_end())?)
}

/// Gives each row of the listing to `show`: the functions that [`weblist`] prints. `note` gets what
/// the user should know about the rows.
pub fn source_listing(
    profile: &Profile,
    options: &PprofReportOptions,
    order: ListingOrder,
    tool: &dyn ObjectTool,
    read: SourceReader<'_>,
    note: &dyn Fn(&str),
    show: &mut dyn FnMut(ListingRow) -> io::Result<()>,
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
    if map.is_cut {
        note(
            "some functions are inlined so deeply that lines of their callers are left out, \
             heapprof's limit",
        );
    }
    let listing = SourceListing {
        options,
        samples: &samples,
        map: &map,
        read,
    };
    listing.visit(order, show)
}
