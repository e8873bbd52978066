//! Reads folded stacks, the form that flame graph tools exchange: `main;parse;alloc 96`, root
//! first.
//!
//! The text does not state what the numbers count. They are read as samples unless `--values` gives
//! another type. Files of `difffolded.pl` and `inferno-diff-folded` have two numbers, before and
//! after. Each number is a sample type. `FILE#1` and `FILE#2` select the first or the second number
//! alone.

use heapprof_profile::LocationIndex;

use crate::error::FormatError;
use crate::figures::{address, value};
use crate::format::ProfileFormat;
use crate::json;
use crate::lines::LineReader;
use crate::reading::{FormatReadOptions, PartSelector, ProfileReading};
use crate::tally::{FrameModule, SampleTally, TextFrame};

/// Text in place of a stack without frames, in the output of programs that use this crate.
const EMPTY_STACK: &[u8] = b"(empty stack)";

pub(crate) fn sniff(head: &[u8]) -> bool {
    if json::begins(head) {
        return false;
    }
    // The last line may be cut.
    let whole = memchr::memrchr(b'\n', head).map_or(head, |end| &head[..end]);
    let (mut stacks, mut others, mut has_frames) = (0, 0, false);
    for line in whole.split(|&b| b == b'\n') {
        match entry(line) {
            Some(Some((stack, ..))) => {
                stacks += 1;
                has_frames |= stack.contains(&b';');
            }
            Some(None) => {}
            // A file may be damaged, but not at its beginning.
            None if stacks == 0 => return false,
            None => others += 1,
        }
    }
    stacks > 0 && (others == 0 || has_frames && others < stacks)
}

/// Returns a line's stack, its first number if there are two, and its last number. Returns
/// `Some(None)` for a line without a stack.
#[allow(clippy::type_complexity)]
fn entry(line: &[u8]) -> Option<Option<(&[u8], Option<i64>, i64)>> {
    let line = line.trim_ascii();
    if line.is_empty() || line.starts_with(b"#") {
        return Some(None);
    }
    let (rest, last) = last_number(line)?;
    match last_number(rest) {
        Some((stack, first)) if !stack.is_empty() => Some(Some((stack, Some(first), last))),
        _ => Some(Some((rest, None, last))),
    }
}

/// Splits off the number after the last blank. A number with a fraction is rounded.
fn last_number(text: &[u8]) -> Option<(&[u8], i64)> {
    let blank = text.iter().rposition(u8::is_ascii_whitespace)?;
    let (rest, number) = (text[..blank].trim_ascii_end(), &text[blank + 1..]);
    let (whole, fraction) = match number.iter().position(|&b| b == b'.') {
        Some(dot) => (&number[..dot], &number[dot + 1..]),
        None => (number, &b""[..]),
    };
    if !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let up = i64::from(fraction.first().is_some_and(|&digit| digit >= b'5'));
    let up = if whole.starts_with(b"-") { -up } else { up };
    (!rest.is_empty()).then_some((rest, value(whole)?.checked_add(up)?))
}

pub(crate) fn read(
    lines: &mut LineReader<'_>,
    options: &FormatReadOptions,
) -> Result<ProfileReading, FormatError> {
    let mut file: Option<FoldedFile> = None;
    while lines.advance()? {
        let entry = entry(lines.line());
        let entry = entry.ok_or_else(|| lines.wrong("a stack, a space and a number"))?;
        let Some((stack, first, last)) = entry else {
            continue;
        };
        let file = match &mut file {
            Some(file) => file,
            none => none.insert(FoldedFile::new(first.is_some(), options)?),
        };
        if file.is_difference != first.is_some() {
            let expected = match file.is_difference {
                true => "two numbers after the stack, as in the lines before",
                false => "one number after the stack, as in the lines before",
            };
            return Err(lines.wrong(expected));
        }
        file.add(stack, first, last)?;
    }
    let file = file.ok_or_else(|| lines.ended("a stack, a space and a number"))?;
    let profile = file.tally.finish();
    Ok(ProfileReading::new(
        ProfileFormat::Folded,
        "none, as the file says",
        profile,
    ))
}

struct FoldedFile {
    tally: SampleTally,
    stack: Vec<LocationIndex>,
    is_difference: bool,
    /// Number of the column that the user selected; `None` for all columns.
    column: Option<usize>,
}

impl FoldedFile {
    fn new(is_difference: bool, options: &FormatReadOptions) -> Result<Self, FormatError> {
        let values = options.values.as_ref();
        let (name, unit) = values.map_or(("samples", "count"), |v| (&v.r#type, &v.unit));
        let columns = 1 + usize::from(is_difference);
        // The columns have no peak.
        let choose = |part: PartSelector| part.choose("column", columns, columns);
        let column = options.part.map(choose).transpose()?;
        let before = format!("{name}_before");
        let types: &[(&str, &str)] = match is_difference && column.is_none() {
            true => &[(&before, unit), (name, unit)],
            false => &[(name, unit)],
        };
        Ok(Self {
            tally: SampleTally::new(types, options),
            stack: Vec::new(),
            is_difference,
            column,
        })
    }

    fn add(&mut self, stack: &[u8], first: Option<i64>, last: i64) -> Result<(), FormatError> {
        self.stack.clear();
        if stack != EMPTY_STACK {
            for name in stack.rsplit(|&b| b == b';').filter(|name| !name.is_empty()) {
                let location = self.tally.find_or_make(name, |tally| {
                    let name = String::from_utf8_lossy(name);
                    tally.location(&[frame(&name)])
                })?;
                self.stack.push(location);
            }
        }
        let none = self.tally.text_label_set("", "");
        let values = [first.unwrap_or(last), last];
        let values = match (first, self.column) {
            (Some(_), None) => &values[..],
            (_, Some(0)) => &values[..1],
            _ => &values[1..],
        };
        self.tally.add(&self.stack, none, values).map(|_| ())
    }
}

/// Reads a frame: a name, or an unsymbolized frame such as `0x401000 [app]`, which programs that
/// use this crate write.
pub(crate) fn frame(text: &str) -> TextFrame<'_> {
    let (digits, rest) = text.split_once(' ').unwrap_or((text, ""));
    let module = rest.strip_prefix('[').and_then(|r| r.strip_suffix(']'));
    match (address(digits.as_bytes()), module) {
        (Some(address), Some(name)) => TextFrame {
            address,
            module: FrameModule {
                name,
                ..FrameModule::default()
            },
            ..TextFrame::default()
        },
        (Some(address), None) if rest.is_empty() => TextFrame {
            address,
            ..TextFrame::default()
        },
        _ => TextFrame {
            name: text,
            ..TextFrame::default()
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile_text::{read, read_with, samples, types};

    #[test]
    fn stacks_and_numbers() {
        let text = "# a comment\n\nmain;parse file;alloc 96\nmain;parse file;alloc 4\nmain \
                    1.5\n(empty stack) 7\n0x401000 [app];0x10 -3\n";
        let profile = read(text);
        assert_eq!(types(&profile), ["samples/count"]);
        assert_eq!(
            samples(&profile),
            [
                "main;parse file;alloc 100",
                "main 2",
                " 7",
                "0x401000@app;0x10 -3"
            ]
        );
        let options = FormatReadOptions::default().values("inuse_space/bytes".parse().ok());
        assert_eq!(types(&read_with(text, options)), ["inuse_space/bytes"]);
    }

    #[test]
    fn two_columns_are_before_and_after() {
        let text = "main;f 10 12\nmain;g 5 0\n";
        let part = |n| {
            samples(&read_with(
                text,
                FormatReadOptions::default().part(Some(PartSelector::Number(n))),
            ))
        };
        assert_eq!(
            types(&read(text)),
            ["samples_before/count", "samples/count"]
        );
        assert_eq!(samples(&read(text)), ["main;f 10 12", "main;g 5 0"]);
        assert_eq!(part(1), ["main;f 10", "main;g 5"]);
        assert_eq!(part(2), ["main;f 12"]);
    }
}
