//! Table of text readers: every text format has a row here.

mod bpftrace;
mod contention;
mod dhat;
mod dtrace;
mod folded;
mod go_count;
mod go_text;
mod gperftools;
pub(crate) mod gperftools_cpu;
mod heaptrack;
mod java_heapz;
mod jemalloc;
mod jeprof_raw;
mod leaksanitizer;
mod massif;
mod memleak;
pub(crate) mod memray;
mod mprof;
mod perf_script;
mod speedscope;
mod threadz;
pub(crate) mod tracemalloc;

use crate::error::FormatError;
use crate::format::ProfileFormat;
use crate::lines::LineReader;
use crate::reading::{FormatReadOptions, ProfileReading};

/// Number of bytes at the beginning of a file that are examined.
pub(crate) const HEAD_SIZE: usize = 64 << 10;

/// A text format, and the functions that recognize and read it.
pub(crate) struct TextFormat {
    pub(crate) format: ProfileFormat,
    /// Whether a text that begins with these bytes is of this format. The bytes may end in the
    /// middle of a line.
    pub(crate) sniff: fn(&[u8]) -> bool,
    pub(crate) read:
        fn(&mut LineReader<'_>, &FormatReadOptions) -> Result<ProfileReading, FormatError>,
}

/// The readers, in the order in which they are tried: formats with an unmistakable first line come
/// before formats that are guessed.
const TEXT_FORMATS: &[TextFormat] = &[
    // This row comes before gperftools, because both formats have the same first line.
    TextFormat {
        format: ProfileFormat::GoText,
        sniff: go_text::sniff,
        read: go_text::read,
    },
    TextFormat {
        format: ProfileFormat::Gperftools,
        sniff: gperftools::sniff,
        read: gperftools::read,
    },
    TextFormat {
        format: ProfileFormat::Jemalloc,
        sniff: jemalloc::sniff,
        read: jemalloc::read,
    },
    TextFormat {
        format: ProfileFormat::Symbolized,
        sniff: jeprof_raw::sniff,
        read: jeprof_raw::read,
    },
    TextFormat {
        format: ProfileFormat::JavaHeapz,
        sniff: java_heapz::sniff,
        read: java_heapz::read,
    },
    TextFormat {
        format: ProfileFormat::Contention,
        sniff: contention::sniff,
        read: contention::read,
    },
    TextFormat {
        format: ProfileFormat::Threadz,
        sniff: threadz::sniff,
        read: threadz::read,
    },
    TextFormat {
        format: ProfileFormat::GoCount,
        sniff: go_count::sniff,
        read: go_count::read,
    },
    TextFormat {
        format: ProfileFormat::Massif,
        sniff: massif::sniff,
        read: massif::read,
    },
    TextFormat {
        format: ProfileFormat::Heaptrack,
        sniff: heaptrack::sniff,
        read: heaptrack::read,
    },
    TextFormat {
        format: ProfileFormat::Dhat,
        sniff: dhat::sniff,
        read: dhat::read,
    },
    TextFormat {
        format: ProfileFormat::Speedscope,
        sniff: speedscope::sniff,
        read: speedscope::read,
    },
    TextFormat {
        format: ProfileFormat::PerfScript,
        sniff: perf_script::sniff,
        read: perf_script::read,
    },
    TextFormat {
        format: ProfileFormat::LeakSanitizer,
        sniff: leaksanitizer::sniff,
        read: leaksanitizer::read,
    },
    TextFormat {
        format: ProfileFormat::Memleak,
        sniff: memleak::sniff,
        read: memleak::read,
    },
    TextFormat {
        format: ProfileFormat::Bpftrace,
        sniff: bpftrace::sniff,
        read: bpftrace::read,
    },
    TextFormat {
        format: ProfileFormat::Dtrace,
        sniff: dtrace::sniff,
        read: dtrace::read,
    },
    TextFormat {
        format: ProfileFormat::Mprof,
        sniff: mprof::sniff,
        read: mprof::read,
    },
    TextFormat {
        format: ProfileFormat::Folded,
        sniff: folded::sniff,
        read: folded::read,
    },
];

/// Function that returns whether a line begins a report.
type ReportStartTest = fn(&[u8]) -> bool;

/// Formats whose reports may begin in the middle of other output. The function recognizes the first
/// line of a report.
const FORMATS_AMONG_OUTPUT: &[(ProfileFormat, ReportStartTest)] = &[
    (ProfileFormat::LeakSanitizer, leaksanitizer::begins),
    (ProfileFormat::Memleak, memleak::begins),
    (ProfileFormat::Bpftrace, bpftrace::begins),
];

/// Mark that some tools put before UTF-8. It is not part of any format.
pub(crate) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Returns the text format of a plain (not gzipped) file that begins with `head`; `None` if no text
/// format of this crate matches.
pub fn sniff(head: &[u8]) -> Option<ProfileFormat> {
    find_text_format(head).map(|reader| reader.format)
}

pub(crate) fn find_text_format(head: &[u8]) -> Option<&'static TextFormat> {
    let head = head.strip_prefix(BYTE_ORDER_MARK).unwrap_or(head);
    // All formats here are text, and no protobuf profile is, because its tags and lengths are
    // control characters. The binary words after a table of symbols are the exception.
    if !is_text(head) && !jeprof_raw::sniff(head) {
        return None;
    }
    TEXT_FORMATS.iter().find(|reader| (reader.sniff)(head))
}

/// Finds the first report among the following lines and returns its reader. `lines` then stays on
/// the report's first line.
pub(crate) fn find_among_output(
    lines: &mut LineReader<'_>,
) -> Result<Option<&'static TextFormat>, FormatError> {
    while lines.advance()? {
        let line = lines.line();
        if let Some((format, _)) = FORMATS_AMONG_OUTPUT.iter().find(|(_, begins)| begins(line)) {
            lines.stay();
            return Ok(TEXT_FORMATS.iter().find(|reader| reader.format == *format));
        }
    }
    Ok(None)
}

/// Returns pprof's format and all text formats, in the order in which they are tried.
pub fn formats() -> impl Iterator<Item = ProfileFormat> {
    let others = TEXT_FORMATS.iter().map(|reader| reader.format);
    std::iter::once(ProfileFormat::Pprof).chain(others)
}

/// Returns the names of pprof's format and all text formats.
pub(crate) fn names() -> Vec<&'static str> {
    formats().map(ProfileFormat::name).collect()
}

/// Whether these bytes can be text, in any encoding that includes ASCII.
pub(crate) fn is_text(head: &[u8]) -> bool {
    // Escape is allowed because tools write it to colour their output, and delete is allowed
    // because JSON may contain it unescaped.
    let text = |&b: &u8| b >= b' ' || matches!(b, b'\t'..=b'\r' | 0x1b);
    !head.is_empty() && head.iter().all(text)
}
