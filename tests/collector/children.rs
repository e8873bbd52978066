//! The profiles of a program's children: where they are, which of them are kept, and what `record`
//! reports about them and about memory outside the heap.

use std::path::Path;
use std::process::Command;

use heapprof_tests::built::{build, have};
use heapprof_tests::executables::copy_program;
use heapprof_tests::harness::{Run, heapprof, run};
use heapprof_tests::needs;

/// A program that keeps 300 KB in use. With an argument it also maps and touches that many MiB.
const HOLDER: &str = r#"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
void *volatile kept;
__attribute__((noinline)) void hold(int size) { kept = malloc(size); memset(kept, 1, size); }
int main(int argc, char **argv) {
    hold(300000);
    if (argc > 1) {
        size_t size = (size_t)atoi(argv[1]) << 20;
        char *p = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (argc > 2) size = (size_t)atoi(argv[2]) << 20;
        memset(p, 1, size);
    }
    return 0;
}
"#;

/// Returns the names in a folder, with `N` for process ids.
fn names(folder: &Path) -> Vec<String> {
    let id = regex::Regex::new(r"\d{2,}").unwrap();
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().into_string().unwrap());
    let mut names: Vec<String> = names
        .map(|n| id.replace_all(&n, "N").into_owned())
        .collect();
    names.sort();
    names.retain(|name| !["program", "source.c"].contains(&name.as_str()));
    names
}

fn record(folder: &Path, options: &[&str], script: &str) -> Run {
    let words = [&["record", "--exact", "--no-symbolize"], options].concat();
    let found = run(folder, &[&words[..], &["--", "sh", "-c", script]].concat());
    assert_eq!(found.code, 3, "{}", found.err);
    found
}

/// The children's profiles are in a separate folder, named by program and process. Profiles of
/// children with almost no live heap are counted and left out.
#[test]
fn children_have_a_folder() {
    if !have(&["gcc"]) {
        return;
    }
    let built = build(HOLDER, "gcc -g -O1");
    let here = built.folder.path();
    let script = "env true; ./program; true | env true; exit 3";
    let found = record(here, &["-o", "a.pb.gz"], script);
    assert_eq!(names(here), ["a.children", "a.pb.gz"], "{}", found.err);
    assert_eq!(names(&here.join("a.children")), ["program.N.pb.gz"]);
    assert!(
        found
            .err
            .contains("(and 1 more profile, the largest by peak heap a.children/program."),
        "{}",
        found.err
    );
    assert!(
        found.err.contains(
            " children that used less than 64KiB of their own were left out: --keep-small keeps"
        ),
        "{}",
        found.err
    );
    assert!(
        found
            .err
            .contains("; next: heapprof top a.children/program."),
        "{}",
        found.err
    );
    let found = record(here, &["-o", "a.pb.gz", "--keep-small"], script);
    let kept = names(&here.join("a.children"));
    assert!(
        kept.iter()
            .filter(|name| *name == "env.N.pb.gz" || *name == "true.N.pb.gz")
            .count()
            >= 2,
        "{kept:?}"
    );
    assert!(!found.err.contains("left out"), "{}", found.err);
    // The folder is not created if it would be empty.
    record(here, &["-o", "b.pb.gz"], "env true; exit 3");
    assert_eq!(names(here), ["a.children", "a.pb.gz", "b.pb.gz"]);
    record(here, &["-o", "c.pb.gz", "--follow-children", "no"], script);
    assert_eq!(names(here), ["a.children", "a.pb.gz", "b.pb.gz", "c.pb.gz"]);
}

/// A program with 2 MB that calls a small program again and again, by fork and exec, then forks a
/// child with memory of its own, and a child that only frees and allocates a little.
const CALLER: &str = r#"
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
char *volatile kept[20];
static void call(void (*what)(void)) {
    pid_t child = fork();
    if (child == 0) { what(); _exit(1); }
    waitpid(child, 0, 0);
}
static void run(void) { free(strdup("true")); execl("/bin/true", "true", (char *)0); }
__attribute__((noinline)) static void hold(void) {
    for (int i = 0; i < 10; i++) free(kept[i]);
    for (int i = 0; i < 3; i++) kept[i] = malloc(30000);
    _exit(0);
}
static void forget(void) {
    for (int i = 0; i < 10; i++) free(kept[i]);
    free(malloc(60000));
    exit(0);
}
static void die(void) { kept[0] = malloc(20000); abort(); }
static void vanish(void) { kept[0] = malloc(20000); *(volatile int *)8 = 1; }
int main(void) {
    for (int i = 0; i < 20; i++) kept[i] = memset(malloc(100000), 1, 100000);
    for (int i = 0; i < 10; i++) call(run);
    call(hold);
    call(forget);
    call(die);
    call(vanish);
    return 3;
}
"#;

/// A child's profile is left out if the child never had 64 KiB of its own in use, regardless of
/// what it inherited and how it ends. A child that frees inherited memory and allocates as much of
/// its own is kept. The child that was killed leaves no trace.
#[test]
fn what_a_child_inherits_is_not_its_own() {
    if !have(&["gcc"]) {
        return;
    }
    let built = build(CALLER, "gcc -g -O1");
    let here = built.folder.path();
    let recorded = |options: &[&str]| {
        let words = [&["record", "-o", "a.pb.gz"], options, &["./program"]].concat();
        let found = run(here, &words);
        assert_eq!(found.code, 3, "{}", found.err);
        (names(&here.join("a.children")), found.err)
    };
    for options in [&["--exact"][..], &["--exact", "--threads"], &["--period=2"]] {
        let (kept, said) = recorded(options);
        assert_eq!(kept, ["program.N.pb.gz"], "{options:?} {said}");
        let expected = "12 children that used less than 64KiB of their own were left out: \
                        --keep-small keeps them)";
        assert!(said.contains(expected), "{options:?} {said}");
        std::fs::remove_dir_all(here.join("a.children")).unwrap();
    }
    let (kept, said) = recorded(&["--exact", "--keep-small"]);
    assert_eq!(kept.len(), 24, "{said} {kept:?}");
    assert!(!said.contains("left out"), "{said}");
}

/// A profile written on the way belongs to its process: if the process is small at its end, too,
/// all of its profiles are left out.
#[test]
fn profiles_on_the_way_of_small_children() {
    if !have(&["gcc"]) {
        return;
    }
    let built = build(HOLDER, "gcc -g -O1");
    let here = built.folder.path();
    let script = "true; ./program; exit 3";
    let found = record(here, &["-o", "a.pb.gz", "--on-growth=1KiB"], script);
    let kept = names(&here.join("a.children"));
    assert!(kept.contains(&"program.N.pb.gz".to_string()), "{kept:?}");
    assert!(kept.contains(&"program.N.N.pb.gz".to_string()), "{kept:?}");
    assert!(
        kept.iter().all(|name| name.starts_with("program.")),
        "{kept:?} {}",
        found.err
    );
}

/// The folder is named after the program's profile, whose name is known only at the end. A pattern
/// given by the user names children, too.
#[test]
fn default_names_and_patterns() {
    if !have(&["gcc"]) {
        return;
    }
    let built = build(HOLDER, "gcc -g -O1");
    let here = built.folder.path();
    let found = record(here, &[], "./program; exit 3");
    let expected = ["heapprof.sh.N.children", "heapprof.sh.N.pb.gz"];
    assert_eq!(names(here), expected, "{}", found.err);
    // The shell holds next to nothing, so the program that it started is read.
    let top = run(here, &["top", "-n", "1"]);
    let is_program = top.out.contains("children/program.");
    assert!(is_program, "{} {}", top.out, top.err);
    assert!(
        top.err.contains("the largest of the 2 processes"),
        "{}",
        top.err
    );
    let words = [
        "record",
        "--exact",
        "-o",
        "out/",
        "env",
        "sh",
        "-c",
        "./program; exit 3",
    ];
    let found = run(here, &words);
    assert_eq!(found.code, 3, "{}", found.err);
    let kept = names(&here.join("out"));
    assert!(
        kept.contains(&"heapprof.sh.N.children".to_string()),
        "{kept:?} {}",
        found.err
    );
    assert!(
        !kept.contains(&"heapprof.env.N.children".to_string()),
        "{kept:?}"
    );
    let next = found
        .err
        .lines()
        .next()
        .unwrap()
        .rsplit(' ')
        .next()
        .unwrap();
    assert_eq!(run(here, &["info", next]).code, 0, "{}", found.err);
    let found = record(here, &["-o", "p.%e.%p.pb.gz"], "./program; true; exit 3");
    let kept: Vec<String> = names(here)
        .into_iter()
        .filter(|n| n.starts_with("p."))
        .collect();
    assert_eq!(kept, ["p.program.N.pb.gz", "p.sh.N.pb.gz"], "{}", found.err);
}

/// `record` prints the heap's share of the process, and which option shows the rest.
#[test]
fn what_is_no_heap_is_said() {
    if !have(&["gcc"]) {
        return;
    }
    let built = build(HOLDER, "gcc -g -O1");
    let here = built.folder.path();
    let share =
        regex::Regex::new(r"peak 29\d\.\d+KiB \(([0-9.]+)% of peak RSS ([0-9.]+)MiB\)").unwrap();
    let advice = "of the peak RSS is not heap; it is code, stacks, files and what the program \
                  maps itself, which record --mmap counts";
    let recorded = |options: &[&str], args: &[&str]| {
        let words = [
            &["record", "--exact", "-o", "p.pb.gz"],
            options,
            &["./program"],
            args,
        ]
        .concat();
        let found = run(here, &words);
        assert_eq!(found.code, 0, "{}", found.err);
        found.err
    };
    let said = recorded(&[], &["60"]);
    let found = share.captures(&said).unwrap_or_else(|| panic!("{said}"));
    let (part, whole): (f64, f64) = (found[1].parse().unwrap(), found[2].parse().unwrap());
    assert!(part < 0.6 && (60.0..75.0).contains(&whole), "{said}");
    assert!(said.contains(advice), "{said}");
    let info = run(here, &["info", "p.pb.gz"]).out;
    assert!(
        info.contains("Outside the heap") && info.contains(advice),
        "{info}"
    );
    // If mappings are counted, no advice is printed.
    let said = recorded(&["--mmap"], &["60"]);
    assert!(!said.contains(advice), "{said}");
    assert!(!recorded(&[], &["1"]).contains(advice));
    // Reserved memory that was not touched makes the total larger than the RSS.
    let said = recorded(&["--mmap"], &["60", "20"]);
    let info = run(here, &["info", "p.pb.gz"]).out;
    assert!(
        info.contains(", because not all of the heap was touched"),
        "{info} {said}"
    );
    assert!(
        said.contains("MiB, so part of the heap was never touched)"),
        "{said}"
    );
}

/// The child with the largest heap is not always the one with the largest resident set.
#[test]
fn the_largest_is_said_by_heap_and_by_residence() {
    if !have(&["gcc"]) {
        return;
    }
    let built = build(HOLDER, "gcc -g -O1");
    let here = built.folder.path();
    let bigger = build(&HOLDER.replace("300000", "900000"), "gcc -g -O1");
    copy_program(&bigger.program, &here.join("bigger"));
    let found = record(here, &["-o", "a.pb.gz"], "./bigger; ./program 60; exit 3");
    let said = &found.err;
    assert!(
        said.contains("the largest by peak heap a.children/bigger."),
        "{said}"
    );
    assert!(
        said.contains(", the largest by peak RSS a.children/program."),
        "{said}"
    );
    assert!(
        said.contains("; next: heapprof top a.children/program."),
        "{said}"
    );
}

/// With few samples, `record` warns as it does without samples.
#[test]
fn few_samples_are_said() {
    if !have(&["gcc"]) {
        return;
    }
    let source = "#include <stdlib.h>\nvoid *volatile p;\nint main(int argc, char **argv) { for \
                  (int i = atoi(argv[1]); i--;) p = malloc(2000000); return argc > 9; }\n";
    let built = build(source, "gcc -g -O1");
    let here = built.folder.path();
    let recorded = |count: &str| {
        let found = run(here, &["record", "-o", "p.pb.gz", "./program", count]);
        assert_eq!(found.code, 0, "{}", found.err);
        found.err
    };
    // A block of 2 MB is missed with a probability of 1 in 45.
    let said = recorded("12");
    let expected = regex::Regex::new(
        r"the values are rough, because only 1[0-3] allocations were sampled; --exact records every allocation, and --period 16KiB records about 1000 of them\n",
    );
    assert!(expected.unwrap().is_match(&said), "{said}");
    assert!(recorded("0").contains("nothing was sampled, because little was allocated"));
    assert!(!recorded("60").contains("rough"));
}

/// If the total is uncertain, `record` says so, and what would make it better.
#[test]
fn how_sure_the_total_is_is_said() {
    if !have(&["gcc"]) {
        return;
    }
    // About 60 blocks are sampled. The probability of fewer than 30 or more than 95 is one in
    // 10,000.
    let source = "#include <stdlib.h>\nvoid *volatile p;\n\
        int main(void) { for (int i = 0; i < 7700; i++) p = malloc(4096); }\n";
    let built = build(source, "gcc -g -O1");
    let recorded = |more: &[&str]| {
        let words = [&["record", "-o", "p.pb.gz"], more, &["./program"]].concat();
        let found = run(built.folder.path(), &words);
        assert_eq!(found.code, 0, "{}", found.err);
        found.err
    };
    let said = recorded(&[]);
    let expected = regex::Regex::new(
        r"(?s)about [0-9.]+MiB ± [0-9.]+MiB in use at the end.*what is in use may be off by about [23][0-9]%; --period (32|64|128)KiB would make that about 10%; --exact records every allocation\n",
    );
    assert!(expected.unwrap().is_match(&said), "{said}");
    let sure = recorded(&["--period", "16KiB"]);
    assert!(
        sure.contains(" ± ") && !sure.contains("be off by"),
        "{sure}"
    );
    let exact = recorded(&["--exact"]);
    assert!(
        !exact.contains('±') && !exact.contains("be off by"),
        "{exact}"
    );
}

/// If the program left no profile, the profile of a child is not presented as the program's.
#[test]
fn a_child_s_profile_is_called_so() {
    let folder = tempfile::tempdir().unwrap();
    let shell = |options: &str, script: &str| {
        let record = format!(
            "exec \"$@\" record --no-symbolize {options} -o out.pb.gz -- sh -c \"$SCRIPT\""
        );
        let mut shell = Command::new("sh");
        // Under this limit, a killed program leaves nothing.
        shell.args(["-c", &format!("ulimit -f 100000; {record}"), "sh"]);
        shell.arg(heapprof()).env("SCRIPT", script);
        Run::from(shell.current_dir(folder.path()).output().unwrap())
    };
    let killed = shell("--keep-small", "ls >/dev/null; kill -9 $$");
    assert_eq!(killed.code, 137);
    assert!(
        killed.err.contains(
            "the program was killed by signal 9 and left no profile of its own; this is the \
             profile of a child"
        ),
        "{}",
        killed.err
    );
    let why = "in private memory (files may have no more than 51200000 bytes), so nothing would \
               have been left";
    assert!(killed.err.contains(why), "{}", killed.err);
    // A chance sample would count as much, so the recording is exact.
    let small = shell("--exact", "uname >/dev/null; kill -9 $$").err;
    let expected = "no profile: the program was killed by signal 9 before it could write one";
    assert!(small.contains(expected), "{small}");
    let expected =
        "; a child that used less than 64KiB of its own was left out: --keep-small keeps";
    assert!(small.contains(expected), "{small}");
    let ended = shell("--exact", "uname >/dev/null; exit 3");
    assert_eq!(ended.code, 3);
    assert!(!ended.err.contains("child's"), "{}", ended.err);
}

/// An orphan that becomes a child of `record` is not taken for the program.
#[test]
fn orphans_have_profiles_of_their_own() {
    let own_numbers = ["-rpf", "--mount-proc"];
    if !needs::namespaces(&own_numbers) {
        return;
    }
    // The orphan executes another program once it is an orphan, and the program ends after that.
    let script = "(sh -c 'until grep -q \"^PPid:.1$\" /proc/$$/status; do sleep .1; done; \
                  echo $$ >orphan; exec uname >other' &); \
                  until [ -s orphan ] && \
                  ! grep -q \"^State:.[RSD]\" /proc/$(cat orphan)/status; do sleep .1; done; exit 3";
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new("unshare")
        .args(own_numbers)
        .arg(heapprof())
        .args([
            "record",
            "--exact",
            "--keep-small",
            "-o",
            "p.pb.gz",
            "sh",
            "-c",
            script,
        ])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    let info = run(folder.path(), &["info", "p.pb.gz"]).out;
    assert!(!info.contains("uname"), "{info}");
    // The orphan's number depends on the threads of `record`, which share the numbers with
    // processes.
    let of_uname = |path: &std::path::PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        name.starts_with("uname.")
    };
    let children = std::fs::read_dir(folder.path().join("p.children"));
    let children = children.into_iter().flatten().flatten();
    let orphan = children.map(|entry| entry.path()).find(of_uname);
    let orphan = orphan.unwrap_or_else(|| panic!("no profile of the orphan: {said}"));
    let orphan = run(folder.path(), &["info", orphan.to_str().unwrap()]);
    assert_eq!(orphan.code, 0, "{} {}", orphan.err, said);
}

/// A program that allocates 100 bytes, installs a filter that kills it if it writes a file, and
/// then allocates a megabyte. With an argument, the filter kills only for ptrace.
const SHUT_IN: &str = r#"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#define ALLOW(call) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
char *volatile kept[2];
int main(int argc, char **argv) {
    struct sock_filter narrow[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        ALLOW(SYS_read), ALLOW(SYS_write), ALLOW(SYS_exit_group), ALLOW(SYS_brk), ALLOW(SYS_mmap),
        ALLOW(SYS_munmap), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_filter lenient[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ptrace, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof narrow / sizeof *narrow, narrow};
    if (argc > 1) filter = (struct sock_fprog){sizeof lenient / sizeof *lenient, lenient};
    kept[0] = malloc(100);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return 8;
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) return 9;
    kept[1] = memset(malloc(1 << 20), 1, 1 << 20);
    syscall(SYS_exit_group, 0);
}
"#;

/// Memory allocated under a filter that kills is in no profile, and `record` says so.
#[test]
fn a_profile_that_ends_at_a_filter_is_said_to() {
    if !have(&["gcc"]) {
        return;
    }
    let built = build(SHUT_IN, "gcc -g -O1");
    let here = built.folder.path();
    let recorded = |words: &[&str]| {
        let found = run(
            here,
            &[&["record", "--exact", "-o", "p.pb.gz", "--"], words].concat(),
        );
        assert_eq!(found.code, 0, "{}", found.err);
        found.err
    };
    let expected = "p.pb.gz: ends where the program installed a system call filter (seccomp) that \
                    would have killed it for writing a profile; what it allocated afterwards is \
                    not in it; heapprof watch shows how much that is\n";
    let said = recorded(&["./program"]);
    assert!(said.contains(expected), "{said}");
    assert!(
        said.contains("p.pb.gz: 100B in use then, peak 100B"),
        "{said}"
    );
    assert!(!said.contains("without a final profile"), "{said}");
    // The profile of such a child is kept, even if the child had little in use before the filter.
    let said = recorded(&["sh", "-c", "./program; exit 0"]);
    assert!(said.contains("program."), "{said}");
    let expected = "ends where the program installed a system call filter";
    assert!(
        said.contains(expected) && !said.contains("left out"),
        "{said}"
    );
    let said = recorded(&["./program", "x"]);
    assert!(!said.contains("seccomp"), "{said}");
}
