//! The tables of samples after filters, and of their stacks.

use super::total::entity_cell;
use super::{Relation, RelationCell, single_row};
use crate::question::ProfileQuestion;
use heapprof_totals::estimate::SumSpread;

/// The part, the column and the rows of a block, and the spread of each row.
type SampleBlock<'a> = (usize, usize, &'a [(u32, u32, i64)], Option<&'a [SumSpread]>);

fn blocks(q: &ProfileQuestion) -> impl Iterator<Item = SampleBlock<'_>> {
    let samples = q.samples();
    let rows = samples.blocks.iter().zip(&samples.spread);
    q.blocks()
        .zip(rows)
        .map(|((p, c), (rows, spread))| (p, c, &rows[..], spread.as_deref()))
}

pub(super) static SAMPLE: Relation = Relation {
    name: "sample",
    about: "The value of the samples of one stack and one label set, if it is not 0.",
    columns: &[
        ("profile INTEGER", "profile.id"),
        ("type INTEGER", "sample_type.id"),
        ("stack INTEGER", "frame.stack, from 1"),
        ("label_set INTEGER", "label.label_set; 0 for no labels"),
        ("value INTEGER", "sum of the samples"),
        (
            "sampled INTEGER",
            "the number of sampled blocks behind it; NULL if it is exact",
        ),
        (
            "variance REAL",
            "its estimated variance, in its unit squared; NULL if it is exact",
        ),
    ],
    keys: 2,
    ordered: 2..4,
    rows: |q| Ok(blocks(q).map(|b| b.2.len()).sum()),
    narrow: |q, keys| {
        let mut range = None;
        let mut start = 0;
        for (p, c, rows, _) in blocks(q) {
            let part = &q.parts[p];
            let is_type = |t: &i64| part.types[part.columns[c]] as i64 + 1 == *t;
            if p as i64 + 1 == keys[0] && keys.get(1).is_none_or(is_type) {
                let begin = range.map_or(start, |r: std::ops::Range<usize>| r.start);
                range = Some(begin..start + rows.len());
            }
            start += rows.len();
        }
        range.unwrap_or(0..0)
    },
    cell: |q, row, column| {
        let mut rest = row;
        for (p, c, rows, spread) in blocks(q) {
            let Some(&(stack, label_set, value)) = rows.get(rest) else {
                rest -= rows.len();
                continue;
            };
            let part = &q.parts[p];
            return match column {
                0 => (p + 1).into(),
                1 => (part.types[part.columns[c]] + 1).into(),
                2 => (stack + 1).into(),
                3 => label_set.into(),
                4 => value.into(),
                column => {
                    let known = spread.map(|spread| spread[rest]);
                    match known.filter(|known| *known != SumSpread::default()) {
                        None => RelationCell::Null,
                        Some(known) if column == 5 => known.samples.into(),
                        Some(known) => RelationCell::Real(known.variance),
                    }
                }
            };
        }
        RelationCell::Null
    },
};

pub(super) static FRAME: Relation = Relation {
    name: "frame",
    about: "A frame of a stack, the leaf at position 0.",
    columns: &[
        (
            "stack INTEGER",
            "from 1, in the order of the stacks' names from the root",
        ),
        ("position INTEGER", "from 0"),
        ("entity INTEGER", "entity.id"),
        ("function INTEGER", "function.id of the entity"),
        ("line INTEGER", "line of the entity"),
        ("address INTEGER", "address of the entity"),
    ],
    keys: 1,
    ordered: 0..2,
    rows: |q| Ok(q.samples().stacks.frames()),
    narrow: |q, keys| {
        let stacks = &q.samples().stacks;
        let stack = single_row(keys[0], stacks.len());
        match stack.is_empty() {
            true => 0..0,
            false => stacks.range(stack.start),
        }
    },
    cell: |q, row, column| {
        let stacks = &q.samples().stacks;
        let (stack, position) = stacks.locate(row);
        let entity = stacks.get(stack)[position];
        match column {
            0 => (stack + 1).into(),
            1 => position.into(),
            2 => (entity + 1).into(),
            column => entity_cell(q, entity, column - 3),
        }
    },
};

pub(super) static STACK_FUNCTION: Relation = Relation {
    name: "stack_function",
    about: "Which entities a stack holds, each once per stack: joined with sample it gives flat \
            (is_leaf) and cum in portable SQL.",
    columns: &[
        ("stack INTEGER", "frame.stack"),
        ("entity INTEGER", "entity.id"),
        ("function INTEGER", "function.id of the entity"),
        (
            "is_leaf INTEGER",
            "1 when the entity is the leaf of the stack",
        ),
    ],
    keys: 1,
    ordered: 0..1,
    rows: |q| Ok(q.samples().stacks.distinct().0.len()),
    narrow: |q, keys| {
        let stacks = &q.samples().stacks;
        let stack = single_row(keys[0], stacks.len());
        let end = &stacks.distinct().1;
        match stack.start {
            _ if stack.is_empty() => 0..0,
            0 => 0..end[0],
            n => end[n - 1]..end[n],
        }
    },
    cell: |q, row, column| {
        let stacks = &q.samples().stacks;
        let (stack, position) = stacks.locate(stacks.distinct().0[row]);
        let entity = stacks.get(stack)[position];
        match column {
            0 => (stack + 1).into(),
            1 => (entity + 1).into(),
            2 => entity_cell(q, entity, 0),
            _ => (position == 0).into(),
        }
    },
};
