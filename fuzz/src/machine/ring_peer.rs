//! The packet ring with a hostile process at the other end of its memory, by the list of its own tests,
//! `crates/ldc-ring/tests/hostile_list`: any word of the shared block is rewritten between any two operations.
//!
//! Asserted: what the top of that file says. Nothing is allocated after the start, so memory needs no bound here.

#[path = "../../../crates/ldc-ring/tests/hostile_list/mod.rs"]
#[allow(dead_code, reason = "parts of it are for the tests that write by hand")]
#[allow(
    unsafe_code,
    clippy::undocumented_unsafe_blocks,
    reason = "a shared block is raw memory"
)]
mod hostile_list;

use hostile_list::Step;

use crate::script::Script;

fn step(script: &mut Script<'_>) -> Step {
    let kind = script.pick(24);
    let small = script.u8();
    let seq = u64::from(small % 12);
    let nth = usize::from(small % 8);
    match kind {
        0..4 => Step::Send(seq, usize::from(script.u8())),
        4 => Step::Cancel(seq),
        5 => Step::Modify(seq),
        6 => Step::HoldBack(seq),
        7 => Step::HoldBackAll,
        8 => Step::Release,
        9 => Step::ReleaseUntil(seq),
        10 => Step::Retain,
        11..14 => Step::Claim,
        14 | 15 => Step::Complete(nth),
        16 => Step::Read(nth),
        17 => Step::Ack,
        18 => Step::PollAck,
        19 => match small % 3 {
            0 => Step::Idle,
            1 => Step::Notify,
            _ => Step::Reattach,
        },
        20 => Step::Scribble(usize::from(script.u16()), small),
        21 => Step::Word(usize::from(script.u16()), script.u32()),
        22 => Step::State(u32::from(small % 8), u32::from(script.u8() % 16)),
        _ => Step::Len(u32::from(small % 8), script.u32()),
    }
}

pub fn run(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let mut steps = Vec::new();
    while script.more() && steps.len() < 400 {
        steps.push(step(&mut script));
    }
    hostile_list::run(steps);
}

pub fn seeds() -> Vec<Vec<u8>> {
    // Send three, claim three, rewrite the second's state, complete and read in every order.
    let lie = |state: u8, order: [u8; 3]| {
        let mut bytes = vec![0, 0, 9, 0, 1, 9, 0, 2, 9, 11, 0, 11, 0, 11, 0];
        bytes.extend([22, 1, state, 23, 1, 100, 0, 0, 0]);
        for nth in order {
            bytes.extend([16, nth, 14, nth]);
        }
        bytes
    };
    let walk = |factor: usize| (0..240).map(|at| (at * factor + at / 11) as u8).collect();
    let mut seeds: Vec<Vec<u8>> = (1..12).map(walk).collect();
    for state in 0..6 {
        seeds.extend([[0, 0, 0], [1, 0, 0], [2, 1, 0]].map(|order| lie(state, order)));
    }
    seeds
}
