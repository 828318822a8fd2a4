//! The documented memory of a hierarchy and an endpoint.

use lms_proto::endpoint::{Announcement, Session};
use lms_proto::hier::{Advert, Entry, Neighbour, Peer, Slot, Stream};

use crate::igmp_common::documented;

#[test]
fn slots_are_as_large_as_documented() {
    let sizes = [
        size_of::<Slot<Entry>>(),
        size_of::<Slot<Neighbour>>(),
        size_of::<Slot<Peer>>(),
        size_of::<Slot<Advert>>(),
        size_of::<Slot<Stream>>(),
    ];
    documented(sizes, [72, 80, 112, 80, 88]);
}

#[test]
fn an_endpoints_slots_are_too() {
    let sizes = [size_of::<Slot<Session>>(), size_of::<Slot<Announcement>>()];
    documented(sizes, [40, 56]);
}
