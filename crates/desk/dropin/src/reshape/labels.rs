//! Labels: filters samples by labels, selects the labels to show, makes frames from labels, and
//! finds the units of number labels.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use heapprof_profile::{
    Function, FunctionIndex, Label, LabelSetIndex, Line, Location, LocationIndex, Profile, StringId,
};
use regex::Regex;

use heapprof_totals::label_filter::LabelFilter;

/// The units of number labels, by key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelUnits {
    /// Unit for all numbers with a key: the first unit in the profile, otherwise bytes for sizes,
    /// otherwise the key itself.
    pub units: HashMap<String, String>,
    /// Further units that occur with a key, sorted.
    pub ignored: BTreeMap<String, BTreeSet<String>>,
}

/// Finds the units of the profile's number labels.
pub fn label_units(profile: &Profile) -> LabelUnits {
    let mut units = LabelUnits::default();
    for set in sets_in_use(profile) {
        for label in profile.label_sets.get(set) {
            if !label.str.is_empty() {
                continue;
            }
            let (key, unit) = (profile.text(label.key), profile.text(label.num_unit));
            let known = units.units.entry(key.to_string()).or_default();
            if known.is_empty() {
                *known = unit.to_string();
            } else if !unit.is_empty() && known != unit {
                let ignored = units.ignored.entry(key.to_string()).or_default();
                ignored.insert(unit.to_string());
            }
        }
    }
    for (key, unit) in &mut units.units {
        if unit.is_empty() {
            *unit = match key.as_str() {
                "alignment" | "request" => "bytes".to_string(),
                key => key.to_string(),
            };
        }
    }
    units
}

/// Returns the label sets that samples use, in the order of their first sample.
fn sets_in_use(profile: &Profile) -> Vec<LabelSetIndex> {
    let mut seen = vec![false; profile.label_sets.len()];
    let mut sets = Vec::new();
    for i in 0..profile.samples.len() {
        let set = profile.samples.label_set(i);
        if !std::mem::replace(&mut seen[set.index()], true) {
            sets.push(set);
        }
    }
    sets
}

/// Keeps samples whose labels match `focus` and do not match `ignore`. Returns whether `focus`
/// matched any sample, and whether `ignore` did. A missing `focus` matches all samples.
pub fn keep_by_label(
    profile: &mut Profile,
    focus: Option<&LabelFilter>,
    ignore: Option<&LabelFilter>,
) -> (bool, bool) {
    if focus.is_none() && ignore.is_none() {
        return (!profile.samples.is_empty(), false);
    }
    let (mut any_focused, mut any_ignored) = (false, false);
    let mut keep = vec![false; profile.label_sets.len()];
    for set in sets_in_use(profile) {
        let labels = profile.label_sets.get(set);
        let focused = focus.is_none_or(|test| test.matches(profile, labels));
        let ignored = ignore.is_some_and(|test| test.matches(profile, labels));
        any_focused |= focused;
        any_ignored |= ignored;
        keep[set.index()] = focused && !ignored;
    }
    profile.samples.rewrite(|stack, _, set, kept| {
        kept.extend_from_slice(stack);
        keep[set.index()]
    });
    (any_focused, any_ignored)
}

/// Keeps labels whose key matches `show` and does not match `hide`. Returns whether `show` matched
/// any label of a sample, and whether `hide` did.
pub fn keep_label_keys(
    profile: &mut Profile,
    show: Option<&Regex>,
    hide: Option<&Regex>,
) -> (bool, bool) {
    let (mut any_shown, mut any_hidden) = (false, false);
    change_labels(profile, |profile, labels| {
        labels.retain(|label| {
            let key = profile.text(label.key);
            let shown = show.is_none_or(|r| r.is_match(key));
            let hidden = hide.is_some_and(|r| r.is_match(key));
            any_shown |= shown;
            any_hidden |= hidden;
            shown && !hidden
        });
    });
    (any_shown, any_hidden)
}

/// Removes labels that have no text, no number and no unit.
pub fn drop_empty_labels(profile: &mut Profile) {
    let empty = |l: &Label| l.str.is_empty() && l.num == 0 && l.num_unit.is_empty();
    let sets = 0..profile.label_sets.len() as u32;
    let mut sets = sets.map(|set| profile.label_sets.get(LabelSetIndex(set)));
    if sets.any(|labels| labels.iter().any(empty)) {
        change_labels(profile, |_, labels| labels.retain(|l| !empty(l)));
    }
}

/// Adds a text label to every sample, replacing texts that the sample has for the same key.
pub fn set_label(profile: &mut Profile, key: &str, value: &str) {
    let label = Label {
        key: profile.strings.intern(key),
        str: profile.strings.intern(value),
        num: 0,
        num_unit: StringId::EMPTY,
    };
    change_labels(profile, |_, labels| {
        labels.retain(|l| l.str.is_empty() || l.key != label.key);
        labels.push(label);
    });
}

/// Applies `change` to each label set that a sample has.
fn change_labels(profile: &mut Profile, mut change: impl FnMut(&Profile, &mut Vec<Label>)) {
    let mut changed = vec![LabelSetIndex(0); profile.label_sets.len()];
    for set in sets_in_use(profile) {
        let mut labels = profile.label_sets.get(set).to_vec();
        change(profile, &mut labels);
        let Profile {
            label_sets,
            strings,
            ..
        } = profile;
        changed[set.index()] = label_sets.intern(&mut labels, strings);
    }
    profile.samples.relabel(|set| changed[set.index()]);
}

/// Adds a frame for each key to every stack. Frames of root keys are at the root, with the first
/// key outermost. Frames of leaf keys are at the leaf, with the last key innermost. `show` formats
/// a number with its unit. Returns whether any sample has a label with a root key, and whether any
/// sample has a label with a leaf key.
pub fn add_label_frames(
    profile: &mut Profile,
    root: &[&str],
    leaf: &[&str],
    show: &dyn Fn(i64, &str) -> String,
) -> (bool, bool) {
    let (mut any_root, mut any_leaf) = (false, false);
    if root.is_empty() && leaf.is_empty() {
        return (any_root, any_leaf);
    }
    let mut frames = LabelFrames::new(profile);
    let mut of_set = vec![(Vec::new(), Vec::new()); profile.label_sets.len()];
    for set in sets_in_use(profile) {
        let labels = profile.label_sets.get(set).to_vec();
        let mut make = |keys: &[&str], any: &mut bool| -> Vec<LocationIndex> {
            // Stacks are leaf first.
            let keys = keys.iter().rev();
            keys.map(|key| {
                let values = values(profile, &labels, key, show);
                *any |= !values.is_empty();
                frames.location(profile, &values.join(","), key)
            })
            .collect()
        };
        let root = make(root, &mut any_root);
        let leaf = make(leaf, &mut any_leaf);
        of_set[set.index()] = (root, leaf);
    }
    profile.samples.rewrite(|stack, _, set, kept| {
        let (root, leaf) = &of_set[set.index()];
        kept.extend_from_slice(leaf);
        kept.extend_from_slice(stack);
        kept.extend_from_slice(root);
        true
    });
    (any_root, any_leaf)
}

/// Returns the values of the labels with a key: texts, then numbers.
fn values(
    profile: &Profile,
    labels: &[Label],
    key: &str,
    show: &dyn Fn(i64, &str) -> String,
) -> Vec<String> {
    let of_key = labels.iter().filter(|l| profile.text(l.key) == key);
    of_key
        .map(|label| match label.str.is_empty() {
            true => show(label.num, profile.text(label.num_unit)),
            false => profile.text(label.str).to_string(),
        })
        .collect()
}

/// Locations and functions made from labels. Their ids follow the ids in the profile.
struct LabelFrames {
    locations: HashMap<(String, String), LocationIndex>,
    next_location: u64,
    next_function: u64,
}

impl LabelFrames {
    fn new(profile: &Profile) -> Self {
        let after = |ids: &mut dyn Iterator<Item = u64>| ids.max().unwrap_or(0).wrapping_add(1);
        Self {
            locations: HashMap::new(),
            next_location: after(&mut profile.location.iter().map(|l| l.id)),
            next_function: after(&mut profile.function.iter().map(|f| f.id)),
        }
    }

    fn location(&mut self, profile: &mut Profile, name: &str, key: &str) -> LocationIndex {
        let known = (name.to_string(), key.to_string());
        if let Some(&location) = self.locations.get(&known) {
            return location;
        }
        let function = FunctionIndex(profile.function.len() as u32);
        profile.function.push(Function {
            id: self.next_function,
            name: profile.strings.intern(name),
            system_name: StringId::EMPTY,
            filename: profile.strings.intern(key),
            start_line: 0,
        });
        let start = profile.line.len() as u32;
        profile.line.push(Line {
            function,
            line: 0,
            column: 0,
        });
        let location = LocationIndex(profile.location.len() as u32);
        profile.location.push(Location {
            id: self.next_location,
            mapping: None,
            address: 0,
            line: start..start + 1,
            is_folded: false,
        });
        self.next_function = self.next_function.wrapping_add(1);
        self.next_location = self.next_location.wrapping_add(1);
        self.locations.insert(known, location);
        location
    }
}
