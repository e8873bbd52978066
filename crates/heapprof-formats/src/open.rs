//! From a stream to a reading: unpacks, finds the format, reads.

use std::io::{self, BufReader, Cursor, Read};

use heapprof_profile::ReadOptions;

use crate::error::{Error, shortened};
use crate::format::Format;
use crate::lines::Lines;
use crate::readers::{self, HEAD};
use crate::reading::{Options, Reading};
use crate::unpack::{self, Limited};

/// Reads a profile of any format, plain or packed by gzip or zstd.
pub fn read(mut input: impl Read, options: &Options) -> Result<Reading, Error> {
    let mut head = Vec::new();
    unpack::read_head(&mut input, HEAD, &mut head)?;
    let plain = unpack::plain_head(&head, HEAD);
    if let Some(reader) = readers::reader(&plain) {
        applicable(reader.format, options)?;
        let stream = unpack::plain_stream(head, input)?;
        let mut stream =
            BufReader::with_capacity(128 << 10, Limited::new(stream, options.max_inflated));
        let reading = (reader.read)(&mut Lines::new(&mut stream), options);
        // Damage to the packing shows as nonsense inside; the checksum at its end tells which it was.
        if let Err(Error::Line { .. }) = reading {
            io::copy(&mut stream, &mut io::sink())?;
        }
        return reading;
    }
    applicable(Format::Pprof, options)?;
    let zstd = unpack::is_zstd(&head);
    let limits = ReadOptions::default().max_inflated(options.max_inflated);
    let decoded = match zstd {
        true => heapprof_profile::decode_with(unpack::plain_stream(head, input)?, limits),
        // The way of every pprof profile: as if nobody had looked.
        false => heapprof_profile::decode_with(Cursor::new(head).chain(input), limits),
    };
    match decoded {
        Ok(profile) => Ok(Reading::new(Format::Pprof, "", profile)),
        Err(error) => Err(explained(error, &plain)),
    }
}

/// Nothing that was asked is silently left aside.
fn applicable(format: Format, options: &Options) -> Result<(), Error> {
    let (name, description) = (format.name(), format.description());
    if let Some(part) = options.part
        && !format.has_parts()
    {
        let reason = format!("is one profile ({name}, {description}), which has no part {part}");
        return Err(Error::Inapplicable(reason));
    }
    if options.values.is_some() && !format.leaves_values_open() {
        let reason =
            format!("says itself what its values are ({name}, {description}); leave --values out");
        return Err(Error::Inapplicable(reason));
    }
    Ok(())
}

/// An error of the protobuf decoder, about a file that begins with `plain`.
fn explained(error: heapprof_profile::Error, plain: &[u8]) -> Error {
    use heapprof_profile::Error as Pprof;
    match error {
        Pprof::NotAProfile(_) | Pprof::Wire { .. } | Pprof::Invalid { .. }
            if readers::is_text(plain) =>
        {
            let line = plain
                .split(|&b| b == b'\n')
                .find(|l| !l.trim_ascii().is_empty());
            let kind = match plain.trim_ascii_start().first() {
                Some(b'<') => "is a web page or XML, perhaps an error page".to_string(),
                Some(b'{' | b'[') => "is JSON of another kind".to_string(),
                _ => format!(
                    "is text that begins with {}",
                    shortened(line.unwrap_or(b""))
                ),
            };
            let tried = readers::names();
            Error::Unknown { kind, tried }
        }
        Pprof::NotAProfile(kind) => Error::Unknown {
            kind,
            tried: Vec::new(),
        },
        Pprof::Io(error) => error.into(),
        error => error.into(),
    }
}
