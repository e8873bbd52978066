//! Devel::HeapProf: the Perl module, built by `heapprof perl-install`, and built alone.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use heapprof_tests::built::have;
use heapprof_tests::harness::{command, root};
use heapprof_tests::needs;

use crate::perl_hazards::{compile, embed_options, has_headers};
use crate::scripts::{Sample, comments, forged_perl, program, read, samples};

/// Installs the module for the perl in PATH, and returns the cache folder for heapprof's files;
/// `None` if it can't be built.
pub(crate) fn installed(folder: &Path) -> Option<PathBuf> {
    if !have(&["gcc", "make", "perl"]) || !has_headers() {
        return None;
    }
    let cache = folder.join("cache");
    let done = heapprof(folder, &cache, &["perl-install"]);
    let said = String::from_utf8_lossy(&done.stdout);
    let wanted = "; heapprof record loads it\n";
    assert!(said.ends_with(wanted), "{said}{}", text(&done.stderr));
    Some(cache)
}

pub(crate) fn heapprof(folder: &Path, cache: &Path, args: &[&str]) -> Output {
    command(folder)
        .args(args)
        .env("XDG_CACHE_HOME", cache)
        .output()
        .unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Records a script with the module. Returns its output, heapprof's messages, and the samples of a
/// profile.
fn recorded(folder: &Path, cache: &Path, words: &[&str]) -> (String, String, Vec<Sample>) {
    let options = ["record", "--exact", "-o", "p.pb.gz", "--"];
    let done = heapprof(folder, cache, &[&options[..], words].concat());
    let (out, err) = (text(&done.stdout), text(&done.stderr));
    assert_eq!(done.status.code(), Some(0), "{out}{err}");
    (out, err, samples(&read(&folder.join("p.pb.gz"))))
}

#[test]
fn the_module_passes_its_own_tests() {
    if !have(&["gcc", "make", "perl", "prove"]) || !has_headers() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let source = root().join("perl/Devel-HeapProf");
    let copied = Command::new("cp")
        .args(["-r", &source.display().to_string(), "."])
        .current_dir(folder.path())
        .status();
    assert!(copied.unwrap().success());
    let inside = folder.path().join("Devel-HeapProf");
    for words in [
        &["perl", "Makefile.PL"][..],
        &["make"],
        &["prove", "-b", "t"],
    ] {
        let done = Command::new(words[0])
            .args(&words[1..])
            .current_dir(&inside)
            .output()
            .unwrap();
        let said = text(&[done.stdout, done.stderr].concat());
        assert!(done.status.success(), "{words:?}: {said}");
        assert!(!said.contains("warning"), "{words:?}: {said}");
    }
    // The module's structure offsets equal the table's column for this perl, as far as the table
    // has one.
    let script =
        "my %f = Devel::HeapProf::_fields(); printf qq{%s\\t%s\\n}, $_, $f{$_} for keys %f";
    let said = Command::new("perl")
        .args(["-Mblib", "-MDevel::HeapProf", "-e", script])
        .current_dir(&inside)
        .output()
        .unwrap();
    let said = text(&said.stdout);
    let version = Command::new("perl")
        .args([
            "-MConfig",
            "-e",
            "printf 'deb-%vd-%s', $^V, $Config{usethreads} ? 'thr' : 'nothr'",
        ])
        .output()
        .unwrap();
    let version = text(&version.stdout);
    let table = root().join("crates/interpreters/perl/src/layouts.tsv");
    let table = std::fs::read_to_string(table).unwrap();
    let columns: Vec<&str> = table.lines().next().unwrap().split('\t').collect();
    let Some(column) = columns.iter().position(|&name| name == version) else {
        needs::cannot(&format!(
            "a perl that the table has a column of, not {version}"
        ));
        return;
    };
    let number = |cell: &str| match cell.split(':').next().unwrap().strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => cell.parse().ok(),
    };
    let mut rows: Vec<(&str, u32)> = table
        .lines()
        .skip(1)
        .filter_map(|row| {
            let cells: Vec<&str> = row.split('\t').collect();
            Some((cells[0], number(cells[column])?))
        })
        .collect();
    let mut reported: Vec<(&str, u32)> = said
        .lines()
        .map(|line| line.split_once('\t').unwrap())
        .map(|(name, value)| (name, value.parse().unwrap()))
        .collect();
    rows.sort_unstable();
    reported.sort_unstable();
    assert_eq!(reported, rows);
}

/// The module is searched beside the library, and in no other cache.
#[test]
fn another_cache_has_no_module() {
    let folder = tempfile::tempdir().unwrap();
    let Some(cache) = installed(folder.path()) else {
        return;
    };
    let home = folder.path().join("home");
    std::fs::create_dir(&home).unwrap();
    std::fs::rename(&cache, home.join(".cache")).unwrap();
    let script = ["-e", "print $INC{'Devel/HeapProf.pm'} ? 'loaded' : 'none'"];
    for (named, expected) in [("home/.cache", "loaded"), ("other", "none")] {
        let options = ["record", "-o", "p.pb.gz", "--", "perl"];
        let done = command(folder.path())
            .args([&options[..], &script].concat())
            .env("HOME", &home)
            .env("XDG_CACHE_HOME", folder.path().join(named))
            .output()
            .unwrap();
        assert_eq!(text(&done.stdout), expected, "{}", text(&done.stderr));
    }
}

#[test]
fn a_program_starts_and_dumps_its_own_recordings() {
    let folder = tempfile::tempdir().unwrap();
    let Some(cache) = installed(folder.path()) else {
        return;
    };
    let script = "die 'not loaded' if !Devel::HeapProf::is_loaded();\n\
                  print Devel::HeapProf::is_running() ? 'runs' : 'rests', qq{\\n};\n\
                  sub early { push @early, 'x' x 5000 for 1 .. 10 }\n\
                  sub late { push @late, 'x' x 5000 for 1 .. 10 }\n\
                  early();\n\
                  Devel::HeapProf::dump('one.pb.gz') or die qq{no dump: $!};\n\
                  Devel::HeapProf::start() or die qq{no start: $!};\n\
                  late();\n\
                  Devel::HeapProf::dump('two.pb.gz') or die qq{no dump: $!};\n\
                  Devel::HeapProf::stop();\n\
                  print Devel::HeapProf::is_running() ? 'runs' : 'rests', qq{\\n};\n\
                  Devel::HeapProf::dump('none/x.pb.gz') and die 'a file in no folder';\n\
                  print $! + 0 ? 'an error' : 'none', qq{\\n};\n";
    std::fs::write(folder.path().join("own.pl"), script).unwrap();
    let (out, _, _) = recorded(folder.path(), &cache, &["perl", "own.pl"]);
    assert_eq!(out, "runs\nrests\nan error\n");
    let allocated = |profile: &str, sub: &str| -> i64 {
        let samples = samples(&read(&folder.path().join(profile)));
        let of = samples.iter().filter(|s| s.frames[0].0 == sub);
        of.map(|s| s.allocated[1]).sum()
    };
    assert!(allocated("one.pb.gz", "main::early") > 50_000);
    assert_eq!(allocated("one.pb.gz", "main::late"), 0);
    assert!(allocated("two.pb.gz", "main::late") > 50_000);
    assert_eq!(allocated("two.pb.gz", "main::early"), 0);
}

/// A perl with unknown structures is read with the offsets that the module knows.
#[test]
fn a_perl_of_an_unknown_version_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let Some(cache) = installed(folder.path()) else {
        return;
    };
    if !have(&["nm"]) || forged_perl(folder.path(), 99).is_none() {
        return;
    }
    let script = "sub f { push @k, 'y' x 100_000 } f() for 1 .. 20; print 'done'";
    let words = ["./perl", "-e", script];
    let (out, err, without) = recorded(folder.path(), &folder.path().join("other"), &words);
    assert_eq!(out, "done");
    assert!(err.contains("has native frames only: perl: "), "{err}");
    assert!(without.iter().all(|s| s.frames[0].0 != "main::f"));
    let (out, err, with) = recorded(folder.path(), &cache, &words);
    assert_eq!(out, "done");
    assert!(!err.contains("native frames only"), "{err}");
    let of = with.iter().filter(|s| s.frames[0].0 == "main::f");
    assert!(of.map(|s| s.allocated[1]).sum::<i64>() > 2_000_000, "{err}");
}

/// A program with an embedded interpreter, a debugger, and a program that loads the module again
/// behave as without it, traced or not.
#[test]
fn hosts_and_debuggers_run_as_without_the_module() {
    let folder = tempfile::tempdir().unwrap();
    let (Some(cache), Some(options)) = (installed(folder.path()), embed_options()) else {
        return;
    };
    let build = |before: &str, source: &str, after: &str| {
        compile(folder.path(), before, source, after);
    };
    let plugin = "-w -O1 -shared -fPIC -DPLUGIN -o libembedded.so";
    build("-w -O1 -o embedded", "embedded.c", &options);
    build(plugin, "embedded.c", &options);
    build("-w -O1 -o loads", "loads.c", "-ldl");
    std::fs::write(folder.path().join("d.pl"), "my $x = 1;\n$x++;\nprint $x;\n").unwrap();
    let called = program("called.pl");
    for script in [
        format!("./embedded {called}"),
        format!("./loads {called}"),
        "printf 'b 3\\nc\\np \"x=$x\"\\nq\\n' | perl -d d.pl 2>&1".to_string(),
        "perl -e 'delete $INC{q{Devel/HeapProf.pm}}; eval { require Devel::HeapProf }; print q{after}'"
            .to_string(),
    ] {
        let bare = Command::new("sh")
            .args(["-c", &script])
            .current_dir(folder.path())
            .output()
            .unwrap();
        for values in [&[][..], &["--perl-values"]] {
            if script.starts_with("./loads") && !values.is_empty() {
                // No perl is left at the end. This is reported, with exit code 2.
                continue;
            }
            let args = ["record", "--exact", "-o", "h.pb.gz"];
            let words = [&args[..], values, &["--", "sh", "-c", &script]].concat();
            let done = heapprof(folder.path(), &cache, &words);
            let err = text(&done.stderr);
            assert_eq!(text(&done.stdout), text(&bare.stdout), "{script}: {err}");
            assert_eq!(done.status.code(), bare.status.code(), "{script}: {err}");
        }
    }
}

/// Names with wide characters are UTF-8, as for `open`, and the memory of a mark is not reported as
/// growth.
#[test]
fn calls_take_any_text() {
    let folder = tempfile::tempdir().unwrap();
    let Some(cache) = installed(folder.path()) else {
        return;
    };
    let script = "Devel::HeapProf::mark(qq{\\x{263a}}); our @k; push @k, {} for 1 .. 3;\n\
                  print map { qq{$_->{count} $_->{type} } } Devel::HeapProf::growth(qq{\\x{263a}});\n\
                  Devel::HeapProf::mark('b'); print 'none' if !Devel::HeapProf::growth('b');\n\
                  print Devel::HeapProf::dump(qq{\\x{263a}.pb.gz});\n\
                  eval { Devel::HeapProf::mark(qq{a\\0b}) }; print $@ =~ /a zero in it/;\n\
                  Devel::HeapProf::stop(); eval { Devel::HeapProf::leaks(sub { 1 }) };\n\
                  print $@ =~ /no longer traced/";
    let words = [
        "record",
        "--perl-values",
        "--exact",
        "-o",
        "m.pb.gz",
        "--",
        "perl",
        "-e",
        script,
    ];
    let done = heapprof(folder.path(), &cache, &words);
    assert_eq!(
        text(&done.stdout),
        "3 HASH 3 REF none111",
        "{}",
        text(&done.stderr)
    );
    let profile = read(&folder.path().join("\u{263a}.pb.gz"));
    let marks = comments(&profile);
    assert!(
        !marks.iter().any(|of| of.contains("values missing")),
        "{marks:?}"
    );
    let profile = read(&folder.path().join("m.pb.gz"));
    let stopped = comments(&profile);
    let wanted = "perl: values missing: the recording was stopped before Perl ended";
    assert!(
        stopped.iter().any(|of| of.starts_with(wanted)),
        "{stopped:?}"
    );
    assert!(
        !stopped.iter().any(|of| of.starts_with("memory: ")),
        "{stopped:?}"
    );
}

/// A program does not notice that the module is loaded.
#[test]
fn programs_run_as_without_the_module() {
    let folder = tempfile::tempdir().unwrap();
    let Some(cache) = installed(folder.path()) else {
        return;
    };
    let threads = "use threads; threads->create(sub { print 'thread '; 1 })->join; print 'end'";
    let fork = "if (!fork) { print 'child '; exit 0 } wait; print 'end'";
    for (words, wanted) in [
        (
            &[
                "perl",
                "-e",
                "print join ' ', map { s/^.*cache.*$/ours/r } @INC[0 .. 0], $0",
            ][..],
            None,
        ),
        (&["perl", "-T", "-e", "print 'taint'"], Some("taint")),
        (&["perl", "-we", "print 'warn'"], Some("warn")),
        (
            &[
                "perl",
                "-e",
                "use Devel::HeapProf; use Devel::HeapProf; print 'twice'",
            ],
            Some("twice"),
        ),
        (&["perl", "-e", fork], Some("child end")),
        (
            &["perl", "-e", "exec 'perl', '-e', q{print 'other'}"],
            Some("other"),
        ),
        (&["perl", "-e", threads], Some("thread end")),
    ] {
        if words.contains(&threads) && !crate::scripts::has_threads() {
            continue;
        }
        let (out, err, _) = recorded(folder.path(), &cache, words);
        if wanted != Some("twice") {
            let bare = recorded(folder.path(), &folder.path().join("other"), words);
            assert_eq!(out, bare.0, "{words:?}: {err}");
        }
        assert!(
            wanted.is_none_or(|wanted| out == wanted),
            "{words:?}: {out}{err}"
        );
    }
}

#[test]
fn what_is_no_perl_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    for (perl, wanted) in [
        ("none/perl", "none/perl: cannot be run: "),
        ("/bin/true", "/bin/true: is not a perl"),
    ] {
        let done = heapprof(folder.path(), &cache, &["perl-install", "--perl", perl]);
        let err = text(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{err}");
        assert!(err.starts_with(&format!("heapprof: {wanted}")), "{err}");
        assert_eq!(err.lines().count(), 1, "{err}");
    }
}

/// With the module, subs written in C have frames, with the line of the call. A sub that dies or
/// calls Perl leaves no wrong frame behind.
#[test]
fn subs_in_c_have_names() {
    let folder = tempfile::tempdir().unwrap();
    let Some(cache) = installed(folder.path()) else {
        return;
    };
    let script = "use List::Util qw(first);\n\
                  use Storable qw(dclone thaw);\n\
                  my @kept;\n\
                  sub clones { push @kept, dclone([1 .. 100]) }\n\
                  sub dies { eval { thaw('no such data') }; push @kept, 'y' x 3000 }\n\
                  sub own { push @kept, 'z' x 3000; return 0 }\n\
                  sub calls { my $found = first { own() } 1 }\n\
                  for (1 .. 50) { clones(); dies(); calls() }\n\
                  print 'done';\n";
    std::fs::write(folder.path().join("calls.pl"), script).unwrap();
    let (out, err, samples) = recorded(folder.path(), &cache, &["perl", "calls.pl"]);
    assert_eq!(out, "done", "{err}");
    let objects = |leaf: &str, line: i64| -> i64 {
        let of = samples.iter().filter(|s| {
            let (name, file, at) = &s.frames[0];
            name == leaf && file == "calls.pl" && *at == line
        });
        of.map(|s| s.allocated[0]).sum()
    };
    assert!(
        objects("Storable::dclone", 4) >= 50,
        "{}",
        objects("Storable::dclone", 4)
    );
    for (sub, line) in [("main::dies", 5), ("main::own", 6)] {
        let made = objects(sub, line);
        assert!((50..110).contains(&made), "{sub}: {made}");
    }
    let callers = samples.iter().find(|s| s.frames[0].0 == "Storable::dclone");
    let callers: Vec<&str> = callers
        .unwrap()
        .frames
        .iter()
        .map(|f| f.0.as_str())
        .collect();
    assert_eq!(callers, ["Storable::dclone", "main::clones", "(main)"]);
}

/// A perl that can't read the loader runs as it would without it, and so does a perl for which the
/// module was not built.
#[test]
fn perls_that_cannot_load_the_module_run() {
    let folder = tempfile::tempdir().unwrap();
    let Some(cache) = installed(folder.path()) else {
        return;
    };
    let root = cache.join("heapprof");
    let carried = std::fs::read_dir(&root).unwrap().next().unwrap();
    let perls = carried.unwrap().path().join("perl");
    let of_perl = std::fs::read_dir(&perls)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let of_perl: Vec<PathBuf> = of_perl.filter(|path| !path.ends_with("loader")).collect();
    assert_eq!(of_perl.len(), 1, "{of_perl:?}");
    let script = "print exists $INC{'Devel/HeapProf.pm'} ? 'loaded' : 'none'";
    let words = ["perl", "-e", script];
    let runs = || recorded(folder.path(), &cache, &words).0;
    assert_eq!(runs(), "loaded");
    let library = of_perl[0].join("lib/auto/Devel/HeapProf/HeapProf.so");
    let whole = std::fs::read(&library).unwrap();
    std::fs::write(&library, &whole[..whole.len() / 2]).unwrap();
    assert_eq!(runs(), "none");
    std::fs::write(&library, whole).unwrap();
    assert_eq!(runs(), "loaded");
    let identity = of_perl[0].join("identity");
    let right = std::fs::read_to_string(&identity).unwrap();
    std::fs::write(&identity, format!("{right} of another build")).unwrap();
    assert_eq!(runs(), "none");
    std::fs::remove_file(&identity).unwrap();
    assert_eq!(runs(), "none");
    // The loader disappears after `record` checked for it.
    let loader = perls.join("loader");
    let script = format!(
        "system 'rm', '-r', '{}'; print `perl -e 'print q(child)'`",
        loader.display()
    );
    let (out, err, _) = recorded(folder.path(), &cache, &["perl", "-e", &script]);
    assert_eq!(out, "child", "{err}");
}

/// A recording that needs the module builds it only if an option allows it, or a person at the
/// terminal.
#[test]
fn the_module_is_built_if_the_user_allows_it() {
    if !have(&["gcc", "make", "perl"]) || !has_headers() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let cache = |name: &str| folder.join(name);
    let perl = ["-e", "our @kept = map { \"x\" x 1000 } 1 .. 100"];
    let record = |cache: &Path, more: &[&str]| {
        let words = [
            &["record", "--perl-values", "-o", "p.pb.gz"],
            more,
            &["--", "perl"],
            &perl,
        ];
        let done = heapprof(folder, cache, &words.concat());
        (done.status.code(), text(&done.stderr))
    };
    let is_built = |cache: &Path| {
        let found = Command::new("find")
            .arg(cache)
            .args(["-name", "HeapProf.so"])
            .output()
            .unwrap();
        !found.stdout.is_empty()
    };
    // There is no person at a terminal.
    let (code, said) = record(&cache("no"), &[]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.ends_with("or add --perl-install\n"), "{said}");
    assert!(!is_built(&cache("no")));
    let (code, said) = record(&cache("option"), &["--perl-install"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("heapprof: Devel::HeapProf for perl "),
        "{said}"
    );
    assert!(is_built(&cache("option")));
    let (code, said) = record(&cache("option"), &["--perl-install"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(!said.contains("was built"), "{said}");
    // An audit gets the results of the module.
    let audit = [
        "fork-audit",
        "--perl-install",
        "-o",
        "audit",
        "--",
        "perl",
        "-e",
    ];
    let forks = "unless (fork) { eval { require No::Such }; exit } wait";
    let done = heapprof(folder, &cache("audit"), &[&audit[..], &[forks]].concat());
    let said = text(&done.stderr);
    assert!(said.contains("No/Such.pm"), "{said}");
    assert!(!said.contains("It is not known which modules"), "{said}");
    if !have(&["script"]) {
        return;
    }
    for (answer, builds) in [("n", false), ("", false), ("y", true)] {
        let cache = cache(&format!("answer{answer}"));
        let program = heapprof_tests::harness::heapprof();
        let line = format!(
            "{} record --perl-values -o q.pb.gz -- perl -e 'our @kept = 1'",
            program.display()
        );
        let mut asked = Command::new("script")
            .args(["-qec", &line, "/dev/null"])
            .current_dir(folder)
            .env("XDG_CACHE_HOME", &cache)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut to = asked.stdin.take().unwrap();
        std::io::Write::write_all(&mut to, format!("{answer}\n").as_bytes()).unwrap();
        let done = asked.wait_with_output().unwrap();
        drop(to);
        let said = text(&done.stdout);
        assert!(
            said.contains("; build it now (needed only once)? [y/N]"),
            "{said}"
        );
        assert_eq!(is_built(&cache), builds, "{answer}: {said}");
    }
}
