//! The documented memory of a hierarchy and an endpoint.

use lms_proto::endpoint::{Announcement, Session};
use lms_proto::hier::{Advert, Entry, Neighbour, Peer, Slot, Stream};

#[test]
fn slots_are_as_large_as_documented() {
    let sizes = [
        size_of::<Slot<Entry>>(),
        size_of::<Slot<Neighbour>>(),
        size_of::<Slot<Peer>>(),
        size_of::<Slot<Advert>>(),
        size_of::<Slot<Stream>>(),
    ];
    assert_eq!(sizes, [64, 80, 120, 80, 88]);
}

#[test]
fn an_endpoints_slots_are_too() {
    let sizes = [size_of::<Slot<Session>>(), size_of::<Slot<Announcement>>()];
    assert_eq!(sizes, [40, 56]);
}
