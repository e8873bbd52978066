//! `convert --to callgrind`, read by callgrind_annotate: the same totals, and the same flat and cum
//! of every function.

use std::collections::BTreeMap;
use std::process::Command;

use expect_test::expect;
use heapprof_profile::{Profile, ProfileBuilder, decode, encode};

use heapprof_tests::built::have;
use heapprof_tests::harness::{name, ok, run, sample_profiles, valid};

fn is_positive(profile: &Profile) -> bool {
    let samples = &profile.samples;
    (0..samples.len()).all(|i| samples.values(i).iter().all(|&v| v >= 0))
}

/// Returns a path as the writer gives it: without `.`, and without a folder that `..` leaves again.
fn cleaned(file: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    for part in file.split('/') {
        match (part, kept.last()) {
            (".", _) => {}
            ("..", Some(&above)) if !matches!(above, ".." | "") => drop(kept.pop()),
            (part, _) => kept.push(part),
        }
    }
    kept.join("/")
}

/// Returns callgrind_annotate's output for a file: `file:function` with flat or cum. `None` if it
/// is not installed.
fn annotated(file: &std::path::Path, event: &str, cum: bool) -> Option<BTreeMap<String, i64>> {
    if !have(&["callgrind_annotate"]) {
        return None;
    }
    let inclusive = if cum {
        "--inclusive=yes"
    } else {
        "--inclusive=no"
    };
    let output = Command::new("callgrind_annotate")
        .args([inclusive, "--auto=no", "--threshold=100"])
        .args([format!("--show={event}"), format!("--sort={event}")])
        .arg(file)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    let row =
        regex::Regex::new(r"^\s*([\d,]+) \(\s*[\d.]+%\)\s+(.*?:.*?)(?: \[[^\]]*\])?$").unwrap();
    let mut rows = BTreeMap::new();
    for line in text.lines() {
        if let Some(found) = row.captures(line) {
            let value: i64 = found[1].replace(',', "").parse().unwrap();
            if &found[2] != "???:(root)" {
                *rows.entry(found[2].to_string()).or_default() += value;
            }
        }
    }
    Some(rows)
}

#[test]
fn callgrind_annotate_reads_flat_and_cum() {
    let folder = tempfile::tempdir().unwrap();
    for file in valid() {
        let profile = decode(std::fs::File::open(&file).unwrap()).unwrap();
        // Profiles are left out if they have names that the text form can't show, or have no rows.
        let odd = ["odd-names", "unsymbolized", "empty-stacks"];
        if !is_positive(&profile) || odd.iter().any(|odd| name(&file).contains(odd)) {
            continue;
        }
        let path = folder.path().join("callgrind.out");
        let to = ["convert", "--to", "callgrind", "-o", path.to_str().unwrap()];
        ok(&[&to[..], &[file.to_str().unwrap()]].concat());
        for sample_type in &profile.sample_type {
            let event = profile.text(sample_type.r#type);
            let top = ok(&[
                "top",
                "-f",
                "json",
                "-n",
                "0",
                "-g",
                "filefunctions",
                "--all-frames",
                "-t",
                event,
                file.to_str().unwrap(),
            ]);
            let top: serde_json::Value = serde_json::from_str(&top).unwrap();
            for (cum, member) in [(false, "flat"), (true, "cum")] {
                let mut expected = BTreeMap::new();
                for row in top["rows"].as_array().unwrap() {
                    let file = row["file"].as_str().unwrap_or_default();
                    let file = match cleaned(file) {
                        file if file.is_empty() => "???".to_string(),
                        file => file,
                    };
                    let value = row[member].as_i64().unwrap();
                    if value != 0 {
                        let place = format!("{file}:{}", row["function"].as_str().unwrap());
                        *expected.entry(place).or_default() += value;
                    }
                }
                let Some(found) = annotated(&path, event, cum) else {
                    return;
                };
                assert_eq!(found, expected, "{} {event} {member}", name(&file));
            }
        }
    }
}

#[test]
fn records() {
    let folder = tempfile::tempdir().unwrap();
    let mut builder = ProfileBuilder::new(&[("inuse_objects", "count"), ("inuse_space", "bytes")]);
    builder.add_folded(
        "main@m.c:3;parse@p.c:7>>item@p.h:2;0x1f@/lib/libc.so",
        &[2, 100],
    );
    builder.add_folded("main@m.c:3;parse@p.c:9;parse@p.c:7", &[1, 10]);
    builder.add_folded("", &[1, 5]);
    let file = folder.path().join("p.pb.gz");
    encode(&builder.finish(), std::fs::File::create(&file).unwrap()).unwrap();
    let text = ok(&["convert", "--to", "callgrind", file.to_str().unwrap()]);
    let text = text.replace(
        &format!("creator: heapprof {}", env!("CARGO_PKG_VERSION")),
        "creator: heapprof",
    );
    expect![[r#"
        # callgrind format
        version: 1
        creator: heapprof
        cmd: /lib/libc.so
        positions: instr line
        event: inuse_objects : inuse_objects (count)
        event: inuse_space : inuse_space (bytes)
        events: inuse_objects inuse_space
        summary: 4 115

        ob=(1) ???
        fl=(1) ???
        fn=(1) (empty stack)
        0x0 0 1 5

        ob=(1)
        fl=(1)
        fn=(2) (root)
        0x0 0 0 0
        cob=(1)
        cfl=(1)
        cfn=(1)
        calls=1 0x0 0
        0x0 0 1 5
        cob=(1)
        cfl=(2) m.c
        cfn=(3) main
        calls=1 0x6d92ee40 3
        0x0 0 3 110

        ob=(2) /lib/libc.so
        fl=(1)
        fn=(4) 0x1f [libc.so]
        0x1f 0 2 100

        ob=(1)
        fl=(3) p.c
        fn=(5) parse
        0xcc931090 7 1 10

        ob=(1)
        fl=(2)
        fn=(3)
        0x6d92ee40 3 0 0
        cob=(1)
        cfl=(3)
        cfn=(5)
        calls=1 0xf087ac10 7
        0x6d92ee40 3 2 100
        cob=(1)
        cfl=(3)
        cfn=(5)
        calls=1 0xcc3ebdb0 9
        0x6d92ee40 3 1 10

        ob=(1)
        fl=(3)
        fn=(5)
        0xcc3ebdb0 9 0 0

        ob=(1)
        fl=(4) p.h
        fn=(6) item
        0xf087ac10 2 0 0
        cob=(2)
        cfl=(1)
        cfn=(4)
        calls=1 0x1f 0
        0xf087ac10 2 2 100

        ob=(1)
        fl=(3)
        fn=(5)
        0xf087ac10 7 0 0
        cob=(1)
        cfl=(4)
        cfn=(6)
        calls=1 0xf087ac10 2
        0xf087ac10 7 2 100
    "#]]
    .assert_eq(&text);
}

/// A difference has decreases, but the format has no negative numbers.
#[test]
fn negative_values_are_refused() {
    let run = run(
        &sample_profiles(),
        &["convert", "--to", "callgrind", "valid/made.negative.pb.gz"],
    );
    assert_eq!((run.code, run.out.as_str()), (2, ""));
    expect![[r#"
        heapprof: valid/made.negative.pb.gz: has negative values, as differences do, and callgrind's format can't hold them; convert the profiles it was made from
    "#]].assert_eq(&run.err);
}
