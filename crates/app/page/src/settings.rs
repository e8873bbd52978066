//! What the user asked to serve.

use crate::source_file::SourceFolders;

/// What is served, and how.
#[derive(Clone, Debug, Default)]
pub struct PageSettings {
    /// The profiles that the user named; none stands for the newest recording.
    pub profiles: Vec<String>,
    /// The profiles that those are compared with.
    pub base: Vec<String>,
    /// Whether the profiles are added up. Otherwise each is a moment.
    pub is_sum: bool,
    /// Whether the user's browser may send profiles.
    pub takes_profiles: bool,
    /// The largest number of nodes that are sent at once.
    pub max_nodes: usize,
    /// Whether the text of source lines is shown.
    pub has_source: bool,
    /// Where source files are.
    pub source_folders: SourceFolders,
}
