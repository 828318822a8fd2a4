//! Long random lists of operations against an oracle.

mod oracle_list;
mod random_list;

use ldc_ring::{Shape, channel};
use oracle_list::{Comparison, Here, SLOT_BYTES, Step};
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
    #[test]
    fn consumers_that_die_are_replaced(
        slots_log2 in 0..5u32,
        steps in prop::collection::vec(prop::option::weighted(0.95, step()), 1..300),
    ) {
        let (mut producer, consumer) = channel(Shape::new(1 << slots_log2, SLOT_BYTES).unwrap());
        let mut consumer = Here { consumer, claimed: Vec::new() };
        let mut comparison = Comparison::new(1 << slots_log2);
        let mut expired = 0;
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Some(step) => comparison.step(step, number as u8, &mut producer, &mut consumer)?,
                None => {
                    expired += consumer.consumer.stats().expired;
                    consumer.consumer.restart();
                    consumer.claimed.clear();
                    comparison.replace();
                }
            }
            comparison.step(Step::Inspect, 0, &mut producer, &mut consumer)?;
            prop_assert_eq!(expired + consumer.consumer.stats().expired, comparison.expired());
        }
    }
}
