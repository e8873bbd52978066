//! Texts of heap formats that are refused, each with the one line that says where and why.

use heapprof_formats::{Options, read};

use crate::harness::run;

/// A text, and what is said of it.
const CASES: &[(&str, &str)] = &[
    // gperftools
    (
        "heap profile: 1: 96 [1: 96] @ heap_v3/524288\n",
        "line 1: expected heapprofile, heap_v2/PERIOD, heapz_v2/PERIOD, heap/PERIOD, growth or fragmentation behind the @, found \"heap profile: 1: 96 [1: 96] @ heap_v3/524288\"",
    ),
    (
        "heap profile: 1: 96 [1: 96] @ heapz\n",
        "line 1: expected heapprofile, heap_v2/PERIOD, heapz_v2/PERIOD, heap/PERIOD, growth or fragmentation behind the @, found \"heap profile: 1: 96 [1: 96] @ heapz\"",
    ),
    (
        "heap profile: 1: 96 [1: 96] @ contention\n",
        "line 1: expected heapprofile, heap_v2/PERIOD, heapz_v2/PERIOD, heap/PERIOD, growth or fragmentation behind the @, found \"heap profile: 1: 96 [1: 96] @ contention\"",
    ),
    (
        "heap profile: 1: 96 [1: 96] @\n",
        "line 1: expected heapprofile, heap_v2/PERIOD, heapz_v2/PERIOD, heap/PERIOD, growth or fragmentation behind the @, found \"heap profile: 1: 96 [1: 96] @\"",
    ),
    (
        "heap profile: 1: 96 [1: 96] @ heap_v2/99999999999999999999\n",
        "line 1: expected a sampling period below 2^63, found \"99999999999999999999\"",
    ),
    (
        "heap profile: 1: 96 [1: 96] @ heapprofile\n1: 96 [1: 96] 0x401000\n",
        "line 2: expected `N: BYTES [N: BYTES] @ 0xADDRESS …`, a comment or MAPPED_LIBRARIES:, found \"1: 96 [1: 96] 0x401000\"",
    ),
    (
        "heap profile: 1: 96 [1: 96] @ heapprofile\n1: 96 @ 0x401000\n",
        "line 2: expected `N: BYTES [N: BYTES] @ 0xADDRESS …`, a comment or MAPPED_LIBRARIES:, found \"1: 96 @ 0x401000\"",
    ),
    (
        "heap profile: 1: 96 [1: 96] @ heapprofile\none: 96 [1: 96] @ 0x401000\n",
        "line 2: expected `N: BYTES [N: BYTES] @ 0xADDRESS …`, a comment or MAPPED_LIBRARIES:, found \"one: 96 [1: 96] @ 0x401000\"",
    ),
    (
        "heap profile: 1: 96 [1: 96] @ heapprofile\n1: 96 [1: -96] @ 0x401000\n",
        "line 2: expected `N: BYTES [N: BYTES] @ 0xADDRESS …`, a comment or MAPPED_LIBRARIES:, found \"1: 96 [1: -96] @ 0x401000\"",
    ),
    (
        "heap profile: 1: 96 [1: 96] @ heapprofile\n1: 96 [1: 9",
        "line 2: expected `N: BYTES [N: BYTES] @ 0xADDRESS …`, a comment or MAPPED_LIBRARIES:, found \"1: 96 [1: 9\"",
    ),
    (
        "heap profile: 1: 96 [1: 96] @ heapprofile\n\n# late\n0: 96 [0: 0] @ 0x401000\n",
        "line 4: expected 0 bytes in 0 objects, found 96 bytes",
    ),
    (
        "heap profile: 1: 96 [2: 96] @ heapprofile\n0: 0 [0: 96] @ 0x401000\n",
        "line 2: expected 0 bytes in 0 objects, found 96 bytes",
    ),
    (
        "heap profile: 1: 96 [1: 96] @ heapprofile\n9223372036854775808: 96 [1: 96] @ 0x401000\n",
        "line 2: expected a number of 64 bits, found \"9223372036854775808\"",
    ),
    (
        "heap profile: 1: 96 [1: 96] @ heapprofile\n1: 96 [1: 96] @ 0x401000 0x12345678901234567\n",
        "line 2: expected an address of 64 bits, found \"0x12345678901234567\"",
    ),
    (
        "heap profile: 1: 96 [1: 96] @ heap_v2/524288\n9223372036854775807: 1 [0: 0] @ 0x401000\n",
        "line 2: expected objects that sampling every 524288 bytes can find, found 1 bytes in 9223372036854775807 objects",
    ),
    (
        "heap profile: 1: 96 [1: 96] @ growth\n1: 96 [1: 96] @ 0x401000\n\u{1b}[31mdone\u{1b}[0m\n",
        "line 3: expected `N: BYTES [N: BYTES] @ 0xADDRESS …`, a comment or MAPPED_LIBRARIES:, found \"\\u{1b}[31mdone\\u{1b}[0m\"",
    ),
    // Go
    (
        "heap profile: 1: 96 [1: 96] @ heap/1048576\n1: 96 [1: 96] @ 0x401000\n#\t0x12345678901234567\tmain.f+0x1\ta.go:1\n",
        "line 3: expected `#`, an address of 64 bits, a function and its line, found \"#\\t0x12345678901234567\\tmain.f+0x1\\ta.go:1\"",
    ),
    (
        "heap profile: 1: 96 [1: 96] @ heap/1048576\ngoroutine 1 [running]:\n",
        "line 2: expected `N: BYTES [N: BYTES] @ 0xADDRESS …`, a comment or MAPPED_LIBRARIES:, found \"goroutine 1 [running]:\"",
    ),
    // jemalloc
    (
        "heap_v2/99999999999999999999\n",
        "line 1: expected a sampling period below 2^63, found \"99999999999999999999\"",
    ),
    (
        "heap_v2/524288\n  t*: 1: 96 [0: 0]\n@ 0x401000\n  t*: 1: 96 [0: 0\n",
        "line 4: expected `t*: N: BYTES [N: BYTES]`, found \"t*: 1: 96 [0: 0\"",
    ),
    (
        "heap_v2/524288\n  t*: 1: 96 [0: 0]\n@ 0x401000\n  tx: 1: 96 [0: 0]\n",
        "line 4: expected `t*: N: BYTES [N: BYTES]`, found \"tx: 1: 96 [0: 0]\"",
    ),
    (
        "heap_v2/524288\n  t*: 1: 96 [0: 0]\n@ 0x401000\n  t*: 1: 99999999999999999999 [0: 0]\n",
        "line 4: expected a number below 2^63, found \"99999999999999999999\"",
    ),
    (
        "heap_v2/524288\n  t*: 1: 96 [0: 0]\n@ 0x401000\n@ 0x402000\n",
        "line 4: expected `t*: N: BYTES [N: BYTES]`, found \"@ 0x402000\"",
    ),
    (
        "heap_v2/524288\n  t*: 1: 96 [0: 0]\n@ 0x401000\n",
        "line 4: expected `t*: N: BYTES [N: BYTES]`, found the end of the file",
    ),
    (
        "heap_v2/524288\n@ 0x401000\n  t*: 1: 96 [0: 0]\n  t*: 1: 96 [0: 0]\n",
        "line 4: expected one t* a stack, found \"t*: 1: 96 [0: 0]\"",
    ),
    (
        "heap_v2/524288\n@ 0x12345678901234567\n  t*: 1: 96 [0: 0]\n",
        "line 2: expected an address of 64 bits, found \"0x12345678901234567\"",
    ),
    (
        "heap_v2/524288\n1: 96 [0: 0] @ 0x401000\n",
        "line 2: expected `@ 0xADDRESS …`, `t*: N: BYTES [N: BYTES]`, the same of a thread, or MAPPED_LIBRARIES:, found \"1: 96 [0: 0] @ 0x401000\"",
    ),
    (
        "heap_v2/524288\n@ 0x401000\n  t*: 9223372036854775807: 1 [0: 0]\n",
        "line 3: expected objects that sampling every 524288 bytes can find, found 1 bytes in 9223372036854775807 objects",
    ),
    // Symbolized
    (
        "--- symbol\nbinary=/bin/app\n0x401000 main\n",
        "line 4: expected `0xADDRESS NAME`, `binary=PATH` or `---`, found the end of the file",
    ),
    (
        "--- symbol\nmain 0x401000\n---\n--- heap\n",
        "line 2: expected `0xADDRESS NAME`, `binary=PATH` or `---`, found \"main 0x401000\"",
    ),
    (
        "--- symbol\n0x12345678901234567 main\n---\n",
        "line 2: expected an address of 64 bits, found \"0x12345678901234567\"",
    ),
    (
        "--- symbol\n---\n--- contention\n",
        "line 3: expected `--- heap`, `--- growth`, `--- profile` or the first line of a heap profile, found \"--- contention\"",
    ),
    (
        "--- symbol\n---\n--- heap\n",
        "line 4: expected `--- heap`, `--- growth`, `--- profile` or the first line of a heap profile, found the end of the file",
    ),
    (
        "--- symbol\n---\n--- heap\nheap 7\n",
        "line 4: expected `--- heap`, `--- growth`, `--- profile` or the first line of a heap profile, found \"heap 7\"",
    ),
    (
        "--- symbol\n---\n--- profile\n\0\0\0\0",
        "line 3: expected 8 bytes of word 1, found the end of the file after 4",
    ),
    (
        "--- symbol\n---\n--- profile\n\0\0\0\0\0\0\0\0\u{3}\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\u{10}\u{27}\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        "line 3: expected the words of a heap profile, found a CPU profile, a sample every 10000 microseconds",
    ),
    (
        "--- symbol\n---\n--- profile\n\0\0\0\0\0\0\0\0\u{3}\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\u{1}\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\u{1}\0\0\0\0\0\0\0",
        "line 3: expected the depth of a stack as word 7, found the end of the file",
    ),
    (
        "--- symbol\n---\n--- profile\n\0\0\0\0\0\0\0\0\u{3}\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\u{1}\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\u{1}\0\0\0\0\0\0\0\0\0\u{1}\0\u{1}\0\0\0",
        "line 3: expected a stack of at most 65536 frames, found 4295032832 in word 7",
    ),
    (
        "--- symbol\n---\n--- profile\n\0\0\0\0\0\0\0\0\u{4}\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\u{1}\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        "line 3: expected the header of google-pprof's words, `0 3 0 1 0`, found something else",
    ),
    // Java
    (
        "--- heapz 1 ---\n",
        "line 2: expected `resolution=bytes`, found the end of the file",
    ),
    (
        "--- heapz 1 ---\nformat = python\nresolution=bytes\n",
        "line 2: expected `format = java` or `resolution=bytes`, found \"format = python\"",
    ),
    (
        "--- heapz 1 ---\nformat = java\nsampling period=7\n",
        "line 3: expected `format = java` or `resolution=bytes`, found \"sampling period=7\"",
    ),
    (
        "--- heapz 1 ---\nformat = java\n96 1 @ 0x1\n",
        "line 3: expected `resolution=bytes`, found \"96 1 @ 0x1\"",
    ),
    (
        "--- heapz 1 ---\nformat = java\nresolution=bytes\n96 0 @ 0x1\n",
        "line 4: expected `BYTES COUNT @ 0xID …` with a count over 0, found \"96 0 @ 0x1\"",
    ),
    (
        "--- heapz 1 ---\nformat = java\nresolution=bytes\n99999999999999999999 1 @ 0x1\n",
        "line 4: expected a number below 2^63, found \"99999999999999999999\"",
    ),
    (
        "--- heapz 1 ---\nformat = java\nresolution=bytes\n96 1 @ 0x12345678901234567\n",
        "line 4: expected an id of 64 bits, found \"0x12345678901234567\"",
    ),
    (
        "--- heapz 1 ---\nformat = java\nresolution=bytes\n96 1 @ 0x1\n0x12345678901234567 main (a.java:1)\n",
        "line 5: expected an id of 64 bits, found \"12345678901234567\"",
    ),
    // Neither
    (
        "Total: 5.4 MB\n",
        "is no profile that heapprof knows: it is text that begins with \"Total: 5.4 MB\"; tried pprof, go-text, gperftools, jemalloc, symbolized, java-heapz, massif, heaptrack, dhat, speedscope, perf-script, leaksanitizer, memleak, bpftrace, dtrace, mprof, folded",
    ),
    (
        "\nheap profile: 1: 96 [1: 96] @ heapprofile\n",
        "is no profile that heapprof knows: it is text that begins with \"heap profile: 1: 96 [1: 96] @ heapprofile\"; tried pprof, go-text, gperftools, jemalloc, symbolized, java-heapz, massif, heaptrack, dhat, speedscope, perf-script, leaksanitizer, memleak, bpftrace, dtrace, mprof, folded",
    ),
];

#[test]
fn each_text_is_refused_with_its_line() {
    for (text, expected) in CASES {
        let error = match read(text.as_bytes(), &Options::default()) {
            Ok(_) => panic!("{text:?} is read"),
            Err(error) => error.to_string(),
        };
        assert_eq!(error, *expected, "{text:?}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn the_command_line_says_which_file() {
    let folder = tempfile::tempdir().unwrap();
    let (text, expected) = CASES[0];
    std::fs::write(folder.path().join("a.heap"), text).unwrap();
    let run = run(folder.path(), &["top", "a.heap"]);
    assert_eq!((run.code, &run.out[..]), (2, ""));
    assert_eq!(run.err, format!("heapprof: a.heap: {expected}\n"));
}
