//! Tags: sums over the samples of a node, grouped by labels. A picture shows them in boxes beside
//! the node.
//!
//! The text labels of a sample form one tag together. The sizes of its `bytes` labels are tags
//! under it. All other number labels are left out, as in pprof.

use foldhash::{HashMap, HashMapExt};
use heapprof_profile::{LabelSetIndex, Profile, StringId, StringTable};

use super::walk::NodeWalk;
use super::{DIFF_BASE_LABEL, NO_NODE};
use heapprof_totals::TotalsError;
use heapprof_totals::frames::FrameTable;
use heapprof_totals::totals::{EntitySums, overflow, whole_totals};

/// Sums over the samples of a node that have equal labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeTag {
    /// For text labels, `key:text` of each label with `\n` (two characters) in between. For a size,
    /// its formatted value.
    pub name: String,
    /// For a size, the first value that is formatted as `name`.
    pub value: i64,
    /// The sum over the samples that end in the node, and the divisor for a mean.
    pub flat: (i64, i64),
    /// The sum over all samples of the node, and the divisor for a mean.
    pub cum: (i64, i64),
}

/// The tags of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeTags {
    /// The tags of text labels.
    pub texts: Vec<NodeTag>,
    /// The tags of sizes, grouped under the name of a text tag. The name may be empty.
    pub sizes: Vec<(String, Vec<NodeTag>)>,
}

impl NodeTags {
    /// Returns the number of tags that have a flat.
    pub(super) fn count_with_flat(&self) -> usize {
        let tags = self
            .texts
            .iter()
            .chain(self.sizes.iter().flat_map(|s| &s.1));
        tags.filter(|tag| tag.flat.0 != 0).count()
    }

    /// Removes tags whose flat and cum are both below `least`.
    pub(super) fn trim(&mut self, least: i64) {
        let heavy =
            |tag: &NodeTag| tag.flat.0.wrapping_abs() >= least || tag.cum.0.wrapping_abs() >= least;
        self.texts.retain(heavy);
        for (_, sizes) in &mut self.sizes {
            sizes.retain(heavy);
        }
    }
}

/// The tags of each label set. A tag is a position in `key`, with the value if it is a size.
struct TagKeys {
    of_set: Vec<Vec<(u32, i64)>>,
    /// The name of each tag and, for a size, the name of the text tag above it.
    key: Vec<(StringId, Option<StringId>)>,
    texts: StringTable,
}

impl TagKeys {
    fn new(profile: &Profile, size_name: &dyn Fn(i64) -> String) -> Self {
        let mut texts = StringTable::new();
        let mut key = Vec::new();
        let mut known: HashMap<(StringId, Option<StringId>), u32> = HashMap::new();
        let mut of_set = Vec::with_capacity(profile.label_sets.len());
        for set in 0..profile.label_sets.len() as u32 {
            let labels = profile.label_sets.get(LabelSetIndex(set));
            let words = labels.iter().filter(|l| !l.str.is_empty());
            let words = words.map(|l| (profile.text(l.key), profile.text(l.str)));
            let words = words.filter(|(key, _)| *key != DIFF_BASE_LABEL);
            let mut words: Vec<String> = words.map(|(key, text)| format!("{key}:{text}")).collect();
            words.sort();
            let joined = texts.intern(&words.join("\\n"));
            let sizes = labels.iter().filter(|l| l.str.is_empty());
            let sizes = sizes.filter(|l| profile.text(l.key) == "bytes");
            let mut tags = Vec::new();
            if !joined.is_empty() {
                tags.push(((joined, None), 0));
            }
            for size in sizes.map(|l| l.num) {
                let name = texts.intern(&size_name(size));
                tags.push(((name, Some(joined)), size));
            }
            let mut number = |tag: (StringId, Option<StringId>)| {
                *known.entry(tag).or_insert_with(|| {
                    key.push(tag);
                    key.len() as u32 - 1
                })
            };
            of_set.push(
                tags.iter()
                    .map(|&(tag, value)| (number(tag), value))
                    .collect(),
            );
        }
        Self { of_set, key, texts }
    }
}

/// The tag's index for each pair of a node and a tag key.
enum TagNumbers {
    /// A table with a row for each wanted node and a cell for each key. `row` has the index of each
    /// node's row.
    Rows {
        row: Vec<u32>,
        keys: usize,
        number: Vec<u32>,
    },
    /// A map, used if the table would have too many cells.
    Map(HashMap<(u32, u32), u32>),
}

impl TagNumbers {
    /// Maximum number of cells in a table. A picture has some 80 nodes, so only profiles with very
    /// many labels need more.
    const MAX_CELLS: usize = 1 << 22;

    fn new(wanted: &[bool], keys: usize) -> Self {
        let rows = wanted.iter().filter(|w| **w).count();
        match rows
            .checked_mul(keys)
            .filter(|&places| places <= Self::MAX_CELLS)
        {
            None => TagNumbers::Map(HashMap::new()),
            Some(places) => {
                let mut next = 0;
                let row = wanted.iter().map(|&wanted| {
                    next += u32::from(wanted);
                    next.wrapping_sub(1)
                });
                TagNumbers::Rows {
                    row: row.collect(),
                    keys,
                    number: vec![NO_NODE; places],
                }
            }
        }
    }

    fn find_or_insert(&mut self, node: u32, key: u32, new: impl FnOnce() -> u32) -> u32 {
        match self {
            TagNumbers::Map(map) => *map.entry((node, key)).or_insert_with(new),
            TagNumbers::Rows { row, keys, number } => {
                let place = &mut number[row[node as usize] as usize * *keys + key as usize];
                if *place == NO_NODE {
                    *place = new();
                }
                *place
            }
        }
    }
}

/// Returns the tags of the `wanted` nodes, by node. `size_name` formats a size. Sizes that are
/// formatted alike are one tag.
pub(super) fn tags(
    profile: &Profile,
    frames: &FrameTable,
    walk: &NodeWalk,
    columns: &[usize],
    wanted: &[bool],
    size_name: &dyn Fn(i64) -> String,
    wrapping: bool,
) -> Result<HashMap<u32, NodeTags>, TotalsError> {
    let keys = TagKeys::new(profile, size_name);
    // A sample counts once for each label, so a sum is at most the total times the largest number
    // of labels in a sample.
    let most = keys.of_set.iter().map(Vec::len).max().unwrap_or(0);
    let totals = if wrapping {
        Vec::new()
    } else {
        whole_totals(profile, columns)?
    };
    for (total, &column) in totals.iter().zip(columns) {
        let bound = i64::try_from(most)
            .ok()
            .and_then(|m| total.total.checked_mul(m));
        bound.ok_or_else(|| overflow(profile, column))?;
    }
    let mut entity_of = TagNumbers::new(wanted, keys.key.len());
    let mut entity: Vec<(u32, u32, i64)> = Vec::new();
    let mut sums = EntitySums::new(0, columns.len());
    let (mut nodes, mut tagged) = (Vec::new(), Vec::new());
    walk.samples(profile, frames, columns, |i, values, leaf, stack| {
        let of_sample = &keys.of_set[profile.samples.label_set(i).index()];
        if of_sample.is_empty() {
            return;
        }
        let is_wanted = |node: &u32| *node != NO_NODE && wanted[*node as usize];
        nodes.clear();
        nodes.extend(stack.iter().copied().filter(is_wanted));
        let leaf = leaf.filter(is_wanted);
        for &(key, value) in of_sample {
            let mut find = |node: u32| {
                entity_of.find_or_insert(node, key, || {
                    entity.push((node, key, value));
                    entity.len() as u32 - 1
                })
            };
            tagged.clear();
            tagged.extend(nodes.iter().copied().map(&mut find));
            let leaf = leaf.map(find);
            sums.grow(entity.len());
            sums.add(values, leaf, tagged.iter().copied());
        }
    });
    let mut order: Vec<usize> = (0..entity.len()).collect();
    // A node's tags are adjacent: first its texts, then its sizes by the text that they stand
    // under.
    order.sort_unstable_by_key(|&at| {
        let (node, key, _) = entity[at];
        (node, keys.key[key as usize].1, at)
    });
    let mut tags: HashMap<u32, NodeTags> = HashMap::new();
    let mut last = None;
    for at in order {
        let (node, key, value) = entity[at];
        let (name, under) = keys.key[key as usize];
        let pair = |of: &[i64]| {
            let of = &of[at * columns.len()..][..columns.len()];
            (of[0], of.get(1).copied().unwrap_or(0))
        };
        let tag = NodeTag {
            name: keys.texts.get(name).to_string(),
            value,
            flat: pair(&sums.flat),
            cum: pair(&sums.cum),
        };
        let NodeTags { texts, sizes } = tags.entry(node).or_default();
        let Some(group) = under else {
            texts.push(tag);
            continue;
        };
        if last.replace((node, group)) != Some((node, group)) {
            sizes.push((keys.texts.get(group).to_string(), Vec::new()));
        }
        if let Some((_, sizes)) = sizes.last_mut() {
            sizes.push(tag);
        }
    }
    Ok(tags)
}
