//! The documented memory of the machines.

use igmp::{member, querier};
use proto_core::slab::Slot;

use crate::packets::documented;

#[test]
fn slots_are_as_large_as_documented() {
    let sizes = [
        size_of::<Slot<querier::Group>>(),
        size_of::<Slot<querier::Source>>(),
        size_of::<Slot<member::MemberGroup>>(),
        size_of::<Slot<member::MemberSource>>(),
    ];
    documented(sizes, [120, 72, 80, 48]);
}
