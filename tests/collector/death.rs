//! Programs that are killed: by a signal, by the OOM killer of a cgroup, by themselves; waiting at
//! a barrier or in motion; with threads and children; right after they loaded a library. Each
//! leaves its profile.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use heapprof_profile::{Profile, decode};
use heapprof_tests::built::{Built, build, have};
use heapprof_tests::fixtures::json;
use heapprof_tests::harness::{command, root, run};
use heapprof_tests::needs;
use heapprof_tests::waits::{in_state, try_for};

/// Main and its threads allocate and free, then they fork children, which do the same. Each process
/// counts in a file that outlives it. The file has a row for each process, and in it four numbers
/// for each thread: objects and bytes that were allocated, and objects and bytes that were freed.
/// At the barrier, each process makes a dump, reports that it is there, and waits. In motion, all
/// go on until they are killed.
const MORTAL: &str = r#"
    #define _GNU_SOURCE
    #include <dlfcn.h>
    #include <fcntl.h>
    #include <pthread.h>
    #include <signal.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/mman.h>
    #include <unistd.h>
    #define THREADS 17
    #define KEPT 600
    typedef long counts[THREADS][4];
    /* What a child finds here is of the moment of the fork. */
    static counts own;
    static counts *row;
    static int in_motion;
    static struct block { void *at; size_t size; } kept[THREADS][KEPT];
    __attribute__((noinline)) void *leaf(size_t size) { void *p = malloc(size); memset(p, 1, size); return p; }
    __attribute__((noinline)) void *deep(int n, size_t size) {
        void *p = n ? deep(n - 1, size) : leaf(size);
        __asm__ volatile("" ::: "memory");
        return p;
    }
    static void count(long t, int k, long by) { (*row)[t][k] = own[t][k] += by; }
    static void step(long t, unsigned i, unsigned *seed) {
        struct block *b = &kept[t][(*seed = *seed * 1103515245 + 12345) / 65536 % KEPT];
        if (b->at) {
            free(b->at); b->at = 0;
            count(t, 2, 1); count(t, 3, b->size);
        }
        b->size = 16 + i % 900;
        b->at = deep(i % 12, b->size);
        count(t, 0, 1); count(t, 1, b->size);
    }
    static void *work(void *number) {
        unsigned seed = (long)number;
        for (unsigned i = 0; in_motion || i < 3000; i++) step((long)number, i, &seed);
        return 0;
    }
    static void barrier(void) {
        char name[64];
        int (*dump)(const char *);
        *(void **)&dump = dlsym(RTLD_DEFAULT, "heapprof_dump");
        snprintf(name, sizeof name, "barrier.%d.pb.gz", getpid());
        if (!in_motion && dump) dump(name);
    }
    static void say(void) {
        char line[64];
        write(1, line, snprintf(line, sizeof line, "%d\n", getpid()));
    }
    int main(int argc, char **argv) {
        int threads = atoi(argv[1]), children = atoi(argv[2]);
        char how = *argv[4];
        pthread_t id;
        pthread_t ids[THREADS];
        int file = open("counts", O_RDWR | O_CREAT, 0600);
        ftruncate(file, 16 * sizeof(counts));
        row = mmap(0, 16 * sizeof(counts), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        counts *all = row;
        in_motion = *argv[3] == 'm';
        for (long i = 1; i < threads; i++) pthread_create(&ids[i], 0, work, (void *)i);
        if (!in_motion) for (int i = 1; i < threads; i++) pthread_join(ids[i], 0);
        if (!in_motion) work(0);
        for (int i = 1; i <= children; i++) {
            if (fork()) continue;
            row = &all[i];
            for (int t = 0; t < THREADS; t++) {
                for (int k = 0; k < 2; k++) { count(t, k, -own[t][k + 2]); count(t, k + 2, -own[t][k + 2]); }
            }
            if (!in_motion) work(0);
            barrier();
            say();
            if (in_motion) work(0);
            for (;;) pause();
        }
        barrier();
        say();
        if (how == 's') { usleep(atoi(argv[5]) * 1000); *(volatile int *)8 = 1; }
        if (how == 'o') {
            for (;;) memset(mmap(0, 1 << 20, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 1, 1 << 20);
        }
        if (in_motion) work(0);
        for (;;) pause();
    }
"#;

/// The way in which a program dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Death {
    Kill,
    Crash,
    Oom,
}

/// A test round: the program's configuration, and how it ends.
#[derive(Clone, Copy, Debug)]
struct Round {
    is_exact: bool,
    threads: usize,
    children: usize,
    in_motion: bool,
    death: Death,
    /// Milliseconds that the program runs before it is killed.
    millis: u64,
}

fn program() -> Option<Built> {
    have(&["gcc"]).then(|| {
        build(
            MORTAL,
            "gcc -O1 -g -pthread -fno-builtin -fno-optimize-sibling-calls",
        )
    })
}

fn kill(pid: u32) {
    let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
}

/// A memory cgroup of 96 MiB, if this user may create one.
struct Group(PathBuf);

impl Group {
    fn new(number: u32) -> Option<Self> {
        let name = format!("heapprof-test-{}-{number}", std::process::id());
        let first = Path::new("/sys/fs/cgroup/memory").join(&name);
        let (folder, limit) = match Path::new("/sys/fs/cgroup/memory").is_dir() {
            true => (first, "memory.limit_in_bytes"),
            false => (Path::new("/sys/fs/cgroup").join(&name), "memory.max"),
        };
        std::fs::create_dir(&folder).ok()?;
        let group = Self(folder);
        std::fs::write(group.0.join(limit), (96 << 20).to_string()).ok()?;
        Some(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The processes of the group may still be ending.
        let _ = try_for(|| std::fs::remove_dir(&self.0).ok());
    }
}

/// Starts `record` with a program, in a cgroup if there is one. Returns the processes that have
/// reached their barrier or are in motion, the program first.
fn start(built: &Built, folder: &Path, round: Round, group: Option<&Group>) -> (Child, Vec<u32>) {
    let program = built.path("program");
    let mut record = command(folder);
    record.arg("record");
    match round.is_exact {
        true => record.arg("--exact"),
        false => record.args(["--period", "4KiB"]),
    };
    record.args(["--keep-small", "--no-symbolize", "-o", "p.pb.gz", "--"]);
    let how = match round.death {
        Death::Kill => "k",
        Death::Crash => "s",
        Death::Oom => "o",
    };
    if let Some(group) = group {
        // The process joins the group before it becomes the program.
        let script = format!("echo $$ > {}/cgroup.procs; exec \"$@\"", group.0.display());
        record.args(["sh", "-c", &script, "sh"]);
    }
    let motion = if round.in_motion { "m" } else { "b" };
    record.arg(&program).args([
        &round.threads.to_string(),
        &round.children.to_string(),
        motion,
        how,
        &round.millis.to_string(),
    ]);
    let log = std::fs::File::create(folder.join("log")).unwrap();
    record.stdout(Stdio::piped()).stderr(log);
    let mut child = record.spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut pids = Vec::new();
    while pids.len() < round.children + 1 {
        let mut line = String::new();
        let read = output.read_line(&mut line).unwrap();
        let log = || std::fs::read_to_string(folder.join("log")).unwrap();
        assert_ne!(read, 0, "{round:?}: {}", log());
        pids.push(line.trim().parse().unwrap());
    }
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    let own = std::fs::read_to_string(children).unwrap_or_default();
    if let Some(own) = own
        .split_whitespace()
        .find_map(|word| word.parse::<u32>().ok())
    {
        pids.sort_by_key(|&pid: &u32| pid != own);
    }
    (child, pids)
}

/// Returns the sums of all samples, by type.
fn totals(profile: &Profile) -> BTreeMap<String, i64> {
    let types = profile.sample_type.iter().enumerate();
    types
        .map(|(column, of)| {
            let all = (0..profile.samples.len()).map(|i| profile.samples.values(i)[column]);
            (profile.text(of.r#type).to_string(), all.sum())
        })
        .collect()
}

fn read(path: &Path) -> Profile {
    let file = std::fs::File::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    decode(file).unwrap()
}

/// Returns what the program counted in a row: objects and bytes allocated, objects and bytes in
/// use.
fn counted(folder: &Path, row: usize) -> [i64; 4] {
    const THREADS: usize = 17;
    let bytes = std::fs::read(folder.join("counts")).unwrap();
    let words = bytes.as_chunks::<8>().0[row * THREADS * 4..][..THREADS * 4].iter();
    let words: Vec<i64> = words.map(|word| i64::from_ne_bytes(*word)).collect();
    let sum = |k: usize| words.iter().skip(k).step_by(4).sum::<i64>();
    [sum(0), sum(1), sum(0) - sum(2), sum(1) - sum(3)]
}

/// Runs a round, and checks its profiles.
fn check(built: &Built, round: Round, group: Option<&Group>) {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (mut record, pids) = start(built, folder, round, group);
    if round.death == Death::Kill {
        std::thread::sleep(Duration::from_millis(round.millis));
        // The children are killed first: after the program's end, `record` does not wait for them
        // for long.
        pids[1..].iter().for_each(|&pid| kill(pid));
        pids[1..].iter().for_each(|&pid| in_state(pid, "ZX"));
        kill(pids[0]);
    }
    let status = record.wait().unwrap();
    pids[1..].iter().for_each(|&pid| kill(pid));
    let log = std::fs::read_to_string(folder.join("log")).unwrap();
    let signal = if round.death == Death::Crash { 11 } else { 9 };
    assert_eq!(status.code(), Some(128 + signal), "{round:?}: {log}");
    assert!(
        log.contains("the moment at which the program was killed by SIG"),
        "{log}"
    );
    assert_eq!(
        log.contains("OOM killer"),
        round.death == Death::Oom,
        "{log}"
    );
    // Children that were not killed go on.
    let dead = if round.death == Death::Kill {
        pids.len()
    } else {
        1
    };
    let mut rows: Vec<usize> = (0..=round.children).collect();
    for &pid in &pids[..dead] {
        let left = match pid == pids[0] {
            true => folder.join("p.pb.gz"),
            false => folder.join(format!("p.children/program.{pid}.pb.gz")),
        };
        assert!(left.exists(), "{round:?}: {pid}: {log}");
        let named = folder.join("named.pb.gz");
        let symbolize = ["symbolize", left.to_str().unwrap(), "-o", "named.pb.gz"];
        assert_eq!(run(folder, &symbolize).code, 0);
        let top = |path: &Path, of: &str| {
            let words = [
                "top",
                "-n",
                "0",
                "-f",
                "json",
                "-t",
                of,
                path.to_str().unwrap(),
            ];
            let top: serde_json::Value = serde_json::from_str(&run(folder, &words).out).unwrap();
            top
        };
        if !round.in_motion {
            let own = read(&folder.join(format!("barrier.{pid}.pb.gz")));
            assert_eq!(totals(&read(&left)), totals(&own), "{round:?}: {pid}");
        }
        if !round.is_exact {
            assert!(totals(&read(&left))["alloc_space"] > 500_000, "{round:?}");
            continue;
        }
        let flat = |of: &str| {
            let top = top(&named, of);
            let rows = top["rows"].as_array().unwrap();
            let leaf = rows.iter().find(|row| row["function"] == "leaf");
            leaf.map_or(0, |leaf| leaf["flat"].as_i64().unwrap())
        };
        let types = [
            "alloc_objects",
            "alloc_space",
            "inuse_objects",
            "inuse_space",
        ];
        let found = types.map(flat);
        // The child's row is unknown here. It is taken to be the row with the nearest numbers.
        let distance = |row: &usize| {
            let of_row = counted(folder, *row);
            (0..4).map(|k| found[k].abs_diff(of_row[k])).max().unwrap()
        };
        let best = rows.iter().copied().min_by_key(distance).unwrap();
        rows.retain(|&row| row != best);
        let of_row = counted(folder, best);
        for k in 0..4 {
            // In motion, each thread may be in the middle of an event, and so may each thread of
            // the parent during the fork.
            let events = if round.in_motion {
                2 * round.threads as u64
            } else {
                0
            };
            let most = events * if k % 2 == 0 { 1 } else { 916 };
            let (found, counted) = (found[k], of_row[k]);
            let by = found.abs_diff(counted);
            assert!(
                by <= most,
                "{round:?}: {pid}: {}: {found}, counted {counted}",
                types[k]
            );
        }
    }
}

/// Returns the number of rounds of each kind: `otherwise`, unless a soak test sets another one.
fn rounds(otherwise: u64) -> u64 {
    let asked = std::env::var("HEAPPROF_ROUNDS");
    asked.map_or(otherwise, |text| text.parse().unwrap())
}

fn round_of(number: u64, death: Death) -> Round {
    // Each choice has its own period, so that all combinations occur.
    Round {
        is_exact: !number.is_multiple_of(3),
        threads: [1, 2, 4, 16][number as usize % 4],
        children: match death {
            Death::Kill => [0, 2, 1][number as usize % 3],
            _ => 0,
        },
        in_motion: number % 5 % 2 == 1,
        death,
        millis: number.wrapping_mul(0x9e37_79b9) % 60,
    }
}

/// A killed program leaves a profile of its live heap at that moment, and so do its children.
#[test]
fn a_killed_program_leaves_its_profile() {
    let Some(built) = program() else { return };
    for number in 0..rounds(10) {
        check(&built, round_of(number, Death::Kill), None);
    }
}

/// A crashed program leaves its profile, although libc writes nothing after a crash.
#[test]
fn a_crashed_program_leaves_its_profile() {
    let Some(built) = program() else { return };
    for number in 0..rounds(4) {
        check(&built, round_of(number, Death::Crash), None);
    }
}

/// A program that the kernel's OOM killer ends leaves its profile, and `record` names the reason.
#[test]
fn the_oom_killer_s_victim_leaves_its_profile() {
    let Some(built) = program() else { return };
    for number in 0..rounds(3) {
        let Some(group) = Group::new(number as u32) else {
            needs::cannot("root, for a memory cgroup");
            return;
        };
        check(&built, round_of(number, Death::Oom), Some(&group));
    }
}

/// Loads plug-ins that each allocate once, less than any report needs, and dies immediately. Before
/// that, it makes many mappings that the kernel can't join, so that reading the list of its
/// mappings takes long.
const LOADS: &str = r#"
    #include <dlfcn.h>
    #include <signal.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <sys/mman.h>
    int main(int argc, char **argv) {
        for (int i = atoi(argv[2]); i > 0; i--)
            mmap(0, 4096, i % 2 ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (int i = 0; i < atoi(argv[3]); i++) {
            char name[32];
            snprintf(name, sizeof name, "libplug%d.so", i);
            void *library = dlopen(name, RTLD_NOW);
            if (!library) return 90;
            void *(**entry)(unsigned long) = dlsym(library, "plugin_entry");
            (*entry)(100 + i);
        }
        if (*argv[1] == 's') *(volatile int *)8 = 1;
        raise(SIGKILL);
    }
"#;

/// After the death, the program's mappings can't be read any more. Still, functions of the
/// libraries that it loaded last have names, even though `record` did not check the mappings in
/// time.
#[test]
fn what_a_program_had_loaded_when_it_died_has_names() {
    const PLUGINS: i64 = 12;
    if !cfg!(target_arch = "x86_64") || !have(&["gcc"]) {
        return;
    }
    let built = build(LOADS, "gcc -O1 -g -fno-builtin -Wl,-rpath,$ORIGIN");
    let source = root().join("tests/programs/lib_plugin.c");
    for i in 0..PLUGINS {
        built.run(&format!(
            "gcc -g -shared -fPIC -fno-builtin -DSHIFT=0 -DPLUGIN=plugin_{i} {} -o libplug{i}.so",
            source.display()
        ));
    }
    let program = built.path("program").display().to_string();
    for (how, code, mappings) in [("k", 137, 0), ("s", 139, 0), ("k", 137, 20_000)] {
        for _ in 0..rounds(3) {
            let folder = tempfile::tempdir().unwrap();
            let (mappings, plugins) = (mappings.to_string(), PLUGINS.to_string());
            let words = ["record", "--exact", "-o", "p.pb.gz", "--", &program];
            let words = [&words[..], &[how, &mappings, &plugins]].concat();
            let died = run(folder.path(), &words);
            assert_eq!(died.code, code, "{}", died.err);
            assert!(
                !died.err.contains("was not recorded before"),
                "{}",
                died.err
            );
            let top = ["top", "-n0", "-fjson", "-tinuse_space", "p.pb.gz"];
            let top = json(folder.path(), &top);
            for i in 0..PLUGINS {
                let rows = top["rows"].as_array().unwrap().iter();
                let mut of = rows.filter(|row| row["function"] == format!("plugin_{i}"));
                let flat = of.next().map(|row| row["flat"].as_i64().unwrap());
                assert_eq!(flat, Some(100 + i), "{how} {mappings}: plugin_{i}: {top}");
            }
        }
    }
}
