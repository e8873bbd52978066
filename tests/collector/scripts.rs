//! Perl subs and lines, compared with the results of `caller`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use heapprof_profile::{Profile, decode};
use heapprof_tests::built::have;
use heapprof_tests::harness::{Run, command, preloaded, root, run};
use heapprof_tests::needs;

use crate::perl_arenas::check_census;

/// A frame: its function, its file and its line.
pub(crate) type Frame = (String, String, i64);

/// A sample: its frames, innermost first, its labels, and the allocated objects and bytes.
#[derive(Debug)]
pub(crate) struct Sample {
    pub(crate) frames: Vec<Frame>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) allocated: [i64; 2],
}

pub(crate) fn read(path: &Path) -> Profile {
    decode(std::fs::File::open(path).unwrap()).unwrap()
}

pub(crate) fn samples(profile: &Profile) -> Vec<Sample> {
    let text = |id| profile.text(id).to_string();
    let column = |name| profile.find_sample_type(name).unwrap();
    let (objects, bytes) = (column("alloc_objects"), column("alloc_space"));
    (0..profile.samples.len())
        .map(|i| {
            let mut frames = Vec::new();
            for &location in profile.samples.stack(i) {
                let location = &profile.location[location.index()];
                let lines = profile.lines(location);
                if lines.is_empty() {
                    frames.push((String::new(), String::new(), 0));
                }
                for line in lines {
                    let function = &profile.function[line.function.index()];
                    frames.push((text(function.name), text(function.filename), line.line));
                }
            }
            let labels = profile.label_sets.get(profile.samples.label_set(i));
            let values = profile.samples.values(i);
            Sample {
                frames,
                labels: labels.iter().map(|l| (text(l.key), text(l.str))).collect(),
                allocated: [values[objects], values[bytes]],
            }
        })
        .collect()
}

pub(crate) fn comments(profile: &Profile) -> Vec<&str> {
    profile.comment.iter().map(|&id| profile.text(id)).collect()
}

pub(crate) fn program(name: &str) -> String {
    root().join("tests/perl").join(name).display().to_string()
}

/// Whether a perl with threads is installed.
pub(crate) fn has_threads() -> bool {
    let mut check = Command::new("perl");
    have(&["perl"])
        && check
            .args(["-Mthreads", "-e1"])
            .status()
            .is_ok_and(|s| s.success())
}

/// Writes the files that constructs.pl requires and runs.
pub(crate) fn files(folder: &Path) {
    let body = "main::further($main::for_file);\n1;\n";
    for i in 0..3 {
        let lines = "\n".repeat(i);
        let text = format!("package Used{i};\nsub name {{ 1 }}\n{lines}{body}");
        std::fs::write(folder.join(format!("Used{i}.pm")), text).unwrap();
    }
    std::fs::write(folder.join("done.pl"), format!("\n{body}")).unwrap();
}

/// Frames of ours for which `caller` has no name.
const BESIDES: &[&str] = &[
    "(tie)",
    "(sort)",
    "(signal)",
    "(overload)",
    "(DESTROY)",
    "(warn handler)",
    "(die handler)",
    "(multicall)",
    "(regular expression)",
    "(callback)",
    "(compile)",
];

/// Compares the allocations that constructs.pl wrote to `said` with a profile. Returns their
/// number.
pub(crate) fn compare(said: &Path, profile: &Path) -> usize {
    let source = std::fs::read_to_string(program("constructs.pl")).unwrap();
    let line = source
        .lines()
        .position(|line| line.contains("# the allocation"));
    let line = line.unwrap() as i64 + 1;
    // For each stack, the number of allocations and the requested bytes.
    let mut wanted = BTreeMap::<Vec<Frame>, [i64; 2]>::new();
    let text = std::fs::read_to_string(said).unwrap();
    for mark in text.lines() {
        let mut parts = mark.split('\t');
        let size: i64 = parts.next().unwrap().parse().unwrap();
        let mut stack = Vec::new();
        let (mut file, mut at) = (String::new(), 0);
        for (i, frame) in parts.enumerate() {
            let frame: Vec<&str> = frame.split('|').collect();
            let name = match frame[0] {
                "string" => "(eval string)".to_string(),
                "block" => "(eval block)".to_string(),
                "format" => format!("{} (format)", frame[1]),
                "file" => format!("file {}", frame[1]),
                _ => frame[1].to_string(),
            };
            // The innermost frame is the sub that allocates.
            if i > 0 {
                stack.push((name, file, at));
            }
            (file, at) = (frame[2].to_string(), frame[3].parse().unwrap());
        }
        stack.push(("(main)".to_string(), file, at));
        let sums = wanted.entry(stack).or_default();
        *sums = [sums[0] + 1, sums[1] + size];
    }
    let mut found = BTreeMap::<Vec<Frame>, [i64; 2]>::new();
    for sample in samples(&read(profile)) {
        let is_mark = sample
            .frames
            .first()
            .is_some_and(|f| f.0 == "main::mark" && f.2 == line);
        if !is_mark || sample.labels.get("op").is_none_or(|op| op != "sassign") {
            continue;
        }
        let frames = sample.frames.into_iter().skip(1);
        let stack = frames.filter(|f| !BESIDES.contains(&f.0.as_str()));
        let stack = stack.map(|(name, file, line)| {
            let file_name = name.strip_prefix("require ").or(name.strip_prefix("do "));
            let name = file_name.map_or(name.clone(), |file| format!("file {file}"));
            (name, file, line)
        });
        let sums = found.entry(stack.collect()).or_default();
        *sums = [0, 1].map(|i| sums[i] + sample.allocated[i]);
    }
    let marks: i64 = wanted.values().map(|sums| sums[0]).sum();
    for (stack, [count, bytes]) in &wanted {
        let got = found.remove(stack).unwrap_or_default();
        // Perl first allocates a small block, then grows it to the needed size and a zero byte. The
        // small block has 16 bytes up to 5.40, and more since.
        let more = [18, 24].map(|each| [2 * count, bytes + each * count]);
        assert!(more.contains(&got), "{got:?}, {more:?}: {stack:#?}");
    }
    assert!(found.is_empty(), "{found:#?}");
    marks as usize
}

/// Records constructs.pl with these options, and returns the folder.
fn constructs(options: &[&str], rounds: &str, environment: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    files(folder.path());
    let script = program("constructs.pl");
    let program = ["perl", &script, rounds, "12"];
    let args = [
        &["record", "--perl-evals=numbered", "-o", "p.pb.gz"],
        options,
        &program,
    ]
    .concat();
    let done: Run = command(folder.path())
        .args(args)
        .env("SAID", folder.path().join("said"))
        .env("FILES", folder.path())
        .envs(environment.iter().copied())
        .output()
        .unwrap()
        .into();
    assert_eq!(done.code, 0, "{}", done.err);
    assert!(!done.err.contains("native frames only"), "{}", done.err);
    folder
}

#[test]
fn stacks_are_what_caller_says() {
    if !have(&["perl"]) {
        return;
    }
    let folder = constructs(&["--exact"], "3000", &[("WITH_FORK", "1")]);
    let path = |name: &str| folder.path().join(name);
    assert!(compare(&path("said"), &path("p.pb.gz")) > 3000);
    let children = std::fs::read_dir(path("p.children")).unwrap();
    let mut children: Vec<_> = children.map(|entry| entry.unwrap().path()).collect();
    children.sort();
    assert_eq!(children.len(), 2);
    for (i, child) in children.iter().enumerate() {
        assert!(compare(&path(&format!("said.{}", i + 1)), child) > 3000);
    }
}

/// The perls of other Debian releases, in roots made by `oracle/fetch-perls.sh`: stacks equal those
/// of `caller`, and every second stack equals that of the release's own `Perl_caller_cx`.
#[test]
#[ignore = "needs root, and HEAPPROF_PERLS with what oracle/fetch-perls.sh makes"]
fn perls_of_other_releases() {
    let roots = std::env::var_os("HEAPPROF_PERLS").expect("HEAPPROF_PERLS is not set");
    let (mut perls, mut marks) = (0, 0);
    for root in std::fs::read_dir(roots).unwrap() {
        let root = root.unwrap().path();
        if root.join("usr/bin/perl").exists() {
            let compared = of_release(&root);
            eprintln!("{}: {compared} allocations", root.display());
            perls += 1;
            marks += compared;
        }
    }
    assert!(
        perls >= 3 && marks > 30_000,
        "{perls} perls, {marks} allocations"
    );
}

/// Runs constructs.pl with the perl of a root, and a script that keeps values. Returns the number
/// of compared allocations.
fn of_release(release: &Path) -> usize {
    let what = release.display();
    let work = release.join("tmp/heapprof");
    let (profiles, reported) = run_in(release, "constructs.pl", &["3000", "12"]);
    assert_eq!(profiles.len(), 3, "{what}: {reported}");
    let said = ["said", "said.1", "said.2"];
    let each = said.iter().zip(&profiles);
    let compared = each.map(|(said, profile)| compare(&work.join(said), profile));
    let compared = compared.sum();
    let (profiles, reported) = run_in(release, "arenas.pl", &[]);
    assert_eq!(profiles.len(), 1, "{what}: {reported}");
    check_census(&read(&profiles[0]), &what.to_string());
    compared
}

/// Runs a script with the perl of a root. Returns the profiles, the parent's first, and the
/// messages.
fn run_in(release: &Path, script: &str, arguments: &[&str]) -> (Vec<PathBuf>, String) {
    let work = release.join("tmp/heapprof");
    let _ = std::fs::remove_dir_all(&work);
    std::fs::create_dir_all(&work).unwrap();
    files(&work);
    let library = run(&work, &["preload-path"]).out;
    std::fs::copy(library.trim(), work.join("libheapprof.so")).unwrap();
    std::fs::copy(program(script), work.join(script)).unwrap();
    let run = |mut perl: Command, work: &str| {
        perl.arg(format!("{work}/{script}"))
            .args(arguments)
            .env("SAID", format!("{work}/said"))
            .env("FILES", work)
            .env("WITH_FORK", "1")
            .env("HEAPPROF_OUTPUT", format!("{work}/p.pb.gz"))
            .env("HEAPPROF_MODE", "exact")
            .env("HEAPPROF_PERL_EVALS", "numbered")
            .output()
            .unwrap()
    };
    let mut entered = Command::new("chroot");
    entered
        .arg(release)
        .args(["/lib64/ld-linux-x86-64.so.2", "--preload"]);
    entered.args(["/tmp/heapprof/libheapprof.so", "/usr/bin/perl"]);
    let mut done = run(entered, "/tmp/heapprof");
    let mut reported = String::from_utf8_lossy(&done.stderr).into_owned();
    if reported.contains("version `GLIBC_") {
        // The library needs a newer libc than the release has.
        let mut folders = Vec::new();
        for base in ["usr/share/perl", "usr/lib/x86_64-linux-gnu/perl"] {
            let found = std::fs::read_dir(release.join(base)).into_iter().flatten();
            folders.extend(found.map(|folder| folder.unwrap().path()));
        }
        folders.push(release.join("usr/lib/x86_64-linux-gnu/perl-base"));
        let mut perl = Command::new(release.join("usr/bin/perl"));
        perl.env("PERL5LIB", std::env::join_paths(folders).unwrap());
        perl.env("LD_PRELOAD", work.join("libheapprof.so"));
        done = run(perl, &work.display().to_string());
        reported = String::from_utf8_lossy(&done.stderr).into_owned();
    }
    assert!(done.status.success(), "{}: {reported}", release.display());
    let profiles = std::fs::read_dir(&work)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut profiles: Vec<_> = profiles
        .filter(|path| path.to_string_lossy().ends_with(".pb.gz"))
        .collect();
    // The parent's profile is the first one.
    profiles.sort_by_key(|path| (path.as_os_str().len(), path.clone()));
    (profiles, reported)
}

#[test]
fn threads_have_their_own_stacks() {
    if !has_threads() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let script = program("threads.pl");
    let args = ["record", "--exact", "-o", "p.pb.gz", "perl", "-T", &script];
    let done = run(folder.path(), &args);
    assert_eq!(
        (done.code, done.out.as_str()),
        (0, "2000000 4000000 6000000\n8000000\n"),
        "{}",
        done.err
    );
    let mut found = BTreeMap::<String, [i64; 2]>::new();
    for sample in samples(&read(&folder.path().join("p.pb.gz"))) {
        if sample.frames[0].0 == "main::made"
            && sample.labels.get("op").is_some_and(|op| op == "repeat")
        {
            let names: Vec<&str> = sample.frames.iter().map(|f| f.0.as_str()).collect();
            let thread = sample.labels.get("thread").cloned().unwrap_or_default();
            // A thread's stack begins in XS code, not in the main program.
            assert_eq!(names[1], "main::worker", "{names:?}");
            let sums = found.entry(thread).or_default();
            *sums = [0, 1].map(|i| sums[i] + sample.allocated[i]);
        }
    }
    let bytes: Vec<i64> = found.values().map(|sums| sums[1] / 100_000).collect();
    assert_eq!(
        found.keys().map(String::as_str).collect::<Vec<_>>(),
        ["", "ithread 1", "ithread 2", "ithread 3"]
    );
    let mut sorted = bytes.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, [20, 40, 60, 80], "{found:?}");
}

#[test]
fn evals_are_one_place_unless_asked() {
    if !have(&["perl"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let script = "for (1 .. 50) { eval 'my $x = \"y\" x 100_000; 1' or die }";
    let lines = |options: &[&str]| {
        let args = [
            &["record", "--exact", "-o", "p.pb.gz"],
            options,
            &["perl", "-e", script],
        ]
        .concat();
        let done = run(folder.path(), &args);
        assert_eq!(done.code, 0, "{}", done.err);
        let mut files: Vec<String> = Vec::new();
        for sample in samples(&read(&folder.path().join("p.pb.gz"))) {
            files.extend(
                sample
                    .frames
                    .iter()
                    .filter(|f| f.1.starts_with("(eval"))
                    .map(|f| f.1.clone()),
            );
        }
        files.sort();
        files.dedup();
        files
    };
    assert_eq!(lines(&[]), ["(eval)"]);
    assert_eq!(lines(&["--perl-evals=numbered"]).len(), 50);
}

/// Perl's debugger calls every sub through a sub of its own, which `caller` hides.
#[test]
fn the_debugger_s_sub_is_hidden() {
    if !have(&["perl"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let script =
        "sub inner { my $x = 'y' x 100_000 }\nsub outer { inner() }\nouter() for 1 .. 9;\n";
    std::fs::write(folder.path().join("script.pl"), script).unwrap();
    let done = command(folder.path())
        .args([
            "record",
            "--exact",
            "-o",
            "p.pb.gz",
            "perl",
            "-d",
            "script.pl",
        ])
        .env("PERLDB_OPTS", "NonStop=1")
        .output()
        .unwrap();
    let err = String::from_utf8_lossy(&done.stderr);
    assert!(!err.contains("native frames only"), "{err}");
    let samples = samples(&read(&folder.path().join("p.pb.gz")));
    let inner = samples
        .iter()
        .filter(|s| s.frames[0].0 == "main::inner" && s.allocated[1] >= 100_000);
    let stacks: Vec<Vec<(&str, i64)>> = inner
        .map(|s| s.frames.iter().map(|f| (f.0.as_str(), f.2)).collect())
        .collect();
    assert!(!stacks.is_empty());
    for stack in stacks {
        assert_eq!(
            stack,
            [("main::inner", 1), ("main::outer", 2), ("(main)", 3)]
        );
    }
}

/// Makes a copy of perl that claims to be another version; `None` if it can't be made. A recording
/// of the copy must have native frames, or correct ones.
pub(crate) fn forged_perl(folder: &Path, version: u8) -> Option<PathBuf> {
    let perl = Command::new("perl")
        .args(["-e", "print $^X"])
        .output()
        .unwrap();
    let perl = String::from_utf8(perl.stdout).unwrap();
    let symbols = Command::new("nm").args(["-D", &perl]).output().unwrap();
    let symbols = String::from_utf8(symbols.stdout).unwrap();
    let place = symbols.lines().find(|line| line.ends_with(" R PL_version"));
    let Some(place) = place else {
        needs::cannot("a perl with its library inside");
        return None;
    };
    let at = usize::from_str_radix(place.split(' ').next().unwrap(), 16).unwrap();
    let mut forged = std::fs::read(&perl).unwrap();
    // In an uncompressed executable, read-only data has the same offset as its address.
    if forged[at] == version {
        return None;
    }
    forged[at] = version;
    let copy = folder.join("perl");
    std::fs::write(&copy, &forged).unwrap();
    let _ = Command::new("chmod")
        .arg("755")
        .arg(&copy)
        .status()
        .unwrap();
    Some(copy)
}

#[test]
fn a_perl_of_another_version_is_not_believed() {
    if !have(&["perl", "nm"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for version in [
        6, 20, 22, 24, 26, 28, 30, 32, 34, 36, 38, 40, 41, 42, 44, 99,
    ] {
        if forged_perl(folder.path(), version).is_none() {
            continue;
        }
        let script = "sub f { my $x = 'y' x 100_000 } f() for 1 .. 200; print 'done'";
        let args = ["record", "--exact", "-o", "p.pb.gz", "./perl", "-e", script];
        let done = run(folder.path(), &args);
        assert_eq!(
            (done.code, done.out.as_str()),
            (0, "done"),
            "{version}: {}",
            done.err
        );
        assert!(
            done.err.contains("has native frames only: perl: "),
            "{version}: {}",
            done.err
        );
        let profile = read(&folder.path().join("p.pb.gz"));
        let said = comments(&profile)
            .iter()
            .any(|c| c.starts_with("frames missing: perl: "));
        assert!(said, "{version}");
    }
}

/// Perl computes constant lists during compilation, in an eval that is not in the program.
#[test]
fn constants_are_compiled() {
    if !have(&["perl"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let script = "my @list = (1 .. 5000);\nmy $text = 'ab' x 10_000;\nprint scalar @list;\n";
    std::fs::write(folder.path().join("constant.pl"), script).unwrap();
    let args = ["record", "--exact", "-o", "p.pb.gz", "perl", "constant.pl"];
    let done = run(folder.path(), &args);
    assert_eq!((done.code, done.out.as_str()), (0, "5000"), "{}", done.err);
    let samples = samples(&read(&folder.path().join("p.pb.gz")));
    let frames = || samples.iter().flat_map(|sample| &sample.frames);
    assert!(frames().all(|f| f.0 != "(eval block)"), "an eval block");
    let compiled = |f: &&Frame| f.0 == "(compile)" && f.1 == "constant.pl" && f.2 == 1;
    assert!(frames().any(|f| compiled(&f)));
}

#[test]
fn native_frames_when_asked() {
    if !have(&["perl"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let output = preloaded("perl")
        .args(["-e", "my $x = 'y' x 100_000"])
        .env("HEAPPROF_OUTPUT", folder.path().join("p.pb.gz"))
        .env("HEAPPROF_MODE", "exact")
        .env("HEAPPROF_FRAMES", "native")
        .output()
        .unwrap();
    assert!(output.status.success());
    let path = std::fs::read_dir(folder.path())
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let profile = read(&path);
    assert!(
        samples(&profile)
            .iter()
            .all(|s| s.frames.iter().all(|f| f.0 != "(main)"))
    );
    assert!(comments(&profile).iter().all(|c| !c.starts_with("frames")));
}
