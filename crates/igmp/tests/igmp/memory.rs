//! The documented memory of the machines.

use core::net::{Ipv4Addr, Ipv6Addr};

use igmp::{member, querier};
use proto_core::slab::Slot;

use crate::packets::documented;

const fn sizes<A>() -> [usize; 4] {
    [
        size_of::<Slot<querier::Group<A>>>(),
        size_of::<Slot<querier::Source<A>>>(),
        size_of::<Slot<member::MemberGroup<A>>>(),
        size_of::<Slot<member::MemberSource<A>>>(),
    ]
}

#[test]
fn slots_are_as_large_as_documented() {
    documented(sizes::<Ipv4Addr>(), [120, 72, 80, 48]);
    documented(sizes::<Ipv6Addr>(), [128, 80, 88, 64]);
}
