//! Reads leak reports of LeakSanitizer, alone or after a report of AddressSanitizer. Leaks are
//! memory that is in use and can't be reached.
//!
//! Other output of the program and of the sanitizer may be around the reports. A report ends with a
//! SUMMARY line, whose sums must equal the sums of its leaks.
//!
//! Frames must have the default form, ` #%n %p %F %L`. The sanitizer writes another form only with
//! the option `stack_trace_format`.

use std::borrow::Cow;

use crate::cut_frames;
use crate::error::{FormatError, shortened};
use crate::figures::{address, decimal, value};
use crate::format::ProfileFormat;
use crate::lines::LineReader;
use crate::reading::{FormatReadOptions, ProfileReading};
use crate::tally::{FrameModule, SampleTally, TextFrame};

use heapprof_profile::LocationIndex;

const EXPECTED_FRAME: &str =
    "a frame, #N 0xADDRESS (leave stack_trace_format out of ASAN_OPTIONS and LSAN_OPTIONS)";

pub(crate) fn sniff(head: &[u8]) -> bool {
    head.split(|&b| b == b'\n').any(begins)
}

/// Whether a line is the title of a report or begins a leak. The line may be among other output.
pub(crate) fn begins(line: &[u8]) -> bool {
    let title = b"ERROR: LeakSanitizer: detected memory leaks";
    memchr::memmem::find(line, title).is_some() || leak(&uncoloured(line)).is_some()
}

/// Returns the line without the colours that the sanitizer writes for terminals (`color=always`).
fn uncoloured(line: &[u8]) -> Cow<'_, [u8]> {
    const ESCAPE: u8 = 0x1b;
    if memchr::memchr(ESCAPE, line).is_none() {
        return Cow::Borrowed(line);
    }
    let mut parts = line.split(|&b| b == ESCAPE);
    let mut plain = parts.next().unwrap_or_default().to_vec();
    for part in parts {
        // A colour is `[1;31m`, for example, and ends with the letter.
        let colour = part.strip_prefix(b"[").and_then(|rest| {
            let end = rest.iter().position(|b| matches!(b, b'@'..=b'~'))?;
            Some(&rest[end + 1..])
        });
        plain.extend_from_slice(colour.unwrap_or(part));
    }
    Cow::Owned(plain)
}

pub(crate) fn read(
    lines: &mut LineReader<'_>,
    options: &FormatReadOptions,
) -> Result<ProfileReading, FormatError> {
    let types = [("inuse_objects", "count"), ("inuse_space", "bytes")];
    let mut report = LeakSanitizerReport {
        tally: SampleTally::new(&types, options),
        open: None,
        stack: Vec::new(),
        not_a_frame: None,
        sums: [0; 2],
        is_omitting: false,
        leaks: 0,
    };
    cut_frames::add_tracer_frames(&mut report.tally.builder.profile);
    while lines.advance()? {
        report.line(lines)?;
    }
    report.close()?;
    if report.leaks == 0 {
        return Err(lines.ended("Direct leak of N byte(s) in N object(s) allocated from:"));
    }
    if report.sums != [0; 2] {
        report
            .tally
            .comment("the report has no SUMMARY line; it may be cut short");
    }
    let unsampling = "none, LeakSanitizer knows every block";
    Ok(ProfileReading::new(
        ProfileFormat::LeakSanitizer,
        unsampling,
        report.tally.finish(),
    ))
}

struct LeakSanitizerReport {
    tally: SampleTally,
    /// The leak whose frames are being read: its kind, then its number of objects and bytes.
    open: Option<(&'static str, [i64; 2])>,
    stack: Vec<LocationIndex>,
    /// Error for the first line that is not a frame, although the leak's first frame was expected.
    /// The line may be other output.
    not_a_frame: Option<FormatError>,
    /// Number of objects and bytes since the last summary.
    sums: [i64; 2],
    is_omitting: bool,
    leaks: usize,
}

impl LeakSanitizerReport {
    fn line(&mut self, lines: &LineReader<'_>) -> Result<(), FormatError> {
        let line = uncoloured(lines.line());
        let line = line.trim_ascii();
        if self.open.is_some() && line.starts_with(b"#") {
            let text = frame_text(line).ok_or_else(|| lines.wrong(EXPECTED_FRAME))?;
            let location = self.tally.find_or_make(text, |tally| {
                let text = String::from_utf8_lossy(text);
                let frame = frame(&text).ok_or_else(|| lines.wrong(EXPECTED_FRAME))?;
                tally.location(&[frame])
            })?;
            self.stack.push(location);
            return Ok(());
        }
        let is_frame_expected = self.open.is_some() && self.stack.is_empty();
        let is_known = line.is_empty()
            || line == b"<empty stack>"
            || line.starts_with(b"SUMMARY: ")
            || leak(line).is_some();
        if is_frame_expected && !is_known {
            self.not_a_frame
                .get_or_insert_with(|| lines.wrong(EXPECTED_FRAME));
            return Ok(());
        }
        self.close()?;
        if let Some((kind, rest)) = leak(line) {
            let sums = sizes(rest, b" object(s) allocated from:");
            self.open = Some((
                kind,
                sums.ok_or_else(|| {
                    lines.wrong_part("N byte(s) in N object(s) allocated from:", shortened(rest))
                })?,
            ));
        } else if line.starts_with(b"Omitting ") && line.ends_with(b" more leak(s).") {
            self.is_omitting = true;
        } else if let Some(rest) = line.strip_prefix(b"SUMMARY: ")
            && let Some(at) = memchr::memmem::find(rest, b" byte(s) leaked in ")
        {
            let start = rest[..at]
                .iter()
                .rposition(|&b| b == b' ')
                .map_or(0, |space| space + 1);
            let said = sizes(&rest[start..], b" allocation(s).");
            let said = said.ok_or_else(|| lines.wrong("N byte(s) leaked in N allocation(s)."))?;
            self.summary(lines, said)?;
        }
        Ok(())
    }

    /// Adds the leak whose frames were read to the profile.
    fn close(&mut self) -> Result<(), FormatError> {
        let Some((kind, values)) = self.open.take() else {
            return Ok(());
        };
        if let Some(error) = self.not_a_frame.take()
            && self.stack.is_empty()
        {
            return Err(error);
        }
        let labels = self.tally.text_label_set("leak", kind);
        self.tally.add(&self.stack, labels, &values)?;
        self.stack.clear();
        self.leaks += 1;
        for (sum, value) in self.sums.iter_mut().zip(values) {
            *sum = sum.saturating_add(value);
        }
        Ok(())
    }

    fn summary(&mut self, lines: &LineReader<'_>, said: [i64; 2]) -> Result<(), FormatError> {
        let rest = [
            said[0].saturating_sub(self.sums[0]),
            said[1].saturating_sub(self.sums[1]),
        ];
        if rest != [0; 2] {
            if !self.is_omitting || rest.iter().any(|&n| n < 0) {
                let [objects, bytes] = self.sums;
                return Err(FormatError::Contradiction {
                    line: lines.number(),
                    defect: format!(
                        "expected the sums of the leaks above, {bytes} bytes in {objects} \
                         allocations, found {} bytes in {}; part of the report is missing",
                        said[1], said[0]
                    ),
                });
            }
            let stack = [self.tally.named_location("(omitted by max_leaks)")?];
            let none = self.tally.text_label_set("", "");
            self.tally.add(&stack, none, &rest)?;
        }
        self.sums = [0; 2];
        self.is_omitting = false;
        Ok(())
    }
}

/// Returns the kind of leak and the rest of the line, if the line begins a leak.
fn leak(line: &[u8]) -> Option<(&'static str, &[u8])> {
    let line = line.trim_ascii();
    let direct = line
        .strip_prefix(b"Direct leak of ")
        .map(|rest| ("direct", rest));
    direct.or_else(|| Some(("indirect", line.strip_prefix(b"Indirect leak of ")?)))
}

/// Returns the objects and bytes in the text `N byte(s) … in N` followed by `ending`.
fn sizes(text: &[u8], ending: &[u8]) -> Option<[i64; 2]> {
    let text = text.strip_suffix(ending)?;
    let middle = memchr::memmem::find(text, b" byte(s) ")?;
    let objects = text[middle..].rsplit(|&b| b == b' ').next()?;
    let whole = |text| value(text).filter(|&n| n >= 0);
    Some([whole(objects)?, whole(&text[..middle])?])
}

/// Returns the text of a frame after its `#N `.
fn frame_text(line: &[u8]) -> Option<&[u8]> {
    let rest = line.strip_prefix(b"#")?;
    let space = rest.iter().position(|&b| b == b' ')?;
    decimal(&rest[..space])?;
    Some(&rest[space + 1..])
}

/// Reads a frame: `0x55c in function file:line:column`,
/// `0x55c in function (module+0x12) (BuildId: 0a1b)` or `0x55c (module+0x12)`.
fn frame(text: &str) -> Option<TextFrame<'_>> {
    let (digits, rest) = text.split_once(' ').unwrap_or((text, ""));
    let mut frame = TextFrame {
        address: address(digits.as_bytes())?,
        ..TextFrame::default()
    };
    let rest = rest.trim();
    let (rest, build_id) = match rest
        .strip_suffix(')')
        .and_then(|r| r.rsplit_once("(BuildId: "))
    {
        Some((rest, id)) => (rest.trim_end(), id),
        None => (rest, ""),
    };
    let (rest, module) = match rest.strip_suffix(')').map(|r| r.rsplit_once('(')) {
        Some(Some((before, module)))
            if (module.contains("+0x") || module == "<unknown module>")
                && !before.ends_with(|c: char| !c.is_whitespace()) =>
        {
            (before.trim_end(), module)
        }
        _ => (rest, ""),
    };
    if let Some((name, offset)) = module.rsplit_once('+')
        && let Some(offset) = address(offset.as_bytes())
        && name != "<null>"
    {
        frame.module = FrameModule {
            name,
            build_id,
            base: frame.address.saturating_sub(offset),
        };
    }
    let Some(named) = rest.strip_prefix("in ") else {
        return Some(frame);
    };
    // The line has a module only if no file is known. Then every blank is part of the function's
    // name.
    if !module.is_empty() {
        frame.name = named;
        return Some(frame);
    }
    (frame.name, frame.file) = function_and_file(named);
    (frame.file, frame.line, frame.column) = place(frame.file);
    Some(frame)
}

/// Splits `operator new(unsigned long) ../a b.cpp:95` into function and file. The file begins at
/// the first ` /`. Without a ` /`, it begins after a space outside parentheses and angle brackets:
/// the last such space before text that looks like a file.
fn function_and_file(text: &str) -> (&str, &str) {
    let mut depth = 0i64;
    let mut last = None;
    for (at, c) in text.char_indices() {
        match c {
            '(' | '<' | '[' => depth += 1,
            ')' | '>' | ']' => depth -= 1,
            ' ' if depth <= 0 => {
                if text[at + 1..].starts_with('/') {
                    return (&text[..at], &text[at + 1..]);
                }
                last = Some(at);
            }
            _ => {}
        }
    }
    match last {
        // `operator new` and `foo() const` have a space, but no file.
        Some(at) if text[at + 1..].contains(['.', ':', '/']) => (&text[..at], &text[at + 1..]),
        // The brackets of `operator<<` are never closed.
        _ => match text.find(" /") {
            Some(at) => (&text[..at], &text[at + 1..]),
            None => (text, ""),
        },
    }
}

/// Splits `file:line:column`, `file:line` or `file`.
fn place(text: &str) -> (&str, i64, i64) {
    let number = |text: &str| value(text.as_bytes()).filter(|&n| n >= 0);
    let part = |text| -> Option<(&str, i64)> {
        let (rest, last) = str::rsplit_once(text, ':')?;
        Some((rest, number(last)?))
    };
    match part(text) {
        None => (text, 0, 0),
        Some((rest, last)) => match part(rest) {
            None => (rest, last, 0),
            Some((file, line)) => (file, line, last),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames() {
        let module = |name, build_id, base| FrameModule {
            name,
            build_id,
            base,
        };
        let frame_of = |address, name, file, line, column, module| TextFrame {
            address,
            name,
            file,
            line,
            column,
            module,
        };
        let nowhere = FrameModule::default();
        let table = [
            (
                "0x562c in jar /src/pantry.c:21",
                frame_of(0x562c, "jar", "/src/pantry.c", 21, 0, nowhere),
            ),
            (
                "0x562c in operator new(unsigned long) ../../src/a.cpp:99:3",
                frame_of(
                    0x562c,
                    "operator new(unsigned long)",
                    "../../src/a.cpp",
                    99,
                    3,
                    nowhere,
                ),
            ),
            (
                "0x5 in std::vector<int, std::allocator<int> >::push_back(int&&) const /a b/v.h:7",
                frame_of(
                    5,
                    "std::vector<int, std::allocator<int> >::push_back(int&&) const",
                    "/a b/v.h",
                    7,
                    0,
                    nowhere,
                ),
            ),
            (
                "0x5 in std::operator<< <char>(std::ostream&, char const*) \
                 /usr/include/ostream:611",
                frame_of(
                    5,
                    "std::operator<< <char>(std::ostream&, char const*)",
                    "/usr/include/ostream",
                    611,
                    0,
                    nowhere,
                ),
            ),
            (
                "0x7ff  (/lib/libc.so.6+0x2f) (BuildId: 0a1b)",
                frame_of(0x7ff, "", "", 0, 0, module("/lib/libc.so.6", "0a1b", 0x7d0)),
            ),
            (
                "0x7ff in __libc_start_main (/lib/libc.so.6+0x2f)",
                frame_of(
                    0x7ff,
                    "__libc_start_main",
                    "",
                    0,
                    0,
                    module("/lib/libc.so.6", "", 0x7d0),
                ),
            ),
            (
                "0x14a in operator new(unsigned long, std::align_val_t) (/ab/app+0x4a)",
                frame_of(
                    0x14a,
                    "operator new(unsigned long, std::align_val_t)",
                    "",
                    0,
                    0,
                    module("/ab/app", "", 0x100),
                ),
            ),
            (
                "0x1409 in void shop::store<long>(long) (/a b/nodbg+0x1409) (BuildId: 7f)",
                frame_of(
                    0x1409,
                    "void shop::store<long>(long)",
                    "",
                    0,
                    0,
                    module("/a b/nodbg", "7f", 0),
                ),
            ),
            (
                "0x7ff in _start (<unknown module>)",
                frame_of(0x7ff, "_start", "", 0, 0, nowhere),
            ),
            (
                "0x7ff (<unknown module>)",
                frame_of(0x7ff, "", "", 0, 0, nowhere),
            ),
            (
                "0x7ff in f(int) const",
                frame_of(0x7ff, "f(int) const", "", 0, 0, nowhere),
            ),
            ("0x7ff", frame_of(0x7ff, "", "", 0, 0, nowhere)),
        ];
        for (text, expected) in table {
            assert_eq!(frame(text), Some(expected), "{text}");
        }
        assert_eq!(frame("7ff in f"), None);
    }

    #[test]
    fn leaks_are_told_apart_and_added_up() {
        let text = "the program's own output\n==7==ERROR: LeakSanitizer: detected memory \
                    leaks\n\nDirect leak of 32 byte(s) in 2 object(s) allocated from:\n    #0 \
                    0x10 in malloc (/lib/libasan.so+0x8)\n    #1 0x20 in main \
                    /src/m.c:3:9\n\nIndirect leak of 5 byte(s) in 1 object(s) allocated from:\n    \
                    #0 0x20 in main /src/m.c:3:9\n\nOmitting 3 more leak(s).\nSUMMARY: \
                    AddressSanitizer: 100 byte(s) leaked in 6 allocation(s).\n";
        let profile = crate::profile_text::read(text);
        assert_eq!(
            crate::profile_text::samples(&profile),
            [
                "main@/src/m.c:3;malloc [leak=direct] 2 32",
                "main@/src/m.c:3 [leak=indirect] 1 5",
                "(omitted by max_leaks) 3 63",
            ]
        );
    }

    #[test]
    fn colours_are_no_part_of_a_report() {
        let text = "\x1b[1m\x1b[31m==7==ERROR: LeakSanitizer: detected memory \
                    leaks\n\x1b[1m\x1b[0m\n\x1b[1m\x1b[34mDirect leak of 32 byte(s) in 2 \
                    object(s) allocated from:\n\x1b[1m\x1b[0m    #0 0x20 in main \
                    /src/m.c:3:9\n\nSUMMARY: AddressSanitizer: 32 byte(s) leaked in 2 \
                    allocation(s).\n";
        let profile = crate::profile_text::read(text);
        assert_eq!(
            crate::profile_text::samples(&profile),
            ["main@/src/m.c:3 [leak=direct] 2 32"]
        );
    }

    #[test]
    fn frames_of_another_form_are_refused() {
        let report = |stack: &str| {
            let text = format!(
                "Direct leak of 32 byte(s) in 2 object(s) allocated from:\n{stack}\n\
                 SUMMARY: AddressSanitizer: 32 byte(s) leaked in 2 allocation(s).\n"
            );
            crate::read(text.as_bytes(), &FormatReadOptions::default())
        };
        for stack in ["[frame=0\n[frame=1\n", "#0 main\n", "main\nSUMMARY: none\n"] {
            let error = report(stack).unwrap_err().to_string();
            assert!(
                error.starts_with("line 2: expected a frame, #N 0xADDRESS (leave"),
                "{error}"
            );
        }
        for stack in [
            "    <empty stack>\n",
            "other output\n    #0 0x20 in main m.c:3\n",
            "",
        ] {
            let profile = report(stack).unwrap().profile;
            assert_eq!(profile.samples.len(), 1, "{stack}");
        }
    }
}
