//! The report `peek`: the callers and callees of each matching entity.

use crate::error::AnalysisError;
use crate::header::{ReportHeader, header};
use crate::place::{self, CodePlace, PlaceId, PlaceTable};
use crate::session::AnalysisSession;
use heapprof_totals::query::Query;

/// A matching entity. [`PeekReport::neighbours`] reads the entities around it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeekRow {
    /// The place in the code that the entity stands for.
    pub place: CodePlace,
    /// The sum over the samples whose leaf the entity is.
    pub flat: i64,
    /// The sum over the samples that have the entity anywhere in their stack.
    pub cum: i64,
    entity: i64,
}

/// The callers and callees of an entity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeekNeighbours {
    /// The callers, by size; `None` stands for no caller, where the entity is the root of a stack.
    /// The values of all callers add up to `cum`.
    pub callers: Vec<(Option<PlaceId>, i64)>,
    /// The callees, by size. Their values and `flat` add up to `cum`.
    pub callees: Vec<(PlaceId, i64)>,
}

/// The report `peek`. Neighbours are read on request, because there may be too many to hold in
/// memory.
pub struct PeekReport<'s> {
    /// The header of the report.
    pub header: ReportHeader,
    /// The entities, by size, the largest first.
    pub rows: Vec<PeekRow>,
    /// The number of further entities that matched and that the limit left out.
    pub more: usize,
    session: &'s AnalysisSession,
    r#type: i64,
    /// The places that the ids in [`PeekNeighbours`] refer to.
    pub places: PlaceTable,
}

/// Reports the callers and callees of entities in the session's only profile. The session's
/// question must be limited to the neighbours of these entities.
pub fn peek<'s>(
    session: &'s AnalysisSession,
    query: &Query,
) -> Result<PeekReport<'s>, AnalysisError> {
    let (header, r#type) = header(session, 1, query)?;
    let (places, order) = (
        place::columns(query.granularity, "t"),
        place::order(query.granularity, "t"),
    );
    let first = match query.sort {
        crate::SortKey::Flat => "flat",
        crate::SortKey::Cum => "cum",
    };
    let mut rows: Vec<PeekRow> = session.rows(
        &format!(
            "SELECT {places}, t.flat, t.cum, t.entity FROM function_total t \
             JOIN function f ON f.id = t.function WHERE t.profile = 1 AND t.type = ?1 \
             AND EXISTS (SELECT 1 FROM neighbour n WHERE n.profile = 1 AND n.type = ?1 \
             AND n.entity = t.entity) \
             ORDER BY abs(t.{first}) DESC, abs(t.cum) DESC, {order}"
        ),
        [r#type],
        |row| {
            Ok(PeekRow {
                place: CodePlace::read(row, 0)?,
                flat: row.get(column::FLAT)?,
                cum: row.get(column::CUM)?,
                entity: row.get(column::ENTITY)?,
            })
        },
    )?;
    let more = query
        .limit
        .map_or(0, |limit| rows.len().saturating_sub(limit));
    rows.truncate(rows.len() - more);
    Ok(PeekReport {
        header,
        rows,
        more,
        session,
        r#type,
        places: PlaceTable::new(session, query.granularity)?,
    })
}

/// The positions of the columns in a row of `peek`. The columns of the row's place in the code come
/// first.
mod column {
    use crate::place::PLACE_COLUMN_COUNT;

    pub(super) const FLAT: usize = PLACE_COLUMN_COUNT;
    pub(super) const CUM: usize = FLAT + 1;
    pub(super) const ENTITY: usize = CUM + 1;
}

impl PeekReport<'_> {
    /// Returns the neighbours of a row.
    pub fn neighbours(&self, row: &PeekRow) -> Result<PeekNeighbours, AnalysisError> {
        let mut found = PeekNeighbours::default();
        self.session.each(
            "SELECT n.side, n.neighbour, n.value FROM neighbour n \
             WHERE n.profile = 1 AND n.type = ?1 AND n.entity = ?2",
            [self.r#type, row.entity],
            |row| {
                let value: i64 = row.get(2)?;
                if value == 0 {
                    return Ok(());
                }
                let place = row.get::<_, Option<u32>>(1)?.map(PlaceId);
                match row.get_ref(0)?.as_str() {
                    Ok("caller") => found.callers.push((place, value)),
                    // A row without a callee stands for samples whose leaf is the entity itself:
                    // its flat.
                    _ => found.callees.extend(place.map(|place| (place, value))),
                }
                Ok::<_, AnalysisError>(())
            },
        )?;
        // The neighbours are sorted by size, then as SQL orders their texts and numbers.
        found.callers.sort_by(|(a, x), (b, y)| {
            let by_size = y.unsigned_abs().cmp(&x.unsigned_abs());
            by_size.then_with(|| a.map(|a| self.texts(a)).cmp(&b.map(|b| self.texts(b))))
        });
        found.callees.sort_by(|(a, x), (b, y)| {
            let by_size = y.unsigned_abs().cmp(&x.unsigned_abs());
            by_size.then_with(|| self.texts(*a).cmp(&self.texts(*b)))
        });
        Ok(found)
    }

    /// Calls `each` with the value of each neighbour of a row, in no particular order. The values
    /// are read from the tables directly, because there may be millions.
    pub fn values<E: From<AnalysisError>>(
        &self,
        row: &PeekRow,
        each: impl FnMut(i64) -> Result<(), E>,
    ) -> Result<(), E> {
        let question = self.session.question.as_deref();
        let all = question.and_then(|question| question.neighbours().first());
        let all = all.ok_or_else(|| AnalysisError::Sql("peek reads the profile".to_string()))?;
        let own = all.range_of((row.entity - 1) as usize);
        let values = own.map(|at| all.value(at));
        values.filter(|&value| value != 0).try_for_each(each)
    }

    /// Returns the texts and numbers that distinguish a place from other places: function, file,
    /// line, address. The address is signed, because SQLite has no unsigned numbers.
    fn texts(&self, place: PlaceId) -> (&str, Option<&str>, Option<i64>, Option<i64>) {
        let place = self.places.get(place);
        let address = place.address.map(|a| a as i64);
        (&place.function, place.file.as_deref(), place.line, address)
    }
}
