//! Long random lists of operations against an oracle.

mod oracle_list;
mod random_list;

use ldc_ring::{Shape, channel};
use oracle_list::{Here, SLOT_BYTES};
use proptest::prelude::*;
use random_list::{compare, step};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_ring_does_what_a_list_would(
        slots_log2 in 0..5u32,
        steps in prop::collection::vec(step(), 1..300),
    ) {
        let (mut producer, consumer) = channel(Shape::new(1 << slots_log2, SLOT_BYTES).unwrap());
        let mut consumer = Here { consumer, claimed: Vec::new() };
        compare(steps, &mut producer, &mut consumer)?;
    }
}
