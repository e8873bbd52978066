//! Reads heap profiles of Google's Java agent. A file consists of `--- heapz 1 ---`, attributes,
//! samples whose frames are numbers, and the names of the frames.
//!
//! Profiles are read as pprof reads them.

use heapprof_profile::ProfileBuilder;

use crate::cut_frames;
use crate::error::FormatError;
use crate::format::ProfileFormat;
use crate::heap_samples::size_label;
use crate::java_frames;
use crate::lines::LineReader;
use crate::reading::{FormatReadOptions, ProfileReading};
use crate::sampling::Unsampler;

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
    let mut unsampler = Unsampler::new(SAMPLING_PERIOD, options.as_pprof);
    java_frames::read(lines, &mut builder, options, |sample, lines, profile| {
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
        let label = size_label(profile, bytes / count);
        let labels = profile.label_sets.intern(&mut [label], &profile.strings);
        Ok(([values.0, values.1], labels))
    })?;
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
