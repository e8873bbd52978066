//! Debug files: they are found at all usual places, split, packed and shared. Those of another
//! build are refused.

use std::io::{Read, Write};
use std::net::TcpListener;

use heapprof_profile::{Profile, decode};
use heapprof_symbolize::{SymbolSource, SymbolizeOptions, SymbolizeWarning};

use heapprof_tests::built::{Built, C, CXX, build, have, is_here, reported, source, symbolized};
use heapprof_tests::harness::{Run, command, run};
use heapprof_tests::needs;

#[test]
fn debug_files_are_found_where_tools_put_them() {
    if !have(&["gcc", "readelf", "nm", "objcopy", "strip"]) {
        return;
    }
    // Each case has the options of the build, the commands run on the program, and the debug
    // folder.
    let split = "objcopy --only-keep-debug program PLACE";
    let cases: &[(&str, &str, &[&str])] = &[
        ("beside", "", &[split, "strip program", "LINK"]),
        (".debug", "", &[split, "strip program", "LINK"]),
        (
            "--debug-dir, by link",
            "",
            &[split, "strip program", "LINK"],
        ),
        (
            "--debug-dir, by path",
            "",
            &[split, "strip program", "LINK"],
        ),
        ("--debug-dir, by name", "", &[split, "strip program"]),
        ("--debug-dir, by build id", "", &[split, "strip program"]),
        ("by build id, the program gone", "", &[split, "rm program"]),
        (
            "beside, without build id",
            "-Wl,--build-id=none",
            &[split, "strip program", "LINK"],
        ),
        ("compressed", "-gz", &[split, "strip program", "LINK"]),
    ];
    for (case, flags, steps) in cases {
        let built = build(C, &format!("gcc -g -O2 {flags}"));
        let addresses = built.addresses("^(main|sum|fill)");
        let profile = built.profile(&addresses);
        let options = built.options("symbols");
        let (full, _) = symbolized(profile.clone(), &options);
        assert!(full.location.iter().all(|l| !l.line.is_empty()), "{case}");
        let folder = built.folder.path().strip_prefix("/").unwrap();
        let id = built.build_id();
        let place = match *case {
            ".debug" => ".debug/linked.debug".to_string(),
            "--debug-dir, by link" => "symbols/linked.debug".to_string(),
            "--debug-dir, by path" => format!("symbols/{}/linked.debug", folder.display()),
            "--debug-dir, by name" => "symbols/program.debug".to_string(),
            case if case.contains("by build id") => {
                format!("symbols/.build-id/{}/{}.debug", &id[..2], &id[2..])
            }
            _ => "linked.debug".to_string(),
        };
        std::fs::create_dir_all(built.path(&place).parent().unwrap()).unwrap();
        for step in *steps {
            let link = format!("objcopy --add-gnu-debuglink={place} program");
            built.run(&step.replace("LINK", &link).replace("PLACE", &place));
        }
        let (found, summary) = symbolized(profile, &options);
        assert_eq!(
            source(&summary),
            Some(SymbolSource::Dwarf),
            "{case}: {summary:?}"
        );
        assert_eq!(summary.files[0].warnings, [], "{case}");
        assert_eq!(
            summary.files[0].debug_file,
            Some(built.path(&place)),
            "{case}"
        );
        assert_eq!(reported(&found), reported(&full), "{case}");
    }
}

#[test]
fn split_debug_information_is_followed() {
    if !have(&["gcc", "readelf", "nm"]) {
        return;
    }
    let whole = build(C, "gcc -g -O2 -gdwarf-5");
    let built = build(C, "gcc -g -O2 -gdwarf-5 -gsplit-dwarf");
    let addresses = whole.addresses("^(main|sum|fill)");
    let strip = |built: &Built, lines: Vec<String>| -> Vec<String> {
        let folder = format!("{}/", built.folder.path().display());
        lines.iter().map(|l| l.replace(&folder, "")).collect()
    };
    let (full, _) = symbolized(whole.profile(&addresses), &SymbolizeOptions::default());
    let (found, summary) = symbolized(built.profile(&addresses), &SymbolizeOptions::default());
    assert_eq!(summary.files[0].warnings, []);
    assert_eq!(
        strip(&built, reported(&found)),
        strip(&whole, reported(&full))
    );
    // If the file is moved away, the message names it. With --debug-dir it is found again.
    let options = built.options("symbols");
    let entries = std::fs::read_dir(built.folder.path()).unwrap().flatten();
    let is_split = |path: &std::path::PathBuf| path.extension().is_some_and(|e| e == "dwo");
    let split = entries.map(|e| e.path()).find(is_split).unwrap();
    let moved = built.path("symbols").join(split.file_name().unwrap());
    std::fs::rename(split, moved).unwrap();
    let (_, summary) = symbolized(built.profile(&addresses), &SymbolizeOptions::default());
    let [SymbolizeWarning::Elsewhere { missing, .. }] = &summary.files[0].warnings[..] else {
        panic!("{summary:?}");
    };
    assert!(missing.ends_with(".dwo"), "{missing}");
    let (again, summary) = symbolized(built.profile(&addresses), &options);
    assert_eq!(summary.files[0].warnings, []);
    assert_eq!(reported(&again), reported(&found));
}

#[test]
fn packed_debug_information_is_followed() {
    // Newer binutils no longer have dwp, so it is never required.
    if !have(&["gcc", "readelf", "nm"]) || !is_here("dwp") {
        needs::cannot("dwp");
        return;
    }
    // dwp packs all split files into one.
    let built = build(C, "gcc -g -O2 -gdwarf-4 -gsplit-dwarf");
    let addresses = built.addresses("^(main|sum|fill)");
    let (full, _) = symbolized(built.profile(&addresses), &SymbolizeOptions::default());
    built.run("dwp -e program -o program.dwp");
    for entry in std::fs::read_dir(built.folder.path()).unwrap().flatten() {
        if entry.path().extension().is_some_and(|end| end == "dwo") {
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
    let (found, summary) = symbolized(built.profile(&addresses), &SymbolizeOptions::default());
    assert_eq!(summary.files[0].warnings, []);
    assert_eq!(reported(&found), reported(&full));
    assert!(
        reported(&full)
            .iter()
            .any(|frames| frames.lines().count() > 2)
    );
}

#[test]
fn shared_debug_information_is_followed() {
    if !have(&["gcc", "g++", "readelf", "nm", "dwz"]) {
        return;
    }
    // dwz moves the parts that several programs share into a separate file, as distributions do.
    let built = build(CXX, "g++ -g -O2");
    let addresses = built.addresses("main|shop");
    let (full, _) = symbolized(built.profile(&addresses), &SymbolizeOptions::default());
    built.run("cp program other");
    built.run("dwz -m shared.debug program other");
    let (found, summary) = symbolized(built.profile(&addresses), &SymbolizeOptions::default());
    assert_eq!(summary.files[0].warnings, []);
    assert_eq!(reported(&found), reported(&full));
    let options = built.options("symbols");
    std::fs::rename(built.path("shared.debug"), built.path("moved")).unwrap();
    let (_, summary) = symbolized(built.profile(&addresses), &options);
    let [SymbolizeWarning::Elsewhere { missing, .. }] = &summary.files[0].warnings[..] else {
        panic!("{summary:?}");
    };
    assert!(missing.starts_with("shared.debug (build id "), "{missing}");
    std::fs::rename(built.path("moved"), built.path("symbols/shared.debug")).unwrap();
    let (found, summary) = symbolized(built.profile(&addresses), &options);
    assert_eq!(summary.files[0].warnings, []);
    assert_eq!(reported(&found), reported(&full));
}

#[test]
fn files_of_another_build_are_refused_by_name() {
    if !have(&["gcc", "readelf", "nm", "objcopy", "strip"]) {
        return;
    }
    let built = build(C, "gcc -g -O2");
    let addresses = built.addresses("^(main|sum)");
    let profile = built.profile(&addresses);
    let (old, program) = (built.build_id(), built.program.display().to_string());
    built.run("gcc -g -O1 -o program source.c");
    let new = built.build_id();
    let (found, summary) = symbolized(profile.clone(), &SymbolizeOptions::default());
    let says = summary.files[0].warnings[0].to_string();
    assert_eq!(
        says,
        format!("{program}: build id {new}, the profile wants {old}: not used")
    );
    assert_eq!(summary.resolved(), 0);
    assert!(found.location.iter().all(|l| l.line.is_empty()));

    // If either side has no build id, the file is used.
    built.run("objcopy --remove-section .note.gnu.build-id program");
    let (_, summary) = symbolized(profile.clone(), &SymbolizeOptions::default());
    assert!(summary.resolved() > 0, "{summary:?}");

    // The file is not used if it is known to be replaced.
    let mut deleted = profile.clone();
    deleted.mapping[0].filename = deleted.strings.intern(&format!("{program} (deleted)"));
    let (_, summary) = symbolized(deleted, &SymbolizeOptions::default());
    let [SymbolizeWarning::Replaced { .. }] = summary.files[0].warnings[..] else {
        panic!("{summary:?}");
    };

    // Without build ids, a debug file is checked by its checksum.
    let built = build(C, "gcc -g -O2 -Wl,--build-id=none");
    built.run("objcopy --only-keep-debug program program.debug");
    built.run("strip program");
    built.run("objcopy --add-gnu-debuglink=program.debug program");
    let mut bytes = std::fs::read(built.path("program.debug")).unwrap();
    bytes.push(0);
    std::fs::write(built.path("program.debug"), bytes).unwrap();
    let (_, summary) = symbolized(
        built.profile(&[built.code().1 + 99]),
        &SymbolizeOptions::default(),
    );
    let [SymbolizeWarning::Checksum { .. }] = summary.files[0].warnings[..] else {
        panic!("{summary:?}");
    };
}

/// Reads the profile that `record` wrote.
fn recorded(built: &Built) -> Profile {
    decode(std::fs::File::open(built.path("p.pb.gz")).unwrap()).unwrap()
}

/// The layout of segments depends on the linker: code may begin at the first byte of the mapping,
/// in a page shared with other parts of the file, or together with the headers.
#[test]
fn a_debug_file_alone_names_any_layout() {
    if !have(&["gcc", "objcopy"]) {
        return;
    }
    let layouts = [
        ("", "gcc"),
        ("-Wl,-z,noseparate-code", "gcc"),
        ("-fuse-ld=gold", "ld.gold"),
        ("-fuse-ld=lld", "ld.lld"),
        ("-fuse-ld=mold", "mold"),
    ];
    // The program has more than a page of code, so addresses in a wrong page would get names, too.
    let filling = "z += n; z ^= 3; z *= n;".repeat(200);
    let text = format!(
        "#include <stdlib.h>\nvolatile int z; void *volatile sink;\n\
         __attribute__((noinline)) void first(int n) {{ {filling} sink = malloc(1000); z++; }}\n\
         __attribute__((noinline)) void second(int n) {{ {filling} sink = malloc(2000); z++; }}\n\
         int main(int argc, char **argv) {{ first(argc); second(argc); return 0; }}\n"
    );
    for (flag, linker) in layouts {
        if !is_here(linker) {
            continue;
        }
        let built = build(&text, &format!("gcc -O1 -g {flag}"));
        let words = "record --exact --no-symbolize -o p.pb.gz ./program";
        let words: Vec<&str> = words.split(' ').collect();
        assert_eq!(run(built.folder.path(), &words).code, 0);
        let options = built.options("symbols");
        let (whole, _) = symbolized(recorded(&built), &options);
        built.run("objcopy --only-keep-debug program symbols/program.debug");
        built.run("rm program");
        let (alone, summary) = symbolized(recorded(&built), &options);
        assert_eq!(reported(&alone), reported(&whole), "{flag}: {summary:?}");
        assert!(
            reported(&whole)
                .iter()
                .any(|names| names.contains("second")),
            "{flag}"
        );
    }
}

/// Without a build id, only the kernel reports that a file is not the one that ran.
#[test]
fn a_program_that_was_replaced_while_it_ran_is_not_used() {
    if !have(&["gcc"]) {
        return;
    }
    let text = "#include <stdlib.h>\nint main(int argc, char **argv) { void *volatile p = \
                malloc(1000); return system(argv[1]); }";
    let built = build(text, "gcc -O1 -g -Wl,--build-id=none");
    built.run("cp program other");
    for (command, named) in [("true", true), ("mv other program", false)] {
        let words = ["record", "--exact", "-o", "p.pb.gz", "./program", command];
        assert_eq!(run(built.folder.path(), &words).code, 0);
        let profile = recorded(&built);
        let functions = profile.function.iter();
        let has_main = functions.map(|f| profile.text(f.name)).any(|n| n == "main");
        assert_eq!(has_main, named, "{command}");
    }
}

/// A server of debug files, on a free port of the loopback interface.
fn serve_debug_file(build_id: &str, body: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let wanted = format!("GET /buildid/{build_id}/debuginfo ");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 4096];
            let size = stream.read(&mut request).unwrap();
            let (status, body) = match request[..size].starts_with(wanted.as_bytes()) {
                true => ("200 OK", &body[..]),
                false => ("404 Not Found", &b""[..]),
            };
            let head = format!(
                "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            let _ = stream.write_all(&[head.as_bytes(), body].concat());
        }
    });
    url
}

#[test]
fn debug_files_come_from_the_servers_that_the_user_names() {
    if !have(&["gcc", "readelf", "nm", "objcopy", "strip"]) {
        return;
    }
    let built = build(C, "gcc -g -O2");
    let other = build("int main(void) { return 1; }", "gcc -g -O2");
    let addresses = built.addresses("^(main|sum|fill)");
    let id = built.build_id();
    let debug_file = |built: &Built| {
        built.run("objcopy --only-keep-debug program symbols.debug");
        std::fs::read(built.path("symbols.debug")).unwrap()
    };
    let (right, wrong) = (debug_file(&built), debug_file(&other));
    built.run("rm symbols.debug");
    built.run("strip program");
    let profile = std::fs::File::create(built.path("p.pb.gz")).unwrap();
    heapprof_profile::encode(&built.profile(&addresses), profile).unwrap();
    let ask = |servers: &str, cache: &str| {
        let words = ["symbolize", "--debuginfod", "p.pb.gz", "-o", "named.pb.gz"];
        let mut asked = command(built.folder.path());
        asked.args(words).env("DEBUGINFOD_URLS", servers);
        let cache = built.path(cache);
        Run::from(asked.env("DEBUGINFOD_CACHE_PATH", cache).output().unwrap())
    };
    let has_lines = || {
        let named = std::fs::File::open(built.path("named.pb.gz")).unwrap();
        let named = decode(named).unwrap();
        named.line.iter().all(|line| line.line > 0)
    };
    let none = ask("", "none");
    assert_eq!(none.code, 2);
    assert!(
        none.err.contains("DEBUGINFOD_URLS names no usable server"),
        "{}",
        none.err
    );

    // A file of another build is not used.
    let liar = serve_debug_file(&id, wrong);
    let lied = ask(&liar, "lies");
    assert_eq!(lied.code, 0, "{}", lied.err);
    assert!(
        lied.err.contains("another file") && !has_lines(),
        "{}",
        lied.err
    );

    let server = serve_debug_file(&id, right);
    let fetched = ask(&server, "cache");
    assert_eq!(fetched.code, 0, "{}", fetched.err);
    assert!(
        fetched.err.contains("debug file fetched from 127.0.0.1:"),
        "{}",
        fetched.err
    );
    assert!(has_lines(), "{}", fetched.err);
    // The second time, the cache has it.
    std::fs::remove_file(built.path("named.pb.gz")).unwrap();
    let again = ask("http://127.0.0.1:1", "cache");
    assert_eq!(again.code, 0, "{}", again.err);
    assert!(
        has_lines() && !again.err.contains("fetched"),
        "{}",
        again.err
    );
}
