//! Reads aggregations of dtrace whose keys are stacks, such as ``@[ustack()] = count()``, in the
//! form that dtrace prints when it ends.
//!
//! A record consists of keys, frames, and an indented number. An empty line follows the number. The
//! output does not show which function computed the numbers, so they are read as samples unless
//! `--values` gives another type. Equal stacks are added up.

use heapprof_profile::{Label, LocationIndex};

use crate::cut_frames;
use crate::error::{FormatError, shortened};
use crate::figures::{address, value};
use crate::format::ProfileFormat;
use crate::lines::LineReader;
use crate::reading::{FormatReadOptions, ProfileReading};
use crate::symbol_frame;
use crate::tally::SampleTally;

/// Whether a line is certainly a frame, regardless of its position in a record.
fn is_frame(text: &[u8]) -> bool {
    text.contains(&b'`') || address(text).is_some()
}

pub(crate) fn sniff(head: &[u8]) -> bool {
    let mut in_stack = false;
    for line in head.split(|&b| b == b'\n') {
        let text = line.trim_ascii();
        let indented = line.first().is_some_and(u8::is_ascii_whitespace);
        if indented && in_stack && value(text).is_some() {
            return true;
        }
        in_stack |= indented && text.contains(&b'`');
    }
    // The head may end within a long stack.
    in_stack
}

pub(crate) fn read(
    lines: &mut LineReader<'_>,
    options: &FormatReadOptions,
) -> Result<ProfileReading, FormatError> {
    let values = options.values.as_ref();
    let kind = values.map_or(("samples", "count"), |v| {
        (v.r#type.as_str(), v.unit.as_str())
    });
    let mut record = DtraceRecord {
        tally: SampleTally::new(&[kind], options),
        labels: Vec::new(),
        stack: Vec::new(),
        pending_value: None,
        records: 0,
    };
    cut_frames::add_tracer_frames(&mut record.tally.builder.profile);
    while lines.advance()? {
        record.line(lines)?;
    }
    record.release()?;
    if !record.stack.is_empty() {
        return Err(lines.ended("the value of a stack"));
    }
    if record.records == 0 {
        return Err(lines.ended("a stack and its value"));
    }
    Ok(ProfileReading::new(
        ProfileFormat::Dtrace,
        "none, as dtrace aggregated",
        record.tally.finish(),
    ))
}

struct DtraceRecord {
    tally: SampleTally,
    labels: Vec<Label>,
    stack: Vec<LocationIndex>,
    /// A number that is the value of the current record if the next line is empty.
    pending_value: Option<(i64, Vec<u8>)>,
    records: usize,
}

impl DtraceRecord {
    fn line(&mut self, lines: &LineReader<'_>) -> Result<(), FormatError> {
        let line = lines.line();
        let text = lines.trimmed();
        let indented = line.first().is_some_and(u8::is_ascii_whitespace);
        if text.is_empty() || !indented {
            self.release()?;
            if !text.is_empty() {
                if !self.stack.is_empty() {
                    return Err(lines.wrong("a frame, or the value of the stack"));
                }
                self.labels.clear();
            }
            return Ok(());
        }
        if let Some((_, digits)) = self.pending_value.take() {
            // The number is a key, or the address of a frame.
            match self.stack.is_empty() {
                true => self.key(&digits),
                false => self.frame(&digits)?,
            }
        }
        if let Some(value) = value(text) {
            self.pending_value = Some((value, text.to_vec()));
        } else if self.stack.is_empty() && !is_frame(text) {
            let text = text.to_vec();
            self.key(&text);
        } else if text.starts_with(b"value ") && text.ends_with(b" count") {
            return Err(lines.wrong_part(
                "a number; aggregate with count() or sum()",
                shortened(b"a distribution"),
            ));
        } else {
            let text = text.to_vec();
            self.frame(&text)?;
        }
        Ok(())
    }

    fn key(&mut self, text: &[u8]) {
        let text = String::from_utf8_lossy(text);
        let label = self.tally.builder.text_label("key", &text);
        self.labels.push(label);
    }

    fn frame(&mut self, text: &[u8]) -> Result<(), FormatError> {
        let location = symbol_frame::location(&mut self.tally, text)?;
        self.stack.push(location);
        Ok(())
    }

    /// Adds the current record to the profile if its value has been read.
    fn release(&mut self) -> Result<(), FormatError> {
        if let Some((value, _)) = self.pending_value.take() {
            let labels = self.tally.builder.label_set(&mut self.labels);
            self.tally.add(&self.stack, labels, &[value])?;
            self.stack.clear();
            self.labels.clear();
            self.records += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::profile_text::{read, samples};

    #[test]
    fn records_end_with_their_value() {
        let text = "CPU     ID                    FUNCTION:NAME\n\n\
            \x20             libc.so.1`malloc\n              app`main+0x1a\n\
            \x20             80506112\n               12\n\n\
            \x20 app        \n              libc.so.1`malloc\n\n              app`main+0x1a\n\
            \x20               5\n\n\
            \x20               1234\n              app`main+0x1a\n                3\n\n                9\n";
        assert_eq!(
            samples(&read(text)),
            [
                // A number that is not the last of its record is an address.
                "0x80506112;main;malloc 12",
                "main;malloc [key=app] 5",
                "main [key=1234] 3",
                " 9",
            ]
        );
    }
}
