//! Joins the page's scripts and styles and minifies them: OUT_DIR gets page.js and page.css.

#[path = "build/join.rs"]
mod join;
#[path = "build/names.rs"]
mod names;
#[path = "build/squeeze.rs"]
mod squeeze;
#[path = "build/tokens.rs"]
mod tokens;

use std::path::PathBuf;

// A build script writes to the folder that cargo names.
#[allow(clippy::disallowed_methods)]
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=build");
    println!("cargo::rerun-if-changed=page");
    let variable = |name: &str| PathBuf::from(std::env::var_os(name).expect("cargo sets it"));
    let page = variable("CARGO_MANIFEST_DIR").join("page");
    let out = variable("OUT_DIR");
    for (name, joined) in [
        ("page.js", join::script(&page)),
        ("page.css", join::style(&page)),
    ] {
        let text = joined.unwrap_or_else(|why| panic!("{}: {why}", page.display()));
        std::fs::write(out.join(name), text).expect("OUT_DIR is writable");
    }
}
