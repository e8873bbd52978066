//! `tree` and `flame`: the call tree, nodes too thin to see counted into their parent's `(other)`.

use crate::error::Error;
use crate::header::{Header, header};
use crate::place::{self, Place};
use crate::query::Query;
use crate::session::Session;

/// A node, in pre-order: the nodes below it follow it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeRow {
    /// Which entity; what the cut left out of a node is named `(other)`.
    pub place: Place,
    /// From 0.
    pub depth: usize,
    /// Sums over the samples that end here, one a profile of the question.
    pub own: Vec<i64>,
    /// Sums over the samples that pass here, one a profile of the question.
    pub total: Vec<i64>,
}

/// The report.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// What it is about; of the first profile.
    pub header: Header,
    /// Of the further profiles.
    pub others: Vec<Header>,
    /// In pre-order.
    pub rows: Vec<TreeRow>,
    /// Whether it grows from the leaves.
    pub reverse: bool,
    /// The least share of the total that a node has.
    pub least: f64,
}

/// The row that stands for nodes that were cut.
pub const OTHER: &str = "(other)";

/// The tree over all profiles of the session's question, which says how it is cut.
pub fn tree(session: &Session, query: &Query) -> Result<Tree, Error> {
    let question = session.question.as_ref();
    let profiles = question.map_or(1, |q| q.parts.len());
    let mut headers = Vec::new();
    let mut types = Vec::new();
    for profile in 1..=profiles {
        let (header, r#type) = header(session, profile as i64, query)?;
        headers.push(header);
        types.push(r#type);
    }
    let places = place::columns(query.granularity, "n");
    let mut sql = format!("SELECT {places}, n.depth, n.self, n.total");
    for other in 2..=profiles {
        sql.push_str(&format!(", n{other}.self, n{other}.total"));
    }
    sql.push_str(" FROM node n JOIN function f ON f.id = n.function");
    for (other, r#type) in (2..=profiles).zip(&types[1..]) {
        sql.push_str(&format!(
            " JOIN node n{other} ON n{other}.profile = {other} AND n{other}.type = {type} \
             AND n{other}.id = n.id"
        ));
    }
    sql.push_str(" WHERE n.profile = 1 AND n.type = ?1 ORDER BY n.id");
    let nodes = session.rows(&sql, [types[0]], |row| {
        let pick = |at: usize| -> rusqlite::Result<Vec<i64>> {
            (0..profiles).map(|p| row.get(at + 2 * p)).collect()
        };
        Ok(TreeRow {
            place: Place::read(row, 0)?,
            depth: row.get::<_, i64>(4)? as usize,
            own: pick(5)?,
            total: pick(6)?,
        })
    })?;
    let net: Vec<i64> = headers.iter().map(|h| h.net).collect();
    let mut headers = headers.into_iter();
    Ok(Tree {
        header: headers.next().unwrap_or_default(),
        others: headers.collect(),
        rows: with_others(nodes, &net),
        reverse: question.is_some_and(|q| q.tree_options().reverse),
        least: question.map_or(0.0, |q| q.tree_options().least),
    })
}

/// Adds an `(other)` child wherever a node's own value and its children do not add up to its total.
fn with_others(nodes: Vec<TreeRow>, net: &[i64]) -> Vec<TreeRow> {
    let mut rows: Vec<TreeRow> = Vec::with_capacity(nodes.len());
    // Nodes on the path to the next one, each with what is left of its total.
    let mut open: Vec<Vec<i64>> = vec![net.to_vec()];
    let close = |rows: &mut Vec<TreeRow>, open: &mut Vec<Vec<i64>>, depth: usize| {
        while open.len() > depth + 1 {
            let rest = open.pop().unwrap_or_default();
            if rest.iter().any(|&r| r != 0) {
                rows.push(other(open.len(), rest));
            }
        }
    };
    for node in nodes {
        close(&mut rows, &mut open, node.depth);
        if let Some(parent) = open.last_mut() {
            parent
                .iter_mut()
                .zip(&node.total)
                .for_each(|(rest, t)| *rest -= t);
        }
        open.push(
            node.total
                .iter()
                .zip(&node.own)
                .map(|(t, own)| t - own)
                .collect(),
        );
        rows.push(node);
    }
    close(&mut rows, &mut open, 0);
    let rest = open.pop().unwrap_or_default();
    if rest.iter().any(|&r| r != 0) {
        rows.push(other(0, rest));
    }
    rows
}

fn other(depth: usize, rest: Vec<i64>) -> TreeRow {
    TreeRow {
        place: Place {
            function: OTHER.to_string(),
            ..Place::default()
        },
        depth,
        own: rest.clone(),
        total: rest,
    }
}
