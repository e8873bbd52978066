//! Damaged files of other tools are refused with one line that gives the place, the expected and
//! the found text.
//!
//! `HEAPPROF_BLESS=1 cargo test -p heapprof-tests refused` rewrites the messages of the table
//! below.

use heapprof_formats::{FormatReadOptions, ProfileFormat, formats, read};

use heapprof_tests::harness::{bless, expect_file, root, run};
use heapprof_tests::wire;

/// Replacements: the text to replace, and the new text.
type Changes = &'static [(&'static str, &'static str)];

/// A complete file of each format, and the changes to try: the text on the left becomes the text on
/// the right.
const CASES: &[(&str, &str, Changes)] = &[
    (
        "gperftools",
        "heap profile: 1: 96 [2: 97] @ heap_v2/524288\n\n# late\n     1:       96 [     2:       97] @ 0x401000 0x402000\n",
        &[
            ("heap_v2", "heap_v3"),
            ("heap_v2/524288", "heapz"),
            ("heap_v2/524288", "contention"),
            ("heap_v2/524288", ""),
            ("524288", "99999999999999999999"),
            ("97] @ 0x", "97] 0x"),
            (" [     2:       97]", ""),
            ("     1: ", "   one: "),
            ("[     2:       97]", "[     2:      -97]"),
            ("       97] @ 0x401000 0x402000\n", "       9"),
            ("     1:       96 [", "     0:       96 ["),
            ("[     2:", "[     0:"),
            ("     1:  ", "9223372036854775808:  "),
            ("     1:       96", "9223372036854775807: 1"),
            ("0x402000", "0x12345678901234567"),
            ("# late", "late"),
        ],
    ),
    (
        "go-text",
        "heap profile: 1: 96 [1: 96] @ heap/1048576\n1: 96 [1: 96] @ 0x401000\n#\t0x400fff\tmain.f+0x1\ta.go:1\n",
        &[
            ("1: 96 [1: 96] @ 0x", "goroutine 1 [running]: 0x"),
            ("0x400fff", "0x12345678901234567"),
            ("1048576", "10485760000000000000"),
        ],
    ),
    (
        "jemalloc",
        "heap_v2/524288\n  t*: 1: 96 [0: 0]\n  t7: 1: 96 [0: 0]\n@ 0x401000 0x402000\n  t*: 1: 96 [0: 0]\n  t7: 1: 96 [0: 0]\n",
        &[
            ("524288", "99999999999999999999"),
            ("  t*: 1: 96 [0: 0]\n", "  t*: 1: 96 [0: 0\n"),
            ("  t7:", "  tx:"),
            ("1: 96 [0: 0]", "1: 99999999999999999999 [0: 0]"),
            ("\n@ 0x401000 0x402000", "\n@ 0x401000\n@ 0x402000"),
            (
                "402000\n  t*: 1: 96 [0: 0]\n  t7: 1: 96 [0: 0]\n",
                "402000\n",
            ),
            ("402000\n", "402000\n  t*: 1: 96 [0: 0]\n"),
            (
                "402000\n  t*: 1: 96",
                "402000\n  t*: 9223372036854775807: 1",
            ),
            ("0x402000", "0x12345678901234567"),
            ("@ 0x401000", "1: 96 [0: 0] @ 0x401000"),
        ],
    ),
    (
        "symbolized",
        "--- symbol\nbinary=/bin/app\n0x401000 main\n---\n--- heap\nheap_v2/1\n@ 0x401001\n  t*: 1: 96 [0: 0]\n",
        &[
            ("0x401000 main", "main 0x401000"),
            ("0x401000", "0x12345678901234567"),
            (
                "---\n--- heap\nheap_v2/1\n@ 0x401001\n  t*: 1: 96 [0: 0]\n",
                "",
            ),
            ("--- heap", "--- contention"),
            (
                "--- symbol\nbinary=/bin/app\n0x401000 main\n---\n--- heap\nheap_v2/1\n",
                "--- heap\nheap 7\n",
            ),
            ("heap_v2/1\n@ 0x401001\n  t*: 1: 96 [0: 0]\n", ""),
            ("heap_v2/1", "heap 7"),
            ("t*: 1", "t*: one"),
            ("--- heap\nheap_v2/1\n@ 0x401001\n", "--- profile\n"),
        ],
    ),
    (
        "java-heapz",
        "--- heapz 1 ---\nformat = java\nresolution=bytes\n  96 1 @ 0x1 0x2\n\n  0x1 main (a.java:1)\n",
        &[
            (
                "format = java\nresolution=bytes\n  96 1 @ 0x1 0x2\n\n  0x1 main (a.java:1)\n",
                "",
            ),
            ("java\n", "python\n"),
            ("format = java", "sampling period=7"),
            ("resolution=bytes\n", ""),
            ("96 1", "96 0"),
            ("96 1", "99999999999999999999 1"),
            ("0x2", "0x12345678901234567"),
            ("  0x1 main", "  0x12345678901234567 main"),
        ],
    ),
    (
        "contention",
        "--- contentionz 1 ---\ncycles/second = 3201000000\nsampling period = 100\n  96 2 @ 0x401000 0x402000\n--- Memory map: ---\n400000-500000: /bin/app\n",
        &[
            ("cycles/second", "cycles/minute"),
            ("cycles/second = 3201000000", "format = java"),
            ("  96 2 @", "  96 two @"),
            ("  96 2 @", "  99999999999999999999 2 @"),
            ("  96 2 @", "  96 9223372036854775807 @"),
            ("0x402000", "0x12345678901234567"),
        ],
    ),
    (
        "threadz",
        "--- threadz 1 ---\n\n--- Thread 7f01 (name: main/7) stack: ---\n  PC:  0x00401000: wait(int)\n  0x00402000: main\n--- Memory map: ---\n",
        &[
            ("(name: main/7)", "(name: main)"),
            ("0x00401000", "0x12345678901234567"),
            ("--- Memory map: ---\n", ""),
        ],
    ),
    (
        "go-count",
        "goroutine profile: total 3\n2 @ 0x401000 0x402000\n#\t0x400fff\tmain.f+0x1\ta.go:1\n1 @ 0x401000\n",
        &[
            ("2 @ 0x", "goroutine 1 [running]: 0x"),
            ("2 @", "99999999999999999999 @"),
            ("0x402000", "0x12345678901234567"),
        ],
    ),
    (
        "massif",
        "desc: (none)\ncmd: ./app\ntime_unit: i\n#-----------\nsnapshot=0\n#-----------\ntime=0\nmem_heap_B=30\n\
         mem_heap_extra_B=2\nmem_stacks_B=0\nheap_tree=peak\nn2: 30 (heap allocation functions) malloc\n n1: 20 0x1: f (f.c:1)\n  \
         n0: 20 0x2: main (f.c:2)\n n0: 10 in 2 places, all below massif's threshold (1.00%)\n",
        &[
            ("time_unit", "time unit"),
            ("snapshot=0", "snapshot="),
            ("snapshot=0\n", ""),
            ("time=0", "time=-1"),
            ("mem_heap_B=30", "mem_heap_B=3x"),
            ("mem_heap_B=30", "mem_heap_B=-30"),
            ("mem_heap_B=30", "mem_heap_B=9223372036854775807"),
            ("mem_heap_B=30\n", ""),
            ("heap_tree=peak", "heap_tree=oak"),
            ("n2: 30 (", "n: 30 ("),
            (" n1: 20 0x1", "   n1: 20 0x1"),
            (" n1: 20 0x1", " n3: 20 0x1"),
            ("n1: 20 0x1:", "n1: 20 f"),
            ("in 2 places", "at 2 places"),
            ("n1: 20 0x1", "n1: -9223372036854775808 0x1"),
            (
                "  n0: 20 0x2: main (f.c:2)\n n0: 10 in 2 places, all below massif's threshold (1.00%)\n",
                "",
            ),
            ("#-----------\nsnapshot=0", "# snapshot=0"),
        ],
    ),
    (
        "dhat",
        "{\"dhatFileVersion\":2,\"mode\":\"heap\",\"verb\":\"Allocated\",\"bklt\":true,\"bkacc\":true,\"tu\":\"instrs\",\n\
         \"cmd\":\"./app\",\"pid\":7,\"te\":9,\"tg\":4,\n\"pps\":[{\"tb\":9,\"tbk\":1,\"gb\":9,\"gbk\":1,\"eb\":9,\"ebk\":1,\"fs\":[1]}],\n\
         \"ftbl\":[\"[root]\",\"0x1: main (m.c:1)\"]}\n",
        &[
            ("Version\":2", "Version\":3"),
            ("\"tb\":9", "\"tb\":\"9\""),
            ("\"tb\":9", "\"tb\":9.5"),
            ("\"tb\":9", "\"tb\":99999999999999999999"),
            ("\"fs\":[1]", "\"fs\":[2]"),
            ("\"fs\":[1]", "\"fs\":[-1]"),
            ("\"fs\":[1]", "\"fs\":1"),
            (",\"fs\":[1]", ""),
            ("\"pps\":[", "\"pps\":{"),
            (",\n\"ftbl\":[\"[root]\",\"0x1: main (m.c:1)\"]", ""),
            ("\"ftbl\":[\"[root]\"", "\"ftbl\":[7"),
            ("m.c:1)\"]}\n", "m.c"),
            ("m.c:1)\"]}\n", "m.c:1)\"]} and more\n"),
        ],
    ),
    (
        "heaptrack",
        "v 10400 3\nX ./app\nI 1000 5\ns 8 /bin/app\ns 4 main\ns 3 a.c\ni 20 1 2 3 7\nt 1 0\na 10 1\n+ 0\nc 5\nR 9\n- 0\n",
        &[
            ("v 10400 3", "v 10400 4"),
            ("v 10400 3\nX ./app", "v 10400 3\nx ./app"),
            ("s 4 main", "s 5 main"),
            ("s 4 main", "s main"),
            ("i 20 1 2", "i 2g 1 2"),
            ("i 20 1 2", "i 20 1 9"),
            ("i 20 1 2 3 7", "i"),
            ("t 1 0", "t 2 0"),
            ("t 1 0", "t 1 1"),
            ("t 1 0", "t 1"),
            ("a 10 1", "a 10 2"),
            ("a 10 1", "a ffffffffffffffff 1"),
            ("+ 0", "+ 1"),
            ("+ 0", "+"),
            ("- 0", "- -1"),
            ("c 5", "c five"),
            ("a 10 1\n+ 0\n", "a 7fffffffffffffff 1\n+ 0\n+ 0\n"),
            (
                "a 10 1\n+ 0\nc 5\nR 9\n- 0\n",
                "a 7fffffffffffffff 1\n- 0\n- 0\n- 0\n",
            ),
            ("R 9", "Q 9"),
        ],
    ),
    (
        "leaksanitizer",
        "==7==ERROR: LeakSanitizer: detected memory leaks\n\nDirect leak of 32 byte(s) in 2 object(s) allocated from:\n    \
         #0 0x10 in main m.c:3\n\nSUMMARY: LeakSanitizer: 32 byte(s) leaked in 2 allocation(s).\n",
        &[
            ("Direct leak of 32", "Direct leak of many"),
            ("2 object(s)", "2 objects"),
            ("#0 0x10 in main", "#0 main"),
            ("#0 0x10 in main", "#x 0x10 in main"),
            ("32 byte(s) leaked", "64 byte(s) leaked"),
            ("2 allocation(s)", "two allocation(s)"),
            (
                "main m.c:3\n",
                "main m.c:3\nDirect leak of 9223372036854775807 byte(s) in 1 object(s) allocated from:\n    #0 0x10 in main m.c:3\n",
            ),
            (
                "Direct leak of 32 byte(s) in 2 object(s) allocated from:\n    #0 0x10 in main m.c:3\n\nSUMMARY: LeakSanitizer: 32 byte(s) leaked in 2 allocation(s).\n",
                "",
            ),
        ],
    ),
    (
        "memleak",
        "[11:16:33] Top 2 stacks with outstanding allocations:\n\t96 bytes in 5 allocations from stack\n\t\tmain+0x6d [app]\n\t4 bytes in 1 allocations from stack\n\t\tmain+0x6d [app]\n",
        &[("96 bytes", "9223372036854775807 bytes")],
    ),
    (
        "bpftrace",
        "Attaching 1 probe...\n@[\n    malloc+0\n    main+7\n]: 5\n@[\n    main+7\n]: 9\n",
        &[
            ("]: 5", "]: five"),
            ("]: 5", "]: \n[16, 32)  5 |@@@|\n"),
            ("]: 5", "]: count 5"),
            ("]: 5\n@[\n    main+7\n]: 9\n", ""),
            ("]: 5", "main"),
            ("]: 5\n", ""),
            (
                "]: 5\n@[\n    main+7\n]: 9\n",
                "]: 9223372036854775807\n@[\n    malloc+1\n    main+7\n]: 9223372036854775807\n",
            ),
        ],
    ),
    (
        "dtrace",
        "\n              libc.so.1`malloc\n              app`main+0x1a\n               12\n\n",
        &[
            ("               12\n\n", ""),
            ("               12\n", "\nthe end\n"),
            (
                "               12\n\n",
                "               12\n\n              libc.so.1`malloc\n              app`main+0x1a\n    9223372036854775807\n\n",
            ),
            (
                "               12\n",
                "\n           value  ------------- Distribution ------------- count    \n",
            ),
        ],
    ),
    (
        "perf-script",
        "app 7 [001] 2.25: probe_libc:malloc: (7f11) bytes=0x10\n\t  10 f+0x1 (/bin/app)\n\napp 7 [001] 2.26: probe_libc:malloc: (7f11) bytes=0x10\n\t  10 f+0x1 (/bin/app)\n\n",
        &[
            ("bytes=0x10\n\t", "bytes=x\n\t"),
            ("bytes=0x10\n\t", "bytes=0xffffffffffffffff\n\t"),
            ("bytes=0x10\n\t", "bytes=0x7fffffffffffffff\n\t"),
            (
                "\t  10 f+0x1 (/bin/app)\n\napp 7 [001] 2.26",
                "\t  f+0x1 (/bin/app)\n\napp 7 [001] 2.26",
            ),
            ("\n\napp 7 [001] 2.26:", "\n\napp [001] 2.26:"),
        ],
    ),
    (
        "mprof",
        "main::a:10:12\nmain::b:12:14\nmain::c:14:15\n",
        &[
            ("b:12:14\n", "b:12:14\nc:12:14 pages\n"),
            ("b:12:14", "b:12:99999999999999999999"),
            ("b:12:14", "b:12:9223372036854775807"),
            ("b:12:14", "b:9223372036854775807:0"),
            (
                "a:10:12\nmain::b:12:14\n",
                "a:0:2251799813685247\nmain::a:1:2251799813685247\n",
            ),
        ],
    ),
    (
        "speedscope",
        "{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",\n\"shared\":{\"frames\":[{\"name\":\"main\"}]},\n\
         \"profiles\":[{\"type\":\"sampled\",\"name\":\"p\",\"unit\":\"bytes\",\"startValue\":0,\"endValue\":9,\"samples\":[[0]],\"weights\":[9]}]}\n",
        &[
            ("\"unit\":\"bytes\"", "\"unit\":\"bits\""),
            ("\"type\":\"sampled\"", "\"type\":\"drawn\""),
            ("\"type\":\"sampled\",", ""),
            (
                "{\"type\":\"sampled\",\"name\":\"p\",\"unit\":\"bytes\",\"startValue\":0,\"endValue\":9,\"samples\":[[0]],\"weights\":[9]}",
                "",
            ),
            ("[[0]]", "[[1]]"),
            ("[[0]]", "[[0],[0]]"),
            ("[[0]]", "[0]"),
            ("\"weights\":[9]", "\"weights\":[\"9\"]"),
            ("\"weights\":[9]", "\"weights\":[9999999999999999999]"),
            ("\"weights\":[9]", "\"weights\":[1e300]"),
            ("{\"name\":\"main\"}", "{\"title\":\"main\"}"),
            (
                "\"shared\":{\"frames\":[{\"name\":\"main\"}]},\n",
                "\"shared\":{\"frames\":[]},\n",
            ),
            ("\"shared\":{\"frames\":[{\"name\":\"main\"}]},\n", ""),
            ("[9]}]}\n", "[9"),
        ],
    ),
    (
        "folded",
        "main;parse 96\nmain 1\nmain;print 3\n",
        &[
            ("main 1\n", "main 1\nmain;parse\n"),
            ("main 1\n", "main 1\nmain 2 3\n"),
            ("main 1\n", "main 99999999999999999999\n"),
            ("main 1\n", "main;parse 9223372036854775807\n"),
            ("main;parse 96\n", "main;parse 96 97\n"),
        ],
    ),
];

/// Beginnings of files of other kinds, in the order of docs/formats/refused.md, with the first
/// words of each message.
const OTHERS: &[(&str, &[u8], &str)] = &[
    ("perf.data", b"PERFILE2\x68\0\0\0", "is perf record data"),
    (
        "Java's Flight Recorder, .jfr",
        b"FLR\0\0\x02\0\x01",
        "is a Java Flight",
    ),
    (
        "Java's heap dump, .hprof",
        b"JAVA PROFILE 1.0.2\0\0\0\0\x08",
        "is a Java heap dump",
    ),
    (
        ".nettrace",
        b"Nettrace\x14\0\0\0!FastSerialization.1",
        "is a .NET trace",
    ),
    (
        ".gcdump",
        b"\x14\0\0\0!FastSerialization.1\x05",
        "is a .NET heap dump",
    ),
    (
        "Go's heap dump",
        b"go1.7 heap dump\n\x06\0\x08",
        "is a Go heap dump",
    ),
    (
        "Go's trace",
        b"go 1.22 trace\0\0\0",
        "is a Go execution trace",
    ),
    (
        "stackprof's dump",
        b"\x04\x08{\x0f:\x0cversionf",
        "is a Ruby object",
    ),
    ("rbspy's recording", b"rbspy02\n", "is an rbspy recording"),
    (
        "callgrind.out",
        b"# callgrind format\nversion: 1\ncreator: callgrind-3.19.0\n",
        "is a callgrind profile",
    ),
    (
        "a pickle",
        b"\x80\x04\x95\x10\0\0\0\0\0\0\0",
        "is a Python pickle",
    ),
    (
        "cProfile",
        b"\xfb)\x03\xfa\x08<string>",
        "is a profile of Python's cProfile",
    ),
    ("a memgraph", b"bplist00\xd4", "is a binary property list"),
    (
        ".heapsnapshot",
        b"{\"snapshot\":{\"meta\":{\"node_fields\":[",
        "is a V8 heap snapshot",
    ),
    (
        ".heapprofile",
        b"{\"head\":{\"callFrame\":{\"functionName\":\"(root)\"},\"selfSize\":0,",
        "is a V8 heap profile",
    ),
    (
        ".cpuprofile",
        b"{\"nodes\":[{\"id\":1,\"callFrame\":{",
        "is a V8 CPU profile",
    ),
    (
        "Chrome's trace",
        b"{\"traceEvents\":[",
        "is a trace in Chrome's format",
    ),
    (
        "the same as a list",
        b"[{\"ph\":\"X\",\"ts\":1,\"pid\":7}",
        "is a trace in Chrome's format",
    ),
    (
        "Firefox's profile",
        b"{\"meta\":{\"preprocessedProfileVersion\":44}",
        "is a Firefox profiler profile",
    ),
    (
        "stackprof's JSON",
        b"{\"version\":1.2,\"mode\":\"object\",\"interval\":1,\"gc_samples\":0}",
        "is a stackprof profile",
    ),
    (
        "memray's statistics",
        b"{\"total_num_allocations\":7,\"total_bytes_allocated\":96}",
        "is memray statistics",
    ),
    (
        "Pyroscope's flame graph",
        b"{\"flamebearer\":{\"names\":[",
        "is a Pyroscope flame graph",
    ),
    (
        "a core file",
        b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x04\0\x3e\0",
        "is a core file",
    ),
    (
        "a program",
        b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0",
        "is a program or library",
    ),
    (
        "a SQLite database",
        b"SQLite format 3\0\x10\0",
        "is a SQLite database",
    ),
    ("a zip archive", b"PK\x03\x04\x14\0", "is a zip archive"),
    (".xz", b"\xfd7zXZ\0\0\x04", "is xz-compressed"),
    (".bz2", b"BZh91AY&SY\x01", "is bzip2-compressed"),
    (
        ".lz4 of an old form",
        b"\x02\x21\x4c\x18\x64",
        "is lz4-compressed",
    ),
    ("a PDF", b"%PDF-1.7\n%\xe2\xe3", "is a PDF"),
    ("a picture", b"\x89PNG\r\n\x1a\n\0\0\0\x0d", "is a picture"),
    (
        "an SVG",
        b"<?xml version=\"1.0\"?><svg width=\"1200\">",
        "is an SVG picture",
    ),
    (
        "a web page",
        b"<!DOCTYPE html>\n<title>404</title>",
        "is a web page",
    ),
    (
        "text in UTF-32",
        b"\xff\xfe\0\0m\0\0\0",
        "is text in UTF-32",
    ),
];

/// Returns the header of a tar archive. The name of the format is 257 bytes after its beginning.
fn tar() -> Vec<u8> {
    let mut header = vec![0; 512];
    header[..10].copy_from_slice(b"heap.pb.gz");
    header[257..263].copy_from_slice(b"ustar\0");
    header
}

#[test]
fn other_files_are_named() {
    for archive in [tar(), wire::gzip(&tar())] {
        assert!(unknown(&archive).starts_with("is a tar archive"));
    }
    for (name, head, expected) in OTHERS {
        // Neither more data nor compressing the file with gzip changes the message.
        let tail: Vec<u8> = (0..200_000u32).map(|i| (i * 7) as u8).collect();
        let long = [head, &tail[..]].concat();
        for file in [head.to_vec(), long, wire::gzip(head)] {
            let found = unknown(&file);
            assert!(found.starts_with(expected), "{name}: {found}");
            assert!(found.len() < 300 && !found.contains('\n'), "{found}");
            assert!(!found.contains("tried"), "{name}: {found}");
        }
    }
}

/// Returns the kind of file that the error names.
fn unknown(file: &[u8]) -> String {
    let error = read(file, &FormatReadOptions::default())
        .unwrap_err()
        .to_string();
    match error.strip_prefix("is not in a format that heapprof reads: it ") {
        Some(kind) => kind.to_string(),
        None => panic!("{error}"),
    }
}

fn error(text: &str) -> String {
    match read(text.as_bytes(), &FormatReadOptions::default()) {
        Ok(reading) => panic!("read as {:?}:\n{text}", reading.format),
        Err(error) => error.to_string(),
    }
}

#[test]
fn each_damage_is_refused_in_one_line() {
    let mut found = String::from(
        "# Files of other tools that are refused\n\nThis page lists the messages about damaged \
         files. Each message has the place, the expected text\nand the found text. The exit code is \
         2. `tests/desk/refused.rs` has the files \
         and checks this page.\n",
    );
    for format in formats().filter(|format| *format != ProfileFormat::Pprof) {
        let name = format.name();
        assert!(
            CASES.iter().any(|case| case.0 == name),
            "{name}: a format without damages"
        );
    }
    for (format, whole, changes) in CASES {
        let reading = read(whole.as_bytes(), &FormatReadOptions::default())
            .unwrap_or_else(|e| panic!("{format}: {e}"));
        assert_eq!(reading.format.name(), *format);
        found.push_str(&format!(
            "\n## {format}\n\n| change | message |\n| :--- | :--- |\n"
        ));
        for (from, to) in *changes {
            assert!(whole.contains(from), "{format}: {from}");
            let message = error(&whole.replacen(from, to, 1));
            assert_eq!(message.lines().count(), 1, "{message}");
            assert!(message.len() < 400, "{message}");
            assert!(message.starts_with("line "), "{format}: {message}");
            let shown = |text: &str| {
                let text = text.replace('\n', "⏎").replace('|', "\\|");
                let cut: String = text.chars().take(50).collect();
                let dots = if cut.len() < text.len() { "…" } else { "" };
                format!("{cut}{dots}")
            };
            let to = if to.is_empty() {
                "nothing".to_string()
            } else {
                format!("`{}`", shown(to))
            };
            let message = message.replace('|', "\\|");
            found.push_str(&format!("| `{}` is {to} | {message} |\n", shown(from)));
        }
    }
    found.push_str(
        "\n## Files of other kinds\n\nheapprof recognizes these files by how they begin, also \
         inside gzip and zstd. The message is\n`is not in a format that heapprof reads: it \
         …`.\n\n| file | message |\n| :--- | :--- |\n",
    );
    let archive = tar();
    let others = OTHERS.iter().map(|(name, head, _)| (*name, *head));
    for (name, head) in others.chain([("a tar archive", &archive[..])]) {
        found.push_str(&format!("| {name} | {} |\n", unknown(head)));
    }
    expect_file(&root().join("docs/formats/refused.md"), &found);
}

#[test]
fn the_command_line_names_the_file() {
    let folder = tempfile::tempdir().unwrap();
    for (format, whole, changes) in CASES {
        let (from, to) = changes[0];
        let text = whole.replacen(from, to, 1);
        std::fs::write(folder.path().join(format), &text).unwrap();
        let run = run(folder.path(), &["top", format]);
        assert_eq!((run.code, run.out.as_str()), (2, ""), "{format}");
        assert_eq!(run.err, format!("heapprof: {format}: {}\n", error(&text)));
    }
    assert!(!bless() || CASES.len() > 9);
}
