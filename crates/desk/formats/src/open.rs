//! Reads a stream of any format: unpacks it, recognizes its format, and calls the reader.

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Cursor, Read};

use heapprof_profile::ReadOptions;

use crate::binary::{self, BinaryFormat};
use crate::error::{FormatError, shortened};
use crate::foreign_files;
use crate::format::ProfileFormat;
use crate::lines::{LineReader, MAX_LINE_BYTES};
use crate::readers::{self, BYTE_ORDER_MARK, HEAD_SIZE, TextFormat};
use crate::reading::{FormatReadOptions, ProfileReading};
use crate::spread;
use crate::unpack::{self, CountingReader, LimitedReader};
use crate::utf16::{self, ByteOrder, Utf16Reader};

/// Maximum number of bytes of a packed file that are read to reach its checksum after damaged
/// content was found.
const MAX_DRAINED_BYTES: u64 = 256 << 20;

/// Reads a profile of any format, plain or packed by gzip, zstd or lz4.
pub fn read(input: impl Read, options: &FormatReadOptions) -> Result<ProfileReading, FormatError> {
    let mut reading = read_values(input, options)?;
    if !options.as_pprof {
        spread::add(&mut reading.profile);
    }
    Ok(reading)
}

fn read_values(
    input: impl Read,
    options: &FormatReadOptions,
) -> Result<ProfileReading, FormatError> {
    let count = Cell::new(0);
    let mut input = CountingReader {
        inner: input,
        count: &count,
    };
    let mut head = Vec::new();
    unpack::read_head(&mut input, HEAD_SIZE, &mut head)?;
    if unpack::is_zstd(&head) || unpack::is_lz4(&head) {
        // These packers give nothing for a part of a frame or block. So the head has to come from
        // the same stream that is read afterwards.
        let mut stream = unpack::plain_stream(head, input)?;
        let mut plain = Vec::new();
        unpack::read_head(&mut stream, HEAD_SIZE, &mut plain)?;
        let whole = Cursor::new(plain.clone()).chain(stream);
        if let Some(binary) = binary::find_binary_format(&plain) {
            return read_binary(binary, whole, Some(&count), options);
        }
        return match (
            utf16::order(&plain),
            is_foreign(&plain, plain.len() == HEAD_SIZE),
        ) {
            (Some(order), _) => read_utf16(order, whole, Some(&count), options),
            (None, true) => read_text(&plain, whole, Some(&count), options),
            (None, false) => read_pprof(&plain, whole, options),
        };
    }
    let plain = unpack::plain_head(&head, HEAD_SIZE);
    let packed = unpack::is_gzip(&head).then_some(&count);
    if let Some(order) = utf16::order(&plain) {
        return read_utf16(order, unpack::plain_stream(head, input)?, packed, options);
    }
    if let Some(binary) = binary::find_binary_format(&plain) {
        return read_binary(binary, unpack::plain_stream(head, input)?, packed, options);
    }
    if is_foreign(&plain, head.len() == HEAD_SIZE || plain.len() == HEAD_SIZE) {
        let stream = unpack::plain_stream(head, input)?;
        return read_text(&plain, stream, packed, options);
    }
    // Every pprof profile takes this path: it is read as if nothing had examined it before.
    read_pprof(&plain, Cursor::new(head).chain(input), options)
}

/// Reads text in UTF-16. The text may be of any known format, or of none.
fn read_utf16(
    order: ByteOrder,
    stream: impl Read,
    packed: Option<&Cell<u64>>,
    options: &FormatReadOptions,
) -> Result<ProfileReading, FormatError> {
    let mut text = Utf16Reader::new(stream, order);
    let mut head = Vec::new();
    unpack::read_head(&mut text, HEAD_SIZE, &mut head)?;
    let whole = Cursor::new(head.clone()).chain(text);
    read_text(&head, whole, packed, options)
}

/// Whether a file that begins with `plain` may be of a format other than pprof's. This is also true
/// for unknown text if the file goes on after `plain`.
fn is_foreign(plain: &[u8], has_more: bool) -> bool {
    readers::find_text_format(plain).is_some() || has_more && readers::is_text(plain)
}

/// Reads a stream of text that begins with `head`. If the file is packed, `packed` counts its
/// packed bytes.
fn read_text(
    head: &[u8],
    stream: impl Read,
    packed: Option<&Cell<u64>>,
    options: &FormatReadOptions,
) -> Result<ProfileReading, FormatError> {
    let limited = LimitedReader::new(stream, options.max_inflated, packed);
    let mut stream = BufReader::with_capacity(128 << 10, limited);
    if head.starts_with(BYTE_ORDER_MARK) {
        let mark = BYTE_ORDER_MARK.len() as u64;
        io::copy(&mut stream.by_ref().take(mark), &mut io::sink())?;
    }
    let mut reader = readers::find_text_format(head);
    // If the first line is longer than the head, the whole line is examined.
    let mut first = Vec::new();
    if reader.is_none() && !head.contains(&b'\n') {
        let mut longest = stream.by_ref().take(MAX_LINE_BYTES as u64);
        longest.read_until(b'\n', &mut first)?;
        reader = readers::find_text_format(&first);
    }
    let mut stream = Cursor::new(first).chain(stream);
    let mut lines = LineReader::new(&mut stream);
    let reader = match reader {
        Some(reader) => reader,
        // A file of another known kind does not contain a report further on.
        None if foreign_files::known_json(head).is_some() => {
            return Err(unknown_format_error(head));
        }
        None => find_report_format(&mut lines)?.ok_or_else(|| unknown_format_error(head))?,
    };
    check_options_apply(reader.format, options)?;
    let reading = (reader.read)(&mut lines, options);
    // For all readers, the line of an overflow is added here. JSON readers count their own lines.
    let reading = reading.map_err(|error| match lines.number() {
        0 => error,
        line => error.at_line(line),
    });
    // Damage to the packing shows as nonsense in the content. The checksum at the end shows whether
    // the packing or the content is damaged.
    if packed.is_some()
        && let Err(
            FormatError::Line { .. } | FormatError::Json { .. } | FormatError::Contradiction { .. },
        ) = reading
    {
        io::copy(&mut stream.take(MAX_DRAINED_BYTES), &mut io::sink())?;
    }
    reading
}

/// Finds the first line of a report among these lines, and returns the reader of the report's
/// format.
fn find_report_format(
    lines: &mut LineReader<'_>,
) -> Result<Option<&'static TextFormat>, FormatError> {
    match readers::find_among_output(lines) {
        // A line that is too long means that the text is of no format.
        Err(FormatError::Line { .. }) => Ok(None),
        found => found,
    }
}

/// Reads protobuf, gzipped or plain. `head` is its unpacked beginning.
fn read_pprof(
    head: &[u8],
    stream: impl Read,
    options: &FormatReadOptions,
) -> Result<ProfileReading, FormatError> {
    if let Some(kind) = foreign_files::kind(head).filter(|_| !readers::is_text(head)) {
        let tried = Vec::new();
        return Err(FormatError::Unknown { kind, tried });
    }
    check_options_apply(ProfileFormat::Pprof, options)?;
    let options = ReadOptions::default()
        .max_inflated(options.max_inflated)
        .max_memory(options.max_memory())
        .stacks_as_written(options.stacks_as_written)
        .without_spread(options.as_pprof);
    match heapprof_profile::decode_with(stream, options) {
        Ok(profile) => Ok(ProfileReading::new(ProfileFormat::Pprof, "", profile)),
        Err(error) => Err(explain_pprof_error(error, head)),
    }
}

/// Reads a binary format. If the file is packed, `packed` counts its packed bytes.
fn read_binary(
    binary: &BinaryFormat,
    stream: impl Read,
    packed: Option<&Cell<u64>>,
    options: &FormatReadOptions,
) -> Result<ProfileReading, FormatError> {
    check_options_apply(binary.format, options)?;
    let mut stream = LimitedReader::new(stream, options.max_inflated, packed);
    let reading = (binary.read)(&mut stream, options);
    // The checksum of the packing shows whether the packing or the content is damaged.
    if packed.is_some()
        && let Err(FormatError::Byte { .. }) = reading
    {
        io::copy(&mut stream.take(MAX_DRAINED_BYTES), &mut io::sink())?;
    }
    reading
}

/// Reads Perl's values from a file of Devel::MAT, plain or packed by gzip, zstd or
/// lz4.
///
/// # Errors
/// Fails if the file is of another format, is cut, or contradicts itself.
pub fn perl_values(
    input: impl Read,
    options: &FormatReadOptions,
) -> Result<heapprof_perl_values::ValueGraph, FormatError> {
    let count = Cell::new(0);
    let mut input = CountingReader {
        inner: input,
        count: &count,
    };
    let mut head = Vec::new();
    unpack::read_head(&mut input, HEAD_SIZE, &mut head)?;
    let packed = unpack::is_packed(&head).then_some(&count);
    let stream = unpack::plain_stream(head, input)?;
    binary::perl_values(&mut LimitedReader::new(
        stream,
        options.max_inflated,
        packed,
    ))
}

/// Checks that every option that is set applies to the format, so that none is silently ignored.
fn check_options_apply(
    format: ProfileFormat,
    options: &FormatReadOptions,
) -> Result<(), FormatError> {
    let (name, description) = (format.name(), format.description());
    if let Some(part) = options.part
        && !format.has_parts()
    {
        let reason =
            format!("is a single profile ({name}, {description}), so it has no part {part}");
        return Err(FormatError::NotInParts(reason));
    }
    if options.values.is_some() && !format.leaves_values_open() {
        let reason = format!("already states what its values are ({name}, {description})");
        return Err(FormatError::ValuesKnown(reason));
    }
    Ok(())
}

/// Makes an error for a text that begins with `head` and is of no known format.
fn unknown_format_error(head: &[u8]) -> FormatError {
    let kind = foreign_files::kind(head);
    // A file of another known kind was not compared with the formats.
    let is_known = kind
        .as_ref()
        .is_some_and(|kind| kind != foreign_files::ANY_JSON);
    FormatError::Unknown {
        kind: kind.unwrap_or_else(|| begins_with(head)),
        tried: match is_known {
            true => Vec::new(),
            false => readers::names(),
        },
    }
}

/// Describes the beginning of a text, for people.
fn begins_with(text: &[u8]) -> String {
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    let mut lines = text.split(|&b| b == b'\n');
    let line = lines.find(|line| !line.trim_ascii().is_empty());
    format!(
        "is text that begins with {}",
        shortened(line.unwrap_or(b""))
    )
}

/// Converts an error of the protobuf decoder about a file that begins with `plain`.
fn explain_pprof_error(error: heapprof_profile::Error, plain: &[u8]) -> FormatError {
    use heapprof_profile::Error as Pprof;
    match error {
        Pprof::NotAProfile(_) if foreign_files::kind(plain).is_some() => {
            unknown_format_error(plain)
        }
        Pprof::NotAProfile(kind) => FormatError::Unknown {
            kind,
            tried: match readers::is_text(plain) {
                true => readers::names(),
                false => Vec::new(),
            },
        },
        // The first bytes of the text were mistaken for a message.
        Pprof::Wire { .. } | Pprof::Invalid { .. } if readers::is_text(plain) => {
            unknown_format_error(plain)
        }
        error => error.into(),
    }
}

#[cfg(test)]
mod memory_limit_tests;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile_text::samples;

    fn read_defaults(text: &[u8]) -> ProfileReading {
        let reading = read(text, &FormatReadOptions::default());
        reading.unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn reports_are_found_behind_much_other_output() {
        let mut log = "request 1 served in 3 ms\n"
            .repeat(HEAD_SIZE / 10)
            .into_bytes();
        let reports: [(ProfileFormat, &[u8], &[u8]); 3] = [
            (
                ProfileFormat::LeakSanitizer,
                b"Direct leak of 32 byte(s) in 2 object(s) allocated from:\n",
                b"#0 0x20 main\n",
            ),
            (
                ProfileFormat::Memleak,
                b"[11:16:33] Top 1 stacks with outstanding allocations:\n",
                b"\t96 bytes in 5 allocations from stack\n\t\tmain+0x6d [app]\n",
            ),
            (
                ProfileFormat::Bpftrace,
                b"@bytes[\n",
                b"    main+16\n]: 96\n",
            ),
        ];
        for (format, first, rest) in reports {
            let text = [&log[..], first, rest].concat();
            let reading = read_defaults(&text);
            assert_eq!((reading.format, reading.profile.samples.len()), (format, 1));
            let lines = log.iter().filter(|&&b| b == b'\n').count();
            if format == ProfileFormat::LeakSanitizer {
                let text = [&log[..], first, b"#0 main\n"].concat();
                let error = read(&text[..], &FormatReadOptions::default()).unwrap_err();
                let expected = format!("line {}: expected a frame", lines + 2);
                assert!(error.to_string().starts_with(&expected), "{error}");
            }
        }
        let error = read(&log[..], &FormatReadOptions::default())
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("it is text that begins with \"request 1"),
            "{error}"
        );
        log.extend(vec![b'x'; MAX_LINE_BYTES + 1]);
        let error = read(&log[..], &FormatReadOptions::default())
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("it is text that begins with \"request 1"),
            "{error}"
        );
        let limit = FormatReadOptions::default().max_inflated(HEAD_SIZE as u64 + 1);
        assert!(read(&log[..], &limit).is_err());
    }

    #[test]
    fn a_first_line_may_be_long() {
        let long = "f;".repeat(HEAD_SIZE);
        let text = format!("{long}leaf 7\nmain 1\n");
        let reading = read_defaults(text.as_bytes());
        assert_eq!(
            (reading.format, reading.profile.samples.len()),
            (ProfileFormat::Folded, 2)
        );
        // Keys may come in any order, and the first value may be the longest.
        let stacks = "[0],".repeat(HEAD_SIZE);
        let weights = "1,".repeat(HEAD_SIZE);
        let text = format!(
            "{{\"profiles\":[{{\"samples\":[{stacks}[0]],\"weights\":[{weights}1],\"type\":\"\
             sampled\",\"name\":\"t\",\"unit\":\"bytes\",\"startValue\":0,\"endValue\":1}}],\"\
             shared\":{{\"frames\":[{{\"name\":\"main\"}}]}}}}"
        );
        let reading = read_defaults(text.as_bytes());
        assert_eq!(reading.format, ProfileFormat::Speedscope);
        assert_eq!(
            samples(&reading.profile),
            [format!("main {}", HEAD_SIZE + 1)]
        );
    }

    #[test]
    fn byte_order_marks_are_passed_over() {
        for (format, text) in [
            (ProfileFormat::Folded, "main;f 1\n"),
            (
                ProfileFormat::Jemalloc,
                "heap_v2/1\n@ 0x11\nt*: 1: 16 [0: 0]\n",
            ),
            (
                ProfileFormat::Massif,
                "desc: x\ncmd: y\ntime_unit: \
                 i\n#-----------\nsnapshot=0\n#-----------\ntime=0\nmem_heap_B=1\
                 \nmem_heap_extra_B=0\nmem_stacks_B=0\nheap_tree=empty\n",
            ),
            (
                ProfileFormat::Dhat,
                r#"{"dhatFileVersion":2,"mode":"heap","pps":[],"ftbl":[]}"#,
            ),
        ] {
            let marked = [BYTE_ORDER_MARK, text.as_bytes()].concat();
            let reading = read_defaults(&marked);
            assert_eq!(reading.format, format);
            assert_eq!(
                samples(&reading.profile),
                samples(&read_defaults(text.as_bytes()).profile)
            );
        }
    }

    #[test]
    fn utf_16_is_read_as_utf_8() {
        let text = "main;größe 96\r\nmain;print 3\r\n".repeat(HEAD_SIZE / 20);
        let expected = samples(&read_defaults(text.as_bytes()).profile);
        let units = |text: &str| text.encode_utf16().collect::<Vec<u16>>();
        for mark in ["", "\u{feff}"] {
            let units = units(&format!("{mark}{text}"));
            let le: Vec<u8> = units.iter().flat_map(|u| u.to_le_bytes()).collect();
            let be: Vec<u8> = units.iter().flat_map(|u| u.to_be_bytes()).collect();
            for bytes in [le, be] {
                let reading = read_defaults(&bytes);
                assert_eq!(reading.format, ProfileFormat::Folded);
                assert_eq!(samples(&reading.profile), expected);
                let limit = FormatReadOptions::default().max_inflated(HEAD_SIZE as u64);
                let error = read(&bytes[..], &limit).unwrap_err().to_string();
                assert!(error.starts_with("inflates to more than"), "{error}");
            }
        }
        let json: Vec<u8> = units(r#"{"traceEvents": []}"#)
            .iter()
            .flat_map(|u| u.to_le_bytes())
            .collect();
        let error = read(&json[..], &FormatReadOptions::default()).unwrap_err();
        assert!(error.to_string().contains("a trace in Chrome"), "{error}");
    }

    /// Checks that the kind of a file that is no profile is recognized from its head alone.
    #[test]
    fn other_files_are_named_at_once() {
        struct CountingReader(u64);
        impl Read for CountingReader {
            fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
                let text = b"{\"ph\":\"X\",\"ts\":1,\"pid\":1},\n";
                buf.iter_mut()
                    .enumerate()
                    .for_each(|(i, b)| *b = text[i % text.len()]);
                self.0 += buf.len() as u64;
                Ok(buf.len())
            }
        }
        for begin in ["[\n", "{\"traceEvents\":[\n", "FLR\0"] {
            let mut rest = CountingReader(0);
            let file = Cursor::new(begin).chain(&mut rest);
            let error = read(file, &FormatReadOptions::default()).unwrap_err();
            assert!(matches!(error, FormatError::Unknown { .. }), "{error}");
            assert!(rest.0 <= 1 << 20, "{begin}: {}", rest.0);
        }
    }

    #[test]
    fn objects_are_no_stacks() {
        let error = read(
            &b"{\"a\": 1,\n\"b\": 2 }\nx 3\n"[..],
            &FormatReadOptions::default(),
        );
        assert!(
            matches!(error, Err(FormatError::Unknown { .. })),
            "{error:?}"
        );
        assert_eq!(read_defaults(b"{main};f 1\n").format, ProfileFormat::Folded);
    }
}
