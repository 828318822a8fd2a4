//! Long random lists of operations, on a ring and on its oracle.

use ldc_ring::{Entry, Producer};
use proptest::prelude::*;

use crate::oracle_list::{Comparison, Step, Takes};

pub(crate) fn step() -> impl Strategy<Value = Step> {
    let seq = 0..10u64;
    prop_oneof![
        6 => (seq.clone(), 0..200usize, prop::option::of(0..50i64))
            .prop_map(|(seq, len, deadline)| Step::Send { seq, len, deadline }),
        2 => (seq.clone(), 0..100usize, 0..6u64)
            .prop_map(|(seq, len, count)| Step::SendBatch { seq, len, count }),
        2 => seq.clone().prop_map(Step::Cancel),
        2 => seq.clone().prop_map(Step::Modify),
        1 => seq.clone().prop_map(Step::HoldBack),
        1 => Just(Step::HoldBackAll),
        1 => seq.prop_map(Step::ReleaseUntil),
        2 => Just(Step::Release),
        1 => (0..4u32).prop_map(Step::Retain),
        4 => (0..60i64).prop_map(|now| Step::Claim { now }),
        2 => (0..60i64, 0..6usize).prop_map(|(now, count)| Step::ClaimBatch { now, count }),
        2 => Just(Step::Skip),
        4 => (0..4usize).prop_map(Step::Complete),
        2 => (0..6usize).prop_map(Step::CompleteAll),
        1 => (0..4usize).prop_map(Step::Ack),
        1 => Just(Step::PollAck),
        1 => Just(Step::Idle),
        1 => Just(Step::Notify),
    ]
}

/// Executes the list on the ring and on the oracle, and compares all results.
pub(crate) fn compare<K, I: AsRef<[Entry]> + AsMut<[Entry]>>(
    steps: Vec<Step>,
    producer: &mut Producer<K, I>,
    consumer: &mut impl Takes,
) -> Result<(), TestCaseError> {
    let mut comparison = Comparison::new(producer.shape().slots());
    for (number, step) in steps.into_iter().enumerate() {
        comparison.step(step, number as u8, producer, consumer)?;
        comparison.step(Step::Inspect, 0, producer, consumer)?;
    }
    Ok(())
}
