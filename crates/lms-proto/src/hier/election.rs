//! The neighbours of one entry in a pairing heap, best first: lowest cost, then lowest address,
//! then lowest interface. Insertion O(1), removal O(log n) amortised, no recursion.

use super::state::Neighbour;
use crate::Family;
use proto_core::slab::{NIL, Slab};

type Neighbours<'a, A> = Slab<'a, Neighbour<A>>;

fn is_better<A: Family>(neighbours: &Neighbours<'_, A>, a: u32, b: u32) -> bool {
    let rank = |n: &Neighbour<A>| (n.cost, n.address, n.iface);
    rank(&neighbours[a]) < rank(&neighbours[b])
}

/// Joins two heaps whose roots have no siblings; either may be [`NIL`].
fn meld<A: Family>(neighbours: &mut Neighbours<'_, A>, a: u32, b: u32) -> u32 {
    if a == NIL || b == NIL {
        return if a == NIL { b } else { a };
    }
    let (best, other) = if is_better(neighbours, b, a) {
        (b, a)
    } else {
        (a, b)
    };
    let child = neighbours[best].child;
    if child != NIL {
        neighbours[child].back = other;
    }
    neighbours[other].sibling = child;
    neighbours[other].back = best;
    neighbours[best].child = other;
    best
}

/// Joins a chain of siblings into one heap: pairs from the left, then from the right.
fn meld_chain<A: Family>(neighbours: &mut Neighbours<'_, A>, mut at: u32) -> u32 {
    let mut pairs = NIL;
    while at != NIL {
        let first = at;
        let second = neighbours[first].sibling;
        at = if second == NIL {
            NIL
        } else {
            neighbours[second].sibling
        };
        for n in [first, second] {
            if n != NIL {
                neighbours[n].sibling = NIL;
                neighbours[n].back = NIL;
            }
        }
        let pair = meld(neighbours, first, second);
        neighbours[pair].sibling = pairs;
        pairs = pair;
    }
    let mut root = NIL;
    while pairs != NIL {
        let next = core::mem::replace(&mut neighbours[pairs].sibling, NIL);
        root = meld(neighbours, root, pairs);
        pairs = next;
    }
    root
}

/// Adds a neighbour that is in no heap; returns the new root.
pub(super) fn insert<A: Family>(neighbours: &mut Neighbours<'_, A>, root: u32, n: u32) -> u32 {
    let fresh = &mut neighbours[n];
    (fresh.child, fresh.sibling, fresh.back) = (NIL, NIL, NIL);
    meld(neighbours, root, n)
}

/// Takes a neighbour out of the heap that it is in; returns the new root.
pub(super) fn remove<A: Family>(neighbours: &mut Neighbours<'_, A>, root: u32, n: u32) -> u32 {
    let Neighbour {
        child,
        sibling,
        back,
        ..
    } = neighbours[n];
    let rest = meld_chain(neighbours, child);
    if n == root {
        return rest;
    }
    if neighbours[back].child == n {
        neighbours[back].child = sibling;
    } else {
        neighbours[back].sibling = sibling;
    }
    if sibling != NIL {
        neighbours[sibling].back = back;
    }
    meld(neighbours, root, rest)
}

/// The neighbour after `n` in a walk of the heap that visits each once, in no order of rank.
pub(super) fn next<A: Family>(neighbours: &Neighbours<'_, A>, n: u32) -> Option<u32> {
    if neighbours[n].child != NIL {
        return Some(neighbours[n].child);
    }
    let mut at = n;
    loop {
        if neighbours[at].sibling != NIL {
            return Some(neighbours[at].sibling);
        }
        // To the first of these siblings, and up from there.
        loop {
            let back = neighbours[at].back;
            if back == NIL {
                return None;
            }
            let was_child = neighbours[back].child == at;
            at = back;
            if was_child {
                break;
            }
        }
    }
}
