//! The tables of facts about a whole process: the heap over time, and the sizes of allocations.
//! Collectors record these facts beside the samples.

use super::{Relation, RelationCell, rows_with_key};

impl From<Option<i64>> for RelationCell<'_> {
    fn from(value: Option<i64>) -> Self {
        value.map_or(RelationCell::Null, RelationCell::Int)
    }
}

pub(super) static MOMENT: Relation = Relation {
    name: "moment",
    about: "A moment in the recording of a profile, before filters. Only profiles that heapprof \
            recorded have moments.",
    columns: &[
        ("profile INTEGER", "profile.id"),
        (
            "since_nanos INTEGER",
            "nanoseconds since the recording began",
        ),
        (
            "time_nanos INTEGER",
            "nanoseconds since 1970 UTC; 0 unknown",
        ),
        ("inuse_space INTEGER", "bytes in use then, NULL if unknown"),
        (
            "inuse_objects INTEGER",
            "objects in use then, NULL if unknown",
        ),
        (
            "rss INTEGER",
            "bytes of the process in memory then, NULL if unknown",
        ),
        ("is_peak INTEGER", "1 if the heap was largest then"),
    ],
    keys: 1,
    ordered: 0..1,
    rows: |q| Ok(q.moments().len()),
    narrow: |q, keys| rows_with_key(q.moments(), keys[0], |moment| moment.part as i64 + 1),
    cell: |q, row, column| {
        let moment = &q.moments()[row];
        let profile = &q.parts[moment.part].profile;
        match column {
            0 => (moment.part + 1).into(),
            1 => moment.since_nanos.into(),
            2 => match profile.time_nanos {
                0 => 0i64.into(),
                end => end
                    .saturating_sub(profile.duration_nanos)
                    .saturating_add(moment.since_nanos)
                    .into(),
            },
            3 => moment.inuse_space.into(),
            4 => moment.inuse_objects.into(),
            5 => moment.rss.into(),
            _ => moment.is_peak.into(),
        }
    },
};

pub(super) static SIZE_CLASS: Relation = Relation {
    name: "size_class",
    about: "The number of objects in a range of sizes that the process of a profile allocated, \
            before filters. Only profiles that heapprof recorded have these counts.",
    columns: &[
        ("profile INTEGER", "profile.id"),
        (
            "least INTEGER",
            "the smallest size in bytes; NULL for mappings, which are counted together whatever \
             their size",
        ),
        ("most INTEGER", "the largest size in bytes, or NULL"),
        ("alloc_objects INTEGER", "objects that were allocated"),
        ("inuse_objects INTEGER", "those of them that are in use"),
    ],
    keys: 1,
    ordered: 0..1,
    rows: |q| Ok(q.sizes().len()),
    narrow: |q, keys| rows_with_key(q.sizes(), keys[0], |of| of.part as i64 + 1),
    cell: |q, row, column| {
        let of = &q.sizes()[row];
        match column {
            0 => (of.part + 1).into(),
            1 => of.sizes.map(|[least, _]| least).into(),
            2 => of.sizes.map(|[_, most]| most).into(),
            3 => of.alloc_objects.into(),
            _ => of.inuse_objects.into(),
        }
    },
};
