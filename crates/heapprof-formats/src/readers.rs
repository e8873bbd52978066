//! The table of readers: every format that is read has a row here.

mod bpftrace;
mod dhat;
mod dtrace;
mod folded;
mod go_text;
mod gperftools;
mod heaptrack;
mod java_heapz;
mod jemalloc;
mod leaksanitizer;
mod massif;
mod memleak;
pub(crate) mod memray;
mod mprof;
mod perf_script;
mod speedscope;
mod symbolized;
pub(crate) mod tracemalloc;

use crate::error::Error;
use crate::format::Format;
use crate::lines::Lines;
use crate::reading::{Options, Reading};

/// How many bytes of a file's beginning are examined.
pub(crate) const HEAD: usize = 64 << 10;

/// A format's two functions.
pub(crate) struct Reader {
    pub(crate) format: Format,
    /// Whether a text that begins like this is of this format. The beginning may be cut anywhere.
    pub(crate) sniff: fn(&[u8]) -> bool,
    pub(crate) read: fn(&mut Lines<'_>, &Options) -> Result<Reading, Error>,
}

/// The readers, in the order in which they are tried: formats with an unmistakable first line come
/// before formats that are guessed.
const READERS: &[Reader] = &[
    // This comes before gperftools, whose first line it shares.
    Reader {
        format: Format::GoText,
        sniff: go_text::sniff,
        read: go_text::read,
    },
    Reader {
        format: Format::Gperftools,
        sniff: gperftools::sniff,
        read: gperftools::read,
    },
    Reader {
        format: Format::Jemalloc,
        sniff: jemalloc::sniff,
        read: jemalloc::read,
    },
    Reader {
        format: Format::Symbolized,
        sniff: symbolized::sniff,
        read: symbolized::read,
    },
    Reader {
        format: Format::JavaHeapz,
        sniff: java_heapz::sniff,
        read: java_heapz::read,
    },
    Reader {
        format: Format::Massif,
        sniff: massif::sniff,
        read: massif::read,
    },
    Reader {
        format: Format::Heaptrack,
        sniff: heaptrack::sniff,
        read: heaptrack::read,
    },
    Reader {
        format: Format::Dhat,
        sniff: dhat::sniff,
        read: dhat::read,
    },
    Reader {
        format: Format::Speedscope,
        sniff: speedscope::sniff,
        read: speedscope::read,
    },
    Reader {
        format: Format::PerfScript,
        sniff: perf_script::sniff,
        read: perf_script::read,
    },
    Reader {
        format: Format::LeakSanitizer,
        sniff: leaksanitizer::sniff,
        read: leaksanitizer::read,
    },
    Reader {
        format: Format::Memleak,
        sniff: memleak::sniff,
        read: memleak::read,
    },
    Reader {
        format: Format::Bpftrace,
        sniff: bpftrace::sniff,
        read: bpftrace::read,
    },
    Reader {
        format: Format::Dtrace,
        sniff: dtrace::sniff,
        read: dtrace::read,
    },
    Reader {
        format: Format::Mprof,
        sniff: mprof::sniff,
        read: mprof::read,
    },
    Reader {
        format: Format::Folded,
        sniff: folded::sniff,
        read: folded::read,
    },
];

/// Whether a line begins a report.
type Begins = fn(&[u8]) -> bool;

/// Formats whose reports may be among other output, which may be long, and how to recognize their
/// first lines.
const AMONG_OUTPUT: &[(Format, Begins)] = &[
    (Format::LeakSanitizer, leaksanitizer::begins),
    (Format::Memleak, memleak::begins),
    (Format::Bpftrace, bpftrace::begins),
];

/// The mark that some tools put before UTF-8. No format has it.
pub(crate) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The format of a file that begins with `head`, plain (not gzipped). `None` if it is none of the
/// formats in this crate, or pprof's.
pub fn sniff(head: &[u8]) -> Option<Format> {
    reader(head).map(|reader| reader.format)
}

pub(crate) fn reader(head: &[u8]) -> Option<&'static Reader> {
    let head = head.strip_prefix(BYTE_ORDER_MARK).unwrap_or(head);
    // All formats here are text, and no protobuf profile is, because its tags and lengths are
    // control characters. The binary words after a table of symbols are the exception.
    if !is_text(head) && !symbolized::sniff(head) {
        return None;
    }
    READERS.iter().find(|reader| (reader.sniff)(head))
}

/// The reader of the first report among the lines to come. `lines` then stays on the report's first
/// line.
pub(crate) fn among_output(lines: &mut Lines<'_>) -> Result<Option<&'static Reader>, Error> {
    while lines.advance()? {
        let line = lines.line();
        if let Some((format, _)) = AMONG_OUTPUT.iter().find(|(_, begins)| begins(line)) {
            lines.stay();
            return Ok(READERS.iter().find(|reader| reader.format == *format));
        }
    }
    Ok(None)
}

/// All formats that can be read, in the order in which they are tried.
pub fn formats() -> impl Iterator<Item = Format> {
    let others = READERS.iter().map(|reader| reader.format);
    std::iter::once(Format::Pprof).chain(others)
}

/// The names of all formats that are tried.
pub(crate) fn names() -> Vec<&'static str> {
    formats().map(Format::name).collect()
}

/// Whether these bytes can be text, in any encoding that includes ASCII.
pub(crate) fn is_text(head: &[u8]) -> bool {
    // Escape is allowed because tools that colour their output write it, and delete because JSON
    // may hold it as it is.
    let text = |&b: &u8| b >= b' ' || matches!(b, b'\t'..=b'\r' | 0x1b);
    !head.is_empty() && head.iter().all(text)
}
