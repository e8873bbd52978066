//! The environment of all tests: separate home, cache and temporary folders, and none of the user's
//! settings.
//!
//! Files in the user's home must not change a result: settings, modules of Perl and Python, a
//! Devel::HeapProf that `heapprof perl-install` has put into a cache. So the environment of the
//! process is changed before `main`, while the process has one thread, and every command that a
//! test starts inherits it.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Name of the variable with the folder of these tests. It is for test programs that are started by
/// a test program: they use the same folder.
const VARIABLE: &str = "HEAPPROF_TESTS_FOLDER";

/// Names of variables that are for the tests, and stay in the environment.
const KEPT: [&str; 11] = [
    "HEAPPROF_BLESS",
    "HEAPPROF_LIBCS",
    "HEAPPROF_ORACLE_PROFILES",
    "HEAPPROF_ORACLE_TEXTS",
    "HEAPPROF_PERLS",
    "HEAPPROF_PPROF",
    "HEAPPROF_PYTHONS",
    "HEAPPROF_REQUIRE",
    "HEAPPROF_ROUNDS",
    "HEAPPROF_SEED",
    "HEAPPROF_WITHOUT",
];

/// Prefixes of variables that change the behaviour of heapprof, compilers, interpreters and shells.
const SETTINGS: [&str; 14] = [
    "CLICOLOR",
    "DEBUGINFOD",
    "GLIBC_TUNABLES",
    "HEAPPROF",
    "HEAP_PROFILE",
    "LANG",
    "LC_",
    "MALLOC_",
    "PAGER",
    "PERL5",
    "PERLLIB",
    "PERL_",
    "PPROF_",
    "PYTHON",
];

/// Variables that name a tool's folder, and the folder in the home that the tool uses without the
/// variable.
const IN_HOME: [(&str, &str); 6] = [
    ("ASDF_DATA_DIR", ".asdf"),
    ("CARGO_HOME", ".cargo"),
    ("PLENV_ROOT", ".plenv"),
    ("PYENV_ROOT", ".pyenv"),
    ("RBENV_ROOT", ".rbenv"),
    ("RUSTUP_HOME", ".rustup"),
];

/// The folder that this process created, and removes at its end.
static MADE: OnceLock<PathBuf> = OnceLock::new();

#[used]
// SAFETY: the loader calls each function of this table once, before `main`.
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

extern "C" fn begin() {
    if std::env::var_os(VARIABLE).is_some() {
        return;
    }
    let folder = match make() {
        Ok(folder) => folder,
        Err(error) => {
            eprintln!("the tests have no folder of their own: {error}");
            std::process::exit(1);
        }
    };
    // SAFETY: only one thread exists until `main` begins.
    unsafe { enter(&folder) };
    let _ = MADE.set(folder);
    // SAFETY: atexit may be called at any time.
    unsafe { libc::atexit(end) };
}

/// Creates the folders. Test programs run as other users, too, so every user may enter the folders.
fn make() -> std::io::Result<PathBuf> {
    let made = tempfile::Builder::new()
        .prefix("heapprof-tests.")
        .permissions(Permissions::from_mode(0o755))
        .tempdir()?
        .keep();
    for (name, mode) in [
        ("cache", 0o755),
        ("config", 0o755),
        ("data", 0o755),
        ("home", 0o755),
        ("run", 0o700),
        ("state", 0o755),
        ("tmp", 0o1777),
    ] {
        std::fs::create_dir(made.join(name))?;
        std::fs::set_permissions(made.join(name), Permissions::from_mode(mode))?;
    }
    std::fs::set_permissions(&made, Permissions::from_mode(0o755))?;
    let kill = made.join("bin/kill");
    std::fs::create_dir(made.join("bin"))?;
    std::fs::write(&kill, "#!/bin/sh\nkill \"$@\"\n")?;
    std::fs::set_permissions(&kill, Permissions::from_mode(0o755))?;
    Ok(made)
}

/// Changes the environment.
///
/// # Safety
/// Only one thread exists.
unsafe fn enter(folder: &Path) {
    let set = |name: &str, value: &Path| {
        // SAFETY: the caller guarantees that only one thread exists.
        unsafe { std::env::set_var(name, value) };
    };
    if let Some(home) = std::env::var_os("HOME").map(PathBuf::from) {
        for (name, below) in IN_HOME {
            let there = home.join(below);
            if std::env::var_os(name).is_none() && there.exists() {
                set(name, &there);
            }
        }
    }
    for (name, _) in std::env::vars_os() {
        let is_setting = name.to_str().is_some_and(|name| {
            !KEPT.contains(&name) && SETTINGS.iter().any(|begin| name.starts_with(begin))
        });
        if is_setting {
            // SAFETY: the caller guarantees that only one thread exists.
            unsafe { std::env::remove_var(name) };
        }
    }
    set(VARIABLE, folder);
    for (name, below) in [
        ("HOME", "home"),
        ("TMPDIR", "tmp"),
        ("XDG_CACHE_HOME", "cache"),
        ("XDG_CONFIG_HOME", "config"),
        ("XDG_DATA_HOME", "data"),
        ("XDG_RUNTIME_DIR", "run"),
        ("XDG_STATE_HOME", "state"),
    ] {
        set(name, &folder.join(below));
    }
    // Some machines lack a program `kill`, which is built into every shell.
    let path = std::env::var_os("PATH").unwrap_or_default();
    if !std::env::split_paths(&path).any(|folder| folder.join("kill").is_file()) {
        let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
        folders.push(folder.join("bin"));
        if let Ok(path) = std::env::join_paths(folders) {
            set("PATH", Path::new(&path));
        }
    }
    set("LANG", Path::new("C.UTF-8"));
    set("TZ", Path::new("UTC0"));
    // Otherwise Python would write beside the scripts.
    set("PYTHONDONTWRITEBYTECODE", Path::new("1"));
}

/// Prints which tests were skipped, and removes the folders.
extern "C" fn end() {
    crate::needs::summarize();
    if let Some(folder) = MADE.get() {
        let _ = std::fs::remove_dir_all(folder);
    }
}

/// Returns the folder that only these tests use. Fails if the environment was not changed.
pub fn folder() -> PathBuf {
    let folder = std::env::var_os(VARIABLE).expect("the environment is that of the tests");
    PathBuf::from(folder)
}
