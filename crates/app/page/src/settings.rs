//! The settings of a server of a page.

use std::sync::Arc;

use heapprof_dropin::PprofViews;

use crate::question::BinaryFolders;
use crate::source_file::SourceFolders;

/// The settings of a server of a page: which profiles it shows, and how.
#[derive(Clone, Debug, Default)]
pub struct PageSettings {
    /// The profiles that the user named; if there are none, the newest recording is shown.
    pub profiles: Vec<String>,
    /// The profiles with which `profiles` are compared.
    pub base: Vec<String>,
    /// Whether the profiles are added up. Otherwise, each profile is a moment.
    pub is_sum: bool,
    /// Whether the user's browser may send profiles.
    pub takes_profiles: bool,
    /// Maximum number of nodes that are sent at once.
    pub max_nodes: usize,
    /// Whether the files that a profile names are opened: source files for the text of their lines,
    /// and binaries for their instructions.
    pub has_source: bool,
    /// Where to find source files.
    pub source_folders: SourceFolders,
    /// Where to find binaries and their debug files.
    pub binaries: BinaryFolders,
    /// The views at pprof's paths, if the server has any.
    pub pprof: Option<Arc<dyn PprofViews>>,
}
