//! Checks that the packages for crates.io build what a checkout builds.

use heapprof_tests::harness::root;

/// Returns a table of a file of TOML: the lines up to the next empty one.
fn table<'a>(text: &'a str, name: &str) -> &'a str {
    let (_, rest) = text
        .split_once(&format!("[{name}]\n"))
        .unwrap_or_else(|| panic!("no table {name}"));
    rest.split("\n\n").next().unwrap_or_default().trim_end()
}

/// In a package, libheapprof.so is built with a manifest of its own, as the profile of a workspace
/// is in no package.
#[test]
fn the_library_is_built_in_a_package_as_in_a_checkout() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    let (workspace, package) = (read("Cargo.toml"), read("crates/app/carried/library.toml"));
    assert_eq!(
        table(&package, "profile.preload"),
        table(&workspace, "profile.preload")
    );
}
