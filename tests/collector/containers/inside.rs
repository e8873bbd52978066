//! heapprof inside a slim container: no shell, no home, no entry for the user, little or nothing to
//! write to, and no folder from which the loader may load a library.

use std::process::Command;

use heapprof_tests::executables::copy_program;
use heapprof_tests::harness::{Run, heapprof, is_root};
use heapprof_tests::needs;

use super::TestContainer;

/// The program in the container.
const PROGRAM: &str = "/app/hold";
/// User id of a user that has no entry anywhere.
const NOBODY: &str = "65533";

impl TestContainer {
    /// Makes a container in which heapprof can run.
    fn with_heapprof() -> Option<Self> {
        let container = Self::new()?;
        container.copy_libraries(heapprof());
        // A tmpfs at /tmp hides what lies below it.
        let app = container.in_root("app");
        std::fs::create_dir(&app).unwrap();
        for name in ["hold", "libkeep.so"] {
            let inside = container.app(name);
            let from = container.in_root(inside.trim_start_matches('/'));
            copy_program(&from, &app.join(name));
        }
        Some(container)
    }

    /// Returns a command that runs heapprof in the container, with an empty environment.
    fn heapprof(&self, ways: &str, words: &[&str]) -> Command {
        let mut command = self.contain(ways, "/bin/heapprof", words);
        command.env_clear().env("CONTAIN_BIND", heapprof());
        command
    }

    fn record_inside(&self, ways: &str, output: &str, user: Option<&str>) -> Run {
        let words = ["record", "--exact", "-o", output, "--", PROGRAM, "once"];
        let mut command = self.heapprof(ways, &words);
        command.envs(user.map(|user| ("CONTAIN_USER", user)));
        Run::from(command.output().unwrap())
    }
}

#[test]
fn a_slim_container_records_its_programs() {
    let Some(container) = TestContainer::with_heapprof() else {
        return;
    };
    for (ways, output) in [
        ("p", "/tmp/p.pb.gz"),
        ("", "/tmp/p.pb.gz"),
        // There is no folder from which code may be loaded.
        ("prts", "/tmp/p.pb.gz"),
        ("prs", "/dev/shm/p.pb.gz"),
    ] {
        for user in [None, Some(NOBODY)] {
            if user.is_some() && !is_root() {
                needs::cannot("root, who becomes another user");
                continue;
            }
            let said = container.record_inside(ways, output, user);
            let what = format!("{ways} {user:?}: {}", said.err);
            assert_eq!((said.code, &*said.out), (3, "ready\n"), "{what}");
            assert!(said.err.contains("in use at the end"), "{what}");
            let written = container.in_root("tmp/p.pb.gz");
            if written.exists() {
                container.must_have_lines(written.to_str().unwrap(), 1000);
                std::fs::remove_file(written).unwrap();
            }
        }
    }
}

/// One line says what is missing and what helps.
#[test]
fn a_container_where_nothing_can_be_written_is_said() {
    let Some(container) = TestContainer::with_heapprof() else {
        return;
    };
    let said = container.record_inside("pr", "/tmp/p.pb.gz", None);
    assert_eq!(said.code, 2, "{}", said.err);
    assert_eq!(said.err.lines().count(), 1, "{}", said.err);
    assert!(said.err.contains("set TMPDIR"), "{}", said.err);
    let said = container.record_inside("prts", "/p.pb.gz", None);
    assert!(said.err.contains("/p.pb.gz"), "{}", said.err);
    let last = said.err.lines().last().unwrap_or_default();
    assert!(last.contains("Read-only file system"), "{}", said.err);
}
