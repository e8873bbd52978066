//! The stored profiles as moments: their times, labels, processes and sums, without their samples.

use std::collections::BTreeMap;

use foldhash::{HashMap, HashMapExt};
use heapprof_profile::Profile;
use rusqlite::{Connection, Transaction};

use super::damage::damage_error;
use super::{ProfileStore, restore, schema};
use crate::comment::find_single_value;
use crate::error::AnalysisError;
use crate::sample_plan::SamplePlan;
use crate::stored_moment::{SeriesStore, StoredMoment, StoredMomentBuilder, StoredProfileFacts};

/// Writes the labels of a profile.
pub(super) fn write(
    transaction: &Transaction<'_>,
    id: i64,
    labels: &BTreeMap<String, String>,
) -> Result<(), AnalysisError> {
    // A user may have deleted the row of a profile by hand. Its number is then used again.
    transaction.execute("DELETE FROM profile_label WHERE profile = ?1", [id])?;
    let mut insert = transaction.prepare("INSERT INTO profile_label VALUES (?1, ?2, ?3)")?;
    for (key, value) in labels {
        insert.execute((id, key, value))?;
    }
    Ok(())
}

/// Runs a statement whose first column is a profile's number, and collects one value for each
/// profile. `put` adds a row to the value of its profile.
fn texts<T>(
    connection: &Connection,
    sql: &str,
    mut put: impl FnMut(&mut T, &rusqlite::Row<'_>) -> rusqlite::Result<()>,
) -> Result<HashMap<i64, T>, AnalysisError>
where
    T: Default,
{
    let mut found: HashMap<i64, T> = HashMap::new();
    let mut statement = connection.prepare(sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        put(found.entry(row.get(0)?).or_default(), row)?;
    }
    Ok(found)
}

impl SeriesStore for ProfileStore {
    /// Returns all stored profiles as moments, in the order in which they were loaded.
    fn moments(&self) -> Result<Vec<StoredMoment>, AnalysisError> {
        let connection = &self.connection;
        // One transaction reads one state of the database.
        let _at_once = connection.unchecked_transaction()?;
        let mut comments: HashMap<i64, Vec<String>> = texts(
            connection,
            "SELECT profile, text FROM comment ORDER BY profile, position",
            |texts: &mut Vec<String>, row| {
                texts.push(row.get(1)?);
                Ok(())
            },
        )?;
        let has_labels = schema::has_labels(connection)?;
        let mut labels: HashMap<i64, BTreeMap<String, String>> = match has_labels {
            true => texts(
                connection,
                "SELECT profile, key, value FROM profile_label",
                |labels: &mut BTreeMap<String, String>, row| {
                    labels.insert(row.get(1)?, row.get(2)?);
                    Ok(())
                },
            )?,
            false => HashMap::new(),
        };
        type ProfileTypeTotals = (Vec<(String, String)>, Vec<i64>);
        let mut totals: HashMap<i64, ProfileTypeTotals> = texts(
            connection,
            "SELECT t.profile, s.type, s.unit, t.net FROM profile_total t \
             JOIN sample_type s ON s.id = t.type ORDER BY t.profile, t.position",
            |totals: &mut ProfileTypeTotals, row| {
                totals.0.push((row.get(1)?, row.get(2)?));
                totals.1.push(row.get(3)?);
                Ok(())
            },
        )?;
        let mut moments = StoredMomentBuilder::default();
        let mut statement = connection.prepare(
            "SELECT id, name, time_nanos, duration_nanos, default_sample_type, samples \
             FROM profile ORDER BY id",
        )?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let id: i64 = row.get(0)?;
            let comments = comments.remove(&id).unwrap_or_default();
            let mut labels = labels.remove(&id).unwrap_or_default();
            // A database of an older heapprof that can't be migrated has no labels.
            if !has_labels {
                for (key, said) in [("host", "host"), ("service", "program")] {
                    let said = find_single_value(&comments, said);
                    labels.extend(said.map(|value| (key.to_string(), value)));
                }
            }
            let Some((types, totals)) = totals.remove(&id) else {
                return Err(damage_error("the totals of profile", id));
            };
            moments.add(StoredProfileFacts {
                id,
                name: row.get(1)?,
                time_nanos: row.get(2)?,
                duration_nanos: row.get(3)?,
                default_sample_type: row.get(4)?,
                samples: row.get(5)?,
                comments,
                labels,
                types,
                totals,
            });
        }
        Ok(moments.finish())
    }

    fn sum(&self, plan: &SamplePlan) -> Result<Profile, AnalysisError> {
        restore::sum(&self.connection, plan)
    }
}
