//! What other users may do with heapprof's files, and what heapprof does with theirs: the list of a
//! recording, planted links and pipes, folders that other users can change, permissions of new
//! files.
//!
//! Tests that need another user need root, and print that if they are skipped. The race of a worker
//! with root's `record` is run a few times;
//! `HEAPPROF_ROUNDS=1000 cargo test -p heapprof-tests -- trust::a_worker` runs it a thousand times.

use std::fs::Permissions;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use heapprof_tests::built::{Built, build, have};
use heapprof_tests::executables::copy_program;
use heapprof_tests::harness::{Run, command, heapprof, is_root, run, sample_profiles};

/// User id of a user that is not root, and does not run the tests.
const NOBODY: u32 = 65534;

fn mode(path: &Path) -> u32 {
    std::fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn be(path: &Path, mode: u32, user: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    chown(path, Some(user), Some(user)).unwrap();
}

fn folder(path: &Path, mode: u32, user: u32) -> PathBuf {
    std::fs::DirBuilder::new().create(path).unwrap();
    be(path, mode, user);
    path.to_path_buf()
}

/// Makes a folder that other users can enter.
fn open_folder() -> tempfile::TempDir {
    let open = tempfile::tempdir().unwrap();
    std::fs::set_permissions(open.path(), Permissions::from_mode(0o755)).unwrap();
    open
}

fn sample() -> PathBuf {
    sample_profiles().join("valid/go.leaky.after.pb.gz")
}

/// A worker tries in several ways to make root's `record` write to a file of root.
#[test]
fn a_worker_that_gave_up_its_rights_harms_nothing_of_root_s() {
    if !is_root() || !have(&["gcc"]) {
        return;
    }
    let rounds = std::env::var("HEAPPROF_ROUNDS").ok();
    let rounds = rounds.map_or(14, |text| text.parse::<usize>().unwrap());
    let built = build(include_str!("trust/forger.c"), "gcc -g -O1");
    let place = open_folder();
    std::fs::set_permissions(built.folder.path(), Permissions::from_mode(0o755)).unwrap();
    let shadow = folder(&place.path().join("shadow"), 0o700, 0);
    let victim = shadow.join("p.pb.gz");
    let program = built.program.to_str().unwrap();
    let record = ["record", "--exact", "--no-symbolize", "-o", "x.pb.gz"];
    let made = run(place.path(), &[&record[..], &[program]].concat());
    assert_eq!(made.code, 9, "{}", made.err);
    let raw = std::fs::read(place.path().join("x.pb.gz")).unwrap();
    // One victim file is a profile that symbolizing would change, the other could be any file.
    for (content, what) in [(&b"root's own\n"[..], "text"), (&raw[..], "profile")] {
        std::fs::write(&victim, content).unwrap();
        be(&victim, 0o600, 0);
        let before = std::fs::metadata(&victim).unwrap();
        for round in 0..rounds.div_ceil(2) {
            let how = ["none", "late", "name", "folder", "hard", "swap", "round"][round % 7];
            let evil = folder(&place.path().join("evil"), 0o755, NOBODY);
            let inner = folder(&evil.join("d"), 0o755, NOBODY);
            std::fs::write(inner.join("p.pb.gz"), &raw).unwrap();
            be(&inner.join("p.pb.gz"), 0o600, NOBODY);
            let output = command(place.path())
                .args(["record", "--exact", "--keep-small", "-o", "own.pb.gz", "--"])
                .arg(&built.program)
                .args([&evil, &victim])
                .arg(how)
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(0), "{how}: {said}");
            assert!(!said.contains("FORGED"), "{said}");
            let after = std::fs::symlink_metadata(&victim).unwrap();
            assert_eq!(
                (after.ino(), after.mode(), after.uid(), after.nlink()),
                (before.ino(), before.mode(), 0, 1),
                "{how}, round {round}: {said}"
            );
            // Every byte is compared.
            let found = std::fs::read(&victim).unwrap();
            assert!(found == content, "{what}, {how}, round {round}: {said}");
            let names: Vec<_> = std::fs::read_dir(&shadow).unwrap().collect();
            assert_eq!(names.len(), 1, "{how}, round {round}");
            if how == "none" {
                // If nothing was tampered with, the profile now has names, and still belongs to the
                // worker.
                let named = inner.join("p.pb.gz");
                assert_ne!(std::fs::read(&named).unwrap(), raw, "{said}");
                assert_eq!(std::fs::metadata(&named).unwrap().uid(), NOBODY);
            }
            // The worker may still be running.
            std::fs::rename(&evil, place.path().join(format!("evil.{what}.{round}"))).unwrap();
        }
    }
}

/// A worker's own profile gets names with the rights of the worker's user, and still belongs to
/// that user.
#[test]
fn a_worker_s_profile_is_named_with_its_own_rights() {
    if !is_root() || !have(&["gcc"]) {
        return;
    }
    let source = r#"
#define _GNU_SOURCE
#include <grp.h>
#include <stdlib.h>
#include <unistd.h>
void *volatile kept;
__attribute__((noinline)) void keep(void) { kept = malloc(100000); }
int main(void) {
    if (setgroups(0, 0) || setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534)) return 8;
    keep();
    return 0;
}
"#;
    let built = build(source, "gcc -g -O1");
    std::fs::set_permissions(built.folder.path(), Permissions::from_mode(0o755)).unwrap();
    let place = open_folder();
    let out = folder(&place.path().join("out"), 0o755, NOBODY);
    let output = command(&out)
        .args(["record", "--exact", "-o", "p.pb.gz", "--"])
        .arg(&built.program)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let found = std::fs::metadata(out.join("p.pb.gz")).unwrap();
    assert_eq!(
        (found.uid(), found.mode() & 0o777),
        (NOBODY, 0o600),
        "{said}"
    );
    let top = run(&out, &["top", "-f", "csv", "p.pb.gz"]);
    assert!(
        top.out.contains("100000,100000,keep,"),
        "{} {said}",
        top.out
    );
}

/// The library in the cache is loaded into root's programs.
#[test]
fn the_library_is_unpacked_where_nobody_else_can_change_it() {
    let place = open_folder();
    let unpacked = |cache: &Path| {
        let output = Command::new(heapprof())
            .arg("preload-path")
            .env("XDG_CACHE_HOME", cache)
            .env("HOME", cache)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
    };
    let own = std::fs::metadata("/proc/self").unwrap().uid();
    let open = folder(&place.path().join("open"), 0o777, own);
    let cache = folder(&open.join("cache"), 0o755, own);
    let path = unpacked(&cache);
    assert!(path.is_file() && !path.starts_with(&open), "{path:?}");
    // In a sticky folder, other users can't replace our files.
    be(&open, 0o1777, own);
    let path = unpacked(&cache);
    assert!(path.starts_with(&cache), "{path:?}");
    if !is_root() {
        return;
    }
    // sudo may keep the variable with another user's folder. That user could replace the folder.
    let other = folder(&place.path().join("other"), 0o755, NOBODY);
    folder(&other.join("heapprof"), 0o755, 0);
    let path = unpacked(&other);
    assert!(path.is_file() && !path.starts_with(&other), "{path:?}");
    let link = place.path().join("link");
    symlink(&cache, &link).unwrap();
    assert!(unpacked(&link).starts_with(&link));
    std::os::unix::fs::lchown(&link, Some(NOBODY), Some(NOBODY)).unwrap();
    let path = unpacked(&link);
    assert!(path.is_file() && !path.starts_with(&link), "{path:?}");
}

/// Reports treat links as a shell's `>` does. A link that another user planted in a folder where
/// every user may write is refused; the user's own link is followed.
#[test]
fn reports_follow_no_links_of_others() {
    let place = open_folder();
    let (sample, own) = (sample(), std::fs::metadata("/proc/self").unwrap().uid());
    let sticky = folder(&place.path().join("sticky"), 0o1777, own);
    let victim = place.path().join("victim");
    let report = |out: &Path| -> Run {
        let mut top = command(place.path());
        top.args(["top", "-n", "1", "-o"]).arg(out).arg(&sample);
        top.output().unwrap().into()
    };
    std::fs::write(&victim, "victim").unwrap();
    let (link, second) = (sticky.join("link"), sticky.join("second"));
    symlink("../victim", &link).unwrap();
    symlink("link", &second).unwrap();
    let found = report(&second);
    assert_eq!(found.code, 0, "{}", found.err);
    assert!(link.is_symlink() && second.is_symlink());
    let text = std::fs::read_to_string(&victim).unwrap();
    assert!(text.contains("inuse_space"), "{text}");
    // A link to a missing file creates that file.
    let new = sticky.join("new");
    symlink("../made", &new).unwrap();
    assert_eq!(report(&new).code, 0);
    assert!(place.path().join("made").is_file() && new.is_symlink());
    symlink("round", sticky.join("round")).unwrap();
    let found = report(&sticky.join("round"));
    assert!(
        found.code == 2 && found.err.lines().count() == 1,
        "{}",
        found.err
    );
    if !is_root() {
        return;
    }
    std::fs::write(&victim, "victim").unwrap();
    std::os::unix::fs::lchown(&link, Some(NOBODY), Some(NOBODY)).unwrap();
    let made = Command::new("mkfifo").arg(sticky.join("pipe")).status();
    assert!(made.unwrap().success());
    be(&sticky.join("pipe"), 0o666, NOBODY);
    for (name, what) in [("link", "link"), ("second", "link"), ("pipe", "pipe")] {
        let found = report(&sticky.join(name));
        assert_eq!(found.code, 2, "{name}: {}", found.err);
        let expected = format!("leads to a {what} of another user,");
        assert!(found.err.contains(&expected), "{name}: {}", found.err);
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "victim");
    }
    // In the user's own folder, the creator of the link was allowed to write there.
    be(&sticky, 0o755, 0);
    assert_eq!(report(&link).code, 0);
    assert!(
        std::fs::read_to_string(&victim)
            .unwrap()
            .contains("inuse_space")
    );
    // A profile is not symbolized in place through another user's link.
    let found = run(place.path(), &["symbolize", "sticky/link"]);
    assert_eq!(found.code, 2, "{}", found.err);
}

/// Reports are written to targets that can't be replaced: the user's own pipe, standard output, a
/// shell's `>(cmd)`.
#[test]
fn reports_go_into_pipes_and_streams() {
    if !have(&["bash", "mkfifo", "cat"]) {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let shell = |script: &str| {
        let mut bash = Command::new("bash");
        bash.current_dir(place.path()).args(["-c", script, "-"]);
        bash.arg(heapprof()).arg(sample());
        String::from_utf8(bash.output().unwrap().stdout).unwrap()
    };
    let expected = shell("$1 top -n 3 -f csv $2");
    assert!(expected.lines().count() > 2, "{expected}");
    for script in [
        "$1 top -n 3 -f csv $2 -o /dev/stdout",
        "$1 top -n 3 -f csv $2 -o /dev/stdout | cat",
        "$1 top -n 3 -f csv $2 -o /dev/fd/3 3>&1",
        "$1 top -n 3 -f csv $2 -o >(cat >got; mv got all); until [ -e all ]; do sleep .05; done; cat all",
        "mkfifo p; cat p & $1 top -n 3 -f csv $2 -o p; wait",
        "$1 top -n 3 -f csv $2 -o /dev/stdout >file; cat file",
        "echo first >more; $1 top -n 3 -f csv $2 -o /dev/stdout >>more; tail -n +2 more",
        "$1 top -n 3 -f csv $2 -o /dev/stderr 2>&1",
    ] {
        assert_eq!(shell(script), expected, "{script}");
    }
}

/// A recording shows what a program did. So only its user may read it, regardless of the program's
/// umask.
#[test]
fn profiles_and_databases_are_their_user_s() {
    let place = tempfile::tempdir().unwrap();
    let sample = sample();
    let shell = |umask: &str, variable: &str, words: &[&str]| {
        let script = format!("umask {umask}; exec \"$0\" \"$@\"");
        let output = Command::new("sh")
            .args(["-c", &script])
            .arg(heapprof())
            .args(words)
            .env("HEAPPROF_FILE_MODE", variable)
            .current_dir(place.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}");
    };
    let path = sample.to_str().unwrap();
    let program = [
        "--keep-small",
        "--",
        "sh",
        "-c",
        "umask 0; env true; exit 0",
    ];
    for (umask, variable, option, expected) in [
        ("0", "", &[][..], 0o600),
        ("077", "640", &[], 0o640),
        ("022", "640", &["--file-mode", "666"], 0o666),
    ] {
        for kept in ["a.pb.gz", "m.pb.gz", "c.pb.gz", "s.pb.gz", "d.db"] {
            let _ = std::fs::remove_file(place.path().join(kept));
        }
        let with = |words: &[&'static str]| [words, option].concat();
        shell(
            umask,
            variable,
            &[&with(&["record", "--exact", "-o", "a.pb.gz"])[..], &program].concat(),
        );
        shell(
            umask,
            variable,
            &[&with(&["merge", "-o", "m.pb.gz"])[..], &[path]].concat(),
        );
        let convert = with(&["convert", "--to", "pprof", "-o", "c.pb.gz"]);
        shell(umask, variable, &[&convert[..], &[path]].concat());
        let symbolize = with(&["symbolize", "-o", "s.pb.gz"]);
        shell(umask, variable, &[&symbolize[..], &[path]].concat());
        let load = with(&["load", "--db", "d.db"]);
        shell(umask, variable, &[&load[..], &[path]].concat());
        for name in ["a.pb.gz", "m.pb.gz", "c.pb.gz", "s.pb.gz", "d.db"] {
            assert_eq!(mode(&place.path().join(name)), expected, "{name} {umask}");
        }
        for child in std::fs::read_dir(place.path().join("a.children")).unwrap() {
            assert_eq!(mode(&child.unwrap().path()), expected);
        }
        std::fs::remove_dir_all(place.path().join("a.children")).unwrap();
    }
    // A report has the permissions of any new file. An existing file keeps the permissions that its
    // user gave it.
    shell("027", "", &["top", "-o", "r.txt", path]);
    assert_eq!(mode(&place.path().join("r.txt")), 0o640);
    be_of_mode(&place.path().join("r.txt"), 0o604);
    shell("027", "", &["top", "-o", "r.txt", path]);
    assert_eq!(mode(&place.path().join("r.txt")), 0o604);
    // A profile that is overwritten gets the permissions of a new one. A profile that gets names
    // keeps its permissions.
    be_of_mode(&place.path().join("m.pb.gz"), 0o644);
    shell("0", "", &["merge", "-o", "m.pb.gz", path]);
    assert_eq!(mode(&place.path().join("m.pb.gz")), 0o600);
    for (words, why) in [
        (
            &["record", "--file-mode", "755", "true"][..],
            "is not a file mode",
        ),
        (&["load", "--file-mode", "rw", "x"], "is not a file mode"),
    ] {
        let found = run(place.path(), words);
        assert!(found.code == 2 && found.err.contains(why), "{}", found.err);
    }
    let mut record = command(place.path());
    record
        .args(["record", "true"])
        .env("HEAPPROF_FILE_MODE", "rw-r--r--");
    let found = Run::from(record.output().unwrap());
    assert!(
        found.code == 2 && found.err.contains("HEAPPROF_FILE_MODE"),
        "{}",
        found.err
    );
}

fn be_of_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Copies heapprof to a folder in which another user can run it.
fn for_nobody() -> Option<(tempfile::TempDir, PathBuf)> {
    if !is_root() {
        return None;
    }
    let place = open_folder();
    let copy = place.path().join("heapprof");
    copy_program(heapprof(), &copy);
    folder(&place.path().join("home"), 0o755, NOBODY);
    Some((place, copy))
}

/// With a umask of 777, even the owner can't reopen a new file, unless the owner is root. Recording
/// must work for other users, too, and the program keeps its umask.
#[test]
fn a_umask_of_777_is_the_program_s() {
    let Some((place, copy)) = for_nobody() else {
        return;
    };
    let home = place.path().join("home");
    let temporary = folder(&home.join("tmp"), 0o700, NOBODY);
    let output = Command::new("sh")
        .args(["-c", "umask 777; exec \"$@\"", "-"])
        .arg(&copy)
        .args([
            "record",
            "--exact",
            "-o",
            "p.pb.gz",
            "sh",
            "-c",
            "umask; exit 6",
        ])
        .current_dir(&home)
        .env("TMPDIR", &temporary)
        .env("HOME", &home)
        .env_remove("XDG_CACHE_HOME")
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(6), "{said}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0777\n");
    assert_eq!(mode(&home.join("p.pb.gz")), 0o600, "{said}");
    assert!(said.contains("; next: heapprof top p.pb.gz"), "{said}");
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0, "{said}");
}

/// heapprof neither writes to a pipe that another user planted at a profile's path, nor waits for
/// it.
#[test]
fn profiles_go_into_no_pipe_of_others() {
    if !is_root() || !have(&["mkfifo"]) {
        return;
    }
    let place = open_folder();
    let sticky = folder(&place.path().join("sticky"), 0o1777, 0);
    let pipe = sticky.join("p.pb.gz");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    be(&pipe, 0o666, NOBODY);
    let mut reader = Command::new("cat")
        .arg(&pipe)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let found = run(&sticky, &["record", "--exact", "-o", "p.pb.gz", "true"]);
    assert_eq!(found.code, 0, "{}", found.err);
    assert!(
        found.err.contains("p.pb.gz: Permission denied"),
        "{}",
        found.err
    );
    // The reader still waits for a writer.
    reader.kill().unwrap();
    let mut read = Vec::new();
    reader
        .stdout
        .take()
        .unwrap()
        .read_to_end(&mut read)
        .unwrap();
    reader.wait().unwrap();
    assert_eq!(read.len(), 0);
}

/// Another user owns the folder of a profile, and puts a link in its place while the program runs.
/// Later images of the program find the folder by its name, and follow no link of others, as
/// `record` does not.
#[test]
fn a_folder_that_became_a_link_of_others_gets_no_profile() {
    if !is_root() {
        return;
    }
    // The owner of the link, and whether profiles are written where it leads.
    for (user, is_followed) in [(NOBODY, false), (0, true)] {
        let place = open_folder();
        let sticky = folder(&place.path().join("sticky"), 0o1777, 0);
        folder(&sticky.join("given"), 0o755, NOBODY);
        let victim = folder(&place.path().join("victim"), 0o700, 0);
        let script =
            format!("mv given away; ln -s ../victim given; chown -h {user} given; exec ls");
        let record = ["record", "--exact", "-o", "given/p.pb.gz", "--", "sh", "-c"];
        let found = run(&sticky, &[&record[..], &[&script]].concat());
        let written = std::fs::read_dir(&victim).unwrap().count();
        assert_eq!(written > 0, is_followed, "{user}: {written}: {}", found.err);
    }
}

/// If another user's process writes other entries to the list, root does nothing about them.
#[test]
fn the_list_is_believed_as_far_as_its_writer_could_do_it() {
    if !is_root() || !have(&["gcc"]) {
        return;
    }
    let built: Built = build(include_str!("trust/forger.c"), "gcc -g -O1");
    std::fs::set_permissions(built.folder.path(), Permissions::from_mode(0o755)).unwrap();
    let place = open_folder();
    let evil = folder(&place.path().join("evil"), 0o755, NOBODY);
    folder(&evil.join("d"), 0o755, NOBODY);
    let record = [
        "record",
        "--exact",
        "--no-symbolize",
        "-o",
        "root.pb.gz",
        "true",
    ];
    assert_eq!(run(place.path(), &record).code, 0);
    let root_s = place.path().join("root.pb.gz");
    // Root's profile could get names, but not because another user's list names it.
    be(&root_s, 0o644, 0);
    let before = std::fs::read(&root_s).unwrap();
    let output = command(place.path())
        .args(["record", "--exact", "-o", "own.pb.gz", "--"])
        .arg(&built.program)
        .args([&evil, &root_s])
        .arg("list")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("belongs to user 0"), "{said}");
    assert!(std::fs::read(&root_s).unwrap() == before, "{said}");
}
