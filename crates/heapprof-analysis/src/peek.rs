//! `peek`: for each matching entity who calls it and whom it calls.

use crate::error::Error;
use crate::header::{Header, header};
use crate::place::{self, Place};
use crate::query::Query;
use crate::session::Session;

/// An entity with its neighbours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeekRow {
    /// Which entity.
    pub place: Place,
    /// Sum over the samples whose leaf it is.
    pub flat: i64,
    /// Sum over the samples that hold it.
    pub cum: i64,
    /// Callers by size; `None` is the root. Add up to `cum`.
    pub callers: Vec<(Option<Place>, i64)>,
    /// Callees by size; `flat` and they add up to `cum`.
    pub callees: Vec<(Place, i64)>,
}

/// The report.
#[derive(Clone, Debug, Default)]
pub struct Peek {
    /// What it is about.
    pub header: Header,
    /// By size.
    pub rows: Vec<PeekRow>,
    /// How many more matched.
    pub more: usize,
}

/// The entities of the only profile that the session's question wanted neighbours of.
pub fn peek(session: &Session, query: &Query) -> Result<Peek, Error> {
    let (header, r#type) = header(session, 1, query)?;
    let (places, order) = (
        place::columns(query.granularity, "t"),
        place::order(query.granularity, "t"),
    );
    let first = match query.sort {
        crate::Sort::Flat => "flat",
        crate::Sort::Cum => "cum",
    };
    let mut rows: Vec<(i64, PeekRow)> = session.rows(
        &format!(
            "SELECT {places}, t.flat, t.cum, t.entity FROM function_total t \
             JOIN function f ON f.id = t.function WHERE t.profile = 1 AND t.type = ?1 \
             AND t.entity IN (SELECT entity FROM neighbour) \
             ORDER BY abs(t.{first}) DESC, abs(t.cum) DESC, {order}"
        ),
        [r#type],
        |row| {
            let peek = PeekRow {
                place: Place::read(row, 0)?,
                flat: row.get(4)?,
                cum: row.get(5)?,
                ..PeekRow::default()
            };
            Ok((row.get(6)?, peek))
        },
    )?;
    let more = query
        .limit
        .map_or(0, |limit| rows.len().saturating_sub(limit));
    rows.truncate(rows.len() - more);
    let places = place::columns(query.granularity, "e");
    let order = place::order(query.granularity, "e");
    let mut by_entity = std::collections::HashMap::new();
    session.rows(
        &format!(
            "SELECT {places}, n.value, n.entity, n.side, n.neighbour FROM neighbour n \
             LEFT JOIN entity e ON e.id = n.neighbour LEFT JOIN function f ON f.id = e.function \
             WHERE n.profile = 1 AND n.type = ?1 AND n.value != 0 \
             ORDER BY abs(n.value) DESC, {order}"
        ),
        [r#type],
        |row| {
            let place = match row.get::<_, Option<i64>>(7)? {
                Some(_) => Some(Place::read(row, 0)?),
                None => None,
            };
            let at: (i64, String) = (row.get(5)?, row.get(6)?);
            by_entity
                .entry(at)
                .or_insert_with(Vec::new)
                .push((place, row.get::<_, i64>(4)?));
            Ok(())
        },
    )?;
    let rows = rows
        .into_iter()
        .map(|(entity, mut row)| {
            let mut side = |side: &str| by_entity.remove(&(entity, side.to_string()));
            row.callers = side("caller").unwrap_or_default();
            let callees = side("callee").unwrap_or_default();
            // No callee is the entity itself as the leaf: its flat.
            row.callees = callees
                .into_iter()
                .filter_map(|(p, v)| Some((p?, v)))
                .collect();
            row
        })
        .collect();
    Ok(Peek { header, rows, more })
}
