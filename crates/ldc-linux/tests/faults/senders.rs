//! Senders that die; this process receives.

use std::collections::BTreeSet;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use ldc_linux::{Attributes, InitError, Sender, Wake, shm};

use crate::common::message;
use crate::dying::{Account, Report};
use crate::{LARGEST, LIMIT, Meeting, PLAIN, SOON, alone, receive, shape, starts_anew};

/// What a sender does, and what may arrive.
struct Operation {
    name: &'static str,
    /// What it does before.
    before: fn(&mut Sender),
    /// The operation. Returns the end unless it drops it.
    run: fn(Sender) -> Option<Sender>,
    /// When the process is killed, and how the ring ends.
    kind: Kind,
    /// The numbers of the messages that may arrive. Each list does for one step at least.
    outcomes: &'static [&'static [u32]],
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Steps count from when the ring is created.
    Connect,
    /// The receiver attaches after the death.
    Alone,
    /// The receiver attaches before and receives meanwhile.
    Together,
    /// As `Alone`; the ring may be closed.
    Close,
}

const fn alone_in(
    name: &'static str,
    before: fn(&mut Sender),
    run: fn(Sender) -> Option<Sender>,
    outcomes: &'static [&'static [u32]],
) -> Operation {
    Operation {
        name,
        before,
        run,
        kind: Kind::Alone,
        outcomes,
    }
}

/// Messages modified have this added to their number.
const MODIFIED: u32 = 100;

const OPERATIONS: &[Operation] = &[
    Operation {
        name: "create and offer",
        before: |_| {},
        run: Some,
        kind: Kind::Connect,
        outcomes: &[&[]],
    },
    alone_in(
        "send",
        |ldc| send(ldc, 0..2),
        |mut ldc| {
            send(&mut ldc, 2..3);
            Some(ldc)
        },
        &[&[0, 1], &[0, 1, 2]],
    ),
    alone_in(
        "send several slots with attributes",
        |ldc| send(ldc, 0..1),
        |mut ldc| {
            let attributes = Attributes {
                priority: 3,
                ..PLAIN
            };
            ldc.send(1, &message(1, 600), attributes).unwrap();
            Some(ldc)
        },
        &[&[0], &[0, 1]],
    ),
    alone_in(
        "send a batch",
        |ldc| send(ldc, 0..1),
        |mut ldc| {
            let mut batch = ldc.ring().batch();
            for number in 1..4 {
                let bytes = message(number, 100);
                batch.send(number.into(), &bytes, PLAIN).unwrap();
            }
            batch.publish();
            Some(ldc)
        },
        // All of it or nothing.
        &[&[0], &[0, 1, 2, 3]],
    ),
    alone_in(
        "cancel",
        |ldc| send(ldc, 0..3),
        |mut ldc| {
            assert_eq!(ldc.cancel(1).changed, 1);
            Some(ldc)
        },
        &[&[0, 1, 2], &[0, 2]],
    ),
    alone_in(
        "cancel the first message held back",
        |ldc| {
            send(ldc, 0..3);
            ldc.ring().hold_back(1);
        },
        |mut ldc| {
            assert_eq!(ldc.cancel(1).changed, 1);
            Some(ldc)
        },
        &[&[0]],
    ),
    alone_in(
        "retain",
        |ldc| send(ldc, 0..4),
        |mut ldc| {
            ldc.ring().retain(|sent| sent.user_seq % 2 == 1);
            Some(ldc)
        },
        &[&[0, 1, 2, 3], &[1, 2, 3], &[1, 3]],
    ),
    alone_in(
        "modify",
        |ldc| send(ldc, 0..3),
        |mut ldc| {
            let changed = message(1 + MODIFIED, 90);
            let modified = ldc.ring().modify(1, |payload| {
                assert!(payload.resize(90));
                payload.write(0, &changed[..40]);
                payload.write(40, &changed[40..]);
            });
            modified.unwrap();
            Some(ldc)
        },
        // While it is modified, the message and those after it cannot be claimed.
        &[&[0, 1, 2], &[0], &[0, 1 + MODIFIED, 2]],
    ),
    alone_in(
        "hold back",
        |ldc| send(ldc, 0..3),
        |mut ldc| {
            assert_eq!(ldc.ring().hold_back(1).changed, 2);
            Some(ldc)
        },
        &[&[0, 1, 2], &[0]],
    ),
    alone_in(
        "hold back more",
        |ldc| {
            send(ldc, 0..4);
            ldc.ring().hold_back(2);
        },
        |mut ldc| {
            assert_eq!(ldc.ring().hold_back(1).changed, 3);
            Some(ldc)
        },
        &[&[0, 1], &[0]],
    ),
    alone_in(
        "send while messages are held back",
        |ldc| {
            send(ldc, 0..2);
            ldc.ring().hold_back(1);
        },
        |mut ldc| {
            send(&mut ldc, 2..3);
            Some(ldc)
        },
        &[&[0]],
    ),
    alone_in(
        "release in part",
        |ldc| {
            send(ldc, 0..3);
            ldc.ring().hold_back(1);
        },
        |mut ldc| {
            assert!(ldc.ring().release_until(2));
            Some(ldc)
        },
        &[&[0], &[0, 1]],
    ),
    alone_in(
        "release",
        |ldc| {
            send(ldc, 0..3);
            ldc.ring().hold_back(1);
        },
        |mut ldc| {
            ldc.ring().release();
            Some(ldc)
        },
        &[&[0], &[0, 1, 2]],
    ),
    alone_in(
        "wake up",
        |ldc| send(ldc, 0..1),
        |mut ldc| {
            assert!(ldc.notify());
            Some(ldc)
        },
        &[&[0]],
    ),
    Operation {
        name: "wait for room",
        before: |ldc| send(ldc, 0..4),
        run: |mut ldc| {
            send(&mut ldc, 4..16);
            ldc.wait_room(16, LIMIT).unwrap();
            Some(ldc)
        },
        kind: Kind::Together,
        outcomes: &[
            &[0, 1, 2, 3],
            &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
        ],
    },
    Operation {
        name: "take acknowledgements",
        before: |ldc| {
            send(ldc, 0..2);
            ldc.notify();
            ldc.wait_room(16, LIMIT).unwrap();
        },
        run: |mut ldc| {
            for seq in 0..2 {
                while ldc.ring().poll_ack() != Some(seq) {
                    std::thread::yield_now();
                }
            }
            Some(ldc)
        },
        kind: Kind::Together,
        outcomes: &[&[0, 1]],
    },
    Operation {
        name: "close",
        before: |ldc| send(ldc, 0..1),
        run: |_| None,
        kind: Kind::Close,
        outcomes: &[&[0]],
    },
];

fn send(ldc: &mut Sender, numbers: std::ops::Range<u32>) {
    for number in numbers {
        ldc.send(number.into(), &message(number, 100), PLAIN)
            .unwrap();
    }
}

/// In the process that dies.
pub(crate) fn operate(number: usize, socket: UnixStream, account: &Account) -> Option<Sender> {
    let operation = &OPERATIONS[number];
    if operation.kind == Kind::Connect {
        account.begin();
    }
    let mut ldc = shm::init(socket, shape()).unwrap();
    (operation.before)(&mut ldc);
    if operation.kind != Kind::Connect {
        account.begin();
    }
    (operation.run)(ldc)
}

#[test]
fn receivers_survive_senders_that_die_at_any_step() {
    let _alone = alone();
    for (number, operation) in OPERATIONS.iter().enumerate() {
        let mut arrived = BTreeSet::new();
        let mut steps = 1;
        while !survive(number, steps, &mut arrived) {
            starts_anew();
            steps += 1;
        }
        println!("{}: {} steps", operation.name, steps - 1);
        let expected: BTreeSet<Vec<u32>> =
            operation.outcomes.iter().map(|one| one.to_vec()).collect();
        if operation.kind == Kind::Together {
            // The receiver decides how many arrive before the death.
            let whole = expected.last().unwrap();
            assert!(arrived.iter().all(|seen| whole.starts_with(seen)));
            assert!(expected.first().unwrap() <= arrived.first().unwrap());
        } else {
            assert_eq!(arrived, expected, "{}", operation.name);
        }
    }
}

/// Receives from a sender that dies at this step; returns whether the operation ended before it.
fn survive(number: usize, step: u64, arrived: &mut BTreeSet<Vec<u32>>) -> bool {
    let operation = &OPERATIONS[number];
    let place = format!("{}, step {step}", operation.name);
    let meeting = Meeting::new("sender");
    let (dying, socket) = meeting.start("sender", number, step);
    let (mut dying, mut reports) = (Some(dying), Vec::new());
    if operation.kind != Kind::Together {
        reports.extend(dying.take().unwrap().reports());
    }
    let begin = Instant::now();
    let mut seen = Vec::new();
    match shm::attach(socket, LARGEST) {
        Ok(mut ring) => match (
            receive(&mut ring, |number| seen.push(number)),
            operation.kind,
        ) {
            (Wake::Gone, _) | (Wake::Closed, Kind::Close) => {}
            (end, _) => panic!("{place}: {end:?}"),
        },
        Err(InitError::Gone) if operation.kind == Kind::Connect => {}
        Err(error) => panic!("{place}: {error}"),
    }
    if let Some(dying) = dying {
        reports.extend(dying.reports());
    }
    assert!(begin.elapsed() < SOON, "{place}: {:?}", begin.elapsed());
    arrived.insert(seen);
    reports.contains(&Report::Ended)
}
