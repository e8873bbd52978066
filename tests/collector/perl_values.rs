//! Perl values: the code that made the live ones, compared with Test::LeakTrace and with scripts
//! that know it themselves.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use heapprof_profile::Profile;
use heapprof_tests::built::have;
use heapprof_tests::needs::perl_module;

use crate::perl_module::{heapprof, installed, text};
use crate::scripts::{comments, has_threads, program, read};

/// The output of a recording with values, its messages, and its profile.
struct Traced {
    out: String,
    err: String,
    profile: Profile,
}

/// Records a script with its values, and checks that it ends with `code`.
fn traced(folder: &Path, cache: &Path, options: &[&str], script: &[&str], code: i32) -> Traced {
    let record = ["record", "--perl-values", "-o", "v.pb.gz"];
    let words = [&record[..], options, &["--", "perl"], script].concat();
    let done = heapprof(folder, cache, &words);
    let (out, err) = (text(&done.stdout), text(&done.stderr));
    assert_eq!(done.status.code(), Some(code), "{script:?}: {out}{err}");
    Traced {
        out,
        err,
        profile: read(&folder.join("v.pb.gz")),
    }
}

impl Traced {
    /// Returns the sums of a sample type by the innermost frame: `function file:line`, or only the
    /// function if it has no file.
    fn by_leaf(&self, sample_type: &str) -> BTreeMap<String, i64> {
        let profile = &self.profile;
        let column = profile.find_sample_type(sample_type).unwrap();
        let mut sums = BTreeMap::new();
        for i in 0..profile.samples.len() {
            let value = profile.samples.values(i)[column];
            let leaf = profile.samples.stack(i).first();
            let line = leaf.and_then(|&leaf| {
                let location = &profile.location[leaf.index()];
                profile.lines(location).first().copied()
            });
            if let Some(line) = line.filter(|_| value != 0) {
                let function = &profile.function[line.function.index()];
                let (name, file) = (profile.text(function.name), profile.text(function.filename));
                let file = file.rsplit('/').next().unwrap_or_default();
                let place = match file {
                    "" => name.to_string(),
                    file => format!("{name} {file}:{}", line.line),
                };
                *sums.entry(place).or_default() += value;
            }
        }
        sums
    }

    /// Returns the sums of a sample type by the text of a label. Samples without the label have an
    /// empty text.
    fn by_label(&self, sample_type: &str, key: &str) -> BTreeMap<String, i64> {
        let profile = &self.profile;
        let column = profile.find_sample_type(sample_type).unwrap();
        let mut sums = BTreeMap::new();
        for i in 0..profile.samples.len() {
            let labels = profile.label_sets.get(profile.samples.label_set(i));
            let of = labels.iter().find(|label| profile.text(label.key) == key);
            let of = of.map_or("", |label| profile.text(label.str));
            *sums.entry(of.to_string()).or_default() += profile.samples.values(i)[column];
        }
        sums
    }
}

/// Returns the output and the exit code of a bare perl.
fn bare(folder: &Path, script: &[&str]) -> (String, Option<i32>) {
    let done = Command::new("perl")
        .args(script)
        .current_dir(folder)
        .output()
        .unwrap();
    (text(&done.stdout), done.status.code())
}

/// Values are charged to the code that made them. The example is from Devel::MemoryTrace::Light's
/// own documentation: malloc blames `nothing`, which only empties the list of free heads.
#[test]
fn values_are_theirs_who_made_them() {
    let folder = tempfile::tempdir().unwrap();
    let Some(cache) = installed(folder.path()) else {
        return;
    };
    let script = "my @cache;\n\
                  for (1 .. 20_000) { nothing(); use_mem() }\n\
                  sub nothing { my @arr = 5 }\n\
                  sub use_mem { push @cache, 1 }\n";
    std::fs::write(folder.path().join("who.pl"), script).unwrap();
    for options in [&["--exact"][..], &[], &["--frames", "both"]] {
        let of = traced(folder.path(), &cache, options, &["who.pl"], 0);
        let alive = of.by_leaf("sv_inuse_objects");
        assert_eq!(alive["main::use_mem who.pl:4"], 20_000, "{alive:?}");
        let nothing = alive.keys().filter(|place| place.contains("nothing"));
        assert_eq!(nothing.count(), 0, "{alive:?}");
        let bytes = of.by_leaf("sv_inuse_space")["main::use_mem who.pl:4"];
        assert_eq!(bytes, 24 * 20_000, "an integer has a head, and no body");
        let made = of.by_leaf("sv_alloc_objects");
        assert_eq!(made["main::use_mem who.pl:4"], 20_000, "{made:?}");
        // These are the elements, and the variable itself.
        assert_eq!(made["main::nothing who.pl:3"], 20_001, "{made:?}");
        assert!(!of.err.contains("perl-values"), "{}", of.err);
    }
}

/// Nine kinds of leaks, ten of each: the number of values by line equals that of Test::LeakTrace.
#[test]
fn planted_leaks_are_those_of_test_leaktrace() {
    let folder = tempfile::tempdir().unwrap();
    let Some(cache) = installed(folder.path()) else {
        return;
    };
    if !perl_module("Test::LeakTrace") {
        return;
    }
    let script = program("leaks.pl");
    let (wanted, code) = bare(folder.path(), &[&script, "trace"]);
    assert_eq!(code, Some(0));
    let lines: Vec<(&str, u32)> = wanted
        .lines()
        .map(|line| line.split_once(' ').unwrap())
        .map(|(place, count)| (place, count.parse().unwrap()))
        .collect();
    assert!(lines.len() > 20, "{wanted}");
    // Each kind leaks a few values, ten times.
    assert!(lines.iter().all(|(_, count)| count % 10 == 0), "{wanted}");
    let of = traced(folder.path(), &cache, &["--exact"], &[&script, "leaks"], 0);
    assert_eq!(of.out, wanted, "{}", of.err);
}

#[test]
fn labels_tell_type_class_and_mark() {
    let folder = tempfile::tempdir().unwrap();
    let Some(cache) = installed(folder.path()) else {
        return;
    };
    let script = "our @k;\n\
                  push @k, [1 .. 3] for 1 .. 7;\n\
                  Devel::HeapProf::mark('later');\n\
                  push @k, bless {}, 'Some::Class' for 1 .. 11;\n\
                  push @k, sub { $_[0] } for 1;\n\
                  my @grown = Devel::HeapProf::growth('later');\n\
                  print scalar(@grown), qq{\\n}, map { qq{$_->{text}\\n} } grep { $_->{class} } @grown;\n\
                  print Devel::HeapProf::growth('never') ? 'some' : 'none', qq{\\n};\n";
    std::fs::write(folder.path().join("marks.pl"), script).unwrap();
    let of = traced(folder.path(), &cache, &["--exact"], &["marks.pl"], 0);
    let mut said = of.out.lines();
    let rows: u32 = said.next().unwrap().parse().unwrap();
    assert!((2..40).contains(&rows), "{}", of.out);
    let object = said.next().unwrap();
    let wanted = "11 Some::Class=HASH, ";
    assert!(object.starts_with(wanted), "{object}");
    assert!(object.ends_with(" bytes: (main) marks.pl:4"), "{object}");
    assert_eq!(said.next(), Some("none"));
    let classes = of.by_label("sv_inuse_objects", "class");
    assert_eq!(classes["Some::Class"], 11, "{classes:?}");
    let types = of.by_label("sv_inuse_objects", "type");
    for (kind, least) in [("ARRAY", 7), ("HASH", 11), ("REF", 18), ("SCALAR", 21)] {
        assert!(types[kind] >= least, "{kind}: {types:?}");
    }
    let later = of.by_label("sv_inuse_objects", "mark")["later"];
    assert!((22..300).contains(&later), "{later}");
}

/// The rows add up to Perl's own count, even in the middle of a program.
#[test]
fn values_are_as_many_as_perl_counts() {
    let folder = tempfile::tempdir().unwrap();
    let Some(cache) = installed(folder.path()) else {
        return;
    };
    let script = "our @k = map { { number => $_, list => [ 1 .. $_ % 7 ] } } 1 .. 500;\n\
                  sub f { my ($x, @y) = @_; return @y ? f(@y) : $x }\n\
                  f(1 .. 50); eval { die { code => 3 } }; eval q{sub g { 1 }};\n\
                  Devel::HeapProf::dump('middle.pb.gz') or die $!;\n";
    std::fs::write(folder.path().join("count.pl"), script).unwrap();
    let mut of = traced(folder.path(), &cache, &["--exact"], &["count.pl"], 0);
    of.profile = read(&folder.path().join("middle.pb.gz"));
    let alive: i64 = of.by_leaf("sv_inuse_objects").values().sum();
    let said = comments(&of.profile);
    let counted = said.iter().find_map(|c| c.split_once(", PL_sv_count "));
    let counted: i64 = counted.unwrap().1.parse().unwrap();
    assert_eq!(alive, counted, "{said:?}");
    // Nearly all values that the script made are charged to its lines.
    let unseen = of.by_leaf("sv_inuse_objects")["(before the recording)"];
    assert!(unseen < 1500, "{unseen} of {alive}");
}

/// A traced program prints and ends as it does without tracing.
#[test]
fn programs_run_as_without_tracing() {
    let folder = tempfile::tempdir().unwrap();
    let Some(cache) = installed(folder.path()) else {
        return;
    };
    let coro = "use Coro; my @c = map { async { my $n = shift; my @k; for (1 .. 9) { push @k, [$n]; \
                cede } scalar @k } $_ } 1 .. 5; print join ' ', map { $_->join } @c";
    let threads = "use threads; my @t = map { threads->create(sub { my @own = map { {n => $_} } 1 .. \
                   50; eval { die [1] }; scalar @own }) } 1 .. 3; print join ' ', map { $_->join } @t";
    let dies = "package O { sub new { bless {} } sub DESTROY { print 'gone ' } }\n\
                sub f { my $o = O->new; die { o => $o } if $_[0] > 3; f($_[0] + 1) }\n\
                for (1 .. 3) { eval { f(0) }; print ref $@, ' '; undef $@ }\n\
                OUT: for my $i (1 .. 3) { for (1 .. 3) { next OUT if $_ == 2 } }\n\
                my @s = sort { my $t = [$a]; $t->[0] <=> $b } map { $_ * 7 % 101 } 1 .. 100;\n\
                print qq{@s[0 .. 3] }; sub g { goto &h } sub h { [@_] } print scalar @{g(1, 2)};\n\
                local $SIG{ALRM} = sub { print ' alarm' }; alarm 1; select undef, undef, undef, 1.3;\n\
                no warnings 'recursion'; sub deep { my ($n, @l) = @_; $n ? deep($n - 1) : 0 }\n\
                print ' ', deep(3000), ' end'; exit 3";
    let fork = "my @k = map { [$_] } 1 .. 100; my $p = fork; if (!$p) { push @k, {} for 1 .. 100; \
                print 'child '; exit 5 } waitpid $p, 0; print $? >> 8";
    let loads = "require POSIX; POSIX->import('floor'); print floor(2.5), ' '; my @r = map { qr/a$_/ } \
                 1 .. 20; print scalar grep { 'a7' =~ $_ } @r; format STDOUT =\n@<<<\n$ARGV[0]\n.\nwrite;";
    for (name, script) in [
        ("dies", dies),
        ("fork", fork),
        ("loads", loads),
        ("threads", threads),
        ("coro", coro),
    ] {
        let is_there = match name {
            "threads" => has_threads(),
            "coro" => perl_module("Coro"),
            _ => true,
        };
        if !is_there {
            continue;
        }
        let (out, code) = bare(folder.path(), &["-e", script]);
        for options in [&["--exact"][..], &[]] {
            let words = ["-e", script];
            let of = traced(folder.path(), &cache, options, &words, code.unwrap());
            assert_eq!(of.out, out, "{name}: {}", of.err);
            assert!(!of.err.contains("--perl-values"), "{name}: {}", of.err);
            let alive: i64 = of.by_leaf("sv_inuse_objects").values().sum();
            assert!(alive > 1000, "{name}: {alive}");
        }
    }
}

/// Coro's coroutines run in Perl's own run loop. Their values still have their lines.
#[test]
fn coroutines_have_their_values() {
    let folder = tempfile::tempdir().unwrap();
    let Some(cache) = installed(folder.path()) else {
        return;
    };
    if !perl_module("Coro") {
        return;
    }
    let script = "use Coro; our (@first, @second);\n\
                  sub job {\n\
                  for my $i (1 .. 20) {\n\
                  push @first, [$i];\n\
                  cede;\n\
                  push @second, {};\n\
                  }\n\
                  }\n\
                  $_->join for map { async { job() } } 1 .. 5;\n";
    std::fs::write(folder.path().join("coro.pl"), script).unwrap();
    let of = traced(folder.path(), &cache, &["--exact"], &["coro.pl"], 0);
    let arrays = of.by_leaf("sv_inuse_objects");
    // Perl's own run loop is sampled less often, so the next line gets some of the values.
    for (line, least) in [(4, 300), (6, 180)] {
        let found = arrays[&format!("main::job coro.pl:{line}")];
        assert!((least..least + 200).contains(&found), "{line}: {arrays:?}");
    }
}

/// A hash that is a variable of the program's main code has its own line, although Perl frees it
/// before END blocks run, and the compiler makes it in the place of an older value. The same holds
/// for a hash that is alive at exit.
#[test]
fn variables_of_the_program_are_its_lines() {
    let folder = tempfile::tempdir().unwrap();
    let Some(cache) = installed(folder.path()) else {
        return;
    };
    let script = "my %cache;\n\
                  $cache{$_} = [$_] for 1 .. 5000;\n\
                  sub ends { exit 0 }\n\
                  ends() if @ARGV;\n";
    std::fs::write(folder.path().join("cache.pl"), script).unwrap();
    for words in [&["cache.pl"][..], &["cache.pl", "exits"]] {
        let of = traced(folder.path(), &cache, &[], words, 0);
        let bytes = of.by_leaf("sv_inuse_space");
        // The line of the variable has 5,000 entries and 8,192 buckets; the contents are at the
        // next line.
        let variable = bytes["(main) cache.pl:1"];
        assert!(
            (180_000..220_000).contains(&variable),
            "{words:?}: {bytes:?}"
        );
        let objects = of.by_leaf("sv_inuse_objects")["(main) cache.pl:2"];
        assert!((15_000..15_100).contains(&objects), "{words:?}: {objects}");
    }
}

/// A block without leaks is never reported to leak.
#[test]
fn no_leak_is_made_up() {
    let folder = tempfile::tempdir().unwrap();
    let Some(cache) = installed(folder.path()) else {
        return;
    };
    let script = "use strict; use warnings;\n\
                  my %cache = (a => 1);\n\
                  sub work {\n\
                      my ($n, @rest) = @_;\n\
                      my %h = map { ($_ => [$_]) } 1 .. 5;\n\
                      my $again = sub { my $x = shift; return $x ? $n + $x : 0 };\n\
                      my $text = join ',', map { $h{$_}[0] . $again->($_) } sort keys %h;\n\
                      eval { die { text => $text } }; undef $@;\n\
                      return work($n - 1) if $n > 0;\n\
                      return $text =~ /(\\d+)$/ ? $1 : 0;\n\
                  }\n\
                  work(3) for 1 .. 3;\n\
                  my $wrong = 0;\n\
                  for my $i (1 .. 1000) {\n\
                      my @left = Devel::HeapProf::leaks { work(2) };\n\
                      $wrong++, print qq{$i: $_->{text}\\n} for @left;\n\
                  }\n\
                  my @planted = Devel::HeapProf::leaks { my $c = {}; $c->{c} = $c };\n\
                  print qq{$wrong wrong, }, scalar(@planted), qq{ rows planted\\n};\n";
    std::fs::write(folder.path().join("none.pl"), script).unwrap();
    let of = traced(folder.path(), &cache, &["--exact"], &["none.pl"], 0);
    assert_eq!(of.out, "0 wrong, 2 rows planted\n");
}

/// Without the requirements, nothing is recorded, and the message says what to do.
#[test]
fn what_is_missing_is_said() {
    let folder = tempfile::tempdir().unwrap();
    if !have(&["perl"]) {
        return;
    }
    let none = folder.path().join("none");
    let refused = |cache: &Path, words: &[&str], wanted: &str| {
        let words = [&["record", "--perl-values", "-o", "r.pb.gz"], words].concat();
        let done = heapprof(folder.path(), cache, &words);
        let err = text(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{words:?}: {err}");
        assert!(err.contains(wanted), "{words:?}: {err}");
        text(&done.stdout)
    };
    let not_built = "heapprof: --perl-values: the Perl module that traces values was not built";
    let out = refused(&none, &["--", "perl", "-e", "print 'ran'"], not_built);
    assert_eq!(out, "");
    let Some(cache) = installed(folder.path()) else {
        return;
    };
    let native = ["--frames", "native", "--", "perl", "-e1"];
    refused(&cache, &native, "--frames native leaves out");
    // The module was not built for this perl: its identity differs.
    let root = cache.join("heapprof");
    let carried = std::fs::read_dir(&root).unwrap().next().unwrap();
    let perls = carried.unwrap().path().join("perl");
    let of_perl = std::fs::read_dir(&perls)
        .unwrap()
        .map(|e| e.unwrap().path());
    let of_perl: Vec<_> = of_perl.filter(|path| !path.ends_with("loader")).collect();
    let identity = of_perl[0].join("identity");
    let right = std::fs::read_to_string(&identity).unwrap();
    std::fs::write(&identity, "another").unwrap();
    let print = ["--", "perl", "-e", "print 'ran'"];
    let out = refused(&cache, &print, "no Devel::HeapProf was built for this perl");
    assert_eq!(out, "");
    std::fs::write(&identity, right).unwrap();
    // Under -T no module is loaded, and a program that is not perl has no values.
    let none = "--perl-values: no values were traced: ";
    refused(&cache, &["--", "perl", "-T", "-e", "1"], none);
    refused(&cache, &["--", "true"], none);
    if perl_module("Test::LeakTrace") {
        // Test::LeakTrace replaces the run loop, too.
        let loop_of_its_own = ["--", "perl", "-MTest::LeakTrace", "-e", "print 'ran'"];
        let out = refused(
            &cache,
            &loop_of_its_own,
            "another module has replaced Perl's run loop",
        );
        assert_eq!(out, "");
    }
}

/// In a Catalyst application with a planted cycle, the cycle's sub and line are among the first
/// three rows after 300 requests.
#[test]
fn a_cycle_in_a_catalyst_application_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let Some(cache) = installed(folder.path()) else {
        return;
    };
    if !perl_module("Catalyst") {
        return;
    }
    let script = program("catalyst.pl");
    let (out, code) = bare(folder.path(), &[&script, "300"]);
    assert_eq!((out.lines().count(), code), (300, Some(0)), "{out}");
    let of = traced(folder.path(), &cache, &[], &[&script, "300"], 0);
    assert_eq!(of.out, out, "{}", of.err);
    for words in [&[][..], &["--tag-focus", "mark=warm"]] {
        let words = [
            &["leaks", "-t", "sv_inuse_space", "-n", "6", "v.pb.gz"],
            words,
        ]
        .concat();
        let rows = text(&heapprof(folder.path(), &cache, &words).stdout);
        assert!(
            rows.contains("MyApp::Controller::Root::remember "),
            "{rows}"
        );
        assert!(rows.contains("catalyst.pl:18"), "{rows}");
    }
}
