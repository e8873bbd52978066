//! A small report for tests.

use crate::{
    PageFrame, PageFunction, PageModule, PageNode, PageSampleType, PageSnapshot, WebReport,
};

/// Makes a report with two functions, one of which calls the other.
pub(crate) fn small_report() -> WebReport {
    let function = |name: &str| PageFunction {
        name: name.to_string(),
        ..PageFunction::default()
    };
    WebReport {
        types: vec![PageSampleType {
            name: "inuse_space".to_string(),
            unit: "bytes".to_string(),
        }],
        default_type: "inuse_space".to_string(),
        functions: vec![function("main"), function("</script>%DATA%\"\u{7}")],
        files: vec![String::new()],
        modules: vec![PageModule::default()],
        frames: (0..2)
            .map(|function| PageFrame { function, line: 0 })
            .collect(),
        nodes: vec![
            PageNode::default(),
            PageNode {
                parent: Some(0),
                frame: 1,
            },
        ],
        snapshots: vec![PageSnapshot {
            total: vec![7],
            nodes: vec![1],
            values: vec![vec![7]],
            ..PageSnapshot::default()
        }],
        ..WebReport::default()
    }
}
