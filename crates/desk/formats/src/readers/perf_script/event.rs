//! Reads the first line of an event, in the forms that versions of perf and its option `-F`
//! produce.

use std::ops::Range;

use crate::figures::{decimal, hex};

/// The first line of a block, which describes an event.
pub(super) struct PerfEvent<'a> {
    pub(super) command: &'a [u8],
    pub(super) name: &'a [u8],
    /// Data that the probe recorded, such as `(7f119e65f930) bytes=0x10`.
    pub(super) arguments: &'a [u8],
}

pub(super) fn event(line: &[u8]) -> Option<PerfEvent<'_>> {
    timed(line).or_else(|| untimed(line)).or_else(|| bare(line))
}

pub(super) fn timed(line: &[u8]) -> Option<PerfEvent<'_>> {
    // The time is the first word with the form of a time. Words can't be counted, because commands
    // may contain blanks.
    let mut words = spans(line);
    let time = words.find(|word| is_time(&line[word.clone()]))?;
    let mut before: Vec<Range<usize>> = spans(&line[..time.start]).collect();
    before.pop_if(|word| is_mode(&line[word.clone()]));
    before.pop_if(|word| is_cpu(&line[word.clone()]));
    let process = before.pop()?;
    is_process(&line[process.clone()]).then_some(())?;
    // A number before the event is its period.
    let rest = line[time.end..].trim_ascii_start();
    let first = spans(rest).next().map(|word| &rest[word]);
    let number = first.filter(|word| decimal(word).is_some());
    let rest = rest[number.map_or(0, <[u8]>::len)..].trim_ascii_start();
    let command = line[..process.start].trim_ascii();
    // The event's name was left out.
    if rest.is_empty() || is_frame(rest) {
        return Some(PerfEvent {
            command,
            name: b"",
            arguments: rest,
        });
    }
    let colon = rest
        .windows(2)
        .position(|pair| pair == b": ")
        .or_else(|| rest.len().checked_sub(1))?;
    (rest.get(colon) == Some(&b':') && colon > 0).then(|| PerfEvent {
        command,
        name: &rest[..colon],
        arguments: rest[colon + 1..].trim_ascii(),
    })
}

/// Reads `COMMAND PID [CPU] PERIOD EVENT:`, where the processor and the period may be missing. A
/// command may contain numbers. So the process is the first number after which the rest of the line
/// has this form, as in `stackcollapse-perf.pl`.
pub(super) fn untimed(line: &[u8]) -> Option<PerfEvent<'_>> {
    let mut words = spans(line).peekable();
    // The first word belongs to the command.
    words.next()?;
    while let Some(process) = words.next() {
        if !is_process(&line[process.clone()]) {
            continue;
        }
        let mut rest = words.clone();
        rest.next_if(|word| is_cpu(&line[word.clone()]));
        rest.next_if(|word| decimal(&line[word.clone()]).is_some());
        let name = rest.next()?;
        if let Some(text) = line[name.clone()].strip_suffix(b":")
            && !text.is_empty()
            && decimal(text).is_none()
        {
            return Some(PerfEvent {
                command: line[..process.start].trim_ascii(),
                name: text,
                arguments: line[name.end..].trim_ascii(),
            });
        }
    }
    None
}

/// Reads `COMMAND PID [CPU]`, which `-F comm,pid,ip,sym` prints. The line must not be indented,
/// because frames are.
pub(super) fn bare(line: &[u8]) -> Option<PerfEvent<'_>> {
    let mut words: Vec<Range<usize>> = spans(line).collect();
    words.pop_if(|word| is_cpu(&line[word.clone()]));
    let process = words.pop().filter(|word| is_process(&line[word.clone()]))?;
    (!starts_blank(line) && !words.is_empty()).then(|| PerfEvent {
        command: line[..process.start].trim_ascii(),
        name: b"",
        arguments: b"",
    })
}

/// Whether a line begins like a frame that perf prints: with a tab, and an address that is padded
/// with blanks to 16 characters.
pub(super) fn is_column(line: &[u8]) -> bool {
    let rest = line.strip_prefix(b"\t");
    let address = rest.and_then(|rest| spans(rest).next().map(|word| (rest, word)));
    address.is_some_and(|(rest, word)| word.end == 16 && hex(&rest[word]).is_some())
}

/// Whether a text is a frame: `7f6b41e9bdbf JavaThread::run() (/usr/lib/jvm/libjvm.so)`.
pub(super) fn is_frame(text: &[u8]) -> bool {
    let text = text.trim_ascii();
    let mut words = words(text);
    words.next().and_then(hex).is_some() && words.next().is_some() && text.ends_with(b")")
}

pub(super) fn starts_blank(line: &[u8]) -> bool {
    line.first().is_some_and(u8::is_ascii_whitespace)
}

/// Returns the range of each word in a text.
fn spans(text: &[u8]) -> impl Iterator<Item = Range<usize>> + Clone {
    let begin = text.as_ptr() as usize;
    words(text).map(move |word| {
        let start = word.as_ptr() as usize - begin;
        start..start + word.len()
    })
}

pub(super) fn words(text: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> + Clone {
    text.split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
}

/// Whether a word is a processor number such as `[002]`.
fn is_cpu(word: &[u8]) -> bool {
    word.starts_with(b"[") && word.ends_with(b"]")
}

/// Whether a word is a mode, which `-F +misc` prints: `U`, `K` or others.
fn is_mode(word: &[u8]) -> bool {
    word.len() <= 3 && word.iter().all(u8::is_ascii_alphabetic)
}

/// Whether a word is a process, such as `25607`, or a process and thread, such as `24636/25607`.
/// perf writes -1 for an unknown thread.
fn is_process(word: &[u8]) -> bool {
    let mut numbers = word.split(|&b| b == b'/');
    numbers.all(|number| decimal(number.strip_prefix(b"-").unwrap_or(number)).is_some())
}

/// Whether a word is a time: `23055.563426:`.
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
