//! What comes out of a reader, and what may be asked of one.

use std::borrow::Cow;

use heapprof_profile::Profile;

use crate::format::Format;

/// How to read.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The most bytes a file may inflate to. A bomb ends here.
    pub max_inflated: u64,
}

impl Default for Options {
    fn default() -> Self {
        let profile = heapprof_profile::ReadOptions::default();
        Self {
            max_inflated: profile.max_inflated,
        }
    }
}

impl Options {
    /// With another limit for the inflated size, in bytes.
    pub fn max_inflated(mut self, bytes: u64) -> Self {
        self.max_inflated = bytes;
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
    /// How the file's values became the profile's, for people; empty for pprof, whose values are taken as they are.
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

    /// The profile with two comments, `format: NAME, DESCRIPTION` and `unsampling: RULE`, which `heapprof info`
    /// shows and which stay when the profile is stored or converted. A pprof file stays as it is.
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
