//! The documented memory of a hierarchy, an endpoint and the IGMP machines.

use lms_proto::endpoint::{Announcement, Session};
use lms_proto::hier::{Advert, Entry, Neighbour, Peer, Slot, Stream};
use lms_proto::igmp::{member, querier};

#[test]
fn slots_are_as_large_as_documented() {
    let sizes = [
        size_of::<Slot<Entry>>(),
        size_of::<Slot<Neighbour>>(),
        size_of::<Slot<Peer>>(),
        size_of::<Slot<Advert>>(),
        size_of::<Slot<Stream>>(),
    ];
    assert_eq!(sizes, [72, 80, 120, 80, 88]);
}

#[test]
fn an_endpoints_slots_are_too() {
    let sizes = [size_of::<Slot<Session>>(), size_of::<Slot<Announcement>>()];
    assert_eq!(sizes, [40, 56]);
}

#[test]
fn and_those_of_igmp() {
    let sizes = [
        size_of::<Slot<querier::Group>>(),
        size_of::<Slot<querier::Source>>(),
        size_of::<Slot<member::MemberGroup>>(),
        size_of::<Slot<member::MemberSource>>(),
    ];
    assert_eq!(sizes, [120, 72, 80, 48]);
}
