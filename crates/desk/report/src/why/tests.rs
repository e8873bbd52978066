//! Tests of the report `why`: it fits a screen, adds up, and shows growth.

use std::time::Duration;

use super::*;

fn holder(bytes: u64, name: &str) -> PartHolder {
    PartHolder {
        bytes,
        name: name.to_string(),
        place: "file.cc:12".to_string(),
        ..PartHolder::default()
    }
}

fn part(kind: PartKind, bytes: u64, holders: usize) -> AnswerPart {
    let long = "a_function_with_a_name_that_is_too_long_for_a_line_of_eighty_columns";
    let holders = (0..holders).map(|at| holder(bytes >> at.min(30), &format!("{long}_{at}")));
    AnswerPart {
        detail: "a detail that is too long for the columns that are left".to_string(),
        holders: holders.collect(),
        ..AnswerPart::new(kind, bytes)
    }
}

fn answer(holders: usize) -> MemoryAnswer {
    const MIB: u64 = 1 << 20;
    let parts = vec![
        part(PartKind::MallocInUse, 600 * MIB, holders),
        part(PartKind::MallocFree, 300 * MIB, holders),
        part(PartKind::Files, 60 * MIB, holders),
        part(PartKind::Code, 30 * MIB, holders),
        part(PartKind::Stacks, MIB, holders),
    ];
    MemoryAnswer {
        name: "server".to_string(),
        pid: Some(7),
        total: parts.iter().map(|part| part.bytes).sum(),
        peak: Some(2000 * MIB),
        parts,
        shared: 500 * MIB,
        notes: vec!["a note of many words ".repeat(8)],
        hold: Some(Duration::from_millis(20)),
        ..MemoryAnswer::default()
    }
}

fn text(answer: &MemoryAnswer, all: bool) -> String {
    let next = NextCommand {
        command: "heapprof top pid:7".to_string(),
        shows: "all functions".to_string(),
    };
    let style = ReportStyle {
        width: Some(MIN_COLUMNS),
        ..ReportStyle::default()
    };
    why(answer, &[next], all, &style).unwrap()
}

#[test]
fn an_answer_fits_a_screen() {
    for holders in [0, 1, 5, 100] {
        let text = text(&answer(holders), false);
        assert!(text.lines().count() <= SCREEN_LINES, "{text}");
        for line in text.lines() {
            assert!(line.chars().count() <= MIN_COLUMNS, "{line}");
        }
    }
    // The whole answer has each holder.
    let all = text(&answer(100), true);
    assert!(
        all.lines().count() > 500 && all.contains("_99  file.cc"),
        "{all}"
    );
}

#[test]
fn the_head_and_the_parts_say_it_all() {
    let text = text(&answer(1), false);
    let expected = [
        "server, pid 7: 991MiB resident, peak 1.95GiB; not recorded\n",
        "    600MiB  61%  malloc, in use         a detail",
        "      1MiB  <1%  stacks\n",
        "    991MiB       as the kernel counts it; suspended for 20.0 ms\n",
        "500MiB of it is shared with other processes\n",
        "next  heapprof top pid:7  all functions\n",
    ];
    for line in expected {
        assert!(text.contains(line), "{line:?} is not in\n{text}");
    }
}

#[test]
fn growth_is_that_of_a_minute() {
    let (before, mut now) = (answer(1), answer(1));
    now.parts[0].bytes += 10 << 20;
    now.parts[0].holders[0].bytes += 5 << 20;
    now.parts[1].holders[0].name = "new".to_string();
    // A count that changes does not make another holder.
    now.parts[0].holders[0].extent = "7 blocks".to_string();
    now.parts.pop();
    now.add_growth(&before, Duration::from_secs(30));
    assert_eq!(now.parts[0].growth, Some(20 << 20));
    assert_eq!(now.parts[0].holders[0].growth, Some(10 << 20));
    assert_eq!(now.parts[1].growth, Some(0));
    assert_eq!(now.parts[1].holders[0].growth, None);
    assert!(text(&now, false).contains("+20MiB/min"));
    assert_eq!(
        now.part(PartKind::Stacks).map(|part| part.growth),
        Some(Some(-2 << 20))
    );
    let mut refused = answer(1);
    refused.hold = None;
    refused.add_growth(&before, Duration::from_secs(30));
    assert_eq!(refused.parts[0].growth, None);
}

#[test]
fn growth_of_python_is_that_of_joined_parts() {
    const MIB: u64 = 1 << 20;
    let apart = |malloc: u64, python: u64| MemoryAnswer {
        parts: vec![
            part(PartKind::MallocInUse, malloc * MIB, 1),
            part(PartKind::PythonObjects, python * MIB, 1),
        ],
        ..MemoryAnswer::default()
    };
    let joined = |malloc: u64, python: u64| {
        let mut answer = apart(malloc, python);
        answer.join_python();
        answer
    };
    for (before, mut now) in [
        (apart(40, 20), joined(41, 21)),
        (joined(40, 20), apart(41, 21)),
    ] {
        now.add_growth(&before, Duration::from_secs(60));
        let growth: Vec<_> = now
            .parts
            .iter()
            .map(|part| (part.kind, part.growth))
            .collect();
        assert_eq!(growth, [(PartKind::MallocAndPython, Some(2 << 20))]);
    }
}

#[test]
fn growth_of_other_allocators_is_that_of_joined_parts() {
    const MIB: u64 = 1 << 20;
    let apart = |more: u64| MemoryAnswer {
        parts: vec![
            part(PartKind::MallocInUse, (40 + more) * MIB, 1),
            part(PartKind::PythonObjects, 20 * MIB, 1),
            part(PartKind::Anonymous, (90 + more) * MIB, 1),
        ],
        ..MemoryAnswer::default()
    };
    let mut joined = apart(0);
    joined.join_allocators();
    let mut now = apart(1);
    now.add_growth(&joined, Duration::from_secs(60));
    let parts = now.parts.iter();
    let parts: Vec<_> = parts
        .map(|part| (part.kind, part.bytes, part.growth))
        .collect();
    let expected = (PartKind::MallocAndOthers, 152 * MIB, Some(2 << 20));
    assert_eq!(parts, [expected]);
}

#[test]
fn rows_for_programs_have_all_parts() {
    let answer = answer(2);
    let csv = ReportStyle {
        format: ReportFormat::Csv,
        ..ReportStyle::default()
    };
    let text = why(&answer, &[], false, &csv).unwrap();
    assert_eq!(text.lines().count(), 1 + 5 + 10, "{text}");
    let json = document(&answer, &[]);
    assert_eq!(json["parts"].as_array().unwrap().len(), 5);
    assert_eq!(json["total_is"], "resident");
}

#[test]
fn a_minute_of_growth_gives_enough_samples() {
    let period = |kind, growth| {
        let part = AnswerPart {
            growth,
            ..AnswerPart::new(kind, 1 << 30)
        };
        let answer = MemoryAnswer {
            parts: vec![part],
            ..MemoryAnswer::default()
        };
        answer.sampling_period(128)
    };
    let heap = PartKind::MallocInUse;
    assert_eq!(period(heap, Some(7 << 20)), Some(32 << 10));
    assert_eq!(period(heap, Some(64 << 20)), Some(512 << 10));
    assert_eq!(period(heap, Some(1)), Some(4 << 10));
    assert_eq!(period(heap, Some(-7 << 20)), None);
    assert_eq!(period(heap, None), None);
    assert_eq!(period(PartKind::Files, Some(7 << 20)), None);
}
