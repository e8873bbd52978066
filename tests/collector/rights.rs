//! Programs that give up rights and end before `record` has read anything. In no mode does `record`
//! use their former rights to open the files that they name, or to write their profiles.
//!
//! `HEAPPROF_ROUNDS=2000 cargo test -p heapprof-tests -- --ignored rights::` runs every combination
//! repeatedly.

use std::fs::{FileTimes, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use heapprof_tests::built::{build, have};
use heapprof_tests::executables::copy_program;
use heapprof_tests::harness::{command, is_root};
use heapprof_tests::needs;

/// User id of a user that is not root.
const NOBODY: u32 = 65534;
/// Ways to give up rights after which the process is [`NOBODY`]. After those of [`STAYS`], it is
/// still root.
const BECOMES: [&str; 5] = ["uid", "resuid", "euid", "syscall", "bare"];
const STAYS: [&str; 3] = ["userns", "caps", "barecaps"];
/// The modes of reading of `record`, with their options.
const MODES: [(&str, &[&str]); 4] = [
    ("profile", &["--period", "256"]),
    ("log", &["--exact", "--log", "log"]),
    ("live", &["--period", "256", "--live"]),
    ("lines", &["--exact", "--follow-lines=64KiB"]),
];
/// Longest time to wait for a condition that must come.
const LIMIT: Duration = Duration::from_secs(300);

/// One run of a program under `record`.
#[derive(Clone, Copy, Debug)]
struct Round {
    how: &'static str,
    /// Whether a child of the program gives up the rights, and the program reaps it.
    in_child: bool,
    /// Whether `record` reads nothing before the process has ended.
    is_late: bool,
    mode: (&'static str, &'static [&'static str]),
}

/// The folder in which the programs run.
struct Place {
    folder: tempfile::TempDir,
    program: PathBuf,
    /// A file that only root can open.
    file: PathBuf,
}

impl Place {
    fn new() -> Option<Self> {
        if !is_root() || !have(&["gcc"]) {
            return None;
        }
        let built = build(include_str!("trust/drops.c"), "gcc -g -O1");
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let be = |path: &Path, mode| {
            std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        };
        copy_program(&built.program, &at("drops"));
        std::fs::create_dir(at("secret")).unwrap();
        let source = "#include <stdlib.h>\nvoid *volatile kept;\n";
        let function = "void keep_there(void) { kept = malloc(1000); }\n";
        std::fs::write(at("secret/keep.c"), [source, function].concat()).unwrap();
        let file = at("secret/libkeep.so");
        let made = Command::new("gcc")
            .args(["-g", "-O1", "-shared", "-fPIC", "-o"])
            .args([&file, &at("secret/keep.c")])
            .status();
        assert!(made.unwrap().success());
        be(folder.path(), 0o755);
        be(&at("drops"), 0o755);
        be(&at("secret"), 0o700);
        be(&file, 0o600);
        let program = at("drops");
        Some(Self {
            folder,
            program,
            file,
        })
    }

    /// Resets the access time of the file, so that a later read changes it. Returns the new access
    /// time.
    fn forget_reads(&self) -> SystemTime {
        let before = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let file = std::fs::File::open(&self.file).unwrap();
        file.set_times(FileTimes::new().set_accessed(before))
            .unwrap();
        before
    }

    /// Whether the file was read since its access time was `before`.
    fn was_read(&self, before: SystemTime) -> bool {
        self.file.metadata().unwrap().accessed().unwrap() != before
    }

    /// Runs a round in a folder where every user may write. Returns whether `record` read the file,
    /// the owners and modes of the profiles, and the messages.
    fn run(&self, round: Round) -> (bool, Vec<(u32, u32)>, String) {
        self.run_in(round, 0o1777)
    }

    /// Runs a round like [`run`](Self::run), in a folder of root with this mode.
    fn run_in(&self, round: Round, mode: u32) -> (bool, Vec<(u32, u32)>, String) {
        let out = self.folder.path().join("out");
        let _ = std::fs::remove_dir_all(&out);
        std::fs::create_dir(&out).unwrap();
        std::fs::set_permissions(&out, Permissions::from_mode(mode)).unwrap();
        let (what, options) = round.mode;
        let mut record = command(&out);
        record.args(["record", "--keep-small", "-o", "%e.%p.pb.gz"]);
        record.args(options).arg("--").arg(&self.program);
        record.arg(round.how);
        record.arg(if round.in_child { "child" } else { "own" });
        record.arg(if round.is_late { "late" } else { "any" });
        record.arg(&self.file).arg(what);
        record
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut before = self.forget_reads();
        let child = record.spawn().unwrap();
        if round.is_late {
            wait_until(&format!("{round:?}"), || has_ended_under(child.id()));
            before = self.forget_reads();
            let number = child.id().to_string();
            assert!(
                Command::new("kill")
                    .args(["-CONT", &number])
                    .status()
                    .unwrap()
                    .success()
            );
        }
        let ended = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(0), "{round:?}: {said}");
        let profiles = std::fs::read_dir(&out).unwrap().filter_map(|entry| {
            let entry = entry.unwrap();
            let found = entry.metadata().unwrap();
            let is_profile = entry.file_name().to_string_lossy().ends_with(".pb.gz");
            is_profile.then(|| (found.uid(), found.mode() & 0o777))
        });
        let was_read = self.was_read(before);
        (was_read, profiles.collect(), said)
    }

    /// Runs a round in which rights are given up, and checks the result.
    fn check(&self, round: Round) {
        let (was_read, profiles, said) = self.run(round);
        assert!(!was_read, "{round:?}: {said}");
        assert!(
            profiles.iter().all(|(_, mode)| *mode == 0o600),
            "{round:?}: {profiles:?}"
        );
        let of_nobody = profiles.iter().filter(|(user, _)| *user == NOBODY).count();
        match STAYS.contains(&round.how) {
            true => assert_eq!(of_nobody, 0, "{round:?}: {profiles:?} {said}"),
            // In these cases, the kernel or the library reports the user of the process.
            false if !round.in_child || round.how == "uid" => {
                assert_eq!(of_nobody, 1, "{round:?}: {profiles:?} {said}");
            }
            false => {}
        }
    }
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < LIMIT, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Whether a `record` is stopped, and its program has ended.
fn has_ended_under(record: u32) -> bool {
    let state = |pid: u32| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let rest = text.rsplit(')').next().unwrap_or_default().trim_start();
        rest.chars().next()
    };
    let children = format!("/proc/{record}/task/{record}/children");
    let children = std::fs::read_to_string(children).unwrap_or_default();
    let mut children = children
        .split_whitespace()
        .filter_map(|word| word.parse::<u32>().ok());
    state(record) == Some('T') && children.any(|child| state(child) == Some('Z'))
}

/// Returns all possible combinations.
fn rounds() -> Vec<Round> {
    let mut rounds = Vec::new();
    let is_possible = |how: &&str| *how != "userns" || needs::namespaces(&["-U"]);
    for how in BECOMES.into_iter().chain(STAYS).filter(is_possible) {
        for in_child in [false, true] {
            for is_late in [true, false] {
                for mode in MODES {
                    rounds.push(Round {
                        how,
                        in_child,
                        is_late,
                        mode,
                    });
                }
            }
        }
    }
    rounds
}

/// For a process that keeps its rights, `record` reads the file. So a read is detected.
#[test]
fn a_process_that_keeps_its_rights_has_its_names() {
    let Some(place) = Place::new() else { return };
    for mode in MODES {
        let round = Round {
            how: "none",
            in_child: false,
            is_late: true,
            mode,
        };
        let (was_read, profiles, said) = place.run(round);
        assert!(was_read, "{round:?}: {said}");
        assert_eq!(profiles, [(0, 0o600)], "{round:?}: {said}");
    }
}

#[test]
fn nothing_is_opened_for_a_process_that_gave_up_its_rights() {
    let Some(place) = Place::new() else { return };
    // Each way is combined with each mode in one of four cases.
    let all = rounds().into_iter().enumerate();
    let some = all.filter(|(number, _)| number % 4 == number / 8 % 4);
    some.for_each(|(_, round)| place.check(round));
}

/// In a folder where only root may write, the profile belongs to `record`, and has only the names
/// that the process could have read.
#[test]
fn a_profile_that_record_writes_itself_has_no_more_names() {
    let Some(place) = Place::new() else { return };
    for how in BECOMES {
        for is_late in [true, false] {
            let round = Round {
                how,
                in_child: false,
                is_late,
                mode: MODES[0],
            };
            let (was_read, profiles, said) = place.run_in(round, 0o755);
            assert!(!was_read, "{round:?}: {said}");
            assert_eq!(profiles, [(0, 0o600)], "{round:?}: {said}");
        }
    }
}

#[test]
#[ignore = "takes long"]
fn nothing_is_opened_in_any_of_many_rounds() {
    let Some(place) = Place::new() else { return };
    let count = std::env::var("HEAPPROF_ROUNDS").ok();
    let count = count.map_or(2000, |count| count.parse().unwrap());
    let all = rounds();
    for round in all.iter().cycle().take(count) {
        place.check(*round);
    }
}
