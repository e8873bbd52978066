//! Reads the memory map at the end of a text profile: recognizes lines that are mappings, and joins
//! mappings that belong together.
//!
//! Lines have one of two forms, as in pprof: the form of `/proc/PID/maps`, and the brief form
//! `start-end [perm] file [(@offset)] [build id]`. Lines of the form `name=value` define `$name`
//! for the lines that follow. The prefixes that glog writes before lines are removed. All other
//! lines are skipped.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::bytes::Regex;

use crate::error::FormatError;
use crate::lines::LineReader;

/// Maximum number of mappings that are read. The kernel allows a process far fewer.
const MAX_MAPPINGS: usize = 1 << 20;
/// Maximum number of `name=value` definitions; more are ignored. gperftools writes one.
const MAX_DEFINITIONS: usize = 64;
/// Longest name in a `name=value` definition; definitions with longer names are ignored. The name
/// in gperftools is `build`.
const MAX_DEFINITION_NAME_BYTES: usize = 256;
/// Maximum number of `$` in one line that are looked up in the definitions. A line of gperftools
/// has one.
const MAX_LOOKUPS_PER_LINE: usize = 64;
/// Maximum number of bytes, in total, that values of `$name` may add to the lines of a file.
const MAX_SUBSTITUTED_BYTES: usize = 16 << 20;
/// Maximum length, in bytes, of a line in which `$name` is replaced, both before and after the
/// replacement. A line that exceeds it stays unchanged.
const MAX_SUBSTITUTED_LINE_BYTES: usize = 64 << 10;

/// A mapped file. Its path is stored as bytes, because paths need not be UTF-8.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MappedFile {
    /// The first address.
    pub(crate) start: u64,
    /// One past the last address.
    pub(crate) limit: u64,
    /// The offset of `start` in the file.
    pub(crate) offset: u64,
    /// The path of the file; may be empty.
    pub(crate) file: Vec<u8>,
    /// Build id of the file; may be empty.
    pub(crate) build_id: Vec<u8>,
}

/// Whether a memory map begins after this line.
pub(crate) fn begins(line: &[u8]) -> bool {
    // Searching for an M first spares most lines the full search.
    memchr::memchr(b'M', line).is_some()
        && ["MAPPED_LIBRARIES:", "--- Memory map: ---"]
            .iter()
            .any(|start| memchr::memmem::find(line, start.as_bytes()).is_some())
}

/// Skips the lines before a memory map, and reads the map. The list is empty if there is no map.
pub(crate) fn find_and_read(lines: &mut LineReader<'_>) -> Result<Vec<MappedFile>, FormatError> {
    while lines.advance()? {
        if begins(lines.line()) {
            return read(lines);
        }
    }
    Ok(Vec::new())
}

/// Reads a memory map up to the end of the file. Returns the executable mappings in order, but the
/// mapping of the program first. Mappings that belong together are joined.
pub(crate) fn read(lines: &mut LineReader<'_>) -> Result<Vec<MappedFile>, FormatError> {
    read_until(lines, |_| false)
}

/// Reads a memory map up to a line that ends the section. `lines` stays on that line.
pub(crate) fn read_until(
    lines: &mut LineReader<'_>,
    ends: impl Fn(&[u8]) -> bool,
) -> Result<Vec<MappedFile>, FormatError> {
    let mut files = Vec::new();
    let mut definitions = MapDefinitions::default();
    while lines.advance()? {
        if ends(lines.line()) {
            lines.stay();
            break;
        }
        let line = definitions.apply(without_log_prefix(lines.line()));
        match entry(&line) {
            MapLine::Executable(file) => {
                if files.len() == MAX_MAPPINGS {
                    return Err(lines.wrong(format!("at most {MAX_MAPPINGS} mappings")));
                }
                files.push(file);
            }
            MapLine::Other => {}
            MapLine::None => definitions.add(&line),
        }
    }
    let mut files = joined(files);
    program_first(&mut files);
    Ok(files)
}

enum MapLine {
    Executable(MappedFile),
    /// The line is a mapping without code.
    Other,
    None,
}

/// Regular expression for a range such as `400000-500000`, with or without `0x`, in all ways in
/// which tools separate the two addresses.
const RANGE_PATTERN: &str = r"^\s*(?:0x)?(?<start>[[:xdigit:]]+)[\s-]?\s*(?:0x)?(?<limit>[[:xdigit:]]+):?(?:\s+(?<perm>[-rwxp]+))?";

fn entry(line: &[u8]) -> MapLine {
    // The device and inode distinguish the first form from the second.
    static PROC_LINE: LazyLock<Regex> = LazyLock::new(|| {
        with_range(
            r"(?:\s+(?<offset>[[:xdigit:]]+))?\s+[[:xdigit:]]+:[[:xdigit:]]+\s+[0-9]+(?:\s+(?<file>\S+))?",
        )
    });
    static BRIEF_LINE: LazyLock<Regex> = LazyLock::new(|| {
        with_range(
            r"(?:\s+(?<file>\S+))?(?:\s+\(@(?<offset>[[:xdigit:]]+)\))?(?:\s+(?<build>[[:xdigit:]]+))?",
        )
    });
    let Some(found) = PROC_LINE
        .captures(line)
        .or_else(|| BRIEF_LINE.captures(line))
    else {
        return MapLine::None;
    };
    let text = |name| found.name(name).map_or(&b""[..], |m| m.as_bytes());
    if !text("perm").is_empty() && !text("perm").contains(&b'x') {
        return MapLine::Other;
    }
    let number = |name| match text(name) {
        b"" => Some(0),
        digits => u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok(),
    };
    match (number("start"), number("limit"), number("offset")) {
        (Some(start), Some(limit), Some(offset)) => MapLine::Executable(MappedFile {
            start,
            limit,
            offset,
            file: text("file").to_vec(),
            build_id: text("build").to_vec(),
        }),
        _ => MapLine::None,
    }
}

fn with_range(rest: &str) -> Regex {
    regex(&format!("{RANGE_PATTERN}{rest}"))
}

/// Compiles a regular expression for bytes, because names need not be UTF-8.
fn regex(pattern: &str) -> Regex {
    Regex::new(&format!("(?-u){pattern}")).expect("a constant that is a regular expression")
}

/// Returns the line without the prefix `…file:line] `, which glog writes before each line.
fn without_log_prefix(line: &[u8]) -> &[u8] {
    static LOG_PREFIX: LazyLock<Regex> = LazyLock::new(|| regex(r"^[^\[\]]+:[0-9]+\]\s"));
    match LOG_PREFIX.find(line) {
        Some(prefix) => &line[prefix.end()..],
        None => line,
    }
}

/// The definitions in `name=value` lines. `$name` in later lines stands for the value. The first
/// definition of a name is used.
#[derive(Default)]
struct MapDefinitions {
    known: Vec<(Vec<u8>, Vec<u8>)>,
    /// Number of bytes that definitions have added to lines.
    substituted_bytes: usize,
}

impl MapDefinitions {
    fn add(&mut self, line: &[u8]) {
        if let Some(at) = memchr::memchr(b'=', line)
            && self.known.len() < MAX_DEFINITIONS
        {
            let (name, value) = (line[..at].trim_ascii(), line[at + 1..].trim_ascii());
            if name.len() <= MAX_DEFINITION_NAME_BYTES {
                self.known.push((name.to_vec(), value.to_vec()));
            }
        }
    }

    fn apply<'a>(&mut self, line: &'a [u8]) -> Cow<'a, [u8]> {
        if self.known.is_empty()
            || self.substituted_bytes > MAX_SUBSTITUTED_BYTES
            || line.len() > MAX_SUBSTITUTED_LINE_BYTES
            || !line.contains(&b'$')
        {
            return line.into();
        }
        let mut applied = Vec::with_capacity(line.len());
        let mut rest = line;
        for _ in 0..MAX_LOOKUPS_PER_LINE {
            let Some(dollar) = memchr::memchr(b'$', rest) else {
                break;
            };
            let tail = &rest[dollar + 1..];
            applied.extend_from_slice(&rest[..dollar]);
            let known = |(name, _): &&(Vec<u8>, Vec<u8>)| tail.starts_with(name);
            rest = match self.known.iter().find(known) {
                Some((name, value)) => {
                    applied.extend_from_slice(value);
                    self.substituted_bytes = self.substituted_bytes.saturating_add(value.len());
                    &tail[name.len()..]
                }
                None => {
                    applied.push(b'$');
                    tail
                }
            };
            if applied.len() > MAX_SUBSTITUTED_LINE_BYTES {
                return line.into();
            }
        }
        applied.extend_from_slice(rest);
        applied.into()
    }
}

/// Joins neighbouring entries that are parts of one mapping.
fn joined(files: Vec<MappedFile>) -> Vec<MappedFile> {
    let mut joined: Vec<MappedFile> = Vec::with_capacity(files.len());
    for file in files {
        match joined.last_mut() {
            Some(last) if continues(last, &file) => {
                last.limit = file.limit;
                if !file.file.is_empty() {
                    last.file = file.file;
                }
                if !file.build_id.is_empty() {
                    last.build_id = file.build_id;
                }
            }
            _ => joined.push(file),
        }
    }
    joined
}

/// Whether `next` begins where `last` ends, and the two do not contradict each other.
fn continues(last: &MappedFile, next: &MappedFile) -> bool {
    let agree = |a: &[u8], b: &[u8]| a.is_empty() || b.is_empty() || a == b;
    let size = last.limit.wrapping_sub(last.start);
    agree(&last.file, &next.file)
        && agree(&last.build_id, &next.build_id)
        && last.limit == next.start
        && (last.offset == 0 || next.offset == 0 || last.offset.wrapping_add(size) == next.offset)
}

/// Swaps the mapping of the program to the front. It is the first mapping that has a name, is not a
/// library, and is not a kernel area such as `[vdso]`.
fn program_first(files: &mut [MappedFile]) {
    static LIBRARY_NAME: LazyLock<Regex> = LazyLock::new(|| regex(r"\.so$|\.so[._][0-9]+"));
    let program = files.iter().position(|mapped| {
        let name = without(&mapped.file, b"(deleted)");
        let name = name.trim_ascii();
        !name.is_empty() && !LIBRARY_NAME.is_match(name) && name[0] != b'['
    });
    if let Some(program) = program {
        files.swap(0, program);
    }
}

fn without(name: &[u8], part: &[u8]) -> Vec<u8> {
    let mut rest = name;
    let mut kept = Vec::with_capacity(name.len());
    while let Some(at) = memchr::memmem::find(rest, part) {
        kept.extend_from_slice(&rest[..at]);
        rest = &rest[at + part.len()..];
    }
    kept.extend_from_slice(rest);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads the map of a text, and shows one mapping in each line.
    fn map(text: &str) -> String {
        let mut input = text.as_bytes();
        let files = read(&mut LineReader::new(&mut input)).unwrap();
        let shown = files.iter().map(|f| {
            let text = String::from_utf8_lossy;
            format!(
                "{:x}-{:x} {:x} {} {}",
                f.start,
                f.limit,
                f.offset,
                text(&f.file),
                text(&f.build_id)
            )
            .trim_end()
            .to_string()
        });
        shown.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn lines_of_maps() {
        let table = [
            // Lines in the kernel's form. Only mappings with code are kept.
            (
                "00400000-00452000 r-xp 00001000 08:02 173521  /usr/bin/dbus-daemon",
                "400000-452000 1000 /usr/bin/dbus-daemon",
            ),
            (
                "00651000-00652000 r--p 00051000 08:02 173521 /usr/bin/x",
                "",
            ),
            ("7f01-7f02 r-xp 00000000 00:00 0", "7f01-7f02 0"),
            ("7f01-7f02 r-xp 0 00:00 0 /a b (deleted)", "7f01-7f02 0 /a"),
            // The brief form and its variants.
            (
                "0x40000-0x80000 /bin/app (@FF00) abc123456",
                "40000-80000 ff00 /bin/app abc123456",
            ),
            ("40000 80000: r-xp /bin/app", "40000-80000 0 /bin/app"),
            (
                "40000-80000 /bin/app abc123456",
                "40000-80000 0 /bin/app abc123456",
            ),
            ("40000-80000 rw-p /bin/app", ""),
            ("40000-80000", "40000-80000 0"),
            // This number is too large for an address.
            ("40000-80000000000000000 /bin/app", ""),
            ("no mapping", ""),
            ("", ""),
            // Text that other tools put before the lines or into them.
            (
                "build=/path/to/app\n40000-80000 r-xp 0 00:00 0 $build.bin\n",
                "40000-80000 0 /path/to/app.bin",
            ),
            (
                "x=/x\nx=/y\nxb=/z\n40000-80000 r-xp 0 00:00 0 $xb$c",
                "40000-80000 0 /xb$c",
            ),
            (
                "I0101 12:00:00.0 1 x.cc:30] 40000-80000 r-xp 0 00:00 0 /bin/app",
                "40000-80000 0 /bin/app",
            ),
        ];
        for (text, expected) in table {
            assert_eq!(map(text), expected, "{text}");
        }
    }

    /// Returns the seconds of processor time of this thread. A busy machine does not change them.
    fn processor_seconds() -> u64 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        // The text after the name begins with the state. The 12th and the 13th field are ticks of
        // 10 ms.
        let (_, rest) = stat.rsplit_once(") ").unwrap();
        let ticks = rest.split(' ').skip(11).take(2);
        ticks
            .map(|ticks| ticks.parse::<u64>().unwrap())
            .sum::<u64>()
            / 100
    }

    /// Checks that definitions take little time. Each of these texts once took minutes, or far more
    /// time than its length justifies.
    #[test]
    fn definitions_take_no_time() {
        let long = |c: char, n: usize| c.to_string().repeat(n);
        let names: String = (0..64)
            .map(|i| format!("{}{i}=x\n", long('$', 16_000)))
            .collect();
        let mapping = "10-20 r-xp 0 00:00 0 /a$b\n";
        for (text, expected) in [
            (format!("{names}{}\n", long('$', 60_000).repeat(20)), ""),
            (
                format!(
                    "x={}\n{}b=c\n{mapping}",
                    long('v', 60_000),
                    "$x\n".repeat(300_000)
                ),
                "10-20 0 /a$b",
            ),
            (
                format!("{}=y\nb=c\n{mapping}", long('n', 257)),
                "10-20 0 /ac",
            ),
            (
                format!("b=c\n10-20 r-xp 0 00:00 0 {}$b\n", long('$', 64)),
                &format!("10-20 0 {}$b", long('$', 64)),
            ),
        ] {
            let began = processor_seconds();
            assert_eq!(map(&text), expected);
            let took = processor_seconds() - began;
            assert!(took < 20, "{took} s");
        }
    }

    #[test]
    fn neighbours_become_one() {
        let table = [
            (
                "1000-2000 /a (@10)\n2000-3000 /a (@1010)",
                "1000-3000 10 /a",
            ),
            (
                "1000-2000 /a (@10)\n2000-3000 /a (@1011)",
                "1000-2000 10 /a\n2000-3000 1011 /a",
            ),
            (
                "1000-2000 /a\n2000-3000 /b",
                "1000-2000 0 /a\n2000-3000 0 /b",
            ),
            (
                "1000-2000 /a\n2001-3000 /a",
                "1000-2000 0 /a\n2001-3000 0 /a",
            ),
            ("1000-2000\n2000-3000 /a\n3000-4000", "1000-4000 0 /a"),
            (
                "1000-2000 /a 12ab\n2000-3000 /a cd",
                "1000-2000 0 /a 12ab\n2000-3000 0 /a cd",
            ),
        ];
        for (text, expected) in table {
            assert_eq!(map(text), expected, "{text}");
        }
    }

    #[test]
    fn the_program_comes_first() {
        let table = [
            (
                "10-20 /lib/a.so\n30-40 [vdso]\n50-60 /bin/app\n70-80 /bin/b",
                "/bin/app [vdso] /lib/a.so /bin/b",
            ),
            (
                "10-20 /lib/libc.so.6\n30-40 /lib/a.so_1",
                "/lib/libc.so.6 /lib/a.so_1",
            ),
            (
                "10-20 (deleted)\n30-40 /lib/so.app",
                "/lib/so.app (deleted)",
            ),
        ];
        for (text, expected) in table {
            let mut input = text.as_bytes();
            let files = read(&mut LineReader::new(&mut input)).unwrap();
            let names: Vec<_> = files
                .iter()
                .map(|f| String::from_utf8_lossy(&f.file))
                .collect();
            assert_eq!(names.join(" "), expected, "{text}");
        }
    }
}
