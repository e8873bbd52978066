//! What pprof prints, byte for byte: for those who type `pprof` and for scripts that read it.
//!
//! Everything here follows google/pprof's internal/report, internal/measurement and internal/graph,
//! including their mistakes. Our own reports are the modules beside this one. The callers filter
//! and aggregate the profile, as pprof does, before a printer gets it.

mod callgrind;
mod colour;
mod columns;
mod comments;
mod dot;
mod header;
mod labels;
mod list;
mod measurement;
mod names;
mod nodelet;
mod options;
mod proto;
mod raw;
mod short_name;
mod tags;
mod text;
mod top;
mod topproto;
mod traces;
mod tree;
mod unit;
mod zone;

use crate::graph::{self, Calls, Graph, Trim};
use heapprof_profile::Profile;

use self::unit::output_unit;
use crate::error::Error;

pub use self::{
    callgrind::callgrind,
    comments::comments,
    dot::dot,
    header::{Shown, profile_labels, report_labels},
    list::{ReadSource, list},
    measurement::{Scale, convertible, label, percentage, scale, scaled_label},
    options::{Options, Values},
    proto::proto,
    raw::raw,
    tags::tags,
    top::top,
    topproto::topproto,
    traces::traces,
    tree::tree,
    zone::Zone,
};

/// What a graph is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum For {
    /// Rows, with calls or without.
    Text {
        edges: bool,
    },
    Dot,
    Callgrind,
    List,
}

/// The graph of a profile as the options trim it.
fn graph<'a>(profile: &'a Profile, options: &Options, what: For) -> Result<Graph<'a>, Error> {
    // Sizes are told apart by how they look in the unit that was asked for. That comes before pprof
    // chooses a unit.
    let sizes = Scale::new(options.bytes_unit(), &options.output_unit);
    let size_name = |size: i64| sizes.label(size);
    let picture = graph::Picture {
        size_name: &size_name,
    };
    Ok(Graph::new(
        profile,
        &graph::Options {
            columns: vec![options.column],
            mean_divisor: options.mean_divisor,
            call_tree: options.call_tree && matches!(what, For::Dot | For::Callgrind),
            drop_negative: options.drop_negative,
            objects: matches!(what, For::Callgrind | For::List),
            trim: Trim::new(&options.trim_path, &options.source_path),
            picture: (what == For::Dot).then_some(picture),
            sort_by_cum: options.cum_sort,
            node_count: options.node_count,
            node_fraction: options.node_fraction,
            edge_fraction: options.edge_fraction,
            calls: match what {
                For::Text { edges: false } | For::List => Calls::None,
                _ => Calls::Each,
            },
            wrapping: true,
        },
    )?)
}
