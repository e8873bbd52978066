//! Different encodings of the same profile: packing, order, gzip members, ids, unknown fields, odd
//! texts.

use heapprof_profile::{Profile, ReadOptions, Warning, decode, decode_with};

use heapprof_tests::exercise::plain;
use heapprof_tests::harness::{run, sample_profiles};
use heapprof_tests::wire::{Parts, gzip, len, num, packed, varint};

fn read(bytes: &[u8]) -> Profile {
    decode(bytes).unwrap()
}

/// Returns the function names of the first sample, and its values.
fn shape(profile: &Profile) -> (Vec<&str>, &[i64]) {
    let names = profile.samples.stack(0).iter().flat_map(|l| {
        let lines = profile.lines(&profile.location[l.index()]);
        lines
            .iter()
            .map(|line| profile.text(profile.function[line.function.index()].name))
    });
    (names.collect(), profile.samples.values(0))
}

#[test]
fn packed_unpacked_and_mixed() {
    let bodies = [
        [packed(1, &[1]), packed(2, &[3, 96])].concat(),
        [num(1, 1), num(2, 3), num(2, 96)].concat(),
        [num(2, 3), packed(1, &[1]), packed(2, &[96])].concat(),
    ];
    for body in bodies {
        let parts = Parts {
            sample: len(2, body),
            ..Parts::default()
        };
        assert_eq!(shape(&read(&parts.bytes())), (vec!["main"], &[3, 96][..]));
    }
}

/// Stacks in forms that no writer needs, with ids that few writers use, give the same profile,
/// whether their bytes are kept as written or not.
#[test]
fn stacks_in_odd_forms() {
    let huge = (1 << 63) + 5;
    let two_bytes_for_one = |id: u8| vec![id | 0x80, 0];
    let bits_beyond = |id: u64| -> Vec<u8> {
        let seven = |i: u32| (id >> (7 * i)) as u8 & 0x7f;
        (0..9)
            .map(|i| seven(i) | 0x80)
            .chain([(id >> 63) as u8 | 2])
            .collect()
    };
    let forms = |a: u64, b: u64| {
        let bytes = |id: u64| match u8::try_from(id) {
            Ok(id @ ..0x80) => two_bytes_for_one(id),
            _ => varint(id),
        };
        [
            packed(1, &[a as i64, b as i64, a as i64]),
            [num(1, a as i64), packed(1, &[b as i64]), num(1, a as i64)].concat(),
            [packed(1, &[a as i64, b as i64]), packed(1, &[a as i64])].concat(),
            [num(1, a as i64), num(1, b as i64), num(1, a as i64)].concat(),
            [packed(1, &[]), packed(1, &[a as i64, b as i64, a as i64])].concat(),
            len(1, [bytes(a), bytes(b), bytes(a)].concat()),
            // Bits beyond the 64th are discarded.
            len(1, [bits_beyond(a), varint(b), varint(a)].concat()),
        ]
    };
    let location = |id: u64| len(4, [num(1, id as i64), num(3, 0x1010)].concat());
    for (ids, fits) in [
        ([1, 2], true),
        ([2, 1], true),
        ([7, 9], true),
        ([1, huge], true),
        ([huge, 1 << 31], true),
        ([1, 1 << 40], true),
        ([1, 2], false),
    ] {
        // Two ids are invalid: the next one after the largest, and 0.
        let asked = match fits {
            true => vec![ids],
            false => vec![[1, 3], [0, 2]],
        };
        for [a, b] in asked {
            for (form, stack) in forms(a, b).into_iter().enumerate() {
                let parts = Parts {
                    sample: len(2, [stack, packed(2, &[3, 96])].concat()),
                    location: ids.iter().flat_map(|&id| location(id)).collect(),
                    ..Parts::default()
                };
                let bytes = parts.bytes();
                let kept = ReadOptions::default().stacks_as_written(true);
                let (read, kept) = (decode(&bytes[..]), decode_with(&bytes[..], kept));
                let what = format!("{ids:?} {a} {b}, form {form}");
                if !fits {
                    let (read, kept) = (read.unwrap_err(), kept.unwrap_err());
                    assert_eq!(read.to_string(), kept.to_string(), "{what}");
                    continue;
                }
                let (read, kept) = (read.unwrap(), kept.unwrap());
                assert_eq!(plain(&read), plain(&kept), "{what}");
                assert_eq!(read, kept, "{what}");
                let stack = read.samples.stack(0).iter();
                let stack: Vec<u64> = stack.map(|l| read.location[l.index()].id).collect();
                assert_eq!(stack, [a, b, a], "{what}");
            }
        }
    }
}

#[test]
fn any_order_of_fields() {
    let p = Parts::default();
    let all = [
        &p.types,
        &p.sample,
        &p.mapping,
        &p.location,
        &p.function,
        &p.strings,
    ];
    let expected = read(&p.bytes());
    for turn in 0..all.len() {
        let mut order = all;
        order.rotate_left(turn);
        let bytes: Vec<u8> = order.iter().flat_map(|part| part.iter().copied()).collect();
        assert_eq!(read(&bytes), expected, "rotated by {turn}");
        order.reverse();
        let bytes: Vec<u8> = order.iter().flat_map(|part| part.iter().copied()).collect();
        assert_eq!(
            shape(&read(&bytes)),
            shape(&expected),
            "reversed, rotated by {turn}"
        );
    }
}

#[test]
fn gzip_members_and_padding() {
    let bytes = Parts::default().bytes();
    let expected = read(&bytes);
    for cut in [1, 10, bytes.len() / 2, bytes.len() - 1] {
        let (a, b) = bytes.split_at(cut);
        assert_eq!(read(&[gzip(a), gzip(b)].concat()), expected, "{cut}");
    }
    // gzip ignores zeros after its data, as on tapes.
    assert_eq!(read(&[gzip(&bytes), vec![0; 512]].concat()), expected);
    assert_eq!(
        read(&[gzip(&[]), gzip(&bytes), gzip(&[])].concat()),
        expected
    );
}

#[test]
fn negative_and_long_numbers() {
    let parts = Parts {
        sample: len(2, [packed(1, &[1]), packed(2, &[-3, i64::MIN])].concat()),
        ..Parts::default()
    };
    assert_eq!(shape(&read(&parts.bytes())).1, [-3, i64::MIN]);
    // Bits beyond the 64th are discarded, as protobuf requires.
    let mut long = varint(u64::MAX);
    long[9] = 0x7f;
    let body = [
        packed(1, &[1]),
        [vec![0x10], vec![3], vec![0x10], long].concat(),
    ]
    .concat();
    let parts = Parts {
        sample: len(2, body),
        ..Parts::default()
    };
    assert_eq!(shape(&read(&parts.bytes())).1, [3, -1]);
}

#[test]
fn sparse_and_huge_ids() {
    for id in [
        1,
        2,
        1 << 20,
        (1 << 31) - 1,
        1 << 31,
        u32::MAX as i64,
        1 << 40,
        i64::MAX,
        -1,
    ] {
        let parts = Parts {
            sample: len(2, [packed(1, &[id]), packed(2, &[3, 96])].concat()),
            location: len(4, [num(1, id), num(3, 16), len(4, num(1, id))].concat()),
            function: len(5, [num(1, id), num(2, 5)].concat()),
            ..Parts::default()
        };
        let profile = read(&parts.bytes());
        assert_eq!(shape(&profile), (vec!["main"], &[3, 96][..]), "{id}");
        let mut file = Vec::new();
        heapprof_profile::encode(&profile, &mut file).unwrap();
        assert_eq!(read(&file), profile, "{id}");
    }
}

#[test]
fn unknown_fields_are_skipped() {
    let unknown = [
        num(99, 5),
        len(100, b"later"),
        vec![0xa1, 0x06, 0, 0, 0, 0, 0, 0, 0, 0],
        vec![0xa5, 0x06, 0, 0, 0, 0],
    ]
    .concat();
    let p = Parts::default();
    let mut bytes = unknown.clone();
    bytes.extend(p.bytes());
    bytes.extend(&unknown);
    assert_eq!(read(&bytes), read(&p.bytes()));
    let parts = Parts {
        sample: len(2, [packed(1, &[1]), unknown, packed(2, &[3, 96])].concat()),
        ..Parts::default()
    };
    assert_eq!(read(&parts.bytes()), read(&p.bytes()));
}

/// Commands that replace pprof drop the fields that pprof does not know, whether they are valid or
/// not. Other commands that write a profile keep these fields.
#[test]
fn what_samples_say_besides_is_dropped_where_pprof_drops_it() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.pb.gz");
    let at = out.to_str().unwrap();
    let spread = |file: &str, args: &[&str]| {
        let run = run(&sample_profiles(), &[args, &[file]].concat());
        assert_eq!(run.code, 0, "{}", run.err);
        let profile = decode(std::fs::File::open(&out).unwrap()).unwrap();
        std::fs::remove_file(&out).unwrap();
        profile.samples.has_spread()
    };
    let output = format!("-output={at}");
    for file in [
        "valid/made.sampled.pb.gz",
        "malformed/spread-negative.pb.gz",
    ] {
        let args = ["pprof", "-symbolize=none", "-proto", &output];
        assert!(!spread(file, &args), "{file}");
    }
    for args in [
        &["merge", "-o", at][..],
        &["convert", "--to", "pprof", "-o", at],
    ] {
        assert!(spread("valid/made.sampled.pb.gz", args), "{args:?}");
    }
}

#[test]
fn a_missing_mapping_is_unknown_as_in_pprof() {
    let parts = Parts {
        mapping: Vec::new(),
        ..Parts::default()
    };
    let profile = read(&parts.bytes());
    assert_eq!(profile.location[0].mapping, None);
    assert_eq!(profile.warnings, [Warning::MissingMapping(1)]);
}

#[test]
fn texts_that_are_not_utf8_are_shown_and_said() {
    let mut parts = Parts::default();
    parts.strings.extend(len(6, [b'x', 0xff, b'y']));
    parts.function = len(5, [num(1, 1), num(2, 7)].concat());
    let profile = read(&parts.bytes());
    assert_eq!(shape(&profile).0, ["x\u{fffd}y"]);
    assert_eq!(profile.warnings, [Warning::NotUtf8(1)]);
}

#[test]
fn repeated_texts_are_one() {
    let mut parts = Parts::default();
    parts.strings.extend(len(6, "main"));
    parts.function = [
        len(5, [num(1, 1), num(2, 5)].concat()),
        len(5, [num(1, 2), num(2, 7)].concat()),
    ]
    .concat();
    let profile = read(&parts.bytes());
    assert_eq!(profile.function[0].name, profile.function[1].name);
}

#[test]
fn no_samples_are_fine() {
    let parts = Parts {
        sample: Vec::new(),
        ..Parts::default()
    };
    assert!(read(&parts.bytes()).samples.is_empty());
}

#[test]
fn packed_numbers_that_are_cut_are_named_by_their_place() {
    let whole = Parts::default().bytes();
    let bytes = [&whole[..], &len(13, [1, 2, 0x80])].concat();
    let error = decode(&bytes[..]).unwrap_err().to_string();
    // The position is after the tag, the length and two numbers.
    let place = format!(
        "byte {} of the profile: the data is cut short inside field 13",
        whole.len() + 4
    );
    assert!(error.contains(&place), "{error}");
    let sample = [packed(2, &[3, 96]), len(1, [1, 2, 3, 4, 0x80])].concat();
    let parts = Parts {
        sample: len(2, &sample),
        ..Parts::default()
    };
    let error = decode(&parts.bytes()[..]).unwrap_err().to_string();
    let place = format!("byte {} of", parts.types.len() + 2 + sample.len() - 1);
    assert!(error.contains(&place), "{error}");
}
