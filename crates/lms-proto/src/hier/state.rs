//! What the tables of a hierarchy hold.

use core::net::Ipv4Addr;

use proto_core::TokenBucket;

use super::replay::ReplayGuard;
use crate::wire::hier::{Cost, Kind};
use crate::{Family, Iface, Instant, InterfaceConfig, Key, LinkAddr};
use igmp::Numbered;
use proto_core::slab::{Keyed, NIL};

/// A multicast forwarding entry, as the hierarchy sees it.
#[derive(Clone, Debug)]
pub struct Entry<A = Ipv4Addr> {
    pub(super) key: Key<A>,
    pub(super) parent: Iface,
    /// The elected neighbour; in the heap of this entry, or [`NIL`].
    pub(super) elected: u32,
    /// Interface and cost of the elected neighbour, as last acted upon (LMS §6.4.1: the state
    /// that LMS adds to an entry), and its address.
    pub(super) replier_iface: Iface,
    pub(super) replier_cost: Cost,
    pub(super) replier_peer: u32,
    /// Root of the heap of this entry's neighbours.
    pub(super) root: u32,
    pub(super) neighbour_count: u32,
    /// Adverts whose `entry` is this one.
    pub(super) advert_count: u32,
    /// Next in the list of entries whose elected neighbour changed.
    pub(super) next_changed: u32,
    pub(super) is_changed: bool,
    /// Removed; stays until its withdrawals are sent. Has no neighbours.
    pub(super) is_leaving: bool,
}

impl<A: Family> Default for Entry<A> {
    fn default() -> Self {
        Entry {
            key: Key::any_source(A::UNSPECIFIED),
            parent: Iface::UNSET,
            elected: NIL,
            replier_iface: Iface::UNSET,
            replier_cost: Cost::WITHDRAWN,
            replier_peer: NIL,
            root: NIL,
            neighbour_count: 0,
            advert_count: 0,
            next_changed: NIL,
            is_changed: false,
            is_leaving: false,
        }
    }
}

impl<A: Family> Keyed for Entry<A> {
    type Key = Key<A>;

    fn key(&self) -> Key<A> {
        self.key
    }
}

/// One neighbour's offer to be the replier of one entry.
#[derive(Clone, Debug)]
pub struct Neighbour<A = Ipv4Addr> {
    pub(super) entry: u32,
    pub(super) peer: u32,
    pub(super) cost: Cost,
    pub(super) iface: Iface,
    pub(super) address: A,
    /// Pairing heap: first child, next sibling, previous sibling or parent.
    pub(super) child: u32,
    pub(super) sibling: u32,
    pub(super) back: u32,
    /// When the offer runs out; the slot's timer may be set earlier, never later. `None` holds
    /// until it is taken away.
    pub(super) expires: Option<Instant>,
}

impl<A: Family> Default for Neighbour<A> {
    fn default() -> Self {
        Neighbour {
            entry: NIL,
            peer: NIL,
            cost: Cost::WITHDRAWN,
            iface: Iface::UNSET,
            address: A::UNSPECIFIED,
            child: NIL,
            sibling: NIL,
            back: NIL,
            expires: None,
        }
    }
}

pub(super) fn neighbour_key(entry: u32, peer: u32) -> u64 {
    u64::from(entry) << 32 | u64::from(peer)
}

impl<A> Keyed for Neighbour<A> {
    type Key = u64;

    fn key(&self) -> u64 {
        neighbour_key(self.entry, self.peer)
    }
}

/// A neighbouring host or router.
#[derive(Clone, Debug)]
pub struct Peer<A = Ipv4Addr> {
    pub(super) iface: Iface,
    pub(super) address: A,
    pub(super) link: Option<LinkAddr>,
    pub(super) replay_guard: ReplayGuard,
    pub(super) bucket: TokenBucket,
    /// Offers in the neighbour table. Peers with none are in the list of idle peers.
    pub(super) offer_count: u32,
    pub(super) next_idle: u32,
    pub(super) back_idle: u32,
}

impl<A: Family> Default for Peer<A> {
    fn default() -> Self {
        Peer {
            iface: Iface::UNSET,
            address: A::UNSPECIFIED,
            link: None,
            replay_guard: ReplayGuard::default(),
            bucket: TokenBucket::FULL,
            offer_count: 0,
            next_idle: NIL,
            back_idle: NIL,
        }
    }
}

pub(super) fn peer_key<A>(iface: Iface, address: A) -> Numbered<A> {
    Numbered {
        number: iface.0.into(),
        address,
    }
}

impl<A: Family> Keyed for Peer<A> {
    type Key = Numbered<A>;

    fn key(&self) -> Numbered<A> {
        peer_key(self.iface, self.address)
    }
}

/// The announcement of one entry to one link. Its value is read from the entry when it is sent.
#[derive(Clone, Debug)]
pub struct Advert {
    pub(super) entry: u32,
    pub(super) iface: Iface,
    pub(super) kind: Kind,
    /// ELECTED: offers that came from this link.
    pub(super) offer_count: u32,
    /// Ring of periodic adverts, in the order of the last transmission.
    pub(super) ring_next: u32,
    pub(super) ring_back: u32,
    pub(super) is_in_ring: bool,
    /// Queue of what has changed and may be sent.
    pub(super) ready_next: u32,
    pub(super) is_ready: bool,
    pub(super) sent_at: Option<Instant>,
    /// Withdrawals left to send before the advert is freed.
    pub(super) withdrawals: u8,
}

impl Default for Advert {
    fn default() -> Self {
        Advert {
            entry: NIL,
            iface: Iface::UNSET,
            kind: Kind::Update,
            offer_count: 0,
            ring_next: NIL,
            ring_back: NIL,
            is_in_ring: false,
            ready_next: NIL,
            is_ready: false,
            sent_at: None,
            withdrawals: 0,
        }
    }
}

pub(super) fn advert_key(entry: u32, iface: Iface, kind: Kind) -> u64 {
    u64::from(entry) << 32 | u64::from(iface.0) << 1 | u64::from(kind == Kind::Elected)
}

impl Keyed for Advert {
    type Key = u64;

    fn key(&self) -> u64 {
        advert_key(self.entry, self.iface, self.kind)
    }
}

/// The messages of one type on one link.
#[derive(Clone, Debug)]
pub struct Stream<A = Ipv4Addr> {
    pub(super) iface: Iface,
    pub(super) kind: Kind,
    pub(super) config: InterfaceConfig<A>,
    pub(super) ring_head: u32,
    pub(super) ring_tail: u32,
    pub(super) ring_len: u32,
    pub(super) ready_head: u32,
    pub(super) ready_tail: u32,
    /// When the changes that are ready have gathered.
    pub(super) gathered_at: Instant,
    pub(super) next_periodic: Instant,
    /// No message before.
    pub(super) next_allowed: Instant,
}

impl<A: Family> Default for Stream<A> {
    fn default() -> Self {
        Stream {
            iface: Iface::UNSET,
            kind: Kind::Update,
            config: InterfaceConfig {
                address: A::UNSPECIFIED,
                prefix_len: 0,
                link_local: A::UNSPECIFIED,
            },
            ring_head: NIL,
            ring_tail: NIL,
            ring_len: 0,
            ready_head: NIL,
            ready_tail: NIL,
            gathered_at: Instant::ZERO,
            next_periodic: Instant::ZERO,
            next_allowed: Instant::ZERO,
        }
    }
}

pub(super) fn stream_key(iface: Iface, kind: Kind) -> u64 {
    u64::from(iface.0) << 1 | u64::from(kind == Kind::Elected)
}

impl<A> Keyed for Stream<A> {
    type Key = u64;

    fn key(&self) -> u64 {
        stream_key(self.iface, self.kind)
    }
}
