//! The documented memory of a hierarchy.

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
    assert_eq!(sizes, [64, 80, 104, 80, 88]);
}
