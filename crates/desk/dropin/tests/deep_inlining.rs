//! The page of `-weblist` for functions that are inlined very deeply.

use std::cell::RefCell;
use std::ops::Range;

use heapprof_dropin::report::{
    Instruction, ObjectFile, ObjectMapping, ObjectTool, PprofReportOptions, weblist,
};
use heapprof_profile::{Function, Line, ProfileBuilder};
use regex::Regex;

/// The tool for a profile without binaries.
struct NoTool;

impl ObjectTool for NoTool {
    fn open(&self, file: &str, _: ObjectMapping) -> Result<Box<dyn ObjectFile>, String> {
        Err(format!("open {file}: no such file or directory"))
    }

    fn disassemble(&self, file: &str, _: Range<u64>, _: bool) -> Result<Vec<Instruction>, String> {
        Err(format!("open {file}: no such file or directory"))
    }
}

/// A small profile can have a location with many inlined calls. The page does not grow with their
/// square.
#[test]
fn deeply_inlined_calls_are_cut() {
    let page_of = |depth: i64| {
        let mut builder = ProfileBuilder::new(&[("objects", "count"), ("space", "bytes")]);
        let name = builder.text("deep");
        let function = builder.function(Function {
            name,
            system_name: name,
            ..Function::default()
        });
        let lines: Vec<Line> = (1..=depth)
            .map(|line| Line {
                function,
                line,
                column: 0,
            })
            .collect();
        let location = builder.location(None, 0x1000, false, &lines);
        builder.add_sample(vec![location], &[1, 3570], &mut []);
        let read = |file: &str| Err(format!("open {file}: no such file or directory"));
        let notes = RefCell::new(Vec::new());
        let note = |text: &str| notes.borrow_mut().push(text.to_string());
        let options = PprofReportOptions {
            column: 1,
            total: 3570,
            symbol: Some(Regex::new("deep").unwrap()),
            ..PprofReportOptions::default()
        };
        let mut out = Vec::new();
        weblist(&builder.finish(), &options, &NoTool, &read, &note, &mut out).unwrap();
        (out.len(), notes.into_inner())
    };
    let (shallow, notes) = page_of(200);
    assert!(notes.is_empty(), "{notes:?}");
    let (deep, notes) = page_of(20_000);
    assert!(shallow < deep && deep < 64 << 20, "{shallow} {deep}");
    assert_eq!(notes.len(), 1);
    assert!(notes[0].contains("inlined so deeply"), "{notes:?}");
}
