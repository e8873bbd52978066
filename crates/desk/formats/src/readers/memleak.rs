//! Reads reports of memleak, a tool of bcc. Every few seconds, memleak lists the memory that was
//! allocated since it was started and not freed yet.
//!
//! Each report is a profile. The last report is read unless the user selects another. Both versions
//! of the tool, in Python and in C, are supported.

use heapprof_profile::{LocationIndex, Profile};

use crate::cut_frames;
use crate::error::FormatError;
use crate::figures::value;
use crate::format::ProfileFormat;
use crate::lines::LineReader;
use crate::reading::{FormatReadOptions, PartSelector, ProfileReading};
use crate::symbol_frame;
use crate::tally::SampleTally;

const REPORT_MARK: &[u8] = b" stacks with outstanding allocations:";
const STACK_MARK: &[u8] = b" allocations from stack";

pub(crate) fn sniff(head: &[u8]) -> bool {
    head.split(|&b| b == b'\n').any(begins)
}

/// Whether a line is the title of a report or begins an entry. The line may be among other output.
pub(crate) fn begins(line: &[u8]) -> bool {
    is_report(line) || entry(line).is_some()
}

pub(crate) fn read(
    lines: &mut LineReader<'_>,
    options: &FormatReadOptions,
) -> Result<ProfileReading, FormatError> {
    let mut file = MemleakFile {
        part: options.part.unwrap_or(PartSelector::Last),
        reports: 0,
        largest: (0, -1),
        current: MemleakReport::new(options),
        chosen: None,
    };
    let mut is_open = false;
    while lines.advance()? {
        if is_report(lines.line()) {
            if is_open {
                file.close(options)?;
            }
            is_open = true;
            let time = lines.trimmed().strip_prefix(b"[").unwrap_or_default();
            let time = time.split(|&b| b == b']').next().unwrap_or_default();
            file.current.time = String::from_utf8_lossy(time).into_owned();
        } else if let Some(values) = entry(lines.line()) {
            is_open = true;
            file.current.close_stack()?;
            file.current.values = Some(values);
        } else if file.current.values.is_some() && lines.line().starts_with(b"\t")
            || file.current.is_frame(lines.line())
        {
            file.current.frame(lines)?;
        } else {
            file.current.close_stack()?;
        }
    }
    if !is_open {
        return Err(lines.ended("[TIME] Top N stacks with outstanding allocations:"));
    }
    file.close(options)?;
    file.reading()
}

fn is_report(line: &[u8]) -> bool {
    line.starts_with(b"[") && line.ends_with(REPORT_MARK)
}

/// Returns the objects and bytes in `80 bytes in 5 allocations from stack`.
fn entry(line: &[u8]) -> Option<[i64; 2]> {
    let line = line.trim_ascii().strip_suffix(STACK_MARK)?;
    let mut words = line.split(|&b| b == b' ');
    let bytes = value(words.next()?)?;
    let known = words.next() == Some(b"bytes") && words.next() == Some(b"in");
    let objects = value(words.next()?)?;
    (known && words.next().is_none()).then_some([objects, bytes])
}

struct MemleakFile {
    part: PartSelector,
    reports: u64,
    /// Number of the largest report, and its bytes.
    largest: (u64, i64),
    current: MemleakReport,
    chosen: Option<Profile>,
}

impl MemleakFile {
    /// Ends the current report, and stores it if it fits the selected part better than the reports
    /// before it.
    fn close(&mut self, options: &FormatReadOptions) -> Result<(), FormatError> {
        let mut report = std::mem::replace(&mut self.current, MemleakReport::new(options));
        report.close_stack()?;
        self.reports += 1;
        let is_largest = report.bytes > self.largest.1;
        if is_largest {
            self.largest = (self.reports, report.bytes);
        }
        let is_chosen = match self.part {
            PartSelector::Number(number) => number == self.reports,
            PartSelector::Peak => is_largest,
            PartSelector::Last => true,
        };
        if is_chosen {
            let mut tally = report.tally;
            let number = self.reports;
            tally.comment(&format!("report: {number}, at {}", report.time));
            self.chosen = Some(tally.finish());
        }
        Ok(())
    }

    fn reading(self) -> Result<ProfileReading, FormatError> {
        let count = usize::try_from(self.reports).unwrap_or(usize::MAX);
        self.part.choose("report", count, count.saturating_sub(1))?;
        let mut profile = self.chosen.unwrap_or_default();
        if count > 1 {
            let which = format!("the file has {count} reports; choose another as FILE#N, from 1");
            let comment = profile.strings.intern(&which);
            profile.comment.push(comment);
        }
        Ok(ProfileReading::new(
            ProfileFormat::Memleak,
            "none, memleak watches every block",
            profile,
        ))
    }
}

struct MemleakReport {
    tally: SampleTally,
    time: String,
    /// Number of objects and bytes of the stack that is being read.
    values: Option<[i64; 2]>,
    stack: Vec<LocationIndex>,
    bytes: i64,
}

impl MemleakReport {
    fn new(options: &FormatReadOptions) -> Self {
        let mut tally = SampleTally::new(
            &[("inuse_objects", "count"), ("inuse_space", "bytes")],
            options,
        );
        cut_frames::add_tracer_frames(&mut tally.builder.profile);
        Self {
            tally,
            time: String::new(),
            values: None,
            stack: Vec::new(),
            bytes: 0,
        }
    }

    /// Whether a line without a tab at its beginning is a frame of the stack that is being read.
    /// Pasted reports have such lines.
    fn is_frame(&self, line: &[u8]) -> bool {
        self.values.is_some() && line.starts_with(b"    ") && !line.trim_ascii().is_empty()
    }

    fn frame(&mut self, lines: &LineReader<'_>) -> Result<(), FormatError> {
        let text = lines.trimmed();
        // With -a there is a line for each block.
        if text.starts_with(b"addr = ") {
            return Ok(());
        }
        if text.is_empty() {
            return self.close_stack();
        }
        let location = symbol_frame::location(&mut self.tally, text)?;
        self.stack.push(location);
        Ok(())
    }

    fn close_stack(&mut self) -> Result<(), FormatError> {
        if let Some(values) = self.values.take() {
            let none = self.tally.text_label_set("", "");
            self.tally.add(&self.stack, none, &values)?;
            self.bytes = self.bytes.saturating_add(values[1]);
            self.stack.clear();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile_text::{read, read_with, samples};

    #[test]
    fn the_last_report_is_read_unless_another_is_asked_for() {
        let text = "Attaching to pid 1, Ctrl+C to quit.\n[11:16:33] Top 2 stacks with outstanding \
                    allocations:\n\taddr = 948cd0 size = 16\n\t96 bytes in 5 allocations from \
                    stack\n\t\tmain+0x6d [app]\n\t\tstart+0xf0 [libc.so]\n\t4 bytes in 1 \
                    allocations from stack\n\t\tmain+0x80 [app]\n[11:16:34] Top 2 stacks with \
                    outstanding allocations:\n8 bytes in 2 allocations from stack\n\t0 [<10>] \
                    f+0x1 [/bin/app]\n\t1 [<20>] <null sym>\n";
        let part = |part| {
            samples(&read_with(
                text,
                FormatReadOptions::default().part(Some(part)),
            ))
        };
        assert_eq!(samples(&read(text)), ["0x20;f 2 8"]);
        assert_eq!(part(PartSelector::Last), ["0x20;f 2 8"]);
        assert_eq!(
            part(PartSelector::Number(1)),
            ["start;main 5 96", "main 1 4"]
        );
        assert_eq!(part(PartSelector::Peak), ["start;main 5 96", "main 1 4"]);
    }
}
