//! Writes Firefox Profiler's JSON in its processed format. The file has a thread for each sample
//! type, and tables that all threads share.
//!
//! The format version is 60. Newer versions of the profiler convert it (see `src/types/profile.ts`
//! and `docs-developer/CHANGELOG-formats.md` in its repository). The format has no place for
//! labels. Times have no meaning: the time of a sample is its index.

mod tables;

use std::io::Write;

use heapprof_profile::{Profile, Unit, UnitFamily};
use serde_json::{Value, json};

use super::WriteError;
use tables::FirefoxTables;

/// Version of the processed format. The next constant is the version of the Gecko format that the
/// processed format is based on.
const FORMAT_VERSION: u32 = 60;
const GECKO_VERSION: u32 = 32;

/// Writes a profile called `name`.
pub fn write_firefox(
    profile: &Profile,
    name: &str,
    mut writer: impl Write,
) -> Result<(), WriteError> {
    let tables = FirefoxTables::new(profile);
    write!(writer, "{{\"meta\":")?;
    serde_json::to_writer(&mut writer, &meta(profile, name))?;
    write!(writer, ",\n\"libs\":")?;
    serde_json::to_writer(&mut writer, &libs(profile))?;
    write!(writer, ",\n\"pages\":[],\"counters\":[],\n\"shared\":")?;
    tables.write(profile, &mut writer)?;
    writeln!(writer, ",\n\"threads\":[")?;
    for at in 0..profile.sample_type.len() {
        let comma = if at + 1 < profile.sample_type.len() {
            ","
        } else {
            ""
        };
        thread(profile, &tables, at, &mut writer)?;
        writeln!(writer, "{comma}")?;
    }
    writeln!(writer, "]}}")?;
    Ok(())
}

fn meta(profile: &Profile, name: &str) -> Value {
    let threads: Vec<usize> = (0..profile.sample_type.len()).collect();
    json!({
        "interval": 1,
        "startTime": profile.time_nanos as f64 / 1e6,
        "processType": 0,
        "extensions": {"baseURL": [], "id": [], "name": [], "length": 0},
        "categories": [{"name": "Other", "color": "grey", "subcategories": ["Other"]}],
        "product": name,
        "stackwalk": 1,
        "version": GECKO_VERSION,
        "preprocessedProfileVersion": FORMAT_VERSION,
        "symbolicated": true,
        "symbolicationNotSupported": true,
        "markerSchema": [],
        "importedFrom": "heapprof",
        "usesOnlyOneStackType": true,
        "sourceCodeIsNotOnSearchfox": true,
        "keepProfileThreadOrder": true,
        "initialVisibleThreads": threads,
        "initialSelectedThreads": [profile.default_sample_type_index()],
    })
}

/// Returns a library for each mapping, in the order of the mappings.
fn libs(profile: &Profile) -> Value {
    let libs = profile.mapping.iter().map(|mapping| {
        let path = profile.text(mapping.filename);
        let name = tables::base_name(path);
        let build_id = profile.text(mapping.build_id);
        json!({
            "arch": "",
            "name": name,
            "path": path,
            "debugName": name,
            "debugPath": path,
            "breakpadId": "",
            "codeId": if build_id.is_empty() { Value::Null } else { build_id.into() },
        })
    });
    libs.collect()
}

/// Writes the thread with the values of a sample type.
fn thread(
    profile: &Profile,
    tables: &FirefoxTables,
    at: usize,
    writer: &mut impl Write,
) -> Result<(), WriteError> {
    let value_type = profile.sample_type[at];
    let (r#type, unit) = (
        profile.text(value_type.r#type),
        profile.text(value_type.unit),
    );
    let (weight_type, factor, divisor) = match Unit::parse(unit) {
        Some(Unit {
            family: UnitFamily::Bytes,
            factor,
        }) => ("bytes", factor, 1),
        // Times are written in milliseconds, which need not be whole.
        Some(Unit {
            family: UnitFamily::Time,
            factor,
        }) => ("tracing-ms", factor, 1_000_000),
        None => ("samples", 1, 1),
    };
    let head = json!({
        "processType": "default",
        "processStartupTime": 0,
        "processShutdownTime": null,
        "registerTime": 0,
        "unregisterTime": null,
        "pausedRanges": [],
        "name": format!("{} ({unit})", r#type),
        "isMainThread": false,
        "pid": "0",
        "tid": at,
        "markers": {"data": [], "name": [], "startTime": [], "endTime": [], "phase": [], "category": [], "length": 0},
    });
    let head = serde_json::to_string(&head)?;
    let samples = &profile.samples;
    let kept: Vec<usize> = (0..samples.len())
        .filter(|&i| samples.values(i)[at] != 0)
        .collect();
    let each =
        |writer: &mut dyn Write, text: &dyn Fn(usize, usize) -> String| -> Result<(), WriteError> {
            for (number, &sample) in kept.iter().enumerate() {
                let comma = if number == 0 { "" } else { "," };
                write!(writer, "{comma}{}", text(number, sample))?;
            }
            Ok(())
        };
    for &sample in &kept {
        let value = samples.values(sample)[at];
        if value.checked_mul(factor).is_none() {
            let reason = format!(
                "sample #{}: its value times {factor} does not fit in 64 bits",
                sample + 1
            );
            return Err(WriteError::Unfit(reason));
        }
    }
    write!(
        writer,
        "{},\"samples\":{{\"weightType\":\"{weight_type}\",\"length\":{},\n\"stack\":[",
        &head[..head.len() - 1],
        kept.len()
    )?;
    each(writer, &|_, sample| match tables.stack_of(sample) {
        Some(stack) => stack.to_string(),
        None => "null".to_string(),
    })?;
    write!(writer, "],\n\"time\":[")?;
    each(writer, &|number, _| number.to_string())?;
    write!(writer, "],\n\"weight\":[")?;
    each(writer, &|_, sample| {
        let value = samples.values(sample)[at].saturating_mul(factor);
        match (value / divisor, (value % divisor).unsigned_abs()) {
            (whole, 0) => whole.to_string(),
            (whole, rest) => {
                let sign = if value < 0 && whole == 0 { "-" } else { "" };
                format!("{sign}{whole}.{rest:06}")
            }
        }
    })?;
    write!(writer, "]}}}}")?;
    Ok(())
}
