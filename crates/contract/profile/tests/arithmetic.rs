//! Tests of adding up, negating, scaling and converting, without the losses that pprof has. D6 to
//! D10 are numbers in docs/differences-from-pprof.md.

use heapprof_profile::{
    HeapHistory, Profile, ProfileBuilder, SizeHistogram, Warning, is_for_machines, merge, merge_all,
};
use proptest::prelude::*;

/// Makes a profile of these sample types; each stack is folded, root first.
fn profile(types: &[(&str, &str)], stacks: &[(&str, &[i64])]) -> Profile {
    let mut builder = ProfileBuilder::new(types);
    for (stack, values) in stacks {
        builder.add_folded(stack, values);
    }
    builder.finish()
}

/// Returns the sample types as `type/unit`, and each sample's values.
fn shape(profile: &Profile) -> (Vec<String>, Vec<Vec<i64>>) {
    let types = profile
        .sample_type
        .iter()
        .map(|t| format!("{}/{}", profile.text(t.r#type), profile.text(t.unit)));
    let samples = (0..profile.samples.len()).map(|i| profile.samples.values(i).to_vec());
    (types.collect(), samples.collect())
}

const HEAP: [(&str, &str); 2] = [("inuse_objects", "count"), ("inuse_space", "bytes")];

#[test]
fn equal_stacks_become_one_sample() {
    let a = profile(&HEAP, &[("main;a", &[1, 10]), ("main;b", &[2, 20])]);
    let b = profile(&HEAP, &[("main;b", &[3, 30]), ("main;c", &[4, 40])]);
    let sum = merge(a, b).unwrap();
    assert_eq!(shape(&sum).1, [[1, 10], [5, 50], [4, 40]]);
}

/// Tests that a sum has no history and sizes, because these describe one process. A user's comments
/// stay.
#[test]
fn a_sum_has_no_history() {
    let mut a = profile(&HEAP, &[("main;a", &[1, 10])]);
    let users = a.strings.intern("# a user's own");
    a.comment.push(users);
    let mut b = profile(&HEAP, &[("main;b", &[2, 20])]);
    for one in [&mut a, &mut b] {
        HeapHistory::default().put(one);
        SizeHistogram::default().put(one);
        assert!(one.comment.len() >= 2);
    }
    let sum = merge(a, b).unwrap();
    let comments = sum.comment.iter().map(|&id| sum.text(id));
    let comments: Vec<&str> = comments.collect();
    assert!(!comments.iter().any(|text| is_for_machines(text)));
    assert_eq!(comments, ["# a user's own"]);
}

/// Tests D6: a sample of objects without bytes stays when the bytes' unit is converted.
#[test]
fn converting_units_loses_no_sample() {
    let a = profile(&HEAP, &[("main;a", &[9, 0])]);
    let kilobytes = [("inuse_objects", "count"), ("inuse_space", "kilobytes")];
    let b = profile(&kilobytes, &[("main;a", &[9, 0]), ("main;b", &[1, 2])]);
    for (x, y) in [(a.clone(), b.clone()), (b, a)] {
        let sum = merge(x, y).unwrap();
        let (types, mut samples) = shape(&sum);
        samples.sort();
        assert_eq!(types, ["inuse_objects/count", "inuse_space/bytes"]);
        assert_eq!(samples, [[1, 2048], [18, 0]]);
    }
}

/// Tests D7: two locations that differ only in a column stay separate.
#[test]
fn columns_tell_places_apart() {
    let mut builder = ProfileBuilder::new(&HEAP);
    let outer = builder.frame(&[heapprof_profile::FrameText {
        name: "f",
        filename: "f.c",
        line: 1,
        start_line: 0,
    }]);
    let mut line = builder
        .profile
        .lines(&builder.profile.location[outer.index()])[0];
    line.column = 5;
    let other = builder.location(None, builder.profile.location[0].address, false, &[line]);
    assert_ne!(outer, other);
    let set = builder.label_set(&mut []);
    builder.profile.samples.push([outer], &[1, 10], set);
    builder.profile.samples.push([other], &[2, 20], set);
    let p = builder.finish();
    let sum = merge(p.clone(), p).unwrap();
    assert_eq!(shape(&sum).1, [[2, 20], [4, 40]]);
}

/// Tests D8: the default sample type stays that of the first profile, and a type that only one
/// profile has is left out.
#[test]
fn types_that_not_all_have_are_left_out_and_said() {
    let four = [
        ("alloc_objects", "count"),
        ("alloc_space", "bytes"),
        HEAP[0],
        HEAP[1],
    ];
    let go = profile(&four, &[("main;a", &[9, 90, 1, 10])]);
    let cpp = profile(&[HEAP[1], HEAP[0]], &[("main;a", &[20, 2])]);
    let sum = merge(go, cpp).unwrap();
    assert_eq!(
        shape(&sum),
        (
            vec!["inuse_objects/count".into(), "inuse_space/bytes".into()],
            vec![vec![3, 30]]
        )
    );
    assert_eq!(
        sum.text(sum.sample_type[sum.default_sample_type_index()].r#type),
        "inuse_space"
    );
    let left: Vec<String> = sum.warnings.iter().map(ToString::to_string).collect();
    assert!(
        left[0].contains("alloc_objects") && left[1].contains("alloc_space"),
        "{left:?}"
    );
}

/// Tests D9: the time is the earliest known time, in any order of the profiles.
#[test]
fn the_earliest_known_time() {
    for times in [[5, 3, 0], [5, 0, 3], [0, 3, 5], [3, 5, 0]] {
        let parts = times.map(|time| {
            let mut p = profile(&HEAP, &[("main", &[1, 1])]);
            p.time_nanos = time;
            Ok::<_, heapprof_profile::Error>(p)
        });
        assert_eq!(merge_all(parts).unwrap().time_nanos, 3);
    }
}

#[test]
fn what_cannot_be_added_is_said() {
    let heap = profile(&HEAP, &[("main", &[1, 1])]);
    let cpu = profile(&[("cpu", "nanoseconds")], &[("main", &[1])]);
    let error = merge(heap.clone(), cpu).unwrap_err().to_string();
    assert!(
        error.contains("share no sample type (inuse_objects, inuse_space and cpu)"),
        "{error}"
    );
    let odd = profile(&[HEAP[0], ("inuse_space", "bananas")], &[("main", &[1, 1])]);
    let error = merge(heap, odd).unwrap_err().to_string();
    assert!(
        error.contains("inuse_space is in bytes in one and in bananas in another"),
        "{error}"
    );
    let none: [Result<Profile, heapprof_profile::Error>; 0] = [];
    assert!(merge_all(none).is_err());
}

#[test]
fn sums_beyond_64_bits_are_errors() {
    let most = profile(&HEAP, &[("main", &[1, i64::MAX])]);
    assert!(
        merge(most.clone(), most.clone())
            .unwrap_err()
            .to_string()
            .contains("64 bits")
    );
    let least = profile(&HEAP, &[("main", &[1, i64::MIN])]);
    assert!(least.clone().negate().is_err());
    assert!(most.clone().scale(&[1.0, 2.0]).is_err());
    assert!(most.clone().convert_unit(1, "bananas").is_err());
    let mut kilobytes = profile(&[("space", "kilobytes")], &[("main", &[i64::MAX])]);
    assert!(kilobytes.convert_unit(0, "bytes").is_err());
}

#[test]
fn different_periods_are_said() {
    let with = |period| {
        let mut p = profile(&HEAP, &[("main", &[1, 1])]);
        p.period = period;
        p
    };
    let sum = merge(with(4096), with(8192)).unwrap();
    assert_eq!((sum.period, sum.warnings), (8192, vec![Warning::Periods]));
}

#[test]
fn ratios() {
    let mut p = profile(&HEAP, &[("main;a", &[1, 10]), ("main;b", &[0, 3])]);
    p.scale(&[1.0, 0.25]).unwrap();
    // Samples that round to 0 stay.
    assert_eq!(shape(&p).1, [[1, 3], [0, 1]]);
}

/// Generates profiles with stacks over a few names, and small values of either sign.
fn any_profile() -> impl Strategy<Value = Profile> {
    let stack = prop::collection::vec(prop::sample::select(vec!["a", "b", "c", "d>>e"]), 0..6);
    let sample = (stack, -100i64..100, -1000i64..1000);
    prop::collection::vec(sample, 0..12).prop_map(|samples| {
        let mut builder = ProfileBuilder::new(&HEAP);
        for (stack, objects, bytes) in samples {
            builder.add_folded(&stack.join(";"), &[objects, bytes]);
        }
        builder.finish()
    })
}

fn nets(profile: &Profile) -> Vec<i64> {
    (0..2)
        .map(|t| {
            (0..profile.samples.len())
                .map(|i| profile.samples.values(i)[t])
                .sum()
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn merging_adds_and_its_order_does_not_matter(a in any_profile(), b in any_profile()) {
        let (left, right) = (nets(&a), nets(&b));
        let ab = merge(a.clone(), b.clone()).unwrap();
        let ba = merge(b, a).unwrap();
        let expected: Vec<i64> = left.iter().zip(&right).map(|(x, y)| x + y).collect();
        prop_assert_eq!(nets(&ab), expected.clone());
        prop_assert_eq!(nets(&ba), expected);
        prop_assert_eq!(ab.samples.len(), ba.samples.len());
    }

    #[test]
    fn any_profile_survives_encoding(a in any_profile()) {
        let mut file = Vec::new();
        heapprof_profile::encode(&a, &mut file).unwrap();
        prop_assert_eq!(heapprof_profile::decode(&file[..]).unwrap(), a);
    }

    #[test]
    fn a_profile_less_itself_is_nothing(a in any_profile()) {
        let mut negated = a.clone();
        negated.negate().unwrap();
        prop_assert!(merge(a, negated).unwrap().samples.is_empty());
    }
}
