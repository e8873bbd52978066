//! A question about some profiles: the data that every report and every virtual table is made from.
//!
//! Each computation runs once, when a table that needs the results is first read. All tables of the
//! question share the results.

mod tree;

use std::sync::{Arc, OnceLock};

use heapprof_profile::{LocationIndex, Profile};

pub(crate) use self::tree::TreeBelow;
pub use self::tree::TreeOptions;
use crate::error::AnalysisError;
use crate::forks::{self, ForkTables};
use crate::moments::{self, MomentRow, SizeRow};
use crate::part::find_whole_spread;
pub(crate) use crate::part::{QuestionPart, is_counted, is_heap, is_peak};
use crate::stack_table::StackTable;
use crate::suppression::SuppressionSet;
use heapprof_totals::call_tree::{CallTree, EntityStacks};
use heapprof_totals::entity::EntityTable;
use heapprof_totals::estimate::SumSpread;
use heapprof_totals::filter::LabelKeys;
use heapprof_totals::import_chain::fold_imports;
use heapprof_totals::module::{self, FunctionModule};
use heapprof_totals::neighbours::{self, NeighbourSums};
use heapprof_totals::note::FilterNote;
use heapprof_totals::query::Query;
use heapprof_totals::same_name::FileEnds;
use heapprof_totals::totals::{self, EntityTotals, TotalAndNet};
use heapprof_totals::view::ProfileView;

/// A profile with the name that reports show.
#[derive(Clone, Debug)]
pub struct QuestionSource {
    /// The name that reports show.
    pub name: String,
    /// The profile.
    pub profile: Arc<Profile>,
    /// The totals by sample type before equal samples were merged; `None` if no samples were
    /// merged.
    pub totals: Option<Vec<TotalAndNet>>,
}

/// Puts the moments of a series in the order of time, if all of them have a time.
pub fn in_order_of_time(sources: &mut [QuestionSource]) {
    if sources.iter().all(|source| source.profile.time_nanos != 0) {
        sources.sort_by_key(|source| source.profile.time_nanos);
    }
}

impl QuestionSource {
    /// Makes a source from a profile as it was read.
    pub fn new(name: impl Into<String>, profile: impl Into<Arc<Profile>>) -> Self {
        Self {
            name: name.into(),
            profile: profile.into(),
            totals: None,
        }
    }
}

/// Makes two profiles comparable. Sample types that both profiles have get the same name and the
/// finer of their units. Files that both profiles map get the addresses that they have in the first
/// profile.
pub fn agree(a: &mut QuestionSource, b: &mut QuestionSource) -> Result<(), AnalysisError> {
    let units = |p: &Profile| -> Vec<String> {
        p.sample_type
            .iter()
            .map(|t| p.text(t.unit).to_string())
            .collect()
    };
    let (before_a, before_b) = (units(&a.profile), units(&b.profile));
    let (x, y) = (Arc::make_mut(&mut a.profile), Arc::make_mut(&mut b.profile));
    heapprof_profile::agree_units(x, y).map_err(|error| AnalysisError::InProfile {
        name: format!("{} and {}", a.name, b.name),
        error: Box::new(error.into()),
    })?;
    heapprof_profile::agree_addresses(x, y);
    for (source, before) in [(a, before_a), (b, before_b)] {
        // The known totals are in the old unit.
        if units(&source.profile) != before {
            source.totals = None;
        }
    }
    Ok(())
}

/// The sample types that are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TypeSelection {
    /// The sample type that the query asks for.
    Requested,
    /// All sample types.
    All,
    /// Objects and space in use, in this order. If the query asks for objects or space of another
    /// kind, such as an interpreter's values (`sv_inuse_space`) or leaked blocks (`leaked_space`),
    /// the two types are of that kind. If the query asks for neither objects nor space, rows are
    /// ordered by space.
    InUse,
}

/// Returns the sample types of objects and of space in use. They are of the same kind as the
/// requested type.
fn in_use(profile: &Profile, asked: Option<&str>) -> Result<Vec<usize>, AnalysisError> {
    let kind = match asked.and_then(|asked| asked.rsplit_once('_')) {
        Some((kind, "objects" | "space")) => kind,
        _ => "inuse",
    };
    let find = |of| match profile.find_sample_type(&format!("{kind}_{of}")) {
        Ok(at) => Ok(at),
        Err(error) => Err(AnalysisError::NotInUse {
            missing: error.asked,
            present: error.present,
        }),
    };
    Ok(vec![find("objects")?, find("space")?])
}

/// Returns the name of the sample type to show of several profiles whose default types differ;
/// `None` if each profile can show its own.
fn default_of_different(sources: &[QuestionSource]) -> Option<&'static str> {
    let default = |source: &QuestionSource| {
        let profile = &source.profile;
        let at = profile.default_sample_type_index();
        let found = profile.sample_type.get(at);
        found.map_or_else(String::new, |t| profile.text(t.r#type).to_string())
    };
    let defaults: Vec<String> = sources.iter().map(default).collect();
    let is_common = defaults.windows(2).all(|pair| pair[0] == pair[1]);
    (!is_common).then_some(heapprof_profile::IN_USE)
}

/// Profiles with a query, ready to be read through tables.
pub struct ProfileQuestion {
    pub(crate) parts: Vec<QuestionPart>,
    pub(crate) table: EntityTable,
    /// The distinct sample types, each as name and unit.
    pub(crate) types: Vec<(String, String)>,
    pub(crate) label_keys: LabelKeys,
    tree_options: TreeOptions,
    ranks: OnceLock<Vec<u32>>,
    file_ends: OnceLock<FileEnds>,
    stacks: OnceLock<EntityStacks>,
    tree: OnceLock<Result<CallTree, heapprof_totals::TotalsError>>,
    samples: OnceLock<SampleTable>,
    neighbours: OnceLock<Vec<NeighbourSums>>,
    labels: OnceLock<Vec<LabelRow>>,
    modules: OnceLock<Vec<FunctionModule>>,
    moments: OnceLock<Vec<MomentRow>>,
    sizes: OnceLock<Vec<SizeRow>>,
    forks: OnceLock<ForkTables>,
    wanted: Vec<bool>,
}

/// A row about one label of a label set of a profile.
pub(crate) struct LabelRow {
    pub(crate) part: usize,
    /// The number of the label set, counted over all profiles.
    pub(crate) set: u32,
    pub(crate) position: usize,
    pub(crate) label: heapprof_profile::Label,
}

/// Distinct stacks, and for each block (one sample type of one profile) its sums by stack and label
/// set.
pub(crate) struct SampleTable {
    pub(crate) stacks: StackTable,
    pub(crate) blocks: Vec<Vec<(u32, u32, i64)>>,
    /// The spread of each row of a block, if the block's values are estimates.
    pub(crate) spread: Vec<Option<Vec<SumSpread>>>,
}

impl ProfileQuestion {
    /// Makes a question from profiles and a query. Compiles the filters for each profile and finds
    /// the possible rows. Adds up only the totals, because they bound all other sums.
    pub fn new(
        sources: Vec<QuestionSource>,
        query: &Query,
        types: TypeSelection,
    ) -> Result<Self, AnalysisError> {
        let texts = sources
            .first()
            .map(|s| s.profile.strings.clone())
            .unwrap_or_default();
        let mut table = EntityTable::new(query.granularity, texts);
        let mut names: Vec<(String, String)> = Vec::new();
        let mut parts = Vec::with_capacity(sources.len());
        let default = default_of_different(&sources);
        for source in sources {
            let profile = match query.own_code && !query.all_frames {
                true => fold_imports(&source.profile).map_or(source.profile, Arc::new),
                false => source.profile,
            };
            let within = |error: AnalysisError| AnalysisError::InProfile {
                name: source.name.clone(),
                error: Box::new(error),
            };
            if profile.sample_type.is_empty() {
                return Err(within(AnalysisError::NoTypes));
            }
            let in_use = match types {
                TypeSelection::InUse => {
                    in_use(&profile, query.sample_type.as_deref()).map_err(within)?
                }
                TypeSelection::Requested | TypeSelection::All => Vec::new(),
            };
            let column = match &query.sample_type {
                Some(asked) => profile
                    .find_sample_type(asked)
                    .map_err(|e| within(e.into()))?,
                None => default
                    .or(query.keeps_in_use.then_some(heapprof_profile::IN_USE))
                    .and_then(|name| profile.find_sample_type(name).ok())
                    .unwrap_or_else(|| profile.default_sample_type_index()),
            };
            let column = match in_use.last() {
                Some(&space) if !in_use.contains(&column) => space,
                _ => column,
            };
            let columns = match types {
                TypeSelection::Requested => vec![column],
                TypeSelection::All => (0..profile.sample_type.len()).collect(),
                TypeSelection::InUse => in_use,
            };
            let whole = match source.totals {
                Some(stored) => columns.iter().map(|&c| stored[c]).collect(),
                None => totals::whole_totals(&profile, &columns).map_err(|e| within(e.into()))?,
            };
            let sums = columns.iter().zip(&whole);
            let known = sums
                .map(|(&c, &total)| find_whole_spread(&profile, c, total))
                .collect();
            let part_types =
                profile
                    .sample_type
                    .iter()
                    .fold(Vec::new(), |mut types: Vec<usize>, t| {
                        let name = (
                            profile.text(t.r#type).to_string(),
                            profile.text(t.unit).to_string(),
                        );
                        // Two types of one profile stay separate, even if they have the same name.
                        let known =
                            (0..names.len()).find(|n| names[*n] == name && !types.contains(n));
                        types.push(known.unwrap_or_else(|| {
                            names.push(name);
                            names.len() - 1
                        }));
                        types
                    });
            let view = ProfileView::new(&profile, query)?;
            let mapped = table.add(&profile, &view.frames);
            parts.push(QuestionPart {
                name: source.name,
                profile,
                view,
                entities: mapped,
                types: part_types,
                column,
                columns,
                whole,
                whole_spreads: known,
                totals: OnceLock::new(),
            });
        }
        if parts.len() > 1 {
            let mut mapped: Vec<_> = parts.iter_mut().map(|part| &mut part.entities).collect();
            table.match_functions(&mut mapped);
        }
        Ok(Self {
            label_keys: LabelKeys::new(&query.filters)?,
            parts,
            table,
            types: names,
            tree_options: TreeOptions {
                reverse: false,
                least: 0.0,
                most: None,
            },
            ranks: OnceLock::new(),
            file_ends: OnceLock::new(),
            stacks: OnceLock::new(),
            tree: OnceLock::new(),
            samples: OnceLock::new(),
            neighbours: OnceLock::new(),
            labels: OnceLock::new(),
            modules: OnceLock::new(),
            moments: OnceLock::new(),
            sizes: OnceLock::new(),
            forks: OnceLock::new(),
            wanted: Vec::new(),
        })
    }

    /// Sets the options of the call tree.
    pub fn with_tree(mut self, options: TreeOptions) -> Self {
        self.tree_options = options;
        self
    }

    /// Leaves out the samples that the rules suppress.
    pub fn with_suppressions(mut self, suppressions: &SuppressionSet) -> Self {
        if !suppressions.rules().is_empty() {
            for part in &mut self.parts {
                let rule = suppressions.rules_by_location(&part.profile);
                part.view.suppress(rule);
            }
        }
        self
    }

    /// Keeps only the neighbours of entities whose name (or file) satisfies `wants`.
    pub fn with_neighbours_of(mut self, wants: impl Fn(&str) -> bool) -> Self {
        self.wanted = (0..self.table.entity.len() as u32)
            .map(|e| wants(self.table.name(e)))
            .collect();
        self
    }

    pub(crate) fn tree_options(&self) -> TreeOptions {
        self.tree_options
    }

    /// Returns the notes about the filters that the user should see.
    pub fn notes(&self) -> Vec<FilterNote> {
        let mut notes: Vec<FilterNote> = Vec::new();
        for part in &self.parts {
            for note in part.view.notes() {
                if !notes.contains(note) {
                    notes.push(note.clone());
                }
            }
        }
        // With several profiles, a filter that matches in one of them needs no note.
        if self.parts.len() > 1 {
            notes.retain(|n| self.parts.iter().all(|p| p.view.notes().contains(n)));
        }
        notes
    }

    /// Returns the histories of all profiles of the question.
    pub(crate) fn moments(&self) -> &[MomentRow] {
        let each = self.parts.iter().enumerate();
        let rows = || each.flat_map(|(at, part)| moments::moments(at, &part.profile));
        self.moments.get_or_init(|| rows().collect())
    }

    /// Returns the size histograms of all profiles of the question.
    pub(crate) fn sizes(&self) -> &[SizeRow] {
        let each = self.parts.iter().enumerate();
        let rows = || each.flat_map(|(at, part)| moments::sizes(at, &part.profile));
        self.sizes.get_or_init(|| rows().collect())
    }

    /// Returns the rows of an audit of forked children.
    pub(crate) fn forks(&self) -> &ForkTables {
        self.forks
            .get_or_init(|| forks::forks(&self.parts, &self.table))
    }

    /// Returns the number of characters at the end of a function's file that distinguish the
    /// function from other functions with the same name.
    pub(crate) fn file_end(&self, function: usize) -> u32 {
        let ends = self.file_ends.get_or_init(|| self.table.file_ends());
        let name = self.table.function[function].name;
        ends.end_length(name, self.table.file_of(function))
    }

    pub(crate) fn ranks(&self) -> &[u32] {
        self.ranks.get_or_init(|| self.table.ranks())
    }

    pub(crate) fn totals(&self, part: usize) -> &EntityTotals {
        let part = &self.parts[part];
        part.totals.get_or_init(|| {
            totals::totals(
                &part.profile,
                &part.view,
                &part.entities.entity,
                self.table.entity.len(),
                self.table.empty_stack,
                &part.columns,
            )
        })
    }

    /// Returns the blocks of rows: each computed sample type of each profile, as the number of the
    /// part and the type's position in `columns`.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = (usize, usize)> {
        let parts = self.parts.iter().enumerate();
        parts.flat_map(|(p, part)| (0..part.columns.len()).map(move |c| (p, c)))
    }

    /// Returns the number of the block of a profile's sample type. The profile and the type are
    /// numbered from 1.
    pub(crate) fn block(&self, profile: i64, r#type: i64) -> Option<usize> {
        self.blocks().position(|(p, c)| {
            let part = &self.parts[p];
            p as i64 + 1 == profile && part.types[part.columns[c]] as i64 + 1 == r#type
        })
    }

    /// Returns the samples of all parts as stacks of entities. The values of each part are in
    /// columns of their own.
    fn entity_stacks(&self) -> EntityStacks {
        let width = self.parts.iter().map(|p| p.columns.len()).sum();
        let mut all = EntityStacks {
            width,
            ..EntityStacks::default()
        };
        let mut before = 0;
        let mut stack = Vec::new();
        // More is reserved than filters leave, but memory that is never touched costs nothing.
        let each = || self.parts.iter().map(|part| &part.profile.samples);
        let count: usize = each().map(|samples| samples.len()).sum();
        all.entity
            .reserve(each().map(|samples| samples.frames()).sum());
        all.end.reserve(count);
        all.value.reserve(count.saturating_mul(width));
        for part in &self.parts {
            let samples = &part.profile.samples;
            for i in 0..samples.len() {
                let values = samples.values(i);
                let any = part.columns.iter().any(|&c| values[c] != 0);
                if !any || !part.view.stack(samples, i, &mut stack) {
                    continue;
                }
                if stack.is_empty() {
                    all.entity.push(self.table.empty_stack);
                }
                let entity = |&f: &u32| part.entities.entity[f as usize];
                all.entity.extend(stack.iter().map(entity));
                all.end.push(all.entity.len());
                let at = all.value.len() + before;
                all.value.resize(all.value.len() + width, 0);
                for (value, &column) in all.value[at..].iter_mut().zip(&part.columns) {
                    *value = values[column];
                }
            }
            before += part.columns.len();
        }
        all
    }

    pub(crate) fn samples(&self) -> &SampleTable {
        self.samples.get_or_init(|| {
            let all = self.entity_stacks();
            let (stacks, stack_of) = StackTable::new(&all, self.ranks());
            let (mut blocks, mut spread) = (Vec::new(), Vec::new());
            let mut first = 0;
            let (mut before, mut base) = (0, 0u32);
            for part in &self.parts {
                // These are the samples of this part that `entity_stacks` kept, in the same order.
                let samples = &part.profile.samples;
                let mut stack = Vec::new();
                let taken: Vec<(usize, u32)> = (0..samples.len())
                    .filter(|&i| {
                        let any = part.columns.iter().any(|&c| samples.values(i)[c] != 0);
                        any && part.view.stack(samples, i, &mut stack)
                    })
                    .map(|i| match samples.label_set(i).0 {
                        0 => (i, 0),
                        set => (i, base + set),
                    })
                    .collect();
                for c in 0..part.columns.len() {
                    let mut rows: Vec<(u32, u32, i64)> = taken
                        .iter()
                        .enumerate()
                        .map(|(n, &(_, set))| {
                            let value = all.values(first + n)[before + c];
                            (stack_of[first + n], set, value)
                        })
                        .filter(|row| row.2 != 0)
                        .collect();
                    rows.sort_unstable();
                    // The total bounds this sum, as it bounds all others.
                    rows.dedup_by(|next, kept| {
                        let same = (next.0, next.1) == (kept.0, kept.1);
                        if same {
                            kept.2 += next.2;
                        }
                        same
                    });
                    rows.retain(|row| row.2 != 0);
                    spread.push(part.whole_spreads[c].map(|_| {
                        let mut of_rows = vec![SumSpread::default(); rows.len()];
                        for (n, &(i, set)) in taken.iter().enumerate() {
                            let row = (stack_of[first + n], set);
                            if let Ok(at) = rows.binary_search_by_key(&row, |r| (r.0, r.1)) {
                                let own = totals::spread_of(&part.profile, i, part.columns[c]);
                                of_rows[at] = of_rows[at].combine(own);
                            }
                        }
                        of_rows
                    }));
                    blocks.push(rows);
                }
                first += taken.len();
                before += part.columns.len();
                base += part.profile.label_sets.len() as u32 - 1;
            }
            SampleTable {
                stacks,
                blocks,
                spread,
            }
        })
    }

    /// Returns the row of the function table for code without a name at a location of the first
    /// profile; `None` if all code at the location has a name.
    pub(crate) fn stand_in(&self, location: LocationIndex) -> Option<u32> {
        let (part, table) = (&self.parts[0], &self.table);
        let (frames, profile) = (&part.view.frames, &part.profile);
        let nameless = frames.frames_of(location).find(|&frame| {
            let function = frames.get(frame).function(profile);
            function.is_none_or(|f| profile.function[f.index()].name.is_empty())
        })?;
        Some(table.entity[part.entities.entity[nameless as usize] as usize].function)
    }

    /// Returns the module of each function.
    pub(crate) fn modules(&self) -> &[FunctionModule] {
        self.modules.get_or_init(|| {
            let parts = self.parts.iter();
            let parts = parts.map(|part| (&*part.profile, &part.view.frames, &part.entities));
            module::modules_of_functions(parts, &self.table)
        })
    }

    /// Returns all labels of all parts. The label sets of all parts are numbered one after the
    /// other.
    pub(crate) fn labels(&self) -> &[LabelRow] {
        self.labels.get_or_init(|| {
            let mut rows = Vec::new();
            let mut base = 0;
            for (part, p) in self.parts.iter().enumerate() {
                let sets = &p.profile.label_sets;
                for set in 1..sets.len() as u32 {
                    let labels = sets.get(heapprof_profile::LabelSetIndex(set)).iter();
                    rows.extend(labels.enumerate().map(|(position, &label)| LabelRow {
                        part,
                        set: base + set,
                        position,
                        label,
                    }));
                }
                base += sets.len() as u32 - 1;
            }
            rows
        })
    }

    /// Returns the callers and callees of the entities that
    /// [`with_neighbours_of`](Self::with_neighbours_of) selected, for each sample type of each
    /// profile. Without a selection, returns them for all entities.
    pub(crate) fn neighbours(&self) -> &[NeighbourSums] {
        self.neighbours.get_or_init(|| {
            let all = vec![true; self.table.entity.len()];
            let wanted = if self.wanted.is_empty() {
                &all
            } else {
                &self.wanted
            };
            self.blocks()
                .map(|(p, c)| {
                    let part = &self.parts[p];
                    let entity = &part.entities.entity;
                    let column = part.columns[c];
                    neighbours::neighbours(&part.profile, &part.view, entity, wanted, column)
                })
                .collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_that_counts_nothing_is_refused() {
        let source = QuestionSource::new("empty", Profile::default());
        let error = ProfileQuestion::new(vec![source], &Query::default(), TypeSelection::All);
        let error = error.err().map(|error| error.to_string());
        let expected = "empty: has no sample types, so there is nothing to report";
        assert_eq!(error.as_deref(), Some(expected));
    }
}
