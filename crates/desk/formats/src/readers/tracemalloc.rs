//! Reads snapshots of Python's module tracemalloc, as `Snapshot.dump()` writes them.
//!
//! Such a file is a pickle of a `tracemalloc.Snapshot`. `Lib/tracemalloc.py` of Python's sources
//! defines its attributes: a list of traces, each a tuple of a domain, a size, and a tuple of
//! frames, innermost first. From Python 3.9 on, a trace also has the original number of frames of
//! the stack. A frame is a file and a line; tracemalloc does not record functions.

mod pickle;

use std::io::Read;

use foldhash::{HashMap, HashMapExt};
use heapprof_profile::LocationIndex;

use crate::bytes::BinaryReader;
use crate::error::FormatError;
use crate::format::ProfileFormat;
use crate::reading::{FormatReadOptions, ProfileReading};
use crate::tally::{FrameBudget, SampleTally, TextFrame, overflow};
use pickle::{Pickle, PickleClass, PickleValue};

pub(crate) fn sniff(head: &[u8]) -> bool {
    /// Number of bytes at the beginning of a file that must contain the name of the module.
    const SNIFFED_BYTES: usize = 32;
    matches!(head, [0x80, 2..=5, ..])
        && memchr::memmem::find(&head[..head.len().min(SNIFFED_BYTES)], b"tracemalloc").is_some()
}

pub(crate) fn read(
    stream: &mut dyn Read,
    options: &FormatReadOptions,
) -> Result<ProfileReading, FormatError> {
    let mut bytes = BinaryReader::new(stream);
    let (pickle, top) = pickle::read(&mut bytes, options.max_memory())?;
    let offset = bytes.offset();
    let wrong = |expected: &str| FormatError::Byte {
        offset,
        defect: format!("expected {expected} in the tracemalloc snapshot, found something else"),
    };
    let traces = pickle
        .attribute(top, PickleClass::Snapshot, "traces")
        .and_then(|traces| pickle.attribute(traces, PickleClass::Traces, "_traces"))
        .and_then(|traces| pickle.items(traces))
        .ok_or_else(|| wrong("an attribute `traces` that holds a list of traces"))?;
    let limit = match pickle.attribute(top, PickleClass::Snapshot, "traceback_limit") {
        Some(PickleValue::Int(limit)) => limit,
        _ => return Err(wrong("the attribute traceback_limit with a number")),
    };
    let mut snapshot = TracemallocSnapshot {
        pickle: &pickle,
        tally: SampleTally::new(
            &[("inuse_objects", "count"), ("inuse_space", "bytes")],
            options,
        ),
        frames: FrameBudget::for_file_bytes(offset),
        locations: HashMap::new(),
        samples: HashMap::new(),
        cut: 0,
    };
    for &trace in traces {
        let added = snapshot.add(trace).map_err(|error| error.at_byte(offset))?;
        added.ok_or_else(|| {
            wrong("a trace of a domain, a size, and frames of a file and a line each")
        })?;
    }
    let TracemallocSnapshot { mut tally, cut, .. } = snapshot;
    tally.comment(&format!(
        "tracemalloc kept at most {limit} frames of a stack; {cut} of {} traces had more",
        traces.len()
    ));
    let shown = tally.builder.text("inuse_space");
    tally.builder.profile.default_sample_type = shown;
    let unsampling = "none, tracemalloc records every block";
    Ok(ProfileReading::new(
        ProfileFormat::Tracemalloc,
        unsampling,
        tally.finish(),
    ))
}

/// The sums of the traces that were read so far.
struct TracemallocSnapshot<'a> {
    pickle: &'a Pickle,
    tally: SampleTally,
    frames: FrameBudget,
    /// Locations by file and line.
    locations: HashMap<(u32, i64), LocationIndex>,
    /// Samples by domain and tuple of frames. In real files, equal stacks share one tuple.
    samples: HashMap<(i64, PickleValue), u32>,
    /// Number of traces whose stack had more frames than tracemalloc recorded.
    cut: u64,
}

impl TracemallocSnapshot<'_> {
    /// Adds a trace. Returns `None` if the value is not a trace.
    fn add(&mut self, trace: PickleValue) -> Result<Option<()>, FormatError> {
        let (domain, size, frames, all) = match self.pickle.items(trace) {
            Some(&[PickleValue::Int(domain), PickleValue::Int(size), frames]) => {
                (domain, size, frames, 0)
            }
            Some(
                &[
                    PickleValue::Int(domain),
                    PickleValue::Int(size),
                    frames,
                    PickleValue::Int(all),
                ],
            ) => (domain, size, frames, all),
            _ => return Ok(None),
        };
        if size < 0 {
            return Err(overflow("the size of a block"));
        }
        let Some(kept) = self.pickle.items(frames) else {
            return Ok(None);
        };
        self.cut += u64::from(all > kept.len() as i64);
        if let Some(&sample) = self.samples.get(&(domain, frames)) {
            self.tally.add_to(sample, &[1, size])?;
            return Ok(Some(()));
        }
        let mut stack = Vec::with_capacity(kept.len());
        for &frame in kept {
            self.frames.count()?;
            let Some(&[PickleValue::Text(file), PickleValue::Int(line)]) = self.pickle.items(frame)
            else {
                return Ok(None);
            };
            stack.push(self.location(file, line)?);
        }
        if stack.is_empty() {
            stack.push(self.tally.named_location("(no frames)")?);
        }
        let domain_text = match domain {
            0 => String::new(),
            domain => domain.to_string(),
        };
        let labels = self.tally.text_label_set("domain", &domain_text);
        let sample = self.tally.add(&stack, labels, &[1, size])?;
        self.samples.insert((domain, frames), sample);
        Ok(Some(()))
    }

    /// Returns the location of a line. Its function is named by the file and the line, so that
    /// reports by function are reports by line, as in tracemalloc.
    fn location(&mut self, file: u32, line: i64) -> Result<LocationIndex, FormatError> {
        if let Some(&known) = self.locations.get(&(file, line)) {
            return Ok(known);
        }
        let path = self.pickle.text(file);
        let name = match line {
            0 => path.to_string(),
            line => format!("{path}:{line}"),
        };
        let frame = TextFrame {
            name: &name,
            file: path,
            line,
            ..TextFrame::default()
        };
        let location = self.tally.location(&[frame])?;
        self.locations.insert((file, line), location);
        Ok(location)
    }
}

#[cfg(test)]
mod tests;
