//! What is stored, and what became of it.

/// A profile with its name and its labels.
pub type LabelledProfile = heapprof_analysis::sample_plan::NamedProfile;

/// What became of profiles that were to be stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadCount {
    /// Number of profiles that were stored.
    pub loaded: usize,
    /// Number of profiles that were skipped, because they are there already.
    pub skipped: usize,
}

/// What became of one profile that was to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreOutcome {
    /// It was stored.
    Loaded,
    /// It was skipped, because it is there already.
    Skipped,
}
