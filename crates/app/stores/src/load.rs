//! The profiles that are stored, and the results of storing them.

/// A profile with its name and its labels.
pub type LabelledProfile = heapprof_analysis::sample_plan::NamedProfile;

/// How many profiles were stored and skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadCount {
    /// Number of profiles that were stored.
    pub loaded: usize,
    /// Number of profiles that were skipped, because they were stored before.
    pub skipped: usize,
}

/// The result of storing one profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreOutcome {
    /// The profile was stored.
    Loaded,
    /// The profile was skipped, because it was stored before.
    Skipped,
}
