//! Reads events with their stacks as `perf script` prints them: probes of malloc, page faults, and
//! any other events.
//!
//! A block is a line about the event, `COMMAND PID [CPU] TIME: EVENT: ARGUMENTS`, its frames, and
//! an empty line. Old versions leave out the time unless an option asks for it. Without `-g`, the
//! only frame is on the event's line. If the probe recorded the number of requested bytes (`perf
//! probe -x libc.so.6 'malloc bytes=%di'`), this number is the value. Otherwise each event counts
//! once. Equal stacks are added up.

mod event;

use heapprof_profile::{LabelSetIndex, LocationIndex};

use crate::cut_frames;
use crate::error::{FormatError, shortened};
use crate::figures::{address, decimal, hex};
use crate::format::ProfileFormat;
use crate::lines::LineReader;
use crate::reading::{FormatReadOptions, ProfileReading};
use crate::symbol_frame;
use crate::tally::{SampleTally, TextFrame};
use event::{bare, event, is_column, is_frame, starts_blank, timed, untimed, words};

pub(crate) fn sniff(head: &[u8]) -> bool {
    let mut lines = head.split(|&b| b == b'\n');
    let Some(first) = lines.find(|line| !is_aside(line)) else {
        return false;
    };
    // Without a time the line could be any text, so there has to be a frame as well.
    let below = lines.next().unwrap_or_default();
    timed(first).is_some()
        || untimed(first).is_some_and(|event| {
            is_frame(event.arguments) || starts_blank(below) && is_frame(below) || is_column(below)
        })
        || is_column(below) && bare(first).is_some()
}

/// Whether a line is empty, a comment of `--header`, or a line that `--show-mmap-events` and
/// similar options put between events.
fn is_aside(line: &[u8]) -> bool {
    let line = line.trim_ascii();
    line.is_empty()
        || line.starts_with(b"#")
        || memchr::memmem::find(line, b": PERF_RECORD_").is_some()
}

/// Form of the first line of a block, for errors.
const EXPECTED_EVENT: &str = "COMMAND PID [CPU] TIME: EVENT:";

/// Returns the number of requested bytes if the probe recorded it. It is the argument `bytes`,
/// `bytes_alloc` or `size`, multiplied by `n` or `nmemb`.
fn bytes(lines: &LineReader<'_>, arguments: &[u8]) -> Result<Option<i64>, FormatError> {
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

pub(crate) fn read(
    lines: &mut LineReader<'_>,
    options: &FormatReadOptions,
) -> Result<ProfileReading, FormatError> {
    let mut file = PerfScriptFile {
        tally: SampleTally::new(&[("events", "count"), ("bytes", "bytes")], options),
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
        return Err(lines.ended(EXPECTED_EVENT));
    }
    file.reading(options)
}

struct PerfScriptFile {
    tally: SampleTally,
    /// The event whose frames are being read: its labels, its location if no frames follow, and its
    /// bytes.
    block: Option<(LabelSetIndex, LocationIndex, i64)>,
    /// Frames of the block, one after the other. `ends` holds the end of each frame.
    frames: Vec<u8>,
    ends: Vec<usize>,
    stack: Vec<LocationIndex>,
    has_bytes: bool,
    events: u64,
}

impl PerfScriptFile {
    fn line(&mut self, lines: &LineReader<'_>) -> Result<(), FormatError> {
        let line = lines.line();
        if is_aside(line) {
            // Comments occur between blocks, too.
            return match line.trim_ascii().is_empty() {
                true => self.close(lines),
                false => Ok(()),
            };
        }
        // A frame may look like an event without a time, but its second word is not a number.
        if self.block.is_some()
            && starts_blank(line)
            && timed(line).is_none()
            && (hex(words(line).next().unwrap_or_default()).is_some()
                && words(line).nth(1).and_then(decimal).is_none()
                || untimed(line).is_none())
        {
            self.frame(line);
            return Ok(());
        }
        // Events without frames follow each other without empty lines.
        self.close(lines)?;
        let event = event(line).ok_or_else(|| lines.wrong(EXPECTED_EVENT))?;
        let bytes = bytes(lines, event.arguments)?;
        self.has_bytes |= bytes.is_some();
        let name = String::from_utf8_lossy(event.name);
        let command = String::from_utf8_lossy(event.command);
        let mut labels = vec![self.tally.builder.text_label("command", &command)];
        if !name.is_empty() {
            labels.push(self.tally.builder.text_label("event", &name));
        }
        let labels = self.tally.builder.label_set(&mut labels);
        let unknown = self.tally.find_or_make(event.name, |tally| {
            tally.named_location(&match &*name {
                "" => "(no stack)".to_string(),
                name => format!("({name}, no stack)"),
            })
        })?;
        self.block = Some((labels, unknown, bytes.unwrap_or(0)));
        self.events += 1;
        if is_frame(event.arguments) {
            self.frame(event.arguments);
        }
        Ok(())
    }

    fn frame(&mut self, text: &[u8]) {
        self.frames.extend_from_slice(text.trim_ascii());
        self.ends.push(self.frames.len());
    }

    /// Adds the event whose frames were read to the profile.
    fn close(&mut self, lines: &LineReader<'_>) -> Result<(), FormatError> {
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
            let location = self.tally.find_or_make(text, |tally| {
                let mut start = start;
                let texts: Vec<String> = ends
                    .iter()
                    .map(|&end| {
                        let text = String::from_utf8_lossy(&self.frames[start..end]).into_owned();
                        start = end;
                        text
                    })
                    .collect();
                let frames: Vec<TextFrame<'_>> = texts
                    .iter()
                    .map(|text| symbol_frame::parse(text).0)
                    .collect();
                // Only the function that is not inlined has the name of the file.
                let module = frames.last().map(|last| last.module).unwrap_or_default();
                let frames: Vec<TextFrame<'_>> = frames
                    .into_iter()
                    .map(|frame| TextFrame { module, ..frame })
                    .collect();
                tally.location(&frames)
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

    /// Returns the end of the group of frames that begins at `from` and makes one location: inlined
    /// functions and the function around them.
    fn group(&self, lines: &LineReader<'_>, from: usize) -> Result<usize, FormatError> {
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

    fn reading(mut self, options: &FormatReadOptions) -> Result<ProfileReading, FormatError> {
        let unsampling = "none, one event each";
        cut_frames::add_tracer_frames(&mut self.tally.builder.profile);
        if self.has_bytes {
            if options.values.is_some() {
                let reason = "records bytes, so its values are known";
                return Err(FormatError::ValuesKnown(reason.to_string()));
            }
            let types = [("alloc_objects", "count"), ("alloc_space", "bytes")];
            return Ok(ProfileReading::new(
                ProfileFormat::PerfScript,
                unsampling,
                self.tally.retyped(&types).finish(),
            ));
        }
        let values = options.values.as_ref();
        let kind = values.map_or(("samples", "count"), |v| {
            (v.r#type.as_str(), v.unit.as_str())
        });
        let profile = self.tally.retyped(&[kind]).finish();
        Ok(ProfileReading::new(
            ProfileFormat::PerfScript,
            unsampling,
            profile,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile_text::{read, read_with, samples, types};

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
        let options = FormatReadOptions::default().values("faults/count".parse().ok());
        assert_eq!(types(&read_with(&text, options)), ["faults/count"]);
    }

    /// Checks the forms of events that `stackcollapse-perf.pl` names, and forms of old versions.
    #[test]
    fn events_of_all_versions() {
        let table = [
            ("java 19983 cycles: ", "java", "cycles"),
            ("java 19983 cycles:u:", "java", "cycles:u"),
            ("java 19983/19984 [002] 250123 cycles:", "java", "cycles"),
            (
                "V8 WorkerThread 25607 cycles: ",
                "V8 WorkerThread",
                "cycles",
            ),
            (
                "GC task thread#0 (Pa 7 [000] cycles:",
                "GC task thread#0 (Pa",
                "cycles",
            ),
            ("java 25607 4794564.109216: cycles:", "java", "cycles"),
            ("java 25607 4794564.109216: 1 cycles:", "java", "cycles"),
            (
                "java 12688 [002] 6544038.708352: 235 cpu-clock:",
                "java",
                "cpu-clock",
            ),
            (
                "V8 WorkerThread 24636/25607 [000] 94564.109216: 104345 cycles:",
                "V8 WorkerThread",
                "cycles",
            ),
            (
                "java 19983 [001] U 4794564.109216: 1 cycles:",
                "java",
                "cycles",
            ),
            (":-1 -1/-1 [000] 94564.109216: 1 cycles:", ":-1", "cycles"),
        ];
        let frames = "\n\tffffffff81 read_tsc ([kernel.kallsyms])\n\t  7f6b run(Thread*, int) \
                      (/lib/jvm.so)\n\n";
        for header in ["", "# ========\n# captured on: Mon\n# ========\n#\n"] {
            for (line, command, event) in table {
                let text = [header, line, frames].concat().repeat(2);
                assert!(sniff(text.as_bytes()), "{line}");
                let expected =
                    format!("run(Thread*, int);read_tsc [command={command}] [event={event}] 2");
                assert_eq!(samples(&read(&text)), [expected], "{line}");
            }
        }
    }

    /// Checks that events are read without the parts that `-F` leaves out.
    #[test]
    fn events_without_a_name() {
        for line in [
            "java 7 3.5: ",
            "java 7/8 3.5: 250000 ",
            "java 7",
            "java 7/8 [001] ",
        ] {
            let text =
                format!("{line}\n\t           1462a run\n\tffffffff815d2a74 main\n\n").repeat(2);
            assert!(sniff(text.as_bytes()), "{line}");
            assert_eq!(
                samples(&read(&text)),
                ["main;run [command=java] 2"],
                "{line}"
            );
        }
        let text = "java 7 3.5: cycles:\n\t  10 f (/bin/app)\n\n\
            java 7 3.6: PERF_RECORD_EXIT(7:7):(7:7)\n\
            java 7 3.6: PERF_RECORD_MMAP2 7/7: [0x55(0x1000) @ 0 fe:00 1 2]: r-xp /bin/app\n";
        assert_eq!(samples(&read(text)), ["f [command=java] [event=cycles] 1"]);
    }

    /// Checks that without `-g` the only frame is read from the line of the event.
    #[test]
    fn frames_on_the_line_of_the_event() {
        let text = "              dd 30 cycles:  ffffffff81 read_tsc ([kernel.kallsyms])\n\
            \x20           java 19983 3.5: 7 cycles:      7f6b run (/lib/jvm.so)\n\
            \x20             dd 30 cycles:  ffffffff82 read_tsc ([kernel.kallsyms])\n";
        assert_eq!(
            samples(&read(text)),
            [
                "read_tsc [command=dd] [event=cycles] 1",
                "run [command=java] [event=cycles] 1",
                "read_tsc [command=dd] [event=cycles] 1",
            ]
        );
    }

    #[test]
    fn other_text_is_no_event() {
        for text in [
            "step 3 done: all\n",
            "step 3 done:\n\n\t10 f (/bin/app)\n",
            "step 3 done:\n10 f (/bin/app)\n",
            "19983 cycles:\n\t10 f (/bin/app)\n",
            "java 19983 7:\n\t10 f (/bin/app)\n",
            "java 19983 cycles\n\t10 f (/bin/app)\n",
            "chapter 7\n\t10 f (/bin/app)\n",
        ] {
            assert!(!sniff(text.as_bytes()), "{text}");
        }
    }
}
