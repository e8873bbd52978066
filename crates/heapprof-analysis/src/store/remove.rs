//! Removing a profile, and with it everything that only it used.

use rusqlite::{Connection, TransactionBehavior};

use crate::error::Error;

pub(super) fn remove(connection: &mut Connection, id: i64) -> Result<(), Error> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for table in [
        "sample",
        "function_total",
        "profile_total",
        "profile_mapping",
        "comment",
    ] {
        transaction.execute(&format!("DELETE FROM {table} WHERE profile = ?1"), [id])?;
    }
    transaction.execute("DELETE FROM profile WHERE id = ?1", [id])?;
    let unused = unused_stacks(&transaction)?;
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
           AND id NOT IN (SELECT function FROM function_total);
         DELETE FROM mapping WHERE id NOT IN (SELECT mapping FROM location WHERE mapping IS NOT NULL)
           AND id NOT IN (SELECT mapping FROM profile_mapping);
         DELETE FROM label WHERE label_set NOT IN (SELECT label_set FROM sample);
         DELETE FROM sample_type WHERE id NOT IN (SELECT type FROM profile_total);",
    )?;
    transaction.commit()?;
    connection.execute_batch("VACUUM")?;
    Ok(())
}

/// Stacks that are no sample's and no ancestor of one's.
fn unused_stacks(connection: &Connection) -> Result<Vec<i64>, Error> {
    let mut parent: Vec<i64> = vec![0];
    let mut statement = connection.prepare("SELECT id, parent FROM stack ORDER BY id")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let id = row.get::<_, i64>(0)? as usize;
        // -1: no such stack.
        parent.resize(id + 1, -1);
        parent[id] = row.get(1)?;
    }
    let mut used = vec![false; parent.len()];
    let mut statement = connection.prepare("SELECT DISTINCT stack FROM sample")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        if let Some(used) = used.get_mut(row.get::<_, i64>(0)? as usize) {
            *used = true;
        }
    }
    // A parent's number is smaller than its children's: one pass from the end marks all ancestors.
    for id in (1..parent.len()).rev() {
        // A parent beyond the table is damage that this can't mend.
        let up = usize::try_from(parent[id]).unwrap_or(0);
        if used[id] && up > 0 && up < id {
            used[up] = true;
        }
    }
    let unused = (1..parent.len()).filter(|&id| !used[id] && parent[id] >= 0);
    Ok(unused.map(|id| id as i64).collect())
}
