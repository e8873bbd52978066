//! What a reader returns, and the options for it.

use std::borrow::Cow;
use std::fmt;
use std::rc::Rc;
use std::str::FromStr;

use heapprof_profile::Profile;

use crate::error::FormatError;
use crate::figures::decimal;
use crate::format::ProfileFormat;

/// How to read.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FormatReadOptions {
    /// The most bytes a file may inflate to. This limit stops a bomb.
    pub max_inflated: u64,
    /// Which part to read of a file that holds several profiles. `None` leaves the choice to the
    /// format.
    pub part: Option<PartSelector>,
    /// What the numbers mean in a file that does not say it.
    pub values: Option<ValueTypeName>,
    /// Whether unsampled values are cut to whole numbers, stack by stack, as pprof does. Otherwise
    /// their sums are right.
    pub as_pprof: bool,
    /// Give threads the numbers that the file has for them, instead of their share of the total.
    /// These numbers need not add up to the total.
    pub threads_as_counted: bool,
    /// Keep the stacks of a pprof profile as they are written until a caller asks for frames. This
    /// suits callers that only pass the profile on.
    pub stacks_as_written: bool,
}

/// One profile of a file that holds several: a snapshot, a report, a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PartSelector {
    /// The profile with this number. The file's own numbers count, otherwise numbers from 1.
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

    /// The index of this part among `count` parts. `peak` is the index of the largest. Numbers
    /// count from 1.
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

/// A sample type, e.g. `inuse_space` in `bytes`.
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

    /// About the most bytes of memory that reading may take: as many as a file may inflate to, but
    /// always enough for a small file.
    pub(crate) fn max_memory(&self) -> u64 {
        self.max_inflated.max(64 << 20)
    }

    /// Sets the part to read.
    pub fn part(mut self, part: Option<PartSelector>) -> Self {
        self.part = part;
        self
    }

    /// Chooses whether values are cut to whole numbers as pprof does.
    pub fn as_pprof(mut self, as_pprof: bool) -> Self {
        self.as_pprof = as_pprof;
        self
    }

    /// Sets what the numbers mean.
    pub fn values(mut self, values: Option<ValueTypeName>) -> Self {
        self.values = values;
        self
    }

    /// Chooses whether threads keep their own numbers.
    pub fn threads_as_counted(mut self, yes: bool) -> Self {
        self.threads_as_counted = yes;
        self
    }

    /// Chooses whether stacks are read when a caller asks for them, or at once.
    pub fn stacks_as_written(mut self, kept: bool) -> Self {
        self.stacks_as_written = kept;
        self
    }
}

/// A profile and where its values come from.
#[derive(Clone, Debug)]
pub struct ProfileReading {
    /// The profile. It does not say what its format was; [`commented`](Self::commented) adds that.
    pub profile: Profile,
    /// The format of the file.
    pub format: ProfileFormat,
    /// How the file's values became the profile's, for people. It is empty for pprof, whose values
    /// are taken as they are.
    pub unsampling: Cow<'static, str>,
    /// The lines of Devel::MProf's file as they are. It is empty for other formats.
    pub calls: Vec<MprofCall>,
}

/// A line of Devel::MProf's file: a call that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MprofCall {
    /// The sub's name.
    pub function: Rc<str>,
    /// Pages of the process before the call.
    pub before: i64,
    /// Pages after it.
    pub after: i64,
}

impl ProfileReading {
    /// A profile from a file of this format, with values that were unsampled by this rule.
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
        }
    }

    /// The profile with two comments, `format: NAME, DESCRIPTION` and `unsampling: RULE`. `heapprof
    /// info` shows them, and they stay when the profile is stored or converted. A pprof profile
    /// gets no comments.
    pub fn commented(self) -> Profile {
        let mut profile = self.profile;
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
