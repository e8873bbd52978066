//! Plans for sums of stored profiles, and profiles that replace several others.

use std::collections::BTreeMap;
use std::sync::Arc;

use heapprof_profile::Profile;

/// A profile that replaces several moments, with its name and its labels.
pub type NamedProfile = (String, Arc<Profile>, BTreeMap<String, String>);

/// A plan for a sum of stored profiles: which values of each profile are added to which columns.
pub struct SamplePlan {
    /// The type and unit of each column.
    pub(crate) types: Vec<(String, String)>,
    /// The number that the sums are divided by.
    pub(crate) divisor: i64,
    /// Whether the columns cover all values. If so, a value without a column means that the
    /// database is damaged.
    pub(crate) is_whole: bool,
    /// The profiles, by their numbers, each with its additions.
    pub(crate) parts: Vec<(i64, Vec<PlannedAddition>)>,
}

impl SamplePlan {
    /// Returns the plan that adds all values of one profile with these types.
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

/// An addition of a profile's values in one sample type to a column of the sum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedAddition {
    /// The name and unit of the type.
    pub(crate) from: (String, String),
    /// The position of the column.
    pub(crate) to: usize,
    /// The factor by which the values are multiplied before they are added; may be negative.
    pub(crate) times: i64,
    /// Whether the spreads of the values are added up, too.
    pub(crate) with_spread: bool,
}

impl PlannedAddition {
    /// Makes a plan to add a type's values, times 1, and their spreads.
    pub(crate) fn once(from: &(String, String), to: usize) -> Self {
        Self {
            from: from.clone(),
            to,
            times: 1,
            with_spread: true,
        }
    }
}
