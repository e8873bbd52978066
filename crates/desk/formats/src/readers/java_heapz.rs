//! Reads heap profiles of Google's Java agent. A file consists of `--- heapz 1 ---`, attributes,
//! samples whose frames are numbers, and the names of the frames.
//!
//! Profiles are read as pprof reads them.

use heapprof_profile::ProfileBuilder;

use crate::counted_stack::CountedStack;
use crate::cut_frames;
use crate::error::{FormatError, shortened};
use crate::format::ProfileFormat;
use crate::heap_samples::size_label;
use crate::java_frames;
use crate::lines::LineReader;
use crate::reading::{FormatReadOptions, ProfileReading};
use crate::sampling::Unsampler;
use crate::stacks::AddressLocations;

const FIRST_LINE: &str = "--- heapz 1 ---";
/// Sampling period of the agent in bytes. The file does not contain it.
const SAMPLING_PERIOD: i64 = 512 << 10;

pub(crate) fn sniff(head: &[u8]) -> bool {
    let first = head.split(|&b| b == b'\n').next().unwrap_or_default();
    first.trim_ascii() == FIRST_LINE.as_bytes()
}

pub(crate) fn read(
    lines: &mut LineReader<'_>,
    options: &FormatReadOptions,
) -> Result<ProfileReading, FormatError> {
    lines.advance()?;
    let unit = attributes(lines)?;
    let mut builder = ProfileBuilder::new(&[("inuse_objects", "count"), ("inuse_space", &unit)]);
    let mut locations = AddressLocations::new(options);
    let mut unsampler = Unsampler::new(SAMPLING_PERIOD, options.as_pprof);
    let mut stack = Vec::new();
    while lines.advance()? {
        if lines.trimmed().is_empty() {
            continue;
        }
        let Some(sample) = CountedStack::read(lines)? else {
            lines.stay();
            break;
        };
        let (bytes, count) = (sample.value, sample.count);
        if count == 0 {
            return Err(lines.wrong("`BYTES COUNT @ 0xID …` with a count over 0"));
        }
        let values = unsampler.next(count, bytes).ok_or_else(|| {
            let found = format!("{bytes} bytes in {count} objects");
            lines.wrong_part(
                format!(
                    "values that fit in 64 bits when scaled up from one sample every \
                         {SAMPLING_PERIOD} bytes"
                ),
                found,
            )
        })?;
        let profile = &mut builder.profile;
        stack.clear();
        for id in sample.stack {
            let id = id.map_err(|text| lines.wrong_part("an id of 64 bits", shortened(text)))?;
            stack.push(locations.get(profile, id)?);
        }
        locations.count_sample(stack.len(), || profile.memory())?;
        let label = size_label(profile, bytes / count);
        let labels = profile.label_sets.intern(&mut [label], &profile.strings);
        let values = [values.0, values.1];
        profile.samples.push(stack.iter().copied(), &values, labels);
    }
    java_frames::names(lines, &mut builder, &mut locations)?;
    let mut profile = builder.finish();
    cut_frames::add_pprof_frames(&mut profile);
    let rule = format!("heapz 1, count and bytes divided by 1 - exp(-mean size/{SAMPLING_PERIOD})");
    Ok(ProfileReading::new(ProfileFormat::JavaHeapz, rule, profile))
}

/// Reads `name = value` lines and returns the value of `resolution`, which is the unit.
fn attributes(lines: &mut LineReader<'_>) -> Result<String, FormatError> {
    let mut unit = None;
    while lines.advance()? {
        let line = lines.text();
        let Some((name, value)) = line.split_once('=') else {
            if line.trim().is_empty() {
                continue;
            }
            break;
        };
        match (name.trim(), value.trim()) {
            ("format", "java") => {}
            ("resolution", "") => return Err(lines.wrong("`resolution=bytes`")),
            ("resolution", value) => unit = Some(value.to_string()),
            _ => return Err(lines.wrong("`format = java` or `resolution=bytes`")),
        }
    }
    lines.stay();
    unit.ok_or_else(|| lines.wrong("`resolution=bytes`"))
}
