//! The table of the call tree.

use super::total::entity_cell;
use super::{Relation, RelationCell};
use heapprof_totals::call_tree::NO_PARENT;

pub(super) static NODE: Relation = Relation {
    name: "node",
    about: "A node of the call tree in pre-order, so that a subtree is a range of ids; nodes are \
            the same for all profiles and types. The cum of an entity is the sum of total over \
            its outermost nodes.",
    columns: &[
        ("profile INTEGER", "profile.id"),
        ("type INTEGER", "sample_type.id"),
        ("id INTEGER", "from 1"),
        ("parent INTEGER", "node.id, NULL at the root"),
        ("depth INTEGER", "from 0"),
        ("entity INTEGER", "entity.id"),
        ("function INTEGER", "function.id of the entity"),
        ("line INTEGER", "line of the entity"),
        ("address INTEGER", "address of the entity"),
        (
            "last_descendant INTEGER",
            "node.id of the end of its subtree",
        ),
        ("outermost INTEGER", "1 when no ancestor is the same entity"),
        ("self INTEGER", "sum over the samples that end here"),
        ("total INTEGER", "sum over the samples that pass here"),
        ("weight INTEGER", "as total, regardless of sign"),
    ],
    keys: 3,
    ordered: 2..3,
    rows: |q| Ok(q.tree()?.node.len() * q.blocks().count()),
    narrow: |q, keys| {
        let Ok(tree) = q.tree() else { return 0..0 };
        let nodes = tree.node.len();
        let blocks: Vec<(usize, usize)> = q.blocks().collect();
        let Some(first) = (match keys {
            [p] => blocks.iter().position(|b| b.0 as i64 + 1 == *p),
            [p, t, ..] => q.block(*p, *t),
            [] => Some(0),
        }) else {
            return 0..0;
        };
        match keys {
            [p] => {
                let own = blocks.iter().filter(|b| b.0 as i64 + 1 == *p).count();
                first * nodes..(first + own) * nodes
            }
            [_, _, id] => match usize::try_from(*id) {
                Ok(id) if (1..=nodes).contains(&id) => first * nodes + id - 1..first * nodes + id,
                _ => 0..0,
            },
            _ => first * nodes..(first + 1) * nodes,
        }
    },
    cell: |q, row, column| {
        let Ok(tree) = q.tree() else {
            return RelationCell::Null;
        };
        let (block, id) = (row / tree.node.len(), row % tree.node.len());
        let node = &tree.node[id];
        let at = id * tree.width + block;
        match column {
            2 => (id + 1).into(),
            3 if node.parent == NO_PARENT => RelationCell::Null,
            3 => (node.parent + 1).into(),
            4 => node.depth.into(),
            5 => (node.entity + 1).into(),
            6..=8 => entity_cell(q, node.entity, column - 6),
            9 => (node.last_descendant + 1).into(),
            10 => node.outermost.into(),
            11 => tree.own[at].into(),
            12 => tree.total[at].into(),
            13 => tree
                .weight
                .get(at)
                .copied()
                .unwrap_or(tree.total[at])
                .into(),
            _ => match q.blocks().nth(block) {
                Some((p, _)) if column == 0 => (p + 1).into(),
                Some((p, c)) => {
                    let part = &q.parts[p];
                    (part.types[part.columns[c]] + 1).into()
                }
                None => RelationCell::Null,
            },
        }
    },
};
