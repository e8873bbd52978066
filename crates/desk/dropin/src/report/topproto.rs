//! `pprof -topproto`: the rows of `-top` as a profile, with one sample for each node.
//!
//! Values are whole numbers of the shown unit, cum before flat, because pprof writes the file like
//! that. The file is of little use if values are smaller than the unit.

use std::collections::HashMap;
use std::io::Write;

use crate::graph::truncate_as_go;
use heapprof_profile::{
    Function, FunctionIndex, LabelSetIndex, Line, Location, LocationIndex, Profile, Samples,
    StringId, ValueType, encode,
};

use super::measurement::UnitScale;
use super::options::PprofReportOptions;
use super::{GraphPurpose, graph, output_unit};
use crate::error::DropinError;

/// Returns the rows as a profile.
fn top_profile(profile: &Profile, options: &PprofReportOptions) -> Result<Profile, DropinError> {
    let graph = graph(profile, options, GraphPurpose::Text { edges: false })?;
    let unit = output_unit(&graph, options, false);
    let scale = UnitScale::new(&options.sample_unit, &unit);
    let scaled = |value: i64| truncate_as_go(scale.apply(value).0);

    let mut out = Profile {
        samples: Samples::new(2),
        time_nanos: profile.time_nanos,
        duration_nanos: profile.duration_nanos,
        period: profile.period,
        ..Profile::default()
    };
    out.sample_type = ["cum", "flat"]
        .map(|name| ValueType {
            r#type: out.strings.intern(name),
            unit: out.strings.intern(&unit),
        })
        .to_vec();
    out.period_type = profile.period_type.map(|t| ValueType {
        r#type: out.strings.intern(profile.text(t.r#type)),
        unit: out.strings.intern(profile.text(t.unit)),
    });
    let mut functions: HashMap<(StringId, StringId, i64), FunctionIndex> = HashMap::new();
    for &node in graph.shown() {
        let info = graph.info(node);
        let name = out.strings.intern(info.name);
        let filename = out.strings.intern(info.file);
        let list = &mut out.function;
        let function = *functions
            .entry((name, filename, info.start_line))
            .or_insert_with(|| {
                list.push(Function {
                    id: list.len() as u64 + 1,
                    name,
                    system_name: StringId::EMPTY,
                    filename,
                    start_line: info.start_line,
                });
                FunctionIndex(list.len() as u32 - 1)
            });
        let at = out.line.len() as u32;
        out.line.push(Line {
            function,
            line: info.line,
            column: info.column,
        });
        out.location.push(Location {
            id: u64::from(at) + 1,
            mapping: None,
            address: info.address,
            line: at..at + 1,
            is_folded: false,
        });
        let values = [scaled(graph.cum(node)), scaled(graph.flat(node))];
        out.samples
            .push([LocationIndex(at)], &values, LabelSetIndex(0));
    }
    Ok(out)
}

/// Writes the rows as a gzipped profile.
pub fn topproto(
    profile: &Profile,
    options: &PprofReportOptions,
    writer: impl Write,
) -> Result<(), DropinError> {
    Ok(encode(&top_profile(profile, options)?, writer)?)
}
