//! Reads Go's heap profile as text, `/debug/pprof/heap?debug=1`, in which the names follow each
//! stack as comments.
//!
//! Values are read as pprof reads them. pprof ignores the names; this reader assigns the names to
//! the addresses of the stack.

use heapprof_profile::{Line, LocationIndex, ProfileBuilder};

use crate::cut_frames;
use crate::error::FormatError;
use crate::format::ProfileFormat;
use crate::heap_line::{HeapHeaderLine, HexAddresses};
use crate::heap_samples::{EXPECTED_HEADER, HeapProfileKind, size_label};
use crate::lines::LineReader;
use crate::mapped_files;
use crate::memory_budget::MemoryBudget;
use crate::reading::{FormatReadOptions, ProfileReading};
use crate::stacks;

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
    let mut records = GoSampleReader {
        builder: ProfileBuilder::default(),
        budget: MemoryBudget::new(options),
        pending: false,
        values: Vec::new(),
        mean_size: 0,
        addresses: Vec::new(),
        named: Vec::new(),
        has_names: false,
    };
    records.builder.profile = kind.profile();
    let mut files = Vec::new();
    while lines.advance()? {
        let line = lines.trimmed();
        if line.is_empty() {
            continue;
        }
        if line[0] == b'#' {
            records.comment(lines)?;
            continue;
        }
        records.flush()?;
        if mapped_files::begins(line) {
            files = mapped_files::read(lines)?;
            break;
        }
        records.sample(&mut kind, lines)?;
    }
    records.flush()?;
    let has_names = records.has_names;
    let mut profile = records.builder.finish();
    stacks::assign_mappings(&mut profile, files);
    if has_names {
        profile.mark_symbolized(|_| true);
    } else {
        cut_frames::add_pprof_frames(&mut profile);
    }
    Ok(ProfileReading::new(
        ProfileFormat::GoText,
        kind.rule(),
        profile,
    ))
}

/// Maximum number of addresses that are searched for a named frame. Between two named frames, Go
/// leaves out fewer.
const MAX_SEARCHED_ADDRESSES: usize = 256;

/// Estimated number of bytes that a frame takes in memory, with its location, function and line. A
/// sample without its frames takes as many.
const FRAME_BYTES: usize = 200;

/// A comment that names a frame.
struct GoNamedFrame {
    address: u64,
    line: Line,
}

/// Reader of the samples, with the state of the sample whose comments are being read.
struct GoSampleReader {
    builder: ProfileBuilder,
    budget: MemoryBudget,
    pending: bool,
    values: Vec<i64>,
    mean_size: i64,
    /// The addresses of the calls, leaf first.
    addresses: Vec<u64>,
    named: Vec<GoNamedFrame>,
    has_names: bool,
}

impl GoSampleReader {
    fn sample(
        &mut self,
        kind: &mut HeapProfileKind,
        lines: &LineReader<'_>,
    ) -> Result<(), FormatError> {
        let counted = kind.sample(lines, &mut self.values)?;
        self.mean_size = counted.mean_size;
        counted.calls(lines, &mut self.addresses)?;
        self.pending = true;
        Ok(())
    }

    /// Reads a comment: `# 0x57f970 go/ast.NewScope+0x50 go/ast/scope.go:28`, with tabs between the
    /// parts, or `# MaxRSS = 18370560` at the end of the file.
    fn comment(&mut self, lines: &LineReader<'_>) -> Result<(), FormatError> {
        let text = String::from_utf8_lossy(&lines.trimmed()[1..]);
        let mut fields = text.split('\t').map(str::trim).filter(|f| !f.is_empty());
        let first = fields.next().unwrap_or_default();
        if let Some(bytes) = first.strip_prefix("MaxRSS = ") {
            if bytes.parse::<u64>().is_ok_and(|bytes| bytes > 0) {
                let text = format!("peak rss: {bytes} bytes");
                let text = self.builder.text(&text);
                self.builder.profile.comment.push(text);
            }
            return Ok(());
        }
        if !first.starts_with("0x") || !self.pending {
            return Ok(());
        }
        let Some(Ok(address)) = HexAddresses(first.as_bytes()).next() else {
            return Err(lines.wrong("`#`, an address of 64 bits, a function and its line"));
        };
        // A comment without a function has an address that Go could not name either.
        let Some(function) = fields.next() else {
            return Ok(());
        };
        let name = match function.rsplit_once("+0x") {
            Some((name, offset)) if offset.bytes().all(|b| b.is_ascii_hexdigit()) => name,
            _ => function,
        };
        let place = fields.next().unwrap_or_default();
        let (file, line) = match place.rsplit_once(':') {
            Some((file, line)) => match line.parse() {
                Ok(line) => (file, line),
                Err(_) => (place, 0),
            },
            None => (place, 0),
        };
        let (name, file) = (self.builder.text(name), self.builder.text(file));
        let line = Line {
            function: self.builder.named_function(name, file),
            line,
            column: 0,
        };
        self.named.push(GoNamedFrame { address, line });
        let bytes = 2 * text.len() + FRAME_BYTES;
        let named = self.named.capacity() * size_of::<GoNamedFrame>();
        let profile = &self.builder.profile;
        self.budget
            .grow(bytes, || 2 * profile.memory() + named as u64)
    }

    /// Adds the sample that was read last, with the names from its comments. Too much memory is an
    /// error.
    fn flush(&mut self) -> Result<(), FormatError> {
        if !std::mem::take(&mut self.pending) {
            return Ok(());
        }
        let frames = frames(&self.addresses, &self.named);
        self.has_names |= !self.named.is_empty();
        self.named.clear();
        let builder = &mut self.builder;
        let stack: Vec<LocationIndex> = (frames.iter())
            .map(|(address, lines)| builder.location(None, *address, false, lines))
            .collect();
        let label = size_label(&mut builder.profile, self.mean_size);
        let labels = builder.label_set(&mut [label]);
        let bytes = FRAME_BYTES * (1 + stack.len());
        builder.profile.samples.push(stack, &self.values, labels);
        // The builder also stores each location and function as a key.
        self.budget.grow(bytes, || 2 * builder.profile.memory())
    }
}

/// Returns the addresses of a stack, each with its functions and lines, innermost first.
///
/// Go writes a comment for each frame, in order, with the address of the call. Frames that were
/// inlined into one call share its address. Go leaves out the runtime's allocating functions at the
/// leaf, and the outermost function, `runtime.goexit`. Go's protobuf profiles leave these functions
/// out too, and so does this function. A frame whose name Go does not know stays an address.
fn frames(addresses: &[u64], named: &[GoNamedFrame]) -> Vec<(u64, Vec<Line>)> {
    if named.is_empty() {
        return addresses.iter().map(|&a| (a, Vec::new())).collect();
    }
    let mut frames: Vec<(u64, Vec<Line>)> = Vec::with_capacity(named.len());
    let mut next = 0;
    for GoNamedFrame { address, line } in named {
        // Early versions of Go write the return address.
        let same = |a: u64| a == *address || a.checked_add(1) == Some(*address);
        let rest = &addresses[next..];
        let inlined = frames.last().is_some_and(|&(last, _)| same(last));
        let found = match rest.first() {
            Some(&first) if same(first) => Some(0),
            _ if inlined => None,
            _ => rest
                .iter()
                .take(MAX_SEARCHED_ADDRESSES)
                .position(|&a| same(a)),
        };
        match (found, frames.last_mut()) {
            (Some(skipped), last) => {
                if last.is_some() {
                    frames.extend(rest[..skipped].iter().map(|&a| (a, Vec::new())));
                }
                frames.push((rest[skipped], vec![*line]));
                next += skipped + 1;
            }
            (None, Some((_, lines))) if inlined => lines.push(*line),
            // The frame is not in the stack, so the address in its comment is used.
            (None, _) => frames.push((*address, vec![*line])),
        }
    }
    match &addresses[next..] {
        [_] => {}
        rest => frames.extend(rest.iter().map(|&a| (a, Vec::new()))),
    }
    frames
}

#[cfg(test)]
mod tests {
    use heapprof_profile::Profile;

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
