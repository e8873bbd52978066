//! How a profile is packed when it is written.

/// Says how to write a profile. The default is what [`encode`](crate::encode()) does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EncodeOptions {
    /// Says how well the profile is packed.
    pub gzip: Gzip,
}

impl EncodeOptions {
    /// Chooses how well the profile is packed.
    pub fn gzip(mut self, gzip: Gzip) -> Self {
        self.gzip = gzip;
        self
    }
}

/// Says how well gzip packs a profile. The gzip header holds no time and no name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Gzip {
    /// Everything is packed well. This suits files that are kept.
    #[default]
    Full,
    /// What gzip does not halve is stored as it is. This suits tools whose users wait.
    Loose,
    /// The file is plain protobuf, without gzip.
    None,
}
