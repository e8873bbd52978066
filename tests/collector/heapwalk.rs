//! Compares `heapwalk` with LeakSanitizer and valgrind: the same blocks in the same states.

/// A function in C and C++ that wipes old values from the stack and from registers.
macro_rules! wipe {
    () => {
        r#"
static __attribute__((noinline)) void wipe(void) {
    char stack[32768];
    memset(stack, 0, sizeof stack);
    __asm__ volatile("" : : "r"(stack) : "memory", "rbx", "r12", "r13", "r14", "r15");
    __asm__ volatile("xor %%eax, %%eax; xor %%ecx, %%ecx; xor %%edx, %%edx; xor %%esi, %%esi;"
                     "xor %%edi, %%edi; xor %%r8d, %%r8d; xor %%r9d, %%r9d; xor %%r10d, %%r10d;"
                     "xor %%r11d, %%r11d; pxor %%xmm0, %%xmm0" : : : "rax", "rcx", "rdx", "rsi",
                     "rdi", "r8", "r9", "r10", "r11", "xmm0");
}
"#
    };
}

mod allocator;
mod joined;
mod libcs;
mod names;
mod programs;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use heapprof_tests::built::{Built, build, have};
use heapprof_tests::harness::{ok, run};
use heapprof_tests::waits::in_state;

use self::programs::{BEGIN, CXX, PROGRAMS};
use crate::process::{json, number};

/// A program that waits at its checkpoint. It is killed at the end of the test.
struct Waiting {
    child: Child,
    /// The output of the program.
    out: BufReader<std::process::ChildStdout>,
    /// The waiting process: the program, or its child.
    pid: u32,
}

impl Waiting {
    fn start(program: &std::path::Path) -> Self {
        Self::spawn(Command::new(program))
    }

    /// Sends the process a signal, and returns the line that it prints then.
    fn asked(&mut self, signal: &str) -> String {
        let sent = Command::new("kill")
            .args([&format!("-{signal}"), &self.pid.to_string()])
            .status();
        assert!(sent.unwrap().success());
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line
    }

    /// Returns the process as an argument of heapprof.
    fn target(&self) -> String {
        format!("pid:{}", self.pid)
    }

    /// Writes a core file of the process with gdb, and returns its path.
    fn core(&self, built: &Built) -> std::path::PathBuf {
        let core = built.path("core");
        let made = Command::new("gcore")
            .arg("-o")
            .arg(&core)
            .arg(self.pid.to_string())
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        core.with_extension(self.pid.to_string())
    }

    /// Runs a command, and waits until it or its child has reached the checkpoint.
    fn spawn(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        let id = child.id();
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
        let forked = children.unwrap_or_default();
        let pid = forked
            .split_whitespace()
            .next()
            .and_then(|pid| pid.parse().ok())
            .unwrap_or(id);
        // The process may not be waiting yet.
        in_state(pid, "S");
        Self { child, out, pid }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = Command::new("kill")
            .args(["-KILL", &self.pid.to_string()])
            .status();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the numbers of blocks by state: leaked, indirectly leaked, maybe leaked.
fn walked(target: &str) -> [i64; 3] {
    let found = json(&ok(&["heapwalk", target, "-f", "json"]));
    assert_eq!(found["unwalked"], 0, "{found}");
    let blocks = |state: &str| {
        let states = found["states"].as_array().unwrap();
        let state = states.iter().find(|one| one["state"] == state).unwrap();
        number(&state["blocks"])
    };
    [
        blocks("leaked"),
        blocks("leaked, indirectly"),
        blocks("maybe"),
    ]
}

/// Returns valgrind's numbers of blocks that are definitely, indirectly and possibly lost.
///
/// valgrind puts blocks at low addresses (from some 78 million on), where a number that is no
/// address, such as the inode of a library in the loader's list, may lead to a block. Such a number
/// can only make fewer blocks lost. So valgrind runs twice, with the blocks at two places.
fn of_valgrind(program: &std::path::Path) -> [i64; 3] {
    let asked = ["16", "200000000"].map(|before| of_valgrind_behind(program, before));
    asked[0].max(asked[1])
}

/// Returns valgrind's numbers for a program that has allocated some bytes first.
fn of_valgrind_behind(program: &std::path::Path, before: &str) -> [i64; 3] {
    let done = Command::new("valgrind")
        .args(["--leak-check=full", "--trace-children=no"])
        .arg(program)
        .env("CHECK", before)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    // A forked child ends first, and its report is the relevant one.
    let blocks = |what: &str| {
        let line = said.lines().find(|line| line.contains(what));
        let text = line
            .and_then(|line| line.split(" in ").nth(1))
            .unwrap_or("0 blocks");
        text.split(' ')
            .next()
            .unwrap()
            .replace(',', "")
            .parse()
            .unwrap()
    };
    ["definitely lost:", "indirectly lost:", "possibly lost:"].map(blocks)
}

/// Returns the number of leaked blocks that LeakSanitizer reports.
fn of_sanitizer(built: &Built) -> i64 {
    let done = Command::new(&built.program).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    let line = said
        .lines()
        .find(|line| line.contains(" byte(s) leaked in "));
    let Some(line) = line else {
        assert!(!said.contains("LeakSanitizer has encountered"), "{said}");
        return 0;
    };
    let words: Vec<&str> = line.split(' ').collect();
    let at = words.iter().position(|word| *word == "in").unwrap();
    words[at + 1].parse().unwrap()
}

/// Builds a program without and with LeakSanitizer.
fn both(name: &str, source: &str) -> [Built; 2] {
    match source {
        "" => [
            build(CXX, "g++ -O1 -g"),
            build(CXX, "g++ -O1 -g -fsanitize=leak"),
        ],
        source => {
            let whole = format!("/* {name} */\n{BEGIN}{source}");
            [
                build(&whole, "gcc -O1 -g -pthread"),
                build(&whole, "gcc -O1 -g -pthread -fsanitize=leak"),
            ]
        }
    }
}

#[test]
fn the_same_blocks_as_leak_sanitizer_and_valgrind() {
    if !have(&["gcc", "g++", "valgrind"]) {
        return;
    }
    for (name, source) in PROGRAMS {
        let [plain, sanitized] = both(name, source);
        let waiting = Waiting::start(&plain.program);
        let found = walked(&format!("pid:{}", waiting.pid));
        drop(waiting);
        // pthread_create's own block, which it may still free, counts as possibly lost in valgrind.
        let mut expected = of_valgrind(&plain.program);
        if source.contains("pthread_create") {
            expected[2] = found[2];
        }
        assert_eq!(found, expected, "{name}: valgrind");
        // LeakSanitizer does not read memory that the program has mapped itself.
        if source.contains("MAP_SHARED") {
            continue;
        }
        let [direct, indirect, _] = found;
        // LeakSanitizer takes the whole stack of a thread as reaching the thread's blocks.
        assert_eq!(
            direct + indirect,
            of_sanitizer(&sanitized),
            "{name}: LeakSanitizer"
        );
    }
}

/// A core file of a process gives the same result as the process.
#[test]
fn a_core_file_shows_the_same() {
    if !have(&["gcc", "gcore"]) {
        return;
    }
    let (name, source) = PROGRAMS[9];
    let [plain, _] = both(name, source);
    let waiting = Waiting::start(&plain.program);
    let core = format!("core:{}", waiting.core(&plain).display());
    assert_eq!(walked(&core), walked(&waiting.target()));
    // References to the block, and its bytes.
    let found = json(&ok(&["heapwalk", &core, "-f", "json"]));
    let groups = found["groups"].as_array().unwrap();
    let lost = groups.iter().find(|one| one["what"] == "text").unwrap();
    let at = format!("{:#x}", number(&lost["example"]));
    let bytes = ok(&["heapwalk", &core, "--bytes", &at]);
    assert!(
        bytes.contains("78 78 78 78") && bytes.contains("xxxxxxxx"),
        "{bytes}"
    );
    let who = ok(&["heapwalk", &core, "--who", &at]);
    assert!(who.contains("it cannot be reached from a root"), "{who}");
    // For a truncated core file, the missing part is reported.
    let file = core.strip_prefix("core:").unwrap();
    let whole = std::fs::read(file).unwrap();
    std::fs::write(file, &whole[..whole.len() / 2]).unwrap();
    let cut = run(plain.folder.path(), &["heapwalk", &core]);
    let said = format!("{}{}", cut.out, cut.err);
    assert!(
        said.contains("missing") || said.contains("no heap"),
        "{said}"
    );
}

/// The retained size of a block is the size of all blocks that can't be reached without it.
#[test]
fn the_first_of_a_list_retains_all_of_it() {
    if !have(&["gcc"]) {
        return;
    }
    let body = "struct n { struct n *next; char rest[992]; }; \
        static __attribute__((noinline)) void make(void) { \
        struct n *first = 0, *shared = malloc(5000); memset(shared, 0, 5000); \
        for (int i = 0; i < 100; i++) { struct n *n = calloc(1, sizeof *n); n->next = first; \
        first = n; } \
        ((void **)first)[1] = shared; kept[0] = first; kept[1] = shared; } \
        int main(void) { make(); checkpoint(); }";
    let built = build(&format!("{BEGIN}{body}"), "gcc -O1 -g -pthread");
    let waiting = Waiting::start(&built.program);
    let target = format!("pid:{}", waiting.pid);
    let found = json(&ok(&["heapwalk", &target, "--retained", "-f", "json"]));
    let rows = found["rows"].as_array().unwrap();
    // The list has 100 blocks of 1,000 bytes. Blocks with another path to them do not count, except
    // for the variable that leads to both.
    let retained = [0, 1, 2].map(|row| number(&rows[row]["retained"]));
    assert_eq!(retained, [105_000, 100_000, 99_000], "{found}");
    let text = |row: usize, column: &str| rows[row][column].as_str().unwrap().to_string();
    assert!(text(0, "what").starts_with("kept in /"), "{found}");
    assert!(text(1, "root").ends_with("/program"), "{found}");
    let text = ok(&["heapwalk", &target, "--retained", "-n", "2"]);
    assert!(
        text.contains("97.66KiB") && text.lines().count() == 5,
        "{text}"
    );
}

#[test]
fn what_is_no_heap_is_said() {
    let here = std::path::Path::new("/");
    // Without this check, reading a pipe would wait.
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let pipe = format!("core:{}", pipe.display());
    for (words, why) in [
        (&["heapwalk", "pid:4194304"][..], "no such process"),
        (&["heapwalk", "core:/dev/null"], "not a regular file"),
        (&["heapwalk", &pipe], "not a regular file"),
        (&["heapwalk", "/etc/passwd"], "write core:/etc/passwd"),
        (&["heapwalk", "pid:1", "--unit", "furlongs"], "furlongs"),
        (&["heapwalk", "core:/etc/passwd"], "not that of an ELF file"),
        (&["heapwalk", "core:/nowhere"], "No such file"),
        (&["heapwalk", "pid:1", "--who", "xyz"], "not an address"),
    ] {
        let found = run(here, words);
        assert_eq!(found.code, 2, "{words:?}");
        assert!(found.err.contains(why), "{words:?}: {}", found.err);
    }
}
