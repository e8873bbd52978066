//! Checks for requirements of tests that a machine may lack. Each requirement is checked once in a
//! run. A test without its requirement is skipped. The last lines of the run show the number of
//! skipped tests, and a command that installs the missing requirements.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{LazyLock, Mutex, PoisonError};

/// Debian packages of tools and libraries whose package has another name.
const PACKAGES: &[(&str, &str)] = &[
    ("addr2line", "binutils"),
    ("c++filt", "binutils"),
    ("callgrind_annotate", "valgrind"),
    ("dot", "graphviz"),
    ("gcc", "gcc libc6-dev"),
    ("gcore", "gdb"),
    ("google-pprof", "google-perftools"),
    ("heaptrack_print", "heaptrack"),
    ("jeprof", "libjemalloc-dev"),
    ("libjemalloc.so.2", "libjemalloc2"),
    ("libmimalloc.so.2", "libmimalloc2.0"),
    ("libperl.so", "libperl-dev"),
    ("libtcmalloc.so.4", "libgoogle-perftools4"),
    ("libtcmalloc_minimal.so.4", "libtcmalloc-minimal4"),
    ("ms_print", "valgrind"),
    ("musl-gcc", "musl-tools"),
    ("nm", "binutils"),
    ("node", "nodejs"),
    ("objcopy", "binutils"),
    ("objdump", "binutils"),
    ("perl.h", "libperl-dev"),
    ("prove", "perl"),
    ("python3", "python3"),
    ("python3-config", "python3-dev"),
    ("readelf", "binutils"),
    ("script", "bsdutils"),
    ("setpriv", "util-linux"),
    ("stty", "coreutils"),
    ("mkfifo", "coreutils"),
    ("cat", "coreutils"),
    ("strip", "binutils"),
    ("unshare", "util-linux"),
    ("xz", "xz-utils"),
];

/// Programs that a working compiler must compile and link.
const C: &str = "#include <stdlib.h>\nint main(void) { free(malloc(1)); return 0; }\n";
const CXX: &str = "#include <vector>\nint main() { std::vector<int> v(3); return v[0]; }\n";

/// Missing requirements, with the tests that were skipped.
type Skips = BTreeMap<Reason, BTreeSet<String>>;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Reason {
    what: String,
    /// The Debian packages that provide the requirement, separated by blanks; empty if no package
    /// does.
    packages: String,
}

static SKIPS: Mutex<Skips> = Mutex::new(Skips::new());

/// Whether all of `tools` work here. If not, the calling test is skipped, or fails if everything is
/// required.
pub fn have(tools: &[&str]) -> bool {
    let missing: Vec<&str> = tools
        .iter()
        .copied()
        .filter(|tool| !is_here(tool))
        .collect();
    for tool in &missing {
        miss(tool, package_of(tool));
    }
    missing.is_empty()
}

/// Whether a tool works here. If it does not, nothing is printed. This is for a part of a test that
/// may be left out.
pub fn is_here(tool: &str) -> bool {
    static TRIED: LazyLock<Mutex<BTreeMap<String, bool>>> = LazyLock::new(Mutex::default);
    let mut tried = TRIED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(&works) = tried.get(tool) {
        return works;
    }
    let works = !is_left_out(tool) && works(tool);
    tried.insert(tool.to_string(), works);
    works
}

fn works(tool: &str) -> bool {
    let succeeds = |words: &[&str]| {
        let done = Command::new(tool).args(words).output();
        done.is_ok_and(|done| done.status.success())
    };
    match tool {
        "gcc" | "cc" | "clang" | "musl-gcc" => compiles(tool, C, &[]),
        "g++" | "c++" | "clang++" => compiles(tool, CXX, &[]),
        // Debian always has a perl and often a python, but without most of their modules.
        "perl" => succeeds(&["-MData::Dumper", "-MStorable", "-MText::Balanced", "-e1"]),
        "python3" => succeeds(&["-c", "import asyncio, ctypes, json, sqlite3, threading"]),
        // tmux does not know --version.
        "tmux" => succeeds(&["-V"]),
        _ => Command::new(tool)
            .arg("--version")
            .stdin(Stdio::null())
            .output()
            .is_ok(),
    }
}

/// Whether a compiler can compile a source with these options.
pub fn compiles(compiler: &str, source: &str, options: &[&str]) -> bool {
    let Ok(folder) = tempfile::tempdir() else {
        return false;
    };
    let name = if source == CXX { "try.cc" } else { "try.c" };
    std::fs::write(folder.path().join(name), source).unwrap();
    let tried: std::io::Result<Output> = Command::new(compiler)
        .args(["-o", "try", name])
        .args(options)
        .current_dir(folder.path())
        .output();
    tried.is_ok_and(|tried| tried.status.success())
}

/// Whether HEAPPROF_WITHOUT excludes a requirement. The variable has names, separated by commas.
/// Excluded requirements are never required.
fn is_left_out(what: &str) -> bool {
    let without = std::env::var("HEAPPROF_WITHOUT").unwrap_or_default();
    without.split(',').any(|name| name == what)
}

fn package_of(tool: &str) -> &str {
    let found = PACKAGES.iter().find(|(name, _)| *name == tool);
    found.map_or(tool, |(_, package)| package)
}

/// Notes that this test lacks a requirement, `what`, which `packages` provide. Fails if everything
/// is required.
pub fn miss(what: &str, packages: &str) {
    let required = std::env::var_os("HEAPPROF_REQUIRE").is_some() && !is_left_out(what);
    assert!(!required, "{what} is required here ({packages})");
    note(what, packages);
}

/// Notes that this test leaves out a part that no package enables, because the part needs root or a
/// feature of the kernel.
pub fn cannot(what: &str) {
    note(what, "");
}

fn note(what: &str, packages: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    eprintln!("SKIPPED {test}, or a part of it: it needs {what}");
    let reason = Reason {
        what: what.to_string(),
        packages: packages.to_string(),
    };
    let mut skips = SKIPS.lock().unwrap_or_else(PoisonError::into_inner);
    skips.entry(reason).or_default().insert(test.to_string());
}

/// Whether namespaces can be created with these options of `unshare`. If they can't, the calling
/// test is skipped. Namespaces need rights, and a chroot has neither mount nor user namespaces.
pub fn namespaces(options: &[&str]) -> bool {
    if !have(&["unshare"]) {
        return false;
    }
    let tried = Command::new("unshare").args(options).arg("true").output();
    let works = tried.is_ok_and(|tried| tried.status.success());
    if !works {
        cannot(&format!("namespaces (unshare {})", options.join(" ")));
    }
    works
}

/// Returns the path of a shared library on this machine. Without it, the test is skipped, or fails
/// if everything is required.
pub fn library(name: &str) -> Option<String> {
    let folders = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64"];
    let mut paths = folders.iter().map(|folder| format!("{folder}/{name}"));
    let found = paths.find(|path| Path::new(path).exists() && !is_left_out(name));
    if found.is_none() {
        miss(name, package_of(name));
    }
    found
}

/// Whether the perl in PATH has a module.
pub fn perl_module(module: &str) -> bool {
    let words = [&format!("-M{module}"), "-e1"];
    let found = Command::new("perl").args(words).output();
    let has = !is_left_out(module) && found.is_ok_and(|found| found.status.success());
    if !has {
        let package = match module {
            "DBD::SQLite" => "dbd-sqlite3".to_string(),
            _ => module.to_lowercase().replace("::", "-"),
        };
        miss(&format!("{module} of Perl"), &format!("lib{package}-perl"));
    }
    has
}

/// Returns the compiler options for a module of the perl in PATH or, if `links` is true, for a
/// program with an embedded perl. `None` if a trial with these options fails.
pub fn perl_options(links: bool) -> Option<String> {
    static OPTIONS: LazyLock<[Option<String>; 2]> = LazyLock::new(|| {
        let of_compiler = asked_of_perl("ccopts");
        let all = of_compiler
            .as_ref()
            .map(|of| format!("{of} {}", asked_of_perl("ldopts").unwrap_or_default()));
        let module = "#include <EXTERN.h>\n#include <perl.h>\nint module(void) { return 0; }\n";
        let program = "#include <EXTERN.h>\n#include <perl.h>\n\
                       int main(void) { return perl_alloc() == 0; }\n";
        let works = |options: &String, source: &str, more: &[&str]| {
            let options: Vec<&str> = options.split_whitespace().collect();
            compiles("gcc", source, &[&options[..], more].concat())
        };
        [
            of_compiler.filter(|of| works(of, module, &["-shared", "-fPIC"])),
            all.filter(|all| works(all, program, &[])),
        ]
    });
    if !have(&["gcc", "perl"]) {
        return None;
    }
    let what = if links { "libperl.so" } else { "perl.h" };
    let options = OPTIONS[usize::from(links)].clone();
    let options = options.filter(|_| !is_left_out("perl.h") && !is_left_out(what));
    if options.is_none() {
        miss(what, package_of(what));
    }
    options
}

fn asked_of_perl(what: &str) -> Option<String> {
    let asked = Command::new("perl")
        .args(["-MExtUtils::Embed", "-e", what])
        .output()
        .ok()?;
    let text = String::from_utf8(asked.stdout).ok()?;
    asked.status.success().then(|| text.replace('\n', " "))
}

/// Returns the file to which all test programs of one `cargo test` append the skipped tests. The
/// file is beside the test programs. `None` if the tests are not run by cargo.
fn shared_file() -> Option<PathBuf> {
    let cargo = std::os::unix::process::parent_id();
    let of_cargo = |name: &str| std::fs::read_to_string(format!("/proc/{cargo}/{name}"));
    if of_cargo("comm").ok()?.trim() != "cargo" {
        return None;
    }
    // The process id may be reused, but not with the same start time.
    let stat = of_cargo("stat").ok()?;
    let begun = stat.rsplit_once(") ")?.1.split(' ').nth(19)?.to_string();
    let program = std::env::current_exe().ok()?;
    Some(program.with_file_name(format!("skipped-{cargo}-{begun}")))
}

/// Prints, at the end of the process, which tests all test programs of this run have skipped so
/// far.
pub(crate) fn summarize() {
    let mut skips = SKIPS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let file = shared_file();
    let before = file
        .as_ref()
        .and_then(|file| std::fs::read_to_string(file).ok());
    for line in before.iter().flat_map(|text| text.lines()) {
        if let [what, packages, test] = line.split('\t').collect::<Vec<_>>()[..] {
            let reason = Reason {
                what: what.to_string(),
                packages: packages.to_string(),
            };
            skips.entry(reason).or_default().insert(test.to_string());
        }
    }
    if skips.is_empty() {
        return;
    }
    if let Some(file) = file {
        let line = |(reason, test): (&Reason, &String)| {
            format!("{}\t{}\t{test}\n", reason.what, reason.packages)
        };
        let all = skips
            .iter()
            .flat_map(|(of, tests)| tests.iter().map(move |test| (of, test)));
        let _ = std::fs::write(file, all.map(line).collect::<String>());
    }
    let _ = std::io::stderr().write_all(summary(&skips).as_bytes());
}

/// Returns the last lines of a run, which summarize the skipped tests.
fn summary(skips: &Skips) -> String {
    let tests: BTreeSet<&String> = skips.values().flatten().collect();
    let mut text = format!(
        "{} tests were skipped, or parts of them, because this machine lacks what they need:\n",
        tests.len()
    );
    for (reason, tests) in skips {
        let examples: Vec<&str> = tests.iter().take(3).map(String::as_str).collect();
        let more = if tests.len() > 3 { ", ..." } else { "" };
        let _ = writeln!(
            text,
            "{:>4}: {} ({}{more})",
            tests.len(),
            reason.what,
            examples.join(", ")
        );
    }
    let packages: BTreeSet<&str> = skips.keys().flat_map(|of| of.packages.split(' ')).collect();
    let packages: Vec<&str> = packages
        .into_iter()
        .filter(|name| !name.is_empty())
        .collect();
    if !packages.is_empty() {
        let _ = writeln!(
            text,
            "on Debian and Ubuntu, this makes them run: apt-get install {}",
            packages.join(" ")
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_names_one_command() {
        let reason = |what: &str, packages: &str| Reason {
            what: what.to_string(),
            packages: packages.to_string(),
        };
        let names = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
        let skips = Skips::from([
            (reason("gcc", "gcc libc6-dev"), names(&["a", "b", "c", "d"])),
            (reason("tmux", "tmux"), names(&["a", "e"])),
            (reason("root", ""), names(&["f"])),
        ]);
        assert_eq!(
            summary(&skips),
            "6 tests were skipped, or parts of them, because this machine lacks what they need:\n   \
             4: gcc (a, b, c, ...)\n   1: root (f)\n   2: tmux (a, e)\n\
             on Debian and Ubuntu, this makes them run: apt-get install gcc libc6-dev tmux\n"
        );
    }

    #[test]
    fn what_does_not_link_is_not_there() {
        if !have(&["gcc"]) {
            return;
        }
        assert!(compiles("gcc", C, &["-lm"]));
        assert!(!compiles("gcc", C, &["-lno-such-library"]));
        assert!(!compiles("no-such-compiler", C, &[]));
    }
}
