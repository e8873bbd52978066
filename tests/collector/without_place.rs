//! Processes that changed to a user who may not write where their profiles belong. `record` writes
//! the profiles itself, where that user can't interfere, or reports that they are lost, and how to
//! keep them.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use heapprof_tests::built::{Built, build, have};
use heapprof_tests::harness::{Run, command, is_root, run};

/// User id of a user that is not root.
const NOBODY: u32 = 65534;
const OTHER: u32 = 65533;

/// Changes to other users, itself or in children, one after the other. Arguments: pairs of a user
/// and an action of the child, which is `exit` or `kill`, or one of these with `small` before it.
/// With `self` before the action, the program itself does it.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <grp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
void *volatile kept;
__attribute__((noinline)) void keep(size_t size) { kept = malloc(size); memset(kept, 1, size); }
static void work(int user, const char *what) {
    if (user && (setgroups(0, 0) || setgid(user) || setuid(user))) _exit(8);
    keep(strstr(what, "small") ? 40000 : 1000000);
    if (strstr(what, "kill")) raise(SIGKILL);
    exit(0);
}
int main(int argc, char **argv) {
    for (int i = 1; i + 1 < argc; i += 2) {
        int user = atoi(argv[i]);
        if (strstr(argv[i + 1], "self") || !fork()) work(user, argv[i + 1]);
        wait(0);
    }
    return 0;
}
"#;

struct Place {
    folder: tempfile::TempDir,
    built: Built,
}

impl Place {
    fn new() -> Option<Self> {
        if !is_root() || !have(&["gcc"]) {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        be(folder.path(), 0o755, 0);
        let built = build(PROGRAM, "gcc -g -O1");
        be(built.folder.path(), 0o755, 0);
        Some(Self { folder, built })
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn folder(&self, name: &str, mode: u32, user: u32) {
        std::fs::create_dir(self.at(name)).unwrap();
        be(&self.at(name), mode, user);
    }

    /// Records the program, which must succeed. Returns the messages of `record`.
    fn record(&self, out: &str, words: &[&str]) -> String {
        let mut record = command(self.folder.path());
        record.args(["record", "--exact", "-o", out, "--"]);
        record.arg(&self.built.program).args(words);
        let run = Run::from(record.output().unwrap());
        assert_eq!(run.code, 0, "{words:?}: {}", run.err);
        run.err
    }

    /// Returns the owners of the profiles in a folder, and their paths, sorted by name.
    fn profiles(&self, name: &str) -> Vec<(u32, PathBuf)> {
        let Ok(found) = std::fs::read_dir(self.at(name)) else {
            return Vec::new();
        };
        let paths = found.map(|entry| entry.unwrap().path());
        let mut all: Vec<(u32, PathBuf)> = paths
            .filter(|path| path.is_file())
            .map(|path| {
                let about = path.metadata().unwrap();
                assert_eq!(about.mode() & 0o777, 0o600, "{}", path.display());
                (about.uid(), path)
            })
            .collect();
        all.sort();
        all
    }

    /// Checks that a profile has the names of the program.
    fn must_have_names(&self, path: &Path) {
        let top = run(
            self.folder.path(),
            &["top", "-f", "csv", path.to_str().unwrap()],
        );
        assert!(top.out.contains(",keep,"), "{} {}", top.out, top.err);
    }
}

fn be(path: &Path, mode: u32, user: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    chown(path, Some(user), Some(user)).unwrap();
}

/// Returns how often a text occurs in another one.
fn count(text: &str, part: &str) -> usize {
    text.matches(part).count()
}

#[test]
fn a_worker_that_may_not_write_has_its_profile() {
    let Some(place) = Place::new() else { return };
    for how in ["exit", "kill"] {
        let name = format!("{how}.pb.gz");
        let (user, other) = (NOBODY.to_string(), OTHER.to_string());
        let said = place.record(&name, &[&user, how, &other, how]);
        let found = place.profiles(&format!("{how}.children"));
        assert_eq!(found.len(), 2, "{said}");
        for (owner, path) in &found {
            assert_eq!(*owner, 0, "{said}");
            place.must_have_names(path);
        }
        // One line for each profile gives the reason.
        for user in [NOBODY, OTHER] {
            let line = format!("ran as user {user}, who may not write there");
            assert_eq!(count(&said, &line), 1, "{said}");
        }
        assert_eq!(count(&said, "was written by record itself"), 2, "{said}");
        assert_eq!(said.lines().count(), 3, "{said}");
        let next = format!("next: heapprof top {how}.children/");
        assert_eq!(count(&said, &next), 1, "{said}");
    }
}

#[test]
fn a_program_that_may_not_write_itself_has_its_profile() {
    let Some(place) = Place::new() else { return };
    // The new profile replaces root's own earlier profile.
    std::fs::write(place.at("p.pb.gz"), "earlier").unwrap();
    let said = place.record("p.pb.gz", &["65534", "self exit"]);
    let path = place.at("p.pb.gz");
    assert_eq!(place.profiles("."), [(0, place.at("./p.pb.gz"))], "{said}");
    place.must_have_names(&path);
    assert!(
        said.contains(
            "p.pb.gz: shows the moment at which the program ended, and was written by record \
             itself, because the program ran as user 65534, who may not write there"
        ),
        "{said}"
    );
    assert!(said.contains("next: heapprof top p.pb.gz"), "{said}");
    assert_eq!(said.lines().count(), 2, "{said}");
}

/// The first worker creates the folder of the children. The profile of a worker of another user is
/// beside the program's.
#[test]
fn the_folder_of_the_children_may_be_another_worker_s() {
    let Some(place) = Place::new() else { return };
    place.folder("o", 0o1777, 0);
    let said = place.record("o/p.pb.gz", &["65534", "exit", "65533", "exit"]);
    let children = place.profiles("o/p.children");
    let owners = |found: &[(u32, PathBuf)]| found.iter().map(|one| one.0).collect::<Vec<_>>();
    assert_eq!(owners(&children), [NOBODY], "{said}");
    let beside = place.profiles("o");
    assert_eq!(owners(&beside), [0, 0], "{said}");
    let of_child = beside.iter().find(|one| !one.1.ends_with("p.pb.gz"));
    place.must_have_names(&of_child.unwrap().1);
    assert_eq!(count(&said, "ran as user 65533"), 1, "{said}");
    assert_eq!(said.lines().count(), 2, "{said}");
}

#[test]
fn nothing_is_written_where_the_worker_has_a_say() {
    let Some(place) = Place::new() else { return };
    // The folders are the worker's own one, with a folder of root in it, and one that every user
    // can change.
    for (name, mode, user) in [("its", 0o755, NOBODY), ("open", 0o777, 0)] {
        place.folder(name, mode, user);
        place.folder(&format!("{name}/p.children"), 0o755, 0);
        for how in ["exit", "kill"] {
            let out = format!("{name}/p.pb.gz");
            let said = place.record(&out, &["65534", how]);
            assert_eq!(place.profiles(&format!("{name}/p.children")), [], "{said}");
            assert_eq!(place.profiles(name), [(0, place.at(&out))], "{said}");
            let lost = "is lost: it ran as user 65534, who may not write in ";
            assert_eq!(count(&said, lost), 1, "{said}");
            let next = "-o DIR/%e.%p.pb.gz, with a DIR of mode 1777, keeps it";
            assert_eq!(count(&said, next), 1, "{said}");
            assert_eq!(said.lines().count(), 2, "{said}");
            place.folder(&format!("{name}/p.children"), 0o755, 0);
        }
    }
    // The advice of the message helps.
    place.folder("all", 0o1777, 0);
    let said = place.record("all/%e.%p.pb.gz", &["65534", "kill", "65533", "exit"]);
    let mut owners: Vec<u32> = place.profiles("all").iter().map(|one| one.0).collect();
    owners.sort_unstable();
    assert_eq!(owners, [0, OTHER, NOBODY], "{said}");
}

#[test]
fn a_small_worker_is_left_out() {
    let Some(place) = Place::new() else { return };
    for how in ["small exit", "small kill"] {
        let said = place.record("p.pb.gz", &["65534", how]);
        assert_eq!(place.profiles("p.children"), [], "{said}");
        assert!(
            said.contains("was left out: --keep-small keeps it"),
            "{said}"
        );
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}
