//! Reads the log of a recording (`heapprof attach --log`), which has a line for each allocation and
//! each free. The log shows which blocks were never freed, with their stacks and ages.
//! docs/event-log.md describes the format.

use std::collections::BTreeMap;
use std::io::BufRead;

use foldhash::{HashMap, HashMapExt};
use heapprof_profile::{
    FrameText, LabelSetIndex, LocationIndex, Profile, ProfileBuilder, recording_texts,
};

use crate::error::FormatError;
use crate::lines::LineReader;

/// First line of every log.
const LOG_START: &[u8] = b"heapprof log 1";
/// Key of the label with a block's age: the nanoseconds from its allocation to the end of the log.
const AGE_LABEL: &str = "age";
/// Number of values of a sample: objects and bytes, both allocated and in use.
const VALUE_COUNT: usize = 4;

/// Content of a log.
#[derive(Debug)]
pub struct EventLog {
    /// The allocations of the log. Blocks that were not freed have their age as a label.
    pub profile: Profile,
    /// Number of missing events; `None` if the log has no complete end, or if it does not have the
    /// number of events that its end states.
    pub dropped: Option<u64>,
    /// Whether the log names a program. A log without a name has no events, because heapprof could
    /// not record the program.
    pub has_program: bool,
}

/// A block that was not freed yet.
struct LoggedBlock {
    size: u64,
    stack: usize,
    /// Time of the allocation, in microseconds.
    since: u64,
}

/// Allocations of one stack.
#[derive(Default)]
struct LoggedStack {
    frames: Vec<LocationIndex>,
    allocated: [i64; 2],
}

struct EventLogReader {
    builder: ProfileBuilder,
    /// Positions of stacks in `stacks`, by their numbers in the log.
    number: HashMap<u64, usize>,
    stacks: Vec<LoggedStack>,
    live: HashMap<u64, LoggedBlock>,
    /// The time of the last line, in microseconds.
    now: u64,
    has_exited: bool,
    dropped: Option<u64>,
    /// Number of events that were read.
    events: u64,
    has_end: bool,
    has_program: bool,
}

/// Reads a log, and matches its allocations with their frees.
///
/// # Errors
/// Fails if the file is not a log, or has an invalid line.
pub fn read_log(input: &mut dyn BufRead) -> Result<EventLog, FormatError> {
    let mut lines = LineReader::new(input);
    if !lines.advance()? || lines.line() != LOG_START {
        return Err(lines.wrong("the first line of a heapprof log"));
    }
    let mut reader = EventLogReader {
        builder: ProfileBuilder::new(&recording_texts::SAMPLE_TYPES[..VALUE_COUNT]),
        number: HashMap::new(),
        stacks: Vec::new(),
        live: HashMap::new(),
        now: 0,
        has_exited: false,
        dropped: None,
        events: 0,
        has_end: false,
        has_program: false,
    };
    while lines.advance()? {
        // The writer of the log was killed, or is still writing.
        if !lines.is_ended() {
            reader.dropped = None;
            break;
        }
        let Some(()) = reader.line(lines.line()) else {
            let expected = "program, stack, +, - or end, with its fields";
            return Err(lines.wrong(expected));
        };
    }
    reader.finish()
}

impl EventLogReader {
    /// Reads a line; `None` if the line is invalid.
    fn line(&mut self, line: &[u8]) -> Option<()> {
        if self.has_end {
            return None;
        }
        let (word, rest) = match line.iter().position(|&byte| byte == b' ') {
            Some(at) => (&line[..at], &line[at + 1..]),
            None => (line, &line[line.len()..]),
        };
        match word {
            b"+" => {
                let (address, block) = self.event(rest)?;
                let allocated = &mut self.stacks[block.stack].allocated;
                allocated[0] = allocated[0].checked_add(1)?;
                allocated[1] = allocated[1].checked_add(i64::try_from(block.size).ok()?)?;
                // An earlier block at this address has been freed, and the event of its free is
                // missing.
                self.live.insert(address, block);
            }
            b"-" => {
                let (address, _) = self.event(rest)?;
                self.live.remove(&address);
            }
            b"stack" => self.stack(rest)?,
            b"program" => {
                // The process has become another program, and its memory is gone.
                self.live.clear();
                self.now = 0;
                self.has_program = true;
            }
            b"end" => self.end(rest)?,
            _ => return None,
        }
        Some(())
    }

    fn event(&mut self, rest: &[u8]) -> Option<(u64, LoggedBlock)> {
        let mut fields = std::str::from_utf8(rest).ok()?.split(' ');
        let since = microseconds(fields.next()?)?;
        let _: u32 = fields.next()?.parse().ok()?;
        let address = u64::from_str_radix(fields.next()?.strip_prefix("0x")?, 16).ok()?;
        let size = fields.next()?.parse().ok()?;
        let stack = *self.number.get(&fields.next()?.parse().ok()?)?;
        self.now = self.now.max(since);
        self.events += 1;
        let block = LoggedBlock { size, stack, since };
        fields.next().is_none().then_some((address, block))
    }

    /// Reads a stack: its number, then its frames, newest first, each after a tab.
    fn stack(&mut self, rest: &[u8]) -> Option<()> {
        let text = String::from_utf8_lossy(rest);
        let mut fields = text.split('\t');
        let number = fields.next()?.parse().ok()?;
        let frames = fields.map(|field| self.builder.frame(&[frame(field)]));
        let frames = frames.collect();
        self.number.insert(number, self.stacks.len());
        self.stacks.push(LoggedStack {
            frames,
            ..LoggedStack::default()
        });
        Some(())
    }

    fn end(&mut self, rest: &[u8]) -> Option<()> {
        let text = std::str::from_utf8(rest).ok()?;
        let mut fields = text.split(' ');
        self.now = self.now.max(microseconds(fields.next()?)?);
        self.has_exited = match fields.next()? {
            "exited" => true,
            "left" | "cut" => false,
            _ => return None,
        };
        let mut counted = |name| {
            let is_it = fields.next()? == name;
            let count = fields.next()?.parse::<u64>().ok();
            count.filter(|_| is_it)
        };
        let written = counted("written")?;
        let dropped = counted("dropped")?;
        // Lines may have been removed after the log was written.
        let is_sure = written == self.events && !text.contains(" cut ");
        self.dropped = Some(dropped).filter(|_| is_sure);
        self.has_end = true;
        Some(())
    }

    fn finish(mut self) -> Result<EventLog, FormatError> {
        // Number and bytes of the blocks in use, by stack and age.
        let mut left: BTreeMap<(usize, u64), [i64; 2]> = BTreeMap::new();
        for block in self.live.values() {
            let age = round_age(self.now.saturating_sub(block.since).saturating_mul(1000));
            let sum = left.entry((block.stack, age)).or_default();
            let size = i64::try_from(block.size).ok();
            let space = size.and_then(|size| sum[1].checked_add(size));
            let too_much = || FormatError::TooMuch("2^63 bytes in use".to_string());
            *sum = [sum[0] + 1, space.ok_or_else(too_much)?];
        }
        let mut none = Vec::new();
        let none = self.builder.label_set(&mut none);
        let stacks = std::mem::take(&mut self.stacks);
        for stack in &stacks {
            let [objects, space] = stack.allocated;
            self.push(stack, [objects, space, 0, 0], none);
        }
        for ((stack, age), [objects, space]) in left {
            let age = i64::try_from(age).unwrap_or(i64::MAX);
            let label = self.builder.number_label(AGE_LABEL, age, "nanoseconds");
            let labels = self.builder.label_set(&mut [label]);
            self.push(&stacks[stack], [0, 0, objects, space], labels);
        }
        let reason = match self.has_exited {
            true => "dump: exit",
            false => "dump: at the end of the log",
        };
        let reason = self.builder.text(reason);
        self.builder.profile.comment.push(reason);
        let functions = self.builder.text(&recording_texts::drop_frames(""));
        self.builder.profile.drop_frames = functions;
        let default = self.builder.text("inuse_space");
        self.builder.profile.default_sample_type = default;
        Ok(EventLog {
            profile: self.builder.finish(),
            dropped: self.dropped,
            has_program: self.has_program,
        })
    }

    fn push(&mut self, stack: &LoggedStack, values: [i64; VALUE_COUNT], labels: LabelSetIndex) {
        if values != [0; VALUE_COUNT] {
            let samples = &mut self.builder.profile.samples;
            samples.push(stack.frames.iter().copied(), &values, labels);
        }
    }
}

/// Rounds an age to two digits, so that blocks of about the same age are one row.
fn round_age(age: u64) -> u64 {
    let digits = age
        .checked_ilog10()
        .map_or(0, |digits| digits.saturating_sub(1));
    let unit = 10u64.pow(digits);
    age / unit * unit
}

/// Reads seconds with six digits after the point, as microseconds.
fn microseconds(text: &str) -> Option<u64> {
    let (seconds, micros) = text.split_once('.')?;
    let micros: u64 = micros.parse().ok().filter(|_| micros.len() == 6)?;
    let seconds: u64 = seconds.parse().ok()?;
    seconds.checked_mul(1_000_000)?.checked_add(micros)
}

/// Reads a frame: `name (file:line)`, or the name alone.
fn frame(text: &str) -> FrameText<'_> {
    let place = || {
        let (name, place) = text.strip_suffix(')')?.rsplit_once(" (")?;
        let (filename, line) = place.rsplit_once(':')?;
        Some((name, filename, line.parse().ok()?))
    };
    match place() {
        Some((name, filename, line)) => FrameText {
            name,
            filename,
            line,
            ..FrameText::default()
        },
        None => FrameText {
            name: text,
            ..FrameText::default()
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<EventLog, FormatError> {
        read_log(&mut text.as_bytes())
    }

    /// Returns the samples of a log: the names of the frames, the values, and the age.
    fn samples(log: &EventLog) -> Vec<(String, Vec<i64>, i64)> {
        let profile = &log.profile;
        let one = |i: usize| {
            let frames = profile.samples.stack(i).iter().flat_map(|location| {
                let lines = profile.lines(&profile.location[location.index()]);
                lines
                    .iter()
                    .map(|line| profile.text(profile.function[line.function.index()].name))
            });
            let labels = profile.label_sets.get(profile.samples.label_set(i));
            let age = labels.iter().map(|label| label.num).sum();
            let frames = frames.collect::<Vec<_>>().join(" ");
            (frames, profile.samples.values(i).to_vec(), age)
        };
        (0..profile.samples.len()).map(one).collect()
    }

    const LOG: &str = "heapprof log 1\nprogram 7 server\n\
        stack 3\tgrow (a.c:4)\tmain (a.c:9)\nstack 5\toperator()(int)\n\
        + 0.000001 7 0x10 100 3\n+ 1.000000 8 0x20 50 5\n- 1.500000 7 0x10 100 3\n\
        + 2.000000 7 0x10 8 3\n+ 2.000001 7 0x30 9 3\n";

    #[test]
    fn what_never_went_has_its_stack_and_its_age() {
        let log = read(&format!("{LOG}end 12.000000 exited written 5 dropped 2\n")).unwrap();
        assert_eq!(log.dropped, Some(2));
        let grow = "grow main".to_string();
        let expected = [
            (grow.clone(), vec![3, 117, 0, 0], 0),
            ("operator()(int)".into(), vec![1, 50, 0, 0], 0),
            (grow.clone(), vec![0, 0, 1, 9], 9_900_000_000),
            (grow, vec![0, 0, 1, 8], 10_000_000_000),
            ("operator()(int)".into(), vec![0, 0, 1, 50], 11_000_000_000),
        ];
        assert_eq!(samples(&log), expected);
        // The log has no end, and then the program becomes another one.
        assert_eq!(read(LOG).unwrap().dropped, None);
        let log = read(&format!("{LOG}program 7 other\n- 0.100000 7 0x99 8 3\n")).unwrap();
        assert_eq!(samples(&log).len(), 2);
    }

    #[test]
    fn other_lines_are_refused_with_their_number() {
        let fails = |text: &str, line: u64| match read(text) {
            Err(FormatError::Line { line: found, .. }) => assert_eq!(found, line, "{text}"),
            other => panic!("{text}: {other:?}"),
        };
        fails("", 1);
        fails("heapprof log 2\n", 1);
        for line in [
            "+ 0.000001 7 0x10 100 4",
            "+ 0.1 7 0x10 100 3",
            "+ 0.000001 7 10 100 3",
            "+ 0.000001 7 0x10 100 3 5",
            "+ 0.000001 7 0x10 99999999999999999999 3",
            "* 0.000001 7 0x10 100 3",
            "stack x\tmain",
            "end 1.000000 gone written 1 dropped 0",
            "end 1.000000 left written 1",
            "",
        ] {
            fails(&format!("heapprof log 1\nstack 3\tmain\n{line}\n"), 3);
        }
        let end = "end 1.000000 left written 0 dropped 0\n";
        fails(&format!("heapprof log 1\n{end}{end}"), 3);
        // The log has fewer lines than were written.
        let one = "heapprof log 1\nend 1.000000 left written 1 dropped 0\n";
        assert_eq!(read(one).unwrap().dropped, None);
        let huge = format!("+ 0.000001 7 0x10 {} 3\n", i64::MAX);
        fails(&format!("heapprof log 1\nstack 3\tmain\n{huge}{huge}"), 4);
    }
}
