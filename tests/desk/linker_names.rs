//! Linker names in files of other tools: reports show source names, and the linker names are kept.

use std::fs;
use std::path::Path;

use heapprof_tests::fixtures::{self, profile, write};
use heapprof_tests::harness::run;
use serde_json::{Value, json};

/// Stacks with linker names of C++ and Rust, in a profile whose functions have no other names.
const STACKS: [(&str, &[i64]); 3] = [
    ("main;_ZN4shop5Order4takeEi", &[1, 100]),
    ("main;_RNvCs15kBYyAo9fc_7mycrate7example", &[1, 50]),
    (
        "main;_ZN4shop5Order4takeEi;_ZN4shop3putISt6vectorIiSaIiEEEEvT_",
        &[1, 70],
    ),
];

const PUT: &str = "void shop::put<std::vector<int, std::allocator<int> > >(std::vector<int, std::allocator<int> >)";

/// Makes a folder with the profile `p` and the folded stacks `f`.
fn with_files() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let types = [("inuse_objects", "count"), ("inuse_space", "bytes")];
    write(folder.path(), "p", &profile(&types, &STACKS));
    let lines = STACKS.map(|(stack, values)| format!("{stack} {}\n", values[1]));
    fs::write(folder.path().join("f"), lines.concat()).unwrap();
    folder
}

fn out(folder: &Path, args: &[&str]) -> String {
    let run = run(folder, args);
    assert_eq!(run.code, 0, "{args:?}: {}", run.err);
    run.out
}

/// Returns the functions of `top`, with their flat values.
fn functions(folder: &Path, args: &[&str]) -> Value {
    let top = fixtures::json(folder, &[&["top", "-f", "json"], args].concat());
    let rows = top["rows"].as_array().unwrap().iter();
    rows.map(|row| json!([row["function"], row["flat"]]))
        .collect()
}

#[test]
fn reports_show_source_names() {
    let folder = with_files();
    let folder = folder.path();
    let expected = json!([
        ["shop::Order::take(int)", 100],
        [PUT, 70],
        ["mycrate::example", 50],
        ["main", 0],
    ]);
    assert_eq!(functions(folder, &["p"]), expected);
    assert_eq!(functions(folder, &["f"]), expected);
    // A filter matches the names that reports show.
    let kept = functions(folder, &["--focus", r"^shop::Order::take\(", "p"]);
    assert_eq!(kept.as_array().unwrap().len(), 3);
    let text = out(folder, &["tree", "p"]);
    assert!(text.contains("shop::put<std::vector<int>>"), "{text}");
    assert!(!text.contains("_ZN") && !text.contains("_RNv"), "{text}");
}

/// pprof leaves out parameters and arguments of the names that it demangles. It demangles only
/// functions whose name is their linker name.
#[test]
fn pprof_demangles_as_pprof_does() {
    let folder = with_files();
    let text = out(folder.path(), &["pprof", "-top", "p"]);
    for name in ["shop::Order::take", "shop::put", "mycrate::example"] {
        assert!(text.contains(&format!("  {name}\n")), "{text}");
    }
    let text = out(folder.path(), &["pprof", "-symbolize=none", "-top", "p"]);
    assert!(text.contains("  _ZN4shop5Order4takeEi\n"), "{text}");
}

/// A converted file has both names, and sums and differences match the names of both files.
#[test]
fn linker_names_are_kept() {
    let folder = with_files();
    let folder = folder.path();
    out(
        folder,
        &["convert", "--to", "pprof", "f", "-o", "converted"],
    );
    let sql = "SELECT name, system_name FROM function WHERE system_name LIKE '\\__%' ESCAPE '\\' \
               ORDER BY name";
    let names = json!([
        ["mycrate::example", "_RNvCs15kBYyAo9fc_7mycrate7example"],
        ["shop::Order::take(int)", "_ZN4shop5Order4takeEi"],
        [PUT, "_ZN4shop3putISt6vectorIiSaIiEEEEvT_"],
    ]);
    for file in ["p", "converted"] {
        let rows = fixtures::json(folder, &["sql", "-f", "json", "-p", file, sql]);
        let rows = rows.as_array().unwrap().iter();
        let found: Value = rows
            .map(|row| json!([row["name"], row["system_name"]]))
            .collect();
        assert_eq!(found, names, "{file}");
    }
    out(folder, &["merge", "p", "p", "-o", "merged"]);
    assert_eq!(
        functions(folder, &["p", "p"]),
        functions(folder, &["merged"])
    );
    assert_eq!(
        functions(folder, &["merged"])[0],
        json!(["shop::Order::take(int)", 200])
    );
    out(folder, &["convert", "--to", "folded", "p", "-o", "folded"]);
    assert_eq!(functions(folder, &["folded"]), functions(folder, &["p"]));
    // A stored profile has the same functions.
    out(
        folder,
        &["db", "load", "--db", "d.db", "--as", "stored", "p"],
    );
    assert_eq!(
        functions(folder, &["--db", "d.db", "stored"]),
        functions(folder, &["p"])
    );
}
