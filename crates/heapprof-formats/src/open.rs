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

/// An error of the protobuf decoder, about a file that begins with `plain`.
fn explained(error: heapprof_profile::Error, plain: &[u8]) -> Error {
    use heapprof_profile::Error as Pprof;
    let is_text = readers::is_text(plain);
    let kind = match error {
        Pprof::NotAProfile(kind) => kind,
        // Text whose first bytes pass for a message.
        Pprof::Wire { .. } | Pprof::Invalid { .. } if is_text => {
            let mut lines = plain.split(|&b| b == b'\n');
            let line = lines.find(|line| !line.trim_ascii().is_empty());
            format!(
                "is text that begins with {}",
                shortened(line.unwrap_or(b""))
            )
        }
        Pprof::Io(error) => return error.into(),
        error => return error.into(),
    };
    let tried = match is_text {
        true => readers::names(),
        false => Vec::new(),
    };
    Error::Unknown { kind, tried }
}
