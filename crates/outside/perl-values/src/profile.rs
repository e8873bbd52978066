//! Makes a profile of values. The stack of each value is its path.

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use heapprof_objects::Graph;
use heapprof_profile::{FrameText, LocationIndex, Profile, ProfileBuilder};

use crate::kind::PerlValueKind;
use crate::paths::{MAX_NAMED_KEYS, ValuePaths};
use crate::text::TextId;
use crate::values::{PerlValue, ValueGraph};

/// The sample types; the second one is the default.
const SAMPLE_TYPES: [(&str, &str); 3] = [
    ("objects", "count"),
    ("self_space", "bytes"),
    ("retained_space", "bytes"),
];

/// Longest path in bytes that is shown as a file name. A longer path is cut.
const MAX_FILE_PATH_LENGTH: usize = 400;

/// Makes a profile of values by their paths. The sample types are `objects`, `self_space` (the
/// default, whose values add up) and `retained_space` (the bytes that would be freed with each
/// value, which do not add up). The labels are `type`, `class` and `refcount`.
#[must_use]
pub fn profile(values: &mut ValueGraph) -> Profile {
    let paths = ValuePaths::new(values, MAX_NAMED_KEYS);
    let retained = retained_sizes(values, &paths, |value| value.size);
    profile_of_paths(values, &paths, &retained)
}

/// Makes a profile of values whose paths are known. `retained` has the retained bytes of each
/// value.
pub(crate) fn profile_of_paths(
    values: &ValueGraph,
    paths: &ValuePaths,
    retained: &[u64],
) -> Profile {
    let mut sums: HashMap<(u32, PerlValueKind, TextId, u32), [i64; 3], RandomState> =
        HashMap::default();
    for (number, value) in (0..).zip(values.all()) {
        let key = (
            paths.place(number),
            value.kind,
            values.class(value),
            value.references,
        );
        let sum = sums.entry(key).or_default();
        let added = [1, value.size, retained[number as usize]];
        for (sum, added) in sum.iter_mut().zip(added) {
            *sum = sum.saturating_add(i64::try_from(added).unwrap_or(i64::MAX));
        }
    }
    let mut rows: Vec<_> = sums.into_iter().collect();
    rows.sort_unstable_by_key(|(key, _)| *key);
    let mut builder = ProfileBuilder::new(&SAMPLE_TYPES);
    let mut locations: HashMap<u32, LocationIndex, RandomState> = HashMap::default();
    for ((place, kind, class, references), sum) in rows {
        let places = paths.places(place);
        let stack = places.map(|at| {
            let found = locations.entry(at);
            *found.or_insert_with(|| location(&mut builder, values, paths, at))
        });
        let stack: Vec<LocationIndex> = stack.collect();
        let mut labels = vec![
            builder.text_label("type", kind.name()),
            builder.number_label("refcount", references.into(), ""),
        ];
        if class != TextId::EMPTY {
            labels.push(builder.text_label("class", values.text(class)));
        }
        builder.add_sample(stack, &sum, &mut labels);
    }
    // The period is 1, because each value is counted.
    let period_type = builder.value_type("space", "bytes");
    let mut profile = builder.finish();
    profile.period_type = Some(period_type);
    profile.period = 1;
    profile.default_sample_type = profile.strings.intern("self_space");
    profile
}

/// Makes the location for a place, which stands for a path. The location's function is the last
/// name of the path, and its file is the path up to that name, so that reports by function and file
/// distinguish places.
fn location(
    builder: &mut ProfileBuilder,
    values: &ValueGraph,
    paths: &ValuePaths,
    place: u32,
) -> LocationIndex {
    let before: Vec<u32> = paths.places(place).skip(1).collect();
    let names = before.iter().rev();
    let names: Vec<&str> = names.map(|&at| values.text(paths.name(at))).collect();
    let mut path = names.join(";");
    if path.len() > MAX_FILE_PATH_LENGTH {
        let end = path.floor_char_boundary(MAX_FILE_PATH_LENGTH);
        path.truncate(end);
        path.push('…');
    }
    builder.frame(&[FrameText {
        name: values.text(paths.name(place)),
        filename: &path,
        start_line: 0,
        line: 0,
    }])
}

/// Computes, for each value, the bytes that would be freed with it. `size` returns the bytes of one
/// value.
pub(crate) fn retained_sizes(
    values: &ValueGraph,
    paths: &ValuePaths,
    size: impl Fn(&PerlValue) -> u64,
) -> Vec<u64> {
    let mut graph = Graph::default();
    for number in values.numbers() {
        let ways = values
            .edges(number)
            .iter()
            .filter(|edge| paths.counts(edge));
        graph.lead_to(ways.map(|edge| edge.to));
        graph.end_node();
    }
    let roots = values.roots().iter();
    let roots = roots.filter(|root| paths.is_root(root));
    graph.lead_to(roots.map(|root| root.number));
    // Values to which nothing refers have no holder, but still exist.
    graph.lead_to(paths.leaked_values().iter().copied());
    graph.end_node();
    let size = |node: u32| values.all().get(node as usize).map_or(0, &size);
    heapprof_objects::retained_sizes(&graph, values.all().len() as u32, size)
}
