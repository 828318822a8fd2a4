//! The documented memory of the machines.

use igmp::{member, querier};
use proto_core::slab::Slot;

/// The figures are of machines with 64 bits; others take less.
fn documented<const N: usize>(sizes: [usize; N], documented: [usize; N]) {
    if cfg!(target_pointer_width = "64") {
        assert_eq!(sizes, documented);
    }
    let within = sizes
        .iter()
        .zip(&documented)
        .all(|(size, most)| size <= most);
    assert!(within, "{sizes:?}, documented {documented:?}");
}

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
