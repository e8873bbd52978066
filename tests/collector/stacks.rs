//! Stacks must equal those of an independent unwinder, for every allocation of many programs.
//!
//! Behind the hooks is an allocator (programs/lib_unwinder.c) that calls libgcc's unwinder in each
//! of its functions. The profile of an exact recording must have the same stacks, each with the
//! same objects and bytes. A few programs are also compared with gdb.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use heapprof_profile::{Profile, decode};

use crate::programs::{compile, compile_program, folder, words};
use heapprof_tests::built::{build, have};
use heapprof_tests::harness::{command, heapprof, run};
use heapprof_tests::needs;

/// The number of frames that the engine keeps at each end of a deep stack. `CUT` stands for the
/// frames between.
const KEPT: usize = 256;
const CUT: u64 = 0;

/// Objects and bytes by stack. A stack is the addresses of its calls, leaf first.
type Stacks = BTreeMap<Vec<u64>, [u64; 2]>;

/// Returns the path of libheapprof.so.
pub(crate) fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let output = command(Path::new(".")).arg("preload-path").output();
        let path = String::from_utf8(output.unwrap().stdout).unwrap();
        PathBuf::from(path.trim())
    })
}

/// Returns a program with only the library preloaded, which writes `name.PID.pb.gz` to `folder`.
pub(crate) fn preloaded(folder: &Path, binary: &Path, more: &[&Path]) -> Command {
    let mut preload = library().as_os_str().to_owned();
    for library in more {
        preload.push(":");
        preload.push(library);
    }
    let mut command = Command::new(binary);
    command
        .current_dir(folder)
        .env("LD_PRELOAD", preload)
        .env("HEAPPROF_OUTPUT", folder.join("out.%p.pb.gz"))
        .env("HEAPPROF_MODE", "exact")
        .stdin(Stdio::null());
    command
}

pub(crate) fn read(path: &Path) -> Profile {
    let file = std::fs::File::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    decode(file).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Records a program with the options and environment of `command`. Returns its profile, which is
/// in the folder.
pub(crate) fn record(
    mut command: Command,
    folder: &Path,
    options: &[&str],
    words: &[&std::ffi::OsStr],
) -> Profile {
    let output = command
        .args(["record", "-o", "out.pb.gz"])
        .args(options)
        .arg("--")
        .args(words)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    read(&folder.join("out.pb.gz"))
}

fn unwinder() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let build = || {
        let out = heapprof().parent().unwrap().join("programs");
        std::fs::create_dir_all(&out).unwrap();
        let library = out.join("libunwinder.so");
        let source = folder().join("lib_unwinder.c");
        let line = words("gcc -O2 -g -shared -fPIC");
        compile(&line, &source, &words("-lgcc_s"), &library)?;
        Some(library)
    };
    BUILT.get_or_init(build).as_deref()
}

/// Reads the stacks that the unwinder wrote, without the frames of `hooks`.
fn unwound(file: &Path, hooks: &[std::ops::Range<u64>]) -> Result<Stacks, String> {
    let failed = |e: std::io::Error| format!("the unwinder wrote nothing: {e}");
    let mut file = std::fs::File::open(file).map_err(failed)?;
    let mut head = [0; 16];
    file.read_exact(&mut head).map_err(failed)?;
    let number =
        |bytes: &[u8], at: usize| u64::from_ne_bytes(bytes[8 * at..8 * at + 8].try_into().unwrap());
    let (end, lost) = (number(&head, 0) as usize, number(&head, 1));
    if lost != 0 {
        return Err(format!("the unwinder had no room for {lost} records"));
    }
    // Only the written part is read. After it, the file is a large hole.
    let mut bytes = vec![0; 8 * (end - 2)];
    file.read_exact(&mut bytes).map_err(failed)?;
    let word = |at: usize| number(&bytes, at);
    let (mut stacks, mut at, end) = (Stacks::new(), 0, end - 2);
    while at < end {
        let (size, total, kept) = (word(at), word(at + 1) as usize, word(at + 2) as usize);
        let frames: Vec<u64> = (at + 3..at + 3 + kept).map(word).collect();
        at += 3 + kept;
        let is_hook = |pc: &u64| hooks.iter().any(|range| range.contains(pc));
        let own = frames.iter().take_while(|pc| is_hook(pc)).count();
        if frames[own..].iter().any(is_hook) {
            // The library itself made this allocation. It does not record its own allocations.
            continue;
        }
        let mut stack = frames[own..].to_vec();
        if total - own > 2 * KEPT {
            let root = stack.split_off(stack.len() - KEPT);
            stack.truncate(KEPT);
            stack.push(CUT);
            stack.extend(root);
        }
        let sum = stacks.entry(stack).or_default();
        *sum = [sum[0] + 1, sum[1] + size];
    }
    Ok(stacks)
}

fn recorded(profile: &Profile) -> Stacks {
    let mut stacks = Stacks::new();
    for i in 0..profile.samples.len() {
        let stack = profile.samples.stack(i).iter();
        let stack = stack.map(|location| match &profile.location[location.index()] {
            cut if cut.mapping.is_none() && !profile.lines(cut).is_empty() => CUT,
            place => place.address,
        });
        let values = profile.samples.values(i);
        let sum = stacks.entry(stack.collect()).or_default();
        *sum = [sum[0] + values[0] as u64, sum[1] + values[1] as u64];
    }
    stacks
}

/// Returns a stack in readable form: places in files, leaf first.
fn text(profile: &Profile, stack: &[u64]) -> String {
    let place = |pc: &u64| {
        let holds = |m: &&heapprof_profile::Mapping| (m.memory_start..m.memory_limit).contains(pc);
        profile.mapping.iter().find(holds).map_or_else(
            || format!("{pc:#x}"),
            |m| {
                let name = profile.text(m.filename).rsplit('/').next().unwrap();
                format!("{name}+{:#x}", pc - m.memory_start + m.file_offset)
            },
        )
    };
    // Of a recursion, only the first frame is shown.
    let mut places: Vec<String> = stack.iter().map(place).collect();
    places.dedup();
    places.join(" ")
}

fn hooks(profile: &Profile, names: &[&str]) -> Vec<std::ops::Range<u64>> {
    let ours = |m: &&heapprof_profile::Mapping| {
        names
            .iter()
            .any(|name| profile.text(m.filename).ends_with(name))
    };
    let range = |m: &heapprof_profile::Mapping| m.memory_start..m.memory_limit;
    profile.mapping.iter().filter(ours).map(range).collect()
}

/// Returns an error with the number of differing stacks, and the first of them.
fn differences(profile: &Profile, expected: &Stacks, found: &Stacks) -> Result<(), String> {
    let all: std::collections::BTreeSet<_> = expected.keys().chain(found.keys()).collect();
    let differ = |stack: &&&Vec<u64>| expected.get(**stack) != found.get(**stack);
    let wrong: Vec<_> = all.iter().filter(differ).collect();
    let Some(_) = wrong.first() else {
        return Ok(());
    };
    let mut message = format!("{} of {} stacks differ", wrong.len(), all.len());
    for stack in wrong.iter().take(6) {
        message += &format!(
            "\n  expected {:?} found {:?}: {}",
            expected.get(**stack).unwrap_or(&[0; 2]),
            found.get(**stack).unwrap_or(&[0; 2]),
            text(profile, stack)
        );
    }
    Err(message)
}

/// Runs a program with the unwinder behind the hooks. Returns the number of compared allocations.
fn compare(binary: &Path, args: &[&str]) -> Result<u64, String> {
    let Some(unwinder) = unwinder() else {
        return Ok(0);
    };
    let folder = tempfile::tempdir().unwrap();
    let stacks = folder.path().join("stacks");
    let child = preloaded(folder.path(), binary, &[unwinder])
        .args(args)
        .env("HEAPPROF_TEST_STACKS", &stacks)
        .env("HEAPPROF_FRAMES", "native")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| e.to_string())?;
    let pid = child.id();
    let output = child.wait_with_output().unwrap();
    if !output.status.success() {
        let reported = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{}: {reported}", output.status));
    }
    let profile = read(&folder.path().join(format!("out.{pid}.pb.gz")));
    let hooks = hooks(&profile, &["/libheapprof.so", "/libunwinder.so"]);
    let expected = unwound(&stacks, &hooks)?;
    differences(&profile, &expected, &recorded(&profile))?;
    Ok(expected.values().map(|sum| sum[0]).sum())
}

/// Compares every variant of these programs, and in addition the variants `more` of each.
fn corpus(programs: &[&'static str], more: &[&str], at_least: u64) {
    let mut failures = Vec::new();
    for program in programs {
        let Some(binaries) = compile_program(program, more) else {
            continue;
        };
        for binary in binaries {
            let name = binary.file_name().unwrap().to_string_lossy().into_owned();
            match compare(&binary, &[]) {
                Ok(count) if count < at_least && unwinder().is_some() => {
                    failures.push(format!("{name}: only {count} allocations"));
                }
                Ok(_) => {}
                Err(what) => failures.push(format!("{name}: {what}")),
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

const LEVELS: &[&str] = &[
    "all-O0 -O0 -fomit-frame-pointer",
    "all-O0-framed -O0 -fno-omit-frame-pointer",
    "all-O2 -O2 -fomit-frame-pointer",
    "all-O2-framed -O2 -fno-omit-frame-pointer",
    "all-O3 -O3 -fomit-frame-pointer",
    "all-O3-framed -O3 -fno-omit-frame-pointer",
];

#[test]
fn c_at_all_levels_with_and_without_frame_pointers() {
    let programs = [
        "stack_levels.c",
        "stack_inline.c",
        "stack_recursion.c",
        "stack_depths.c",
        "stack_tailcall.c",
        "stack_alloca.c",
        "stack_realign.c",
        "stack_twins.c",
    ];
    corpus(&programs, LEVELS, 100);
}

#[test]
fn signals_jumps_and_coroutines() {
    let programs = [
        "stack_signal.c",
        "stack_longjmp.c",
        "stack_ucontext.c",
        "stack_noreturn.c",
        "stack_backtrace.c",
    ];
    corpus(&programs, LEVELS, 10);
}

#[test]
fn libraries() {
    corpus(
        &[
            "stack_plt.c",
            "stack_mixed.c",
            "stack_dlclose.c",
            "stack_dlclose_two.c",
        ],
        LEVELS,
        10,
    );
}

/// Linkers may map code at an address that differs from its offset in the file. lld always does.
#[test]
fn a_library_that_comes_back_has_the_same_stacks() {
    if !have(&["gcc"]) {
        return;
    }
    let program = "\
#include <dlfcn.h>
int main(void) {
    for (int round = 0; round < 300; round++) {
        void *library = dlopen(\"./plugin.so\", RTLD_NOW);
        void (*enter)(void) = (void (*)(void))dlsym(library, \"enter\");
        enter();
        dlclose(library);
    }
}
";
    let plugin =
        "#include <stdlib.h>\nvoid *kept;\nvoid enter(void) { kept = malloc(77); free(kept); }\n";
    for layout in ["", "-Wl,-z,noseparate-code,--section-start=.text=0x20000"] {
        let built = build(program, "gcc -O1 -Wl,--no-as-needed -ldl");
        std::fs::write(built.path("plugin.c"), plugin).unwrap();
        built.run(&format!(
            "gcc -O1 -shared -fPIC {layout} -o plugin.so plugin.c"
        ));
        let args = ["record", "--exact", "--no-symbolize", "./program"];
        let run = run(built.folder.path(), &args);
        let stacks = run.err.split(" stacks;").next().unwrap();
        let stacks = stacks.rsplit(' ').next().unwrap();
        assert!(
            stacks.parse::<u32>().unwrap() < 100,
            "{layout}: {}",
            run.err
        );
    }
}

#[test]
fn exceptions() {
    corpus(&["stack_throw.cc", "oracle_catch.cc"], LEVELS, 1000);
}

#[test]
fn rust() {
    let more = [
        "all-O0 -C opt-level=0",
        "all-O3 -C opt-level=3",
        "all-O3-framed -C opt-level=3 -C force-frame-pointers=yes",
        "all-O1-aborts -C opt-level=1 -C overflow-checks=yes",
    ];
    corpus(&["stack_rust.rs"], &more, 100);
}

#[test]
fn threads() {
    corpus(&["accounting_threads.c", "accounting_cross.c"], &[], 100);
}

/// Compares real programs, about which nothing is known in advance.
#[test]
fn real_programs() {
    let cases: [(&str, &[&str]); 3] = [
        (
            "perl",
            &[
                "-e",
                "my %h; $h{$_ % 77} .= join ',', sort split //, $_ ** 3 for 1..999; print %h",
            ],
        ),
        ("git", &["--version"]),
        (
            "sqlite3",
            &[
                ":memory:",
                "create table t(a, b); insert into t select value, value * 7 from \
                 generate_series(1, 500); select a, group_concat(b) from t group by a % 7 order \
                 by b;",
            ],
        ),
    ];
    let mut failures = Vec::new();
    for (program, args) in cases {
        let Some(path) = which(program) else {
            needs::cannot(program);
            continue;
        };
        if let Err(what) = compare(&path, args) {
            failures.push(format!("{program}: {what}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn which(program: &str) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    let mut paths = std::env::split_paths(&folders).map(|folder| folder.join(program));
    paths.find(|path| path.is_file())
}

/// Each stack shares some frames of every kind with the one before. Reused frames must equal the
/// real frames.
#[test]
fn random_trees_of_calls() {
    let more = [
        "all-O1 -O1",
        "all-O2-realign -O2 -mstackrealign",
        "all-Os -Os -fno-omit-frame-pointer",
        "all-O2-push -O2 -maccumulate-outgoing-args",
    ];
    let Some(binaries) = compile_program("oracle_tree.c", &more) else {
        return;
    };
    let mut failures = Vec::new();
    for (i, binary) in binaries.iter().enumerate() {
        for seed in [1, 2 + i] {
            let name = binary.file_name().unwrap().to_string_lossy();
            match compare(binary, &[&seed.to_string()]) {
                Ok(count) if count < 20_000 && unwinder().is_some() => {
                    failures.push(format!("{name} {seed}: only {count} allocations"));
                }
                Ok(_) => {}
                Err(what) => failures.push(format!("{name} {seed}: {what}")),
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// A frame as gdb shows it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Seen {
    At(u64),
    /// A frame at the very start of a line, whose address gdb does not print.
    Somewhere,
    Signal,
}

/// Returns gdb's stacks at calls of `function`, which allocates once in each call, from its caller
/// on. They are not the stacks of all calls, because gdb is slow.
fn seen_by_gdb(folder: &Path, binary: &Path, function: &str) -> Vec<Vec<Seen>> {
    let script = format!(
        // With a library's debug information, gdb invents frames for jumps that left no frame.
        "set debug-file-directory /nowhere\nset startup-with-shell off\nset width 0\nset \
         pagination off\nset backtrace past-main on\nset backtrace past-entry on\nset $calls = \
         0\nhandle SIGUSR1 SIGVTALRM nostop noprint pass\nset environment LD_PRELOAD {}\nset \
         environment HEAPPROF_MODE exact\nset environment HEAPPROF_OUTPUT {}/out.%p.pb.gz\nbreak \
         {function}\ncommands\nsilent\nset $calls = $calls + 1\necho stack\\n\nbt\nif $calls == \
         150\ndelete\nend\ncontinue\nend\nrun\n",
        library().display(),
        folder.display()
    );
    let path = folder.join("script");
    std::fs::write(&path, script).unwrap();
    let output = Command::new("gdb")
        .args(["-nx", "-batch", "-x"])
        .arg(&path)
        .arg(binary)
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let mut stacks: Vec<Vec<Seen>> = Vec::new();
    for line in text.lines() {
        if line == "stack" {
            stacks.push(Vec::new());
        } else if line.starts_with('#')
            && !line.starts_with("#0 ")
            && let Some(stack) = stacks.last_mut()
        {
            let word = line.split_whitespace().nth(1).unwrap();
            stack.push(match word.strip_prefix("0x") {
                Some(hex) => Seen::At(u64::from_str_radix(hex, 16).unwrap()),
                None if word == "<signal" => Seen::Signal,
                None => Seen::Somewhere,
            });
        }
    }
    assert!(
        stacks.len() > 4,
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    stacks
}

/// Whether a stack of the profile equals gdb's: the call of each return address, and the exact
/// place of an interrupted frame.
fn agrees(found: &[u64], seen: &[Seen]) -> bool {
    let holds = |(i, frame): (usize, &Seen)| match *frame {
        Seen::At(address) if i > 0 && seen[i - 1] == Seen::Signal => found[i] == address,
        Seen::At(address) => found[i] == address - 1,
        Seen::Somewhere | Seen::Signal => true,
    };
    found.len() == seen.len() && seen.iter().enumerate().all(holds)
}

#[test]
fn gdb_sees_the_same() {
    if !have(&["gdb"]) {
        return;
    }
    let cases = [
        ("stack_levels.c", "levels_leaf"),
        ("stack_signal.c", "signal_handler_block"),
        ("stack_realign.c", "realign_leaf"),
        ("stack_alloca.c", "alloca_leaf"),
        ("stack_mixed.c", "mixed_leaf"),
        ("stack_throw.cc", "throw_cleanup"),
    ];
    let mut failures = Vec::new();
    for (program, function) in cases {
        // Without -g, gdb shows no frames for inlined functions.
        let plain = ["gdb-O0 -g0 -O0", "gdb-O2 -g0 -O2 -fomit-frame-pointer"];
        let Some(binaries) = compile_program(program, &plain) else {
            continue;
        };
        for binary in binaries.iter().rev().take(2) {
            let folder = tempfile::tempdir().unwrap();
            let seen = seen_by_gdb(folder.path(), binary, function);
            let entries = std::fs::read_dir(folder.path()).unwrap();
            let mut profiles = entries.map(|entry| entry.unwrap().path());
            let profile = profiles.find(|path| path.to_string_lossy().ends_with(".pb.gz"));
            let profile = read(&profile.expect("a profile"));
            let found = recorded(&profile);
            let name = binary.file_name().unwrap().to_string_lossy();
            for stack in &seen {
                if !found
                    .keys()
                    .any(|found| found.len() > 1 && agrees(&found[1..], stack))
                {
                    failures.push(format!("{name}: not in the profile: {stack:x?}"));
                    break;
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
