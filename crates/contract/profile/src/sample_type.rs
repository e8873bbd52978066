//! Selects one of a profile's sample types: by name, by position, or by default.

use crate::model::Profile;

/// Error for a sample type that the profile does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("has no sample type {asked:?}; it has {}", .present.join(", "))]
pub struct SampleTypeError {
    /// The name or position that the caller looked for.
    pub asked: String,
    /// The names of the sample types that the profile has.
    pub present: Vec<String>,
}

/// Pairs of names that gperftools uses for memory in use: the short names in a dump that has no
/// other values, the long names in other dumps. A program's dumps have the short names until memory
/// is freed for the first time.
const IN_USE_NAMES: [(&str, &str); 2] = [("objects", "inuse_objects"), ("space", "inuse_space")];

/// Name of the sample type for the bytes in use.
pub const IN_USE: &str = "inuse_space";
/// Name of the sample type for the bytes that were in use when most bytes were in use.
pub const PEAK: &str = "peak_space";

/// Returns the name of the sample type that shows where a finished program had its memory. `in_use`
/// is the number of bytes in use at the end, and `peak` at the peak. This is the peak, if the
/// program freed more than half of it before it ended.
pub const fn default_of_finished_program(in_use: i64, peak: i64) -> &'static str {
    match in_use.saturating_mul(2) < peak {
        true => PEAK,
        false => IN_USE,
    }
}

/// Returns the name of the sample type to show first of several profiles, from the default type of
/// each. If these differ, for example because only the last profile of a program is of its end,
/// this is [`IN_USE`]; `None` if there are no profiles.
pub fn common_default<'a>(defaults: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let mut defaults = defaults.into_iter();
    let first = defaults.next()?;
    Some(match defaults.all(|default| default == first) {
        true => first,
        false => IN_USE,
    })
}

/// Renames the sample types for memory in use in one profile, if the profiles use different
/// [`IN_USE_NAMES`] for them.
pub(crate) fn agree_names(a: &mut Profile, b: &mut Profile) {
    let has = |p: &Profile, name: &str| p.sample_type.iter().any(|t| p.text(t.r#type) == name);
    let is_short = |p: &Profile| IN_USE_NAMES.iter().all(|n| has(p, n.0) && !has(p, n.1));
    let is_long = |p: &Profile| IN_USE_NAMES.iter().any(|n| has(p, n.1)) && !has(p, "space");
    if is_short(a) && is_long(b) {
        a.name_in_use();
    } else if is_short(b) && is_long(a) {
        b.name_in_use();
    }
}

impl Profile {
    /// Renames `objects` to `inuse_objects` and `space` to `inuse_space`. Also stores the current
    /// default sample type in the profile, so that the default stays the same when other types are
    /// left out.
    ///
    /// # For whom
    /// This is for tools that add profiles up by the rules of pprof, where the short and long names
    /// are different types. Other callers need not call this, because [`merge`](crate::merge())
    /// treats both as one type.
    pub fn name_in_use(&mut self) {
        let shown = self.default_sample_type_index();
        for (short, long) in IN_USE_NAMES {
            let mut types = self.sample_type.iter();
            if let Some(at) = types.position(|t| self.strings.get(t.r#type) == short) {
                self.sample_type[at].r#type = self.strings.intern(long);
            }
        }
        if let Some(shown) = self.sample_type.get(shown) {
            self.default_sample_type = shown.r#type;
        }
    }

    /// Makes the sample type that shows where a finished program had its memory the default one, by
    /// [`default_of_finished_program`]. A profile without a peak keeps its default.
    pub fn set_default_of_finished_program(&mut self) {
        let names = self.type_names();
        let position = |name: &str| names.iter().position(|n| *n == name);
        let (Some(in_use), Some(peak)) = (position(IN_USE), position(PEAK)) else {
            return;
        };
        let total = |column: usize| {
            let values = (0..self.samples.len()).map(|i| self.samples.values(i)[column]);
            values.fold(0, i64::saturating_add)
        };
        let name = default_of_finished_program(total(in_use), total(peak));
        self.default_sample_type = self.strings.intern(name);
    }

    /// Returns the names of the sample types, in their order.
    pub fn type_names(&self) -> Vec<&str> {
        let types = self.sample_type.iter();
        types.map(|t| self.text(t.r#type)).collect()
    }

    /// Returns the position of the sample type with the name or position `asked`, as
    /// [`find_sample_type`] does.
    ///
    /// ```
    /// use heapprof_profile::ProfileBuilder;
    /// let types = [("alloc_space", "bytes"), ("inuse_space", "bytes"), ("peak_space", "bytes")];
    /// let profile = ProfileBuilder::new(&types).finish();
    /// assert_eq!(profile.find_sample_type("peak"), Ok(2));
    /// assert_eq!(profile.find_sample_type("0"), Ok(0));
    /// assert_eq!(profile.default_sample_type_index(), 1);
    /// let error = profile.find_sample_type("cpu").unwrap_err();
    /// assert_eq!(error.present, ["alloc_space", "inuse_space", "peak_space"]);
    /// ```
    ///
    /// # Errors
    /// Returns [`SampleTypeError`] when the profile has no such type. The error holds the names of
    /// the profile's types.
    pub fn find_sample_type(&self, asked: &str) -> Result<usize, SampleTypeError> {
        find_sample_type(&self.type_names(), asked)
    }

    /// Returns the position of the sample type to show first, as [`default_sample_type`] does.
    pub fn default_sample_type_index(&self) -> usize {
        default_sample_type(&self.type_names(), self.text(self.default_sample_type))
    }
}

/// Returns the position of the sample type `asked` among the types `names`. `asked` is a name or a
/// position from 0.
///
/// `inuse_space` also finds `space`, the name in profiles without allocation counts;
/// `inuse_objects` finds `objects` in the same way. `peak` finds `peak_space`, and so on.
///
/// # Errors
/// Returns [`SampleTypeError`] when there is no such type. The error holds `names`.
pub fn find_sample_type(names: &[&str], asked: &str) -> Result<usize, SampleTypeError> {
    let position = |name: &str| names.iter().position(|n| *n == name);
    position(asked)
        .or_else(|| position(asked.strip_prefix("inuse_")?))
        .or_else(|| asked.parse().ok().filter(|&n| n < names.len()))
        .or_else(|| position(&format!("{asked}_space")))
        .ok_or_else(|| SampleTypeError {
            asked: asked.to_string(),
            present: names.iter().map(|name| name.to_string()).collect(),
        })
}

/// Returns the position of the sample type to show first. This is the type `chosen` if it is among
/// `names`, otherwise `inuse_space`, otherwise the last type. `chosen` is the profile's default
/// type; it may be empty.
pub fn default_sample_type(names: &[&str], chosen: &str) -> usize {
    let position = |name: &str| names.iter().position(|n| *n == name);
    Some(chosen)
        .filter(|name| !name.is_empty())
        .and_then(position)
        .or_else(|| position("inuse_space"))
        .unwrap_or(names.len().saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::{IN_USE, PEAK, common_default};
    use crate::{Profile, ProfileBuilder, agree_units, merge};

    const SHORT: [(&str, &str); 2] = [("objects", "count"), ("space", "bytes")];
    const LONG: [(&str, &str); 4] = [
        ("alloc_objects", "count"),
        ("alloc_space", "bytes"),
        ("inuse_objects", "count"),
        ("inuse_space", "bytes"),
    ];

    fn profile(types: &[(&str, &str)]) -> Profile {
        let mut builder = ProfileBuilder::new(types);
        builder.add_folded("main", &[7; 4][..types.len()]);
        builder.finish()
    }

    fn types(profile: &Profile) -> Vec<&str> {
        let types = profile.sample_type.iter();
        types.map(|t| profile.text(t.r#type)).collect()
    }

    #[test]
    fn early_dumps_go_with_late_ones() {
        for (a, b) in [(&SHORT[..], &LONG[..]), (&LONG, &SHORT)] {
            let sum = merge(profile(a), profile(b)).unwrap();
            assert_eq!(types(&sum), ["inuse_objects", "inuse_space"]);
            assert_eq!(sum.samples.values(0), [14, 14]);
            assert_eq!(sum.default_sample_type_index(), 1);
            let (mut a, mut b) = (profile(a), profile(b));
            agree_units(&mut a, &mut b).unwrap();
            assert!(types(&a).contains(&"inuse_space") && types(&b).contains(&"inuse_space"));
        }
        let sum = merge(profile(&SHORT), profile(&SHORT)).unwrap();
        assert_eq!(types(&sum), ["objects", "space"]);
    }

    #[test]
    fn a_finished_program_is_shown_where_its_memory_was() {
        for (in_use, peak, shown) in [
            (0, 100, PEAK),
            (49, 100, PEAK),
            (49, 99, PEAK),
            (0, 1, PEAK),
            (50, 100, IN_USE),
            (100, 100, IN_USE),
            (0, 0, IN_USE),
        ] {
            let types = [
                ("inuse_space", "bytes"),
                ("peak_space", "bytes"),
                ("temporary_space", "bytes"),
            ];
            let mut builder = ProfileBuilder::new(&types);
            builder.add_folded("main;a", &[in_use, peak, 7]);
            let mut profile = builder.finish();
            profile.set_default_of_finished_program();
            assert_eq!(
                profile.text(profile.default_sample_type),
                shown,
                "{in_use} of {peak}"
            );
        }
        let mut without_peak = profile(&LONG);
        without_peak.set_default_of_finished_program();
        assert!(without_peak.default_sample_type.is_empty());
    }

    #[test]
    fn different_defaults_are_compared_in_use() {
        assert_eq!(common_default([PEAK, PEAK]), Some(PEAK));
        assert_eq!(common_default([IN_USE, PEAK]), Some(IN_USE));
        assert_eq!(common_default([]), None);
    }

    #[test]
    fn what_is_shown_is_kept() {
        let mut early = profile(&SHORT);
        early.name_in_use();
        assert_eq!(early.text(early.default_sample_type), "inuse_space");
        let mut late = profile(&LONG);
        late.name_in_use();
        assert_eq!(late.text(late.default_sample_type), "inuse_space");
    }
}
