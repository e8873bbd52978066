//! `list --asm`: files of other processors are decoded, and files that lack something, or are not
//! the right ones, are named in one line. The values of instructions are in
//! `tests/collector/assembly.rs`.

use std::path::Path;

use heapprof_profile::StringId;
use heapprof_tests::built::{C, build, have, symbolized};
use heapprof_tests::elf_file::{AARCH64, ElfFile, RISCV, X86_64};
use heapprof_tests::fixtures::{json, write};
use heapprof_tests::harness::{Run, run};
use serde_json::Value;

/// What follows a message about a file that another folder may have.
const ADVICE: &str = "; give the folder of the right one with --debug-dir";

fn list(folder: &Path, more: &[&str]) -> Run {
    run(
        folder,
        &[&["list", "--asm"], more, &["^sum$", "p.pb.gz"]].concat(),
    )
}

/// Checks that a report has no instructions, and a line with the reason, which ends with `wanted`.
fn check_reason(listed: &Run, wanted: &str) {
    assert_eq!((listed.code, &*listed.err), (0, ""));
    let reasons = listed.out.lines();
    let mut reasons = reasons.filter(|line| line.starts_with("No instructions: "));
    let (reason, more) = (reasons.next(), reasons.next());
    assert!(
        reason.is_some_and(|line| line.ends_with(wanted)),
        "{}",
        listed.out
    );
    assert_eq!(more, None);
    assert!(!listed.out.contains("Code: "), "{}", listed.out);
}

/// Without symbols, the debug file says where functions begin, and which lines they have. Without
/// a debug file, the unwind table says where they begin; without one, nothing does.
#[test]
fn a_stripped_file_needs_symbols_or_unwind_tables() {
    if !have(&["gcc", "nm", "objcopy", "readelf", "strip"]) {
        return;
    }
    for has_unwind_table in [true, false] {
        let no_table = "-fno-asynchronous-unwind-tables -fno-unwind-tables";
        let table = if has_unwind_table { "" } else { no_table };
        let built = build(C, &format!("gcc -g -O1 -Wl,--build-id {table}"));
        let folder = built.folder.path();
        let options = built.options("symbols");
        let profile = built.profile(&built.addresses("^(sum|fill)"));
        write(folder, "p.pb.gz", &symbolized(profile, &options).0);
        let whole = list(folder, &["-f", "csv"]);
        assert_eq!((whole.code, &*whole.err), (0, ""));
        assert!(whole.out.lines().count() > 5, "{}", whole.out);
        built.run("objcopy --only-keep-debug program symbols/program.debug");
        built.run("strip program");
        // The debug file says the same as the whole file.
        let separate = list(folder, &["-f", "csv", "--debug-dir", "symbols"]);
        assert_eq!((&*separate.out, &*separate.err), (&*whole.out, ""));
        let alone = list(folder, &[]);
        let program = built.program.display();
        if has_unwind_table {
            assert_eq!((alone.code, &*alone.err), (0, ""));
            let place = "\nCode: code without a symbol at 0x";
            assert!(alone.out.contains(place), "{}", alone.out);
        } else {
            let why = "begins; install the debug package of the file";
            check_reason(&alone, why);
            let what = format!("{program}: neither a symbol nor an unwind table says where");
            assert!(alone.out.contains(&what), "{}", alone.out);
        }
        // A debug file has no code.
        std::fs::remove_file(&built.program).unwrap();
        let gone = list(folder, &["--debug-dir", "symbols"]);
        let what = format!("{program}: only its debug file is here, which has no code");
        check_reason(&gone, &(what + ADVICE));
    }
}

/// Returns the instructions in the report of the function `sum`: the line of each, its address, its
/// flat and its text.
fn instructions(folder: &Path) -> Vec<(i64, u64, i64, String)> {
    let report = json(folder, &["list", "--asm", "-f", "json", "^sum$", "p.pb.gz"]);
    let lines = report["rows"][0]["lines"].as_array().unwrap();
    let mut all = Vec::new();
    for line in lines {
        let each = line["instructions"].as_array().unwrap().iter();
        all.extend(each.map(|instruction: &Value| {
            (
                line["line"].as_i64().unwrap(),
                instruction["address"].as_u64().unwrap(),
                instruction["flat"].as_i64().unwrap(),
                instruction["text"].as_str().unwrap().to_string(),
            )
        }));
    }
    all
}

/// The code of a function `sum` that calls the function behind it, and its instructions. The place
/// of the call is 4.
const OF_AARCH64: (&[u8], [&str; 3]) = (
    b"\xfd\x7b\xbf\xa9\x02\x00\x00\x94\xc0\x03\x5f\xd6",
    ["stp x29, x30, [sp, #-0x10]!", "bl allocate", "ret"],
);
const OF_X86_64: (&[u8], [&str; 3]) = (
    b"\x0f\x1f\x40\x00\xe8\x01\x00\x00\x00\xc3",
    ["nopl (%rax)", "call allocate", "ret"],
);

/// The file of either processor is decoded on a machine with any processor.
#[test]
fn files_of_other_processors_are_decoded() {
    for (processor, (code, texts)) in [(AARCH64, OF_AARCH64), (X86_64, OF_X86_64)] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let file = ElfFile {
            processor,
            build_id: [1, 2, 3, 4],
            functions: &[("sum", code), ("allocate", b"\xc0\x03\x5f\xd6")],
            labels: &[],
            has_symbols: true,
        };
        let path = folder.join("program");
        std::fs::write(&path, file.bytes()).unwrap();
        write(
            folder,
            "p.pb.gz",
            &file.profile(&path, &[(4, "sum", "shop.c", 7, 4096)]),
        );
        let found = instructions(folder);
        let found: Vec<(i64, u64, i64, &str)> = found
            .iter()
            .map(|(line, address, flat, text)| (*line, *address, *flat, &**text))
            .collect();
        let behind = 0x40_1000 + code.len() as u64;
        let last = behind - if processor == AARCH64 { 4 } else { 1 };
        let [first, call, end] = texts;
        assert_eq!(
            found,
            [
                (0, 0x40_1000, 0, first),
                (0, last, 0, end),
                (7, 0x40_1004, 4096, call)
            ]
        );
    }
}

#[test]
fn a_file_of_an_unknown_processor_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let file = ElfFile {
        processor: RISCV,
        build_id: [1, 2, 3, 4],
        functions: &[("sum", &[0x13, 0, 0, 0, 0x13, 0, 0, 0])],
        labels: &[],
        has_symbols: true,
    };
    let path = folder.join("program");
    std::fs::write(&path, file.bytes()).unwrap();
    let profile = file.profile(&path, &[(4, "sum", "shop.c", 7, 4096)]);
    write(folder, "p.pb.gz", &profile);
    let why = "program: is for Riscv64; instructions of x86-64, x86 and aarch64 can be read";
    check_reason(&list(folder, &[]), why);
}

/// A file with another build id has other instructions at the same addresses, so none is shown. The
/// right file is found in a folder.
#[test]
fn a_file_with_another_build_id_is_not_decoded() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (code, texts) = OF_AARCH64;
    let mut file = ElfFile {
        processor: AARCH64,
        build_id: [1, 2, 3, 4],
        functions: &[("sum", code)],
        labels: &[],
        has_symbols: true,
    };
    let path = folder.join("program");
    let profile = file.profile(&path, &[(4, "sum", "shop.c", 7, 4096)]);
    write(folder, "p.pb.gz", &profile);
    std::fs::create_dir(folder.join("right")).unwrap();
    std::fs::write(folder.join("right/program"), file.bytes()).unwrap();
    file.build_id = [1, 2, 3, 5];
    std::fs::write(&path, file.bytes()).unwrap();
    let refused = list(folder, &[]);
    check_reason(&refused, ADVICE);
    assert!(refused.out.contains("build id 01020305"), "{}", refused.out);
    let found = list(folder, &["--debug-dir", "right"]);
    assert_eq!((found.code, &*found.err), (0, ""));
    assert!(found.out.contains(texts[0]), "{}", found.out);
    // The instructions in another file are listed, and one line says what is missing.
    let path = folder.join("library");
    file.build_id = [5, 6, 7, 8];
    std::fs::write(&path, file.bytes()).unwrap();
    let profile = file.profile(&path, &[(4, "sum", "shop.c", 7, 100)]);
    write(folder, "q.pb.gz", &profile);
    let both = run(folder, &["list", "--asm", "^sum$", "p.pb.gz", "q.pb.gz"]);
    assert_eq!((both.code, &*both.err), (0, ""));
    let lines = |part: &str| both.out.lines().filter(|line| line.contains(part)).count();
    assert_eq!((lines(texts[0]), lines(" ret")), (1, 1), "{}", both.out);
    let missing = "Some instructions are missing: ";
    assert_eq!(lines(missing), 1, "{}", both.out);
    assert_eq!(lines("build id 01020305, the profile wants 01020304"), 1);
    assert!(!both.out.contains("bytes of program"), "{}", both.out);
    let csv = ["list", "--asm", "-f", "csv", "^sum$", "p.pb.gz", "q.pb.gz"];
    let csv = run(folder, &csv);
    assert_eq!((csv.code, csv.err.lines().count()), (0, 1), "{}", csv.err);
    assert!(csv.err.contains("sum: ") && csv.err.ends_with(&format!("{ADVICE}\n")));
    // Each file that is not the right one has its own reason.
    std::fs::write(&path, b"no program").unwrap();
    let both = ["list", "--asm", "-f", "json", "^sum$", "p.pb.gz", "q.pb.gz"];
    let both = run(folder, &both);
    let reasons = both.out.matches(ADVICE).count();
    assert_eq!(reasons, 2, "{}{}", both.out, both.err);
    // In CSV, the line has its values without an instruction.
    let csv = run(folder, &["list", "--asm", "-f", "csv", "^sum$", "q.pb.gz"]);
    assert_eq!(csv.out.lines().nth(1), Some("sum,shop.c,7,100,100,,,"));
}

/// A symbol inside of another one does not hide the rest of the outer one, and no instruction is
/// listed twice.
#[test]
fn symbols_inside_of_others_do_not_hide_them() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let file = ElfFile {
        processor: X86_64,
        build_id: [1, 2, 3, 4],
        functions: &[("sum", &[0x90; 16])],
        labels: &[("inner", 4, 4)],
        has_symbols: true,
    };
    let path = folder.join("program");
    std::fs::write(&path, file.bytes()).unwrap();
    let samples = [2, 5, 9].map(|place| (place, "sum", "shop.c", 7, 100 + place as i64));
    write(folder, "p.pb.gz", &file.profile(&path, &samples));
    let mut found = instructions(folder);
    found.sort_unstable_by_key(|(_, address, ..)| *address);
    let found: Vec<(u64, i64)> = found
        .iter()
        .map(|(_, address, flat, _)| (address - 0x40_1000, *flat))
        .collect();
    let value = |place| match place {
        2 | 5 | 9 => 100 + place as i64,
        _ => 0,
    };
    let wanted: Vec<(u64, i64)> = (0..16).map(|place| (place, value(place))).collect();
    assert_eq!(found, wanted);
}

/// A symbol without a size ends where the next one begins, and not behind that.
#[test]
fn a_symbol_without_a_size_ends_at_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let file = ElfFile {
        processor: X86_64,
        build_id: [1, 2, 3, 4],
        functions: &[("", &[0x90; 16])],
        labels: &[("sum", 0, 0), ("inner", 4, 4)],
        has_symbols: true,
    };
    let path = folder.join("program");
    std::fs::write(&path, file.bytes()).unwrap();
    let samples = [2, 10].map(|place| (place, "sum", "shop.c", 7, 100));
    write(folder, "p.pb.gz", &file.profile(&path, &samples));
    let listed = list(folder, &[]);
    assert_eq!((listed.code, &*listed.err), (0, ""));
    let code = "\nCode: sum at 0x401000, 4 bytes of ";
    assert!(listed.out.contains(code), "{}", listed.out);
    let missing = "says where the function at 0x40100a begins";
    assert!(listed.out.contains(missing), "{}", listed.out);
}

/// Values behind the last instruction that is listed are not passed over in silence, and neither is
/// an address in a part of a word.
#[test]
fn values_without_an_instruction_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let long = vec![0x90; 60_000];
    let cut = "the code of \"sum\" is cut before 2 addresses of the profile";
    let part = "program: no instruction is at 0x401009";
    for (processor, code, places, why, listed) in [
        (X86_64, &*long, [4, 50_000, 59_999], cut, 50_000),
        (AARCH64, &[0; 10], [4, 9, 9], part, 2),
    ] {
        let file = ElfFile {
            processor,
            build_id: [1, 2, 3, 4],
            functions: &[("sum", code)],
            labels: &[],
            has_symbols: true,
        };
        let path = folder.join("program");
        std::fs::write(&path, file.bytes()).unwrap();
        let samples = places.map(|place| (place, "sum", "shop.c", 7, 100));
        write(folder, "p.pb.gz", &file.profile(&path, &samples));
        let text = list(folder, &[]);
        assert_eq!((text.code, &*text.err), (0, ""));
        let missing = text.out.lines().find(|line| line.contains("missing"));
        assert!(
            missing.is_some_and(|line| line.contains(why)),
            "{missing:?}"
        );
        let all = instructions(folder);
        assert_eq!(all.len(), listed);
        let flat: i64 = all.iter().map(|(_, _, flat, _)| flat).sum();
        assert_eq!(flat, 100);
    }
}

/// Without a build id, the report says that the file may be another one. A file that has another
/// function at an address is another one.
#[test]
fn a_profile_without_a_build_id_is_doubted() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (code, texts) = OF_X86_64;
    let path = folder.join("program");
    let doubt = "bytes of program; no build id says whether this file ran";
    let other = "has the function \"total\" at 0x401004, so it is not the file that ran; no build \
                 id was compared; give the folder of the right one with --debug-dir";
    for (symbol, has_code) in [("sum", true), ("sum.isra.0", true), ("total", false)] {
        let file = ElfFile {
            processor: X86_64,
            build_id: [1, 2, 3, 4],
            functions: &[(symbol, code)],
            labels: &[],
            has_symbols: true,
        };
        std::fs::write(&path, file.bytes()).unwrap();
        let mut profile = file.profile(&path, &[(4, "sum", "shop.c", 7, 4096)]);
        write(folder, "p.pb.gz", &profile);
        let known = list(folder, &[]);
        assert!(known.out.contains(texts[0]), "{}", known.err);
        assert!(!known.out.contains("no build id"), "{}", known.out);
        profile.mapping[0].build_id = StringId::EMPTY;
        write(folder, "p.pb.gz", &profile);
        let found = list(folder, &[]);
        let said = found.out + &found.err;
        let program = path.display().to_string();
        let wanted = doubt.replace("program", &program);
        assert_eq!(said.contains(&wanted), has_code, "{symbol}: {said}");
        assert_eq!(said.contains(texts[0]), has_code, "{symbol}: {said}");
        assert_eq!(said.contains(other), !has_code, "{symbol}: {said}");
    }
}

/// A library that reads a variable of another file, one of each thread, and a pointer of its own,
/// which the dynamic loader fills.
const READS: &str = r#"
extern long shared_number;
extern __thread long own_number;
static long hidden = 7;
static long *volatile kept = &hidden;
__attribute__((noinline)) long sum(long more) {
    long all = more * 3 + shared_number;
    for (int i = 0; i < 9; i++) all += *kept;
    return all + own_number;
}
"#;

/// What is read from the table of addresses is an address, and the text says so.
#[test]
fn slots_of_the_table_of_addresses_are_named() {
    if !have(&["gcc", "nm", "readelf"]) || !cfg!(target_arch = "x86_64") {
        return;
    }
    let built = build(
        READS,
        "gcc -g -O0 -shared -fPIC -ftls-model=initial-exec -Wl,--build-id",
    );
    let folder = built.folder.path();
    let profile = built.profile(&built.addresses("^sum$"));
    let options = built.options("symbols");
    write(folder, "p.pb.gz", &symbolized(profile, &options).0);
    let all = instructions(folder);
    let has = |part: &str| all.iter().any(|(.., text)| text.contains(part));
    for wanted in [
        "shared_number@GOTPCREL(%rip)",
        "own_number@GOTTPOFF(%rip)",
        " kept(%rip)",
    ] {
        assert!(has(wanted), "{wanted}: {all:?}");
    }
    assert!(!has("hidden"), "{all:?}");
}

/// The SQL of a report has no instructions, so both together are refused.
#[test]
fn the_sql_of_instructions_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let refused = list(folder.path(), &["--show-sql"]);
    assert_eq!((refused.code, &*refused.out), (2, ""));
    assert!(refused.err.contains("--show-sql"), "{}", refused.err);
}
