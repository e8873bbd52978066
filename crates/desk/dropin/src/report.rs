//! Reports as pprof prints them, byte for byte, for users who type `pprof` and for scripts that
//! read its output.
//!
//! The code follows google/pprof's internal/report, internal/measurement and internal/graph,
//! including their mistakes. heapprof's own reports are in another crate. The callers filter and
//! aggregate the profile, as pprof does, before they pass it to a printer.

mod callgrind;
mod colour;
mod columns;
mod comments;
mod disasm;
mod dot;
mod header;
mod labels;
mod list;
mod measurement;
mod names;
mod nodelet;
mod object;
mod options;
mod proto;
mod raw;
mod script_number;
mod short_name;
mod stacks;
mod tags;
mod text;
mod top;
mod topproto;
mod traces;
mod tree;
mod unit;
mod weblist;
mod zone;

use crate::graph::{self, CallGraph, CallSelection, PathTrimmer};
use heapprof_profile::Profile;

use self::unit::output_unit;
use crate::error::DropinError;

pub(crate) use self::script_number::to_fixed;
pub use self::{
    callgrind::callgrind,
    comments::comments,
    disasm::disasm,
    dot::dot,
    header::{ReportCounts, profile_labels, report_labels},
    list::{SourceReader, list},
    measurement::{UnitScale, convertible, label, percentage, scale, scaled_label},
    object::{
        InlinedFrame, Instruction, ObjectFile, ObjectMapping, ObjectProblem, ObjectSymbol,
        ObjectTool, SymbolQuery,
    },
    options::{PprofReportOptions, PprofValueFormatter},
    proto::proto,
    raw::raw,
    stacks::{FlameBox, FlameFrame, FlameGraph},
    tags::tags,
    top::{TopRow, top, top_rows},
    topproto::topproto,
    traces::traces,
    tree::tree,
    weblist::{
        InstructionRow, LineCode, ListingFunction, ListingLine, ListingOrder, ListingRow,
        source_listing, weblist,
    },
    zone::ReportTimeZone,
};

/// The kind of report that a graph is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GraphPurpose {
    /// A text report, with calls or without.
    Text {
        edges: bool,
    },
    Dot,
    Callgrind,
    /// Source lines or instructions of functions.
    List,
}

/// Builds the graph of a profile and trims it according to the options.
fn graph<'a>(
    profile: &'a Profile,
    options: &PprofReportOptions,
    what: GraphPurpose,
) -> Result<CallGraph<'a>, DropinError> {
    // Sizes are distinct if their texts in the requested unit differ. pprof chooses a unit only
    // after this.
    let sizes = UnitScale::new(options.bytes_unit(), &options.output_unit);
    let size_name = |size: i64| sizes.label(size);
    let picture = graph::PictureOptions {
        size_name: &size_name,
    };
    Ok(CallGraph::new(
        profile,
        &graph::GraphOptions {
            columns: vec![options.column],
            mean_divisor: options.mean_divisor,
            call_tree: options.call_tree
                && matches!(what, GraphPurpose::Dot | GraphPurpose::Callgrind),
            drop_negative: options.drop_negative,
            objects: matches!(what, GraphPurpose::Callgrind | GraphPurpose::List),
            trim: PathTrimmer::new(&options.trim_path, &options.source_path),
            picture: (what == GraphPurpose::Dot).then_some(picture),
            sort_by_cum: options.cum_sort,
            node_count: options.node_count,
            node_fraction: options.node_fraction,
            edge_fraction: options.edge_fraction,
            calls: match what {
                GraphPurpose::Text { edges: false } | GraphPurpose::List => CallSelection::None,
                _ => CallSelection::Each,
            },
            wrapping: true,
        },
    )?)
}
