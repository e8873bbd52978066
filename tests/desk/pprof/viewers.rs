//! Graphs that another program shows: which file it gets, and that the file is gone afterwards. The
//! viewers and `dot` are little scripts, so the tests need neither a window nor Graphviz.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use heapprof_tests::harness::{command, sample_profiles};

/// A folder with programs that a test made. `PATH` consists of it.
struct ViewerDesktop {
    folder: tempfile::TempDir,
}

impl ViewerDesktop {
    /// Makes a desktop with a `dot` and these viewers.
    fn new(viewers: &[&str]) -> Self {
        let desktop = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        desktop.program("dot", "echo \"$1\"; exec /bin/cat");
        for viewer in viewers {
            desktop.program(
                viewer,
                "for file; do :; done; echo \"$0 $#\" > seen; echo \"$file\" >> seen; /bin/cat \
                 \"$file\" >> seen; /bin/ls -l \"$file\" >> seen",
            );
        }
        std::fs::create_dir(desktop.path("tmp")).unwrap();
        desktop
    }

    fn program(&self, name: &str, script: &str) {
        let path = self.path(name);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn pprof(&self, flags: &[&str]) -> Command {
        let mut pprof = command(self.folder.path());
        pprof
            .env("PATH", self.folder.path())
            .env("TMPDIR", self.path("tmp"))
            .env_remove("BROWSER")
            .env_remove("DISPLAY")
            .args(["pprof", "-symbolize=none"])
            .args(flags)
            .arg(sample_profiles().join("valid/go.leaky.after.pb.gz"));
        pprof
    }
}

fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).unwrap().next().is_none()
}

#[test]
fn each_viewer_gets_its_kind_of_file() {
    for (flag, viewer, words, extension, head) in [
        ("-gv", "gv", 2, ".ps", "-Tps\n"),
        ("-evince", "evince", 1, ".pdf", "-Tpdf\n"),
        ("-eog", "eog", 1, ".svg", "-Tsvg\n"),
        ("-web", "firefox", 1, ".svg", "-Tsvg\n"),
        ("-kcachegrind", "kcachegrind", 1, ".grind", "positions: "),
    ] {
        let desktop = ViewerDesktop::new(&[viewer]);
        let run = desktop.pprof(&[flag]).output().unwrap();
        let err = String::from_utf8_lossy(&run.stderr);
        assert!(run.status.success(), "{flag}: {err}");
        let seen = std::fs::read_to_string(desktop.path("seen")).unwrap();
        let mut lines = seen.splitn(3, '\n');
        let called = format!("{} {words}", desktop.path(viewer).display());
        assert_eq!(lines.next().unwrap(), called);
        let file = lines.next().unwrap();
        assert!(file.ends_with(&format!("pprof001{extension}")), "{file}");
        let content = lines.next().unwrap();
        assert!(content.starts_with(head), "{flag}: {content}");
        assert!(content.contains("\n-rw------- "), "{flag}: {content}");
        assert!(is_empty(&desktop.path("tmp")), "{flag}");
    }
}

#[test]
fn without_a_viewer_the_way_out_is_named() {
    let desktop = ViewerDesktop::new(&[]);
    let run = desktop.pprof(&["-gv"]).output().unwrap();
    assert_eq!(run.status.code(), Some(2));
    let err = String::from_utf8(run.stderr).unwrap();
    assert_eq!(
        err,
        "heapprof: -gv: no viewer is installed (looked for gv); write a file with -output\n"
    );
    assert!(is_empty(&desktop.path("tmp")));
}

/// As in pprof, a viewer neither writes to pprof's stdout nor reads the commands on its stdin.
#[test]
fn a_viewer_has_no_part_in_the_dialogue() {
    let desktop = ViewerDesktop::new(&[]);
    desktop.program("firefox", "echo shown; /bin/cat > read");
    for (flags, typed) in [(&["-web"][..], ""), (&[], "web\nquit\n")] {
        let mut pprof = desktop.pprof(flags);
        let pprof = pprof.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = pprof.stderr(Stdio::null()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(typed.as_bytes()).unwrap();
        drop(input);
        let out = child.wait_with_output().unwrap();
        assert!(out.status.success());
        let text = String::from_utf8(out.stdout).unwrap();
        assert!(!text.contains("shown"), "{text}");
        assert_eq!(std::fs::read_to_string(desktop.path("read")).unwrap(), "");
    }
}

#[test]
fn a_named_file_is_not_shown() {
    let desktop = ViewerDesktop::new(&["gv"]);
    let run = desktop.pprof(&["-gv", "-output=graph.ps"]).output();
    assert!(run.unwrap().status.success());
    let written = std::fs::read_to_string(desktop.path("graph.ps")).unwrap();
    assert!(written.starts_with("-Tps\n"), "{written}");
    assert!(!desktop.path("seen").exists());
}
