//! Options for writing a profile: how it is compressed.

/// Options for writing a profile. [`encode`](crate::encode()) uses the default options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EncodeOptions {
    /// How the profile is compressed.
    pub gzip: Gzip,
}

impl EncodeOptions {
    /// Chooses how the profile is compressed.
    pub fn gzip(mut self, gzip: Gzip) -> Self {
        self.gzip = gzip;
        self
    }
}

/// How a profile is compressed with gzip. The gzip header holds no time and no name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Gzip {
    /// Everything is compressed, for a small file. This suits files that are stored.
    #[default]
    Full,
    /// Data that gzip does not halve is stored uncompressed. This suits tools whose users wait.
    Loose,
    /// The file is plain protobuf, without gzip.
    None,
}
