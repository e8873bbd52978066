//! Finds strong components: groups of nodes that all lead to each other.

/// Returns the strong component of each node, by the node's number, and the number of components.
/// All nodes of a component lead to each other. Only nodes for which `is_in` is true are visited;
/// the others have `u32::MAX`. `begin` and `next` are as for [`postorder`](crate::postorder).
/// (Tarjan's algorithm, without recursion.)
pub fn components<P>(
    is_in: &[bool],
    begin: impl Fn(u32) -> P,
    mut next: impl FnMut(u32, &mut P) -> Option<u32>,
) -> (Vec<u32>, u32) {
    const NO_COMPONENT: u32 = u32::MAX;
    let count = is_in.len();
    let mut of = vec![NO_COMPONENT; count];
    // The time at which each node was found, and the earliest such time of the nodes to which it
    // leads back.
    let (mut found, mut low) = (vec![NO_COMPONENT; count], vec![NO_COMPONENT; count]);
    let (mut time, mut components) = (0, 0);
    let (mut open, mut path) = (Vec::new(), Vec::new());
    for first in (0..count as u32).filter(|&node| is_in[node as usize]) {
        if found[first as usize] != NO_COMPONENT {
            continue;
        }
        let mut enter = Some(first);
        loop {
            if let Some(node) = enter.take() {
                (found[node as usize], low[node as usize]) = (time, time);
                time += 1;
                open.push(node);
                path.push((node, begin(node)));
            }
            let Some((node, place)) = path.last_mut() else {
                break;
            };
            let node = *node as usize;
            match next(node as u32, place) {
                Some(to) if !is_in[to as usize] => {}
                Some(to) if found[to as usize] == NO_COMPONENT => enter = Some(to),
                Some(to) if of[to as usize] == NO_COMPONENT => {
                    low[node] = low[node].min(found[to as usize]);
                }
                Some(_) => {}
                None => {
                    path.pop();
                    if let Some((before, _)) = path.last() {
                        let before = *before as usize;
                        low[before] = low[before].min(low[node]);
                    }
                    if low[node] == found[node] {
                        while let Some(one) = open.pop() {
                            of[one as usize] = components;
                            if one as usize == node {
                                break;
                            }
                        }
                        components += 1;
                    }
                }
            }
        }
    }
    (of, components)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn components_of(edges: &[&[u32]], is_in: &[bool]) -> (Vec<u32>, u32) {
        let next = |node: u32, at: &mut usize| {
            *at += 1;
            edges[node as usize].get(*at - 1).copied()
        };
        components(is_in, |_| 0, next)
    }

    #[test]
    fn nodes_that_lead_to_each_other_are_one() {
        // 0, 1 and 2 are a ring, to which 3 leads. 4 leads to itself and to 5. 5 leads to 4, but is
        // left out.
        let edges: [&[u32]; 6] = [&[1], &[2], &[0, 4], &[0], &[4, 5], &[4]];
        let (of_each, count) = components_of(&edges, &[true, true, true, true, true, false]);
        assert_eq!(count, 3);
        assert!(of_each[0] == of_each[1] && of_each[1] == of_each[2]);
        assert!(of_each[3] != of_each[0] && of_each[4] != of_each[0]);
        assert_eq!(of_each[5], u32::MAX);
    }

    /// Tests all graphs of four nodes, by comparison with the closure of their edges.
    #[test]
    fn components_are_those_of_brute_force() {
        for bits in 0..1u32 << 16 {
            let edge = |from: usize, to: usize| bits >> (4 * from + to) & 1 != 0;
            let mut closure = [[false; 4]; 4];
            for (from, row) in closure.iter_mut().enumerate() {
                for (to, cell) in row.iter_mut().enumerate() {
                    *cell = edge(from, to) || from == to;
                }
            }
            for middle in 0..4 {
                for from in 0..4 {
                    for to in 0..4 {
                        closure[from][to] |= closure[from][middle] && closure[middle][to];
                    }
                }
            }
            let edges: Vec<Vec<u32>> = (0..4)
                .map(|from| (0..4).filter(|&to| edge(from, to as usize)).collect())
                .collect();
            let edges: Vec<&[u32]> = edges.iter().map(Vec::as_slice).collect();
            let (of_each, _) = components_of(&edges, &[true; 4]);
            for from in 0..4 {
                for to in 0..4 {
                    let is_one = closure[from][to] && closure[to][from];
                    assert_eq!(of_each[from] == of_each[to], is_one, "{bits:#x}");
                }
            }
        }
    }
}
