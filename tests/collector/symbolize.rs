//! Names for addresses: equal to those of binutils for programs in C, C++ and Rust, from debug
//! information and symbol tables. Also damaged files, and the command.

use std::collections::BTreeMap;

use heapprof_profile::{Mapping, Profile, ProfileBuilder, encode};
use heapprof_symbolize::{SymbolSource, SymbolizeOptions, SymbolizeWarning, Symbolizer, symbolize};

use heapprof_tests::built::{C, CXX, RUST, build, have, reported, source, symbolized};
use heapprof_tests::harness;

#[test]
fn frames_equal_binutils() {
    if !have(&["gcc", "g++", "rustc", "readelf", "nm", "addr2line"]) {
        return;
    }
    let ours = "^(main|sum|fill)|shop|node";
    let cases = [
        (C, "gcc -g -O0"),
        (C, "gcc -g -O2"),
        (C, "gcc -g -O2 -no-pie"),
        (C, "gcc -g -O3 -gdwarf-4 -gz"),
        (C, "gcc -g -O2 -Wl,-z,noseparate-code"),
        (CXX, "g++ -g -O0"),
        (CXX, "g++ -g -O2"),
        (
            RUST,
            "rustc -g -Copt-level=0 -Zunstable-options -Csymbol-mangling-version=legacy",
        ),
        (RUST, "rustc -g -Copt-level=2 -Csymbol-mangling-version=v0"),
    ];
    for (text, command) in cases {
        let built = build(text, command);
        let mut addresses = built.addresses(ours);
        addresses.truncate(700);
        let (profile, summary) =
            symbolized(built.profile(&addresses), &SymbolizeOptions::default());
        assert_eq!(source(&summary), Some(SymbolSource::Dwarf), "{command}");
        let mapping = &profile.mapping[0];
        assert!(mapping.has_functions && mapping.has_filenames, "{command}");
        assert!(mapping.has_line_numbers && mapping.has_inline_frames);
        let expected = built.addr2line(&addresses);
        let found = reported(&profile);
        for ((address, expected), found) in addresses.iter().zip(&expected).zip(&found) {
            let found = last_parts(found);
            let expected = without_fault(expected, &found);
            assert_eq!(found, expected, "{command}: {address:#x}");
        }
        // Optimized programs must have inlined frames, otherwise this test proves little.
        let inlined = found.iter().filter(|f| f.lines().count() > 1).count();
        assert!(inlined > 3 || command.contains("0"), "{command}: {inlined}");
    }
}

/// If a mapped file is shortened, heapprof is killed. So a file that other users may write to is
/// read instead of mapped.
#[test]
fn files_that_others_may_write_to_have_names_too() {
    use std::os::unix::fs::PermissionsExt;
    if !have(&["gcc", "readelf", "nm"]) {
        return;
    }
    let built = build(C, "gcc -g -O0");
    let addresses = built.addresses("^(main|sum|fill)");
    let (ours, _) = symbolized(built.profile(&addresses), &SymbolizeOptions::default());
    std::fs::set_permissions(&built.program, PermissionsExt::from_mode(0o777)).unwrap();
    let (others, summary) = symbolized(built.profile(&addresses), &SymbolizeOptions::default());
    assert_eq!(source(&summary), Some(SymbolSource::Dwarf));
    assert_eq!(reported(&others), reported(&ours));
}

/// Returns frames with only the last part of each name that is not a linker name, because binutils
/// gives only that part.
fn last_parts(frames: &str) -> String {
    let lines = frames.lines().map(|line| {
        let (name, place) = line.rsplit_once(' ').unwrap();
        let last = match name.starts_with('_') {
            true => name,
            false => name.rsplit("::").next().unwrap_or_default(),
        };
        format!("{last} {place}\n")
    });
    lines.collect()
}

/// Corrects a fault of binutils in the expected frames: an inlined function without a linker name
/// gets the name of the function that it was inlined into.
fn without_fault(expected: &str, found: &str) -> String {
    let name = |line: &str| line.split(' ').next().unwrap_or_default().to_string();
    let mut lines: Vec<String> = expected.lines().map(str::to_string).collect();
    if let (Some(last), [first, _, ..]) = (lines.last().cloned(), &mut lines[..])
        && name(first) == name(&last)
    {
        let plain = name(found);
        if !plain.starts_with("_") {
            *first = first.replacen(&name(&last), &plain, 1);
        }
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// Returns a name without blanks, parameters and the text in `<>`, because cpp_demangle and
/// binutils write empty parameter packs and numbers in them differently.
fn skeleton(name: &str) -> String {
    let mut depth = 0;
    let mut kept = String::new();
    for c in name.chars().filter(|c| *c != ' ') {
        match c {
            '<' => depth += 1,
            '>' if depth > 0 => depth -= 1,
            '(' if depth == 0 && !kept.is_empty() && !kept.ends_with("operator") => break,
            c if depth == 0 => kept.push(c),
            _ => {}
        }
    }
    kept
}

#[test]
fn names_are_demangled_as_binutils_does() {
    if !have(&["gcc", "g++", "rustc", "readelf", "nm", "c++filt"]) {
        return;
    }
    let hash = regex::Regex::new(r"::h[0-9a-f]{16}$|\[[0-9a-f]{12,16}\]").unwrap();
    let cases = [
        (C, "gcc -g -O0"),
        (CXX, "g++ -g -O2"),
        (
            RUST,
            "rustc -g -Zunstable-options -Csymbol-mangling-version=legacy",
        ),
        (RUST, "rustc -g -Csymbol-mangling-version=v0"),
    ];
    for (text, command) in cases {
        let built = build(text, command);
        let mut addresses = built.addresses("main|sum|fill|shop|Shelf");
        addresses.truncate(2000);
        let (profile, _) = symbolized(built.profile(&addresses), &SymbolizeOptions::default());
        let names = profile.function.iter().map(|f| profile.text(f.system_name));
        // c++filt does not handle inlined functions without a linker name.
        let is_linkers = |name: &&str| name.starts_with('_') || !name.contains("::");
        let names = names.filter(is_linkers);
        let names: Vec<&str> = names.filter(|name| !name.contains("lambda")).collect();
        let expected = built.run(&format!("c++filt {}", names.join(" ")));
        let demangled: BTreeMap<&str, &str> = names.iter().copied().zip(expected.lines()).collect();
        for function in &profile.function {
            let (name, system) = (
                profile.text(function.name),
                profile.text(function.system_name),
            );
            if let Some(expected) = demangled.get(system) {
                // Older binutils keep Rust's hashes.
                let expected = hash.replace_all(expected, "");
                assert_eq!(skeleton(name), skeleton(&expected), "{command}: {system}");
            }
        }
        let changed = demangled.iter().filter(|(from, to)| from != to).count();
        assert_eq!(changed > 3, text != C, "{command}: {changed}");
    }
}

/// Returns only the outermost name at each address.
fn names_only(full: &[String]) -> Vec<String> {
    let last = |frames: &String| {
        let outermost = frames.lines().last().unwrap_or_default();
        let name = outermost.rsplit_once(' ').map_or("", |(name, _)| name);
        format!("{name} :0\n")
    };
    full.iter().map(last).collect()
}

#[test]
fn symbol_tables_answer_when_there_is_no_debug_information() {
    if !have(&["gcc", "readelf", "nm", "objcopy", "strip", "xz"]) {
        return;
    }
    let built = build(C, "gcc -g -O2 -rdynamic");
    let addresses = built.addresses("^(main|sum|fill)$");
    let profile = built.profile(&addresses);
    let (full, _) = symbolized(profile.clone(), &SymbolizeOptions::default());
    let names = names_only(&reported(&full));

    built.run("strip -g program");
    let (found, summary) = symbolized(profile.clone(), &SymbolizeOptions::default());
    assert_eq!(source(&summary), Some(SymbolSource::SymbolTable));
    assert_eq!(reported(&found), names);
    let mapping = &found.mapping[0];
    assert!(mapping.has_functions && !mapping.has_filenames);
    assert!(!mapping.has_line_numbers && !mapping.has_inline_frames);

    // Distributions make the section like this: the symbols of functions, compressed by xz.
    built.run("cp program mini");
    built.run("objcopy -S --remove-section .comment --keep-symbol=fill mini");
    built.run("xz -q mini");
    built.run("strip program");
    let exported = |frames: &String| !frames.starts_with("fill ");
    let (found, summary) = symbolized(profile.clone(), &SymbolizeOptions::default());
    assert_eq!(source(&summary), Some(SymbolSource::DynamicSymbols));
    for (found, name) in reported(&found).iter().zip(&names) {
        let expected = if exported(name) { name } else { "" };
        assert_eq!(found, expected);
    }
    built.run("objcopy --add-section .gnu_debugdata=mini.xz program");
    let (found, summary) = symbolized(profile.clone(), &SymbolizeOptions::default());
    assert_eq!(source(&summary), Some(SymbolSource::MiniDebugInfo));
    assert_eq!(reported(&found), names);

    // This is assembly. A symbol without a size extends to the next symbol or the end. Symbols
    // within a symbol do not hide it.
    let bare = r#"
__asm__(".globl bare\nbare: nop\nnop\nnext: nop\nnop\n"
        ".type outer,@function\nouter: nop\ninner: nop\n.size inner,1\nnop\n.size outer,3\n");
int main(void) { return 0; }
"#;
    let built = build(bare, "gcc -O0");
    let nm = built.run("nm program");
    let start = nm.lines().find_map(|line| line.strip_suffix(" T bare"));
    let start = u64::from_str_radix(start.unwrap(), 16).unwrap();
    let addresses: Vec<u64> = (start..start + 7).collect();
    let (found, _) = symbolized(built.profile(&addresses), &SymbolizeOptions::default());
    let expected = ["bare", "bare", "next", "next", "outer", "inner", "outer"];
    assert_eq!(
        reported(&found),
        expected.map(|name| format!("{name} :0\n"))
    );

    let hidden = build(C, "gcc -O2 -s -fvisibility=hidden");
    let mut profile = hidden.profile(&[hidden.code().1 + 64]);
    let summary = symbolize(&mut profile, &SymbolizeOptions::default());
    assert_eq!(source(&summary), None);
    let [warning @ SymbolizeWarning::NoSymbols { .. }] = &summary.files[0].warnings[..] else {
        panic!("{summary:?}");
    };
    let says = warning.to_string();
    assert!(
        says.contains("has no symbols for these addresses"),
        "{says}"
    );
    assert!(!profile.mapping[0].has_functions);
}

#[test]
fn what_has_no_file_is_left_alone() {
    let mut b = ProfileBuilder::new(&[("inuse_space", "bytes")]);
    b.add_folded(
        "0x10@[vdso];0x10@//anon;0x10@/no/such/program;0x20;main@m.c:1",
        &[1],
    );
    let mut profile = b.finish();
    let before = profile.clone();
    let summary = symbolize(&mut profile, &SymbolizeOptions::default());
    assert_eq!(profile, before);
    assert_eq!((summary.seen(), summary.kept, summary.unmapped), (4, 1, 1));
    let warnings: Vec<String> = summary
        .files
        .iter()
        .flat_map(|f| f.warnings.iter().map(ToString::to_string))
        .collect();
    let missing = "/no/such/program: there is no such file, nor a debug file with its build id";
    assert_eq!(warnings, [missing]);
}

/// Answers from one profile are reused for the next one without the file, wherever the file was
/// mapped.
#[test]
fn a_second_profile_asks_no_file_again() {
    if !have(&["gcc", "readelf", "nm"]) {
        return;
    }
    let built = build(C, "gcc -g -O2");
    let addresses = built.addresses("^(sum|fill|main)$");
    let (some, rest) = addresses.split_at(addresses.len() / 2);
    let (full, fresh) = symbolized(built.profile(&addresses), &SymbolizeOptions::default());
    let mut symbolizer = Symbolizer::new(SymbolizeOptions::default());
    let mut first = built.profile(some);
    let summary = symbolizer.symbolize(&mut first);
    assert_eq!(summary.resolved(), some.len());
    // The first half is known; the second half is looked up now.
    let mut second = built.profile(&addresses);
    let summary = symbolizer.symbolize(&mut second);
    assert_eq!(summary.resolved(), fresh.resolved());
    assert_eq!(reported(&second), reported(&full));
    let mut third = built.profile_at(0x5555_0000_0000, rest);
    std::fs::remove_file(&built.program).unwrap();
    let summary = symbolizer.symbolize(&mut third);
    assert_eq!(source(&summary), Some(SymbolSource::Dwarf));
    assert_eq!(reported(&third), reported(&full)[some.len()..]);
    assert_eq!(summary.resolved(), rest.len());
    assert!(third.mapping[0].has_inline_frames);
}

#[test]
fn adjusted_forced_and_below_a_sysroot() {
    if !have(&["gcc", "readelf", "nm"]) {
        return;
    }
    let built = build(C, "gcc -g -O2");
    let addresses = built.addresses("^sum$");
    let (full, _) = symbolized(built.profile(&addresses), &SymbolizeOptions::default());

    // Return addresses with --adjust -1 get the same names as addresses of calls without it.
    let returns: Vec<u64> = addresses.iter().map(|a| a + 1).collect();
    let options = SymbolizeOptions {
        adjust: -1,
        ..SymbolizeOptions::default()
    };
    let (adjusted, _) = symbolized(built.profile(&returns), &options);
    assert_eq!(reported(&adjusted), reported(&full));

    // Existing names stay, unless symbolizing is forced. Then none of the old functions remains.
    let mut named = full.clone();
    let stale = named.strings.intern("stale");
    for function in &mut named.function {
        function.name = stale;
    }
    let (kept, summary) = symbolized(named.clone(), &SymbolizeOptions::default());
    assert_eq!((summary.seen(), kept == named), (0, true));
    let force = SymbolizeOptions {
        force: true,
        ..SymbolizeOptions::default()
    };
    let (forced, _) = symbolized(named, &force);
    assert_eq!(forced, full);

    // The file exists only below a sysroot.
    let root = tempfile::tempdir().unwrap();
    let below = root.path().join(built.program.strip_prefix("/").unwrap());
    let options = SymbolizeOptions {
        root: Some(root.path().into()),
        ..SymbolizeOptions::default()
    };
    let (_, summary) = symbolized(built.profile(&addresses), &options);
    assert_eq!(summary.resolved(), 0);
    std::fs::create_dir_all(below.parent().unwrap()).unwrap();
    std::fs::rename(&built.program, &below).unwrap();
    std::os::unix::fs::symlink(&below, &built.program).unwrap();
    let profile = built.profile(&addresses);
    std::fs::remove_file(&built.program).unwrap();
    let (found, summary) = symbolized(profile, &options);
    assert_eq!(summary.files[0].binary, Some(below));
    assert_eq!(reported(&found), reported(&full));
}

/// A damaged header must not make heapprof allocate terabytes.
#[test]
fn compressed_sections_get_no_memory_on_their_word() {
    if !have(&["gcc", "readelf", "nm", "objcopy", "xz"]) {
        return;
    }
    let built = build(C, "gcc -g -O2 -gz");
    let sections = built.run("readelf -SW program");
    let line = sections
        .lines()
        .find_map(|line| line.split_once(".debug_info"));
    let offset = line.unwrap().1.split_whitespace().nth(2).unwrap();
    let at = usize::from_str_radix(offset, 16).unwrap() + 8;
    let mut bytes = std::fs::read(&built.program).unwrap();
    bytes[at..at + 8].copy_from_slice(&(1u64 << 42).to_le_bytes());
    std::fs::write(&built.program, bytes).unwrap();
    let profile = built.profile(&built.addresses("^(main|sum)$"));
    let (_, summary) = symbolized(profile, &SymbolizeOptions::default());
    let says = summary.files[0].warnings[0].to_string();
    assert!(
        says.ends_with(".debug_info: claims to inflate to 4398046511104 bytes"),
        "{says}"
    );
    assert_eq!(source(&summary), Some(SymbolSource::SymbolTable));

    // A section of about 45 kB inflates to 300 MB.
    built.run("truncate -s 300000000 zeros");
    built.run("xz -0 zeros");
    built.run("strip program");
    built.run("objcopy --add-section .gnu_debugdata=zeros.xz program");
    let profile = built.profile(&[0x1000]);
    let (_, summary) = symbolized(profile, &SymbolizeOptions::default());
    let says = summary.files[0].warnings[0].to_string();
    assert!(says.ends_with("inflates to more than 256 MiB"), "{says}");
}

#[test]
fn damaged_files_are_warnings() {
    if !have(&["gcc", "readelf", "nm", "objcopy"]) {
        return;
    }
    let built = build(C, "gcc -g -O2");
    let addresses = built.addresses("^(main|sum)$");
    let profile = built.profile(&addresses);
    let (full, _) = symbolized(profile.clone(), &SymbolizeOptions::default());
    let whole = std::fs::read(&built.program).unwrap();
    let names = names_only(&reported(&full));

    // The debug information is nonsense, so the symbol table answers.
    std::fs::write(built.path("nonsense"), vec![0xff; 500]).unwrap();
    built.run("objcopy --update-section .debug_info=nonsense program");
    let (found, summary) = symbolized(profile.clone(), &SymbolizeOptions::default());
    assert_eq!(
        source(&summary),
        Some(SymbolSource::SymbolTable),
        "{summary:?}"
    );
    let [warning @ SymbolizeWarning::Damaged { .. }] = &summary.files[0].warnings[..] else {
        panic!("{summary:?}");
    };
    assert!(
        warning
            .to_string()
            .contains("program: is damaged: debug information: ")
    );
    assert_eq!(reported(&found), names);

    // The file is truncated and damaged at any place. That gives a warning or wrong names, never a
    // panic.
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    let mut check = |bytes: &[u8]| {
        std::fs::write(&built.program, bytes).unwrap();
        let (_, summary) = symbolized(profile.clone(), &SymbolizeOptions::default());
        let warnings = &summary.files[0].warnings;
        let kind = match warnings.first() {
            Some(SymbolizeWarning::Damaged { .. }) => "damaged",
            Some(SymbolizeWarning::NotElf { .. }) => "no ELF",
            Some(_) => "other",
            None => "none",
        };
        *kinds.entry(kind.into()).or_default() += 1;
    };
    for part in 0..64 {
        check(&whole[..whole.len() * part / 64]);
    }
    let mut seed = 1u64;
    for _ in 0..1000 {
        let mut bytes = whole.clone();
        for _ in 0..20 {
            // Knuth's generator gives the same damage in every run.
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = (seed >> 33) as usize % bytes.len();
            bytes[at] = (seed >> 24) as u8;
        }
        check(&bytes);
    }
    assert!(kinds["damaged"] > 60 && kinds["no ELF"] > 0, "{kinds:?}");
}

/// Returns a profile of `programs/basket` as a collector would record it: three calls, and one in a
/// library that no longer exists.
fn basket() -> Profile {
    let mut b = ProfileBuilder::new(&[("inuse_objects", "count"), ("inuse_space", "bytes")]);
    let mut mapped = |start: u64, filename: &str, build_id: &str| {
        let mapping = Mapping {
            id: 0,
            memory_start: start,
            memory_limit: start + 0x1000,
            file_offset: 0,
            filename: b.text(filename),
            build_id: b.text(build_id),
            has_functions: false,
            has_filenames: false,
            has_line_numbers: false,
            has_inline_frames: false,
        };
        (start, Some(b.mapping(mapping)))
    };
    let (at, program) = mapped(
        0x5581_2a40_0000,
        "/opt/shop/bin/basket",
        "0f650d2017687327776b92b8aba30d538450ea7d",
    );
    let (far, library) = mapped(0x7f03_9d60_0000, "/opt/shop/lib/libc.so.6", "");
    // These are return addresses minus one, as objdump shows the calls.
    let [malloc, strdup, fill] =
        [0x790, 0x79b, 0x650].map(|returns| b.location(program, at + returns - 1, false, &[]));
    let start = b.location(library, far + 0x249, false, &[]);
    let none = b.label_set(&mut []);
    b.profile
        .samples
        .push([malloc, fill, start], &[1000, 16000], none);
    b.profile
        .samples
        .push([strdup, fill, start], &[1000, 8000], none);
    b.finish()
}

#[test]
fn the_sample_of_the_docs_is_current() {
    let folder = harness::sample_profiles().join("programs");
    let (before, options) = (
        basket(),
        SymbolizeOptions {
            debug_dirs: vec![folder.clone()],
            ..SymbolizeOptions::default()
        },
    );
    let (after, summary) = symbolized(before.clone(), &options);
    assert_eq!((summary.resolved(), summary.seen()), (3, 4));
    for (name, profile) in [("basket", before), ("basket.symbolized", after)] {
        let file = folder.join(format!("{name}.pb.gz"));
        if harness::bless() {
            let mut bytes = Vec::new();
            encode(&profile, &mut bytes).unwrap();
            std::fs::write(&file, bytes).unwrap();
        }
        let bytes = std::fs::read(&file).unwrap();
        assert_eq!(
            heapprof_profile::decode(&bytes[..]).unwrap(),
            profile,
            "{name}"
        );
    }
}

#[test]
fn the_command_replaces_the_file_and_says_what_it_could_not() {
    if !have(&["gcc", "readelf", "nm"]) {
        return;
    }
    let built = build(C, "gcc -g -O2");
    let addresses = built.addresses("^(main|sum|fill)");
    let profile = built.profile(&addresses);
    let (full, _) = symbolized(profile.clone(), &SymbolizeOptions::default());
    let file = built.path("p.pb.gz");
    let mut bytes = Vec::new();
    encode(&profile, &mut bytes).unwrap();
    std::fs::write(&file, &bytes).unwrap();
    let folder = built.folder.path();

    // The result goes to stdout, and the file stays.
    let mut command = harness::command(folder);
    let output = command
        .args(["symbolize", "p.pb.gz", "-o", "-"])
        .output()
        .unwrap();
    assert!(output.status.success());
    assert_eq!(heapprof_profile::decode(&output.stdout[..]).unwrap(), full);
    assert_eq!(std::fs::read(&file).unwrap(), bytes);

    let run = harness::run(folder, &["symbolize", "p.pb.gz"]);
    let n = addresses.len();
    assert_eq!((run.code, run.out.as_str()), (0, ""), "{}", run.err);
    assert_eq!(
        run.err,
        format!(
            "heapprof: p.pb.gz: {n} of {n} addresses have names now, in 1 file, 1 with debug \
             information\n"
        )
    );
    let written = std::fs::read(&file).unwrap();
    assert_eq!(heapprof_profile::decode(&written[..]).unwrap(), full);
    let left: Vec<_> = std::fs::read_dir(folder).unwrap().flatten().collect();
    assert!(
        left.iter()
            .all(|e| !e.file_name().to_string_lossy().ends_with(".tmp"))
    );

    // If no name is found, nothing is written.
    std::fs::write(&file, &bytes).unwrap();
    built.run("gcc -g -O1 -o program source.c");
    let run = harness::run(folder, &["symbolize", "p.pb.gz"]);
    assert_eq!(run.code, 0);
    assert!(run.err.contains("program: build id "), "{}", run.err);
    assert!(
        run.err
            .ends_with(&format!("0 of {n} addresses have names now\n"))
    );
    assert_eq!(std::fs::read(&file).unwrap(), bytes);

    let errors: [(&[&str], &str); 3] = [
        (
            &["symbolize", "none.pb.gz"],
            "none.pb.gz: there is no such file",
        ),
        (
            &["symbolize", "source.c"],
            "source.c: is not in a format that ",
        ),
        (
            &["symbolize", "p.pb.gz", "--debug-dir", "nowhere"],
            "nowhere: there is no such folder",
        ),
    ];
    for (args, says) in errors {
        let run = harness::run(folder, args);
        assert_eq!((run.code, run.err.lines().count()), (2, 1), "{}", run.err);
        assert!(
            run.err.starts_with(&format!("heapprof: {says}")),
            "{}",
            run.err
        );
    }
}
