//! The callbacks of SQLite's virtual tables, answered from a [`Relation`], with the only `unsafe`
//! code of this crate.

use std::borrow::Cow;
use std::ffi::{CStr, CString, c_int};
use std::ops::Range;
use std::sync::Arc;

use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::vtab::{
    Context, Filters, IndexConstraintOp, IndexInfo, Module, OrderBy, VTab, VTabConfig,
    VTabConnection, VTabCursor, sqlite3_vtab, sqlite3_vtab_cursor,
};
use rusqlite::{Connection, Error, Result};

use super::{RELATIONS, Relation, RelationCell};
use crate::question::ProfileQuestion;

/// Maximum number of columns by which rows of one table can be found.
const MAX_KEY_COLUMNS: usize = 3;

/// Opens an in-memory connection in which the question's tables can be read.
pub(crate) fn connect(question: &Arc<ProfileQuestion>) -> Result<Connection> {
    const MODULE: Module<'_, QuestionTable> = Module::eponymous_only_module();
    let connection = Connection::open_in_memory()?;
    // A statement that the user wrote must not create files.
    connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0)?;
    for relation in RELATIONS {
        let aux = Some((Arc::clone(question), relation));
        connection.create_module(relation.name, &MODULE, aux)?;
    }
    Ok(connection)
}

#[repr(C)]
struct QuestionTable {
    /// The structure that SQLite uses. It must be the first field.
    base: sqlite3_vtab,
    question: Arc<ProfileQuestion>,
    relation: &'static Relation,
}

// SAFETY: `QuestionTable` is `repr(C)` and begins with `sqlite3_vtab`, as SQLite requires.
unsafe impl VTab<'_> for QuestionTable {
    type Aux = (Arc<ProfileQuestion>, &'static Relation);
    type Cursor = QuestionCursor;

    fn connect(
        db: &mut VTabConnection,
        aux: Option<&Self::Aux>,
        _module: &[u8],
        _database: &[u8],
        _table: &[u8],
        _args: &[&[u8]],
    ) -> Result<(Cow<'static, CStr>, Self)> {
        db.config(VTabConfig::Innocuous)?;
        let (question, relation) =
            aux.ok_or_else(|| Error::ModuleError("no question".to_string()))?;
        let columns: Vec<&str> = relation.columns.iter().map(|(name, _)| *name).collect();
        let schema = CString::new(format!("CREATE TABLE x({})", columns.join(", ")))?;
        let table = Self {
            base: sqlite3_vtab::default(),
            question: Arc::clone(question),
            relation,
        };
        Ok((Cow::Owned(schema), table))
    }

    fn best_index(&self, info: &mut IndexInfo) -> Result<bool> {
        let mut by_key = vec![None; self.relation.keys];
        for (i, constraint) in info.constraints().enumerate() {
            let column = constraint.column();
            if let Some(slot) = usize::try_from(column).ok().and_then(|c| by_key.get_mut(c))
                && constraint.is_usable()
                && constraint.operator() == IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_EQ
            {
                *slot = Some(i);
            }
        }
        // Rows are ordered by the keys, so a key is only useful if all keys before it are given.
        let mut used = 0;
        for constraint in by_key.into_iter().map_while(|c| c) {
            used += 1;
            info.constraint_usage(constraint).set_argv_index(used);
        }
        info.set_idx_num(used);
        let Range { start, end } = self.relation.ordered;
        let given = used as usize;
        let follows = |(at, by): (usize, OrderBy<'_>)| {
            !by.is_order_by_desc() && (start..end).contains(&(given + at)) && {
                usize::try_from(by.column()) == Ok(given + at)
            }
        };
        let is_ordered = info.order_bys().enumerate().all(follows);
        info.set_order_by_consumed(is_ordered && info.num_of_order_by() > 0);
        let cost = match used as usize {
            0 => 1e6,
            n if n == self.relation.keys => 1.0,
            _ => 1e4,
        };
        info.set_estimated_cost(cost);
        info.set_estimated_rows(cost as i64);
        Ok(true)
    }

    fn open(&mut self) -> Result<QuestionCursor> {
        Ok(QuestionCursor {
            base: sqlite3_vtab_cursor::default(),
            question: Arc::clone(&self.question),
            relation: self.relation,
            rows: 0..0,
        })
    }
}

#[repr(C)]
struct QuestionCursor {
    /// The structure that SQLite uses. It must be the first field.
    base: sqlite3_vtab_cursor,
    question: Arc<ProfileQuestion>,
    relation: &'static Relation,
    rows: Range<usize>,
}

impl QuestionCursor {
    /// Makes the cursor read no rows, because no row equals the constraint.
    fn read_nothing(&mut self) -> Result<()> {
        self.rows = 0..0;
        Ok(())
    }
}

/// Returns the whole number that a text stands for.
fn number(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.trim().parse().ok()
}

// SAFETY: `QuestionCursor` is `repr(C)` and begins with `sqlite3_vtab_cursor`, as SQLite requires.
unsafe impl VTabCursor for QuestionCursor {
    fn filter(&mut self, keys: c_int, _: Option<&str>, args: &Filters<'_>) -> Result<()> {
        let rows = (self.relation.rows)(&self.question)
            .map_err(|error| Error::ModuleError(error.to_string()))?;
        let mut numbers = [0; MAX_KEY_COLUMNS];
        let numbers = &mut numbers[..keys as usize];
        for (slot, arg) in numbers.iter_mut().zip(args.iter()) {
            *slot = match arg {
                ValueRef::Integer(number) => number,
                ValueRef::Real(number) if number.fract() == 0.0 => number as i64,
                // SQLite compares a column of whole numbers with a text in this way.
                ValueRef::Text(text) => match number(text) {
                    Some(number) => number,
                    None => return self.read_nothing(),
                },
                // A key is never NULL or a fraction.
                _ => return self.read_nothing(),
            };
        }
        self.rows = match numbers {
            [] => 0..rows,
            numbers => (self.relation.narrow)(&self.question, numbers),
        };
        self.rows.end = self.rows.end.min(rows);
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        self.rows.start += 1;
        Ok(())
    }

    fn eof(&self) -> bool {
        self.rows.is_empty()
    }

    fn column(&self, context: &mut Context, column: c_int) -> Result<()> {
        match (self.relation.cell)(&self.question, self.rows.start, column as usize) {
            RelationCell::Null => context.set_result(rusqlite::types::Null),
            RelationCell::Int(number) => context.set_result(number),
            RelationCell::Real(number) => context.set_result(number),
            RelationCell::Text(text) => context.set_result(text),
        }
    }

    fn rowid(&self) -> Result<i64> {
        Ok(self.rows.start as i64 + 1)
    }
}
