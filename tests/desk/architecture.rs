//! Checks the rules that docs/dev/architecture.md states.

mod arrows;
mod circles;
mod dispatcher;
mod names;
mod option_names;
mod packages;
mod unsafe_files;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use heapprof_tests::harness::{bless, files, root, sources};
use regex::Regex;

use self::arrows::{ARROWS, LAYERS, package_name};
use self::unsafe_files::UNSAFE;

/// Libraries, with the crates that may use them.
const OWNED: &[(&str, &str)] = &[
    ("rusqlite", "heapprof-analysis"),
    ("clap", "heapprof-cli"),
    (
        "anyhow",
        "heapprof-cli heapprof-carried heapprof-inspect heapprof-page heapprof-sources \
         heapprof-recorder heapprof-stores heapprof-dropin heapprof-terminal heapprof-prompt",
    ),
    ("ureq", "heapprof-sources heapprof-stores"),
    // heapprof-cli uses it for children and files of other users, heapprof-symbolize for files of
    // other users, heapprof-live for the clock of a recording, heapprof-attach for a lock,
    // heapprof-dropin for tools that end at a deadline, heapprof-process for the sizes of pages and
    // ticks, heapprof-prompt for the terminal and the lock of the history, and heapprof-recorder as
    // heapprof-cli does.
    (
        "rustix",
        "heapprof-cli heapprof-carried heapprof-files heapprof-sources heapprof-stores \
         heapprof-symbolize heapprof-live heapprof-attach heapprof-process heapprof-terminal \
         heapprof-recorder heapprof-watch heapprof-inspect heapprof-prompt heapprof-dropin",
    ),
    (
        "signal-hook",
        "heapprof-cli heapprof-recorder heapprof-terminal",
    ),
    ("rustyline", "heapprof-prompt"),
    ("ratatui-core", "heapprof-terminal"),
    ("ratatui-crossterm", "heapprof-terminal"),
    ("crossterm", "heapprof-terminal"),
    // These crates run in the profiled program, read its process, or start it.
    (
        "libc",
        "heapprof-platform heapprof-engine heapprof-providers heapprof-preload heapprof-alloc \
         heapprof-attach heapprof-cli heapprof-heap heapprof-process heapprof-prompt \
         heapprof-recorder heapprof-wiretap",
    ),
    ("inferno", "heapprof-report"),
    // heapprof-page writes the lists of the server's API with it, heapprof-analysis reads
    // ClickHouse's answers, and heapprof-dropin those of llvm-symbolizer and the settings of
    // pprof's page.
    (
        "serde_json",
        "heapprof-formats heapprof-report heapprof-web heapprof-page heapprof-analysis \
         heapprof-dropin",
    ),
    ("datafusion", "heapprof-analysis"),
    ("object_store", "heapprof-stores"),
    ("parquet", "heapprof-analysis"),
    // Tests compare our own encoder with it.
    ("prost", ""),
    ("lz4_flex", "heapprof-formats"),
    ("flate2", "heapprof-profile heapprof-web"),
    ("ruzstd", "heapprof-formats"),
    // heapprof-attach prepares a library with it, and heapprof-preload finds allocators; the others
    // but heapprof-symbolize read core files and build ids.
    (
        "object",
        "heapprof-symbolize heapprof-live heapprof-process heapprof-heap heapprof-attach \
         heapprof-preload",
    ),
    ("addr2line", "heapprof-symbolize"),
    ("iced-x86", "heapprof-assembly heapprof-entry"),
    ("yaxpeax-arm", "heapprof-assembly"),
    ("yaxpeax-arch", "heapprof-assembly"),
    // heapprof-engine and heapprof-attach read .eh_frame with it.
    (
        "gimli",
        "heapprof-symbolize heapprof-engine heapprof-attach",
    ),
];

/// Returns the normal dependencies of each of our crates.
fn dependencies() -> BTreeMap<String, Vec<String>> {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version",
            "1",
            "--no-deps",
            "--offline",
        ])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap().iter();
    packages
        .map(|package| {
            let normal = package["dependencies"].as_array().unwrap().iter();
            let normal = normal.filter(|d| d["kind"].is_null());
            let names = normal.map(|d| d["name"].as_str().unwrap().to_string());
            (
                package["name"].as_str().unwrap().to_string(),
                names.collect(),
            )
        })
        .collect()
}

#[test]
fn arrows_go_one_way() {
    for (package, uses) in dependencies() {
        if package == "heapprof-tests" {
            continue;
        }
        let is_it = |(folder, _): &&(&str, _)| package_name(folder) == package;
        let (_, allowed) = ARROWS
            .iter()
            .find(is_it)
            .unwrap_or_else(|| panic!("{package} has no row in architecture/arrows.rs"));
        for used in uses.iter().filter_map(|u| u.strip_prefix("heapprof-")) {
            assert!(allowed.contains(&used), "{package} must not know {used}");
        }
        for (library, owners) in OWNED {
            let uses_it = uses.iter().any(|u| u == library);
            assert!(
                !uses_it || owners.contains(&package),
                "{package} must not know {library}"
            );
        }
    }
}

/// Each crate stands in the folder of its layer, and the layers are a way down, too.
#[test]
fn layers_are_one_way_down() {
    let layer_of = |folder: &str| folder.split('/').next().unwrap_or_default().to_string();
    let by_name = |name: &str| {
        let found = ARROWS
            .iter()
            .find(|(folder, _)| folder.rsplit('/').next() == Some(name));
        layer_of(found.unwrap_or_else(|| panic!("{name} has no row")).0)
    };
    for (folder, uses) in ARROWS {
        let path = root().join("crates").join(folder);
        assert!(path.join("Cargo.toml").is_file(), "{folder} is not there");
        let layer = layer_of(folder);
        let (_, below) = LAYERS.iter().find(|(name, _)| *name == layer).unwrap();
        for used in uses.iter().map(|used| by_name(used)) {
            assert!(
                used == layer || below.contains(&used.as_str()),
                "{folder} uses {used}"
            );
        }
    }
    for (i, (layer, below)) in LAYERS.iter().enumerate() {
        let is_before = |name: &&str| LAYERS[..i].iter().any(|(other, _)| other == name);
        assert!(below.iter().all(is_before), "{layer}");
    }
    let folders = std::fs::read_dir(root().join("crates")).unwrap();
    let is_layer = |name: &str| LAYERS.iter().any(|(layer, _)| *layer == name);
    let folders = folders.map(|entry| entry.unwrap());
    for folder in folders.filter(|entry| entry.path().is_dir()) {
        let name = folder.file_name().into_string().unwrap();
        assert!(is_layer(&name), "crates/{name} is no layer");
    }
}

fn relative(path: &Path) -> String {
    path.strip_prefix(root()).unwrap().display().to_string()
}

#[test]
fn every_file_says_why_it_exists() {
    for file in sources() {
        let text = std::fs::read_to_string(&file).unwrap();
        let first = text.lines().next().unwrap_or_default();
        let fuzz = first.starts_with("#![no_main]");
        assert!(first.starts_with("//! ") || fuzz, "{}", relative(&file));
    }
}

/// The engine in the profiled process is one value. Other statics are only: a thread's own slot, on
/// processors where it is not made in assembly; a table that the linker fills once; and the place
/// of the engine's tables.
#[test]
fn the_engine_is_a_value() {
    let is_static = Regex::new(r"^\s*(pub(\([a-z]+\))? )?(safe )?static (mut )?(\w+)").unwrap();
    let mut found = Vec::new();
    for file in sources() {
        let name = relative(&file);
        let folders = ["crates/inside/platform/src/", "crates/inside/engine/src/"];
        if !folders.iter().any(|folder| name.starts_with(folder)) {
            continue;
        }
        let name = name.replace("crates/inside/", "").replace("/src/", "/");
        let text = std::fs::read_to_string(&file).unwrap();
        let code = text.split("\nmod tests {").next().unwrap();
        for line in code.lines() {
            if let Some(found_here) = is_static.captures(line) {
                found.push(format!("{name} {}", &found_here[5]));
            }
        }
    }
    found.sort_unstable();
    // The build for models defines another slot with the same name.
    found.dedup();
    let expected = [
        "engine/engine.rs ENGINE",
        // Place of the engine's tables, for readers outside the process.
        "engine/outside.rs LEDGER_HEADER",
        // The memory that the hooks' assembly reads, which the engine is given.
        "engine/tables/filter.rs HOOKS_FILTER",
        // The library's number in the loader, which is the same for the whole process.
        "platform/arch/x86_64/thread_slot.rs TLS_MODULE",
        // Places of the loader's list of objects, which are the same for the whole process.
        "platform/loader.rs DL_DEBUG_ADDR",
        "platform/loader.rs R_DEBUG",
        // Place of the kernel's clock, which is the same for all engines of a process.
        "platform/sys/clock.rs CLOCK_FUNCTION",
        "platform/tls/compiled_slot.rs SLOT",
        "platform/weak.rs WEAK_SYMBOLS",
    ];
    assert_eq!(found, expected);
}

#[test]
fn files_are_short() {
    let sources = sources();
    let mut lengths: Vec<(usize, String)> = sources
        .iter()
        .filter(|f| !f.ends_with("proto.rs"))
        .map(|f| {
            (
                std::fs::read_to_string(f).unwrap().lines().count(),
                relative(f),
            )
        })
        .collect();
    lengths.sort();
    let median = lengths[lengths.len() / 2].0;
    assert!(median <= 200, "the median file has {median} lines");
    let (longest, name) = lengths.last().unwrap();
    assert!(*longest <= 600, "{name} has {longest} lines");
}

/// Whether a line of code may be longer than 100 columns. It may if it contains text that would be
/// worse to read in pieces, such as a row of a table, a regular expression or a text that a test
/// compares.
fn is_text(line: &str) -> bool {
    let line = line.trim_start();
    match line.strip_prefix("//") {
        Some(comment) => {
            comment.contains("://") || comment.trim_start_matches(['/', '!', ' ']).starts_with('|')
        }
        None => line.contains('"'),
    }
}

#[test]
fn lines_fit_100_columns() {
    let too_long = |line: &&str| line.chars().count() > 100;
    let mut found = Vec::new();
    for file in sources().iter().filter(|f| !f.ends_with("src/proto.rs")) {
        let text = std::fs::read_to_string(file).unwrap();
        // Programs that tests compile, and output that tests expect, are text between quotation
        // marks.
        let is_test = file.starts_with(root().join("tests"));
        let lines = text.lines().filter(too_long);
        let wrong = lines
            .filter(|line| !is_text(line) && (!is_test || line.trim_start().starts_with("//")));
        found.extend(wrong.map(|line| format!("{}: {line}", relative(file))));
    }
    for page in files(&[root()], "md") {
        let text = std::fs::read_to_string(&page).unwrap();
        let mut in_fence = false;
        for line in text.lines() {
            let start = line.trim_start();
            if start.starts_with("```") {
                in_fence = !in_fence;
            }
            let may =
                in_fence || start.starts_with('|') || line.contains("](") || line.contains("://");
            if !may && too_long(&line) {
                found.push(format!("{}: {line}", relative(&page)));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn unsafe_sql_and_printing_stay_where_they_belong() {
    for file in sources() {
        let name = relative(&file);
        let text = std::fs::read_to_string(&file).unwrap();
        let code: String = text
            .lines()
            .filter(|l| !l.trim_start().starts_with("//"))
            .collect();
        let is = |places: &[&str]| places.iter().any(|p| name.starts_with(p));
        if code.contains("unsafe ") {
            let listed = UNSAFE.iter().any(|(folder, files)| {
                let file = name.strip_prefix(folder).unwrap_or_default();
                files.contains(&file.trim_end_matches(".rs"))
            });
            assert!(
                listed || is(&["tests/"]),
                "{name}: unsafe, and not in architecture/unsafe_files.rs"
            );
        }
        // A program that links the engine keeps its allocator, because only preload has hooks.
        if code.contains("no_mangle") || code.contains("export_name") {
            assert!(is(&["tests/", "crates/inside/preload/"]), "{name}: exports");
        }
        let streams = ["io::stdout()", "io::stderr()"];
        if streams.iter().any(|stream| code.contains(stream)) {
            assert!(
                is(&[
                    "tests/",
                    "crates/app/cli/",
                    "crates/app/files/src/typed_path.rs"
                ]),
                "{name}: prints"
            );
        }
        if ["print!(", "println!("]
            .iter()
            .any(|print| code.contains(print))
        {
            assert!(
                is(&[
                    "tests/",
                    "crates/app/cli/src/messages.rs",
                    // This test prints its figures for a person who runs it.
                    "crates/desk/analysis/src/gate/simulation.rs",
                    // Examples are programs of their own.
                    "crates/inside/alloc/examples/",
                    "crates/inside/entry/examples/",
                    // These build scripts print to cargo.
                    "crates/app/carried/build.rs",
                    "crates/inside/preload/build.rs",
                    "crates/desk/web/build.rs"
                ]),
                "{name}: prints"
            );
        }
        let sql = [
            "SELECT ",
            "INSERT ",
            "DELETE FROM ",
            "UPDATE ",
            "WITH ",
            "CREATE ",
            "PRAGMA ",
        ];
        if sql.iter().any(|word| code.contains(&format!("\"{word}"))) {
            assert!(
                is(&[
                    "tests/",
                    "crates/desk/analysis/",
                    "crates/app/cli/src/args.rs"
                ]),
                "{name}: SQL"
            );
        }
        for word in ["todo!(", "unimplemented!(", "dbg!("] {
            assert!(
                !code.contains(word) || name == "tests/desk/architecture.rs",
                "{name}: {word}"
            );
        }
    }
}

/// A file without any unsafe block must be removed from the list.
#[test]
fn the_list_of_unsafe_files_is_current() {
    for (folder, files) in UNSAFE {
        for file in *files {
            let path = root().join(folder).join(format!("{file}.rs"));
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(text.contains("unsafe "), "{folder}{file}.rs");
        }
    }
}

/// Code that runs inside the program prints only through one function: requested work that can't be
/// done, and requested messages.
#[test]
fn the_library_writes_to_stderr_in_one_place() {
    let writing = [
        "write_to(",
        "STDERR_FILENO",
        "STDOUT_FILENO",
        "io::stdout",
        "io::stderr",
    ];
    for file in sources() {
        let name = relative(&file);
        let inside = ["crates/inside/", "crates/interpreters/"];
        if !inside.iter().any(|crate_| name.starts_with(crate_)) {
            continue;
        }
        let text = std::fs::read_to_string(&file).unwrap();
        let writes = writing.iter().any(|w| text.contains(w));
        let may =
            name.ends_with("platform/src/sys/file.rs") || name.ends_with("preload/src/messages.rs");
        assert!(may || !writes, "{name}");
    }
}

#[test]
fn generated_code_is_current() {
    let proto = root().join("proto");
    let files = protox::compile([proto.join("profile.proto")], [&proto]).unwrap();
    let out = tempfile::tempdir().unwrap();
    prost_build::Config::new()
        .out_dir(out.path())
        .format(true)
        .compile_fds(files)
        .unwrap();
    let made = std::fs::read_to_string(out.path().join("heapprof.pprof.rs")).unwrap();
    let head = "//! prost messages of `proto/profile.proto`. Generated: `HEAPPROF_BLESS=1 cargo \
                test -p heapprof-tests generated` writes this file anew.\n\n";
    let expected = format!("{head}{made}");
    let file = root().join("crates/contract/profile/src/proto.rs");
    if bless() {
        std::fs::write(&file, &expected).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), expected);
}

#[test]
fn the_architecture_page_names_every_crate() {
    let page = std::fs::read_to_string(root().join("docs/dev/architecture.md")).unwrap();
    // It is read at once. Mechanism stands in the modules. The table has a row for each crate.
    let (claims, _) = page.split_once("## Glossary").unwrap();
    let prose = claims.lines().filter(|line| !line.starts_with('|'));
    let words = prose.flat_map(str::split_whitespace);
    let words = words
        .filter(|word| word.contains(char::is_alphanumeric))
        .count();
    assert!(
        words <= 500,
        "the page has {words} words before its glossary"
    );
    for (folder, _) in ARROWS {
        let package = package_name(folder);
        assert!(page.contains(&format!("`{package}`")), "{package}");
    }
    let dependencies_page =
        std::fs::read_to_string(root().join("docs/dev/dependencies.md")).unwrap();
    for (package, uses) in dependencies() {
        for used in uses.iter().filter(|u| !u.starts_with("heapprof-")) {
            assert!(
                dependencies_page.contains(&format!("`{used}`")),
                "{package} uses {used}: why?"
            );
        }
        // The code of a crate uses each library that its Cargo.toml names.
        let found = ARROWS
            .iter()
            .find(|(folder, _)| package_name(folder) == package);
        let folder = found.map_or("tests/".into(), |(folder, _)| format!("crates/{folder}/"));
        let own = sources()
            .into_iter()
            .filter(|file| relative(file).starts_with(&folder));
        let code: String = own
            .map(|file| std::fs::read_to_string(file).unwrap())
            .collect();
        for used in &uses {
            let word = format!(r"\b{}\b", used.replace('-', "_"));
            let named = regex::Regex::new(&word).unwrap().is_match(&code);
            assert!(named, "{package} does not use {used}");
        }
    }
}
