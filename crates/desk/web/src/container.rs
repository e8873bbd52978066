//! Packs a report into zlib data: the length of the head, the head as JSON, and the columns.

use std::io::Write as _;

use flate2::{Compression, write::ZlibEncoder};

use crate::check::{check_index, check_length};
use crate::columns::{PackedColumns, check_small};
use crate::{PackError, WebReport, head};

/// zlib's compression level for a file. It is fixed, so that equal reports give equal bytes.
const FILE_COMPRESSION_LEVEL: u32 = 9;
/// zlib's compression level for a server's answer, which does not leave the machine.
const ANSWER_COMPRESSION_LEVEL: u32 = 1;

/// A packed report (`heapprof.report.v1`), as it is stored in a page and sent by `heapprof web`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportContainer(Vec<u8>);

impl ReportContainer {
    /// Packs a report.
    ///
    /// # Errors
    ///
    /// Rows contradict each other or refer to missing rows, or numbers are too large.
    pub fn pack(report: &WebReport) -> Result<Self, PackError> {
        Self::pack_at_level(FILE_COMPRESSION_LEVEL, report)
    }

    /// Packs a report with little compression, for an answer that is needed immediately.
    ///
    /// # Errors
    ///
    /// Rows contradict each other or refer to missing rows, or numbers are too large.
    pub fn pack_quickly(report: &WebReport) -> Result<Self, PackError> {
        Self::pack_at_level(ANSWER_COMPRESSION_LEVEL, report)
    }

    fn pack_at_level(level: u32, report: &WebReport) -> Result<Self, PackError> {
        let columns = report_columns(report)?;
        let head = head::json(report, &columns.places)?;
        let length = u32::try_from(head.len()).map_err(|_| PackError::TooLarge {
            what: "the length of the head",
            value: head.len() as i128,
        })?;
        let parts = [&length.to_le_bytes()[..], &head, &columns.bytes];
        Ok(Self(compress(level, &parts)))
    }

    /// Returns the packed bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the packed bytes as a vector, for a server that sends them.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

fn compress(level: u32, parts: &[&[u8]]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::new(level));
    for part in parts {
        encoder.write_all(part).expect("a vector takes all");
    }
    encoder.finish().expect("a vector takes all")
}

fn report_columns(report: &WebReport) -> Result<PackedColumns, PackError> {
    let lines = check_tree(report)?;
    let mut columns = PackedColumns::default();
    let up = |(i, node): (usize, &crate::PageNode)| match node.parent {
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
        check_length("the list of sizes", rows.log2.len(), rows.nodes.len())?;
        for (row, log2) in rows.log2.iter().enumerate() {
            check_index("size", row, "power", (*log2).into(), 64)?;
        }
        columns.differences("size.node", rows.nodes.iter().copied());
        columns.plain("size.log2", rows.log2.iter().map(|log2| u32::from(*log2)));
        for (t, values) in rows.values.iter().enumerate() {
            columns.values(&format!("size.v{t}"), values)?;
        }
    }
    Ok(columns)
}

/// Checks frames and nodes. Returns the lines of the frames.
fn check_tree(report: &WebReport) -> Result<Vec<u32>, PackError> {
    for (what, count) in [
        ("the number of nodes", report.nodes.len()),
        ("the number of functions", report.functions.len()),
        ("the number of frames", report.frames.len()),
    ] {
        check_small(what, count.try_into().unwrap_or(i64::MAX))?;
    }
    let mut lines = Vec::with_capacity(report.frames.len());
    for (i, frame) in report.frames.iter().enumerate() {
        let function = frame.function as usize;
        check_index("frame", i, "function", function, report.functions.len())?;
        lines.push(check_small("a line", frame.line)?);
    }
    // The nodes from a root to the previous node. The parent of the next node must be among them.
    let mut path: Vec<u32> = Vec::new();
    for (i, node) in report.nodes.iter().enumerate() {
        let frame = node.frame as usize;
        check_index("node", i, "frame", frame, report.frames.len())?;
        while path.last().is_some_and(|last| Some(*last) != node.parent) {
            path.pop();
        }
        if path.last().copied() != node.parent {
            return Err(PackError::NotPreOrder(i));
        }
        path.push(i as u32);
    }
    Ok(lines)
}

/// Checks rows of values: their nodes exist and ascend, and each type has one value for each row.
fn check_rows(
    report: &WebReport,
    nodes: &[u32],
    values: &[Vec<i64>],
    once: bool,
) -> Result<(), PackError> {
    for (row, node) in nodes.iter().enumerate() {
        check_index("row", row, "node", *node as usize, report.nodes.len())?;
        let before = row.checked_sub(1).map(|before| nodes[before]);
        if before.is_some_and(|before| before > *node || once && before == *node) {
            let what = "the node of row";
            return Err(PackError::NotAscending { what, row });
        }
    }
    check_length(
        "the list of value columns",
        values.len(),
        report.types.len(),
    )?;
    values
        .iter()
        .try_for_each(|column| check_length("a column of values", column.len(), nodes.len()))
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;
    use crate::fixture::small_report;

    #[test]
    fn equal_reports_give_equal_bytes() {
        let [one, two] = [(); 2].map(|()| ReportContainer::pack(&small_report()).unwrap());
        assert_eq!(one, two);
    }

    #[test]
    fn the_parts_of_a_peak_are_in_the_head() {
        let mut report = small_report();
        report.snapshots[0].peak_parts = vec![crate::PagePeakPart {
            kind: "libraries".to_string(),
            name: "/lib/libz.so".to_string(),
            bytes: 7,
        }];
        let container = ReportContainer::pack(&report).unwrap();
        let mut head = Vec::new();
        let mut inflated = flate2::read::ZlibDecoder::new(container.as_bytes());
        inflated.read_to_end(&mut head).unwrap();
        let head = String::from_utf8_lossy(&head);
        let expected = r#""peak_parts":[["libraries","/lib/libz.so",7]]"#;
        assert!(head.contains(expected), "{head}");
    }

    /// Tests that a name is escaped in the page's text, and can't end the script.
    #[test]
    fn a_name_is_no_part_of_the_page() {
        let container = ReportContainer::pack(&small_report()).unwrap();
        let page = crate::page("<b>%JS%\"", &container);
        assert!(page.contains("<title>&lt;b&gt;%JS%&quot;</title>"));
        assert_eq!(page.matches("</script>").count(), 2);
        assert!(page.len() < 135_000, "{}", page.len());
    }

    #[test]
    fn what_refers_to_nothing_is_refused() {
        type Damage = fn(&mut WebReport);
        let cases: [(Damage, &str); 9] = [
            (|r| r.nodes[1].parent = None, "ok"),
            (|r| r.nodes[0].parent = Some(1), "order"),
            (|r| r.nodes[1].frame = 9, "frame"),
            (|r| r.frames[0].function = 9, "function"),
            (|r| r.snapshots[0].nodes = vec![5], "node"),
            (|r| r.snapshots[0].values[0] = vec![1 << 60], "exactly"),
            (|r| r.snapshots.clear(), "snapshot"),
            (
                |r| r.imports.get_or_insert_default().machinery = vec![9],
                "function",
            ),
            (
                |r| r.imports.get_or_insert_default().modules = vec![[0, 9, 0]],
                "frame",
            ),
        ];
        for (damage, wanted) in cases {
            let mut report = small_report();
            damage(&mut report);
            match ReportContainer::pack(&report) {
                Ok(_) => assert_eq!(wanted, "ok"),
                Err(error) => {
                    let said = error.to_string();
                    assert!(said.contains(wanted), "{wanted}: {said}");
                }
            }
        }
    }

    /// Unpacks the head and the columns of a container.
    fn unpack(container: &ReportContainer) -> (serde_json::Value, Vec<u8>) {
        let mut bytes = Vec::new();
        let mut decoder = flate2::read::ZlibDecoder::new(container.as_bytes());
        decoder.read_to_end(&mut bytes).unwrap();
        let (length, rest) = bytes.split_first_chunk::<4>().unwrap();
        let (head, columns) = rest.split_at(u32::from_le_bytes(*length) as usize);
        (serde_json::from_slice(head).unwrap(), columns.to_vec())
    }

    #[test]
    fn a_container_is_a_head_and_columns() {
        for container in [
            ReportContainer::pack(&small_report()).unwrap(),
            ReportContainer::pack_quickly(&small_report()).unwrap(),
        ] {
            let (head, columns) = unpack(&container);
            let text = head.to_string();
            assert!(text.contains("heapprof.report.v1"), "{text}");
            assert!(text.contains("%DATA%"), "{text}");
            // The nodes' steps to their parents, the nodes' frames, the functions and lines of
            // frames, and the nodes and values of the snapshot.
            assert_eq!(columns, [1, 1, 0, 1, 0, 2, 0, 0, 2, 14]);
        }
    }

    #[test]
    fn rows_of_sizes_are_checked() {
        type Damage = fn(&mut crate::SizeRows);
        let rows = || crate::SizeRows {
            nodes: vec![0, 1, 1],
            log2: vec![3, 4, 63],
            values: vec![vec![1, 2, 3]],
        };
        let cases: [(Damage, &str); 6] = [
            (|_| {}, "ok"),
            (|rows| rows.nodes = vec![1, 0, 1], "come after"),
            (|rows| rows.nodes[2] = 7, "node 7"),
            (|rows| rows.log2[0] = 64, "power 64"),
            (|rows| rows.log2.truncate(2), "list of sizes"),
            (|rows| rows.values[0].truncate(2), "column of values"),
        ];
        for (damage, wanted) in cases {
            let mut rows = rows();
            damage(&mut rows);
            let packed = ReportContainer::pack(&WebReport {
                size_rows: Some(rows),
                ..small_report()
            });
            let said = packed.map_or_else(|error| error.to_string(), |_| "ok".to_string());
            assert!(said.contains(wanted), "{wanted}: {said}");
        }
    }
}
