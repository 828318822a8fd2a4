//! The packet ring against the list of its own tests, `crates/ldc-ring/tests/oracle_list`.
//!
//! Asserted: every answer, every byte, the free slots and the pending messages after each step.

#[path = "../../../crates/ldc-ring/tests/oracle_list/mod.rs"]
#[allow(dead_code, reason = "counters are for the tests of the crate")]
mod oracle_list;

use ldc_ring::{Shape, channel};
use oracle_list::{Comparison, Here, SLOT_BYTES, Step};

use crate::script::Script;

fn step(script: &mut Script<'_>) -> Step {
    let kind = script.pick(16);
    let seq = u64::from(script.u8() % 10);
    match kind {
        0 => Step::Send {
            seq,
            len: usize::from(script.u8()),
            deadline: script.flag().then(|| i64::from(script.u8() % 50)),
        },
        1 => Step::Cancel(seq),
        2 => Step::Modify(seq),
        3 => Step::HoldBack(seq),
        4 => Step::HoldBackAll,
        5 => Step::ReleaseUntil(seq),
        6 => Step::Release,
        7 => Step::Claim {
            now: i64::from(script.u8() % 60),
        },
        8 => Step::Complete(seq as usize % 4),
        9 => Step::Ack(seq as usize % 4),
        10 => Step::PollAck,
        11 => Step::Idle,
        12 => Step::SendBatch {
            seq,
            len: usize::from(script.u8() % 100),
            count: seq % 6,
        },
        13 => Step::ClaimBatch {
            now: i64::from(script.u8() % 60),
            count: seq as usize % 6,
        },
        14 => Step::CompleteAll(seq as usize % 6),
        _ => Step::Notify,
    }
}

pub fn run(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let slots = 1 << (script.u8() % 5);
    let (mut producer, consumer) = channel(Shape::new(slots, SLOT_BYTES).expect("a shape"));
    let mut consumer = Here {
        consumer,
        claimed: Vec::new(),
    };
    let mut comparison = Comparison::new(slots);
    let mut compare = |step, value| {
        let same = comparison.step(step, value, &mut producer, &mut consumer);
        same.expect("the ring does what a list would");
    };
    for number in 0..400 {
        if !script.more() {
            break;
        }
        compare(step(&mut script), number as u8);
        compare(Step::Inspect, 0);
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let walk = |factor: usize| {
        let mut bytes = vec![factor as u8];
        bytes.extend((0..200).map(|at| (at * factor + at / 13) as u8));
        bytes
    };
    (1..14).map(walk).collect()
}
