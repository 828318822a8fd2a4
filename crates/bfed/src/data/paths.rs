//! QUIC paths: data nodes to which packets are sent over QUIC, and from which they arrive; and how long packets are on
//! their way.
//!
//! A path is an address together with the certificate that the peer's control node named for it. Packets of an edge over
//! QUIC belong to a path, so that a packet that arrives in the clear, or that another data node sent, matches no edge.
//!
//! A path exists while an edge has it, so there are at most as many as edges
//! ([`PlaneConfig::max_edges`](super::PlaneConfig::max_edges)). Each takes about 200 bytes.

use alloc::collections::BTreeMap;
use core::net::SocketAddr;

use proto_core::time::Duration;

use super::edge::Edge;
use super::{Destination, EdgeId, HEADER_LEN, Plane, PlaneConfig};
use crate::types::KeyDigest;
use crate::wire::data::MAX_PAYLOAD_LEN;

/// Payload that a packet on any path may have, in bytes: QUIC datagrams of the smallest QUIC packets (1,200 bytes, RFC
/// 9000 §14) have room for it. Fragments are no longer than that, so that each path accepts the fragments of all others.
pub const MIN_PATH_PAYLOAD: usize = 1100;

/// Handle of a QUIC path. Handles are not used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PathId(pub u64);

#[derive(Debug)]
struct Path {
    address: SocketAddr,
    key: KeyDigest,
    edges: u32,
    /// Longest payload of a packet in bytes.
    max_payload: usize,
    /// Round-trip time; 0 until it is known.
    rtt: Duration,
}

/// All paths.
#[derive(Debug, Default)]
pub(super) struct Paths {
    last: u64,
    ids: BTreeMap<(SocketAddr, KeyDigest), PathId>,
    paths: BTreeMap<PathId, Path>,
}

impl Paths {
    /// Adds an edge to a path, which is created if it is new.
    pub(super) fn add(&mut self, address: SocketAddr, key: KeyDigest) -> PathId {
        let last = &mut self.last;
        let id = *self.ids.entry((address, key)).or_insert_with(|| {
            *last += 1;
            PathId(*last)
        });
        let path = self.paths.entry(id).or_insert(Path {
            address,
            key,
            edges: 0,
            max_payload: MIN_PATH_PAYLOAD,
            rtt: Duration::ZERO,
        });
        path.edges += 1;
        id
    }

    /// Removes an edge from a path.
    pub(super) fn remove(&mut self, id: PathId) {
        let Some(path) = self.paths.get_mut(&id) else {
            return;
        };
        path.edges -= 1;
        if path.edges == 0 {
            self.ids.remove(&(path.address, path.key));
            self.paths.remove(&id);
        }
    }

    pub(super) fn find(&self, address: SocketAddr, key: KeyDigest) -> Option<PathId> {
        self.ids.get(&(address, key)).copied()
    }

    pub(super) fn end(&self, id: PathId) -> Option<(SocketAddr, KeyDigest)> {
        self.paths.get(&id).map(|path| (path.address, path.key))
    }

    /// Returns whether there are paths to that address.
    pub(super) fn leads_to(&self, address: SocketAddr) -> bool {
        let keys = (address, KeyDigest([0; 32]))..=(address, KeyDigest([0xff; 32]));
        self.ids.range(keys).next().is_some()
    }

    /// Returns the longest payload of a packet.
    pub(super) fn max_payload(&self, id: PathId) -> usize {
        let path = self.paths.get(&id);
        path.map_or(MIN_PATH_PAYLOAD, |path| path.max_payload)
    }

    pub(super) fn rtt(&self, id: PathId) -> Duration {
        self.paths.get(&id).map_or(Duration::ZERO, |path| path.rtt)
    }

    pub(super) fn set_rtt(&mut self, id: PathId, rtt: Duration) {
        if let Some(path) = self.paths.get_mut(&id) {
            path.rtt = rtt;
        }
    }

    /// Sets the longest datagram that the path takes, in bytes.
    pub(super) fn set_max_datagram(&mut self, id: PathId, len: usize) {
        if let Some(path) = self.paths.get_mut(&id) {
            let payload = len.saturating_sub(HEADER_LEN);
            path.max_payload = payload.clamp(MIN_PATH_PAYLOAD, MAX_PAYLOAD_LEN);
        }
    }
}

/// Returns half of the round-trip time of an edge, as far as it is known.
#[inline]
pub(super) fn transit(paths: &Paths, edge: &Edge) -> Duration {
    match (edge.to, &edge.sender) {
        (Some(Destination::Path(path)), _) => paths.rtt(path) / 2,
        (_, Some(sender)) => Duration::from_micros(u64::from(sender.rtt_us() / 2)),
        _ => Duration::ZERO,
    }
}

/// Returns the longest payload of a datagram, and that of a fragment; `None` where packets are not datagrams.
#[inline]
pub(super) fn max_payload(
    config: &PlaneConfig,
    paths: &Paths,
    to: Option<Destination>,
) -> Option<(usize, usize)> {
    match to? {
        Destination::Datagram(to) => {
            let max = config.payload_len(to);
            Some((max, max))
        }
        Destination::Path(path) => Some((paths.max_payload(path), MIN_PATH_PAYLOAD)),
        Destination::Stream(_) | Destination::Native(_) | Destination::NativeInit(_) => None,
    }
}

impl Plane {
    /// Returns how long a packet that leaves now is on its way, as far as that is known.
    pub(super) fn transit(&self, id: EdgeId) -> Duration {
        self.edge(id)
            .map_or(Duration::ZERO, |edge| transit(&self.paths, edge))
    }

    /// Returns the path with that address and certificate, if an edge has it.
    #[must_use]
    pub fn path(&self, address: SocketAddr, key: KeyDigest) -> Option<PathId> {
        self.paths.find(address, key)
    }

    /// Returns the address of a path, and the certificate that the data node there must prove. `None` once no edge has
    /// the path.
    #[must_use]
    pub fn path_end(&self, id: PathId) -> Option<(SocketAddr, KeyDigest)> {
        self.paths.end(id)
    }

    /// Returns the path of an edge. An edge without one uses TCP, UDP or the native network.
    #[must_use]
    pub fn path_of(&self, id: EdgeId) -> Option<PathId> {
        self.edge(id)?.rest.path
    }

    /// Returns whether there are paths to that address: QUIC packets from other addresses are not expected.
    #[must_use]
    pub fn has_path_to(&self, address: SocketAddr) -> bool {
        self.paths.leads_to(address)
    }

    /// Sets the round-trip time of a path.
    pub fn set_rtt(&mut self, id: PathId, rtt: Duration) {
        self.paths.set_rtt(id, rtt);
    }

    /// Sets the longest datagram that a path takes, in bytes: at least [`MIN_PATH_PAYLOAD`] and a header.
    pub fn set_max_datagram(&mut self, id: PathId, len: usize) {
        self.paths.set_max_datagram(id, len);
    }
}
