//! Runs the `heapprof` binary in separate folders, and compares output with expected files.

use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use crate::waits;

/// The beginnings of the names of commands in a group.
const GROUPS: [&str; 10] = [
    "db-", "setup-", "alive-", "info-", "tree-", "growth-", "convert-", "bench-", "watch-", "heap-",
];

/// Returns all commands of heapprof, such as `top` and `db load`. They are the names of its man
/// pages.
pub fn commands() -> &'static [String] {
    static COMMANDS: OnceLock<Vec<String>> = OnceLock::new();
    COMMANDS.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder");
        ok(&["man", "--out", folder.path().to_str().expect("text")]);
        let pages = std::fs::read_dir(folder.path()).expect("the pages");
        let mut names: Vec<String> = pages
            .filter_map(|page| {
                let page = page
                    .expect("a page")
                    .file_name()
                    .into_string()
                    .expect("text");
                let name = page.strip_prefix("heapprof-")?.strip_suffix(".1")?;
                let group = GROUPS.iter().find(|group| name.starts_with(**group));
                let words = group.map(|group| {
                    format!("{} {}", group.trim_end_matches('-'), &name[group.len()..])
                });
                Some(words.unwrap_or_else(|| name.to_string()))
            })
            .collect();
        names.sort();
        assert!(names.len() > 40, "{names:?}");
        names
    })
}

/// Returns the root of the repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("tests/ is in the root")
}

/// Returns the folder of the sample profiles.
pub fn sample_profiles() -> PathBuf {
    root().join("sample-profiles")
}

/// Returns all valid sample profiles, sorted by name.
pub fn valid() -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(sample_profiles().join("valid"))
        .expect("sample-profiles/valid")
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(files.len() > 10, "the samples are missing");
    files
}

/// Returns the file's name without its folder.
pub fn name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

/// Whether the tests rewrite the expected files.
pub fn bless() -> bool {
    std::env::var_os("HEAPPROF_BLESS").is_some()
}

/// Returns the path of the `heapprof` binary. The first call builds it, because `cargo test` builds
/// no binaries of other packages.
pub fn heapprof() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        let status = Command::new(env!("CARGO"))
            // With the tests' crate, because then the libraries have the features that they have
            // there, and are not built twice.
            .args([
                "build",
                "-q",
                "-p",
                "heapprof-cli",
                "-p",
                "heapprof-tests",
                "--bin",
                "heapprof",
            ])
            .current_dir(root())
            .status()
            .expect("cargo runs");
        assert!(status.success(), "heapprof does not build");
        let tests = std::env::current_exe().unwrap();
        let binary = tests
            .parent()
            .and_then(Path::parent)
            .unwrap()
            .join("heapprof");
        assert!(binary.is_file(), "{}", binary.display());
        binary
    })
}

/// Returns a command of heapprof in `folder`, without any settings of this machine.
pub fn command(folder: &Path) -> Command {
    let mut command = Command::new(heapprof());
    command.current_dir(folder);
    for name in ["HEAPPROF_DB", "HEAPPROF_PAGER", "PAGER", "CLICOLOR_FORCE"] {
        command.env_remove(name);
    }
    command.env("NO_COLOR", "1").env("COLUMNS", "100");
    command
}

/// The result of a run of heapprof.
pub struct Run {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl From<Output> for Run {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Runs heapprof in a folder.
pub fn run(folder: &Path, args: &[&str]) -> Run {
    command(folder)
        .args(args)
        .output()
        .expect("heapprof runs")
        .into()
}

/// Runs heapprof in the folder of the samples, and checks that it succeeds. Returns its stdout.
pub fn ok(args: &[&str]) -> String {
    let run = run(&sample_profiles(), args);
    assert_eq!(run.code, 0, "{args:?}: {}", run.err);
    run.out
}

/// Returns a command that runs a program with the library preloaded.
pub fn preloaded(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env("LD_PRELOAD", ok(&["preload-path"]).trim());
    command
}

/// Compares a text with an expected file. When blessing, writes the text to the file instead.
pub fn expect_file(path: &Path, found: &str) {
    if bless() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, found).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(path).unwrap_or_default();
    if expected != found {
        let line = expected
            .lines()
            .zip(found.lines())
            .position(|(a, b)| a != b);
        let line = line.unwrap_or(expected.lines().count().min(found.lines().count()));
        panic!(
            "{} differs in line {} (HEAPPROF_BLESS=1 writes it anew)\nexpected {:?}\nfound    {:?}",
            path.display(),
            line + 1,
            expected.lines().nth(line),
            found.lines().nth(line)
        );
    }
}

/// Returns the Rust files of the repository.
pub fn sources() -> Vec<PathBuf> {
    let folders = ["bench", "crates", "tests", "fuzz"].map(|folder| root().join(folder));
    files(&folders.each_ref().map(PathBuf::as_path), "rs")
}

/// Returns the files below some folders whose names end in `.END`, except in hidden folders and in
/// cargo's build folders.
pub fn files(folders: &[&Path], end: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders: Vec<PathBuf> = folders.iter().map(|folder| folder.to_path_buf()).collect();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            match path.extension() {
                None if path.is_dir() && name != "target" && !name.starts_with('.') => {
                    folders.push(path);
                }
                Some(found) if found == end => files.push(path),
                _ => {}
            }
        }
    }
    files.sort();
    files
}

/// Runs a program, which must not hang. Returns its output, of any length, and its exit code.
pub fn ends(command: &mut Command) -> (String, Option<i32>) {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut output = child.stdout.take().unwrap();
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        output.read_to_end(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let code = waits::ended(&mut child).code();
    (reader.join().unwrap(), code)
}

/// Whether the tests run as root, which they need to act as other users. If they don't, prints a
/// message.
pub fn is_root() -> bool {
    let own = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").unwrap());
    if own != 0 {
        crate::needs::cannot("root, who can act as another user");
    }
    own == 0
}

/// Returns the process id of the program that a `record` runs: the first child of `record`.
pub fn program_of(record: u32) -> u32 {
    let children = format!("/proc/{record}/task/{record}/children");
    let children = std::fs::read_to_string(children).unwrap();
    children.split_whitespace().next().unwrap().parse().unwrap()
}
