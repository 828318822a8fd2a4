//! Receivers that die; this process sends.

use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use ldc_linux::{
    Attributes, Claimed, InitError, Receiver, SendError, Sender, WaitError, Wake, shm,
};

use crate::common::message;
use crate::dying::{Account, Report};
use crate::{LARGEST, LIMIT, Meeting, PLAIN, SOON, alone, receive, shape, starts_anew};

/// What a receiver does.
struct Operation {
    name: &'static str,
    /// What it does before.
    before: fn(&mut Taking),
    run: fn(&mut Taking),
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Steps count from when it attaches.
    Connect,
    /// The sender waits for the death.
    Alone,
    /// The sender waits for room meanwhile.
    Together,
    /// As `Alone`; the sender has requested room.
    Requested,
    /// As `Alone`; the ring may be closed.
    Close,
}

/// Of the messages that are sent first, the one that is cancelled, the one that is too late, and the one that takes
/// three slots.
const CANCELLED: u32 = 2;
const LATE: u32 = 3;
const LONG: u32 = 4;
const FIRST: u32 = 6;

const OPERATIONS: &[Operation] = &[
    Operation {
        name: "attach",
        before: |_| {},
        run: |_| {},
        kind: Kind::Connect,
    },
    Operation {
        name: "claim and read",
        before: |_| {},
        run: |taking| {
            taking.claim();
            taking.read(0);
        },
        kind: Kind::Alone,
    },
    Operation {
        name: "claim past messages that are cancelled or late, and read several slots",
        before: |taking| {
            taking.claim();
            taking.claim();
            taking.complete(0);
            taking.complete(0);
        },
        run: |taking| {
            taking.claim();
            taking.read(0);
        },
        kind: Kind::Alone,
    },
    Operation {
        name: "complete",
        before: Taking::claim,
        run: |taking| taking.complete(0),
        kind: Kind::Alone,
    },
    Operation {
        name: "complete the newer message first",
        before: |taking| {
            taking.claim();
            taking.claim();
        },
        run: |taking| {
            taking.complete(1);
            taking.complete(0);
        },
        kind: Kind::Alone,
    },
    Operation {
        name: "claim and complete several messages together",
        before: |_| {},
        run: |taking| {
            let claims = taking.ring.as_mut().unwrap().ring().claims(None).take(3);
            taking.claimed.extend(claims.map(Result::unwrap));
            taking.complete_all();
        },
        kind: Kind::Alone,
    },
    Operation {
        name: "acknowledge",
        before: Taking::claim,
        run: |taking| {
            let ticket = taking.claimed[0].ticket();
            taking.ring().ring().ack(ticket).unwrap();
        },
        kind: Kind::Alone,
    },
    Operation {
        name: "wait",
        before: Taking::take_all,
        run: |taking| {
            let limit = Some(Duration::from_millis(1));
            while taking.ring().wait(limit) != Wake::TimedOut {}
        },
        kind: Kind::Alone,
    },
    Operation {
        name: "free what the sender waits for",
        before: |_| {},
        run: |taking| {
            taking.take_all();
            taking.ring().wait(Some(Duration::from_millis(20)));
        },
        kind: Kind::Together,
    },
    Operation {
        name: "free what the sender has requested",
        before: |_| {},
        run: |taking| {
            taking.take_all();
            taking.ring().wait(Some(Duration::ZERO));
        },
        kind: Kind::Requested,
    },
    Operation {
        name: "close",
        before: Taking::claim,
        run: |taking| taking.ring = None,
        kind: Kind::Close,
    },
];

/// In the process that dies: the receiver and what it has claimed.
struct Taking {
    ring: Option<Receiver>,
    claimed: Vec<Claimed>,
    account: Account,
}

impl Taking {
    fn ring(&mut self) -> &mut Receiver {
        self.ring.as_mut().unwrap()
    }

    fn claim(&mut self) {
        let claimed = loop {
            if let Some(claimed) = self.ring().claim(Some(ldc_linux::now())).unwrap() {
                break claimed;
            }
            assert_eq!(self.ring().wait(LIMIT), Wake::Ready);
        };
        self.claimed.push(claimed);
    }

    fn read(&mut self, at: usize) {
        let mut bytes = vec![0; self.claimed[at].len()];
        let ring = self.ring.as_mut().unwrap();
        ring.ring().read(&self.claimed[at], 0, &mut bytes);
        let number = self.claimed[at].user_seq() as u32;
        assert_eq!(bytes, message(number, bytes.len()));
    }

    fn complete(&mut self, at: usize) {
        let message = self.claimed.remove(at);
        let number = message.user_seq() as u32;
        self.account.report(Report::Completing(number));
        self.ring().complete(message);
        self.account.report(Report::Completed(number));
    }

    fn complete_all(&mut self) {
        let numbers: Vec<_> = self.claimed.iter().map(|m| m.user_seq() as u32).collect();
        for number in &numbers {
            self.account.report(Report::Completing(*number));
        }
        let ring = self.ring.as_mut().unwrap();
        ring.ring().complete_all(self.claimed.drain(..));
        for number in numbers {
            self.account.report(Report::Completed(number));
        }
    }

    /// Takes the messages that are sent first.
    fn take_all(&mut self) {
        for _ in 0..FIRST - 2 {
            self.claim();
            self.complete(0);
        }
    }
}

/// In the process that dies.
pub(crate) fn operate(
    number: usize,
    socket: UnixStream,
    account: Account,
) -> (Option<Receiver>, Account) {
    let operation = &OPERATIONS[number];
    if operation.kind == Kind::Connect {
        account.begin();
    }
    let mut taking = Taking {
        ring: Some(shm::attach(socket, LARGEST).unwrap()),
        claimed: Vec::new(),
        account,
    };
    (operation.before)(&mut taking);
    if operation.kind != Kind::Connect {
        taking.account.begin();
    }
    (operation.run)(&mut taking);
    (taking.ring, taking.account)
}

#[test]
fn senders_survive_receivers_that_die_at_any_step() {
    let _alone = alone();
    for (number, operation) in OPERATIONS.iter().enumerate() {
        let mut steps = 1;
        while !survive(number, steps) {
            starts_anew();
            steps += 1;
        }
        println!("{}: {} steps", operation.name, steps - 1);
    }
}

/// Sends to a receiver that dies at this step, then to another one; returns whether the operation ended before it.
fn survive(number: usize, step: u64) -> bool {
    let operation = &OPERATIONS[number];
    let place = format!("{}, step {step}", operation.name);
    let meeting = Meeting::new("receiver");
    let (dying, socket) = meeting.start("receiver", number, step);
    let begin = Instant::now();
    let mut ldc = shm::init(socket, shape()).unwrap();
    send_first(&mut ldc);
    let mut sent = FIRST;
    let room = match operation.kind {
        Kind::Together => ldc.wait_room(16, LIMIT),
        Kind::Requested => ldc.wait_room(16, Some(Duration::ZERO)),
        Kind::Connect | Kind::Alone | Kind::Close => Ok(()),
    };
    match (room, operation.kind) {
        (Ok(()) | Err(WaitError::Gone), _) | (Err(WaitError::TimedOut), Kind::Requested) => {}
        (Err(error), _) => panic!("{place}: {error}"),
    }
    let reports = dying.reports();
    assert!(!ldc.is_attached(), "{place}");
    let error = loop {
        match ldc.send_wait(sent.into(), &message(sent, 100), PLAIN, LIMIT) {
            Ok(()) => sent += 1,
            Err(error) => break error,
        }
    };
    let (theirs, ours) = UnixStream::pair().unwrap();
    match (error, operation.kind, ldc.pass(ours)) {
        (SendError::Gone, _, Ok(())) => check(ldc, theirs, sent, &reports, &place),
        (SendError::Closed, Kind::Close, Err(InitError::Closed)) => {}
        (error, _, passed) => panic!("{place}: {error}, {passed:?}"),
    }
    assert!(begin.elapsed() < SOON, "{place}: {:?}", begin.elapsed());
    reports.contains(&Report::Ended)
}

fn send_first(ldc: &mut Sender) {
    for number in 0..FIRST {
        let len = if number == LONG { 600 } else { 100 };
        let deadline = (number == LATE).then(|| ldc_linux::Instant::from_micros(1));
        let attributes = Attributes { deadline, ..PLAIN };
        ldc.send(number.into(), &message(number, len), attributes)
            .unwrap();
        if number == CANCELLED {
            assert_eq!(ldc.cancel(number.into()).changed, 1);
        }
    }
    ldc.notify();
}

/// Another receiver gets what the dead one has not completed.
fn check(ldc: Sender, socket: UnixStream, sent: u32, reports: &[Report], place: &str) {
    let mut ring = shm::attach(socket, LARGEST).unwrap();
    drop(ldc);
    let mut seen = Vec::new();
    assert_eq!(receive(&mut ring, |number| seen.push(number)), Wake::Closed);
    assert!(
        seen.is_sorted_by(|one, next| one < next),
        "{place}: {seen:?}"
    );
    for number in 0..sent {
        let may_be_missing = reports.contains(&Report::Completing(number)) || number == LATE;
        let must_be_missing = reports.contains(&Report::Completed(number)) || number == CANCELLED;
        let is_right = if seen.contains(&number) {
            !must_be_missing
        } else {
            may_be_missing || must_be_missing
        };
        assert!(is_right, "{place}: {number} of {seen:?}, {reports:?}");
    }
}
