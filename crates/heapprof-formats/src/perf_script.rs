//! Events with their stacks as `perf script` prints them: probes of malloc, page faults, any others.
//!
//! A block is a line about the event, `COMMAND PID [CPU] TIME: EVENT: ARGUMENTS`, its frames, and an empty line. If
//! the probe recorded how many bytes were asked for (`perf probe -x libc.so.6 'malloc bytes=%di'`), they are the
//! values; else each event counts once. Equal stacks are added up.

use heapprof_profile::{LabelSetIndex, LocationIndex};

use crate::cut_frames;
use crate::error::{Error, shortened};
use crate::figures::{address, decimal, hex};
use crate::format::Format;
use crate::lines::Lines;
use crate::reading::{Options, Reading};
use crate::symbol_frame;
use crate::tally::{Frame, Tally};

pub(crate) fn sniff(head: &[u8]) -> bool {
    let mut lines = head.split(|&b| b == b'\n').filter(|line| !is_aside(line));
    lines.next().is_some_and(|line| event(line).is_some())
}

/// Empty lines and the comments of `--header`.
fn is_aside(line: &[u8]) -> bool {
    let line = line.trim_ascii();
    line.is_empty() || line.starts_with(b"#")
}

/// The line that begins a block.
struct Event<'a> {
    command: &'a [u8],
    name: &'a [u8],
    /// What the probe recorded, `(7f119e65f930) bytes=0x10`.
    arguments: &'a [u8],
}

fn event(line: &[u8]) -> Option<Event<'_>> {
    // The first word that is a time; commands have blanks of their own.
    let mut from = 0;
    let (start, end) = loop {
        let start = from + line[from..].iter().position(|b| !b.is_ascii_whitespace())?;
        let word = line[start..].iter().position(u8::is_ascii_whitespace);
        let end = word.map_or(line.len(), |length| start + length);
        if is_time(&line[start..end]) {
            break (start, end);
        }
        from = end;
    };
    let mut before: Vec<&[u8]> = words(&line[..start]).collect();
    before.pop_if(|word| word.starts_with(b"[") && word.ends_with(b"]"));
    let process = before.pop()?;
    process
        .split(|&b| b == b'/')
        .map(decimal)
        .all(|n| n.is_some())
        .then_some(())?;
    let process_at = process.as_ptr() as usize - line.as_ptr() as usize;
    let command = line[..process_at].trim_ascii();
    // A number before the event is its period.
    let rest = line[end..].trim_ascii_start();
    let number = words(rest).next().filter(|word| decimal(word).is_some());
    let rest = rest[number.map_or(0, <[u8]>::len)..].trim_ascii_start();
    let colon = rest
        .windows(2)
        .position(|pair| pair == b": ")
        .or_else(|| rest.len().checked_sub(1))?;
    (rest.get(colon) == Some(&b':') && colon > 0).then(|| Event {
        command,
        name: &rest[..colon],
        arguments: rest[colon + 1..].trim_ascii(),
    })
}

fn words(text: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    text.split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
}

/// `23055.563426:`
fn is_time(word: &[u8]) -> bool {
    let parts = word
        .strip_suffix(b":")
        .map(|time| time.split(|&b| b == b'.'));
    parts.is_some_and(|mut parts| {
        let whole = parts.next().and_then(decimal).is_some();
        let fraction = parts.next().and_then(decimal).is_some();
        whole && fraction && parts.next().is_none()
    })
}

/// Bytes that were asked for, if the probe recorded them: `bytes`, `bytes_alloc` or `size`, times `n` or `nmemb`.
fn bytes(lines: &Lines<'_>, arguments: &[u8]) -> Result<Option<i64>, Error> {
    let mut size = None;
    let mut count = 1;
    for argument in words(arguments) {
        let Some(equals) = argument.iter().position(|&b| b == b'=') else {
            continue;
        };
        let (name, text) = (&argument[..equals], &argument[equals + 1..]);
        let slot = match name {
            b"bytes" | b"size" | b"bytes_alloc" => size.insert(0),
            b"n" | b"nmemb" => &mut count,
            _ => continue,
        };
        let number = address(text).or_else(|| decimal(text));
        *slot = number
            .ok_or_else(|| lines.wrong_part("a number of bytes or blocks", shortened(argument)))?;
    }
    let bytes = size.map(|size: u64| size.checked_mul(count).and_then(|n| i64::try_from(n).ok()));
    let too_large = || lines.wrong("a number of bytes that fits in 64 bits");
    bytes.map(|n| n.ok_or_else(too_large)).transpose()
}

pub(crate) fn read(lines: &mut Lines<'_>, options: &Options) -> Result<Reading, Error> {
    let mut file = File {
        tally: Tally::new(&[("events", "count"), ("bytes", "bytes")]),
        block: None,
        frames: Vec::new(),
        ends: Vec::new(),
        stack: Vec::new(),
        has_bytes: false,
        events: 0,
    };
    while lines.advance()? {
        file.line(lines)?;
    }
    file.close(lines)?;
    if file.events == 0 {
        return Err(lines.ended("COMMAND PID [CPU] TIME: EVENT:"));
    }
    file.reading(options)
}

struct File {
    tally: Tally,
    /// The event whose frames are being read: labels, a name if it has no frames, and bytes.
    block: Option<(LabelSetIndex, LocationIndex, i64)>,
    /// The frames of the block, one after the other, and where each ends.
    frames: Vec<u8>,
    ends: Vec<usize>,
    stack: Vec<LocationIndex>,
    has_bytes: bool,
    events: u64,
}

impl File {
    fn line(&mut self, lines: &Lines<'_>) -> Result<(), Error> {
        let line = lines.line();
        if is_aside(line) {
            // Comments stand between blocks, too.
            return match line.trim_ascii().is_empty() {
                true => self.close(lines),
                false => Ok(()),
            };
        }
        if self.block.is_some() && line[0].is_ascii_whitespace() && event(line).is_none() {
            self.frames.extend_from_slice(line.trim_ascii());
            self.ends.push(self.frames.len());
            return Ok(());
        }
        // Events without frames follow each other without empty lines.
        self.close(lines)?;
        let event = event(line).ok_or_else(|| lines.wrong("COMMAND PID [CPU] TIME: EVENT:"))?;
        let bytes = bytes(lines, event.arguments)?;
        self.has_bytes |= bytes.is_some();
        let name = String::from_utf8_lossy(event.name);
        let command = String::from_utf8_lossy(event.command);
        let mut labels = [
            self.tally.builder.text_label("command", &command),
            self.tally.builder.text_label("event", &name),
        ];
        let labels = self.tally.builder.label_set(&mut labels);
        let unknown = self.tally.known(event.name, |tally| {
            Ok(tally.named(&format!("({name}, no stack)")))
        })?;
        self.block = Some((labels, unknown, bytes.unwrap_or(0)));
        self.events += 1;
        Ok(())
    }

    /// Counts the open event.
    fn close(&mut self, lines: &Lines<'_>) -> Result<(), Error> {
        let Some((labels, unknown, bytes)) = self.block.take() else {
            return Ok(());
        };
        self.stack.clear();
        let mut from = 0;
        while from < self.ends.len() {
            let to = self.group(lines, from)?;
            let start = from.checked_sub(1).map_or(0, |before| self.ends[before]);
            let text = &self.frames[start..self.ends[to - 1]];
            let ends = &self.ends[from..to];
            let location = self.tally.known(text, |tally| {
                let mut start = start;
                let texts: Vec<String> = ends
                    .iter()
                    .map(|&end| {
                        let text = String::from_utf8_lossy(&self.frames[start..end]).into_owned();
                        start = end;
                        text
                    })
                    .collect();
                let frames: Vec<Frame<'_>> = texts
                    .iter()
                    .map(|text| symbol_frame::parse(text).0)
                    .collect();
                // The file is known of the function that is not inlined.
                let module = frames.last().map(|last| last.module).unwrap_or_default();
                let frames: Vec<Frame<'_>> = frames
                    .into_iter()
                    .map(|frame| Frame { module, ..frame })
                    .collect();
                Ok(tally.location(&frames))
            })?;
            self.stack.push(location);
            from = to;
        }
        if self.stack.is_empty() {
            self.stack.push(unknown);
        }
        self.tally.add(&self.stack, labels, &[1, bytes])?;
        self.frames.clear();
        self.ends.clear();
        Ok(())
    }

    /// The end of the frames from `from` on that are one location: inlined ones and the function around them.
    fn group(&self, lines: &Lines<'_>, from: usize) -> Result<usize, Error> {
        let mut here = None;
        for i in from..self.ends.len() {
            let start = i.checked_sub(1).map_or(0, |before| self.ends[before]);
            let text = &self.frames[start..self.ends[i]];
            let first = words(text).next().and_then(hex);
            let address = first.ok_or_else(|| {
                lines.wrong_part(
                    "frames ADDRESS SYMBOL (FILE) in the block before",
                    shortened(text),
                )
            })?;
            if here.is_some_and(|here| here != address) {
                return Ok(i);
            }
            here = Some(address);
            if !text.ends_with(b" (inlined)") {
                return Ok(i + 1);
            }
        }
        Ok(self.ends.len())
    }

    fn reading(mut self, options: &Options) -> Result<Reading, Error> {
        let unsampling = "none, one event each";
        cut_frames::of_tracers(&mut self.tally.builder.profile);
        if self.has_bytes {
            if options.values.is_some() {
                let reason = "records bytes, so its values are known; leave --values out";
                return Err(Error::Inapplicable(reason.to_string()));
            }
            let types = [("alloc_objects", "count"), ("alloc_space", "bytes")];
            return Ok(Reading::new(
                Format::PerfScript,
                unsampling,
                self.tally.retyped(&types).finish(),
            ));
        }
        let values = options.values.as_ref();
        let kind = values.map_or(("samples", "count"), |v| {
            (v.r#type.as_str(), v.unit.as_str())
        });
        let profile = self.tally.retyped(&[kind]).finish();
        Ok(Reading::new(Format::PerfScript, unsampling, profile))
    }
}

#[cfg(test)]
mod tests {
    use crate::reading::Options;
    use crate::rendered::{read, read_with, samples, types};

    #[test]
    fn events_with_bytes_are_allocations() {
        let text = "# ========\n#\n\
            my app 14382 [001] 23055.563426: probe_libc:malloc: (7f11) bytes=0x10\n\
            \t           98930 malloc+0x0 (/lib/libc.so.6)\n\
            \t            125a inner+0x42 (inlined)\n\
            \t            125a main+0x42 (/bin/app)\n\n\
            my app 14382/14383 [001] 23055.563452: probe_libc:calloc: (7f11) n=3 size=8\n\
            \t            13b5 main+0x12 (/bin/app)\n\n\
            my app 14382 [001] 23055.563452: probe_libc:malloc: (7f11) bytes=1\n";
        let profile = read(text);
        assert_eq!(
            types(&profile),
            ["alloc_objects/count", "alloc_space/bytes"]
        );
        assert_eq!(
            samples(&profile),
            [
                "main>>inner;malloc [command=my app] [event=probe_libc:malloc] 1 16",
                "main [command=my app] [event=probe_libc:calloc] 1 24",
                "(probe_libc:malloc, no stack) [command=my app] [event=probe_libc:malloc] 1 1",
            ]
        );
    }

    #[test]
    fn other_events_count_once_each() {
        let event = "app  7 2.25:    250123 cycles:u: \n\t  10 f+0x1 (/bin/app)\n\n";
        let text = event.repeat(3);
        let profile = read(&text);
        assert_eq!(types(&profile), ["samples/count"]);
        assert_eq!(samples(&profile), ["f [command=app] [event=cycles:u] 3"]);
        let options = Options::default().values("faults/count".parse().ok());
        assert_eq!(types(&read_with(&text, options)), ["faults/count"]);
    }
}
