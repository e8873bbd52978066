//! Reads captures of memray, a profiler of Python, as `memray run` writes them.
//!
//! A capture is a header followed by records. There are two kinds of captures: a list of all
//! allocations and frees, and the sums of each stack (from `memray run --aggregate`). The format is
//! described by memray's `records.h`, `record_writer.cpp` and `record_reader.cpp`. The layout has a
//! version, and memray itself reads only the newest. This reader supports versions 10 to 13, which
//! memray 1.7 to 1.20 write.
//!
//! The sums equal the sums of memray's `FileReader`, which goes through a list twice. This reader
//! goes through it once.

mod capture;
mod header;
mod line_table;
mod ranges;
mod record;
mod records;
mod sites;
mod stacks;

use std::io::Read;

use heapprof_profile::Error as ProfileError;

use crate::bytes::BinaryReader;
use crate::error::FormatError;
use crate::reading::{FormatReadOptions, ProfileReading};
use capture::MemrayCapture;
use header::{MAGIC, MemrayHeader};
use record::MemrayRecord;
use records::MemrayRecords;

pub(crate) fn sniff(head: &[u8]) -> bool {
    head.starts_with(MAGIC)
}

pub(crate) fn read(
    stream: &mut dyn Read,
    options: &FormatReadOptions,
) -> Result<ProfileReading, FormatError> {
    /// Number of bytes that are read between two checks of the memory limit.
    const MEMORY_CHECK_INTERVAL: u64 = 64 << 10;
    let limit = options.max_memory();
    // memray extends the file in large steps, so a program that is killed leaves zeros at its end.
    let mut bytes = BinaryReader::new(stream).without_padding();
    let header = MemrayHeader::read(&mut bytes)?;
    let mut capture = MemrayCapture::new(&header);
    let mut records = MemrayRecords::new(bytes, &header);
    let mut look_at = MEMORY_CHECK_INTERVAL;
    loop {
        let record = records.next()?;
        let offset = records.offset();
        match record {
            MemrayRecord::End { is_marked } => {
                return capture.reading(&header, is_marked, offset, options);
            }
            record => capture
                .record(record, offset)
                .map_err(|error| error.at_byte(offset))?,
        }
        if offset >= look_at {
            look_at = offset + MEMORY_CHECK_INTERVAL;
            if capture.memory() > limit {
                return Err(ProfileError::TooMuchMemory { limit }.into());
            }
        }
    }
}

#[cfg(test)]
mod tests;
