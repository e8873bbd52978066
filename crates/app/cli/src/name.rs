//! Arguments that may be file names. A file name need not be UTF-8.

use clap::builder::{OsStringValueParser, TypedValueParser};

pub(crate) use heapprof_text::file_name::{encode_name, path, quoted, shown};

/// Returns the parser of an argument that may be a file's name.
pub(crate) fn parser() -> impl TypedValueParser<Value = String> {
    OsStringValueParser::new().map(|name| encode_name(&name))
}
