//! Flame graphs: their contents, their colours for differences, and the position of their root.

use heapprof_tests::harness::{ok, run, sample_profiles};

const AFTER: &str = "valid/go.leaky.after.pb.gz";

#[test]
fn flame_graphs_hold_the_total_and_what_vanished() {
    let svg = ok(&["flame", AFTER]);
    assert!(svg.contains("<svg") && svg.trim_end().ends_with("</svg>"));
    assert!(svg.contains("inuse_space: total 4."), "the title");
    let loaded = regex::Regex::new("(src|href)=\"http").unwrap();
    assert!(!loaded.is_match(&svg), "nothing is loaded from elsewhere");
    let unsymbolized = ok(&["flame", "valid/made.unsymbolized.pb.gz"]);
    assert!(
        unsymbolized.contains("0x401000 [app] (400 bytes"),
        "frames without symbols stay"
    );
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, stacks: &[(&str, i64)]| {
        let mut builder = heapprof_profile::ProfileBuilder::new(&[("inuse_space", "bytes")]);
        for (stack, value) in stacks {
            builder.add_folded(stack, &[*value]);
        }
        let path = folder.path().join(name);
        heapprof_profile::encode(&builder.finish(), std::fs::File::create(&path).unwrap()).unwrap();
        path.to_str().unwrap().to_string()
    };
    let before = write(
        "before.pb.gz",
        &[("main;stays", 100), ("main;vanishes", 50), ("main;aa", 40)],
    );
    let after = write("after.pb.gz", &[("main;stays", 300), ("main;aa", 10)]);
    let diff = ok(&["flame", "--base", &before, &after]);
    assert!(diff.contains("orange grew, blue shrank"));
    assert!(diff.contains("id=\"legend\""));
    // `aa` is lighter and alphabetically first, so the picture is not sorted by name.
    assert!(diff.contains("aa (40B before, 10B after, -30B)"));
    assert!(diff.contains("main (190B before, 310B after, +120B)"));
    assert!(
        diff.contains("vanishes (50B before, 0B after, -50B)"),
        "what vanished is shown"
    );
    assert!(diff.contains("inuse_space: 190B before, 310B after (+120B)"));
    assert!(!diff.contains("rgb(255,"), "no red");
    // Each frame has its own values, wherever the root is, and from whichever end the tree is read.
    for arranged in [
        &["--root", "top"][..],
        &["--root", "below"],
        &["-r"],
        &["-r", "--root", "top"],
        &["-r", "--root", "below"],
    ] {
        let two = [&["flame", "--base", &before, &after][..], arranged].concat();
        let drawn = ok(&two);
        let all = "all (190B before, 310B after, +120B)";
        assert!(drawn.contains(all), "{arranged:?}");
        assert!(
            drawn.contains("aa (40B before, 10B after, -30B)"),
            "{arranged:?}"
        );
        let frames = drawn.matches("fg:x=").count();
        assert_eq!(
            drawn.matches(" before, ").count(),
            frames + 1,
            "{arranged:?}"
        );
        assert!(!drawn.contains("rgb(255,"), "{arranged:?}");
    }
    let folded = ok(&[
        "flame",
        "-f",
        "folded",
        "--min-percent",
        "0",
        "valid/made.recursion.pb.gz",
    ]);
    assert_eq!(folded.lines().count(), 3, "{folded}");
    let negative = ok(&["flame", "valid/made.negative.pb.gz"]);
    assert!(
        negative.contains("id=\"legend\""),
        "a difference in one file is drawn as one"
    );
}

/// The statement of --show-sql gives the same numbers. Deep stacks are visible in the picture, and
/// their indentation in text is limited.
#[test]
fn deep_stacks_can_be_seen() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut b = heapprof_profile::ProfileBuilder::new(&[("inuse_space", "bytes")]);
    let deep: Vec<String> = (0..200).map(|n| format!("f{n}")).collect();
    b.add_folded(&format!("{};a", deep.join(";")), &[1000]);
    b.add_folded(&format!("{};b;c", deep.join(";")), &[3000]);
    let file = std::fs::File::create(folder.join("deep.pb.gz")).unwrap();
    heapprof_profile::encode(&b.finish(), file).unwrap();
    let shallow = sample_profiles().join("valid/go.leaky.after.pb.gz");
    let shallow = shallow.to_str().unwrap();
    for (args, inverted) in [
        (&["deep.pb.gz"][..], true),
        (&["deep.pb.gz", "--root", "below"], false),
        (&[shallow], false),
        (&[shallow, "--root", "top"], true),
        (&[shallow, "--reverse"], true),
    ] {
        let drawn = run(folder, &[&["flame"], args].concat());
        assert_eq!(drawn.code, 0, "{args:?}: {}", drawn.err);
        assert!(
            drawn.out.contains(&format!("var inverted = {inverted};")),
            "{args:?}"
        );
        assert!(
            drawn
                .out
                .contains("#search { text-anchor:end; opacity:0.8;"),
            "{args:?}"
        );
    }
    let tree = run(folder, &["tree", "deep.pb.gz"]).out;
    let rows: Vec<&str> = tree.lines().skip(3).collect();
    assert_eq!(rows.len(), 3, "{tree}");
    assert!(
        rows[0].ends_with(" f199") && rows[0].contains("  f0 → f1 → "),
        "{tree}"
    );
    assert!(rows[0].contains(" more) → "), "{tree}");
    assert!(rows[1].ends_with("  2.93KiB    b → c"), "{tree}");
    assert!(rows[2].ends_with("  1000B    a"), "{tree}");
    assert_eq!(
        run(folder, &["tree", "--full", "deep.pb.gz"])
            .out
            .lines()
            .count(),
        3 + 203
    );
    let csv = |more: &[&str]| {
        run(
            folder,
            &[&["tree", "-f", "csv", "deep.pb.gz"], more].concat(),
        )
        .out
    };
    assert_eq!(csv(&[]), csv(&["--full"]));
}

/// Frames have the names of `top`, and the colours of the page: libraries are grey, and each module
/// of the program has a hue.
#[test]
fn frames_have_short_names_and_the_colours_of_the_page() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut b = heapprof_profile::ProfileBuilder::new(&[("inuse_space", "bytes")]);
    let insert = "void std::vector<int, std::allocator<int> >::push_back(int const&)";
    b.add_folded(&format!("shop::main();{insert}"), &[1000]);
    b.add_folded(
        "shop::main();shop::open(char const*);parser::read()",
        &[3000],
    );
    let file = std::fs::File::create(folder.join("names.pb.gz")).unwrap();
    heapprof_profile::encode(&b.finish(), file).unwrap();
    let drawn = run(folder, &["flame", "--all-code", "names.pb.gz"]).out;
    let colour = |name: &str| {
        let title = format!("<title>{name} (");
        let at = drawn
            .find(&title)
            .unwrap_or_else(|| panic!("{name}: {drawn}"));
        let fill = &drawn[at..][drawn[at..].find("rgb(").unwrap() + 4..];
        let numbers = fill[..fill.find(')').unwrap()].split(',');
        numbers
            .map(|n| n.parse::<i32>().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(colour("all"), [227, 231, 236]);
    let spread = |name: &str| {
        let channels = colour(name);
        channels.iter().max().unwrap() - channels.iter().min().unwrap()
    };
    assert!(spread("std::vector&lt;int&gt;::push_back") < 20, "grey");
    for name in ["shop::main", "shop::open", "parser::read"] {
        assert!(spread(name) > 40, "{name}: {:?}", colour(name));
    }
    let distance = |a: &str, b: &str| {
        let both = colour(a).into_iter().zip(colour(b));
        both.map(|(a, b)| (a - b).abs()).max().unwrap()
    };
    assert!(distance("shop::main", "shop::open") < 20, "one module");
    assert!(distance("shop::main", "parser::read") > 30, "two modules");
    assert!(
        drawn.contains("txt.substring(0, x) + \"…\""),
        "names are cut at their end"
    );
    assert!(!drawn.contains("..</text>"));
}

/// A profile whose values are all 0 leaves no empty file, and the error names a type that has some.
#[test]
fn a_type_without_values_leaves_no_empty_file() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let types = [("alloc_space", "bytes"), ("inuse_space", "bytes")];
    let mut b = heapprof_profile::ProfileBuilder::new(&types);
    b.add_folded("main;make", &[4096, 0]);
    let file = std::fs::File::create(folder.join("freed.pb.gz")).unwrap();
    heapprof_profile::encode(&b.finish(), file).unwrap();
    for format in ["svg", "folded"] {
        let args = [
            "flame",
            "-t",
            "inuse",
            "-f",
            format,
            "-o",
            "out",
            "freed.pb.gz",
        ];
        let made = run(folder, &args);
        assert_eq!(made.code, 2, "{format}: {}", made.err);
        for words in [
            "inuse_space is 0 in all samples",
            "alloc_space has 4KiB",
            "-t alloc",
        ] {
            assert!(made.err.contains(words), "{format}: {}", made.err);
        }
        assert!(!folder.join("out").exists(), "{format}");
    }
}
