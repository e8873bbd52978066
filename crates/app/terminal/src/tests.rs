//! Tests of drawings, compared as text at typical sizes, and of keys without a terminal.
//! `UPDATE_EXPECT=1 cargo test -p heapprof-cli terminal` updates the expected drawings.

use std::path::Path;
use std::sync::Arc;

use expect_test::expect_file;
use heapprof_analysis::QuestionSource;
use heapprof_profile::{Profile, ProfileBuilder};
use ratatui_core::backend::TestBackend;
use ratatui_core::terminal::Terminal;

use super::canvas::{ScreenStyle, text_of};
use super::draw::draw;
use super::feed::{
    CurvePoint, FeedNews, FeedRequest, ProcessChoice, SnapshotFeed, ViewProcess, ViewSnapshot,
};
use super::files::FileFeed;
use super::keys::KeyPress;
use super::plain_view::PlainBlocks;
use super::run;
use super::state::{KeyEffect, ViewColumn, ViewMode, ViewState};
use super::view_data::ViewData;

/// Returns a profile of a mailer that was taken `n` seconds after its start.
fn profile(n: i64, more: &[(&str, i64)]) -> Profile {
    let types = [
        ("inuse_objects", "count"),
        ("inuse_space", "bytes"),
        ("peak_objects", "count"),
        ("peak_space", "bytes"),
    ];
    let mut builder = ProfileBuilder::new(&types);
    let stacks = [
        (
            "main;serve_one;Server::handle;session::Manager::begin",
            n * 160_000,
        ),
        (
            "main;serve_one;Server::handle;session::Manager::remember",
            n * 80_000,
        ),
        ("main;load;cache::Lru<std::string, int>::load", 2_400_000),
        ("main;metrics::observe", 500_000 - n * 1000),
    ];
    for &(stack, bytes) in stacks.iter().chain(more) {
        builder.add_folded(stack, &[bytes / 320, bytes, bytes / 320, bytes]);
    }
    let comments = [
        "collector: heapprof 0.2.0",
        "program: mailer",
        "pid: 5570",
        "rss: 20500000 bytes",
    ];
    builder.profile.comment = comments.map(|comment| builder.text(comment)).to_vec();
    builder.profile.period = 1;
    builder.profile.time_nanos = 1_000_000_000_000 + n * 1_000_000_000;
    builder.profile.duration_nanos = n * 1_000_000_000;
    builder.finish()
}

/// Returns the state of a live program with `count` snapshots.
fn news(count: i64) -> FeedNews {
    let snapshot = |n| {
        Arc::new(ViewSnapshot::new(n as u64, QuestionSource::new("p", profile(n, &[]))).unwrap())
    };
    let series: Vec<_> = (1..=count).map(snapshot).collect();
    let point = |one: &Arc<ViewSnapshot>| CurvePoint {
        seconds: one.seconds.unwrap(),
        heap: one.facts.in_use.unwrap(),
        rss: Some(20_500_000),
    };
    FeedNews {
        history: series.iter().map(point).collect(),
        snapshot: series.last().cloned(),
        series,
        processes: vec![ViewProcess {
            number: 5570,
            program: "mailer".into(),
        }],
        program: "mailer".into(),
        process: Some(5570),
        rss: Some(20_500_000),
        clock: Some(count as f64 + 0.4),
        is_live: true,
        ..FeedNews::default()
    }
}

/// Returns the screen after the keys `keys` were pressed.
fn screen(news: FeedNews, size: (u16, u16), keys: &[KeyPress]) -> (String, ViewState, ViewData) {
    let (mut state, mut data) = (ViewState::default(), ViewData::default());
    let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
    data.refresh(news.clone(), &mut state);
    let look = ScreenStyle::default();
    let mut draw = |data: &ViewData, state: &mut ViewState| {
        terminal
            .draw(|frame| draw(frame.buffer_mut(), data, state, look, 0.0))
            .unwrap();
        text_of(terminal.backend().buffer())
    };
    let mut text = draw(&data, &mut state);
    for &key in keys {
        if state.press(key, &data) == KeyEffect::Mark {
            data.mark = data.news.snapshot.clone();
        }
        data.refresh(news.clone(), &mut state);
        text = draw(&data, &mut state);
    }
    (text, state, data)
}

fn expect(name: &str, text: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/golden");
    expect_file![folder.join(name)].assert_eq(text);
}

#[test]
fn drawings() {
    let (small, large) = ((80, 24), (200, 50));
    for (name, size, keys) in [
        ("table.80x24.txt", small, &[][..]),
        ("table.200x50.txt", large, &[KeyPress::Down, KeyPress::Tab]),
        ("open.80x24.txt", small, &[KeyPress::Enter]),
        (
            "tree.80x24.txt",
            small,
            &[KeyPress::Char('2'), KeyPress::Down],
        ),
        ("timeline.80x24.txt", small, &[KeyPress::Char('3')]),
        ("growth.80x24.txt", small, &[KeyPress::Char('4')]),
        ("help.80x24.txt", small, &[KeyPress::Char('?')]),
    ] {
        expect(name, &screen(news(12), size, keys).0);
    }
    let ended = FeedNews {
        ended: Some("ended with exit code 3".into()),
        rss: None,
        output: vec!["the last line".into()],
        ..news(5)
    };
    expect("ended.80x24.txt", &screen(ended, small, &[]).0);
    let nothing = FeedNews {
        is_live: true,
        program: "mailer".into(),
        ..FeedNews::default()
    };
    expect("nothing.80x24.txt", &screen(nothing, small, &[]).0);
}

/// Tests that a single profile has the curve of its recording, with the peak that the first line
/// shows.
#[test]
fn a_file_shows_its_own_curve() {
    let curve = |profile: Profile| {
        let mut files = FileFeed::new(vec![QuestionSource::new("p", profile)]).unwrap();
        screen(
            files.next(&FeedRequest::default()),
            (80, 24),
            &[KeyPress::Char('3')],
        )
    };
    let (text, ..) = curve(profile(3, &[]));
    assert!(text.contains(" 1 moment, at 00:03.0: 3.45MiB"), "{text}");
    let mut recorded = profile(3, &[]);
    let moment = |micros, bytes| heapprof_profile::HeapMoment {
        micros,
        bytes,
        objects: 1,
    };
    let history = heapprof_profile::HeapHistory {
        moments: vec![moment(0, 0), moment(3_000_000, 3 << 20)],
        resident: vec![heapprof_profile::ResidentMoment {
            micros: 2_000_000,
            bytes: 60 << 20,
        }],
        peak: Some(heapprof_profile::HeapPeak {
            micros: 1_500_000,
            bytes: 55 << 20,
        }),
    };
    history.put(&mut recorded);
    let (text, _, data) = curve(recorded);
    let said = " 4 moments; the heap was largest at 00:01.5: 55MiB";
    assert!(text.contains(said), "{text}");
    let points = data.news.history.iter();
    let points: Vec<_> = points
        .map(|p| (p.heap >> 20, p.rss.map(|rss| rss >> 20)))
        .collect();
    assert_eq!(
        points,
        [(0, None), (55, None), (55, Some(60)), (3, Some(60))]
    );
}

/// Tests that the curve of several moments shows the largest heap in any of their profiles, and the
/// time of that heap if a history has it.
#[test]
fn a_series_names_the_largest_peak() {
    let spike = |n: i64, with_history| {
        let peak = heapprof_profile::HeapPeak {
            micros: 1_500_000,
            bytes: 55 << 20,
        };
        let mut builder = ProfileBuilder::new(&[("inuse_space", "bytes"), ("peak_space", "bytes")]);
        builder.add_folded(
            "main;serve_one",
            &[n << 20, if n == 1 { n << 20 } else { peak.bytes }],
        );
        let mut profile = builder.finish();
        profile.time_nanos = 1_000_000_000_000 + n * 1_000_000_000;
        profile.duration_nanos = n * 1_000_000_000;
        if with_history {
            let history = heapprof_profile::HeapHistory {
                peak: Some(peak),
                ..heapprof_profile::HeapHistory::default()
            };
            history.put(&mut profile);
        }
        QuestionSource::new("p", profile)
    };
    for (with_history, said) in [
        (true, " 3 moments; the heap was largest at 00:01.5: 55MiB"),
        (
            false,
            " 3 moments; the heap was largest, at an unknown time: 55MiB",
        ),
    ] {
        let sources = [1, 2, 3].map(|n| spike(n, with_history && n == 3));
        let mut files = FileFeed::new(sources.to_vec()).unwrap();
        let news = files.next(&FeedRequest::default());
        let (text, ..) = screen(news, (80, 24), &[KeyPress::Char('3')]);
        assert!(text.contains(said), "{text}");
        assert_eq!(text.contains("55MiB ┤"), with_history, "{text}");
    }
}

/// Tests that RSS is shown beside the bytes in use, and peak RSS beside the peak. Both are without
/// the collector's own tables.
#[test]
fn rss_goes_with_what_it_is_of() {
    let mut sized = profile(3, &[]);
    for comment in ["peak rss: 62914560 bytes", "own tables: 1048576 bytes"] {
        let comment = sized.strings.intern(comment);
        sized.comment.push(comment);
    }
    let mut files = FileFeed::new(vec![QuestionSource::new("p", sized)]).unwrap();
    let (text, ..) = screen(files.next(&FeedRequest::default()), (200, 50), &[]);
    let said = "In use 3.45MiB   RSS 18.55MiB   peak 3.45MiB   peak RSS 59MiB";
    assert!(text.contains(said), "{text}");
}

/// Tests that any size can be drawn, even one without room.
#[test]
fn every_size_is_drawn() {
    for size in [
        (0, 0),
        (1, 1),
        (20, 5),
        (79, 24),
        (80, 23),
        (81, 24),
        (300, 25),
        (80, 120),
    ] {
        for view in ['1', '2', '3', '4', '?'] {
            let (text, ..) = screen(
                news(4),
                size,
                &[KeyPress::Char(view), KeyPress::Enter, KeyPress::Char('/')],
            );
            let is_small = size.0 < 80 || size.1 < 24;
            let says_so = text.replace('\n', "").contains("too small");
            assert_eq!(says_so, is_small && size.0 > 10, "{size:?}: {text}");
        }
    }
}

/// Tests that names in a profile reach the terminal only without control characters.
#[test]
fn hostile_names_are_shown_and_not_obeyed() {
    let evil = "evil\u{1b}[31m\u{1b}]0;title\u{7}\u{9b}2J\u{202e}gnp.\r\n\t\u{200f}x";
    let stack = format!("{evil};{evil}");
    let profile = profile(3, &[(&stack, 9_000_000)]);
    let snapshot = Arc::new(ViewSnapshot::new(1, QuestionSource::new(evil, profile)).unwrap());
    let hostile = FeedNews {
        snapshot: Some(Arc::clone(&snapshot)),
        series: vec![snapshot; 3],
        processes: vec![],
        program: evil.into(),
        ended: Some(evil.into()),
        output: vec![evil.into()],
        trouble: Some(evil.into()),
        ..news(3)
    };
    let is_bad = |c: char| {
        (c.is_control() && c != '\n') || matches!(c, '\u{200f}' | '\u{202a}'..='\u{202e}')
    };
    for view in ['1', '2', '3', '4'] {
        let keys = [
            KeyPress::Char(view),
            KeyPress::Char('/'),
            KeyPress::Char('\u{202e}'),
            KeyPress::Char('['),
        ];
        for count in 1..=keys.len() {
            let (text, ..) = screen(hostile.clone(), (200, 50), &keys[..count]);
            assert!(!text.contains(is_bad), "{text:?}");
            assert!(text.contains("evil"), "{text}");
        }
    }
    let block = PlainBlocks::default().block(hostile).unwrap();
    assert!(!block.contains(is_bad), "{block:?}");
    assert!(block.contains("evil\\u{1b}"), "{block}");
}

#[test]
fn keys_change_what_is_seen() {
    let typed = |text: &str| text.chars().map(KeyPress::Char).collect::<Vec<_>>();
    // A focus keeps what matches; an invalid one is reported, and the focus stays as it was.
    let (text, state, data) = screen(
        news(5),
        (80, 24),
        &[typed("/begin"), vec![KeyPress::Enter]].concat(),
    );
    assert_eq!(state.ask.focus.as_deref(), Some("begin"));
    assert!(
        data.answer
            .unwrap()
            .rows
            .iter()
            .all(|row| !row.name.contains("observe")),
        "{text}"
    );
    let (text, state, _) = screen(
        news(5),
        (80, 24),
        &[typed("/(x"), vec![KeyPress::Enter]].concat(),
    );
    assert_eq!(
        (state.ask.focus, state.wrong.is_some()),
        (None, true),
        "{text}"
    );
    assert!(text.contains("focus on: (x"), "{text}");
    let (text, ..) = screen(
        news(5),
        (80, 24),
        &[typed("/nobody"), vec![KeyPress::Enter]].concat(),
    );
    assert!(text.contains("keeps 0 of"), "{text}");
    // Sample types and units.
    let (_, state, _) = screen(news(5), (80, 24), &typed("b"));
    assert_eq!(state.ask.sample_type.as_deref(), Some("inuse_objects"));
    let (_, state, _) = screen(news(5), (80, 24), &typed("tbb"));
    assert_eq!(state.ask.sample_type.as_deref(), Some("peak_space"));
    // Every column sorts, either way.
    for (presses, (column, _)) in ViewColumn::ALL.iter().enumerate() {
        let keys = "s".repeat(presses) + "S";
        let (_, state, _) = screen(news(5), (200, 50), &typed(&keys));
        assert_eq!((state.column, state.is_reversed), (*column, true));
    }
    // Changes are relative to the mark.
    let (text, _, data) = screen(news(5), (80, 24), &typed("d"));
    assert!(text.contains("Δ MARK") && data.mark.is_some(), "{text}");
    // Esc goes back, one step at a time.
    let keys = [
        typed("/main"),
        vec![KeyPress::Enter],
        typed("2"),
        vec![KeyPress::Esc],
    ]
    .concat();
    let (_, state, _) = screen(news(5), (80, 24), &keys);
    assert_eq!(
        (state.view, state.ask.focus.is_some()),
        (ViewMode::Table, true)
    );
}

#[test]
fn leaving_asks_only_while_the_program_runs() {
    let mut data = ViewData::default();
    let mut state = ViewState::default();
    data.news = news(1);
    assert_eq!(state.press(KeyPress::Char('q'), &data), KeyEffect::Nothing);
    assert_eq!(state.press(KeyPress::Esc, &data), KeyEffect::Nothing);
    assert!(!state.asks);
    state.press(KeyPress::Char('q'), &data);
    assert_eq!(
        state.press(KeyPress::Char('x'), &data),
        KeyEffect::Interrupt
    );
    state.press(KeyPress::Char('q'), &data);
    assert_eq!(state.press(KeyPress::Char('q'), &data), KeyEffect::Leave);
    assert_eq!(
        state.press(KeyPress::Interrupt, &data),
        KeyEffect::Interrupt
    );
    data.news.ended = Some("ended".into());
    assert_eq!(state.press(KeyPress::Char('q'), &data), KeyEffect::Leave);
    assert_eq!(state.press(KeyPress::Interrupt, &data), KeyEffect::Leave);
}

/// Tests that rows keep their order for three seconds, and are then sorted.
#[test]
fn rows_keep_their_place_for_a_while() {
    let (_, mut state, data) = screen(news(1), (80, 24), &[]);
    let first = |state: &mut ViewState, data: &ViewData, now| {
        let answer = data.answer.as_ref().unwrap();
        answer.rows[state.arrange(answer, &data.base, now)[0]]
            .name
            .clone()
    };
    assert!(first(&mut state, &data, 0.0).contains("load"));
    assert!(state.is_in_order);
    let mut later = ViewData::default();
    later.refresh(news(40), &mut state);
    assert!(first(&mut state, &later, 2.9).contains("load"));
    // No arrow says then that rows are in order.
    assert!(!state.is_in_order);
    // The details below the table are those of the row with the cursor.
    assert!(later.detail.as_ref().unwrap().name.contains("load"));
    assert!(first(&mut state, &later, 3.1).contains("begin"));
    assert!(state.is_in_order);
}

/// Tests that functions of the same name have separate rows, with separate trends, callers and
/// lines.
#[test]
fn functions_of_one_name_have_their_files_beside_them() {
    let snapshot = |n: i64| {
        let more = [
            ("main;init@/src/a.c:3", n * 9_000_000),
            ("main;load;init@/src/b.c:7", n * 8_000_000),
        ];
        Arc::new(ViewSnapshot::new(n as u64, QuestionSource::new("p", profile(n, &more))).unwrap())
    };
    let series = vec![snapshot(1), snapshot(2)];
    let news = FeedNews {
        snapshot: series.last().cloned(),
        series,
        ..news(1)
    };
    let (text, _, data) = screen(news, (200, 50), &[KeyPress::Down]);
    let rows = &data.answer.as_ref().unwrap().rows;
    assert_eq!((&*rows[0].name, &*rows[1].name), ("init a.c", "init b.c"));
    assert!(
        text.contains("init a.c") && text.contains("init b.c"),
        "{text}"
    );
    let trend = data.trend_of(&rows[1].function);
    assert_eq!(trend, [8_000_000, 16_000_000]);
    let detail = data.detail.unwrap();
    assert_eq!((&*detail.name, detail.cum), ("init b.c", 16_000_000));
    assert_eq!(detail.callers, [("load".to_string(), 16_000_000)]);
    assert_eq!(detail.lines, [("b.c:7".to_string(), 16_000_000)]);
}

#[test]
fn a_series_steps_through_its_moments() {
    let sources = [3, 1, 2].map(|n| QuestionSource::new(format!("{n}"), profile(n, &[])));
    let mut files = FileFeed::new(sources.to_vec()).unwrap();
    let mut at = |step| {
        let wanted = FeedRequest {
            step,
            ..FeedRequest::default()
        };
        let news = files.next(&wanted);
        (
            news.moment.unwrap(),
            news.snapshot.unwrap().source.name.clone(),
            news.history.len(),
        )
    };
    assert_eq!(at(0), ((3, 3), "3".into(), 3));
    assert_eq!(at(-1), ((2, 3), "2".into(), 3));
    assert_eq!(at(-9), ((1, 3), "1".into(), 3));
    assert_eq!(at(1), ((2, 3), "2".into(), 3));
}

#[test]
fn processes_come_one_after_the_other() {
    let mut news = news(1);
    assert_eq!(run::next_process(&news), ProcessChoice::Program);
    let process = |number| ViewProcess {
        number,
        program: String::new(),
    };
    news.processes = [5570, 6000, 7000].map(process).to_vec();
    assert_eq!(run::next_process(&news), ProcessChoice::Process(6000));
    news.which = ProcessChoice::Process(7000);
    assert_eq!(run::next_process(&news), ProcessChoice::All);
    news.which = ProcessChoice::All;
    assert_eq!(run::next_process(&news), ProcessChoice::Program);
}
