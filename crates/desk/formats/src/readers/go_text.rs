//! Reads Go's heap profile as text, `/debug/pprof/heap?debug=1`, in which the names follow each
//! stack as comments.
//!
//! Values are read as pprof reads them. pprof ignores the names; this reader assigns the names to
//! the addresses of the stack.

use crate::cut_frames;
use crate::error::FormatError;
use crate::format::ProfileFormat;
use crate::go_stacks::GoStackReader;
use crate::heap_line::HeapHeaderLine;
use crate::heap_samples::{EXPECTED_HEADER, HeapProfileKind, size_label};
use crate::lines::LineReader;
use crate::mapped_files;
use crate::reading::{FormatReadOptions, ProfileReading};

pub(crate) fn sniff(head: &[u8]) -> bool {
    let first = head.split(|&b| b == b'\n').next();
    let header = first.and_then(HeapHeaderLine::find);
    header.is_some_and(|header| header.name_and_period().0 == b"heap")
}

pub(crate) fn read(
    lines: &mut LineReader<'_>,
    options: &FormatReadOptions,
) -> Result<ProfileReading, FormatError> {
    if !lines.advance()? {
        return Err(lines.ended(EXPECTED_HEADER));
    }
    let mut kind = HeapProfileKind::from_header(lines, options)?;
    let mut stacks = GoStackReader::new(kind.profile(), options);
    let mut files = Vec::new();
    while lines.advance()? {
        let line = lines.trimmed();
        if line.is_empty() {
            continue;
        }
        if line[0] == b'#' {
            stacks.comment(lines)?;
            continue;
        }
        stacks.flush()?;
        if mapped_files::begins(line) {
            files = mapped_files::read(lines)?;
            break;
        }
        let counted = kind.sample(lines, &mut stacks.values)?;
        let mean_size = counted.mean_size;
        counted.calls(lines, &mut stacks.addresses)?;
        let label = size_label(&mut stacks.builder.profile, mean_size);
        let labels = stacks.builder.label_set(&mut [label]);
        stacks.begin(labels);
    }
    let profile = stacks.finish(files, cut_frames::add_pprof_frames)?;
    Ok(ProfileReading::new(
        ProfileFormat::GoText,
        kind.rule(),
        profile,
    ))
}

#[cfg(test)]
mod tests {
    use heapprof_profile::{LocationIndex, Profile};

    use super::*;

    fn parsed(text: &str) -> Profile {
        let mut input = text.as_bytes();
        let reading = read(
            &mut LineReader::new(&mut input),
            &FormatReadOptions::default(),
        );
        reading.unwrap().profile
    }

    fn stacks(profile: &Profile) -> String {
        let frame = |l: &LocationIndex| {
            let location = &profile.location[l.index()];
            let lines = profile.lines(location).iter().map(|line| {
                let function = &profile.function[line.function.index()];
                let (name, file) = (profile.text(function.name), profile.text(function.filename));
                format!("{name} {file}:{}", line.line)
            });
            let lines = lines.collect::<Vec<_>>().join(" < ");
            format!("{:x} {lines}", location.address)
                .trim_end()
                .to_string()
        };
        let stack = |i| {
            let frames: Vec<String> = profile.samples.stack(i).iter().map(frame).collect();
            frames.join("; ")
        };
        let stacks: Vec<String> = (0..profile.samples.len()).map(stack).collect();
        stacks.join("\n")
    }

    const HEADER: &str = "heap profile: 1: 2 [3: 4] @ heap/2\n";

    #[test]
    fn comments_name_the_addresses_before_them() {
        let table = [
            // The allocator's frames and goexit are left out.
            (
                "1: 96 [1: 96] @ 0x11 0x21 0x31 0x41 \
                 0x51\n#\t0x30\tmain.f+0x5\t\t/src/a.go:7\n#\t0x40\tmain.(*T[...]).g+0x1f\tC:/src/\
                 b.go:8\n",
                "30 main.f /src/a.go:7; 40 main.(*T[...]).g C:/src/b.go:8",
            ),
            // Recursion: each comment takes the next address, although it is the same.
            (
                "1: 96 [1: 96] @ 0x21 0x21 \
                 0x21\n#\t0x20\tf+0x1\ta.go:1\n#\t0x20\tf+0x1\ta.go:1\n#\t0x20\tf+0x1\ta.go:1\n",
                "20 f a.go:1; 20 f a.go:1; 20 f a.go:1",
            ),
            // Inlined frames at one address, innermost first.
            (
                "1: 96 [1: 96] @ 0x21 \
                 0x31\n#\t0x20\tinner+0x1\ta.go:1\n#\t0x20\touter+0x1\ta.go:2\n#\t0x30\tmain+0x1\
                 \ta.go:3\n",
                "20 inner a.go:1 < outer a.go:2; 30 main a.go:3",
            ),
            // Return addresses, as in files of early versions.
            (
                "1: 96 [1: 96] @ 0x21\n#\t0x21\tf+0x1\ta.go:1\n",
                "20 f a.go:1",
            ),
            // Frames without a name keep their address, also at either end.
            (
                "1: 96 [1: 96] @ 0x11 0x21 0x31 0x41 \
                 0x51\n#\t0x10\n#\t0x10\tf+0x1\ta.go:1\n#\t0x30\tg+0x1\ta.go:2\n",
                "10 f a.go:1; 20; 30 g a.go:2; 40; 50",
            ),
            // A comment without addresses, and addresses without comments.
            ("1: 96 [1: 96] @\n#\t0x20\tf+0x1\ta.go:1\n", "20 f a.go:1"),
            ("1: 96 [1: 96] @ 0x11 0x21\n", "10; 20"),
            // Comments that are not frames.
            (
                "1: 96 [1: 96] @ 0x11\n# a remark\n#\t0x10\tf\ta.go\n# Alloc = 7\n",
                "10 f a.go:0",
            ),
        ];
        for (text, expected) in table {
            assert_eq!(
                stacks(&parsed(&format!("{HEADER}{text}"))),
                expected,
                "{text}"
            );
        }
    }

    #[test]
    fn the_peak_of_rss() {
        let profile = parsed(&format!(
            "{HEADER}# runtime.MemStats\n# MaxRSS = 18370560\n"
        ));
        let comments: Vec<&str> = profile.comment.iter().map(|&c| profile.text(c)).collect();
        assert_eq!(comments, ["peak rss: 18370560 bytes"]);
    }
}
