//! Reads the heap profile text of gperftools and tcmalloc: `HEAPPROFILE` dumps, `/pprof/heap`,
//! growth and fragmentation.
//!
//! Files are read as pprof reads them. If `FormatReadOptions::as_pprof` is set, the numbers are
//! exactly pprof's, so `heapprof pprof` prints the same bytes as pprof.

use heapprof_profile::Profile;

use crate::cut_frames;
use crate::error::FormatError;
use crate::format::ProfileFormat;
use crate::heap_line::HeapHeaderLine;
use crate::heap_samples::{EXPECTED_HEADER, HeapProfileKind, size_label};
use crate::lines::LineReader;
use crate::mapped_files;
use crate::reading::{FormatReadOptions, ProfileReading};
use crate::stacks::{self, AddressLocations};

pub(crate) fn sniff(head: &[u8]) -> bool {
    let first = head.split(|&b| b == b'\n').next();
    first.is_some_and(|line| HeapHeaderLine::find(line).is_some())
}

pub(crate) fn read(
    lines: &mut LineReader<'_>,
    options: &FormatReadOptions,
) -> Result<ProfileReading, FormatError> {
    if !lines.advance()? {
        return Err(lines.ended(EXPECTED_HEADER));
    }
    let mut kind = HeapProfileKind::from_header(lines, options)?;
    let mut profile = samples(&mut kind, lines, options)?;
    let files = mapped_files::read(lines)?;
    stacks::assign_mappings(&mut profile, files);
    cut_frames::add_pprof_frames(&mut profile);
    Ok(ProfileReading::new(
        ProfileFormat::Gperftools,
        kind.rule(),
        profile,
    ))
}

/// Reads samples up to the memory map. `lines` then stays on the map's first line.
fn samples(
    kind: &mut HeapProfileKind,
    lines: &mut LineReader<'_>,
    options: &FormatReadOptions,
) -> Result<Profile, FormatError> {
    let mut profile = kind.profile();
    let mut locations = AddressLocations::new(options);
    let (mut values, mut calls, mut stack) = (Vec::new(), Vec::new(), Vec::new());
    while lines.advance()? {
        let line = lines.trimmed();
        if line.is_empty() || line[0] == b'#' {
            kind.note(line, &mut profile);
            continue;
        }
        if mapped_files::begins(line) {
            break;
        }
        let counted = kind.sample(lines, &mut values)?;
        let mean_size = counted.mean_size;
        counted.calls(lines, &mut calls)?;
        stack.clear();
        for &call in &calls {
            stack.push(locations.get(&mut profile, call)?);
        }
        locations.count_sample(stack.len(), || profile.memory())?;
        let label = size_label(&mut profile, mean_size);
        let labels = profile.label_sets.intern(&mut [label], &profile.strings);
        let stack = stack.iter().copied();
        profile.samples.push(stack, &values, labels);
    }
    Ok(profile)
}
