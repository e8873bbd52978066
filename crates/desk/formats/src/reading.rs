//! Result of a reader, and the options for reading.

use std::borrow::Cow;
use std::fmt;
use std::rc::Rc;
use std::str::FromStr;

use heapprof_profile::{Profile, Warning};

use crate::error::FormatError;
use crate::figures::decimal;
use crate::format::ProfileFormat;

/// Options for reading a profile of any format.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FormatReadOptions {
    /// Maximum number of bytes that a file may inflate to. This limit stops a decompression bomb.
    pub max_inflated: u64,
    /// Part to read of a file that holds several profiles. `None` leaves the choice to the format.
    pub part: Option<PartSelector>,
    /// Type and unit of the numbers in a file that does not contain them.
    pub values: Option<ValueTypeName>,
    /// Whether fractions of unsampled values are truncated for each stack, as pprof does. Otherwise
    /// fractions are carried over, so that the sums are right.
    pub as_pprof: bool,
    /// Whether the values of a thread are its counts in the file, which need not add up to the
    /// total. Otherwise they are a share of the total.
    pub threads_as_counted: bool,
    /// Whether the stacks of a pprof profile stay encoded, as in the file, until a caller asks for
    /// frames. This suits callers that only pass the profile on.
    pub stacks_as_written: bool,
}

/// One profile of a file that holds several: a snapshot, a report, a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PartSelector {
    /// The profile with this number. If the file does not number its profiles, the number is the
    /// position, from 1.
    Number(u64),
    /// The profile with the most memory in use.
    Peak,
    /// The last profile.
    Last,
}

impl PartSelector {
    /// Reads `12`, `peak` or `last`.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "peak" => Some(PartSelector::Peak),
            "last" => Some(PartSelector::Last),
            number => decimal(number.as_bytes()).map(PartSelector::Number),
        }
    }

    /// Returns the index of the selected part among `count` parts. `peak` is the index of the
    /// largest part. Part numbers count from 1.
    pub(crate) fn choose(
        self,
        noun: &str,
        count: usize,
        peak: usize,
    ) -> Result<usize, FormatError> {
        let index = match self {
            PartSelector::Number(number) => {
                number.checked_sub(1).and_then(|i| usize::try_from(i).ok())
            }
            PartSelector::Peak => Some(peak),
            PartSelector::Last => count.checked_sub(1),
        };
        index
            .filter(|&i| i < count)
            .ok_or_else(|| FormatError::NoPart {
                asked: format!("{noun} {self}"),
                present: match count {
                    0 => "none".to_string(),
                    1 => "one, 1".to_string(),
                    n => format!("{n}, 1 to {n}"),
                },
            })
    }
}

impl fmt::Display for PartSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PartSelector::Number(number) => write!(f, "{number}"),
            PartSelector::Peak => write!(f, "peak"),
            PartSelector::Last => write!(f, "last"),
        }
    }
}

/// The type and unit of a sample type, e.g. `inuse_space` and `bytes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueTypeName {
    /// The type, e.g. `inuse_space`.
    pub r#type: String,
    /// The unit, e.g. `bytes`.
    pub unit: String,
}

impl FromStr for ValueTypeName {
    type Err = String;

    /// Reads `TYPE/UNIT`.
    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('/') {
            Some((r#type, unit)) if !r#type.is_empty() && !unit.is_empty() => Ok(Self {
                r#type: r#type.to_string(),
                unit: unit.to_string(),
            }),
            _ => Err("write a type and its unit, such as inuse_space/bytes".to_string()),
        }
    }
}

impl Default for FormatReadOptions {
    fn default() -> Self {
        let profile = heapprof_profile::ReadOptions::default();
        Self {
            max_inflated: profile.max_inflated,
            part: None,
            values: None,
            as_pprof: false,
            threads_as_counted: false,
            stacks_as_written: false,
        }
    }
}

impl FormatReadOptions {
    /// Sets the limit for the inflated size, in bytes.
    pub fn max_inflated(mut self, bytes: u64) -> Self {
        self.max_inflated = bytes;
        self
    }

    /// Returns the maximum number of bytes of memory, roughly, that reading may take. It is the
    /// limit for the inflated size, but always enough for a small file.
    pub(crate) fn max_memory(&self) -> u64 {
        /// Number of bytes that are enough for a small file. In tests of this crate it is smaller,
        /// so that a reader comes to its limit soon.
        const MIN_MEMORY: u64 = if cfg!(test) { 8 << 20 } else { 64 << 20 };
        self.max_inflated.max(MIN_MEMORY)
    }

    /// Sets the part to read.
    pub fn part(mut self, part: Option<PartSelector>) -> Self {
        self.part = part;
        self
    }

    /// Sets whether fractions of unsampled values are truncated for each stack, as pprof does.
    pub fn as_pprof(mut self, as_pprof: bool) -> Self {
        self.as_pprof = as_pprof;
        self
    }

    /// Sets the type and unit of numbers in files that do not contain them.
    pub fn values(mut self, values: Option<ValueTypeName>) -> Self {
        self.values = values;
        self
    }

    /// Sets whether the values of a thread are its counts in the file. Otherwise they are a share
    /// of the total.
    pub fn threads_as_counted(mut self, yes: bool) -> Self {
        self.threads_as_counted = yes;
        self
    }

    /// Sets whether the stacks of a pprof profile stay encoded until a caller asks for frames.
    pub fn stacks_as_written(mut self, kept: bool) -> Self {
        self.stacks_as_written = kept;
        self
    }
}

/// A profile that was read, with its format and the rule that unsampled its values.
#[derive(Clone, Debug)]
pub struct ProfileReading {
    /// The profile. Its comments do not name the format; [`commented`](Self::commented) adds the
    /// name.
    pub profile: Profile,
    /// The format of the file.
    pub format: ProfileFormat,
    /// Description, for people, of the rule by which the file's values were unsampled. It is empty
    /// for pprof, whose values are not changed.
    pub unsampling: Cow<'static, str>,
    /// The calls in a file of Devel::MProf. The list is empty for other formats.
    pub calls: Vec<MprofCall>,
    /// What the profile is instead of a heap profile; `None` if it is one, or can be one.
    subject: Option<&'static str>,
}

/// A call that has ended, from a line of a Devel::MProf file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MprofCall {
    /// Name of the Perl function.
    pub function: Rc<str>,
    /// Size of the process before the call, in pages.
    pub before: i64,
    /// Size of the process after the call, in pages.
    pub after: i64,
}

impl ProfileReading {
    /// Makes a reading from a profile, its format, and a description of the rule that unsampled its
    /// values.
    pub(crate) fn new(
        format: ProfileFormat,
        unsampling: impl Into<Cow<'static, str>>,
        profile: Profile,
    ) -> Self {
        Self {
            profile,
            format,
            unsampling: unsampling.into(),
            calls: Vec::new(),
            subject: format.other_subject(),
        }
    }

    /// Sets what the profile is about: the same as a profile of the format `inner`, which the file
    /// contains.
    pub(crate) fn about(mut self, inner: ProfileFormat) -> Self {
        self.subject = inner.other_subject();
        self
    }

    /// Returns the profile with two comments, `format: NAME, DESCRIPTION` and `unsampling: RULE`.
    /// `heapprof info` shows them, and they remain when the profile is stored or converted. A pprof
    /// profile gets no comments. If the format is not one of heap profiles, a warning says so.
    pub fn commented(self) -> Profile {
        let mut profile = self.profile;
        if let Some(subject) = self.subject {
            profile.warnings.push(Warning::NoHeapProfile(subject));
        }
        if self.format != ProfileFormat::Pprof {
            let (name, description) = (self.format.name(), self.format.description());
            let format = format!("format: {name}, {description}");
            let unsampling = format!("unsampling: {}", self.unsampling);
            for comment in [format, unsampling] {
                let comment = profile.strings.intern(&comment);
                profile.comment.push(comment);
            }
        }
        profile
    }
}
