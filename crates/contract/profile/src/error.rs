//! Errors about a profile. Each error names the defect, the object at fault and, if known, the
//! offset.

use std::fmt;

/// Reason why a profile could not be read, written, merged or scaled. Each message is one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file could not be read; the source error gives the reason.
    #[error("cannot be read")]
    Io(#[from] std::io::Error),
    /// The file could not be written; the source error gives the reason.
    #[error("cannot be written")]
    Write(#[source] std::io::Error),
    /// The file is empty.
    #[error("is empty; the program may have ended before its profile was written")]
    Empty,
    /// The content is not a profile. The text says what is in the file instead.
    #[error("is not a pprof profile: it {0}")]
    NotAProfile(String),
    /// The gzip layer is damaged.
    #[error("{defect}, at byte {offset} of the file; copy or download it again")]
    Gzip {
        /// The offset in the compressed file.
        offset: u64,
        /// Defect of the gzip data.
        defect: GzipDefect,
    },
    /// The file inflates to more data than the caller allows.
    #[error("inflates to more than {limit} bytes")]
    TooLarge {
        /// The limit in bytes.
        limit: u64,
    },
    /// Reading the file takes more memory than the caller allows.
    #[error("takes more than {limit} bytes of memory")]
    TooMuchMemory {
        /// The limit in bytes.
        limit: u64,
    },
    /// The protobuf layer is damaged.
    #[error("malformed {object}, at byte {offset} of the profile: {defect}{hint}")]
    Wire {
        /// The offset in the inflated data.
        offset: u64,
        /// Object that was being read.
        object: ProfileElement,
        /// Defect of the data.
        defect: WireDefect,
        /// Advice that follows the defect in the message; may be empty.
        hint: &'static str,
    },
    /// The messages are well formed but contradict each other.
    #[error("malformed {object}{}: {defect}{hint}", ErrorOffset(*.offset))]
    Invalid {
        /// The offset in the inflated data, if known.
        offset: Option<u64>,
        /// The object at fault.
        object: ProfileElement,
        /// Defect of the object.
        defect: String,
        /// Advice that follows the defect in the message; may be empty.
        hint: &'static str,
    },
    /// A sum or product does not fit in 64 bits.
    #[error("{what} does not fit in 64 bits; the profile's values are not plausible")]
    Overflow {
        /// Name of the number that overflowed.
        what: String,
    },
    /// The profiles do not fit together, so they can't be merged.
    #[error("cannot be merged: {0}")]
    Incompatible(String),
}

impl Error {
    /// Whether a limit of [`ReadOptions`](crate::ReadOptions) ended the reading. The file may be
    /// sound then, and a caller may offer to raise the limit.
    pub fn is_limit(&self) -> bool {
        matches!(self, Error::TooLarge { .. } | Error::TooMuchMemory { .. })
    }
}

struct ErrorOffset(Option<u64>);

impl fmt::Display for ErrorOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(offset) => write!(f, ", at byte {offset} of the profile"),
            None => Ok(()),
        }
    }
}

/// Defect of the gzip layer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GzipDefect {
    /// The file ends inside a gzip member.
    #[error("the gzip data is cut short")]
    Truncated,
    /// The data or its checksum is wrong.
    #[error("the gzip data is damaged ({0})")]
    Corrupt(String),
    /// Data that are not gzip follow the last member.
    #[error("something that is not gzip follows the gzip data")]
    TrailingJunk,
}

/// Defect of the protobuf layer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireDefect {
    /// The data ends inside a field.
    #[error("the data is cut short inside field {field}")]
    Truncated {
        /// Field number; 0 if even the field number is missing.
        field: u32,
    },
    /// A field is longer than the rest of its message.
    #[error("field {field} claims {length} bytes, {left} are left")]
    Length {
        /// The field number.
        field: u32,
        /// Number of bytes that the field claims.
        length: u64,
        /// Number of bytes that remain in the message.
        left: u64,
    },
    /// A varint has more than ten bytes.
    #[error("a number of more than ten bytes")]
    Varint,
    /// The field number is 0 or beyond protobuf's range.
    #[error("field number {0} does not exist in protobuf")]
    FieldNumber(u64),
    /// The field is a group or has an unassigned wire type.
    #[error("field {field} has wire type {wire_type}, which profiles do not use")]
    WireType {
        /// The field number.
        field: u32,
        /// The wire type, 3 to 7.
        wire_type: u8,
    },
    /// A known field has the wrong encoding.
    #[error("field {field} is encoded as {found}, expected {expected}")]
    Mismatch {
        /// The field number.
        field: u32,
        /// Encoding of the field in the file.
        found: &'static str,
        /// Encoding that the field should have.
        expected: &'static str,
    },
}

/// The part of a profile that an error is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProfileElement {
    /// The whole profile.
    Profile,
    /// The n-th sample type, from 1.
    SampleType(usize),
    /// The n-th sample, from 1.
    Sample(usize),
    /// A label of the n-th sample, from 1.
    Label(usize),
    /// The n-th mapping, from 1.
    Mapping(usize),
    /// The n-th location, from 1.
    Location(usize),
    /// The n-th function, from 1.
    Function(usize),
    /// The n-th text, from 0.
    String(usize),
    /// The type of the period.
    PeriodType,
}

impl fmt::Display for ProfileElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProfileElement::Profile => write!(f, "profile"),
            ProfileElement::SampleType(n) => write!(f, "sample_type #{n}"),
            ProfileElement::Sample(n) => write!(f, "sample #{n}"),
            ProfileElement::Label(n) => write!(f, "label of sample #{n}"),
            ProfileElement::Mapping(n) => write!(f, "mapping #{n}"),
            ProfileElement::Location(n) => write!(f, "location #{n}"),
            ProfileElement::Function(n) => write!(f, "function #{n}"),
            ProfileElement::String(n) => write!(f, "string_table[{n}]"),
            ProfileElement::PeriodType => write!(f, "period_type"),
        }
    }
}

/// An oddity that did not stop a profile from being read or merged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Warning {
    /// Some texts are not UTF-8; their bad bytes are read as U+FFFD.
    #[error("{0} strings are not UTF-8; their invalid bytes are shown as \u{fffd}")]
    NotUtf8(usize),
    /// The mapping of some locations is not in the file.
    #[error("{0} locations name a mapping that is not in the file; treated as unknown")]
    MissingMapping(usize),
    /// A sample type was left out, because not all merged profiles have it.
    #[error("sample type {0} is not in every profile and was left out of the merge")]
    TypeLeftOut(String),
    /// Profiles taken at different sampling periods were merged.
    #[error("the merged profiles were sampled at different periods; the largest is kept")]
    Periods,
    /// The profile is not about memory. The text says what it is.
    #[error("is not a heap profile: it is {0}")]
    NoHeapProfile(&'static str),
    /// The file does not name the type of its values, so this type is assumed.
    #[error("does not say what its values are; they are read as {0}")]
    AssumedType(&'static str),
}
