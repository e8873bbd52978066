//! Reads Go's counts of stacks as text: `/debug/pprof/goroutine?debug=1`, `threadcreate`, and the
//! profiles that a program makes with `pprof.NewProfile`.
//!
//! The first line is `NAME profile: total N`, and each stack is a line `N @ 0xADDRESS …`. Values
//! are read as pprof reads them. pprof ignores the names and labels in the comments after a stack;
//! this reader gives them to the stack.

use heapprof_profile::ProfileBuilder;

use crate::cut_frames;
use crate::error::{FormatError, shortened};
use crate::figures::{self, value};
use crate::format::ProfileFormat;
use crate::go_stacks::GoStackReader;
use crate::lines::LineReader;
use crate::mapped_files;
use crate::reading::{FormatReadOptions, ProfileReading};

const EXPECTED_HEADER: &str = "`NAME profile: total N`";
const EXPECTED_STACK: &str = "`N @ 0xADDRESS …`, a comment or `--- Memory map: ---`";

pub(crate) fn sniff(head: &[u8]) -> bool {
    let mut lines = head.split(|&b| b == b'\n');
    let first = lines.find(|line| !is_blank_or_comment(line));
    first.is_some_and(|line| name(line.strip_suffix(b"\r").unwrap_or(line)).is_some())
}

/// Whether a line has no content: Go skips such lines.
pub(crate) fn is_blank_or_comment(line: &[u8]) -> bool {
    matches!(line.trim_ascii(), [] | [b'#', ..])
}

/// Returns the name in a line `NAME profile: total N`.
fn name(line: &[u8]) -> Option<&[u8]> {
    let end = line.iter().position(u8::is_ascii_whitespace)?;
    let (name, rest) = line.split_at(end);
    let total = rest.strip_prefix(b" profile: total ")?;
    let is_number = !total.is_empty() && total.iter().all(u8::is_ascii_digit);
    (!name.is_empty() && is_number).then_some(name)
}

pub(crate) fn read(
    lines: &mut LineReader<'_>,
    options: &FormatReadOptions,
) -> Result<ProfileReading, FormatError> {
    while lines.advance()? && is_blank_or_comment(lines.line()) {}
    let name = name(lines.line()).ok_or_else(|| lines.wrong(EXPECTED_HEADER))?;
    let name = String::from_utf8_lossy(name).into_owned();
    let mut builder = ProfileBuilder::new(&[(&name, "count")]);
    builder.profile.period_type = Some(builder.value_type(&name, "count"));
    builder.profile.period = 1;
    let labels = builder.label_set(&mut []);
    let mut stacks = GoStackReader::new(builder.finish(), options);
    while lines.advance()? {
        let line = lines.line();
        if line.starts_with(b"---") {
            lines.stay();
            break;
        }
        match line.trim_ascii() {
            [] => {}
            [b'#', ..] => stacks.comment(lines)?,
            _ => {
                stacks.flush()?;
                count(lines, &mut stacks)?;
                stacks.begin(labels);
            }
        }
    }
    let files = mapped_files::find_and_read(lines)?;
    let profile = stacks.finish(files, cut_frames::add_sampler_frames)?;
    let rule = "none, every stack was counted";
    Ok(ProfileReading::new(ProfileFormat::GoCount, rule, profile))
}

/// Reads the line of a stack: its count, and its return addresses, leaf first.
fn count(lines: &LineReader<'_>, stacks: &mut GoStackReader) -> Result<(), FormatError> {
    let mut words = lines.line().split(|&b| b == b' ');
    let count = words.next().unwrap_or_default();
    if count.is_empty() || !count.iter().all(u8::is_ascii_digit) || words.next() != Some(b"@") {
        return Err(lines.wrong(EXPECTED_STACK));
    }
    let count =
        value(count).ok_or_else(|| lines.wrong_part("a number below 2^63", shortened(count)))?;
    stacks.values.clear();
    stacks.values.push(count);
    stacks.addresses.clear();
    for word in words {
        let address = figures::address(word)
            .ok_or_else(|| lines.wrong_part("an address of 64 bits", shortened(word)))?;
        stacks.addresses.push(address.wrapping_sub(1));
    }
    match stacks.addresses.is_empty() {
        true => Err(lines.wrong(EXPECTED_STACK)),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile_text::{error, read, samples, types};

    #[test]
    fn counts_of_any_name() {
        let text = "# late\n\nthreadcreate profile: total 7\r\n1 @ 0x11 0x21\r\n\n6 @ 0x11\n";
        let profile = read(text);
        assert_eq!(types(&profile), ["threadcreate/count"]);
        assert_eq!(samples(&profile), ["0x20@;0x10@ 1", "0x10@ 6"]);
        assert_eq!(profile.period, 1);
        let map = "--- Memory map: ---\n10-20 r-xp 0 00:00 0 /bin/app\n";
        let profile = read(&format!(
            "my.things profile: total 1\n1 @ 0x11\n--- x\n{map}"
        ));
        assert_eq!(types(&profile), ["my.things/count"]);
        assert_eq!(samples(&profile), ["0x10@/bin/app 1"]);
    }

    #[test]
    fn names_of_goroutines() {
        // Go leaves out the runtime's functions at the leaf, and goexit.
        let text = "goroutine profile: total 3\n2 @ 0x11 0x21 0x31 0x41\n#\t0x20\tmain.wait+0x1\t\
                    a.go:7\n#\t0x30\tmain.main+0x2\ta.go:9\n\n1 @ 0x51\n\
                    # labels: {\"pool\":\"a b\", \"id\":\"7\"}\n1 @ 0x51\n# labels: {pool}\n";
        assert_eq!(
            samples(&read(text)),
            [
                "main.main@a.go:9;main.wait@a.go:7 2",
                "0x50@ [id=7] [pool=a b] 1",
                "0x50@ 1"
            ]
        );
    }

    #[test]
    fn other_texts() {
        for text in [
            "goroutine profile: total\n",
            "goroutine profile: total -1\n",
            "goroutine  profile: total 1\n",
            " profile: total 1\n",
            "a b profile: total 1\n",
        ] {
            assert!(!sniff(text.as_bytes()), "{text}");
        }
        for (stack, expected) in [
            ("1 @", "line 2: expected `N @ 0xADDRESS …`, a comment or"),
            ("1 0x1", "line 2: expected `N @ 0xADDRESS …`, a comment or"),
            (
                "-1 @ 0x1",
                "line 2: expected `N @ 0xADDRESS …`, a comment or",
            ),
            ("1 @ 0x1  0x2", "line 2: expected an address of 64 bits"),
            ("1 @ 1", "line 2: expected an address of 64 bits"),
            (
                "9223372036854775808 @ 0x1",
                "line 2: expected a number below 2^63",
            ),
        ] {
            let error = error(format!("goroutine profile: total 1\n{stack}\n").as_bytes());
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
