//! The links of a data node to peers, for status documents.

use std::collections::BTreeMap;

use bfed::data::{Ages, Plane};

use crate::status::Counts;

/// The link of a data node to a peer.
#[derive(Clone, Debug)]
pub(crate) struct LinkSnapshot {
    /// Number of the peer in this gateway.
    pub(crate) peer: u32,
    /// Ages of real-time frames on arrival.
    pub(crate) ages: Ages,
    /// Gauges and counters, by their keys in the status document.
    pub(crate) counts: Counts,
}

/// Returns the links that sessions use.
pub(super) fn links(plane: &Plane) -> Vec<LinkSnapshot> {
    let repairs: BTreeMap<_, _> = plane.repairs().collect();
    let links = plane.links().map(|link| {
        let of_peer = repairs.get(&link.peer).copied().unwrap_or_default();
        let counts = [
            ("edges", u64::from(link.edges)),
            ("frames", link.ages.buckets.iter().sum()),
            ("lost", of_peer.lost()),
            ("repaired", of_peer.repaired + of_peer.restored),
            ("late", of_peer.late),
        ];
        LinkSnapshot {
            peer: link.peer.0,
            ages: link.ages,
            counts: counts.map(|(name, count)| (name.to_owned(), count)).into(),
        }
    });
    links.collect()
}
