//! Names with characters that control a terminal or reverse text: no report in any format prints
//! such characters.

use std::path::Path;

use heapprof_profile::{Mapping, Profile, ProfileBuilder, encode};

use heapprof_tests::harness::{Run, run};

/// C0, DEL and C1 control characters, and the bidirectional controls.
const ODD: &str = "\u{1b}]0,x\u{7}\u{8}\r\u{7f}\u{80}\u{9b}31m\u{9f}\u{61c}\u{200e}\u{200f}\
                   \u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\u{2066}\u{2067}\u{2068}\u{2069}";

fn is_control(c: char) -> bool {
    c.is_control() && !matches!(c, '\n' | '\t')
        || ('\u{202a}'..='\u{202e}').contains(&c)
        || ('\u{2066}'..='\u{2069}').contains(&c)
        || ['\u{61c}', '\u{200e}', '\u{200f}'].contains(&c)
}

/// Returns a profile in which every text has all these characters.
fn odd_profile(value: i64) -> Profile {
    let odd = |text: &str| format!("{text}{ODD}{text}");
    let types = [
        ("inuse_objects".to_string(), odd("count")),
        ("inuse_space".to_string(), "bytes".to_string()),
        (odd("other"), odd("unit")),
    ];
    let types: Vec<(&str, &str)> = types
        .iter()
        .map(|(a, b)| (a.as_str(), b.as_str()))
        .collect();
    let mut b = ProfileBuilder::new(&types);
    let (filename, build_id) = (b.text(&odd("/lib/m")), b.text(&odd("ab")));
    b.mapping(Mapping {
        id: 0,
        memory_start: 0x1000,
        memory_limit: 0x9000,
        file_offset: 0,
        filename,
        build_id,
        has_functions: false,
        has_filenames: false,
        has_line_numbers: false,
        has_inline_frames: false,
    });
    let mut labels = [
        b.text_label(&odd("key"), &odd("value")),
        b.number_label(&odd("size"), 7, &odd("unit")),
    ];
    let stack = format!("main@{}.c:1;{}@{}.c:3", odd("m"), odd("f"), odd("g"));
    b.add_folded_with_labels(&stack, &[1, value, 3], &mut labels);
    b.add_folded(&format!("main;{}", odd("h")), &[1, 2 * value, 3]);
    b.add_folded(&format!("main;0x1234@{}", odd("/lib/m")), &[1, value, 3]);
    for text in ["pid: ", "dump: exit", "x"] {
        let comment = b.text(&odd(text));
        b.profile.comment.push(comment);
    }
    b.profile.doc_url = b.text(&odd("https://"));
    b.profile.drop_frames = b.text(&odd("dropped"));
    b.profile.keep_frames = b.text(&odd("kept"));
    b.profile.default_sample_type = b.text("inuse_space");
    b.finish()
}

fn write(folder: &Path, name: &str, value: i64) {
    let file = std::fs::File::create(folder.join(name)).unwrap();
    encode(&odd_profile(value), file).unwrap();
}

fn check_output(what: &[&str], run: &Run) {
    for (stream, text) in [("stdout", &run.out), ("stderr", &run.err)] {
        let found = text.replace("\r\n", "\n").chars().find(|&c| is_control(c));
        assert_eq!(found, None, "{what:?}: {stream}: {text:?}");
    }
}

#[test]
fn no_report_in_any_format_lets_a_control_character_through() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (before, after) = ("b\u{1b}[31m\u{202e}.pb.gz", "a\u{1b}[31m\u{202e}.pb.gz");
    write(folder, before, 1000);
    write(folder, after, 5000);
    let reports: &[&[&str]] = &[
        &["top"],
        &["top", "--wide"],
        &["top", "-g", "lines"],
        &["top", "-g", "files"],
        &["top", "-g", "addresses"],
        &["top", "-t", "2"],
        &["top", "--focus", ODD],
        &["tree"],
        &["tree", "--reverse"],
        &["peek", "."],
        &["list", "."],
        &["traces"],
        &["tags"],
        &["info"],
        &["leaks", "-g", "lines"],
        &["diff", before],
    ];
    for report in reports {
        for format in ["text", "json", "csv", "markdown"] {
            let args = [report, &["-f", format, after][..]].concat();
            let run = run(folder, &args);
            assert_eq!(run.code, 0, "{args:?}: {}", run.err);
            check_output(&args, &run);
            if format == "json" {
                let json: serde_json::Value = serde_json::from_str(&run.out).unwrap();
                // Characters that JSON escapes are not lost.
                let text = json.to_string();
                let lost = report[0] != "tags" && !text.contains('\u{202e}');
                assert!(!lost, "{args:?}: {text}");
            }
        }
    }
    let others: &[&[&str]] = &[
        &["flame", after],
        &["flame", "--base", before, after],
        &["flame", "--title", ODD, after],
        &["flame", "-f", "folded", after],
        &["convert", "--to", "folded", after],
        &["convert", "--to", "json", after],
        &["convert", "--to", "csv", after],
        &["convert", "--to", "speedscope", after],
        &["convert", "--to", "firefox", after],
        &["convert", "--to", "callgrind", after],
        &["convert", "--to", "symbolized", after],
        &["sql", "-p", after, "SELECT * FROM function"],
        &["sql", "-p", after, "-f", "json", "SELECT * FROM comment"],
        &["sql", "-p", after, "-f", "csv", "SELECT * FROM mapping"],
        &["sql", "-p", after, "-f", "markdown", "SELECT * FROM label"],
        &["sql", "-p", after, "-f", "csv", "SELECT 1 AS \"\u{202e}\""],
        &["top", "--show-sql", "--focus", ODD, after],
        &["pprof", "-top", after],
        &["pprof", "-tree", after],
        &["pprof", "-traces", after],
        &["pprof", "-raw", after],
        &["pprof", "-tags", after],
        &["pprof", "-comments", after],
        &["pprof", "-dot", after],
        &["pprof", "-callgrind", after],
        &["pprof", "-peek", ".", after],
        &["jeprof", "--text", after],
        &["jeprof", "--collapsed", after],
        // Errors print names, too.
        &["top", "none\u{1b}[31m\u{202e}"],
        &["top", "--focus", "\u{202e}(", after],
        &["load", "--as", "a/\u{202e}", after],
        &["peek", "none\u{9b}", after],
        &["top", "-f", "\u{202e}", after],
        &["to\u{202e}p"],
    ];
    for args in others {
        check_output(args, &run(folder, args));
    }
    for args in [
        &["load", after, before][..],
        &["ls"],
        &["ls", "-f", "json"],
        &["ls", "-f", "csv"],
        &["ls", "-f", "markdown"],
        &["schema", "--database"],
        &["top", "a\u{1b}[31m\u{202e}"],
        &["top", "a\u{1b}[31m\u{202e}", "--show-sql"],
        &["rm", "none\u{202e}"],
        &["rm", "a\u{1b}[31m\u{202e}"],
    ] {
        check_output(args, &run(folder, args));
    }
}
