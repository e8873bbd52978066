//! Adds profiles up. Equal stacks with equal labels become one sample. An instruction becomes one
//! location, even if its address differs between runs.
//!
//! The keys of samples and tables are those of pprof (profile/merge.go), without its losses of
//! data: a conversion of units keeps every sample, lines keep their columns, the default sample
//! type stays, and the time is the earliest known one. `as_pprof.rs` repeats these losses for
//! callers that want pprof's results.

mod agree;
mod as_pprof;

use std::hash::BuildHasher;

use crate::hashing::HashMap;
use crate::hashing::RandomState;
use hashbrown::HashTable;

use crate::builder::ProfileBuilder;
use crate::error::{Error, Warning};
use crate::history::is_for_machines;
use crate::model::{
    Function, FunctionIndex, Label, LabelSetIndex, Line, LocationIndex, Mapping, MappingIndex,
    Profile, ValueType,
};
use crate::sample_type::{IN_USE, PEAK, agree_names};
use crate::strings::StringId;
use crate::unit::Unit;
use agree::finer_unit;
pub use agree::{agree_addresses, agree_units};
pub use as_pprof::{UnitRules, merge_as_pprof};

/// Adds two profiles up, as [`merge_all`] does.
///
/// # Errors
/// Fails as [`merge_all`] does.
pub fn merge(a: Profile, b: Profile) -> Result<Profile, Error> {
    merge_all([Ok(a), Ok(b)])
}

/// Adds profiles up as they arrive. Only the sum and one more profile are in memory at a time.
///
/// The sum has only the sample types that all profiles have (a [`Warning`] names the other types).
/// Values get the finest unit of all profiles. Exact samples whose values are all 0 are left out.
///
/// ```
/// use heapprof_profile::{Error, ProfileBuilder, merge, merge_all};
/// let run = |unit, stack: &str, value| {
///     let mut builder = ProfileBuilder::new(&[("inuse_space", unit)]);
///     builder.add_folded(stack, &[value]);
///     builder.finish()
/// };
/// let runs = [run("bytes", "main;parse", 96), run("kilobytes", "main;parse", 1)];
/// let sum = merge_all(runs.into_iter().map(Ok::<_, Error>))?;
/// assert_eq!(sum.samples.len(), 1);
/// assert_eq!(sum.samples.values(0), [96 + 1024]);
///
/// let sum = merge(sum, run("bytes", "main;idle", 8))?;
/// assert_eq!(sum.samples.len(), 2);
/// # Ok::<(), Error>(())
/// ```
///
/// # Errors
/// * Returns the first error among `profiles`, which ends the merge.
/// * Returns [`Error::Incompatible`] when there is no profile, when two profiles share no sample
///   type or were sampled by different types of period, or when the units of a type do not convert
///   into each other.
/// * Returns [`Error::Overflow`] when a sum, a period or a value in its finer unit does not fit in
///   64 bits, or when there are more than 2^32 samples.
pub fn merge_all<E: From<Error>>(
    profiles: impl IntoIterator<Item = Result<Profile, E>>,
) -> Result<Profile, E> {
    let mut merger: Option<ProfileMerger> = None;
    for profile in profiles {
        let profile = profile?;
        match &mut merger {
            None => {
                let mut first = ProfileMerger::new(&profile, MergeRules::Ours);
                first.add(&profile)?;
                merger = Some(first);
            }
            Some(merger) => {
                let profile = merger.agree(profile)?;
                merger.add(&profile)?;
            }
        }
    }
    let merger = merger.ok_or_else(|| Error::Incompatible("there is no profile".to_string()))?;
    Ok(merger.finish())
}

/// Key that identifies a mapping of a file in all runs: its size rounded up to pages, its offset,
/// and the file's build id. The file name replaces a missing build id.
type MappingKey = (u64, u64, StringId);

fn mapping_key(m: &Mapping) -> MappingKey {
    let size = m.memory_limit.wrapping_sub(m.memory_start);
    let file = match m.build_id {
        StringId::EMPTY => m.filename,
        build_id => build_id,
    };
    (size.wrapping_add(0xfff) & !0xfff, m.file_offset, file)
}

/// Rules for merging: how locations are compared, and what happens to sums beyond 64 bits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MergeRules {
    /// Locations with any difference in their lines are different. A sum beyond 64 bits is an
    /// error.
    Ours,
    /// Locations are compared as in pprof, and sums wrap.
    Pprof,
}

struct ProfileMerger {
    builder: ProfileBuilder,
    rules: MergeRules,
    /// Whether the sum holds a profile already.
    begun: bool,
    mapping_key: HashMap<MappingKey, MappingIndex>,
    sample_index: HashTable<u32>,
    hasher: RandomState,
}

impl ProfileMerger {
    fn new(first: &Profile, rules: MergeRules) -> Self {
        let types: Vec<(&str, &str)> = first
            .sample_type
            .iter()
            .map(|t| (first.text(t.r#type), first.text(t.unit)))
            .collect();
        Self {
            builder: ProfileBuilder::new(&types),
            rules,
            begun: false,
            mapping_key: HashMap::default(),
            sample_index: HashTable::new(),
            hasher: RandomState::default(),
        }
    }

    /// Reduces the sum and `profile` to their common sample types. Each type gets the finer of its
    /// two units.
    fn agree(&mut self, mut profile: Profile) -> Result<Profile, Error> {
        let name = |p: &Profile, t: &ValueType| p.text(t.r#type).to_string();
        let sum = &mut self.builder.profile;
        agree_names(sum, &mut profile);
        let ours: Vec<String> = sum.sample_type.iter().map(|t| name(sum, t)).collect();
        let theirs: Vec<String> = profile
            .sample_type
            .iter()
            .map(|t| name(&profile, t))
            .collect();
        let shared: Vec<(usize, usize)> = ours
            .iter()
            .enumerate()
            .filter_map(|(i, name)| Some((i, theirs.iter().position(|n| n == name)?)))
            .collect();
        if shared.is_empty() {
            return Err(Error::Incompatible(format!(
                "the profiles share no sample type ({} and {})",
                ours.join(", "),
                theirs.join(", ")
            )));
        }
        let lost = |names: &[String], kept: &dyn Fn(usize) -> bool| -> Vec<Warning> {
            (0..names.len())
                .filter(|&i| !kept(i))
                .map(|i| Warning::TypeLeftOut(names[i].clone()))
                .collect()
        };
        let mut warnings = lost(&ours, &|i| shared.iter().any(|s| s.0 == i));
        warnings.extend(lost(&theirs, &|i| shared.iter().any(|s| s.1 == i)));
        for warning in warnings {
            if !sum.warnings.contains(&warning) {
                sum.warnings.push(warning);
            }
        }
        sum.keep_types(&shared.iter().map(|s| s.0).collect::<Vec<_>>());
        profile.keep_types(&shared.iter().map(|s| s.1).collect::<Vec<_>>());
        for i in 0..shared.len() {
            finer_unit(sum, &mut profile, i)?;
        }
        Ok(profile)
    }

    fn add(&mut self, profile: &Profile) -> Result<(), Error> {
        match self.rules {
            MergeRules::Ours => self.header(profile)?,
            MergeRules::Pprof => as_pprof::header(&mut self.builder.profile, profile, !self.begun),
        }
        self.begun = true;
        // Each entry is moved when a sample first needs it, so unused entries are not in the sum.
        // The main binary is always moved.
        let mut moved = MergedPositions::new(profile);
        if self.builder.profile.mapping.is_empty() && !profile.mapping.is_empty() {
            self.move_mapping(&mut moved, MappingIndex(0));
        }
        let mut stack = Vec::new();
        for i in 0..profile.samples.len() {
            let of_none = match self.rules {
                MergeRules::Ours => profile.samples.is_nothing(i),
                MergeRules::Pprof => profile.samples.values(i).iter().all(|&v| v == 0),
            };
            if of_none {
                continue;
            }
            stack.clear();
            for &l in profile.samples.stack(i) {
                stack.push(match moved.location[l.index()] {
                    Some(known) => known,
                    None => self.move_location(&mut moved, l),
                });
            }
            let set = profile.samples.label_set(i);
            let set = match moved.label_set[set.index()] {
                Some(known) => known,
                None => self.move_labels(&mut moved, set),
            };
            let sample = self.add_sample(&stack, set, profile.samples.values(i))?;
            if let Some(spread) = profile.samples.spread(i)
                && self.rules == MergeRules::Ours
            {
                let sum = &mut self.builder.profile.samples;
                let at = sample * sum.width;
                sum.spread_mut().add(at, spread);
            }
        }
        Ok(())
    }

    fn move_text(&mut self, moved: &mut MergedPositions<'_>, id: StringId) -> StringId {
        let from = moved.profile;
        *moved.string[id.index()].get_or_insert_with(|| self.builder.text(from.text(id)))
    }

    /// Adds a mapping to the sum, if it is new. Returns the mapping's index in the sum, and the
    /// offset to add to the mapping's addresses.
    fn move_mapping(
        &mut self,
        moved: &mut MergedPositions<'_>,
        index: MappingIndex,
    ) -> (MappingIndex, u64) {
        if let Some(known) = moved.mapping[index.index()] {
            return known;
        }
        let m = moved.profile.mapping[index.index()];
        let copy = Mapping {
            filename: self.move_text(moved, m.filename),
            build_id: self.move_text(moved, m.build_id),
            ..m
        };
        let key = mapping_key(&copy);
        let builder = &mut self.builder;
        let new = *self
            .mapping_key
            .entry(key)
            .or_insert_with(|| builder.mapping(copy));
        let start = builder.profile.mapping[new.index()].memory_start;
        let known = (new, start.wrapping_sub(m.memory_start));
        moved.mapping[index.index()] = Some(known);
        known
    }

    fn move_function(
        &mut self,
        moved: &mut MergedPositions<'_>,
        index: FunctionIndex,
    ) -> FunctionIndex {
        if let Some(known) = moved.function[index.index()] {
            return known;
        }
        let f = moved.profile.function[index.index()];
        let copy = Function {
            name: self.move_text(moved, f.name),
            system_name: self.move_text(moved, f.system_name),
            filename: self.move_text(moved, f.filename),
            ..f
        };
        let new = self.builder.function(copy);
        moved.function[index.index()] = Some(new);
        new
    }

    fn move_location(
        &mut self,
        moved: &mut MergedPositions<'_>,
        index: LocationIndex,
    ) -> LocationIndex {
        let from = moved.profile;
        let l = &from.location[index.index()];
        let (mapping, shift) = match l.mapping {
            Some(m) => {
                let (mapping, shift) = self.move_mapping(moved, m);
                (Some(mapping), shift)
            }
            None => (None, 0),
        };
        let mut lines = Vec::new();
        for line in from.lines(l) {
            lines.push(Line {
                function: self.move_function(moved, line.function),
                ..*line
            });
        }
        let moves = self.rules == MergeRules::Pprof
            || l.mapping
                .is_some_and(|m| holds(&from.mapping[m.index()], l.address));
        let address = l.address.wrapping_add(if moves { shift } else { 0 });
        let mut key: Box<[Line]> = lines.as_slice().into();
        if self.rules == MergeRules::Pprof
            && let Some((_, inlined)) = key.split_last_mut()
        {
            inlined.iter_mut().for_each(|line| line.column = 0);
        }
        let new = self
            .builder
            .location_by(key, mapping, address, l.is_folded, &lines);
        moved.location[index.index()] = Some(new);
        new
    }

    fn move_labels(
        &mut self,
        moved: &mut MergedPositions<'_>,
        index: LabelSetIndex,
    ) -> LabelSetIndex {
        let from = moved.profile;
        let mut labels = Vec::new();
        for l in from.label_sets.get(index) {
            labels.push(Label {
                key: self.move_text(moved, l.key),
                str: self.move_text(moved, l.str),
                num_unit: self.move_text(moved, l.num_unit),
                ..*l
            });
        }
        let new = self.builder.label_set(&mut labels);
        moved.label_set[index.index()] = Some(new);
        new
    }

    fn header(&mut self, other: &Profile) -> Result<(), Error> {
        let text = |id| other.text(id).to_string();
        let builder = &mut self.builder;
        let comments: Vec<StringId> = other
            .comment
            .iter()
            .map(|&c| text(c))
            // A curve of one process does not describe a sum.
            .filter(|comment| !is_for_machines(comment))
            .map(|comment| builder.text(&comment))
            .collect();
        let drop_frames = builder.text(&text(other.drop_frames));
        let keep_frames = builder.text(&text(other.keep_frames));
        let default = builder.text(&text(other.default_sample_type));
        let doc_url = builder.text(&text(other.doc_url));
        let period_type = other
            .period_type
            .map(|t| builder.value_type(&text(t.r#type), &text(t.unit)));
        let sum = &mut builder.profile;
        match (sum.period_type, period_type) {
            (None, theirs) => sum.period_type = theirs,
            (Some(a), Some(b)) if a.r#type != b.r#type => {
                return Err(Error::Incompatible(format!(
                    "one was sampled by {}, another by {}",
                    sum.text(a.r#type),
                    sum.text(b.r#type)
                )));
            }
            _ => {}
        }
        // The period of `other`, in the unit of the sum's period.
        let factor =
            |unit: StringId, p: &Profile| Unit::parse(p.text(unit)).map_or(1, |u| u.factor);
        let theirs = match (sum.period_type, other.period_type) {
            (Some(ours), Some(theirs)) => {
                let (from, to) = (factor(theirs.unit, other), factor(ours.unit, sum));
                i128::from(other.period) * i128::from(from) / i128::from(to)
            }
            _ => i128::from(other.period),
        };
        let theirs = i64::try_from(theirs).map_err(|_| Error::Overflow {
            what: "a period".to_string(),
        })?;
        if sum.period != 0 && theirs != 0 && sum.period != theirs {
            sum.warnings.retain(|w| *w != Warning::Periods);
            sum.warnings.push(Warning::Periods);
        }
        sum.period = sum.period.max(theirs);
        for comment in comments {
            if !sum.comment.contains(&comment) {
                sum.comment.push(comment);
            }
        }
        if sum.drop_frames.is_empty() && sum.samples.is_empty() {
            sum.drop_frames = drop_frames;
            sum.keep_frames = keep_frames;
        }
        if sum.default_sample_type.is_empty() {
            sum.default_sample_type = default;
        } else if [sum.default_sample_type, default].map(|id| sum.text(id)) == [PEAK, IN_USE] {
            // A sum of peaks and of other moments would be neither.
            sum.default_sample_type = default;
        }
        if sum.doc_url.is_empty() {
            sum.doc_url = doc_url;
        }
        sum.time_nanos = match (sum.time_nanos, other.time_nanos) {
            (0, time) | (time, 0) => time,
            (a, b) => a.min(b),
        };
        sum.duration_nanos = sum
            .duration_nanos
            .checked_add(other.duration_nanos)
            .ok_or_else(|| Error::Overflow {
                what: "the sum of the durations".to_string(),
            })?;
        for warning in &other.warnings {
            if !sum.warnings.contains(warning) {
                sum.warnings.push(warning.clone());
            }
        }
        Ok(())
    }

    fn add_sample(
        &mut self,
        stack: &[LocationIndex],
        set: LabelSetIndex,
        values: &[i64],
    ) -> Result<usize, Error> {
        let (samples, hasher) = (&mut self.builder.profile.samples, &self.hasher);
        let hash = |stack: &[LocationIndex], set: LabelSetIndex| hasher.hash_one((stack, set));
        let same =
            |&i: &u32| samples.label_set(i as usize) == set && samples.stack(i as usize) == stack;
        if let Some(&i) = self.sample_index.find(hash(stack, set), same) {
            let at = i as usize * samples.width;
            for (sum, value) in samples.value[at..].iter_mut().zip(values) {
                *sum = match self.rules {
                    MergeRules::Pprof => sum.wrapping_add(*value),
                    MergeRules::Ours => sum.checked_add(*value).ok_or_else(|| Error::Overflow {
                        what: "a merged sample's value".to_string(),
                    })?,
                };
            }
            return Ok(i as usize);
        }
        let i = u32::try_from(samples.len()).map_err(|_| Error::Overflow {
            what: "the number of merged samples".to_string(),
        })?;
        samples.push(stack.iter().copied(), values, set);
        self.sample_index.insert_unique(hash(stack, set), i, |&i| {
            hash(samples.stack(i as usize), samples.label_set(i as usize))
        });
        Ok(i as usize)
    }

    fn finish(self) -> Profile {
        let mut profile = self.builder.finish();
        let kept = |t: &ValueType| t.r#type == profile.default_sample_type;
        if !profile.sample_type.iter().any(kept) {
            profile.default_sample_type = StringId::EMPTY;
        }
        profile.drop_zero_samples();
        profile
    }
}

/// Positions that the table entries of an added profile have in the sum.
struct MergedPositions<'a> {
    profile: &'a Profile,
    string: Vec<Option<StringId>>,
    mapping: Vec<Option<(MappingIndex, u64)>>,
    function: Vec<Option<FunctionIndex>>,
    location: Vec<Option<LocationIndex>>,
    label_set: Vec<Option<LabelSetIndex>>,
}

impl<'a> MergedPositions<'a> {
    fn new(profile: &'a Profile) -> Self {
        Self {
            profile,
            string: vec![None; profile.strings.len()],
            mapping: vec![None; profile.mapping.len()],
            function: vec![None; profile.function.len()],
            location: vec![None; profile.location.len()],
            label_set: vec![None; profile.label_sets.len()],
        }
    }
}

/// Whether an address lies in the mapping `m`. Other addresses do not move with the mapped file,
/// for example the address 0, which stands for a missing address.
fn holds(m: &Mapping, address: u64) -> bool {
    m.memory_start <= address && address < m.memory_limit
}

impl Profile {
    /// Keeps the sample types at these positions, in this order.
    pub(crate) fn keep_types(&mut self, keep: &[usize]) {
        if keep.iter().copied().eq(0..self.sample_type.len()) {
            return;
        }
        let samples = &mut self.samples;
        let width = samples.width.max(1);
        samples.value = samples
            .value
            .chunks(width)
            .flat_map(|values| keep.iter().map(|&k| values[k]))
            .collect();
        if let Some(spread) = &mut samples.spread {
            spread.keep_types(width, keep);
        }
        samples.width = keep.len();
        self.sample_type = keep.iter().map(|&k| self.sample_type[k]).collect();
    }

    /// Removes the samples whose values are all exactly 0.
    pub(crate) fn drop_zero_samples(&mut self) {
        let samples = &self.samples;
        let nothing: Vec<bool> = (0..samples.len()).map(|i| samples.is_nothing(i)).collect();
        if nothing.contains(&true) {
            let mut nothing = nothing.into_iter();
            self.samples.retain(|_| !nothing.next().unwrap_or(false));
        }
    }
}
