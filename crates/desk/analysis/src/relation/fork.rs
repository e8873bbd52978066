//! The tables of an audit of forked children: the children, their loads, and the memory that they
//! no longer share.

use super::{Relation, all_rows};

pub(crate) static FORK_CHILD: Relation = Relation {
    name: "fork_child",
    about: "A forked child of an audited recording, as of the last reading. Sizes are bytes.",
    columns: &[
        ("profile INTEGER", "profile.id"),
        ("pid INTEGER", "its process id"),
        ("parent INTEGER", "its parent's process id"),
        (
            "generation INTEGER",
            "forks between the first process and it",
        ),
        ("program TEXT", "the file name of its program"),
        (
            "title TEXT",
            "its command line, which daemons change; may be empty",
        ),
        (
            "time_micros INTEGER",
            "when it was forked, microseconds since 1970 UTC",
        ),
        (
            "looked_micros INTEGER",
            "how old it was at the last reading; 0 if there was none",
        ),
        ("age_micros INTEGER", "how old it was when it ended"),
        ("ending TEXT", "ended, exec, killed or running"),
        ("rss INTEGER", "in memory"),
        ("pss INTEGER", "its proportional part of rss"),
        ("private_dirty INTEGER", "private and written to"),
        ("private_clean INTEGER", "private and not written to"),
        ("shared_dirty INTEGER", "others have it, too; written"),
        ("shared_clean INTEGER", "others have it, too; not written"),
        ("swap INTEGER", "swapped out"),
        ("huge INTEGER", "in huge pages"),
        (
            "new_space INTEGER",
            "pages of no file that were not there at the fork",
        ),
        (
            "shared_space INTEGER",
            "inherited pages that it still shares",
        ),
        (
            "unshared_space INTEGER",
            "inherited pages that it no longer shares",
        ),
        (
            "own_space INTEGER",
            "heapprof's own memory, which the columns before do not include",
        ),
        (
            "own_private_space INTEGER",
            "the part of own_space that no other process has",
        ),
        ("inherited_space INTEGER", "what it had at the fork"),
        (
            "period INTEGER",
            "mean bytes between samples of its allocations; 1 if all are known",
        ),
        ("lacks TEXT", "why something is not known; may be empty"),
    ],
    keys: 0,
    ordered: 0..0,
    rows: |q| Ok(q.forks().children.len()),
    narrow: all_rows,
    cell: |q, row, column| {
        let child = &q.forks().children[row];
        let (fork, of) = (&child.fork, &child.fork.figures);
        match column {
            0 => (child.part + 1).into(),
            1 => fork.pid.into(),
            2 => fork.parent.into(),
            3 => fork.generation.into(),
            4 => fork.program.as_str().into(),
            5 => fork.title.as_str().into(),
            6 => fork.forked_at.into(),
            7 => fork.audited_age.into(),
            8 => fork.age.into(),
            9 => fork.ending.name().into(),
            10 => of.rss.into(),
            11 => of.pss.into(),
            12 => of.private_dirty.into(),
            13 => of.private_clean.into(),
            14 => of.shared_dirty.into(),
            15 => of.shared_clean.into(),
            16 => of.swap.into(),
            17 => of.huge.into(),
            18 => of.new.into(),
            19 => of.shared.into(),
            20 => of.unshared.into(),
            21 => of.own.into(),
            22 => of.own_private.into(),
            23 => of.inherited.into(),
            24 => fork.period.into(),
            _ => fork.missing.as_str().into(),
        }
    },
};

pub(crate) static FORK_LOAD: Relation = Relation {
    name: "fork_load",
    about: "What a forked child loaded or tried to load: noted by an audit, or seen in stacks.",
    columns: &[
        ("profile INTEGER", "profile.id"),
        ("pid INTEGER", "the child's process id; 0 unknown"),
        ("position INTEGER", "from 0; attempts of a child in order"),
        ("name TEXT", "such as Text/Balanced.pm"),
        ("kind TEXT", "require, do, string eval, XS or dlopen"),
        ("outcome TEXT", "loaded, failed or not found"),
        ("micros INTEGER", "how long it took; NULL unknown"),
        (
            "site TEXT",
            "who asked for it: FILE:LINE, then the callers after ' < '",
        ),
        (
            "stats INTEGER",
            "system calls of the search that ask about a path",
        ),
        ("opens INTEGER", "those that open a file"),
        (
            "flat INTEGER",
            "bytes in use that it allocated; for XS and dlopen, its private pages",
        ),
        ("cum INTEGER", "with what it loaded in turn"),
    ],
    keys: 0,
    ordered: 0..0,
    rows: |q| Ok(q.forks().loads.len()),
    narrow: all_rows,
    cell: |q, row, column| {
        let load = &q.forks().loads[row];
        match column {
            0 => (load.part + 1).into(),
            1 => load.pid.into(),
            2 => row.into(),
            3 => load.name.as_str().into(),
            4 => load.kind.as_str().into(),
            5 => load.outcome.name().into(),
            6 => load.micros.into(),
            7 => load.site.as_str().into(),
            8 => load.stats.into(),
            9 => load.opens.into(),
            10 => load.flat.into(),
            _ => load.cum.into(),
        }
    },
};

pub(super) static FORK_UNSHARED: Relation = Relation {
    name: "fork_unshared",
    about: "The contents of pages that a forked child inherited and no longer shares.",
    columns: &[
        ("profile INTEGER", "profile.id"),
        ("pid INTEGER", "the child's process id"),
        (
            "kind TEXT",
            "data, SV heads, SV bodies, shared keys, new blocks, malloc, variables, stack, …",
        ),
        ("entity INTEGER", "entity.id of whoever allocated it"),
        ("objects INTEGER", "allocations that lie there"),
        ("bytes INTEGER", "how many of their bytes lie there"),
    ],
    keys: 0,
    ordered: 0..0,
    rows: |q| Ok(q.forks().unshared.len()),
    narrow: all_rows,
    cell: |q, row, column| {
        let of = &q.forks().unshared[row];
        match column {
            0 => (of.part + 1).into(),
            1 => of.pid.into(),
            2 => of.kind.as_str().into(),
            3 => (of.entity + 1).into(),
            4 => of.objects.into(),
            _ => of.bytes.into(),
        }
    },
};
