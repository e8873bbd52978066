//! The tables of the profiles' own content: headers, mappings, locations, lines, functions, labels.
//!
//! The mappings, locations and label sets of several profiles follow each other. Equal functions of
//! several profiles are one row.

use super::{
    Relation, RelationCell, estimate_cell, in_part, rows_before_part, rows_of_part, rows_with_key,
    single_row,
};
use crate::question::ProfileQuestion;
use heapprof_totals::estimate::SumSpread;

pub(super) static PROFILE: Relation = Relation {
    name: "profile",
    about: "A profile that was given to the command. Ids are in the order in which profiles were \
            named.",
    columns: &[
        ("id INTEGER", "from 1"),
        ("name TEXT", "path or name"),
        (
            "time_nanos INTEGER",
            "when it was taken, nanoseconds since 1970 UTC; 0 unknown",
        ),
        ("duration_nanos INTEGER", "how long it took"),
        ("period_type TEXT", "what the period counts"),
        ("period_unit TEXT", "its unit"),
        (
            "period INTEGER",
            "mean distance between two samples; 0 unknown",
        ),
        (
            "default_sample_type TEXT",
            "the file's choice, may be empty",
        ),
        ("drop_frames TEXT", "regular expression of frames to cut"),
        (
            "keep_frames TEXT",
            "regular expression of frames not to cut",
        ),
        ("doc_url TEXT", "where it is explained"),
    ],
    keys: 1,
    ordered: 0..0,
    rows: |q| Ok(q.parts.len()),
    narrow: |q, keys| single_row(keys[0], q.parts.len()),
    cell: |q, row, column| {
        let (name, p) = (&q.parts[row].name, &q.parts[row].profile);
        match column {
            0 => (row + 1).into(),
            1 => name.as_str().into(),
            2 => p.time_nanos.into(),
            3 => p.duration_nanos.into(),
            4 => p.period_type.map_or("", |t| p.text(t.r#type)).into(),
            5 => p.period_type.map_or("", |t| p.text(t.unit)).into(),
            6 => p.period.into(),
            7 => p.text(p.default_sample_type).into(),
            8 => p.text(p.drop_frames).into(),
            9 => p.text(p.keep_frames).into(),
            _ => p.text(p.doc_url).into(),
        }
    },
};

pub(super) static COMMENT: Relation = Relation {
    name: "comment",
    about: "A comment of a profile.",
    columns: &[
        ("profile INTEGER", "profile.id"),
        ("position INTEGER", "from 0"),
        ("text TEXT", "the comment"),
    ],
    keys: 1,
    ordered: 0..2,
    rows: |q| {
        Ok(rows_before_part(q.parts.len(), |p| {
            q.parts[p].profile.comment.len()
        }))
    },
    narrow: |q, keys| rows_of_part(q, keys[0], |p| q.parts[p].profile.comment.len()),
    cell: |q, row, column| {
        let (p, at) = in_part(q, row, |p| q.parts[p].profile.comment.len());
        match column {
            0 => (p + 1).into(),
            1 => at.into(),
            _ => {
                let profile = &q.parts[p].profile;
                profile.text(profile.comment[at]).into()
            }
        }
    },
};

pub(super) static SAMPLE_TYPE: Relation = Relation {
    name: "sample_type",
    about: "A kind of value, shared by all profiles that have it.",
    columns: &[
        ("id INTEGER", "from 1"),
        ("type TEXT", "e.g. inuse_space"),
        ("unit TEXT", "e.g. bytes"),
    ],
    keys: 1,
    ordered: 0..0,
    rows: |q| Ok(q.types.len()),
    narrow: |q, keys| single_row(keys[0], q.types.len()),
    cell: |q, row, column| match column {
        0 => (row + 1).into(),
        1 => q.types[row].0.as_str().into(),
        _ => q.types[row].1.as_str().into(),
    },
};

pub(super) static PROFILE_TOTAL: Relation = Relation {
    name: "profile_total",
    about: "The sum of a profile's values of one sample type, before filters.",
    columns: &[
        ("profile INTEGER", "profile.id"),
        ("position INTEGER", "of the sample type in the file, from 0"),
        ("type INTEGER", "sample_type.id"),
        ("total INTEGER", "sum regardless of sign"),
        ("net INTEGER", "signed sum"),
        (
            "kept_total INTEGER",
            "as total, of the samples that the filters keep",
        ),
        (
            "kept_net INTEGER",
            "as net, of the samples that the filters keep",
        ),
        (
            "samples INTEGER",
            "the number of sampled blocks behind net; if net is exact, this and the next three \
             columns are NULL",
        ),
        ("variance REAL", "of net, in its unit squared"),
        (
            "low INTEGER",
            "the lower bound of the true net, with 95 % confidence",
        ),
        ("high INTEGER", "the upper bound"),
        ("kept_samples INTEGER", "as samples, of kept_net"),
        ("kept_variance REAL", "as variance, of kept_net"),
        ("kept_low INTEGER", "as low, of kept_net"),
        ("kept_high INTEGER", "as high, of kept_net"),
    ],
    keys: 1,
    ordered: 0..0,
    rows: |q| Ok(q.blocks().count()),
    narrow: |q, keys| rows_of_part(q, keys[0], |p| q.parts[p].columns.len()),
    cell: |q, row, column| {
        let Some((p, c)) = q.blocks().nth(row) else {
            return RelationCell::Null;
        };
        let part = &q.parts[p];
        match column {
            0 => (p + 1).into(),
            1 => part.columns[c].into(),
            2 => (part.types[part.columns[c]] + 1).into(),
            3 => part.whole[c].total.into(),
            4 => part.whole[c].net.into(),
            5 if part.view.keeps_all() => part.whole[c].total.into(),
            6 if part.view.keeps_all() => part.whole[c].net.into(),
            5 => q.totals(p).kept[c].total.into(),
            6 => q.totals(p).kept[c].net.into(),
            7..11 => {
                let spread =
                    part.whole_spreads[c].map_or_else(SumSpread::default, |known| known.spread);
                estimate_cell(part.whole_estimate(c), spread, column - 7)
            }
            _ if part.view.keeps_all() => {
                let spread =
                    part.whole_spreads[c].map_or_else(SumSpread::default, |known| known.spread);
                estimate_cell(part.whole_estimate(c), spread, column - 11)
            }
            _ => {
                let totals = q.totals(p);
                let spread = totals.spread.as_ref();
                let spread = spread.map_or_else(SumSpread::default, |spread| spread.kept[c]);
                // Memory that was not sampled may exist, even if no sample is kept.
                let known = part.whole_spreads[c];
                let estimate = known.map(|k| spread.estimate(totals.kept[c].net, k.step));
                estimate_cell(estimate, spread, column - 11)
            }
        }
    },
};

fn mappings(q: &ProfileQuestion, part: usize) -> usize {
    q.parts[part].profile.mapping.len()
}

fn locations(q: &ProfileQuestion, part: usize) -> usize {
    q.parts[part].profile.location.len()
}

pub(super) static MAPPING: Relation = Relation {
    name: "mapping",
    about: "A file that was mapped into a profiled program.",
    columns: &[
        ("id INTEGER", "from 1"),
        ("memory_start INTEGER", "first address"),
        ("memory_limit INTEGER", "one past the last address"),
        ("file_offset INTEGER", "of memory_start in the file"),
        ("filename TEXT", "its path"),
        ("build_id TEXT", "its build id"),
        ("has_functions INTEGER", "1 when symbolized"),
        ("has_filenames INTEGER", "1 when symbolized"),
        ("has_line_numbers INTEGER", "1 when symbolized"),
        ("has_inline_frames INTEGER", "1 when symbolized"),
    ],
    keys: 1,
    ordered: 0..0,
    rows: |q| Ok(rows_before_part(q.parts.len(), |p| mappings(q, p))),
    narrow: |q, keys| single_row(keys[0], rows_before_part(q.parts.len(), |p| mappings(q, p))),
    cell: |q, row, column| {
        let (p, at) = in_part(q, row, |p| mappings(q, p));
        let profile = &q.parts[p].profile;
        let mapping = &profile.mapping[at];
        match column {
            0 => (row + 1).into(),
            1 => mapping.memory_start.into(),
            2 => mapping.memory_limit.into(),
            3 => mapping.file_offset.into(),
            4 => profile.text(mapping.filename).into(),
            5 => profile.text(mapping.build_id).into(),
            6 => mapping.has_functions.into(),
            7 => mapping.has_filenames.into(),
            8 => mapping.has_line_numbers.into(),
            _ => mapping.has_inline_frames.into(),
        }
    },
};

pub(super) static LOCATION: Relation = Relation {
    name: "location",
    about: "A place in a program.",
    columns: &[
        ("id INTEGER", "from 1"),
        ("mapping INTEGER", "mapping.id, or NULL"),
        (
            "address INTEGER",
            "of the instruction; beyond 2^63 it shows negative",
        ),
        (
            "is_folded INTEGER",
            "1 when the linker folded functions here",
        ),
    ],
    keys: 1,
    ordered: 0..0,
    rows: |q| Ok(rows_before_part(q.parts.len(), |p| locations(q, p))),
    narrow: |q, keys| {
        single_row(
            keys[0],
            rows_before_part(q.parts.len(), |p| locations(q, p)),
        )
    },
    cell: |q, row, column| {
        let (p, at) = in_part(q, row, |p| locations(q, p));
        let location = &q.parts[p].profile.location[at];
        match column {
            0 => (row + 1).into(),
            1 => match location.mapping {
                Some(m) => (rows_before_part(p, |p| mappings(q, p)) + m.index() + 1).into(),
                None => RelationCell::Null,
            },
            2 => location.address.into(),
            _ => location.is_folded.into(),
        }
    },
};

pub(super) static LINE: Relation = Relation {
    name: "line",
    about: "A line of a location, the innermost inlined function at position 0. A location \
            without symbols has none.",
    columns: &[
        ("location INTEGER", "location.id"),
        ("position INTEGER", "from 0"),
        ("function INTEGER", "function.id"),
        ("line INTEGER", "line number; 0 unknown"),
        ("column INTEGER", "column; 0 unknown"),
    ],
    keys: 1,
    ordered: 0..0,
    rows: |q| {
        Ok(rows_before_part(q.parts.len(), |p| {
            q.parts[p].profile.line.len()
        }))
    },
    narrow: |q, keys| {
        let number = single_row(
            keys[0],
            rows_before_part(q.parts.len(), |p| locations(q, p)),
        );
        if number.is_empty() {
            return 0..0;
        }
        let (p, at) = in_part(q, number.start, |p| locations(q, p));
        let first = rows_before_part(p, |p| q.parts[p].profile.line.len());
        let lines = &q.parts[p].profile.location[at].line;
        first + lines.start as usize..first + lines.end as usize
    },
    cell: |q, row, column| {
        let (p, at) = in_part(q, row, |p| q.parts[p].profile.line.len());
        let part = &q.parts[p];
        let line = &part.profile.line[at];
        let location = || {
            let all = &part.profile.location;
            all.partition_point(|l| l.line.end as usize <= at)
        };
        match column {
            0 => (rows_before_part(p, |p| locations(q, p)) + location() + 1).into(),
            1 => (at - part.profile.location[location()].line.start as usize).into(),
            2 => (part.entities.function[line.function.index()] + 1).into(),
            3 => line.line.into(),
            _ => line.column.into(),
        }
    },
};

pub(super) static FUNCTION: Relation = Relation {
    name: "function",
    about: "A function by content. Addresses without symbols, labels shown as frames and the \
            empty stack have one too.",
    columns: &[
        ("id INTEGER", "from 1"),
        ("name TEXT", "for people"),
        ("system_name TEXT", "for the linker"),
        ("filename TEXT", "source file"),
        ("start_line INTEGER", "first line; 0 unknown"),
        (
            "module TEXT",
            "what it belongs to: a C++ namespace, a crate, a package, a file; may be empty",
        ),
        (
            "is_library INTEGER",
            "1 when that is a language's own runtime or installed on the system",
        ),
        (
            "file_end INTEGER",
            "how many characters at the end of filename distinguish it from functions with the \
             same name in other files; 0 when no other function has its name",
        ),
    ],
    keys: 1,
    ordered: 0..0,
    rows: |q| Ok(q.table.function.len()),
    narrow: |q, keys| single_row(keys[0], q.table.function.len()),
    cell: |q, row, column| {
        let function = &q.table.function[row];
        match column {
            0 => (row + 1).into(),
            1 => q.table.text(function.name).into(),
            2 => q.table.text(function.system_name).into(),
            3 => q.table.text(function.filename).into(),
            4 => function.start_line.into(),
            5 => q.modules()[row].name.as_str().into(),
            6 => q.modules()[row].is_library.into(),
            _ => q.file_end(row).into(),
        }
    },
};

pub(super) static LABEL: Relation = Relation {
    name: "label",
    about: "A label of a label set; sample.label_set says which sets a sample has. Set 0 is empty.",
    columns: &[
        ("label_set INTEGER", "from 1"),
        ("position INTEGER", "in the set, from 0"),
        ("key TEXT", "e.g. bytes"),
        ("str TEXT", "the text; empty for a number"),
        ("num INTEGER", "the number"),
        ("num_unit TEXT", "its unit, may be empty"),
    ],
    keys: 1,
    ordered: 0..2,
    rows: |q| Ok(q.labels().len()),
    narrow: |q, keys| rows_with_key(q.labels(), keys[0], |row| i64::from(row.set)),
    cell: |q, row, column| {
        let row = &q.labels()[row];
        let profile = &q.parts[row.part].profile;
        match column {
            0 => row.set.into(),
            1 => row.position.into(),
            2 => profile.text(row.label.key).into(),
            3 => profile.text(row.label.str).into(),
            4 => row.label.num.into(),
            _ => profile.text(row.label.num_unit).into(),
        }
    },
};
