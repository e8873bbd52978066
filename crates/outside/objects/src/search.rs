//! A depth-first search that needs no recursion and no copy of the edges.

/// Returns the nodes in postorder of a depth-first search: each node comes after the nodes that the
/// search reached through it.
///
/// Nodes for which `is_seen` is true are left out. The search sets `is_seen` for each node that it
/// visits. `begin` returns the position of a node's first successor. `next` returns the successor
/// at a position, and advances the position.
///
/// In reverse postorder, a node that can't be reached from any earlier node is the first node of a
/// strong component to which no other component leads (Kosaraju). It has the lowest number in this
/// component.
pub fn postorder<P>(
    is_seen: &mut [bool],
    begin: impl Fn(u32) -> P,
    mut next: impl FnMut(u32, &mut P) -> Option<u32>,
) -> Vec<u32> {
    let mut done = Vec::new();
    let mut path = Vec::new();
    for first in 0..is_seen.len() as u32 {
        if std::mem::replace(&mut is_seen[first as usize], true) {
            continue;
        }
        path.push((first, begin(first)));
        while let Some((node, place)) = path.last_mut() {
            match next(*node, place) {
                Some(to) => {
                    if !std::mem::replace(&mut is_seen[to as usize], true) {
                        path.push((to, begin(to)));
                    }
                }
                None => {
                    done.push(*node);
                    path.pop();
                }
            }
        }
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_done_behind_all_that_it_leads_to() {
        // 0 leads to 1 and 2, which lead to each other; 4 leads to 0; 3 is left out.
        let edges: [&[u32]; 5] = [&[1, 3], &[2], &[1], &[0], &[0]];
        let mut is_seen = [false, false, false, true, false];
        let next = |node: u32, at: &mut usize| {
            *at += 1;
            edges[node as usize].get(*at - 1).copied()
        };
        assert_eq!(postorder(&mut is_seen, |_| 0, next), [2, 1, 0, 4]);
        assert_eq!(is_seen, [true; 5]);
    }
}
