//! The reports `tree` and `flame`: the call tree, in which one `(other)` node below a parent stands
//! for the parent's nodes that are too small to be seen.

use crate::error::AnalysisError;
use crate::header::{ReportHeader, header};
use crate::place::{PlaceId, PlaceTable};
use crate::session::AnalysisSession;
use heapprof_totals::module::FunctionModule;
use heapprof_totals::query::Query;

/// A node of the call tree. Nodes are in pre-order: the nodes below a node follow it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeRow {
    /// The place of the node. A node that stands for cut nodes has the place [`PlaceId::OTHER`],
    /// `(other)`.
    pub place: PlaceId,
    /// The depth, from 0.
    pub depth: usize,
    /// The sums over the samples that end in the node, one for each profile of the question.
    pub own: Vec<i64>,
    /// The sums over the samples that pass through the node, one for each profile of the question.
    pub total: Vec<i64>,
}

/// The reports `tree` and `flame`. Rows are read on request, because an uncut tree may have too
/// many rows to hold in memory.
pub struct TreeReport<'s> {
    /// The header of the report, which is about the first profile.
    pub header: ReportHeader,
    /// The headers of the other profiles.
    pub others: Vec<ReportHeader>,
    /// Whether the tree starts from the leaves of the stacks.
    pub reverse: bool,
    /// The least share of the total that a node needs to be in the tree.
    pub least: f64,
    session: &'s AnalysisSession,
    /// The statement for the nodes of the sample type `type` of the first profile.
    sql: String,
    r#type: i64,
    /// The places that the ids in [`TreeRow::place`] refer to.
    pub places: PlaceTable,
}

/// Makes the report of the tree over all profiles of the session's question. The tree options of
/// the question decide which nodes are cut.
pub fn tree<'s>(
    session: &'s AnalysisSession,
    query: &Query,
) -> Result<TreeReport<'s>, AnalysisError> {
    let question = session.question.as_ref();
    let profiles = question.map_or(1, |q| q.parts.len());
    let mut headers = Vec::new();
    let mut types = Vec::new();
    for profile in 1..=profiles {
        let (header, r#type) = header(session, profile as i64, query)?;
        headers.push(header);
        types.push(r#type);
    }
    let mut sql = "SELECT n.entity, n.depth, n.self, n.total".to_string();
    for other in 2..=profiles {
        sql.push_str(&format!(", n{other}.self, n{other}.total"));
    }
    sql.push_str(" FROM node n");
    for (other, r#type) in (2..=profiles).zip(&types[1..]) {
        sql.push_str(&format!(
            " JOIN node n{other} ON n{other}.profile = {other} AND n{other}.type = {type} \
             AND n{other}.id = n.id"
        ));
    }
    sql.push_str(" WHERE n.profile = 1 AND n.type = ?1 ORDER BY n.id");
    if let Some(question) = question {
        // The tree is built here, so that an error in it is returned before anything is written.
        question.tree()?;
    }
    let mut headers = headers.into_iter();
    Ok(TreeReport {
        header: headers.next().unwrap_or_default(),
        others: headers.collect(),
        reverse: question.is_some_and(|q| q.tree_options().reverse),
        least: question.map_or(0.0, |q| q.tree_options().least),
        session,
        sql,
        r#type: types[0],
        places: PlaceTable::for_stacks(session, query.granularity)?,
    })
}

impl TreeReport<'_> {
    /// Returns all rows, in pre-order.
    pub fn rows(&self) -> Result<Vec<TreeRow>, AnalysisError> {
        let mut rows = Vec::new();
        self.each(|row| {
            rows.push(row.clone());
            Ok::<_, AnalysisError>(())
        })?;
        Ok(rows)
    }

    /// Returns the module of each place, in the order of [`TreeReport::places`].
    pub fn modules(&self) -> Result<Vec<FunctionModule>, AnalysisError> {
        const MODULES_SQL: &str = "SELECT f.module, f.is_library FROM entity e \
             JOIN function f ON f.id = e.function ORDER BY e.id";
        // The first place stands for several places that were left out.
        let mut modules = vec![FunctionModule::default()];
        self.session.each(MODULES_SQL, [], |row| {
            modules.push(FunctionModule {
                name: row.get(0)?,
                is_library: row.get(1)?,
            });
            Ok::<_, AnalysisError>(())
        })?;
        Ok(modules)
    }

    /// Calls the closure `each` with the rows one by one, in pre-order.
    pub fn each<E: From<AnalysisError>>(
        &self,
        mut each: impl FnMut(&TreeRow) -> Result<(), E>,
    ) -> Result<(), E> {
        let profiles = 1 + self.others.len();
        let mut row = TreeRow {
            own: vec![0; profiles],
            total: vec![0; profiles],
            ..TreeRow::default()
        };
        let mut others = OtherNodeWriter::new(self);
        self.session.each(&self.sql, [self.r#type], |found| {
            let mut read = || -> Result<(), AnalysisError> {
                row.place = PlaceId::read(found, 0)?;
                row.depth = found.get::<_, i64>(1)? as usize;
                for p in 0..profiles {
                    row.own[p] = found.get(2 + 2 * p)?;
                    row.total[p] = found.get(3 + 2 * p)?;
                }
                Ok(())
            };
            read()?;
            others.close(row.depth, &mut each)?;
            others.open(&row);
            each(&row)
        })?;
        others.close_all(&mut each)
    }
}

/// Adds an `(other)` child below each node whose own value and children do not add up to its total.
struct OtherNodeWriter {
    /// The missing part of the total of each node on the path, for each profile: the total without
    /// the node's own value and its children so far. The first entry is for the root of the whole
    /// tree.
    left: Vec<i64>,
    profiles: usize,
    row: TreeRow,
}

impl OtherNodeWriter {
    fn new(tree: &TreeReport<'_>) -> Self {
        let headers = std::iter::once(&tree.header).chain(&tree.others);
        let left: Vec<i64> = headers.map(|h| h.net).collect();
        Self {
            profiles: left.len(),
            left,
            row: TreeRow {
                place: PlaceId::OTHER,
                ..TreeRow::default()
            },
        }
    }

    /// Ends the nodes below `depth`, and adds their `(other)` children.
    fn close<E>(
        &mut self,
        depth: usize,
        each: &mut impl FnMut(&TreeRow) -> Result<(), E>,
    ) -> Result<(), E> {
        while self.left.len() > (depth + 1) * self.profiles {
            self.last(each)?;
        }
        Ok(())
    }

    fn close_all<E>(&mut self, each: &mut impl FnMut(&TreeRow) -> Result<(), E>) -> Result<(), E> {
        self.close(0, each)?;
        self.last(each)
    }

    fn last<E>(&mut self, each: &mut impl FnMut(&TreeRow) -> Result<(), E>) -> Result<(), E> {
        let rest = self.left.split_off(self.left.len() - self.profiles);
        if rest.iter().all(|&r| r == 0) {
            return Ok(());
        }
        self.row.depth = self.left.len() / self.profiles;
        self.row.own.clone_from(&rest);
        self.row.total = rest;
        each(&self.row)
    }

    /// Begins a node below the last node of the path.
    fn open(&mut self, row: &TreeRow) {
        let parent = self.left.len() - self.profiles;
        for (rest, total) in self.left[parent..].iter_mut().zip(&row.total) {
            *rest -= total;
        }
        let rest = row
            .total
            .iter()
            .zip(&row.own)
            .map(|(total, own)| total - own);
        self.left.extend(rest);
    }
}
