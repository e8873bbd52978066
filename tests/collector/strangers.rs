//! Processes of another user that keep root's `record` busy, and files that a killed `record`
//! leaves.

use std::fs::Permissions;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use heapprof_tests::built::{build, have};
use heapprof_tests::executables::copy_program;
use heapprof_tests::harness::{command, heapprof, is_root, run};
use heapprof_tests::needs;
use heapprof_tests::waits;

/// User id of a user that is not root.
const NOBODY: u32 = 65534;
/// Number of strangers that call at once.
const STRANGERS: usize = 14;
/// Maximum memory in KiB of a `record` that strangers call.
const MAX_MEMORY: u64 = 300 << 10;
/// Longest time to wait for a condition that must come.
const LIMIT: Duration = Duration::from_secs(300);

/// Makes a requested number of stacks, and waits until its standard input ends.
const PROGRAM: &str = r#"
    #include <stdlib.h>
    #include <unistd.h>
    static void *volatile kept;
    __attribute__((noinline)) int nest(int depth, unsigned way) {
        if (!depth) return !(kept = malloc(16));
        if (way & 1) return nest(depth - 1, way >> 1) + 1;
        return nest(depth - 1, way >> 1) + 2;
    }
    __attribute__((noinline)) void keep(void) { kept = malloc(1000000); }
    int main(int argc, char **argv) {
        int depth = atoi(argv[1]), sum = 0;
        keep();
        for (unsigned way = 0; way < 1u << depth; way++) sum += nest(depth, way);
        write(1, "r", 1);
        char byte;
        while (read(0, &byte, 1) > 0) {}
        return sum == -1;
    }
"#;

/// A daemon's worker: a process of another user, whose parent ends immediately. It has so much
/// memory that it still ends when the program has ended.
const WORKER: &str = r#"
    #include <grp.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <unistd.h>
    #include <sys/wait.h>
    static char *volatile kept;
    __attribute__((noinline)) void keep(void) { kept = malloc(400 << 20); }
    int main(void) {
        int ends[2];
        char byte;
        pipe(ends);
        if (!fork()) {
            setsid();
            if (setgroups(0, 0) || setgid(65534) || setuid(65534)) _exit(8);
            if (fork()) _exit(0);
            keep();
            for (int page = 0; page < 400 << 8; page++) kept[page << 12] = 1;
            dprintf(1, "%d\n", getpid());
            for (;;) pause();
        }
        wait(0);
        while (read(0, &byte, 1) > 0) {}
        return 0;
    }
"#;

fn byte_of(child: &mut Child) {
    let mut byte = [0];
    child
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut byte)
        .unwrap();
}

/// Returns the only child of a `record`.
fn program_of(record: &Child) -> u32 {
    let id = record.id();
    let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
    children.split_whitespace().next().unwrap().parse().unwrap()
}

/// Returns a variable in the environment of a process.
fn variable(pid: u32, name: &str) -> PathBuf {
    let all = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
    let start = format!("{name}=");
    let found = all
        .split(|&byte| byte == 0)
        .find_map(|entry| entry.strip_prefix(start.as_bytes()));
    PathBuf::from(std::ffi::OsStr::from_bytes(found.unwrap()))
}

fn kill(pid: u32) {
    let killed = Command::new("kill").args(["-9", &pid.to_string()]).status();
    assert!(killed.unwrap().success());
}

fn open_folder() -> tempfile::TempDir {
    let open = tempfile::tempdir().unwrap();
    std::fs::set_permissions(open.path(), Permissions::from_mode(0o755)).unwrap();
    open
}

/// Opens the file in which a process keeps its ledger.
fn ledger_of(pid: u32) -> Option<OwnedFd> {
    let maps = std::fs::read_dir(format!("/proc/{pid}/map_files")).ok()?;
    let paths = maps.filter_map(|entry| Some(entry.ok()?.path()));
    let mut ledger = paths.filter(|path| {
        std::fs::read_link(path)
            .is_ok_and(|name| name.as_os_str().as_bytes().starts_with(b"/memfd:heapprof"))
    });
    Some(std::fs::File::open(ledger.next()?).ok()?.into())
}

/// Waits until a `record` has opened the file in which a process keeps its ledger.
fn wait_until_taken(record: u32, pid: u32) {
    let ledger = std::fs::File::from(ledger_of(pid).unwrap());
    let ledger = ledger.metadata().unwrap();
    waits::wait_until("record takes the process's ledger", || {
        let files = std::fs::read_dir(format!("/proc/{record}/fd")).unwrap();
        let mut files = files.filter_map(|entry| std::fs::metadata(entry.ok()?.path()).ok());
        files.any(|file| (file.dev(), file.ino()) == (ledger.dev(), ledger.ino()))
    });
}

fn start(folder: &Path, words: &[&str]) -> Child {
    let mut record = command(folder);
    record.args(["record", "--exact", "--no-symbolize", "--keep-small"]);
    record.args(words);
    record
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    record.spawn().unwrap()
}

/// Strangers who know the socket call with ledgers of 65,536 stacks. Still, when root's program is
/// killed, its profile is written.
#[test]
fn strangers_do_not_cost_a_killed_program_its_profile() {
    if !is_root() || !have(&["gcc"]) {
        return;
    }
    let place = open_folder();
    let built = build(PROGRAM, "gcc -O1 -g -fno-optimize-sibling-calls");
    let program = built.path("program");
    let program = program.to_str().unwrap();
    let flood = build(include_str!("strangers/flood.c"), "gcc -O1 -g");
    let at = |name: &str| place.path().join(name);
    copy_program(&flood.program, &at("flood"));
    for folder in ["forged", "out"] {
        std::fs::create_dir(at(folder)).unwrap();
        std::fs::set_permissions(at(folder), Permissions::from_mode(0o1777)).unwrap();
    }
    // This ledger takes long to read.
    let mut heavy = start(&at("forged"), &["-o", "h.pb.gz", "--", program, "16"]);
    byte_of(&mut heavy);
    let Some(ledger) = ledger_of(program_of(&heavy)) else {
        needs::cannot("/proc/PID/map_files");
        kill(heavy.id());
        return;
    };
    for round in 0..2 {
        let mut record = start(&at("out"), &["-o", "p.pb.gz", "--", program, "1"]);
        byte_of(&mut record);
        let main = program_of(&record);
        let socket = variable(main, "HEAPPROF_KEEP");
        // Other processes can't find the socket's name in this list.
        let sockets = std::fs::read_to_string("/proc/net/unix").unwrap();
        assert!(!sockets.contains(socket.to_str().unwrap()), "{sockets}");
        let stranger = |_| {
            let mut stranger = Command::new(at("flood"));
            stranger.arg(&socket).uid(NOBODY).gid(NOBODY);
            stranger
                .stdin(ledger.try_clone().unwrap())
                .stdout(Stdio::piped());
            stranger.spawn().unwrap()
        };
        let mut strangers: Vec<Child> = (0..STRANGERS).map(stranger).collect();
        strangers.iter_mut().for_each(byte_of);
        kill(main);
        let status = std::fs::read_to_string(format!("/proc/{}/status", record.id()));
        let ended = record.wait_with_output().unwrap();
        for stranger in &mut strangers {
            let _ = stranger.kill();
            let _ = stranger.wait();
        }
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(137), "round {round}: {said}");
        assert!(
            said.contains("requests from other users' processes were refused"),
            "{said}"
        );
        let top = run(&at("out"), &["tags", "p.pb.gz"]);
        assert_eq!(top.code, 0, "round {round}: {said} {}", top.err);
        let info = run(&at("out"), &["info", "p.pb.gz"]);
        assert!(info.out.contains("killed"), "{}", info.out);
        let names = std::fs::read_dir(at("out"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name());
        let names: Vec<_> = names.collect();
        assert_eq!(names, ["p.pb.gz"], "round {round}: {said}");
        if let Ok(status) = status {
            let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
            let peak = peak.and_then(|peak| peak.split_whitespace().next()?.parse::<u64>().ok());
            assert!(peak.is_none_or(|peak| peak < MAX_MEMORY), "{peak:?} KiB");
        }
        std::fs::remove_file(at("out").join("p.pb.gz")).unwrap();
    }
    drop(heavy.stdin.take());
    heavy.wait().unwrap();
}

/// A process that gave up its rights, and whose parent has ended, belongs to the recording.
#[test]
fn a_worker_of_another_user_is_no_stranger() {
    if !is_root() || !have(&["gcc"]) {
        return;
    }
    let place = open_folder();
    let built = build(WORKER, "gcc -O1 -g");
    let out = place.path().join("out");
    std::fs::create_dir(&out).unwrap();
    std::fs::set_permissions(&out, Permissions::from_mode(0o1777)).unwrap();
    let program = built.path("program");
    let pattern = "%e.%p.pb.gz";
    let mut record = start(&out, &["-o", pattern, "--", program.to_str().unwrap()]);
    let mut line = String::new();
    let stdout = record.stdout.as_mut().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line).unwrap();
    let worker = line.trim().parse().unwrap();
    // Once the process has ended, `record` could not find out that it belonged to its program.
    wait_until_taken(record.id(), worker);
    kill(worker);
    drop(record.stdin.take());
    let ended = record.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    let profile = out.join(format!("program.{}.pb.gz", line.trim()));
    assert_eq!(std::fs::metadata(profile).unwrap().uid(), NOBODY, "{said}");
    assert!(!said.contains("refused"), "{said}");
}

/// If group and session were created outside the pid namespace, the kernel gives both the number 0.
#[test]
fn a_recording_begins_where_its_session_has_no_number() {
    let own_numbers = ["-pf", "--mount-proc"];
    if !is_root() || !have(&["setpriv"]) || !needs::namespaces(&own_numbers) {
        return;
    }
    let place = open_folder();
    let out = place.path().join("out");
    std::fs::create_dir(&out).unwrap();
    std::fs::set_permissions(&out, Permissions::from_mode(0o1777)).unwrap();
    let mut record = Command::new("unshare");
    record.args(own_numbers).arg(heapprof());
    record.args(["record", "--exact", "--no-symbolize", "--keep-small"]);
    record.args(["-o", "p.pb.gz", "--"]);
    record.args(["setpriv", "--reuid=65534", "--clear-groups"]);
    record.args(["sh", "-c", "kill -9 $$"]);
    let ended = record.current_dir(&out).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(137), "{said}");
    assert!(!said.contains("panicked"), "{said}");
    let profile = std::fs::metadata(out.join("p.pb.gz"));
    assert!(profile.is_ok(), "{said}");
}

/// The next `record` of a user removes the files of a killed `record`, and none of a running one.
#[test]
fn what_a_killed_record_leaves_is_removed_by_the_next_one() {
    let place = tempfile::tempdir().unwrap();
    let start = || {
        let mut record = Command::new(heapprof());
        record
            .args(["record", "-q", "--", "cat"])
            .env("TMPDIR", place.path());
        record.current_dir(place.path());
        record
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut record = record.spawn().unwrap();
        record.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        byte_of(&mut record);
        record
    };
    let folder_of = |record: &Child| {
        let list = variable(program_of(record), "HEAPPROF_LIST");
        list.parent().unwrap().to_path_buf()
    };
    let (mut running, mut killed) = (start(), start());
    let (held, left) = (folder_of(&running), folder_of(&killed));
    assert!(held.starts_with(place.path()) && held != left);
    kill(killed.id());
    killed.wait().unwrap();
    assert!(left.is_dir());
    let mut next = start();
    let new = folder_of(&next);
    assert!(!left.exists() && held.join("list").is_dir());
    for record in [&mut next, &mut running] {
        drop(record.stdin.take());
        record.wait().unwrap();
    }
    let began = Instant::now();
    while held.exists() || new.exists() {
        assert!(began.elapsed() < LIMIT);
    }
}
