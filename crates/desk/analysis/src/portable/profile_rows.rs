//! Profiles, read from the rows of the portable tables.

use std::collections::BTreeMap;

use foldhash::{HashMap, HashSet};
use heapprof_profile::{
    Function, FunctionIndex, Label, LabelSetIndex, Line, LocationIndex, Mapping, MappingIndex,
    Profile, ProfileBuilder,
};

use super::engine::{SqlEngine, int_at, sample_types, spread_at, text_at};
use super::statement::list;
use crate::error::AnalysisError;
use crate::sample_plan::{PlannedAddition, SamplePlan};
use crate::statement::SqlValue;
use crate::store::{HEAP_TYPES, SampleRows};

/// Maximum number of ids in one statement.
const MAX_IDS_PER_STATEMENT: usize = 2_000;

/// Reads one profile as it was stored, except that equal samples are merged.
///
/// # Errors
/// The engine fails, or rows are missing.
pub fn read_profile(
    engine: &impl SqlEngine,
    id: i64,
    types: &[(String, String)],
) -> Result<Profile, AnalysisError> {
    let plan = SamplePlan::for_profile(id, types);
    let mut builder = build_without_samples(engine, &plan)?;
    header(engine, &mut builder, id)?;
    let mut comments = BTreeMap::new();
    let sql = format!("SELECT position, text FROM comment WHERE profile = {id}");
    for row in engine.rows(&sql)? {
        comments.insert(int_at(&row, 0)?, text_at(&row, 1)?.to_string());
    }
    for comment in comments.into_values() {
        let comment = builder.text(&comment);
        builder.profile.comment.push(comment);
    }
    Ok(builder.finish())
}

/// Returns the sum of profiles that a plan describes. The sum has the header of the last profile in
/// the plan, without its comments.
pub(super) fn sum(engine: &impl SqlEngine, plan: &SamplePlan) -> Result<Profile, AnalysisError> {
    let mut builder = build_without_samples(engine, plan)?;
    if let Some((newest, _)) = plan.parts.last() {
        header(engine, &mut builder, *newest)?;
    }
    Ok(builder.finish())
}

fn header(
    engine: &impl SqlEngine,
    builder: &mut ProfileBuilder,
    id: i64,
) -> Result<(), AnalysisError> {
    let sql = format!(
        "SELECT time_nanos, duration_nanos, period_type, period_unit, period, \
         default_sample_type, drop_frames, keep_frames, doc_url FROM profile WHERE id = {id}"
    );
    let rows = engine.rows(&sql)?;
    let Some(row) = rows.first() else {
        return Err(missing("profile", id));
    };
    let (name, unit) = (text_at(row, 2)?, text_at(row, 3)?);
    let period_type = builder.value_type(name, unit);
    let texts = [
        text_at(row, 5)?,
        text_at(row, 6)?,
        text_at(row, 7)?,
        text_at(row, 8)?,
    ];
    let texts = texts.map(|text| builder.text(text));
    let profile = &mut builder.profile;
    profile.period_type = (!name.is_empty() || !unit.is_empty()).then_some(period_type);
    profile.time_nanos = int_at(row, 0)?;
    profile.duration_nanos = int_at(row, 1)?;
    profile.period = int_at(row, 4)?;
    [
        profile.default_sample_type,
        profile.drop_frames,
        profile.keep_frames,
        profile.doc_url,
    ] = texts;
    Ok(())
}

fn missing(what: &str, id: i64) -> AnalysisError {
    AnalysisError::Sql(format!("{what} {id} is missing there"))
}

/// Returns the sums of a plan. Profiles with equal additions in the plan are added up by the engine
/// itself.
fn sample_rows(engine: &impl SqlEngine, plan: &SamplePlan) -> Result<SampleRows, AnalysisError> {
    let mut rows = SampleRows::new(plan.types.len());
    let mut alike: Vec<(&[PlannedAddition], Vec<i64>)> = Vec::new();
    for (profile, adds) in &plan.parts {
        match alike.iter_mut().find(|(known, _)| known == adds) {
            Some((_, profiles)) => profiles.push(*profile),
            None => alike.push((adds, vec![*profile])),
        }
    }
    for (adds, profiles) in alike {
        for ids in profiles.chunks(MAX_IDS_PER_STATEMENT) {
            heap(engine, &mut rows, adds, ids)?;
            others(engine, &mut rows, adds, ids)?;
        }
    }
    Ok(rows.finish(plan.divisor))
}

/// The position of the first value in a row of heap samples, after the stack and the label set.
const FIRST_VALUE_COLUMN: usize = 2;
/// The number of columns that each value of a heap sample takes: the sum as a whole number and as a
/// floating-point number, or the samples and the variance.
const VALUE_COLUMN_COUNT: usize = 2;

/// Adds the four values of heap samples. Rows that were stored twice count once, because the
/// largest of the rows with one key is taken.
fn heap(
    engine: &impl SqlEngine,
    rows: &mut SampleRows,
    adds: &[PlannedAddition],
    ids: &[i64],
) -> Result<(), AnalysisError> {
    let of = |n: usize| {
        let is_it = move |add: &&PlannedAddition| (&*add.from.0, &*add.from.1) == HEAP_TYPES[n];
        adds.iter().filter(is_it)
    };
    let wanted: Vec<usize> = (0..HEAP_TYPES.len())
        .filter(|&n| of(n).next().is_some())
        .collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let ids = list(ids);
    let columns = |each: &dyn Fn(&str) -> String| {
        let columns = wanted.iter().map(|&n| each(HEAP_TYPES[n].0));
        columns.collect::<Vec<String>>().join(", ")
    };
    let sql = format!(
        "SELECT stack, label_set, {} FROM (SELECT profile, stack, label_set, {} FROM heap_sample \
         WHERE profile IN ({ids}) GROUP BY profile, stack, label_set) AS d \
         GROUP BY stack, label_set",
        columns(&|name| format!(
            "SUM(most_{name}) AS sum_{name}, SUM(most_{name} * 1.0) AS about_{name}"
        )),
        columns(&|name| format!("MAX({name}) AS most_{name}")),
    );
    for row in engine.rows(&sql)? {
        let mut at = None;
        let columns = (FIRST_VALUE_COLUMN..).step_by(VALUE_COLUMN_COUNT);
        for (column, &n) in columns.zip(&wanted) {
            let value = sum_cell(&row, column, HEAP_TYPES[n].0)?;
            if value != 0 {
                let key = (int_at(&row, 0)?, int_at(&row, 1)?);
                let at = *at.get_or_insert_with(|| rows.row(key));
                for add in of(n) {
                    rows.add(at, add, value)?;
                }
            }
        }
    }
    let wanted: Vec<usize> = wanted
        .into_iter()
        .filter(|&n| of(n).any(|add| add.with_spread))
        .collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let columns = |each: &dyn Fn(&str) -> String| {
        let columns = wanted.iter().map(|&n| {
            let name = HEAP_TYPES[n].0;
            [
                each(&format!("{name}_sampled")),
                each(&format!("{name}_variance")),
            ]
            .join(", ")
        });
        columns.collect::<Vec<String>>().join(", ")
    };
    let sql = format!(
        "SELECT stack, label_set, {} FROM (SELECT profile, stack, label_set, {} FROM heap_spread \
         WHERE profile IN ({ids}) GROUP BY profile, stack, label_set) AS d \
         GROUP BY stack, label_set",
        columns(&|name| format!("SUM(most_{name}) AS sum_{name}")),
        columns(&|name| format!("MAX({name}) AS most_{name}")),
    );
    for row in engine.rows(&sql)? {
        let columns = (FIRST_VALUE_COLUMN..).step_by(VALUE_COLUMN_COUNT);
        for (column, &n) in columns.zip(&wanted) {
            if let Some(known) = spread_at(&row, column)
                && let Some(at) = rows.find_row((int_at(&row, 0)?, int_at(&row, 1)?))
            {
                for add in of(n).filter(|add| add.with_spread) {
                    rows.add_spread(at, add, known)?;
                }
            }
        }
    }
    Ok(())
}

/// Adds the values of all sample types that are not in [`HEAP_TYPES`].
fn others(
    engine: &impl SqlEngine,
    rows: &mut SampleRows,
    adds: &[PlannedAddition],
    ids: &[i64],
) -> Result<(), AnalysisError> {
    let is_heap = |add: &&PlannedAddition| HEAP_TYPES.contains(&(&*add.from.0, &*add.from.1));
    if adds.iter().all(|add| is_heap(&add)) {
        return Ok(());
    }
    let types = sample_types(engine)?;
    let sql = format!(
        "SELECT type, stack, label_set, SUM(most) AS value, SUM(most * 1.0) AS about, \
         SUM(most_sampled) AS sampled, SUM(most_variance) AS variance FROM (SELECT profile, type, \
         stack, label_set, MAX(value) AS most, MAX(sampled) AS most_sampled, MAX(variance) AS \
         most_variance FROM other_sample WHERE profile IN ({}) GROUP BY profile, type, stack, \
         label_set) AS d GROUP BY type, stack, label_set",
        list(ids)
    );
    for row in engine.rows(&sql)? {
        let Some(from) = types.get(&int_at(&row, 0)?) else {
            return Err(missing("sample type", int_at(&row, 0)?));
        };
        let known = spread_at(&row, 5);
        let value = sum_cell(&row, 3, &from.0)?;
        for add in adds.iter().filter(|add| add.from == *from) {
            let at = rows.row((int_at(&row, 1)?, int_at(&row, 2)?));
            rows.add(at, add, value)?;
            if let Some(known) = known.filter(|_| add.with_spread) {
                rows.add_spread(at, add, known)?;
            }
        }
    }
    Ok(())
}

/// Returns a sum that an engine made. The cell after it has the same sum as a floating-point
/// number. In some engines, sums wrap beyond 64 bits, and only the floating-point number shows
/// that.
fn sum_cell(row: &[SqlValue], sum: usize, what: &str) -> Result<i64, AnalysisError> {
    let about = sum + 1;
    let about = match row.get(about) {
        Some(SqlValue::Real(about)) => *about,
        Some(SqlValue::Int(about)) => *about as f64,
        other => {
            return Err(AnalysisError::Sql(format!(
                "expected a sum, found {other:?}"
            )));
        }
    };
    let value = int_at(row, sum)?;
    if (about - value as f64).abs() > (1u64 << 62) as f64 {
        let what = format!("the sum of {what}");
        return Err(heapprof_totals::TotalsError::BeyondRange(what).into());
    }
    Ok(value)
}

/// Returns the rows of a table with these ids, each once.
fn by_ids(
    engine: &impl SqlEngine,
    columns: &str,
    table: &str,
    key: &str,
    ids: impl Iterator<Item = i64>,
) -> Result<Vec<Vec<SqlValue>>, AnalysisError> {
    let mut ids: Vec<i64> = ids.filter(|&id| id != 0).collect();
    ids.sort_unstable();
    ids.dedup();
    let mut found = Vec::new();
    for ids in ids.chunks(MAX_IDS_PER_STATEMENT) {
        found.extend(engine.rows(&format!(
            "SELECT DISTINCT {columns} FROM \"{table}\" WHERE {key} IN ({})",
            list(ids)
        ))?);
    }
    Ok(found)
}

/// Groups rows by the number in their first column, and sorts each group by the position in the
/// second column. For example, the locations of a stack become a group.
fn group_by_owner(
    rows: Vec<Vec<SqlValue>>,
) -> Result<HashMap<i64, BTreeMap<i64, Vec<SqlValue>>>, AnalysisError> {
    let mut groups: HashMap<i64, BTreeMap<i64, Vec<SqlValue>>> = HashMap::default();
    for row in rows {
        let of = groups.entry(int_at(&row, 0)?).or_default();
        of.insert(int_at(&row, 1)?, row);
    }
    Ok(groups)
}

fn build_without_samples(
    engine: &impl SqlEngine,
    plan: &SamplePlan,
) -> Result<ProfileBuilder, AnalysisError> {
    let names = plan.types.iter();
    let names: Vec<(&str, &str)> = names.map(|(t, unit)| (t.as_str(), unit.as_str())).collect();
    let mut builder = ProfileBuilder::new(&names);
    let rows = sample_rows(engine, plan)?;
    let stacks = by_ids(
        engine,
        "stack, position, location",
        "stack_location",
        "stack",
        rows.key.iter().map(|key| key.0),
    )?;
    let mut used: HashSet<i64> = HashSet::default();
    let mut of_stack: HashMap<i64, Vec<i64>> = HashMap::default();
    for (stack, frames) in group_by_owner(stacks)? {
        let locations = frames.values().map(|row| int_at(row, 2));
        let locations = locations.collect::<Result<Vec<i64>, AnalysisError>>()?;
        used.extend(&locations);
        of_stack.insert(stack, locations);
    }
    let profiles = plan.parts.iter().map(|part| part.0);
    let mappings = mappings(engine, &mut builder, profiles)?;
    let locations = locations(engine, &mut builder, &mappings, used)?;
    let sets = label_sets(engine, &mut builder, rows.key.iter().map(|key| key.1))?;
    let empty = Vec::new();
    for at in 0..rows.key.len() {
        let (stack, set) = rows.key[at];
        let frames = match of_stack.get(&stack) {
            Some(frames) => frames,
            None if stack == 0 => &empty,
            None => return Err(missing("stack", stack)),
        };
        let frames = frames.iter().map(|id| {
            let found = locations.get(id).copied();
            found.ok_or_else(|| missing("location", *id))
        });
        let frames = frames.collect::<Result<Vec<LocationIndex>, AnalysisError>>()?;
        let set = match sets.get(&set) {
            Some(&set) => set,
            None if set == 0 => LabelSetIndex(0),
            None => return Err(missing("label set", set)),
        };
        let samples = &mut builder.profile.samples;
        samples.push(frames, rows.values(at), set);
        if let Some((sampled, variance)) = rows.spread(at) {
            samples.set_spread(samples.len() - 1, &sampled, &variance);
        }
    }
    Ok(builder)
}

fn mappings(
    engine: &impl SqlEngine,
    builder: &mut ProfileBuilder,
    profiles: impl Iterator<Item = i64>,
) -> Result<HashMap<i64, MappingIndex>, AnalysisError> {
    let columns = "profile, position, mapping";
    let of_profiles = group_by_owner(by_ids(
        engine,
        columns,
        "profile_mapping",
        "profile",
        profiles,
    )?)?;
    // The mappings come in the order of the profile with the smallest id, so their order is always
    // the same.
    let of_profiles: BTreeMap<i64, BTreeMap<i64, Vec<SqlValue>>> =
        of_profiles.into_iter().collect();
    let mut order = Vec::new();
    for row in of_profiles.values().flat_map(BTreeMap::values) {
        let id = int_at(row, 2)?;
        if !order.contains(&id) {
            order.push(id);
        }
    }
    let columns = "id, memory_start, memory_limit, file_offset, filename, build_id, \
                   has_functions, has_filenames, has_line_numbers, has_inline_frames";
    let found = by_ids(engine, columns, "mapping", "id", order.iter().copied())?;
    let mut by_id: HashMap<i64, Vec<SqlValue>> = HashMap::default();
    for row in found {
        by_id.insert(int_at(&row, 0)?, row);
    }
    let mut mappings = HashMap::default();
    for id in order {
        let row = by_id.get(&id).ok_or_else(|| missing("mapping", id))?;
        let flag = |at| Ok::<bool, AnalysisError>(int_at(row, at)? != 0);
        let mapping = Mapping {
            id: 0,
            memory_start: int_at(row, 1)? as u64,
            memory_limit: int_at(row, 2)? as u64,
            file_offset: int_at(row, 3)? as u64,
            filename: builder.text(text_at(row, 4)?),
            build_id: builder.text(text_at(row, 5)?),
            has_functions: flag(6)?,
            has_filenames: flag(7)?,
            has_line_numbers: flag(8)?,
            has_inline_frames: flag(9)?,
        };
        mappings.insert(id, builder.mapping(mapping));
    }
    Ok(mappings)
}

fn locations(
    engine: &impl SqlEngine,
    builder: &mut ProfileBuilder,
    mappings: &HashMap<i64, MappingIndex>,
    used: HashSet<i64>,
) -> Result<HashMap<i64, LocationIndex>, AnalysisError> {
    let columns = "id, mapping, address, is_folded";
    let mut found = by_ids(engine, columns, "location", "id", used.iter().copied())?;
    found.sort_by_key(|row| int_at(row, 0).unwrap_or_default());
    let columns = "location, position, function, line, \"column\"";
    let lines = group_by_owner(by_ids(
        engine,
        columns,
        "line",
        "location",
        used.into_iter(),
    )?)?;
    let rows = lines.values().flat_map(BTreeMap::values);
    let functions = rows
        .map(|row| int_at(row, 2))
        .collect::<Result<Vec<i64>, AnalysisError>>()?;
    let functions = self::functions(engine, builder, functions)?;
    let mut locations = HashMap::default();
    for row in found {
        let id = int_at(&row, 0)?;
        let mapping = match int_at(&row, 1)? {
            0 => None,
            id => Some(*mappings.get(&id).ok_or_else(|| missing("mapping", id))?),
        };
        let own = lines.get(&id).into_iter().flat_map(BTreeMap::values);
        let own = own.map(|row| {
            let function = int_at(row, 2)?;
            Ok(Line {
                function: *functions
                    .get(&function)
                    .ok_or_else(|| missing("function", function))?,
                line: int_at(row, 3)?,
                column: int_at(row, 4)?,
            })
        });
        let own = own.collect::<Result<Vec<Line>, AnalysisError>>()?;
        let (address, is_folded) = (int_at(&row, 2)? as u64, int_at(&row, 3)? != 0);
        locations.insert(id, builder.location(mapping, address, is_folded, &own));
    }
    Ok(locations)
}

fn functions(
    engine: &impl SqlEngine,
    builder: &mut ProfileBuilder,
    ids: Vec<i64>,
) -> Result<HashMap<i64, FunctionIndex>, AnalysisError> {
    let columns = "id, name, system_name, filename, start_line";
    let mut found = by_ids(engine, columns, "function", "id", ids.into_iter())?;
    found.sort_by_key(|row| int_at(row, 0).unwrap_or_default());
    let mut functions = HashMap::default();
    for row in found {
        let function = Function {
            id: 0,
            name: builder.text(text_at(&row, 1)?),
            system_name: builder.text(text_at(&row, 2)?),
            filename: builder.text(text_at(&row, 3)?),
            start_line: int_at(&row, 4)?,
        };
        functions.insert(int_at(&row, 0)?, builder.function(function));
    }
    Ok(functions)
}

fn label_sets(
    engine: &impl SqlEngine,
    builder: &mut ProfileBuilder,
    ids: impl Iterator<Item = i64>,
) -> Result<HashMap<i64, LabelSetIndex>, AnalysisError> {
    let columns = "label_set, position, \"key\", str, num, num_unit";
    let found = group_by_owner(by_ids(engine, columns, "label", "label_set", ids)?)?;
    let mut sets = HashMap::default();
    for (set, rows) in found {
        let mut labels = Vec::new();
        for row in rows.values() {
            labels.push(Label {
                key: builder.text(text_at(row, 2)?),
                str: builder.text(text_at(row, 3)?),
                num: int_at(row, 4)?,
                num_unit: builder.text(text_at(row, 5)?),
            });
        }
        sets.insert(set, builder.label_set(&mut labels));
    }
    Ok(sets)
}
