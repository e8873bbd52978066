//! Forms of the same profile: packing, order, gzip members, ids, unknown fields, odd texts.

use heapprof_profile::{Profile, Warning, decode};

use crate::wire::{Parts, gzip, len, num, packed, varint};

fn read(bytes: &[u8]) -> Profile {
    decode(bytes).unwrap()
}

/// Function names of the first sample, and its values.
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
    // gzip ignores zeros behind its data, tape style.
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
    // Eleven bits too many are discarded, as protobuf says.
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
