//! The tables of entities with their flat and cum, and of their neighbours.

use super::{Relation, RelationCell, estimate_cell, single_row};
use crate::question::ProfileQuestion;
use heapprof_totals::neighbours::{NO_NEIGHBOUR, NeighbourSide, NeighbourSums};

/// Returns a cell of the columns that identify an entity: function, line, address.
pub(super) fn entity_cell(q: &ProfileQuestion, entity: u32, column: usize) -> RelationCell<'_> {
    let row = &q.table.entity[entity as usize];
    match column {
        0 => (row.function + 1).into(),
        1 => row.line.into(),
        _ => row.address.into(),
    }
}

pub(super) static ENTITY: Relation = Relation {
    name: "entity",
    about: "A row of the reports: a function; with --granularity lines also its line, with \
            --granularity addresses its line and address.",
    columns: &[
        ("id INTEGER", "from 1"),
        (
            "function INTEGER",
            "function.id; the first of that name and file",
        ),
        ("line INTEGER", "line number; 0 when not told apart"),
        ("address INTEGER", "address; 0 when not told apart"),
    ],
    keys: 1,
    ordered: 0..1,
    rows: |q| Ok(q.table.entity.len()),
    narrow: |q, keys| single_row(keys[0], q.table.entity.len()),
    cell: |q, row, column| match column {
        0 => (row + 1).into(),
        column => entity_cell(q, row as u32, column - 1),
    },
};

fn blocks(q: &ProfileQuestion) -> impl Iterator<Item = (usize, usize, usize)> {
    q.blocks()
        .map(|(p, c)| (p, c, q.totals(p).present[c].len()))
}

pub(super) static FUNCTION_TOTAL: Relation = Relation {
    name: "function_total",
    about: "Flat and cum of an entity: one row for each, unless both are 0.",
    columns: &[
        ("profile INTEGER", "profile.id"),
        ("type INTEGER", "sample_type.id"),
        ("entity INTEGER", "entity.id"),
        ("function INTEGER", "function.id of the entity"),
        ("line INTEGER", "line of the entity"),
        ("address INTEGER", "address of the entity"),
        ("flat INTEGER", "sum over the samples whose leaf it is"),
        (
            "cum INTEGER",
            "sum over the samples that hold it, each counted once",
        ),
        (
            "samples INTEGER",
            "the number of sampled blocks behind flat; if flat is exact, this and the next three \
             columns are NULL",
        ),
        ("variance REAL", "of flat, in its unit squared"),
        (
            "low INTEGER",
            "the lower bound of the true flat, with 95 % confidence",
        ),
        ("high INTEGER", "the upper bound"),
        ("cum_samples INTEGER", "as samples, of cum"),
        ("cum_variance REAL", "as variance, of cum"),
        ("cum_low INTEGER", "as low, of cum"),
        ("cum_high INTEGER", "as high, of cum"),
    ],
    keys: 3,
    ordered: 2..3,
    rows: |q| Ok(blocks(q).map(|b| b.2).sum()),
    narrow: |q, keys| {
        let mut start = 0;
        for (p, c, rows) in blocks(q) {
            let part = &q.parts[p];
            let is_type = |t: &i64| part.types[part.columns[c]] as i64 + 1 == *t;
            if p as i64 + 1 == keys[0] && keys.get(1).is_none_or(is_type) {
                // If only the profile is given, all of its blocks match. They follow each other.
                let all = match keys {
                    [_] => blocks(q).filter(|b| b.0 == p).map(|b| b.2).sum(),
                    [_, _, entity, ..] => {
                        // Present entities are in ascending order.
                        let wanted = u32::try_from(entity.wrapping_sub(1)).unwrap_or(u32::MAX);
                        return match q.totals(p).present[c].binary_search(&wanted) {
                            Ok(at) => start + at..start + at + 1,
                            Err(_) => 0..0,
                        };
                    }
                    _ => rows,
                };
                return start..start + all;
            }
            start += rows;
        }
        0..0
    },
    cell: |q, row, column| {
        let mut rest = row;
        for (p, c, rows) in blocks(q) {
            if rest >= rows {
                rest -= rows;
                continue;
            }
            let (part, totals) = (&q.parts[p], q.totals(p));
            let entity = totals.present[c][rest];
            let at = entity as usize * totals.columns.len() + c;
            return match column {
                0 => (p + 1).into(),
                1 => (part.types[part.columns[c]] + 1).into(),
                2 => (entity + 1).into(),
                6 => totals.flat[at].into(),
                7 => totals.cum[at].into(),
                8.. => {
                    let Some(known) = &totals.spread else {
                        return RelationCell::Null;
                    };
                    let (value, spread) = match column {
                        8..12 => (totals.flat[at], known.flat[at]),
                        _ => (totals.cum[at], known.cum[at]),
                    };
                    estimate_cell(part.estimate(c, value, spread), spread, (column - 8) % 4)
                }
                column => entity_cell(q, entity, column - 3),
            };
        }
        RelationCell::Null
    },
};

pub(super) static NEIGHBOUR: Relation = Relation {
    name: "neighbour",
    about: "A caller or callee of an entity. Each sample counts once: the caller of the outermost \
            frame, the callee of the innermost one.",
    columns: &[
        ("profile INTEGER", "profile.id"),
        ("type INTEGER", "sample_type.id"),
        ("entity INTEGER", "entity.id"),
        ("side TEXT", "caller or callee"),
        (
            "neighbour INTEGER",
            "entity.id; NULL for a caller at the root, and for a callee at the leaf",
        ),
        (
            "value INTEGER",
            "sum over the samples; adds up to the entity's cum on either side",
        ),
    ],
    keys: 3,
    ordered: 2..3,
    rows: |q| Ok(q.neighbours().iter().map(NeighbourSums::len).sum()),
    narrow: |q, keys| {
        let mut range = None;
        let mut start = 0;
        for ((p, c), rows) in q.blocks().zip(q.neighbours()) {
            let part = &q.parts[p];
            let is_type = |t: &i64| part.types[part.columns[c]] as i64 + 1 == *t;
            if p as i64 + 1 == keys[0] && keys.get(1).is_none_or(is_type) {
                if let [_, _, entity] = keys {
                    let entity = usize::try_from(entity.wrapping_sub(1)).unwrap_or(usize::MAX);
                    let own = match entity < q.table.entity.len() {
                        true => rows.range_of(entity),
                        false => 0..0,
                    };
                    return start + own.start..start + own.end;
                }
                let begin = range.map_or(start, |r: std::ops::Range<usize>| r.start);
                range = Some(begin..start + rows.len());
            }
            start += rows.len();
        }
        range.unwrap_or(0..0)
    },
    cell: |q, row, column| {
        let mut rest = row;
        for ((p, c), rows) in q.blocks().zip(q.neighbours()) {
            if rest >= rows.len() {
                rest -= rows.len();
                continue;
            }
            let part = &q.parts[p];
            return match column {
                0 => (p + 1).into(),
                1 => (part.types[part.columns[c]] + 1).into(),
                2 => (rows.entity(rest) + 1).into(),
                3 => match rows.side(rest) {
                    NeighbourSide::Caller => "caller".into(),
                    NeighbourSide::Callee => "callee".into(),
                },
                4 => match rows.neighbour(rest) {
                    NO_NEIGHBOUR => RelationCell::Null,
                    neighbour => (neighbour + 1).into(),
                },
                _ => rows.value(rest).into(),
            };
        }
        RelationCell::Null
    },
};
