//! Options for writing a profile: how well it is packed.

/// Options for writing a profile. The default options are those of [`encode`](crate::encode()).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EncodeOptions {
    /// How well the profile is packed.
    pub gzip: Gzip,
}

impl EncodeOptions {
    /// Chooses how well the profile is packed.
    pub fn gzip(mut self, gzip: Gzip) -> Self {
        self.gzip = gzip;
        self
    }
}

/// How well gzip packs a profile. The gzip header holds no time and no name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Gzip {
    /// Everything is packed well. This suits files that are kept.
    #[default]
    Full,
    /// Data that gzip does not halve is stored as it is. This suits tools whose users wait.
    Loose,
    /// The file is plain protobuf, without gzip.
    None,
}
