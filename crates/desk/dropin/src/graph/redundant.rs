//! Redundant calls over hidden nodes: a picture omits them, because another path leads from the
//! caller to the callee.

use super::edge::{CallEdges, NodeAdjacency};

/// Finds residual edges whose callee can also be reached over other edges, and returns for each
/// edge whether it can be removed. As in pprof, the search goes from the last of the `shown` nodes
/// to the first. At each node, it checks the edges from the lightest to the heaviest, and stops at
/// the first edge that is not residual. In `callers`, the edges of each shown node must be sorted.
///
/// Removing a redundant edge leaves its nodes connected. So the order of the strongly connected
/// components is computed only once. A backward search from the callee ends at the caller's
/// component.
pub(super) fn find_redundant(
    edges: &CallEdges,
    callers: &NodeAdjacency,
    shown: &[u32],
    nodes: usize,
) -> Vec<bool> {
    let edge = &edges.edge;
    let mut removed = vec![false; edge.len()];
    if !edge.iter().any(|edge| edge.residual) {
        return removed;
    }
    let callees = NodeAdjacency::new(edge, nodes, |edge| edge.caller);
    let part = strong_components(nodes, |node, at| {
        let &next = callees.edges(node).get(at)?;
        Some(edge[next as usize].callee)
    });
    let mut seen = vec![u32::MAX; nodes];
    let mut stamp = 0;
    let mut queue = Vec::new();
    for &node in shown.iter().rev() {
        for &at in callers.edges(node).iter().rev() {
            let tried = edge[at as usize];
            if !tried.residual {
                break;
            }
            queue.clear();
            queue.push(node);
            seen[node as usize] = stamp;
            let behind = part[tried.caller as usize];
            let mut other_way = false;
            'search: while let Some(from) = queue.pop() {
                for &back in callers.edges(from) {
                    let caller = edge[back as usize].caller;
                    if back == at || removed[back as usize] || seen[caller as usize] == stamp {
                        continue;
                    }
                    if caller == tried.caller {
                        other_way = true;
                        break 'search;
                    }
                    if part[caller as usize] <= behind {
                        seen[caller as usize] = stamp;
                        queue.push(caller);
                    }
                }
            }
            removed[at as usize] = other_way;
            stamp += 1;
        }
    }
    removed
}

/// Returns the number of each node's strongly connected component. A component has a greater number
/// than all components that it leads to. `next(node, n)` is the nth successor of `node`. The
/// algorithm is Tarjan's, with an explicit stack.
fn strong_components(nodes: usize, next: impl Fn(u32, usize) -> Option<u32>) -> Vec<u32> {
    const UNVISITED: u32 = u32::MAX;
    let mut part = vec![UNVISITED; nodes];
    let mut index = vec![UNVISITED; nodes];
    let mut low = vec![0u32; nodes];
    let (mut found, mut count) = (0, 0);
    let mut open = Vec::new();
    let mut path: Vec<(u32, usize)> = Vec::new();
    for root in 0..nodes as u32 {
        if index[root as usize] != UNVISITED {
            continue;
        }
        path.push((root, 0));
        while let Some((node, at)) = path.last_mut() {
            let n = *node as usize;
            if *at == 0 {
                (index[n], low[n]) = (found, found);
                found += 1;
                open.push(*node);
            }
            let to = next(*node, *at);
            *at += 1;
            match to {
                Some(to) if index[to as usize] == UNVISITED => path.push((to, 0)),
                Some(to) if part[to as usize] == UNVISITED => {
                    low[n] = low[n].min(index[to as usize]);
                }
                Some(_) => {}
                None => {
                    if low[n] == index[n] {
                        while let Some(member) = open.pop() {
                            part[member as usize] = count;
                            if member as usize == n {
                                break;
                            }
                        }
                        count += 1;
                    }
                    path.pop();
                    if let Some(&(caller, _)) = path.last() {
                        low[caller as usize] = low[caller as usize].min(low[n]);
                    }
                }
            }
        }
    }
    part
}

#[cfg(test)]
mod tests {
    use super::super::edge::CallEdge;
    use super::*;

    fn edges(list: &[(u32, u32, i64, bool)]) -> CallEdges {
        let edge = list
            .iter()
            .enumerate()
            .map(|(at, &(caller, callee, _, residual))| CallEdge {
                caller,
                callee,
                residual,
                inline: false,
                at: at as u32,
                place: [0; 2],
                last: 0,
            });
        CallEdges {
            width: 1,
            edge: edge.collect(),
            weight: list.iter().map(|e| e.2).collect(),
            neighbours: Vec::new(),
        }
    }

    #[test]
    fn parts_are_ordered() {
        let to: [&[u32]; 6] = [&[1], &[2, 3], &[1], &[4, 5], &[], &[4]];
        let part = strong_components(6, |node, at| to[node as usize].get(at).copied());
        assert_eq!(part[1], part[2]);
        assert!(part[0] > part[1] && part[1] > part[3] && part[3] > part[5] && part[5] > part[4]);
    }

    /// Checks which edges remain when redundant edges are removed.
    #[test]
    fn redundant_edges_go() {
        let left = |list: &[(u32, u32, i64, bool)]| -> Vec<(u32, u32)> {
            let edges = edges(list);
            // The edges are listed from the heaviest on.
            let callers = NodeAdjacency::new(&edges.edge, 4, |edge| edge.callee);
            let removed = find_redundant(&edges, &callers, &[0, 1, 2, 3], 4);
            let stays = edges
                .edge
                .iter()
                .zip(removed)
                .filter(|(_, removed)| !removed);
            stays.map(|(e, _)| (e.caller, e.callee)).collect()
        };
        // Another path exists: 0 -> 1 -> 2.
        assert_eq!(
            left(&[(0, 1, 9, false), (1, 2, 8, false), (0, 2, 7, true)]),
            [(0, 1), (1, 2)]
        );
        // No other path exists.
        assert_eq!(left(&[(0, 1, 9, false), (0, 2, 7, true)]), [(0, 1), (0, 2)]);
        // The redundant edge is heavier than one that stays.
        let heavier = [(0, 2, 9, true), (0, 1, 8, false), (1, 2, 7, false)];
        assert_eq!(left(&heavier).len(), 3);
        // Two edges replace each other: the later one goes.
        let circle = [
            (0, 1, 9, true),
            (0, 2, 8, true),
            (1, 2, 7, true),
            (2, 1, 6, true),
        ];
        assert_eq!(left(&circle), [(0, 1), (1, 2), (2, 1)]);
    }
}
