//! The table of binary formats, beside pprof's. They are known by their first bytes.

use std::io::Read;

use heapprof_perl_heap::pmat;

use crate::error::Error;
use crate::format::Format;
use crate::readers::{memray, tracemalloc};
use crate::reading::{Options, Reading};

/// A format's two functions.
pub(crate) struct Binary {
    pub(crate) format: Format,
    /// Whether a file that begins like this is of this format.
    pub(crate) sniff: fn(&[u8]) -> bool,
    pub(crate) read: fn(&mut dyn Read, &Options) -> Result<Reading, Error>,
}

const BINARIES: &[Binary] = &[
    Binary {
        format: Format::Pmat,
        sniff: |head| head.starts_with(pmat::MAGIC),
        read: |stream, _| {
            let profile = heapprof_perl_heap::profile(&mut perl_values(stream)?);
            Ok(Reading::new(Format::Pmat, "", profile))
        },
    },
    Binary {
        format: Format::Memray,
        sniff: memray::sniff,
        read: memray::read,
    },
    Binary {
        format: Format::Tracemalloc,
        sniff: tracemalloc::sniff,
        read: tracemalloc::read,
    },
];

/// The reader of a file that begins like this, unpacked. `None` if the file is of none of these
/// formats.
pub(crate) fn reader(head: &[u8]) -> Option<&'static Binary> {
    BINARIES.iter().find(|binary| (binary.sniff)(head))
}

/// Perl's values in a file of Devel::MAT.
pub(crate) fn perl_values(stream: &mut dyn Read) -> Result<heapprof_perl_heap::Values, Error> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    Ok(pmat::read(&bytes)?)
}
