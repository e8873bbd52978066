//! What is added up of stored profiles, and a profile that takes the place of several.

use std::collections::BTreeMap;
use std::sync::Arc;

use heapprof_profile::Profile;

/// A profile that is to stand for several moments, with its name and its labels.
pub type NamedProfile = (String, Arc<Profile>, BTreeMap<String, String>);

/// Which values of which profiles are added up, in which columns.
pub struct SamplePlan {
    /// The type and unit of each column.
    pub(crate) types: Vec<(String, String)>,
    /// What the sums are divided by.
    pub(crate) divisor: i64,
    /// Whether a value that no column wants shows that the database is damaged.
    pub(crate) is_whole: bool,
    /// The profiles, by their numbers.
    pub(crate) parts: Vec<(i64, Vec<PlannedAddition>)>,
}

impl SamplePlan {
    /// All values of one profile, whose types these are.
    pub(crate) fn for_profile(id: i64, types: &[(String, String)]) -> Self {
        let adds = types
            .iter()
            .enumerate()
            .map(|(to, from)| PlannedAddition::once(from, to));
        Self {
            types: types.to_vec(),
            divisor: 1,
            is_whole: true,
            parts: vec![(id, adds.collect())],
        }
    }
}

/// The values of a profile in a type are added to a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedAddition {
    /// The type and unit.
    pub(crate) from: (String, String),
    /// The column.
    pub(crate) to: usize,
    /// How often they are added; they are taken off if it is negative.
    pub(crate) times: i64,
    /// Whether what is known of them is added up, too.
    pub(crate) with_spread: bool,
}

impl PlannedAddition {
    /// Adds the values of a type once, with what is known of them.
    pub(crate) fn once(from: &(String, String), to: usize) -> Self {
        Self {
            from: from.clone(),
            to,
            times: 1,
            with_spread: true,
        }
    }
}
