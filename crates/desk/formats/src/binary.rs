//! Table of the binary formats other than pprof's. They are recognized by their first bytes.

use std::io::Read;

use heapprof_perl_values::pmat;

use crate::error::FormatError;
use crate::format::ProfileFormat;
use crate::readers::{gperftools_cpu, memray, tracemalloc};
use crate::reading::{FormatReadOptions, ProfileReading};

/// A binary format, and the functions that recognize and read it.
pub(crate) struct BinaryFormat {
    pub(crate) format: ProfileFormat,
    /// Whether a file that begins with these bytes is of this format.
    pub(crate) sniff: fn(&[u8]) -> bool,
    pub(crate) read: fn(&mut dyn Read, &FormatReadOptions) -> Result<ProfileReading, FormatError>,
}

const BINARY_FORMATS: &[BinaryFormat] = &[
    BinaryFormat {
        format: ProfileFormat::Pmat,
        sniff: |head| head.starts_with(pmat::PMAT_MAGIC),
        read: |stream, _| {
            let profile = heapprof_perl_values::profile(&mut perl_values(stream)?);
            Ok(ProfileReading::new(ProfileFormat::Pmat, "", profile))
        },
    },
    BinaryFormat {
        format: ProfileFormat::Memray,
        sniff: memray::sniff,
        read: memray::read,
    },
    BinaryFormat {
        format: ProfileFormat::GperftoolsCpu,
        sniff: gperftools_cpu::sniff,
        read: gperftools_cpu::read,
    },
    BinaryFormat {
        format: ProfileFormat::Tracemalloc,
        sniff: tracemalloc::sniff,
        read: tracemalloc::read,
    },
];

/// Returns the reader of a file whose unpacked bytes begin with `head`; `None` if no binary format
/// matches.
pub(crate) fn find_binary_format(head: &[u8]) -> Option<&'static BinaryFormat> {
    BINARY_FORMATS.iter().find(|binary| (binary.sniff)(head))
}

/// Reads Perl's values from a file of Devel::MAT.
pub(crate) fn perl_values(
    stream: &mut dyn Read,
) -> Result<heapprof_perl_values::ValueGraph, FormatError> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    Ok(pmat::read(&bytes)?)
}
