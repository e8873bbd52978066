//! Provides libheapprof.so, which this binary carries. A nested cargo builds it in a separate
//! target folder: in a checkout from the workspace, and in a package from the packages of its
//! crates. `HEAPPROF_LIBRARY` names a library that was built before, instead.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The environment variable that names a library to carry, instead of one that is built here. A
/// static heapprof carries a library that was built for another libc.
const LIBRARY_VARIABLE: &str = "HEAPPROF_LIBRARY";
const HEADER_PATH: &str = "include/heapprof.h";
const PERL_MODULE_PATH: &str = "perl/Devel-HeapProf";
/// The crate of the library, in a checkout.
const LIBRARY_CRATE_PATH: &str = "../../inside/preload/Cargo.toml";
/// The manifest that the library is built with in a package, but for the version.
const PACKAGE_MANIFEST_PATH: &str = "library.toml";

// This build script writes where cargo says.
#[allow(clippy::disallowed_methods)]
fn main() {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for part in [HEADER_PATH, PERL_MODULE_PATH, PACKAGE_MANIFEST_PATH] {
        println!("cargo::rerun-if-changed={part}");
    }
    println!("cargo::rerun-if-env-changed={LIBRARY_VARIABLE}");
    let library = out.join("libheapprof.so");
    let supported = [
        "CARGO_CFG_TARGET_ARCH",
        "CARGO_CFG_TARGET_OS",
        "CARGO_CFG_TARGET_ENV",
    ]
    .map(variable);
    if let Some(prebuilt) = std::env::var_os(LIBRARY_VARIABLE) {
        println!("cargo::rerun-if-changed={}", Path::new(&prebuilt).display());
        std::fs::copy(&prebuilt, &library)
            .unwrap_or_else(|error| panic!("{LIBRARY_VARIABLE}: {prebuilt:?}: {error}"));
    } else if supported == ["x86_64", "linux", "gnu"] {
        let built = build_library(&out, &library_manifest(&out));
        std::fs::copy(&built, &library).expect("the library was built");
    } else {
        std::fs::write(&library, b"").expect("OUT_DIR is writable");
    }
    name_folder(&library);
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

/// Returns the manifest with which the library is built: that of the workspace, or in a package,
/// one that is made here.
#[allow(clippy::disallowed_methods)]
fn library_manifest(out: &Path) -> PathBuf {
    let package = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let root = package.ancestors().nth(3);
    if let Some(root) = root.filter(|root| {
        package.join(LIBRARY_CRATE_PATH).exists() && package == root.join("crates/app/carried")
    }) {
        // The paths start at this crate, not at the root: a target folder that another checkout
        // used must not watch the files of that checkout.
        for part in [
            "../../contract",
            "../../interpreters",
            "../../inside",
            "../../../Cargo.toml",
        ] {
            println!("cargo::rerun-if-changed={part}");
        }
        return root.join("Cargo.toml");
    }
    let folder = out.join("library");
    std::fs::create_dir_all(&folder).expect("OUT_DIR is writable");
    let manifest = std::fs::read_to_string(PACKAGE_MANIFEST_PATH).expect("the package has it");
    let manifest = manifest.replace("VERSION", &variable("CARGO_PKG_VERSION"));
    let path = folder.join("Cargo.toml");
    std::fs::write(&path, manifest).expect("OUT_DIR is writable");
    std::fs::write(folder.join("lib.rs"), "").expect("OUT_DIR is writable");
    // The package's lock names the versions with which the release was tested. cargo drops what the
    // library does not need.
    if let Ok(lock) = std::fs::read("Cargo.lock") {
        std::fs::write(folder.join("Cargo.lock"), lock).expect("OUT_DIR is writable");
    }
    path
}

/// Builds the library. Returns its path.
fn build_library(out: &Path, manifest: &Path) -> PathBuf {
    // target/PROFILE/build/heapprof-carried-HASH/out: one build for all profiles of this target
    // folder.
    let target = out.ancestors().nth(4).unwrap_or(out).join("preload-embed");
    let mut cargo = Command::new(std::env::var_os("CARGO").expect("cargo sets CARGO"));
    cargo
        .args(["build", "--quiet", "--package", "heapprof-preload"])
        .args(["--profile", "preload", "--target", &variable("TARGET")])
        .arg("--manifest-path")
        .arg(manifest)
        .arg("--target-dir")
        .arg(&target);
    // The variables that the outer cargo sets for this build script, for clippy or for coverage are
    // not meant for the library.
    for (name, _) in std::env::vars() {
        let outer = [
            "CARGO_CFG_",
            "CARGO_FEATURE_",
            "CARGO_PKG_",
            "CARGO_PROFILE_",
            "CARGO_ENCODED_RUSTFLAGS",
        ];
        if outer.iter().any(|o| name.starts_with(o))
            || name.contains("RUSTC")
            || name == "RUSTFLAGS"
        {
            cargo.env_remove(name);
        }
    }
    let status = cargo.status().expect("cargo runs");
    assert!(
        status.success(),
        "libheapprof.so does not build, for the reason above; {LIBRARY_VARIABLE}=FILE takes one \
         that was built before"
    );
    target
        .join(variable("TARGET"))
        .join("preload/libheapprof.so")
}

/// Sets `HEAPPROF_CARRIED` to a hash of the library, the header and the Perl module. These files
/// are unpacked into a folder whose name contains the hash. The build script computes the hash, so
/// that `record` need not do so at each start.
fn name_folder(library: &Path) {
    let carried = [
        "HeapProf.xs",
        "layout.h",
        "loads.h",
        "values.h",
        "watch.h",
        "lib/Devel/HeapProf.pm",
        "lib/Devel/HeapProf/Loader.pm",
    ]
    .map(|file| Path::new(PERL_MODULE_PATH).join(file));
    let carried = carried.iter().map(PathBuf::as_path);
    let content: Vec<Vec<u8>> = [library, Path::new(HEADER_PATH)]
        .into_iter()
        .chain(carried)
        .map(|path| std::fs::read(path).expect("it is there"))
        .collect();
    // FNV-1a only distinguishes versions; the content itself is compared.
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    let hash = content.iter().flatten().fold(0xcbf2_9ce4_8422_2325, step);
    println!("cargo::rustc-env=HEAPPROF_CARRIED={hash:016x}");
}
