//! `record --threads`: each thread's share equals the program's own counts, and the shares add up
//! to the values of a recording without the option.

use std::collections::BTreeMap;
use std::path::Path;

use heapprof_profile::Profile;
use heapprof_tests::harness::{command, run};

use crate::programs::build;
use crate::stacks::{self, read};

/// A thread's allocations in a function, and those still in use: objects and bytes.
type Share = [i64; 4];

/// A thread: its name, and its kernel id if the profile has one.
type Who = (String, Option<i64>);

/// Returns the values of a function in a profile, by thread. Samples without a thread have an empty
/// name.
fn shares(profile: &Profile, function: &str) -> BTreeMap<Who, Share> {
    let mut shares = BTreeMap::<Who, Share>::new();
    for sample in 0..profile.samples.len() {
        let mut lines = profile
            .samples
            .stack(sample)
            .iter()
            .flat_map(|location| profile.lines(&profile.location[location.index()]));
        let is_it = |line: &heapprof_profile::Line| {
            profile.text(profile.function[line.function.index()].name) == function
        };
        if !function.is_empty() && !lines.any(is_it) {
            continue;
        }
        let mut who = (String::new(), None);
        for label in profile.label_sets.get(profile.samples.label_set(sample)) {
            match profile.text(label.key) {
                "thread" => who.0 = profile.text(label.str).to_string(),
                "tid" => who.1 = Some(label.num),
                _ => {}
            }
        }
        let share = shares.entry(who).or_default();
        for (sum, value) in share.iter_mut().zip(profile.samples.values(sample)) {
            *sum += value;
        }
    }
    shares
}

/// Reads the program's own counts of its threads' shares.
fn own_shares(path: &Path) -> BTreeMap<Who, Share> {
    let mut shares = BTreeMap::<Who, Share>::new();
    for line in std::fs::read_to_string(path).unwrap().lines() {
        let mut fields = line.split('\t');
        let name = fields.next().unwrap().to_string();
        let mut numbers = fields.map(|field| field.parse::<i64>().unwrap());
        // Threads with the same name and the same number share one row.
        let share = shares.entry((name, numbers.next())).or_default();
        share.iter_mut().zip(numbers).for_each(|(sum, n)| *sum += n);
    }
    shares
}

/// Records the program, and returns its profile.
fn record(folder: &Path, options: &[&str], words: &[&std::ffi::OsStr]) -> Profile {
    let mut command = command(folder);
    command.env("SHARES", folder.join("shares"));
    let options = [&["--keep-small"], options].concat();
    stacks::record(command, folder, &options, words)
}

fn sum(shares: &BTreeMap<Who, Share>) -> Share {
    shares.values().fold([0; 4], |mut sum, share| {
        sum.iter_mut().zip(share).for_each(|(sum, n)| *sum += n);
        sum
    })
}

#[test]
fn each_thread_has_what_it_allocated() {
    let Some(binaries) = build("accounting_shares.c") else {
        return;
    };
    for options in [
        &["--exact", "--threads"][..],
        &["--period", "2", "--threads"],
    ] {
        let folder = tempfile::tempdir().unwrap();
        let profile = record(folder.path(), options, &[binaries[0].as_os_str()]);
        let own = own_shares(&folder.path().join("shares"));
        let found = shares(&profile, "share_take");
        if options[0] == "--exact" {
            assert_eq!(found, own);
        } else {
            // A thread with a few bytes may have no sample.
            let has_samples = |share: &Share| share[1] >= 50;
            let sure = own.iter().filter(|(_, share)| has_samples(share));
            assert!(sure.count() >= 5);
            for (who, share) in &own {
                assert!(!has_samples(share) || found.contains_key(who), "{who:?}");
            }
            assert!(found.keys().all(|who| own.contains_key(who)));
        }
        // Every sample has a thread.
        let nobody = (String::new(), None);
        assert_eq!(shares(&profile, "").get(&nobody), None);
        assert_eq!(
            own.keys().filter(|who| who.0.starts_with("done ")).count(),
            3
        );
    }
}

/// The thread of a forked child is a new one. Inherited blocks still belong to the parent's
/// threads.
#[test]
fn a_forked_child_has_a_thread_of_its_own() {
    let Some(binaries) = build("accounting_shares.c") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    record(
        folder.path(),
        &["--exact", "--threads"],
        &[binaries[0].as_os_str()],
    );
    let own = own_shares(&folder.path().join("shares"));
    let child = std::fs::read_dir(folder.path().join("out.children"));
    let child = child.unwrap().next().unwrap().unwrap();
    let pid = child.file_name().into_string().unwrap();
    let pid: i64 = pid.split('.').nth(1).unwrap().parse().unwrap();
    let mut expected = BTreeMap::<Who, Share>::new();
    for (mut who, [.., objects, bytes]) in own {
        if who.0 == "late" {
            // The thread had this name when it got its last new stack.
            who.0 = "early".to_string();
        }
        // A child counts inherited blocks as allocated by itself.
        expected.insert(who, [objects, bytes, objects, bytes]);
    }
    expected.insert(("child".into(), Some(pid)), [1, 4000, 1, 4000]);
    assert_eq!(shares(&read(&child.path()), "share_take"), expected);
}

#[test]
fn shares_add_up_to_what_is_recorded_without_them() {
    let Some(binaries) = build("accounting_cross.c") else {
        return;
    };
    let words = [binaries[0].as_os_str(), "1".as_ref()];
    let functions = ["cross_produce", "cross_regrow"];
    let folder = tempfile::tempdir().unwrap();
    let without = record(folder.path(), &["--exact"], &words);
    let with = record(folder.path(), &["--exact", "--threads"], &words);
    for function in functions {
        let (without, with) = (shares(&without, function), shares(&with, function));
        assert_eq!(without.len(), 1);
        assert_eq!(sum(&without), sum(&with), "{function}");
    }
    assert!(shares(&with, "").len() >= 3);
}

/// Mappings and the blocks of the peak are charged to their threads, too.
#[test]
fn mappings_are_their_threads() {
    let Some(binaries) = build("accounting_shares.c") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let words = [binaries[0].as_os_str(), "mmap".as_ref()];
    let profile = record(folder.path(), &["--exact", "--mmap", "--threads"], &words);
    let found = shares(&profile, "worker");
    let own = own_shares(&folder.path().join("shares"));
    for (i, mapped) in (0..3).map(|i: i64| (i, (i + 1) << 20)) {
        let who = |shares: &BTreeMap<Who, Share>| -> Share {
            let mut found = shares
                .iter()
                .filter(|(who, _)| who.0 == format!("done {i}"));
            *found.next().unwrap().1
        };
        let (found, own) = (who(&found), who(&own));
        assert_eq!(found[0] - own[0], 1, "thread {i}");
        assert_eq!(
            [found[1] - own[1], found[3] - own[3]],
            [mapped; 2],
            "thread {i}"
        );
    }
}

/// Threads beyond the limit of numbered threads share one row.
#[test]
fn countless_threads_are_bounded() {
    if !heapprof_tests::built::have(&["gcc"]) {
        return;
    }
    let source = r#"
#include <pthread.h>
#include <stdlib.h>
__attribute__((noinline)) void *one(void *p) {
    p = malloc(100);
    __asm__ volatile("" : : "r"(p));
    return p;
}
int main(void) {
    for (int i = 0; i < 5000; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, one, NULL)) return 1;
        pthread_join(thread, NULL);
    }
    return 0;
}
"#;
    let built = heapprof_tests::built::build(source, "gcc -O1 -g -pthread");
    let program = built.path("program");
    let folder = built.folder.path();
    let profile = record(folder, &["--exact", "--threads"], &[program.as_os_str()]);
    let found = shares(&profile, "one");
    assert_eq!(sum(&found), [5000, 500_000, 5000, 500_000]);
    // The main thread is one of the numbered threads.
    let others = found[&("(other threads)".to_string(), None)];
    assert_eq!(others, [905, 90_500, 905, 90_500]);
    let info = run(folder, &["info", "out.pb.gz"]).out;
    assert!(
        info.contains("threads: 4096 by name; 905 more are (other threads)"),
        "{info}"
    );
}
