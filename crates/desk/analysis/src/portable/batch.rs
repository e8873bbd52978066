//! Profiles as rows of the portable tables.

use std::collections::BTreeMap;
use std::sync::Arc;

use foldhash::{HashMap, HashSet};
use heapprof_profile::{LabelSetIndex, LocationIndex, Profile, encode};
use heapprof_totals::query::Query;

use super::id::ContentIdHasher;
use super::{ColumnKind, PORTABLE_TABLES, TableForm, table_index};
use crate::error::AnalysisError;
use crate::question::{ProfileQuestion, QuestionSource, TypeSelection};
use crate::store::{check_differs_from_earlier, heap_columns, spread_of_samples};

/// The values of a column.
#[derive(Clone, Debug, PartialEq)]
pub enum ColumnValues {
    /// Whole numbers.
    Int(Vec<i64>),
    /// Whole numbers, or NULL.
    MaybeInt(Vec<Option<i64>>),
    /// Floating-point numbers, or NULL.
    MaybeReal(Vec<Option<f64>>),
    /// Texts.
    Text(Vec<String>),
}

impl ColumnValues {
    /// Returns a column without rows.
    pub(super) fn empty(kind: ColumnKind) -> Self {
        match kind {
            ColumnKind::Int => Self::Int(Vec::new()),
            ColumnKind::MaybeInt => Self::MaybeInt(Vec::new()),
            ColumnKind::MaybeReal => Self::MaybeReal(Vec::new()),
            ColumnKind::Text => Self::Text(Vec::new()),
        }
    }
}

/// A value of one row. A spread fills two columns.
enum BatchCell {
    Int(i64),
    Text(String),
    Spread(Option<(i64, f64)>),
}

impl From<i64> for BatchCell {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<&str> for BatchCell {
    fn from(value: &str) -> Self {
        Self::Text(value.to_string())
    }
}

/// Rows of all tables, without duplicates.
pub struct PortableBatch {
    tables: Vec<Vec<ColumnValues>>,
    /// The ids of the rows that were added, by table.
    seen_ids: Vec<HashSet<i64>>,
    profiles: Vec<i64>,
}

impl Default for PortableBatch {
    fn default() -> Self {
        let empty = |form: &TableForm| {
            let cells = form
                .columns
                .iter()
                .map(|(_, kind)| ColumnValues::empty(*kind));
            cells.collect()
        };
        Self {
            tables: PORTABLE_TABLES.iter().map(empty).collect(),
            seen_ids: PORTABLE_TABLES.iter().map(|_| HashSet::default()).collect(),
            profiles: Vec::new(),
        }
    }
}

/// Returns the number of rows of a table.
pub(super) fn length(columns: &[ColumnValues]) -> usize {
    columns.first().map_or(0, |cells| match cells {
        ColumnValues::Int(cells) => cells.len(),
        ColumnValues::MaybeInt(cells) => cells.len(),
        ColumnValues::MaybeReal(cells) => cells.len(),
        ColumnValues::Text(cells) => cells.len(),
    })
}

impl PortableBatch {
    /// Returns the ids of the profiles in the batch.
    pub fn profiles(&self) -> &[i64] {
        &self.profiles
    }

    /// Returns the number of rows of samples.
    pub fn samples(&self) -> usize {
        let tables = ["heap_sample", "other_sample"];
        tables
            .iter()
            .map(|name| length(&self.tables[table_index(name)]))
            .sum()
    }

    /// Returns a name for the batch, which is computed from the ids of its profiles.
    pub fn name(&self) -> String {
        let mut profiles = self.profiles.clone();
        profiles.sort_unstable();
        let id = profiles
            .iter()
            .fold(ContentIdHasher::for_kind("batch"), |id, &profile| {
                id.number(profile)
            });
        format!("{:016x}", id.finish())
    }

    /// Returns the tables with their columns, sorted by their keys.
    pub fn sorted_tables(&self) -> impl Iterator<Item = (&'static TableForm, Vec<ColumnValues>)> {
        PORTABLE_TABLES
            .iter()
            .zip(&self.tables)
            .map(|(form, columns)| {
                let of_key = form.key.iter().map(|key| {
                    let at = form.columns.iter().position(|(name, _)| name == key);
                    at.unwrap_or_else(|| unreachable!("the column {key}"))
                });
                let key: Vec<usize> = of_key.collect();
                let mut order: Vec<usize> = (0..length(columns)).collect();
                order.sort_by(|&a, &b| {
                    let each = key.iter().map(|&column| match &columns[column] {
                        ColumnValues::Int(cells) => cells[a].cmp(&cells[b]),
                        ColumnValues::Text(cells) => cells[a].cmp(&cells[b]),
                        ColumnValues::MaybeInt(_) | ColumnValues::MaybeReal(_) => {
                            std::cmp::Ordering::Equal
                        }
                    });
                    each.fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then)
                });
                let columns = columns.iter().map(|cells| match cells {
                    ColumnValues::Int(cells) => {
                        ColumnValues::Int(order.iter().map(|&at| cells[at]).collect())
                    }
                    ColumnValues::MaybeInt(cells) => {
                        ColumnValues::MaybeInt(order.iter().map(|&at| cells[at]).collect())
                    }
                    ColumnValues::MaybeReal(cells) => {
                        ColumnValues::MaybeReal(order.iter().map(|&at| cells[at]).collect())
                    }
                    ColumnValues::Text(cells) => {
                        ColumnValues::Text(order.iter().map(|&at| cells[at].clone()).collect())
                    }
                });
                (form, columns.collect())
            })
    }

    /// Adds a row to a table. A spread takes two columns.
    fn row<const N: usize>(&mut self, name: &str, cells: [BatchCell; N]) {
        let mut columns = self.tables[table_index(name)].iter_mut();
        for cell in cells {
            match (columns.next(), cell) {
                (Some(ColumnValues::Int(column)), BatchCell::Int(value)) => column.push(value),
                (Some(ColumnValues::Text(column)), BatchCell::Text(value)) => column.push(value),
                (Some(ColumnValues::MaybeInt(column)), BatchCell::Spread(known)) => {
                    column.push(known.map(|known| known.0));
                    match columns.next() {
                        Some(ColumnValues::MaybeReal(column)) => {
                            column.push(known.map(|known| known.1))
                        }
                        _ => unreachable!("a variance stands behind {name}'s samples"),
                    }
                }
                _ => unreachable!("a cell of {name} is of another kind"),
            }
        }
        debug_assert!(columns.next().is_none());
    }

    /// Adds an id to a table's known ids, and returns whether it is new.
    fn is_new(&mut self, name: &str, id: i64) -> bool {
        self.seen_ids[table_index(name)].insert(id)
    }

    /// Adds a profile under this name, with its labels.
    ///
    /// # Errors
    /// A sum does not fit in 64 bits.
    pub fn add(
        &mut self,
        name: &str,
        profile: &Arc<Profile>,
        labels: &BTreeMap<String, String>,
    ) -> Result<(), AnalysisError> {
        let source = QuestionSource::new(name, Arc::clone(profile));
        let question = ProfileQuestion::new(vec![source], &Query::default(), TypeSelection::All)?;
        let whole = &question.parts[0].whole;
        (0..profile.sample_type.len())
            .try_for_each(|at| check_differs_from_earlier(profile, at))?;
        let types: Vec<i64> = profile
            .sample_type
            .iter()
            .map(|t| self.sample_type(profile.text(t.r#type), profile.text(t.unit)))
            .collect();
        let mut id = ContentIdHasher::for_kind("profile")
            .text(name)
            .number(profile.time_nanos)
            .number(profile.duration_nanos)
            .number(labels.len() as i64);
        for (key, value) in labels {
            id = id.text(key).text(value);
        }
        for (t, total) in types.iter().zip(whole) {
            id = id.number(*t).number(total.total).number(total.net);
        }
        // Equal profiles encode to equal bytes.
        encode(profile, &mut id)?;
        let id = id.finish();
        if !self.is_new("profile", id) {
            return Ok(());
        }
        let mappings = self.mappings(id, profile);
        let functions = self.functions(&question);
        let locations = self.locations(&question, &mappings, &functions);
        let sets = self.label_sets(profile);
        let samples = self.sample_rows(id, &question, &types, &functions, &locations, &sets);
        for (position, &comment) in profile.comment.iter().enumerate() {
            let cells = [
                id.into(),
                (position as i64).into(),
                profile.text(comment).into(),
            ];
            self.row("comment", cells);
        }
        for (position, (&of, total)) in types.iter().zip(whole).enumerate() {
            let numbers = [id, position as i64, of, total.total, total.net];
            self.row("profile_total", numbers.map(BatchCell::Int));
        }
        for (key, value) in labels {
            self.row(
                "profile_label",
                [id.into(), (&**key).into(), (&**value).into()],
            );
        }
        let period = profile.period_type;
        self.row(
            "profile",
            [
                id.into(),
                name.into(),
                profile.time_nanos.into(),
                profile.duration_nanos.into(),
                period.map_or("", |t| profile.text(t.r#type)).into(),
                period.map_or("", |t| profile.text(t.unit)).into(),
                profile.period.into(),
                profile.text(profile.default_sample_type).into(),
                profile.text(profile.drop_frames).into(),
                profile.text(profile.keep_frames).into(),
                profile.text(profile.doc_url).into(),
                samples.into(),
            ],
        );
        self.profiles.push(id);
        Ok(())
    }

    fn sample_type(&mut self, name: &str, unit: &str) -> i64 {
        let id = ContentIdHasher::for_kind("sample_type")
            .text(name)
            .text(unit)
            .finish();
        if self.is_new("sample_type", id) {
            self.row("sample_type", [id.into(), name.into(), unit.into()]);
        }
        id
    }

    fn mappings(&mut self, profile: i64, of: &Profile) -> Vec<i64> {
        let each = of.mapping.iter().enumerate().map(|(position, m)| {
            let numbers = [
                m.memory_start as i64,
                m.memory_limit as i64,
                m.file_offset as i64,
            ];
            let texts = [of.text(m.filename), of.text(m.build_id)];
            let flags = [
                m.has_functions,
                m.has_filenames,
                m.has_line_numbers,
                m.has_inline_frames,
            ];
            let flags = flags.map(i64::from);
            let id = numbers
                .iter()
                .fold(ContentIdHasher::for_kind("mapping"), |id, &n| id.number(n));
            let id = id.text(texts[0]).text(texts[1]);
            let id = flags.iter().fold(id, |id, &n| id.number(n)).finish();
            if self.is_new("mapping", id) {
                self.row(
                    "mapping",
                    [
                        id.into(),
                        numbers[0].into(),
                        numbers[1].into(),
                        numbers[2].into(),
                        texts[0].into(),
                        texts[1].into(),
                        flags[0].into(),
                        flags[1].into(),
                        flags[2].into(),
                        flags[3].into(),
                    ],
                );
            }
            self.row(
                "profile_mapping",
                [profile, position as i64, id].map(BatchCell::Int),
            );
            id
        });
        each.collect()
    }

    /// Adds the functions of a question, and returns the id of each row of the question's function
    /// table.
    fn functions(&mut self, question: &ProfileQuestion) -> Vec<i64> {
        let table = &question.table;
        let rows = table.function.iter().zip(question.modules());
        let each = rows.map(|(f, module)| {
            let texts = [f.name, f.system_name, f.filename].map(|text| table.text(text));
            let id = texts
                .iter()
                .fold(ContentIdHasher::for_kind("function"), |id, text| {
                    id.text(text)
                });
            let id = id.number(f.start_line).text(&module.name);
            let id = id.number(i64::from(module.is_library)).finish();
            if self.is_new("function", id) {
                self.row(
                    "function",
                    [
                        id.into(),
                        texts[0].into(),
                        texts[1].into(),
                        texts[2].into(),
                        f.start_line.into(),
                        (&*module.name).into(),
                        i64::from(module.is_library).into(),
                    ],
                );
            }
            id
        });
        each.collect()
    }

    fn locations(
        &mut self,
        question: &ProfileQuestion,
        mappings: &[i64],
        functions: &[i64],
    ) -> Vec<i64> {
        let part = &question.parts[0];
        let profile = &part.profile;
        let each = profile.location.iter().enumerate().map(|(at, location)| {
            let mapping = location.mapping.map_or(0, |m| mappings[m.index()]);
            let stand_in = question.stand_in(LocationIndex(at as u32));
            let stand_in = stand_in.map_or(0, |function| functions[function as usize]);
            let lines = profile.lines(location).iter();
            let lines: Vec<[i64; 3]> = lines
                .map(|l| {
                    let function = part.entities.function[l.function.index()];
                    [functions[function as usize], l.line, l.column]
                })
                .collect();
            let numbers = [
                mapping,
                location.address as i64,
                i64::from(location.is_folded),
                stand_in,
            ];
            let id = numbers
                .iter()
                .fold(ContentIdHasher::for_kind("location"), |id, &n| id.number(n));
            let id = lines.iter().flatten().fold(id, |id, &n| id.number(n));
            let id = id.finish();
            if self.is_new("location", id) {
                let [mapping, address, is_folded, function] = numbers;
                let cells = [id, mapping, address, is_folded, function];
                self.row("location", cells.map(BatchCell::Int));
                for (position, [function, line, column]) in lines.into_iter().enumerate() {
                    let cells = [id, position as i64, function, line, column];
                    self.row("line", cells.map(BatchCell::Int));
                }
            }
            id
        });
        each.collect()
    }

    /// Adds the label sets of a profile, and returns the id of each label set. The id of the empty
    /// set is 0.
    fn label_sets(&mut self, profile: &Profile) -> Vec<i64> {
        let mut ids = vec![0];
        for set in 1..profile.label_sets.len() as u32 {
            let labels = profile.label_sets.get(LabelSetIndex(set));
            let id = labels
                .iter()
                .fold(ContentIdHasher::for_kind("label_set"), |id, label| {
                    let id = id
                        .text(profile.text(label.key))
                        .text(profile.text(label.str));
                    id.number(label.num).text(profile.text(label.num_unit))
                });
            let id = id.finish();
            if self.is_new("label", id) {
                for (position, label) in labels.iter().enumerate() {
                    self.row(
                        "label",
                        [
                            id.into(),
                            (position as i64).into(),
                            profile.text(label.key).into(),
                            profile.text(label.str).into(),
                            label.num.into(),
                            profile.text(label.num_unit).into(),
                        ],
                    );
                }
            }
            ids.push(id);
        }
        ids
    }

    /// Returns the id of a stack, and adds its rows if it is new.
    fn stack(
        &mut self,
        question: &ProfileQuestion,
        functions: &[i64],
        locations: &[i64],
        stack: &[LocationIndex],
    ) -> i64 {
        let part = &question.parts[0];
        let empty = || {
            functions[question.table.entity[question.table.empty_stack as usize].function as usize]
        };
        if stack.is_empty() {
            if self.is_new("stack_location", 0) {
                self.row("stack_function", [0, empty(), 1].map(BatchCell::Int));
            }
            return 0;
        }
        let ids = stack.iter().map(|location| locations[location.index()]);
        let id = ids
            .clone()
            .fold(ContentIdHasher::for_kind("stack"), ContentIdHasher::number)
            .finish();
        if !self.is_new("stack_location", id) {
            return id;
        }
        for (position, location) in ids.enumerate() {
            self.row(
                "stack_location",
                [id, position as i64, location].map(BatchCell::Int),
            );
        }
        // Each pair of name and file counts once, by its innermost function.
        let mut seen = HashSet::default();
        let frames = stack
            .iter()
            .flat_map(|&location| part.view.frames.frames_of(location));
        for (at, frame) in frames.enumerate() {
            let entity = part.entities.entity[frame as usize];
            let row = question.table.entity[entity as usize].function;
            let of = question.table.function[row as usize];
            if seen.insert((of.name, of.filename)) {
                let function = functions[row as usize];
                self.row(
                    "stack_function",
                    [id, function, i64::from(at == 0)].map(BatchCell::Int),
                );
            }
        }
        id
    }

    /// Adds the rows of samples, and returns the number of distinct pairs of a stack and a label
    /// set.
    fn sample_rows(
        &mut self,
        id: i64,
        question: &ProfileQuestion,
        types: &[i64],
        functions: &[i64],
        locations: &[i64],
        sets: &[i64],
    ) -> i64 {
        let profile = &question.parts[0].profile;
        let samples = &profile.samples;
        let mut rows: HashMap<(i64, i64), Vec<u32>> = HashMap::default();
        for at in 0..samples.len() {
            if samples.values(at).iter().all(|&value| value == 0) {
                continue;
            }
            let stack = self.stack(question, functions, locations, samples.stack(at));
            let set = sets[samples.label_set(at).index()];
            rows.entry((stack, set)).or_default().push(at as u32);
        }
        let (heap, others) = heap_columns(profile);
        let mut keys: Vec<(i64, i64)> = rows.keys().copied().collect();
        keys.sort_unstable();
        for &(stack, set) in &keys {
            let run = &rows[&(stack, set)];
            let sum = |column: usize| -> i64 {
                let values = run.iter().map(|&at| samples.values(at as usize)[column]);
                values.sum()
            };
            let known = |column: usize| {
                let known = spread_of_samples(profile, run.iter().copied(), column)?;
                let samples = i64::try_from(known.samples).unwrap_or(i64::MAX);
                Some((samples, known.variance))
            };
            let values = heap.map(|column| column.map_or(0, sum));
            if values != [0; 4] {
                let [a, b, c, d] = values;
                self.row(
                    "heap_sample",
                    [id, stack, set, a, b, c, d].map(BatchCell::Int),
                );
            }
            let of_heap = heap.map(|column| column.filter(|&c| sum(c) != 0).and_then(known));
            if of_heap.iter().any(Option::is_some) {
                let [a, b, c, d] = of_heap.map(BatchCell::Spread);
                self.row(
                    "heap_spread",
                    [id.into(), stack.into(), set.into(), a, b, c, d],
                );
            }
            for &column in &others {
                let value = sum(column);
                if value != 0 {
                    let [id, of, stack, set, value] =
                        [id, types[column], stack, set, value].map(BatchCell::Int);
                    self.row(
                        "other_sample",
                        [id, of, stack, set, value, BatchCell::Spread(known(column))],
                    );
                }
            }
        }
        keys.len() as i64
    }
}
