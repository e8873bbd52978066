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
    if unpack::is_zstd(&head) {
        // zstd gives nothing of a part: what is looked at has to come from the stream that is read on.
        let mut stream = unpack::plain_stream(head, input)?;
        let mut plain = Vec::new();
        unpack::read_head(&mut stream, HEAD, &mut plain)?;
        let whole = Cursor::new(plain.clone()).chain(stream);
        return read_unpacked(&plain, whole, true, options);
    }
    let plain = unpack::plain_head(&head, HEAD);
    if readers::reader(&plain).is_some() {
        let packed = unpack::is_gzip(&head);
        let stream = unpack::plain_stream(head, input)?;
        return read_unpacked(&plain, stream, packed, options);
    }
    // The way of every pprof profile: as if nobody had looked.
    read_pprof(&plain, Cursor::new(head).chain(input), options)
}

/// Reads a stream that begins with `head` now; `packed` if it was packed before.
fn read_unpacked(
    head: &[u8],
    stream: impl Read,
    packed: bool,
    options: &Options,
) -> Result<Reading, Error> {
    let Some(reader) = readers::reader(head) else {
        return read_pprof(head, stream, options);
    };
    applicable(reader.format, options)?;
    let limited = Limited::new(stream, options.max_inflated);
    let mut stream = BufReader::with_capacity(128 << 10, limited);
    let mut lines = Lines::new(&mut stream);
    let reading = (reader.read)(&mut lines, options);
    // Sums that grow line by line do so in one place for all readers. JSON counts its own lines.
    let reading = reading.map_err(|error| match lines.number() {
        0 => error,
        line => error.at_line(line),
    });
    // Damage to the packing shows as nonsense inside; the checksum at its end tells which it was.
    if packed
        && let Err(Error::Line { .. } | Error::Json { .. } | Error::Contradiction { .. }) = reading
    {
        io::copy(&mut stream, &mut io::sink())?;
    }
    reading
}

/// Reads protobuf, gzipped or plain. `head` is how it begins, plain.
fn read_pprof(head: &[u8], stream: impl Read, options: &Options) -> Result<Reading, Error> {
    applicable(Format::Pprof, options)?;
    let limits = ReadOptions::default().max_inflated(options.max_inflated);
    match heapprof_profile::decode_with(stream, limits) {
        Ok(profile) => Ok(Reading::new(Format::Pprof, "", profile)),
        Err(error) => Err(explained(error, head)),
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
