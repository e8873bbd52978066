//! What comes out of a reader, and what may be asked of one.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use heapprof_profile::Profile;

use crate::error::Error;
use crate::figures::decimal;
use crate::format::Format;

/// How to read.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The most bytes a file may inflate to. A bomb ends here.
    pub max_inflated: u64,
    /// Which part of a file that holds several profiles; its own choice without.
    pub part: Option<Part>,
    /// What the numbers of a file mean that does not say it.
    pub values: Option<Values>,
    /// Whether unsampled values are cut to whole numbers, stack by stack, as pprof does. Else their
    /// sums are right.
    pub as_pprof: bool,
    /// Give threads the numbers that the file has for them, not their part of the total. They need
    /// not add up to it.
    pub threads_as_counted: bool,
    /// Keep the stacks of a pprof profile as they are written until somebody asks: for who passes
    /// it on.
    pub stacks_as_written: bool,
}

/// A profile of a file that holds several: a snapshot, a report, a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Part {
    /// By its number: as the file numbers them, else from 1.
    Number(u64),
    /// The one with the most memory in use.
    Peak,
    /// The last one.
    Last,
}

impl Part {
    /// Reads `12`, `peak` or `last`.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "peak" => Some(Part::Peak),
            "last" => Some(Part::Last),
            number => decimal(number.as_bytes()).map(Part::Number),
        }
    }

    /// The index of this part among `count`, the largest of which is `peak`. Numbers count from 1.
    pub(crate) fn choose(self, noun: &str, count: usize, peak: usize) -> Result<usize, Error> {
        let index = match self {
            Part::Number(number) => number.checked_sub(1).and_then(|i| usize::try_from(i).ok()),
            Part::Peak => Some(peak),
            Part::Last => count.checked_sub(1),
        };
        index.filter(|&i| i < count).ok_or_else(|| Error::NoPart {
            asked: format!("{noun} {self}"),
            present: match count {
                0 => "none".to_string(),
                1 => "one, 1".to_string(),
                n => format!("{n}, 1 to {n}"),
            },
        })
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::Number(number) => write!(f, "{number}"),
            Part::Peak => write!(f, "peak"),
            Part::Last => write!(f, "last"),
        }
    }
}

/// A sample type, e.g. `inuse_space` in `bytes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Values {
    /// E.g. `inuse_space`.
    pub r#type: String,
    /// E.g. `bytes`.
    pub unit: String,
}

impl FromStr for Values {
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

impl Default for Options {
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

impl Options {
    /// With another limit for the inflated size, in bytes.
    pub fn max_inflated(mut self, bytes: u64) -> Self {
        self.max_inflated = bytes;
        self
    }

    /// About the most bytes of memory that reading may take: as many as may come out of a file, but
    /// enough for any small one.
    pub(crate) fn max_memory(&self) -> u64 {
        self.max_inflated.max(64 << 20)
    }

    /// With the part to read.
    pub fn part(mut self, part: Option<Part>) -> Self {
        self.part = part;
        self
    }

    /// With whole numbers as pprof makes them.
    pub fn as_pprof(mut self, as_pprof: bool) -> Self {
        self.as_pprof = as_pprof;
        self
    }

    /// With what the numbers mean.
    pub fn values(mut self, values: Option<Values>) -> Self {
        self.values = values;
        self
    }

    /// With threads' own numbers.
    pub fn threads_as_counted(mut self, yes: bool) -> Self {
        self.threads_as_counted = yes;
        self
    }

    /// With stacks that are read when somebody asks.
    pub fn stacks_as_written(mut self, kept: bool) -> Self {
        self.stacks_as_written = kept;
        self
    }
}

/// A profile and where its values come from.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The profile, with no trace of its former format: [`commented`](Self::commented) leaves one.
    pub profile: Profile,
    /// What the file was.
    pub format: Format,
    /// How the file's values became the profile's, for people; empty for pprof, whose values are
    /// taken as they are.
    pub unsampling: Cow<'static, str>,
}

impl Reading {
    /// A profile of this format, its values unsampled by this rule.
    pub(crate) fn new(
        format: Format,
        unsampling: impl Into<Cow<'static, str>>,
        profile: Profile,
    ) -> Self {
        Self {
            profile,
            format,
            unsampling: unsampling.into(),
        }
    }

    /// The profile with two comments, `format: NAME, DESCRIPTION` and `unsampling: RULE`, which
    /// `heapprof info` shows and which stay when the profile is stored or converted. A pprof file
    /// stays as it is.
    pub fn commented(self) -> Profile {
        let mut profile = self.profile;
        if self.format != Format::Pprof {
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
