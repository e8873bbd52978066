//! Packs a report: zlib of the head's length, the head as JSON, and the columns.

use std::io::Write as _;

use flate2::{Compression, write::ZlibEncoder};

use crate::columns::{Columns, small};
use crate::{Error, Report, head};

/// How hard zlib tries. It is fixed, so that equal reports give equal bytes.
const LEVEL: u32 = 9;

/// A packed report (`heapprof.report.v1`), as the page and `heapprof web` send it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container(Vec<u8>);

impl Container {
    /// Packs a report.
    ///
    /// # Errors
    ///
    /// Rows may contradict each other or refer to nothing, and numbers may be too large.
    pub fn of(report: &Report) -> Result<Self, Error> {
        let columns = columns(report)?;
        let head = head::json(report, &columns.places)?;
        let length = u32::try_from(head.len()).map_err(|_| Error::TooLarge {
            what: "the length of the head",
            value: head.len() as i128,
        })?;
        Ok(Self(packed(&[
            &length.to_le_bytes(),
            &head,
            &columns.bytes,
        ])))
    }

    /// Returns the bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the bytes, for a server that sends them.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

fn packed(parts: &[&[u8]]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::new(LEVEL));
    for part in parts {
        encoder.write_all(part).expect("a vector takes all");
    }
    encoder.finish().expect("a vector takes all")
}

fn columns(report: &Report) -> Result<Columns, Error> {
    let lines = check_tree(report)?;
    let mut columns = Columns::default();
    let up = |(i, node): (usize, &crate::Node)| match node.parent {
        Some(parent) => i as u32 - parent,
        None => i as u32 + 1,
    };
    columns.plain("node.up", report.nodes.iter().enumerate().map(up));
    columns.plain("node.frame", report.nodes.iter().map(|node| node.frame));
    columns.differences(
        "frame.func",
        report.frames.iter().map(|frame| frame.function),
    );
    columns.differences("frame.line", lines.into_iter());
    for (k, snapshot) in report.snapshots.iter().enumerate() {
        check_rows(report, &snapshot.nodes, &snapshot.values, true)?;
        columns.differences(&format!("s{k}.node"), snapshot.nodes.iter().copied());
        for (t, values) in snapshot.values.iter().enumerate() {
            columns.values(&format!("s{k}.v{t}"), values)?;
        }
    }
    if let Some(rows) = &report.size_rows {
        check_rows(report, &rows.nodes, &rows.values, false)?;
        length("the list of sizes", rows.log2.len(), rows.nodes.len())?;
        for (row, log2) in rows.log2.iter().enumerate() {
            refers("size", row, "power", (*log2).into(), 64)?;
        }
        columns.differences("size.node", rows.nodes.iter().copied());
        columns.plain("size.log2", rows.log2.iter().map(|log2| u32::from(*log2)));
        for (t, values) in rows.values.iter().enumerate() {
            columns.values(&format!("size.v{t}"), values)?;
        }
    }
    Ok(columns)
}

/// Checks frames and nodes, and returns the lines of the frames.
fn check_tree(report: &Report) -> Result<Vec<u32>, Error> {
    for (what, count) in [
        ("the number of nodes", report.nodes.len()),
        ("the number of functions", report.functions.len()),
        ("the number of frames", report.frames.len()),
    ] {
        small(what, count.try_into().unwrap_or(i64::MAX))?;
    }
    let mut lines = Vec::with_capacity(report.frames.len());
    for (i, frame) in report.frames.iter().enumerate() {
        let function = frame.function as usize;
        refers("frame", i, "function", function, report.functions.len())?;
        lines.push(small("a line", frame.line)?);
    }
    // The nodes from a root to the one before. A parent must be among them.
    let mut path: Vec<u32> = Vec::new();
    for (i, node) in report.nodes.iter().enumerate() {
        let frame = node.frame as usize;
        refers("node", i, "frame", frame, report.frames.len())?;
        while path.last().is_some_and(|last| Some(*last) != node.parent) {
            path.pop();
        }
        if path.last().copied() != node.parent {
            return Err(Error::NotPreOrder(i));
        }
        path.push(i as u32);
    }
    Ok(lines)
}

/// Checks rows of values: their nodes exist and ascend, and each type has a value for each row.
fn check_rows(
    report: &Report,
    nodes: &[u32],
    values: &[Vec<i64>],
    once: bool,
) -> Result<(), Error> {
    for (row, node) in nodes.iter().enumerate() {
        refers("row", row, "node", *node as usize, report.nodes.len())?;
        let before = row.checked_sub(1).map(|before| nodes[before]);
        if before.is_some_and(|before| before > *node || once && before == *node) {
            let what = "the node of row";
            return Err(Error::NotAscending { what, row });
        }
    }
    length(
        "the list of value columns",
        values.len(),
        report.types.len(),
    )?;
    values
        .iter()
        .try_for_each(|column| length("a column of values", column.len(), nodes.len()))
}

/// Checks that an index leads to a row.
pub(crate) fn refers(
    what: &'static str,
    row: usize,
    refers: &'static str,
    index: usize,
    count: usize,
) -> Result<(), Error> {
    if index < count {
        return Ok(());
    }
    Err(Error::Missing {
        what,
        row,
        refers,
        index,
        count,
    })
}

/// Checks the length of a list.
pub(crate) fn length(what: &'static str, found: usize, wanted: usize) -> Result<(), Error> {
    if found == wanted {
        return Ok(());
    }
    Err(Error::Length {
        what,
        found,
        wanted,
    })
}
