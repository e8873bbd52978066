//! Small hostile programs, run bare and under `heapprof record`: the same output, the same exit
//! code, and correct numbers.
//!
//! The first lines of each program in `programs/` say how it is built; programs/README.md has the
//! list. A program writes its own counts of allocations to the file named by HEAPPROF_TEST_EXPECT,
//! and the exact profile must agree.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, SystemTime};

use heapprof_tests::built::have;
use heapprof_tests::expectations::check;
use heapprof_tests::harness::{Run, command, heapprof, root};
use heapprof_tests::needs;
use heapprof_tests::waits::HANG_TIMEOUT;
use heapprof_tests::watched::run;

mod musl;

/// Whether there must be a profile at the end.
#[derive(Clone, Copy, PartialEq)]
enum Left {
    /// There must be a profile with all numbers that the program knows.
    Profile,
    /// There may be no profile, because the program removed what a profile needs. If there is one,
    /// it must be readable and have correct numbers.
    Perhaps,
}

/// A program with its arguments.
struct Case {
    program: &'static str,
    args: &'static [&'static str],
    /// The exit code, or 128 + N if signal N ends the program.
    code: i32,
    left: Left,
}

const fn case(program: &'static str, args: &'static [&'static str], code: i32) -> Case {
    Case {
        program,
        args,
        code,
        left: Left::Profile,
    }
}

const fn perhaps(program: &'static str, args: &'static [&'static str], code: i32) -> Case {
    Case {
        program,
        args,
        code,
        left: Left::Perhaps,
    }
}

const ACCOUNTING: &[Case] = &[
    case("accounting_single.c", &[], 0),
    case("accounting_threads.c", &["1"], 0),
    case("accounting_threads.c", &["2"], 0),
    case("accounting_threads.c", &["32"], 0),
    case("accounting_cross.c", &["1"], 0),
    case("accounting_cross.c", &["16"], 0),
    case("accounting_shares.c", &[], 0),
    case("accounting_realloc.c", &[], 0),
    case("accounting_aligned.c", &[], 0),
    case("accounting_zero.c", &[], 0),
    case("accounting_hardcase.c", &[], 0),
    case("accounting_peak_spiky.c", &[], 0),
    case("accounting_peak_equal.c", &[], 0),
    case("accounting_peak_decrease.c", &[], 0),
    case("accounting_temporary.c", &[], 0),
    case("accounting_unmatched.c", &[], 0),
];

const LINKAGE: &[Case] = &[
    case("linkage_family.c", &[], 0),
    case("linkage_address.c", &[], 0),
    case("linkage_deepbind.c", &[], 0),
    case("linkage_new.cc", &[], 0),
    case("linkage_operators.cc", &[], 0),
    case("linkage_libc.c", &[], 0),
    case("linkage_imports.c", &[], 0),
    perhaps("linkage_own_allocator.c", &[], 34),
];

const LIFECYCLE: &[Case] = &[
    case("lifecycle_empty.c", &[], 0),
    case("lifecycle_ends.c", &["return"], 5),
    case("lifecycle_ends.c", &["exit"], 6),
    case("lifecycle_ends.c", &["_exit"], 7),
    case("lifecycle_ends.c", &["_Exit"], 8),
    perhaps("lifecycle_ends.c", &["exit_group"], 9),
    case("lifecycle_ends.c", &["quick_exit"], 10),
    case("lifecycle_ends.c", &["abort"], 134),
    case("lifecycle_ends.c", &["raise-abort"], 134),
    case("lifecycle_ends.c", &["double-free"], 134),
    case("lifecycle_ends.c", &["smashed-stack"], 134),
    case("lifecycle_ends.c", &["damaged-heap"], 134),
    case("lifecycle_ends.c", &["abort-handled"], 13),
    perhaps("lifecycle_ends.c", &["segv"], 139),
    perhaps("lifecycle_ends.c", &["kill"], 137),
    case("lifecycle_ends.c", &["term"], 143),
    case("lifecycle_ends.c", &["term-to-process"], 143),
    case("lifecycle_ends.c", &["int"], 130),
    case("lifecycle_ends.c", &["term-handled"], 11),
    case("lifecycle_ends.c", &["int-handled"], 11),
    case("lifecycle_ends.c", &["term-ignored"], 12),
    case("lifecycle_ends.c", &["exit-in-thread"], 21),
    case("lifecycle_ends.c", &["exits-at-once"], 21),
    case("lifecycle_ends.c", &["returns-and-exits"], 21),
    case("lifecycle_ends.c", &["set-otherwise"], 143),
    case("lifecycle_ends.c", &["main-leaves-first"], 0),
    case("lifecycle_two_ends.c", &["term"], 143),
    case("lifecycle_two_ends.c", &["_exit"], 12),
    case("lifecycle_starts.c", &[], 0),
    case("lifecycle_tls.cc", &[], 0),
    case("lifecycle_key.c", &[], 0),
    case("lifecycle_key_first.c", &[], 0),
    case("lifecycle_atexit.c", &[], 17),
    case("lifecycle_atexit_first.c", &[], 6),
    case("lifecycle_static.cc", &[], 18),
    case("lifecycle_library.c", &[], 5),
    perhaps("lifecycle_mappings.c", &[], 3),
    case("lifecycle_detached.c", &[], 0),
    case("lifecycle_dumps.c", &["200"], 0),
    case("lifecycle_fds.c", &[], 19),
    case("lifecycle_cwd.c", &[], 0),
    perhaps("lifecycle_chroot.c", &[], 0),
    perhaps("lifecycle_limits.c", &["nofile"], 20),
    perhaps("lifecycle_limits.c", &["fsize"], 20),
    perhaps("lifecycle_limits.c", &["as"], 20),
    case("lifecycle_errno.c", &[], 0),
    case("lifecycle_small_handler.c", &["abort"], 134),
    case("lifecycle_small_handler.c", &["_exit"], 11),
    case("lifecycle_small_stacks.c", &[], 0),
    case("lifecycle_signals.c", &[], 0),
];

const PROCESS: &[Case] = &[
    case("process_fork.c", &[], 0),
    case("process_fork_threads.c", &["50"], 0),
    case("process_vfork.c", &[], 0),
    case("process_vfork.c", &["thread"], 0),
    case("process_clone.c", &[], 0),
    case("process_spawn.c", &[], 0),
    case("process_exec.c", &["2"], 4),
    perhaps("process_empty_environment.c", &[], 32),
    case("process_daemonized.c", &[], 0),
    case("process_daemon.c", &[], 0),
    case("process_threads_1000.c", &[], 0),
    case("process_sandbox.c", &["prctl"], 9),
    case("process_sandbox.c", &["syscall"], 9),
    case("process_sandbox.c", &["strict"], 9),
    case("process_sandbox.c", &["lenient"], 9),
    case("process_seccomp.c", &["clone"], 33),
    perhaps("process_seccomp.c", &["open"], 33),
    case("process_unshare.c", &[], 0),
];

const STACKS: &[Case] = &[
    case("stack_levels.c", &[], 0),
    case("stack_twins.c", &[], 0),
    case("stack_throw.cc", &[], 0),
    case("stack_longjmp.c", &[], 0),
    case("stack_backtrace.c", &[], 0),
    case("stack_recursion.c", &[], 0),
    case("stack_depths.c", &[], 0),
    case("stack_inline.c", &[], 0),
    case("stack_alloca.c", &[], 0),
    case("stack_signal.c", &[], 0),
    case("stack_ucontext.c", &[], 0),
    case("stack_shrink.c", &[], 0),
    case("stack_jit.c", &[], 0),
    case("stack_asm.c", &[], 0),
    case("stack_mixed.c", &[], 0),
    case("stack_tailcall.c", &[], 0),
    case("stack_noreturn.c", &[], 0),
    case("stack_realign.c", &[], 0),
    case("stack_plt.c", &[], 0),
    case("stack_zero.c", &[], 0),
    case("stack_zero.c", &["made first"], 0),
    case("stack_dlclose.c", &[], 0),
    case("stack_dlclose_two.c", &[], 0),
    case("stack_dlclose_again.c", &[], 0),
    case("stack_dlclose_threads.c", &["300"], 0),
    case("stack_rust.rs", &[], 0),
];

const DEADLOCK: &[Case] = &[
    case("deadlock_iterate.c", &[], 0),
    case("deadlock_loader.c", &["300"], 0),
    case("deadlock_atfork.c", &["50"], 0),
    case("deadlock_dlopen.c", &["1000"], 0),
    case("deadlock_storm.c", &["1000"], 0),
    case("deadlock_fork_dlopen.c", &["50"], 0),
    case("deadlock_streams.c", &["allocate"], 0),
    case("deadlock_streams.c", &["handler"], 10),
    case("deadlock_exit_in_fork.c", &["50"], 11),
    case("deadlock_return_in_fork.c", &["30"], 0),
    case("deadlock_handler.c", &["200"], 0),
    case("deadlock_stopped.c", &["50"], 0),
];

/// Cases with a thousand rounds that need a process or more each. They take too long for everyday
/// runs.
const STRESS: &[Case] = &[
    case("deadlock_loader.c", &["1000"], 0),
    case("deadlock_atfork.c", &["1000"], 0),
    case("deadlock_dlopen.c", &["5000"], 0),
    case("deadlock_storm.c", &["5000"], 0),
    case("deadlock_fork_dlopen.c", &["2000"], 0),
    case("deadlock_exit_in_fork.c", &["1000"], 11),
    case("deadlock_return_in_fork.c", &["1000"], 0),
    case("deadlock_handler.c", &["5000"], 0),
    case("process_fork_threads.c", &["1000"], 0),
    case("lifecycle_dumps.c", &["5000"], 0),
];

/// Programs into which no library can be preloaded; `record` reports that.
const CLOSED: &[Case] = &[case("linkage_static.c", &[], 35)];

const TABLES: &[&[Case]] = &[
    ACCOUNTING, LINKAGE, LIFECYCLE, PROCESS, STACKS, DEADLOCK, STRESS, CLOSED,
];

/// Longest time of a run that is not considered hanging.
const RECORD_TIMEOUT: Duration = HANG_TIMEOUT;
const STRESS_TIMEOUT: Duration = Duration::from_secs(600);

#[test]
fn accounting() {
    run_all(ACCOUNTING, RECORD_TIMEOUT);
}

#[test]
fn linkage() {
    run_all(LINKAGE, RECORD_TIMEOUT);
}

#[test]
fn lifecycle() {
    run_all(LIFECYCLE, RECORD_TIMEOUT);
}

#[test]
fn process() {
    run_all(PROCESS, RECORD_TIMEOUT);
}

#[test]
fn stacks() {
    run_all(STACKS, RECORD_TIMEOUT);
}

#[test]
fn deadlock() {
    run_all(DEADLOCK, RECORD_TIMEOUT);
}

/// Run with `cargo test -p heapprof-tests stress -- --ignored`.
#[test]
#[ignore = "takes minutes"]
fn stress() {
    run_all(STRESS, STRESS_TIMEOUT);
}

#[test]
fn what_cannot_be_preloaded_is_said() {
    for case in CLOSED {
        let Some(binaries) = build(case.program) else {
            return;
        };
        let folder = tempfile::tempdir().unwrap();
        let recorded = record(folder.path(), &binaries[0], case, &[], RECORD_TIMEOUT).unwrap();
        assert!(
            recorded.err.contains("heapprof: ") && recorded.err.contains("static"),
            "{}: {}",
            case.program,
            recorded.err
        );
    }
}

/// If a script starts the program, only the program's empty profile shows its own allocator.
#[test]
fn an_allocator_behind_a_wrapper_is_said() {
    let Some(binaries) = build("linkage_own_allocator.c") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    for (allocators, said) in [
        ("none", "nothing was recorded"),
        ("auto", "also recorded: the malloc"),
    ] {
        let mut command = std::process::Command::new(heapprof_tests::harness::heapprof());
        command.args([
            "record",
            "--no-symbolize",
            "--exact",
            "--allocators",
            allocators,
        ]);
        command.args(["--", "sh", "-c", "exec \"$0\""]);
        let output = command.arg(&binaries[0]).current_dir(&folder).output();
        let err = String::from_utf8_lossy(&output.unwrap().stderr).into_owned();
        assert!(err.contains(said), "{err}");
    }
}

#[test]
fn every_program_is_run_and_described() {
    let readme = std::fs::read_to_string(folder().join("README.md")).unwrap();
    for entry in std::fs::read_dir(folder()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name == "README.md" || name == "expect.h" {
            continue;
        }
        assert!(readme.contains(&format!("`{name}`")), "README: {name}");
        let is_run = || TABLES.iter().any(|t| t.iter().any(|c| c.program == name));
        // Libraries are parts of other programs. stacks.rs, sampling.rs, peak.rs and dumps.rs run
        // the oracles.
        let is_part = name.starts_with("lib_") || name.starts_with("oracle_");
        assert!(is_part || is_run(), "{name} is never run");
    }
}

pub(crate) fn folder() -> PathBuf {
    root().join("tests/programs")
}

/// Runs every case in every mode, and reports all failures together.
fn run_all(cases: &[Case], patience: Duration) {
    run_built(cases.iter(), patience, build);
}

/// Runs every case with the binaries that `build` returns, as [`run_all`] does.
fn run_built<'a>(
    cases: impl Iterator<Item = &'a Case>,
    patience: Duration,
    build: impl Fn(&'static str) -> Option<Vec<PathBuf>>,
) {
    let mut failures = Vec::new();
    for case in cases {
        let Some(binaries) = build(case.program) else {
            continue;
        };
        for binary in &binaries {
            if let Err(what) = compare(binary, case, patience) {
                let binary = binary.file_name().unwrap().to_string_lossy();
                failures.push(format!("{binary} {}: {what}", case.args.join(" ")));
            }
        }
    }
    assert!(
        failures.is_empty(),
        "{} failed\n{}",
        failures.len(),
        failures.join("\n")
    );
}

/// The build instructions in the first lines of a program's file.
#[derive(Default)]
struct Header {
    build: Vec<String>,
    libs: Vec<(Vec<String>, String)>,
    link: Vec<String>,
    variants: Vec<Vec<String>>,
    needs: String,
}

pub(crate) fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(String::from).collect()
}

fn header(file: &Path) -> Header {
    let text = std::fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let mut header = Header::default();
    for line in text.lines().map_while(|line| line.strip_prefix("//")) {
        let line = line.trim_start_matches('!').trim_start();
        let Some((key, value)) = line.split_once(": ") else {
            continue;
        };
        match key {
            "build" => header.build = words(value),
            "link" => header.link = words(value),
            "variant" => header.variants.push(words(value)),
            "libs" => {
                let (source, library) = value.split_once(" -> ").expect("libs: SOURCE -> LIBRARY");
                header.libs.push((words(source), library.to_string()));
            }
            "needs" => header.needs = value.to_string(),
            "scenario" => {}
            _ => panic!("{}: what is {key}?", file.display()),
        }
    }
    assert!(!header.build.is_empty(), "{}: no build:", file.display());
    header
}

/// Builds the program's binaries once, one for each variant. Returns `None` without a compiler.
pub(crate) fn build(program: &'static str) -> Option<Vec<PathBuf>> {
    type Built = Arc<OnceLock<Option<Vec<PathBuf>>>>;
    static ALL: Mutex<BTreeMap<&str, Built>> = Mutex::new(BTreeMap::new());
    let built = {
        let mut all = ALL.lock().unwrap_or_else(|e| e.into_inner());
        Arc::clone(all.entry(program).or_default())
    };
    built.get_or_init(|| compile_program(program, &[])).clone()
}

/// Builds like [`build`], with the caller's variants in addition to the program's own.
pub(crate) fn compile_program(program: &str, more: &[&str]) -> Option<Vec<PathBuf>> {
    compile_with("gcc", program, more)
}

/// Builds like [`compile_program`], with the C compiler `gcc`.
fn compile_with(gcc: &str, program: &str, more: &[&str]) -> Option<Vec<PathBuf>> {
    let source = folder().join(program);
    let header = header(&source);
    if header.needs == "x86-64" && !cfg!(target_arch = "x86_64") {
        needs::cannot(&format!("x86-64, for {program}"));
        return None;
    }
    let stem = source.file_stem().unwrap().to_string_lossy().into_owned();
    let mut out = heapprof().parent().unwrap().join("programs").join(&stem);
    if gcc != "gcc" {
        out.push(gcc);
    }
    std::fs::create_dir_all(&out).unwrap();
    for (source, library) in &header.libs {
        let mut words = words("gcc -O2 -g -pthread -shared -fPIC");
        set_compiler(&mut words, gcc);
        words.extend_from_slice(&source[1..]);
        compile(&words, &folder().join(&source[0]), &[], &out.join(library))?;
    }
    let mut variants = match &header.variants[..] {
        [] => vec![Vec::new()],
        _ => header.variants.clone(),
    };
    variants.extend(more.iter().map(|variant| words(variant)));
    let binaries = variants.iter().filter(|v| has_linker(v)).map(|variant| {
        let mut words = header.build.clone();
        words.extend(variant.iter().skip(1).cloned());
        if words[0] == "gcc" {
            set_compiler(&mut words, gcc);
        }
        if words[0] != "rustc" {
            // The program finds libraries in its own folder, by its own RUNPATH.
            words.push("-Wl,-rpath,$ORIGIN".to_string());
            words.push(format!("-L{}", out.display()));
        }
        let name = match variant.first() {
            Some(variant) => format!("{stem}.{variant}"),
            None => stem.clone(),
        };
        let binary = out.join(name);
        compile(&words, &source, &header.link, &binary)?;
        Some(binary)
    });
    binaries.collect()
}

/// Replaces the compiler of a command by `gcc`.
fn set_compiler(command: &mut Vec<String>, gcc: &str) {
    command[0] = gcc.to_string();
    if gcc == "musl-gcc" {
        // What compilers for musl do, and this wrapper leaves out: tables of unwind tables, and the
        // kernel's headers.
        command.extend(words(
            "-Wl,--eh-frame-hdr -idirafter /usr/include -idirafter /usr/include/x86_64-linux-gnu",
        ));
    }
}

/// Whether the linker that a variant needs is installed. Many systems have only one.
fn has_linker(variant: &[String]) -> bool {
    let asked = |word: &String| {
        word.strip_prefix("-fuse-ld=")
            .map(|name| format!("ld.{name}"))
    };
    let Some(linker) = variant.iter().find_map(asked) else {
        return true;
    };
    let found = Command::new(&linker).arg("--version").output().is_ok();
    if !found {
        needs::cannot(&format!("the linker {linker}"));
    }
    found
}

/// Compiles a file unless it is compiled already. Returns `None` without the compiler.
pub(crate) fn compile(words: &[String], source: &Path, link: &[String], out: &Path) -> Option<()> {
    let written = |path: &Path| path.metadata().and_then(|m| m.modified()).ok();
    let newest: Option<SystemTime> = std::fs::read_dir(folder())
        .unwrap()
        .filter_map(|entry| written(&entry.unwrap().path()))
        .max();
    if written(out) > newest {
        return Some(());
    }
    if !have(&[&words[0]]) {
        return None;
    }
    // Another run or thread of the tests may be compiling the same file. So each one writes its own
    // file and renames it into place as a whole.
    let mut own = OsString::from(out);
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    own.push(format!(".{}.{number}", std::process::id()));
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).arg("-o").arg(&own).arg(source);
    match command.args(link).output() {
        Ok(output) => assert!(
            output.status.success(),
            "{}: {}",
            source.display(),
            String::from_utf8_lossy(&output.stderr)
        ),
        Err(error) => panic!("{}: {}: {error}", source.display(), words[0]),
    }
    std::fs::rename(&own, out).unwrap();
    Some(())
}

fn record(
    folder: &Path,
    binary: &Path,
    case: &Case,
    options: &[&str],
    patience: Duration,
) -> Result<Run, String> {
    let mut record = command(folder);
    record.args(["record", "--keep-small"]).args(options);
    record.args(["-o", "out.pb.gz", "--"]).arg(binary);
    record.args(case.args);
    run(record, folder, patience)
}

/// Runs a program bare, then sampled, then in exact mode.
fn compare(binary: &Path, case: &Case, patience: Duration) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(binary);
    command.args(case.args).current_dir(folder.path());
    let bare = run(command, folder.path(), patience)?;
    if bare.code != case.code {
        return Err(format!(
            "bare: exit code {}\n{}{}",
            bare.code, bare.out, bare.err
        ));
    }
    for mode in ["sampled", "exact"] {
        let folder = tempfile::tempdir().unwrap();
        let options: &[&str] = if mode == "exact" { &["--exact"] } else { &[] };
        let within = |what: String| format!("{mode}: {what}");
        let recorded = record(folder.path(), binary, case, options, patience).map_err(within)?;
        same(&bare, &recorded).map_err(within)?;
        check(folder.path(), case.left == Left::Profile, mode).map_err(within)?;
    }
    Ok(())
}

fn same(bare: &Run, recorded: &Run) -> Result<(), String> {
    // Only the program's own lines are compared. Ours begin with `heapprof: `.
    let own = |line: &&str| !line.starts_with("heapprof: ");
    let err = |run: &Run| {
        run.err
            .lines()
            .filter(own)
            .map(String::from)
            .collect::<Vec<_>>()
    };
    if bare.code != recorded.code {
        let Run { code, err, out } = recorded;
        return Err(format!(
            "exit code {code} instead of {}\n{out}{err}",
            bare.code
        ));
    }
    if bare.out != recorded.out {
        return Err(format!(
            "stdout {:?} instead of {:?}",
            recorded.out, bare.out
        ));
    }
    if err(bare) != err(recorded) {
        return Err(format!(
            "stderr {:?} instead of {:?}",
            recorded.err, bare.err
        ));
    }
    Ok(())
}
