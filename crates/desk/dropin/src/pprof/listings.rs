//! Source lines and instructions of functions, for the command line and for the page.

use std::cell::RefCell;
use std::io::{self, Write};

use anyhow::Result;
use heapprof_profile::Profile;
use heapprof_text::printable;

use super::config::PprofConfig;
use super::object_tools::ObjectTools;
use super::sources::SourceFileCache;
use crate::error::DropinError;
use crate::report::{
    self, ListingOrder, ListingRow, ObjectProblem, PprofReportOptions, SourceReader,
};

/// Prints the source lines of functions.
pub(super) fn list(
    profile: &Profile,
    options: &PprofReportOptions,
    out: &mut dyn Write,
) -> Result<()> {
    let sources = SourceFileCache::new(options)?;
    let read = |file: &str| sources.read(file);
    Ok(report::list(profile, options, &read, out)?)
}

/// Prints the instructions of functions.
pub(super) fn disasm(
    profile: &Profile,
    options: &PprofReportOptions,
    order: ListingOrder,
    config: &PprofConfig<'_>,
    out: &mut dyn Write,
) -> Result<()> {
    let tools = ObjectTools::new(config);
    // As in pprof, why a file can't be opened stands above the report, even if that goes into
    // another file.
    let print_line = |text: String| {
        let body = move |out: &mut dyn Write| Ok(writeln!(out, "{}", printable(&text))?);
        config.host.write(None, Box::new(body))
    };
    let unprinted = RefCell::new(Ok(()));
    let report_problem = |problem| match problem {
        ObjectProblem::NotOpened(why) => {
            let printed = print_line(why);
            if printed.is_err() {
                *unprinted.borrow_mut() = printed;
            }
        }
        ObjectProblem::NoSymbols(why) => config.note(&why),
    };
    report::disasm(profile, options, order, &tools, &report_problem, out)?;
    unprinted.into_inner()
}

/// Prints a page with the source lines of functions and their instructions.
pub(super) fn weblist(
    profile: &Profile,
    options: &PprofReportOptions,
    config: &PprofConfig<'_>,
    out: &mut dyn Write,
) -> Result<()> {
    with_sources(options, config, |tools, read, note| {
        report::weblist(profile, options, tools, read, note, out)
    })
}

/// Gives `show` the rows of the source lines of functions and of their instructions.
pub(super) fn source_rows(
    profile: &Profile,
    options: &PprofReportOptions,
    order: ListingOrder,
    config: &PprofConfig<'_>,
    show: &mut dyn FnMut(ListingRow) -> io::Result<()>,
) -> Result<()> {
    with_sources(options, config, |tools, read, note| {
        report::source_listing(profile, options, order, tools, read, note, show)
    })
}

/// Calls `list` with the outside tools, a reader of source files, and what prints a note.
fn with_sources(
    options: &PprofReportOptions,
    config: &PprofConfig<'_>,
    list: impl FnOnce(&ObjectTools, SourceReader<'_>, &dyn Fn(&str)) -> Result<(), DropinError>,
) -> Result<()> {
    let tools = ObjectTools::new(config);
    let sources = SourceFileCache::new(options)?;
    let read = |file: &str| sources.read(file);
    Ok(list(&tools, &read, &|text| config.note(text))?)
}
