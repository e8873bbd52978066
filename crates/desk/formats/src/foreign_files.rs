//! Recognizes the kinds of files that are not profiles, by their first bytes. Error messages name
//! the kind, and say what to do with the file.
//!
//! No protobuf profile begins with the first bytes of one of these files. As protobuf, these bytes
//! would be fields that profiles do not have, or have with another type.

mod json;

pub(crate) use json::UNKNOWN_JSON as ANY_JSON;

/// Description of a SQLite database in [`FormatError::Unknown`](crate::FormatError).
pub const SQLITE_DESCRIPTION: &str = "is a SQLite database";
/// First bytes of a SQLite database.
pub const SQLITE_MAGIC: &[u8] = b"SQLite format 3\0";
/// Advice for JSON or other data that speedscope opens.
const SPEEDSCOPE_ADVICE: &str =
    "open it in speedscope (www.speedscope.app), export it there, and give the exported file";

/// Describes a file whose unpacked bytes begin with `head`; `None` if its kind is unknown.
pub(crate) fn kind(head: &[u8]) -> Option<String> {
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    let known = MAGICS
        .iter()
        .find(|(at, magic, _)| head.get(*at..).is_some_and(|h| h.starts_with(magic)))
        .map(|(_, _, what)| (*what).to_string());
    known
        .or_else(|| elf(head).map(str::to_string))
        .or_else(|| is_tar(head).then(|| "is a tar archive; unpack it first: tar -xf FILE".into()))
        .or_else(|| json::kind(text))
        .or_else(|| text_kind(text).map(str::to_string))
}

/// Describes a JSON file that begins with `head`; `None` if its kind is unknown.
pub(crate) fn known_json(head: &[u8]) -> Option<String> {
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    json::kind(text).filter(|kind| kind != ANY_JSON)
}

/// Table of kinds of files: a position, the bytes that such a file has there, and the kind in
/// words. The first row that matches counts.
const MAGICS: &[(usize, &[u8], &str)] = &[
    // Profilers.
    (
        0,
        b"PERFILE2",
        "is perf record data; convert it to text first: perf script -i FILE > out.txt",
    ),
    (
        0,
        b"2ELIFREP",
        "is perf record data from a machine with the other byte order; convert it to text there: \
         perf script -i FILE > out.txt",
    ),
    (
        0,
        b"FLR\0",
        "is a Java Flight Recorder (JFR) recording; convert it to folded stacks with \
         async-profiler's jfrconv: jfrconv --alloc --total -o collapsed FILE out.txt",
    ),
    (
        0,
        b"JAVA PROFILE 1.0.",
        "is a Java heap dump (hprof), which has objects but not where they were allocated; Eclipse \
         MAT and VisualVM read it",
    ),
    (
        0,
        b"Nettrace",
        "is a .NET trace; convert it to speedscope JSON first: dotnet-trace convert --format \
         Speedscope FILE",
    ),
    (
        4,
        b"!FastSerialization.1",
        "is a .NET heap dump (.gcdump) or an old trace (.netperf), which has objects but not where \
         they were allocated; dotnet-gcdump report FILE reads it",
    ),
    (
        0,
        b"\x04\x08{",
        "is a Ruby object (Marshal), as stackprof writes it; convert it to folded stacks first: \
         stackprof --stackcollapse FILE > out.txt",
    ),
    (
        0,
        b"rbspy0",
        "is an rbspy recording; convert it to speedscope JSON first: rbspy report -i FILE -f \
         speedscope -o out.json",
    ),
    (
        0,
        b"\x17\x08Dtracing",
        "is trace-cmd data; trace-cmd report FILE reads it",
    ),
    (
        0,
        b"MDMP",
        "is a Windows minidump, which has memory but not where it was allocated; WinDbg reads it",
    ),
    (
        0,
        b"bplist00",
        "is a binary property list, such as a memgraph of macOS; malloc_history FILE -callTree \
         reads that",
    ),
    // Packed files.
    (0, b"\x1f\x8b", "is gzipped twice; unpack it once"),
    (
        0,
        b"PK\x03\x04",
        "is a zip archive (or a jar); unpack it first: unzip FILE",
    ),
    (0, b"PK\x05\x06", "is an empty zip archive"),
    (
        0,
        b"\x28\xb5\x2f\xfd",
        "is zstd-compressed; unpack it with zstd -d first",
    ),
    (
        0,
        b"BZh",
        "is bzip2-compressed; unpack it first: bzip2 -d FILE",
    ),
    (
        0,
        b"\xfd7zXZ\0",
        "is xz-compressed; unpack it first: xz -d FILE",
    ),
    (
        0,
        b"\x04\x22\x4d\x18",
        "is lz4-compressed twice; unpack it once: lz4 -d FILE",
    ),
    (
        0,
        b"\x02\x21\x4c\x18",
        "is lz4-compressed in an old format; unpack it first: lz4 -d FILE",
    ),
    (
        0,
        b"7z\xbc\xaf\x27\x1c",
        "is a 7z archive; unpack it first: 7z x FILE",
    ),
    (
        0,
        b"Rar!\x1a\x07",
        "is a rar archive; unpack it first: unrar x FILE",
    ),
    (
        0,
        b"LZIP",
        "is lzip-compressed; unpack it first: lzip -d FILE",
    ),
    (
        0,
        b"\x1f\x9d",
        "is packed with compress; unpack it first: uncompress FILE",
    ),
    (
        0,
        b"\xff\x06\0\0sNaPpY",
        "is packed with snappy; unpack it first",
    ),
    // Pickles of Python with their first opcode, from version 2 of the protocol on.
    (0, b"\x80\x02}", PICKLE_DESCRIPTION),
    (0, b"\x80\x02]", PICKLE_DESCRIPTION),
    (0, b"\x80\x02(", PICKLE_DESCRIPTION),
    (0, b"\x80\x02c", PICKLE_DESCRIPTION),
    (0, b"\x80\x03}", PICKLE_DESCRIPTION),
    (0, b"\x80\x03]", PICKLE_DESCRIPTION),
    (0, b"\x80\x03(", PICKLE_DESCRIPTION),
    (0, b"\x80\x03c", PICKLE_DESCRIPTION),
    (0, b"\x80\x04\x95", PICKLE_DESCRIPTION),
    (0, b"\x80\x05\x95", PICKLE_DESCRIPTION),
    // Profiles that cProfile writes with marshal: a dictionary whose first key is a tuple of three.
    (0, b"\xfb)\x03", CPROFILE_DESCRIPTION),
    (0, b"\xfb\xa9\x03", CPROFILE_DESCRIPTION),
    (0, b"{)\x03", CPROFILE_DESCRIPTION),
    (0, b"{\xa9\x03", CPROFILE_DESCRIPTION),
    // Other files.
    (0, SQLITE_MAGIC, SQLITE_DESCRIPTION),
    (0, b"MZ", "is a Windows program or library"),
    (
        0,
        b"\xcf\xfa\xed\xfe",
        "is a program or library of macOS (Mach-O)",
    ),
    (
        0,
        b"\xce\xfa\xed\xfe",
        "is a program or library of macOS (Mach-O)",
    ),
    (
        0,
        b"\xca\xfe\xba\xbe",
        "is a Java class file or a macOS program (Mach-O)",
    ),
    (0, b"!<arch>\n", "is a static library or another ar archive"),
    (
        0,
        b"%PDF-",
        "is a PDF; give the profile that it was made from",
    ),
    (0, b"\x89PNG\r\n\x1a\n", PICTURE_DESCRIPTION),
    (0, b"\xff\xd8\xff", PICTURE_DESCRIPTION),
    (0, b"GIF8", PICTURE_DESCRIPTION),
    (
        0,
        b"\xff\xfe\0\0",
        "is text in UTF-32; make UTF-8 of it first: iconv -f UTF-32 -t UTF-8 FILE > out.txt",
    ),
    (
        0,
        b"\0\0\xfe\xff",
        "is text in UTF-32; make UTF-8 of it first: iconv -f UTF-32 -t UTF-8 FILE > out.txt",
    ),
];

const PICKLE_DESCRIPTION: &str = "is a Python pickle; the only pickles that heapprof reads are \
                      snapshots of tracemalloc: snapshot.dump(FILE); it does not execute pickles";
const CPROFILE_DESCRIPTION: &str = "is a profile of Python's cProfile, which has function times, \
                        without stacks; python -m pstats FILE reads it";
const PICTURE_DESCRIPTION: &str = "is a picture; give the profile that it was made from";

/// Returns the kind of an ELF file, from the type in its header.
fn elf(head: &[u8]) -> Option<&'static str> {
    let [0x7f, b'E', b'L', b'F', _class, order, ..] = head else {
        return None;
    };
    let r#type: Option<[u8; 2]> = head.get(16..18).and_then(|bytes| bytes.try_into().ok());
    let r#type = r#type.map(|bytes| match order {
        2 => u16::from_be_bytes(bytes),
        _ => u16::from_le_bytes(bytes),
    });
    Some(match r#type {
        Some(1) => "is an object file (ELF)",
        Some(4) => {
            "is a core file (ELF), which has memory but not where it was allocated; \
             record a run of its program: heapprof record PROGRAM"
        }
        _ => {
            "is a program or library (ELF); to profile a program, run it: heapprof record PROGRAM; \
             heapprof pprof PROGRAM PROFILE takes names for a profile from it"
        }
    })
}

/// Whether a file is a tar archive. The header of every tar archive contains the sum of its bytes,
/// computed with blanks in place of the sum itself.
fn is_tar(head: &[u8]) -> bool {
    let Some(header) = head.get(..512) else {
        return false;
    };
    let digits = header[148..156].trim_ascii().split(|&b| b == 0).next();
    let digits = digits.and_then(|digits| str::from_utf8(digits).ok());
    let said = digits.and_then(|digits| u32::from_str_radix(digits.trim(), 8).ok());
    let rest = header[..148].iter().chain(&header[156..]);
    let sum = rest.map(|&b| u32::from(b)).sum::<u32>() + 8 * u32::from(b' ');
    header[0] != 0 && (said == Some(sum) || header[257..].starts_with(b"ustar"))
}

/// Returns the kind of a text, from its beginning.
fn text_kind(head: &[u8]) -> Option<&'static str> {
    let text = head.trim_ascii_start();
    let first = text.split(|&b| b == b'\n').next().unwrap_or_default();
    let has = |what: &[u8]| memchr::memmem::find(text, what).is_some();
    let go = first.strip_prefix(b"go");
    if go.is_some_and(|rest| rest.ends_with(b" heap dump")) {
        return Some(
            "is a Go heap dump (debug.WriteHeapDump), which has objects but not where they were \
             allocated; write a profile instead: pprof.WriteHeapProfile, or /debug/pprof/heap",
        );
    }
    if go.is_some_and(|rest| {
        rest.starts_with(b" 1.") && memchr::memmem::find(rest, b" trace\0").is_some()
    }) {
        return Some("is a Go execution trace; go tool trace FILE reads it");
    }
    if text.starts_with(b"# callgrind format") || text.starts_with(b"version: 1\ncreator: ") {
        return Some(
            "is a callgrind profile, which heapprof writes but does not read; valgrind \
             --xtree-memory=full --xtree-memory-file=out.ms PROGRAM writes a massif profile, \
             which heapprof reads",
        );
    }
    match text.starts_with(b"<") {
        true if has(b"<svg") && !has(b"<html") => {
            Some("is an SVG picture, perhaps a flame graph; give the profile that it was made from")
        }
        true => Some("is a web page or XML, perhaps an error page"),
        false => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn magics_are_no_profile() {
        for (at, magic, what) in MAGICS {
            let head = [&vec![0x14; *at][..], magic].concat();
            assert!(heapprof_profile::decode(&head[..]).is_err(), "{what}");
            assert_eq!(kind(&head).as_deref(), Some(*what));
            assert!(what.starts_with("is ") && !what.contains('\n'), "{what}");
        }
    }

    #[test]
    fn archives_of_any_age() {
        let mut header = vec![0; 512];
        header[..7].copy_from_slice(b"heap.pb");
        let sum: u32 = header.iter().map(|&b: &u8| u32::from(b)).sum::<u32>() + 8 * 32;
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        assert!(is_tar(&header));
        header[0] = b'j';
        assert!(!is_tar(&header));
        header[257..262].copy_from_slice(b"ustar");
        assert!(is_tar(&header));
        assert!(!is_tar(&[0; 512]) && !is_tar(&header[..300]));
    }

    #[test]
    fn files_of_elf() {
        let of = |order: u8, r#type: [u8; 2]| {
            let mut head = vec![0x7f, b'E', b'L', b'F', 2, order];
            head.resize(16, 0);
            head.extend(r#type);
            kind(&head).unwrap()
        };
        assert!(of(1, [4, 0]).starts_with("is a core file"));
        assert!(of(2, [0, 4]).starts_with("is a core file"));
        assert!(of(1, [3, 0]).starts_with("is a program or library"));
        assert!(of(1, [1, 0]).starts_with("is an object file"));
        assert!(
            kind(b"\x7fELF\x02\x01")
                .unwrap()
                .starts_with("is a program")
        );
    }
}
