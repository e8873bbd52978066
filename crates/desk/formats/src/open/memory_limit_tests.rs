//! Checks that every reader stops at the memory limit, for texts with a great number of stacks.

use std::collections::BTreeSet;

use super::read;
use crate::format::ProfileFormat;
use crate::readers;
use crate::reading::FormatReadOptions;

/// Number of distinct stacks of a text. They take more memory than the smallest limit.
const STACKS: usize = 40_000;

/// Maximum number of bytes of a text. The memory limit is larger than that.
const MAX_BYTES: u64 = 7 << 20;

/// A text of `STACKS` distinct stacks. `stack` returns the text of each stack. The other texts come
/// before the first stack, between two stacks, and after the last stack.
struct RepeatedText {
    format: &'static str,
    before: String,
    stack: fn(usize) -> String,
    between: &'static str,
    after: String,
}

fn texts() -> Vec<RepeatedText> {
    let text = |format, before: &str, stack, after: &str| RepeatedText {
        format,
        before: before.to_string(),
        stack,
        between: "",
        after: after.to_string(),
    };
    let addresses =
        |i: usize| format!("1: {i} [1: {i}] @ 0x{i:x}00 0x{i:x}01 0x{i:x}02 0x{i:x}03\n");
    let dhat_frames: Vec<String> = (0..STACKS).map(|i| format!("\"0x{i:x}: f{i}\"")).collect();
    let dhat_end = format!("],\"ftbl\":[{}]}}", dhat_frames.join(","));
    let speedscope_frames: Vec<String> = (0..STACKS)
        .map(|i| format!("{{\"name\":\"f{i}\"}}"))
        .collect();
    let speedscope_start = format!(
        "{{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",\"shared\":\
         {{\"frames\":[{}]}},\"profiles\":[{{\"type\":\"sampled\",\"name\":\"\",\"unit\":\"bytes\",\
         \"weights\":[{}],\"samples\":[",
        speedscope_frames.join(","),
        vec!["1"; STACKS].join(",")
    );
    vec![
        text(
            "gperftools",
            "heap profile: 1: 1 [1: 1] @ heapprofile\n",
            addresses,
            "",
        ),
        text(
            "go-text",
            "heap profile: 1: 1 [1: 1] @ heap/1\n",
            addresses,
            "",
        ),
        text(
            "jemalloc",
            "heap_v2/1\n  t*: 1: 1 [0: 0]\n",
            |i| format!("@ 0x{i:x}00 0x{i:x}01 0x{i:x}02 0x{i:x}03\n  t*: 1: 1 [0: 0]\n"),
            "",
        ),
        text(
            "symbolized",
            "--- symbol\nbinary=/bin/x\n---\n--- heap\nheap profile: 1: 1 [1: 1] @ heapprofile\n",
            addresses,
            "",
        ),
        text(
            "java-heapz",
            "--- heapz 1 ---\nformat = java\nresolution=bytes\n",
            |i| format!("{} 1 @ 0x{i:x}00 0x{i:x}01 0x{i:x}02 0x{i:x}03\n", i + 1),
            "",
        ),
        text(
            "contention",
            "--- contentionz 1 ---\nsampling period = 100\n",
            |i| format!("1 1 @ 0x{i:x}00 0x{i:x}01 0x{i:x}02 0x{i:x}03\n"),
            "",
        ),
        text(
            "threadz",
            "--- threadz 1 ---\n",
            |i| format!("--- Thread {i:x} (name: /1) stack: ---\n0x{i:x}00 0x{i:x}02 0x{i:x}04\n"),
            "--- Memory map: ---\n",
        ),
        text(
            "go-count",
            "goroutine profile: total 1\n",
            |i| format!("1 @ 0x{i:x}00 0x{i:x}01 0x{i:x}02 0x{i:x}03\n"),
            "",
        ),
        text(
            "massif",
            "desc: x\ncmd: x\ntime_unit: i\n#-----------\nsnapshot=0\n#-----------\ntime=0\n\
             mem_heap_B=40000\nmem_heap_extra_B=0\nmem_stacks_B=0\nheap_tree=peak\n\
             n40000: 40000 x\n",
            |i| format!(" n0: 1 0x{i:x}: f{i}\n"),
            "",
        ),
        text(
            "heaptrack",
            "v 10400 3\n",
            // Each stack has two calls, and each call has an address and a name of its own.
            |i| {
                let name = format!("{:08x}", 2 * i);
                let (outer, inner) = (2 * i + 1, 2 * i + 2);
                format!(
                    "s 8 {name}\ns 9 {name}i\ni {outer:x} 0 {outer:x}\ni {inner:x} 0 {inner:x}\n\
                     t {outer:x} 0\nt {inner:x} {outer:x}\na 1 {inner:x}\n+ {i:x}\n"
                )
            },
            "",
        ),
        RepeatedText {
            between: ",",
            ..text(
                "dhat",
                "{\"dhatFileVersion\":2,\"mode\":\"heap\",\"verb\":\"Allocated\",\"cmd\":\"x\",\
                 \"pid\":1,\"te\":1,\"tg\":1,\"pps\":[",
                |i| format!("{{\"tb\":1,\"tbk\":1,\"fs\":[{i}]}}"),
                &dhat_end,
            )
        },
        RepeatedText {
            between: ",",
            ..text(
                "speedscope",
                &speedscope_start,
                |i| format!("[{i}]"),
                "]}]}",
            )
        },
        text(
            "perf-script",
            "",
            |i| format!("x 1 [000] 1.0: probe:malloc: (1) size=1\n\t{i:x} f{i} (/x)\n\n"),
            "",
        ),
        text(
            "leaksanitizer",
            "==1==ERROR: LeakSanitizer: detected memory leaks\n\n",
            |i| {
                format!(
                    "Direct leak of 1 byte(s) in 1 object(s) allocated from:\n    \
                     #0 0x{i:x} in f{i} /x.c:{i}\n\n"
                )
            },
            "",
        ),
        text(
            "memleak",
            "[12:00:00] Top 10 stacks with outstanding allocations:\n",
            |i| format!("\t1 bytes in 1 allocations from stack\n\t\tf{i}+0x1 [x]\n"),
            "",
        ),
        text(
            "bpftrace",
            "Attaching 1 probe...\n\n",
            |i| format!("@[\n    f{i}+1\n]: 1\n"),
            "",
        ),
        text(
            "dtrace",
            "\n",
            |i| format!("              x`f{i}+0x1\n                1\n\n"),
            "",
        ),
        text("mprof", "", |i| format!("f{i}:1:{}\n", i + 1), ""),
        text("folded", "", |i| format!("f{i};g{i} 1\n"), ""),
    ]
}

#[test]
fn every_reader_stops_at_the_limit() {
    let options = FormatReadOptions::default().max_inflated(MAX_BYTES);
    let texts = texts();
    let tested: BTreeSet<_> = texts.iter().map(|text| text.format).collect();
    let text_formats = readers::formats().filter(|format| *format != ProfileFormat::Pprof);
    let all: BTreeSet<_> = text_formats.map(ProfileFormat::name).collect();
    assert_eq!(tested, all, "each text format has a row above");
    let mut failed = Vec::new();
    for text in texts {
        let stacks: Vec<String> = (0..STACKS).map(text.stack).collect();
        let whole = text.before + &stacks.join(text.between) + &text.after;
        assert!(
            whole.len() < MAX_BYTES as usize,
            "{}: {}",
            text.format,
            whole.len()
        );
        match read(whole.as_bytes(), &options) {
            Err(error) if error.to_string().contains("of memory") => {}
            Err(error) => failed.push(format!("{}: {error}", text.format)),
            Ok(reading) => failed.push(format!(
                "{}: read as {}, {} samples, {} bytes from {}",
                text.format,
                reading.format.name(),
                reading.profile.samples.len(),
                reading.profile.memory(),
                whole.len()
            )),
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

/// Checks that a single stack stops at the limit if it has a great number of named frames or
/// threads.
#[test]
fn one_stack_with_many_lines_stops_at_the_limit() {
    let options = FormatReadOptions::default().max_inflated(MAX_BYTES);
    let lines = |line: fn(usize) -> String| (0..STACKS * 3).map(line).collect::<String>();
    let go = "heap profile: 1: 1 [1: 1] @ heap/1\n1: 1 [1: 1] @ 0x11\n".to_string()
        + &lines(|i| format!("#\t0x10\tf{i}+0x1\ta.go:{i}\n"));
    let jemalloc = "heap_v2/1\n  t*: 1: 1 [0: 0]\n@ 0x11\n  t*: 1: 1 [0: 0]\n".to_string()
        + &lines(|i| format!("  t{i}: 1: 1 [0: 0]\n"));
    for text in [go, jemalloc] {
        assert!(text.len() < MAX_BYTES as usize, "{}", text.len());
        let error = read(text.as_bytes(), &options).expect_err("it has a limit");
        assert!(error.to_string().contains("of memory"), "{error}");
    }
}
