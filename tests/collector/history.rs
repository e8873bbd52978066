//! The history of a recording: the curve equals the curve that the program itself measured, in
//! every mode its last moment has the sums of the samples, and the sizes add up.

use std::path::Path;

use heapprof_profile::{HeapHistory, Profile, SIZE_CLASS_COUNT, SizeHistogram, decode};
use heapprof_tests::built::have;
use heapprof_tests::expectations::Sums;
use heapprof_tests::harness::command;

use crate::programs::build;
use crate::stacks;

/// Records a program and returns its profile.
fn record(folder: &Path, options: &[&str], words: &[&std::ffi::OsStr]) -> Profile {
    stacks::record(command(folder), folder, options, words)
}

/// Reads the curve that a program measured: microseconds since 1970, and bytes.
fn own_curve(path: &Path) -> Vec<(i64, i64)> {
    let text = std::fs::read_to_string(path).unwrap();
    let line = |line: &str| {
        let (time, bytes) = line.split_once(' ').unwrap();
        (time.parse().unwrap(), bytes.parse().unwrap())
    };
    text.lines().map(line).collect()
}

/// Bytes that the program allocates besides its blocks: the buffer of a file.
const BESIDES: i64 = 8192;

fn compare(kind: &str) {
    let Some(binaries) = build("oracle_history.c") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let curve = folder.path().join("curve");
    let words = [binaries[0].as_os_str(), kind.as_ref(), curve.as_os_str()];
    let profile = record(folder.path(), &["--exact"], &words);
    let history = HeapHistory::from_profile(&profile).expect("a history");
    let own = own_curve(&curve);
    let start = (profile.time_nanos - profile.duration_nanos) / 1000;
    assert!(history.moments.len() > 100, "{}", history.moments.len());
    for moment in &history.moments {
        // The values that the program measured around this moment: it writes one note before and
        // one after each call.
        let after = own.partition_point(|(time, _)| *time <= start + moment.micros);
        let near = after.saturating_sub(2)..(after + 2).min(own.len());
        let mut near = own[near].iter().map(|(_, bytes)| *bytes);
        let is_near = |bytes: i64| (0..=BESIDES).contains(&(moment.bytes - bytes));
        // Before the first and after the last note, the program has only the buffer of its file.
        assert!(
            near.any(is_near) || moment.bytes <= BESIDES,
            "{kind}: {moment:?} of {own:?}"
        );
    }
    let most = own.iter().map(|(_, bytes)| *bytes).max().unwrap();
    let peak = history.peak.expect("a peak");
    assert!(
        (0..=BESIDES).contains(&(peak.bytes - most)),
        "{peak:?} {most}"
    );
    // The peak comes before the first note with its value, and after the note before that.
    let first = own.iter().position(|(_, bytes)| *bytes == most).unwrap();
    let at = start + peak.micros;
    let next = own.get(first + 2).map_or(i64::MAX, |(time, _)| *time);
    assert!(own[first - 1].0 <= at && at <= next, "{kind}: {peak:?}");
    // The resident set was read from outside, and by the library at the end.
    assert!(history.resident.len() > 2, "{:?}", history.resident);
    let most_resident = history.resident.iter().map(|one| one.bytes).max();
    assert!(most_resident.unwrap() > 1 << 20);
}

#[test]
fn a_sawtooth_is_the_programs_own() {
    compare("sawtooth");
}

#[test]
fn a_ramp_is_the_programs_own() {
    compare("ramp");
}

#[test]
fn a_spike_is_the_programs_own() {
    compare("spike");
}

/// Checks that the last moment and the sizes have the sums of the samples.
fn agrees(profile: &Profile) {
    let history = HeapHistory::from_profile(profile).expect("a history");
    let sums = Sums::from_profile(profile);
    let last = history.moments.last().unwrap();
    assert_eq!(last.bytes, sums.total("inuse_space"));
    assert_eq!(last.objects, sums.total("inuse_objects"));
    assert_eq!(history.peak.unwrap().bytes, sums.total("peak_space"));
    let sizes = SizeHistogram::from_profile(profile).expect("sizes");
    let add =
        |of: fn(&heapprof_profile::SizeClass) -> i64| -> i64 { sizes.classes.iter().map(of).sum() };
    // In a sampled profile, each class and each stack is rounded separately.
    let rounding = match sums.total("peak_space") {
        _ if profile.period == 1 => 0,
        _ => SIZE_CLASS_COUNT as i64 + profile.samples.len() as i64,
    };
    let all = add(|class| class.allocated) - sums.total("alloc_objects");
    let in_use = add(|class| class.in_use) - sums.total("inuse_objects");
    assert!(all.abs() <= rounding, "{all} of {rounding}");
    assert!(in_use.abs() <= rounding, "{in_use} of {rounding}");
}

/// One half of the threads frees the blocks that the other half allocates.
#[test]
fn the_last_moment_and_the_sizes_are_those_of_the_samples() {
    let Some(binaries) = build("accounting_cross.c") else {
        return;
    };
    for options in [
        &["--exact"][..],
        &["--period", "4KiB"],
        &["--period", "1MiB"],
    ] {
        let folder = tempfile::tempdir().unwrap();
        let words = [binaries[0].as_os_str(), "4".as_ref()];
        agrees(&record(folder.path(), options, &words));
    }
}

/// A mapping has no size class, but is counted in the history.
#[test]
fn mappings_are_counted_apart() {
    if !have(&["gcc"]) {
        return;
    }
    let source = r#"
#include <stdlib.h>
#include <sys/mman.h>
int main(void) {
    char *map = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(map, 1 << 19);
    void *volatile block = malloc(100);
    return !block;
}
"#;
    let built = heapprof_tests::built::build(source, "gcc -O1");
    let program = built.path("program");
    let options = ["--exact", "--mmap"];
    let profile = record(built.folder.path(), &options, &[program.as_os_str()]);
    agrees(&profile);
    let sizes = SizeHistogram::from_profile(&profile).unwrap();
    assert!(sizes.classes[SIZE_CLASS_COUNT - 1].allocated >= 1);
    assert_eq!(sizes.classes[6].allocated, 1);
}

/// A forked child's history begins with the inherited heap, and contains none of its parent's
/// moments.
#[test]
fn a_child_has_a_history_of_its_own() {
    if !have(&["gcc"]) {
        return;
    }
    let source = r#"
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static void *volatile kept[100];
int main(void) {
    for (int i = 0; i < 50; i++) kept[i] = malloc(10000), usleep(2000);
    if (fork() == 0) {
        for (int i = 50; i < 100; i++) kept[i] = malloc(10000), usleep(2000);
        exit(0);
    }
    wait(0);
}
"#;
    let built = heapprof_tests::built::build(source, "gcc -O1");
    let program = built.path("program");
    record(built.folder.path(), &["--exact"], &[program.as_os_str()]);
    let children = std::fs::read_dir(built.path("out.children")).unwrap();
    let child = children.map(|entry| entry.unwrap().path()).next().unwrap();
    let profile = decode(std::fs::File::open(child).unwrap()).unwrap();
    agrees(&profile);
    let history = HeapHistory::from_profile(&profile).unwrap();
    let [first, .., last] = &history.moments[..] else {
        panic!("{history:?}");
    };
    assert_eq!((first.micros, first.bytes), (0, 500_000));
    assert_eq!(last.bytes, 1_000_000);
    assert!(history.moments.is_sorted_by_key(|moment| moment.bytes));
}

/// Without symbolization, the profile stays as the library wrote it, with the RSS that the library
/// measured.
#[test]
fn without_symbols_the_profile_stays_as_it_was() {
    let Some(binaries) = build("oracle_history.c") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let curve = folder.path().join("curve");
    let words = [binaries[0].as_os_str(), "ramp".as_ref(), curve.as_os_str()];
    let profile = record(folder.path(), &["--exact", "--no-symbolize"], &words);
    let history = HeapHistory::from_profile(&profile).unwrap();
    assert_eq!(history.resident.len(), 1);
    agrees(&profile);
}
