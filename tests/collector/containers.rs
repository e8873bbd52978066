//! Programs in containers: namespaces with a root folder of their own, which these tests make.
//! Programs in them are recorded and attached to from the host, and heapprof runs inside one. The
//! host has other files at the paths of the container's files, whose names must not appear.

mod beside;
mod inside;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};

use heapprof_tests::built::{Built, build, have};
use heapprof_tests::harness::{Run, command, is_root, run};
use heapprof_tests::needs;

/// The functions that allocate, with the file and the line of each.
const LINES: [(&str, &str, &str); 2] = [
    ("keep_order", "hold.c", "14"),
    ("keep_in_library", "keep.c", "6"),
];

/// A root folder with a program, its library and libc.
struct TestContainer {
    /// The folder with `contain`, and with other files at the paths of the program and its library.
    built: Built,
    root: tempfile::TempDir,
    /// The folder in which heapprof runs.
    folder: tempfile::TempDir,
}

impl TestContainer {
    /// Makes a container; `None` where no namespace can be made, or there is no compiler.
    fn new() -> Option<Self> {
        if !have(&["gcc"]) {
            return None;
        }
        let built = build(include_str!("containers/contain.c"), "gcc -O1 -g -w");
        let (root, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let new = Self {
            built,
            root,
            folder,
        };
        for name in ["proc", "tmp", "dev/shm", "bin", "lib64", "etc"] {
            std::fs::create_dir_all(new.in_root(name)).unwrap();
        }
        std::fs::write(new.in_root("bin/heapprof"), "").unwrap();
        // Any user may be in the container.
        for path in [new.root.path(), new.built.folder.path()] {
            std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
        }
        std::fs::set_permissions(new.in_root("tmp"), PermissionsExt::from_mode(0o1777)).unwrap();
        new.copy_libraries(&new.built.program);
        new.make_program();
        let probe = new.bare("", &new.app("hold"), &["once"]);
        if probe.code != 3 {
            needs::cannot("namespaces of mounts and users");
            return None;
        }
        Some(new)
    }

    fn in_root(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Returns the path of a file of the program, which is the same in the container and outside.
    fn app(&self, name: &str) -> String {
        self.built.path(name).display().to_string()
    }

    /// Copies the loader and the libraries of a program of the host into the container.
    fn copy_libraries(&self, program: &Path) {
        let listed = Command::new("ldd").arg(program).output().unwrap();
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        let words = listed.split_whitespace();
        for path in words.filter(|word| word.starts_with('/')) {
            let to = self.in_root(path.trim_start_matches('/'));
            std::fs::create_dir_all(to.parent().unwrap()).unwrap();
            std::fs::copy(path, to).unwrap();
        }
    }

    /// Builds the program and its library in the container, and others at their paths outside.
    fn make_program(&self) {
        let inside = self.in_root(
            self.built
                .folder
                .path()
                .strip_prefix("/")
                .unwrap()
                .to_str()
                .unwrap(),
        );
        std::fs::create_dir_all(&inside).unwrap();
        std::fs::set_permissions(&inside, PermissionsExt::from_mode(0o755)).unwrap();
        let sources = [
            ("keep.c", include_str!("containers/keep.c")),
            ("hold.c", include_str!("containers/hold.c")),
        ];
        for (name, source) in sources {
            std::fs::write(self.built.path(name), source).unwrap();
            let other = source
                .replace("keep_", "other_")
                .replace("int i = 0", "int i = 1");
            std::fs::write(self.built.path(&format!("other_{name}")), other).unwrap();
        }
        let here = self.built.folder.path().display();
        for (prefix, to) in [("", &*inside), ("other_", self.built.folder.path())] {
            let to = to.display();
            let compile = "gcc -O1 -g -w -Wl,--build-id";
            self.built.run(&format!(
                "{compile} -shared -fPIC {prefix}keep.c -o {to}/libkeep.so"
            ));
            self.built.run(&format!(
                "{compile} {prefix}hold.c -o {to}/hold -L{to} -lkeep -Wl,-rpath,{here}:$ORIGIN"
            ));
        }
    }

    /// Returns a command that runs a program in the container.
    fn contain(&self, ways: &str, program: &str, words: &[&str]) -> Command {
        let mut command = Command::new(&self.built.program);
        command.args(self.words(ways, program, words));
        command
    }

    /// Returns the arguments of `contain`.
    fn words(&self, ways: &str, program: &str, words: &[&str]) -> Vec<String> {
        let ways = if is_root() {
            ways.to_string()
        } else {
            format!("{ways}u")
        };
        let root = self.root.path().display().to_string();
        let words = words.iter().map(|word| word.to_string());
        [ways, root, program.to_string()]
            .into_iter()
            .chain(words)
            .collect()
    }

    /// Runs a program in the container without heapprof.
    fn bare(&self, ways: &str, program: &str, words: &[&str]) -> Run {
        let mut command = self.contain(ways, program, words);
        Run::from(command.current_dir(self.folder.path()).output().unwrap())
    }

    /// Runs the container under `record`, with the profile p.pb.gz.
    fn recorded(&self, ways: &str, words: &[&str]) -> Run {
        let mut record = command(self.folder.path());
        record.args(["record", "--exact", "-o", "p.pb.gz", "--"]);
        record.arg(&self.built.program);
        record.args(self.words(ways, &self.app("hold"), words));
        Run::from(record.output().unwrap())
    }

    /// Returns the paths of all files in the container.
    fn files(&self) -> BTreeSet<PathBuf> {
        let (mut all, mut folders) = (BTreeSet::new(), vec![self.root.path().to_path_buf()]);
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() && !path.is_symlink() {
                    folders.push(path.clone());
                }
                all.insert(path);
            }
        }
        all
    }

    /// Checks that a profile has the program's functions and lines, each with `count` blocks.
    fn must_have_lines(&self, profile: &str, count: usize) {
        let words = [
            "top",
            "-g",
            "lines",
            "-t",
            "alloc_objects",
            "-f",
            "csv",
            profile,
        ];
        let top = run(self.folder.path(), &words);
        for (function, file, line) in LINES {
            let mut rows = top
                .out
                .lines()
                .map(|row| row.split(',').collect::<Vec<_>>());
            let row = rows.find(|row| row.get(2) == Some(&function));
            let row = row.unwrap_or_else(|| panic!("{function}: {}{}", top.out, top.err));
            assert!(row[3].ends_with(file) && row[4] == line, "{row:?}");
            assert_eq!(row[0], count.to_string(), "{row:?}");
        }
        assert!(!top.out.contains("other_"), "{}", top.out);
    }

    /// Returns the profiles of the children.
    fn of_children(&self) -> Vec<String> {
        let folder = self.folder.path().join("p.children");
        let found = std::fs::read_dir(folder).into_iter().flatten();
        let paths = found.map(|entry| entry.unwrap().path().display().to_string());
        paths.collect()
    }
}

/// Returns what the program and `contain` printed to stderr, without the lines of heapprof.
fn own_errors(run: &Run) -> String {
    let lines = run.err.lines();
    let own = lines.filter(|line| !line.starts_with("heapprof: "));
    own.collect::<Vec<_>>().join("\n")
}

/// A program that runs in a container, and waits for lines on its input.
struct WaitingProgram {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    errors: BufReader<ChildStderr>,
    pid: String,
}

impl WaitingProgram {
    fn new(container: &TestContainer, ways: &str) -> Self {
        let ways = format!("{ways}w");
        let command = container.contain(&ways, &container.app("hold"), &[]);
        let mut program = Self::start(command);
        // The process itself, and not the one that made its namespaces.
        let mut pid = String::new();
        program.errors.read_line(&mut pid).unwrap();
        program.pid = pid.trim().to_string();
        program
    }

    /// Starts a program, and waits until it is ready.
    fn start(mut command: Command) -> Self {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let errors = BufReader::new(child.stderr.take().unwrap());
        let mut ready = String::new();
        output.read_line(&mut ready).unwrap();
        assert_eq!(ready, "ready\n");
        Self {
            pid: child.id().to_string(),
            child,
            input,
            output,
            errors,
        }
    }

    fn work(&mut self) {
        self.input.write_all(b"\n").unwrap();
        let mut said = String::new();
        self.output.read_line(&mut said).unwrap();
        assert_eq!(said, "done\n");
    }
}

impl Drop for WaitingProgram {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-KILL", &self.pid]).status();
        let _ = self.child.wait();
    }
}

/// A program that `record` starts in a container is recorded there, and nothing is left behind.
#[test]
fn a_container_that_record_starts_is_recorded() {
    let Some(container) = TestContainer::new() else {
        return;
    };
    let before = container.files();
    for ways in ["", "p", "r", "pr"] {
        let said = container.recorded(ways, &["once"]);
        assert_eq!(
            (said.code, &*said.out),
            (3, "ready\n"),
            "{ways}: {}",
            said.err
        );
        assert_eq!(own_errors(&said), "", "{ways}");
        assert!(!said.err.contains("not recorded"), "{ways}: {}", said.err);
        // With process ids of its own, the program is a child of the process that made them.
        let profiles = match ways.contains('p') {
            true => container.of_children(),
            false => vec!["p.pb.gz".to_string()],
        };
        assert_eq!(profiles.len(), 1, "{ways}: {profiles:?} {}", said.err);
        container.must_have_lines(&profiles[0], 1000);
        assert_eq!(container.files(), before, "{ways}");
        let _ = std::fs::remove_dir_all(container.folder.path().join("p.children"));
    }
}

/// Programs that a program in the container executes are recorded, too.
#[test]
fn children_in_a_container_are_recorded() {
    let Some(container) = TestContainer::new() else {
        return;
    };
    let said = container.recorded("p", &["again"]);
    assert_eq!(
        (said.code, &*said.out),
        (3, "ready\nready\nready\n"),
        "{}",
        said.err
    );
    assert_eq!(own_errors(&said), "");
    let profiles = container.of_children();
    assert_eq!(profiles.len(), 3, "{profiles:?} {}", said.err);
    for profile in &profiles {
        container.must_have_lines(profile, 1000);
    }
}

/// Where the library can't be reached, the program runs as by itself, and `record` says why it is
/// not recorded.
#[test]
fn a_container_without_proc_is_said() {
    let Some(container) = TestContainer::new() else {
        return;
    };
    let ways: &[&str] = if is_root() {
        &["c", "n", "pn"]
    } else {
        &["n", "pn"]
    };
    for ways in ways {
        let bare = container.bare(ways, &container.app("hold"), &["again"]);
        let said = container.recorded(ways, &["again"]);
        assert_eq!(
            (said.code, &said.out),
            (bare.code, &bare.out),
            "{ways}: {}",
            said.err
        );
        assert_eq!(own_errors(&said), "", "{ways}");
        let reason = "was not recorded: libheapprof.so can't be reached from its root folder";
        let reason = format!("; {} {reason}", container.app("hold"));
        assert!(said.err.contains(&reason), "{ways}: {}", said.err);
    }
}

#[test]
fn programs_in_containers_are_attached_to() {
    let Some(container) = TestContainer::new() else {
        return;
    };
    let before = container.files();
    for ways in ["", "p", "pr"] {
        let mut program = WaitingProgram::new(&container, ways);
        let mut attach = command(container.folder.path());
        attach.args(["attach", "--exact", "-o", "p.pb.gz", &program.pid]);
        let mut attach = attach.stderr(Stdio::piped()).spawn().unwrap();
        let mut errors = BufReader::new(attach.stderr.take().unwrap());
        let mut said = String::new();
        errors.read_line(&mut said).unwrap();
        assert!(
            said.contains("recording every allocation"),
            "{ways}: {said}"
        );
        program.work();
        // Each name leads to the process: its number and its name outside.
        container.must_have_lines(&format!("pid:{}", program.pid), 1000);
        let stop = run(container.folder.path(), &["attach", "--stop", &program.pid]);
        assert_eq!(stop.code, 0, "{}", stop.err);
        assert!(attach.wait().unwrap().success());
        container.must_have_lines("p.pb.gz", 1000);
        let info = run(container.folder.path(), &["info", "p.pb.gz"]).out;
        assert!(info.contains(&format!("pid: {}", program.pid)), "{info}");
        assert_eq!(container.files(), before, "{ways}");
        program.work();
    }
}

/// `why` names the variable of the container's program, and not that of the host's.
#[test]
fn why_names_the_memory_of_programs_in_containers() {
    let Some(container) = TestContainer::new() else {
        return;
    };
    let ways: &[&str] = if is_root() {
        &["", "p", "c"]
    } else {
        &["", "p"]
    };
    for ways in ways {
        let program = WaitingProgram::new(&container, ways);
        let why = run(container.folder.path(), &["why", &program.pid]);
        assert_eq!(why.code, 0, "{ways}: {}", why.err);
        let has_name = why
            .out
            .lines()
            .any(|line| line.contains(" kept ") && line.contains("hold"));
        assert!(has_name, "{ways}: {}{}", why.out, why.err);
    }
}

#[test]
fn attach_says_that_there_is_no_proc() {
    let Some(container) = TestContainer::new() else {
        return;
    };
    let mut program = WaitingProgram::new(&container, "n");
    let said = run(
        container.folder.path(),
        &["attach", "--exact", &program.pid],
    );
    assert_eq!(said.code, 2, "{}", said.err);
    assert!(
        said.err.contains("there is no /proc in its root folder"),
        "{}",
        said.err
    );
    program.work();
}
