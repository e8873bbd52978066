//! Restores profiles from the rows of a database: a profile that was loaded, or the sum of several.

use std::sync::Arc;

use foldhash::{HashMap, HashMapExt};
use heapprof_profile::{Label, LabelSetIndex, Mapping, MappingIndex, Profile, ProfileBuilder};
use heapprof_totals::totals::TotalAndNet;
use rusqlite::{Connection, Row};

use super::damage::damage_error;
use super::locations::LocationReader;
use super::sample_rows::SampleRows;
use super::stack_tree::StackTree;
use crate::error::AnalysisError;
use crate::question::QuestionSource;
use crate::sample_plan::SamplePlan;

/// Restores one profile.
pub(super) fn restore(
    connection: &Connection,
    id: i64,
    name: &str,
) -> Result<QuestionSource, AnalysisError> {
    // One transaction reads all rows of one state of the database, and locks the file once.
    let _at_once = connection.unchecked_transaction()?;
    let reader = StoredProfileReader { connection };
    let (types, totals) = reader.types(id)?;
    let plan = SamplePlan::for_profile(id, &types);
    let mut builder = reader.sum(&plan)?;
    reader.header(&mut builder, id)?;
    Ok(QuestionSource {
        name: name.to_string(),
        profile: Arc::new(builder.finish()),
        totals: Some(totals),
    })
}

/// Returns the sum of profiles that a plan describes. The sum has the header of the newest profile,
/// without its comments. The newest profile comes last in the plan.
pub(super) fn sum(connection: &Connection, plan: &SamplePlan) -> Result<Profile, AnalysisError> {
    let _at_once = connection.unchecked_transaction()?;
    let reader = StoredProfileReader { connection };
    let mut builder = reader.sum(plan)?;
    if let Some((newest, _)) = plan.parts.last() {
        reader.header(&mut builder, *newest)?;
        builder.profile.comment.clear();
    }
    Ok(builder.finish())
}

struct StoredProfileReader<'a> {
    connection: &'a Connection,
}

/// The types of a profile with their units, and the totals of each type.
type TypesAndTotals = (Vec<(String, String)>, Vec<TotalAndNet>);

impl StoredProfileReader<'_> {
    fn each(
        &self,
        sql: &str,
        params: impl rusqlite::Params,
        mut each: impl FnMut(&Row<'_>) -> rusqlite::Result<()>,
    ) -> Result<(), AnalysisError> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query(params)?;
        while let Some(row) = rows.next()? {
            each(row)?;
        }
        Ok(())
    }

    fn types(&self, id: i64) -> Result<TypesAndTotals, AnalysisError> {
        let (mut types, mut totals) = (Vec::new(), Vec::new());
        self.each(
            "SELECT s.type, s.unit, t.total, t.net FROM profile_total t \
             JOIN sample_type s ON s.id = t.type WHERE t.profile = ?1 ORDER BY t.position",
            [id],
            |row| {
                types.push((row.get(0)?, row.get(1)?));
                totals.push(TotalAndNet {
                    total: row.get(2)?,
                    net: row.get(3)?,
                });
                Ok(())
            },
        )?;
        Ok((types, totals))
    }

    /// Makes a profile of the samples that a plan adds up.
    fn sum(&self, plan: &SamplePlan) -> Result<ProfileBuilder, AnalysisError> {
        let names = plan.types.iter();
        let names: Vec<(&str, &str)> = names.map(|(t, unit)| (t.as_str(), unit.as_str())).collect();
        let mut builder = ProfileBuilder::new(&names);
        let mut mappings = HashMap::new();
        for (id, _) in &plan.parts {
            self.mappings(&mut builder, *id, &mut mappings)?;
        }
        let rows = SampleRows::read(self.connection, plan)?;
        let tree = StackTree::read(self.connection, rows.key.iter().map(|key| key.0))?;
        let label_sets = self.label_sets(&mut builder, rows.key.iter().map(|key| key.1))?;
        let mut locations = LocationReader::new(self.connection)?;
        let mut stack = Vec::new();
        for at in 0..rows.key.len() {
            let (mut id, set) = rows.key[at];
            stack.clear();
            while id != 0 {
                let Some((up, location)) = tree.parent_and_location(id) else {
                    return Err(damage_error("stack", id));
                };
                // Parents have smaller numbers. This check keeps a damaged table from causing an
                // endless loop.
                if up >= id {
                    return Err(AnalysisError::Sql(format!(
                        "stack {id} is its own ancestor: the database is damaged"
                    )));
                }
                stack.push(locations.get(&mut builder, &mappings, location)?);
                id = up;
            }
            let set = match label_sets.get(&set) {
                Some(&set) => set,
                None if set == 0 => LabelSetIndex(0),
                None => return Err(damage_error("label set", set)),
            };
            let samples = &mut builder.profile.samples;
            samples.push(stack.iter().copied(), rows.values(at), set);
            if let Some((sampled, variance)) = rows.spread(at) {
                samples.set_spread(samples.len() - 1, &sampled, &variance);
            }
        }
        Ok(builder)
    }

    fn header(&self, builder: &mut ProfileBuilder, id: i64) -> Result<(), AnalysisError> {
        self.each("SELECT * FROM profile WHERE id = ?1", [id], |row| {
            let text = |builder: &mut ProfileBuilder, at| {
                Ok::<_, rusqlite::Error>(builder.text(&row.get::<_, String>(at)?))
            };
            let (r#type, unit): (String, String) = (row.get(4)?, row.get(5)?);
            let period_type = builder.value_type(&r#type, &unit);
            builder.profile.period_type =
                (!r#type.is_empty() || !unit.is_empty()).then_some(period_type);
            builder.profile.time_nanos = row.get(2)?;
            builder.profile.duration_nanos = row.get(3)?;
            builder.profile.period = row.get(6)?;
            builder.profile.default_sample_type = text(builder, 7)?;
            builder.profile.drop_frames = text(builder, 8)?;
            builder.profile.keep_frames = text(builder, 9)?;
            builder.profile.doc_url = text(builder, 10)?;
            Ok(())
        })?;
        self.each(
            "SELECT text FROM comment WHERE profile = ?1 ORDER BY position",
            [id],
            |row| {
                let comment = builder.text(&row.get::<_, String>(0)?);
                builder.profile.comment.push(comment);
                Ok(())
            },
        )
    }

    /// Adds the mappings of a profile to the builder, and stores their indexes in `mappings` by
    /// their numbers in the database. Mappings that `mappings` already has are left out.
    fn mappings(
        &self,
        builder: &mut ProfileBuilder,
        id: i64,
        mappings: &mut HashMap<i64, MappingIndex>,
    ) -> Result<(), AnalysisError> {
        self.each(
            "SELECT m.* FROM profile_mapping p JOIN mapping m ON m.id = p.mapping \
             WHERE p.profile = ?1 ORDER BY p.position",
            [id],
            |row| {
                if mappings.contains_key(&row.get(0)?) {
                    return Ok(());
                }
                let number = |at| Ok::<_, rusqlite::Error>(row.get::<_, i64>(at)? as u64);
                let mapping = Mapping {
                    id: 0,
                    memory_start: number(1)?,
                    memory_limit: number(2)?,
                    file_offset: number(3)?,
                    filename: builder.text(&row.get::<_, String>(4)?),
                    build_id: builder.text(&row.get::<_, String>(5)?),
                    has_functions: row.get(6)?,
                    has_filenames: row.get(7)?,
                    has_line_numbers: row.get(8)?,
                    has_inline_frames: row.get(9)?,
                };
                mappings.insert(row.get(0)?, builder.mapping(mapping));
                Ok(())
            },
        )
    }

    /// Returns the label sets with these numbers.
    fn label_sets(
        &self,
        builder: &mut ProfileBuilder,
        ids: impl Iterator<Item = i64>,
    ) -> Result<HashMap<i64, LabelSetIndex>, AnalysisError> {
        let mut ids: Vec<i64> = ids.filter(|&id| id != 0).collect();
        ids.sort_unstable();
        ids.dedup();
        let mut found = HashMap::new();
        let mut statement = self.connection.prepare(
            "SELECT key, str, num, num_unit FROM label WHERE label_set = ?1 ORDER BY position",
        )?;
        for id in ids {
            let mut rows = statement.query([id])?;
            let mut labels = Vec::new();
            while let Some(row) = rows.next()? {
                labels.push(Label {
                    key: builder.text(&row.get::<_, String>(0)?),
                    str: builder.text(&row.get::<_, String>(1)?),
                    num: row.get(2)?,
                    num_unit: builder.text(&row.get::<_, String>(3)?),
                });
            }
            if !labels.is_empty() {
                found.insert(id, builder.label_set(&mut labels));
            }
        }
        Ok(found)
    }
}
