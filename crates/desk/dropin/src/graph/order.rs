//! The order of nodes and edges, and a score for how informative a node is in a picture.
//!
//! The score is pprof's (internal/graph, entropyScore): the cum times the entropy of the calls to
//! and from the node, plus the flat. So a node with one caller, one callee and no flat comes late.

use super::edge::{CallEdges, MAX_ORDERED_NEIGHBOURS, NodeAdjacency};
use super::go_sort::sort_as_go;
use super::node::NodeNames;
use heapprof_totals::totals::EntitySums;

/// The values that nodes are sorted by.
pub(super) struct NodeOrder<'a> {
    pub(super) names: &'a NodeNames,
    pub(super) info: &'a [u32],
    pub(super) sums: &'a EntitySums,
}

impl NodeOrder<'_> {
    fn flat(&self, node: u32) -> i64 {
        self.sums.flat[node as usize * self.sums.width]
    }

    fn cum(&self, node: u32) -> i64 {
        self.sums.cum[node as usize * self.sums.width]
    }

    /// Sorts by the absolute value of a score, then by name. Nodes with the same key, which a call
    /// tree may have, are then sorted by the absolute value that `then` returns.
    fn sort(&self, nodes: &mut [u32], score: impl Fn(u32) -> i64, then: impl Fn(u32) -> i64) {
        let mut keyed: Vec<(i64, u32)> = nodes
            .iter()
            .map(|&node| (score(node).wrapping_abs(), node))
            .collect();
        sort_as_go(&mut keyed, |&(a, left), &(b, right)| {
            let (l, r) = (self.info[left as usize], self.info[right as usize]);
            match (a == b, l == r) {
                (false, _) => a > b,
                (true, false) => self.names.get(l) < self.names.get(r),
                (true, true) => then(left).wrapping_abs() > then(right).wrapping_abs(),
            }
        });
        for (node, (_, sorted)) in nodes.iter_mut().zip(keyed) {
            *node = sorted;
        }
    }

    pub(super) fn sort_by_flat(&self, nodes: &mut [u32]) {
        self.sort(nodes, |n| self.flat(n), |n| self.cum(n));
    }

    pub(super) fn sort_by_cum(&self, nodes: &mut [u32]) {
        self.sort(nodes, |n| self.cum(n), |n| self.flat(n));
    }

    pub(super) fn sort_by_entropy(&self, nodes: &mut [u32], edges: &CallEdges) {
        let all = self.info.len();
        let callers = NodeAdjacency::new(&edges.edge, all, |edge| edge.callee);
        let callees = NodeAdjacency::new(&edges.edge, all, |edge| edge.caller);
        let weights = |list: &[u32]| -> Vec<i64> {
            let weight = |&at: &u32| edges.weight(&edges.edge[at as usize]);
            list.iter().map(weight).collect()
        };
        let mut scores = vec![0i64; all];
        for &node in nodes.iter() {
            let flat = self.flat(node);
            let one_without = |list: &[u32], flat: i64| match list {
                [] => 1.0,
                list => entropy(&weights(list), flat),
            };
            let score =
                one_without(callers.edges(node), 0) + one_without(callees.edges(node), flat);
            let weighed = truncate_as_go(score * self.cum(node) as f64);
            scores[node as usize] = weighed.wrapping_add(flat);
        }
        self.sort(nodes, |n| scores[n as usize], |n| self.flat(n));
    }
}

/// Compares edges by the absolute value of the weight, then by the names of caller and callee.
struct EdgeOrder<'a> {
    edges: &'a CallEdges,
    names: &'a NodeNames,
    info: &'a [u32],
}

impl EdgeOrder<'_> {
    fn weight(&self, at: u32) -> i64 {
        self.edges.weight(&self.edges.edge[at as usize])
    }

    fn name(&self, at: u32) -> [&str; 2] {
        let edge = &self.edges.edge[at as usize];
        [edge.caller, edge.callee].map(|node| self.names.get(self.info[node as usize]))
    }

    fn sort(&self, list: &mut [u32]) {
        let mut keyed: Vec<(i64, u32)> = list.iter().map(|&at| (self.weight(at), at)).collect();
        sort_as_go(&mut keyed, |a, b| match a.0 == b.0 {
            true => self.name(a.1) < self.name(b.1),
            false => a.0.wrapping_abs() > b.0.wrapping_abs(),
        });
        for (place, (_, at)) in list.iter_mut().zip(keyed) {
            *place = at;
        }
    }

    fn has_opposites(&self, list: &[u32]) -> bool {
        list.windows(2).any(|pair| {
            let [a, b] = [self.weight(pair[0]), self.weight(pair[1])];
            a != b && a.wrapping_abs() == b.wrapping_abs()
        })
    }
}

/// Sorts the edges of each of `nodes` by the absolute value of their weight, then by the names of
/// caller and callee.
///
/// If weights differ only in sign, pprof's order depends on the slots of the edges in a Go map. A
/// small map has eight slots, and Go iterates over it from a random slot. This function takes the
/// order that most of the eight starting slots give.
pub(super) fn sort_edges(
    lists: &mut NodeAdjacency,
    side: usize,
    nodes: &[u32],
    edges: &CallEdges,
    names: &NodeNames,
    info: &[u32],
) {
    let keys = EdgeOrder { edges, names, info };
    for &node in nodes {
        let list = lists.edges_mut(node);
        let found = list.to_vec();
        keys.sort(list);
        if !keys.has_opposites(list)
            || edges.neighbours[node as usize][side] > MAX_ORDERED_NEIGHBOURS
        {
            continue;
        }
        let mut walks: Vec<(usize, Vec<u32>)> = Vec::new();
        for start in 0..MAX_ORDERED_NEIGHBOURS {
            let place = |&&at: &&u32| edges.edge[at as usize].place[side] >= start;
            let from = found.iter().filter(place);
            let mut walk: Vec<u32> = from
                .chain(found.iter().filter(|at| !place(at)))
                .copied()
                .collect();
            keys.sort(&mut walk);
            match walks.iter_mut().find(|(_, known)| *known == walk) {
                Some((count, _)) => *count += 1,
                None => walks.push((1, walk)),
            }
        }
        // If several orders are equally frequent, the first one is taken.
        if let Some((_, most)) = walks.iter().rev().max_by_key(|(count, _)| *count) {
            list.copy_from_slice(most);
        }
    }
}

/// Sorts positions of edges by the absolute value of the edges' weight, then by the names of caller
/// and callee.
pub(super) fn sort_list(list: &mut [u32], edges: &CallEdges, names: &NodeNames, info: &[u32]) {
    EdgeOrder { edges, names, info }.sort(list);
}

/// Returns the entropy, in bits, of the choice between edges with these weights. A positive `own`
/// is the weight of one more choice, in which the path ends at the node.
fn entropy(weights: &[i64], own: i64) -> f64 {
    let positive = weights.iter().filter(|&&weight| weight > 0);
    let total = positive.fold(own, |total, &weight| total.wrapping_add(weight));
    if total == 0 {
        return 0.0;
    }
    let bits = |value: i64| {
        let share = value.wrapping_abs() as f64 / total as f64;
        -share * log2(share)
    };
    let mut score = weights
        .iter()
        .fold(0.0, |score, &weight| score + bits(weight));
    if own > 0 {
        score += bits(own);
    }
    score
}

/// Truncates towards zero, as Go's `int64(x)` does on x86-64. A value that does not fit becomes the
/// least 64-bit number.
pub fn truncate_as_go(x: f64) -> i64 {
    match (-9223372036854775808.0..9223372036854775808.0).contains(&x) {
        true => x as i64,
        false => i64::MIN,
    }
}

/// Returns the binary logarithm, with the same bits as Go's math package, because small differences
/// between scores decide which nodes are left out.
///
/// Like Go, it uses the polynomial of FreeBSD's e_log.c.
fn log2(x: f64) -> f64 {
    if x.is_nan() || x < 0.0 {
        return f64::NAN;
    }
    if x == 0.0 || x.is_infinite() {
        return if x == 0.0 { f64::NEG_INFINITY } else { x };
    }
    let (fraction, exponent) = split_fraction(x);
    match fraction {
        0.5 => f64::from(exponent - 1),
        _ => ln(fraction) * std::f64::consts::LOG2_E + f64::from(exponent),
    }
}

/// Splits a positive number into a fraction from 0.5 to 1 and a power of two.
fn split_fraction(x: f64) -> (f64, i32) {
    let (x, less) = match x < f64::MIN_POSITIVE {
        true => (x * 2f64.powi(52), 52),
        false => (x, 0),
    };
    let bits = x.to_bits();
    let exponent = ((bits >> 52) & 0x7ff) as i32 - 1022 - less;
    (f64::from_bits(bits & !(0x7ff << 52) | 1022 << 52), exponent)
}

/// Returns the natural logarithm of a number from 0.5 to 1.
fn ln(x: f64) -> f64 {
    let (f, k) = match x < std::f64::consts::FRAC_1_SQRT_2 {
        true => (x * 2.0 - 1.0, -1.0),
        false => (x - 1.0, 0.0),
    };
    let s = f / (2.0 + f);
    let s2 = s * s;
    let s4 = s2 * s2;
    let odd = [
        1.479_819_860_511_658_6e-1,
        1.818_357_216_161_805e-1,
        2.857_142_874_366_239e-1,
        6.666_666_666_666_735e-1,
    ];
    let even = [
        1.531_383_769_920_937_3e-1,
        2.222_219_843_214_978_4e-1,
        3.999_999_999_940_942e-1,
    ];
    let series = |terms: &[f64]| terms.iter().fold(0.0, |sum, term| term + s4 * sum);
    let r = s2 * series(&odd) + s4 * series(&even);
    let half = 0.5 * f * f;
    k * 6.931_471_803_691_238e-1 - ((half - (s * (half + r) + k * 1.908_214_929_270_587_7e-10)) - f)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks logarithms against the bits that Go's math.Log2 returns.
    #[test]
    fn logarithms() {
        let table = [
            (0x3fe0000000000000, 0xbff0000000000000),
            (0x3fd0000000000000, 0xc000000000000000),
            (0x3ff0000000000000, 0x0000000000000000),
            (0x3fd3333333333333, 0xbffbca9c6f53897a),
            (0x3fd5555555555555, 0xbff95c01a39fbd69),
            (0x3fe5555555555555, 0xbfe2b803473f7ad2),
            (0x3fe6a0902de00d1b, 0xbfe0001d03eb60d8),
            (0x3fe6a0a5269595ff, 0xbfdfffe47474b63d),
            (0x3fb999999999999a, 0xc00a934f0979a371),
            (0x3fefffffca501acb, 0xbe835d100a8009b2),
            (0x3e112e0be826d695, 0xc03de5b8eaa8d7e0),
            (0x3fbffffffb1b9669, 0xc008000001c3b65a),
            (0x4008000000000000, 0x3ff95c01a39fbd69),
            (0x3ff8000000000000, 0x3fe2b803473f7ad2),
            (0x0000000000000001, 0xc090c80000000000),
            (0x01a56e1fc2f8f359, 0xc08f24a09f1a8b89),
            (0x3fe45d1745d1745d, 0xbfe4ddcff2c96454),
            (0x3fe3c6a7ef9db22d, 0xbfe637e1365624d1),
        ];
        for (x, expected) in table {
            let x = f64::from_bits(x);
            assert_eq!(log2(x).to_bits(), expected, "{x}");
        }
        assert_eq!(log2(0.0), f64::NEG_INFINITY);
        assert!(log2(-1.0).is_nan());
    }

    #[test]
    fn entropies() {
        assert_eq!(entropy(&[], 0), 0.0);
        assert_eq!(entropy(&[1, 1], 0), 1.0);
        assert_eq!(entropy(&[1, 1, 2], 0), 1.5);
        assert_eq!(entropy(&[2, 1], 1), 1.5);
        assert_eq!(entropy(&[-1], 0), 0.0);
        assert!(entropy(&[0, 1], 0).is_nan());
    }
}
