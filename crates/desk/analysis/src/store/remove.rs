//! Removes profiles, with all rows that no other profile uses.

use foldhash::{HashSet, HashSetExt};
use rusqlite::{Connection, Transaction};

use crate::error::AnalysisError;

/// Removes the profiles with these numbers.
pub(super) fn remove(transaction: &Transaction<'_>, ids: &[i64]) -> Result<(), AnalysisError> {
    let of_profile = [
        ("heap_sample", "profile"),
        ("heap_spread", "profile"),
        ("other_sample", "profile"),
        ("profile_total", "profile"),
        ("profile_mapping", "profile"),
        ("comment", "profile"),
        ("profile_label", "profile"),
        ("profile", "id"),
    ];
    for (table, column) in of_profile {
        let mut delete =
            transaction.prepare(&format!("DELETE FROM {table} WHERE {column} = ?1"))?;
        for id in ids {
            delete.execute([id])?;
        }
    }
    let unused = unused_stacks(transaction)?;
    {
        let mut delete = transaction.prepare("DELETE FROM stack WHERE id = ?1")?;
        for stack in unused {
            delete.execute([stack])?;
        }
    }
    transaction.execute_batch(
        "DELETE FROM location WHERE id NOT IN (SELECT location FROM stack);
         DELETE FROM line WHERE location NOT IN (SELECT id FROM location);
         DELETE FROM function WHERE id NOT IN (SELECT function FROM line)
           AND id NOT IN (SELECT function FROM location WHERE function IS NOT NULL)
           AND NOT (name = '(empty stack)' AND EXISTS (SELECT 1 FROM (SELECT stack FROM heap_sample
             UNION ALL SELECT stack FROM other_sample) WHERE stack = 0));
         DELETE FROM mapping WHERE id NOT IN (SELECT mapping FROM location WHERE mapping IS NOT \
         NULL)
           AND id NOT IN (SELECT mapping FROM profile_mapping);
         DELETE FROM label WHERE label_set NOT IN (SELECT label_set FROM heap_sample
           UNION ALL SELECT label_set FROM other_sample);
         DELETE FROM sample_type WHERE id NOT IN (SELECT type FROM profile_total);",
    )?;
    Ok(())
}

/// Returns the stacks that no sample needs: no sample has the stack itself, or a stack on top of
/// it.
fn unused_stacks(connection: &Connection) -> Result<Vec<i64>, AnalysisError> {
    let mut used = HashSet::new();
    let mut statement = connection.prepare(
        "SELECT stack FROM heap_sample UNION SELECT stack FROM other_sample ORDER BY stack",
    )?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        used.insert(row.get::<_, i64>(0)?);
    }
    // A parent's number is smaller than its children's, so one pass from the end marks all
    // ancestors. A parent that is missing or comes later is damage that removing can't repair.
    let mut unused = Vec::new();
    let mut statement = connection.prepare("SELECT id, parent FROM stack ORDER BY id DESC")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (id, parent): (i64, i64) = (row.get(0)?, row.get(1)?);
        match used.contains(&id) {
            true if parent < id => drop(used.insert(parent)),
            true => {}
            false => unused.push(id),
        }
    }
    Ok(unused)
}
