//! Removing profiles, and with them everything that only they used.

use rusqlite::{Connection, TransactionBehavior};

use super::stack_tree::StackTree;
use crate::error::Error;

pub(super) fn remove(connection: &mut Connection, ids: &[i64]) -> Result<(), Error> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let of_profile = [
        ("sample", "profile"),
        ("function_total", "profile"),
        ("profile_total", "profile"),
        ("profile_mapping", "profile"),
        ("comment", "profile"),
        ("profile_part", "profile"),
        ("profile", "id"),
    ];
    for (table, column) in of_profile {
        let mut delete =
            transaction.prepare(&format!("DELETE FROM {table} WHERE {column} = ?1"))?;
        for id in ids {
            delete.execute([id])?;
        }
    }
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
         DELETE FROM mapping WHERE id NOT IN (SELECT mapping FROM location WHERE mapping IS NOT \
         NULL)
           AND id NOT IN (SELECT mapping FROM profile_mapping);
         DELETE FROM label WHERE label_set NOT IN (SELECT label_set FROM sample);
         DELETE FROM sample_type WHERE id NOT IN (SELECT type FROM profile_total);",
    )?;
    transaction.commit()?;
    Ok(())
}

/// Stacks that no sample has and that are no ancestors of such a stack.
fn unused_stacks(connection: &Connection) -> Result<Vec<i64>, Error> {
    let tree = StackTree::read(connection)?;
    let mut used = vec![false; tree.ids().len()];
    let mut statement = connection.prepare("SELECT DISTINCT stack FROM sample")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        if let Some(at) = tree.position(row.get(0)?) {
            used[at] = true;
        }
    }
    // A parent's number is smaller than its children's, so one pass from the end marks all
    // ancestors. A parent that is missing or comes later is damage that this can't mend.
    for at in (0..used.len()).rev() {
        if !used[at] {
            continue;
        }
        let up = tree.position(tree.above(at).0);
        if let Some(up) = up.filter(|&up| up < at) {
            used[up] = true;
        }
    }
    let unused = tree.ids().iter().zip(used).filter(|(_, used)| !used);
    Ok(unused.map(|(&id, _)| id).collect())
}
