#![cfg(feature = "alloc")]

use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::SessionId;
use crate::wire::report::Loss;

const SILENCE: Duration = Duration::from_millis(1_000);
const PROGRESS: Duration = Duration::from_millis(3_000);

fn at(millis: i64) -> Instant {
    Instant::from_millis(millis)
}

fn address(host: u8, port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, host), port))
}

/// A report of the receiver with that identifier.
fn report(receiver: u64, status: Status, blocks: u64) -> Report {
    Report {
        status,
        tag: 0,
        session: SessionId(1),
        receiver,
        blocks,
        token: 0,
        digest: 0,
        loss: Loss::default(),
    }
}

/// Receivers in a table with a window of four blocks, of a sender that has begun and sent some.
struct Session {
    receivers: Receivers<'static>,
    sent: SentBlocks,
    now: Instant,
}

impl Session {
    fn new(entries: usize) -> Self {
        let table = vec![Member::default(); entries].into();
        Session {
            receivers: Receivers::new(table, [3; 16], vec![0; 5].into()),
            sent: SentBlocks {
                begun: 3,
                whole: 2,
                all: false,
            },
            now: at(0),
        }
    }

    /// A receiver joins. Returns its entry; its identifier is its port.
    fn join(&mut self, host: u8, port: u16, blocks: u64) -> usize {
        let address = address(host, port);
        let Place::New(entry) = self.receivers.place(address) else {
            panic!("no room for {address}");
        };
        let report = report(u64::from(port), Status::Joined, blocks);
        self.receivers
            .join(entry, address, &report, self.now, &self.sent);
        assert_eq!(self.receivers.place(address), Place::Known(entry));
        entry
    }

    fn report(&mut self, entry: usize, receiver: u64, status: Status, blocks: u64) {
        let report = report(receiver, status, blocks);
        self.receivers.advance(entry, &report, self.now, &self.sent);
    }

    fn progress(&mut self, entry: usize, blocks: u64) {
        let receiver = self.receivers.table[entry].id;
        self.report(entry, receiver, Status::Progress, blocks);
    }

    /// Looks at all receivers. Returns those that are to be given up.
    fn expired(&mut self) -> Vec<(usize, ReceiverFailure)> {
        let entries = self.receivers.table.len();
        let look = |_| {
            let deadlines = (SILENCE, PROGRESS);
            self.receivers.next_expired(self.now, deadlines, &self.sent)
        };
        (0..entries).filter_map(look).collect()
    }

    fn state(&self, entry: usize) -> ReceiverState {
        let info = self.receivers.table[entry].info();
        info.expect("a receiver").state
    }

    fn lost(&mut self, entry: usize) {
        let gone = self.receivers.give_up(entry, ReceiverFailure::Left);
        assert!(gone.is_some());
    }
}

#[test]
fn one_host_gets_an_eighth_of_the_table() {
    for (entries, share) in [(1, 1), (4, 2), (16, 2), (40, 5), (128, 16), (1_024, 16)] {
        let mut session = Session::new(entries);
        for port in 0..share {
            session.join(1, port, 0);
        }
        let one_more = session.receivers.place(address(1, share));
        assert_eq!(one_more, Place::Full, "{entries} entries");
        assert_eq!(session.receivers.iter().count(), usize::from(share));
        assert_eq!(session.receivers.joined(), 1, "one host");
        if entries > 1 {
            session.join(2, 1, 0);
            assert_eq!(session.receivers.joined(), 2);
        }
    }
}

#[test]
fn a_receiver_takes_the_place_of_one_of_its_host_that_failed() {
    let mut session = Session::new(16);
    let first = session.join(1, 1, 0);
    let second = session.join(1, 2, 0);
    assert_ne!(first, second);
    assert_eq!(session.receivers.place(address(1, 3)), Place::Full);
    session.lost(second);
    assert!(!session.receivers.have_all(0));
    let third = session.join(1, 3, 0);
    assert_eq!(third, second);
    assert_eq!(session.receivers.iter().count(), 2);
    for entry in [first, third] {
        assert!(session.receivers.completed(entry).is_some());
    }
    assert!(session.receivers.have_all(1), "nothing is lost");
    assert!(!session.receivers.have_all(2), "it is one host");
}

#[test]
fn a_free_place_is_taken_before_that_of_one_that_failed() {
    let mut session = Session::new(16);
    let first = session.join(1, 1, 0);
    session.lost(first);
    let second = session.join(1, 2, 0);
    assert_ne!(first, second);
    let replaced = ReceiverState::Failed(ReceiverFailure::Replaced);
    assert_eq!(session.state(first), replaced);
    assert!(session.receivers.completed(second).is_some());
    assert!(session.receivers.have_all(1), "the first is no loss");
}

#[test]
fn all_have_everything_when_enough_hosts_do_and_no_receiver_lacks_anything() {
    let mut session = Session::new(64);
    let entries = [(1, 1), (1, 2), (2, 1), (3, 1)].map(|(host, port)| session.join(host, port, 0));
    assert_eq!(session.receivers.joined(), 3);
    assert!(session.receivers.are_waited_for());
    for (entry, complete) in entries[..3].iter().zip([1, 1, 2]) {
        assert!(session.receivers.completed(*entry).is_some());
        assert!(session.receivers.completed(*entry).is_none(), "known");
        assert_eq!(session.receivers.complete(), complete);
        assert_eq!(session.state(*entry), ReceiverState::Complete);
        assert!(!session.receivers.have_all(1), "the last one lacks it");
    }
    session.lost(entries[3]);
    assert!(!session.receivers.are_waited_for());
    assert!(!session.receivers.have_all(1), "one was given up");
    assert!(session.receivers.completed(entries[3]).is_some());
    assert!(session.receivers.have_all(3), "it came back");
    assert!(!session.receivers.have_all(4));
}

#[test]
fn a_receiver_is_given_up_once() {
    let mut session = Session::new(16);
    let entry = session.join(1, 7, 1);
    let (member, failure) = session
        .receivers
        .give_up(entry, ReceiverFailure::Silent)
        .expect("it was waited for");
    assert_eq!(failure, ReceiverFailure::Silent);
    assert_eq!((member.receiver, member.blocks), (7, 1));
    assert_eq!(member.address, address(1, 7));
    assert_eq!(session.receivers.slowest(), None);
    let again = session.receivers.give_up(entry, ReceiverFailure::Left);
    assert_eq!(again, None);
    assert!(session.receivers.completed(entry).is_some());
    let complete = session.receivers.give_up(entry, ReceiverFailure::Left);
    assert_eq!(complete, None, "one that is complete may leave");
}

#[test]
fn the_window_follows_the_slowest_receiver_that_is_waited_for() {
    let mut session = Session::new(64);
    assert_eq!(session.receivers.window_blocks(), Some(4));
    let first = session.join(1, 1, 0);
    let second = session.join(2, 1, 0);
    session.progress(first, 3);
    session.progress(second, 1);
    assert_eq!(session.receivers.slowest(), Some(1));
    assert_eq!(session.receivers.limit(), 5);
    // Reports overtake each other.
    session.progress(second, 0);
    assert_eq!(session.receivers.slowest(), Some(1));
    let behind = session.receivers.furthest_behind(false).expect("one");
    assert_eq!((behind.address, behind.blocks), (address(2, 1), 1));
    session.lost(second);
    assert_eq!(session.receivers.slowest(), Some(3));
    session.progress(second, 2);
    assert_eq!(session.receivers.slowest(), Some(3), "given up");
    assert!(session.receivers.completed(first).is_some());
    assert_eq!(session.receivers.slowest(), None);
    assert_eq!(session.receivers.furthest_behind(true), None);
}

#[test]
fn a_receiver_that_has_more_than_was_sent_limits_nothing() {
    let mut session = Session::new(64);
    let ahead = session.join(1, 1, 4);
    assert_eq!(session.receivers.slowest(), None);
    let first = session.join(2, 1, 1);
    session.progress(first, 9);
    assert_eq!(session.receivers.slowest(), None);
    assert_eq!(session.receivers.furthest_behind(false), None);
    let behind = session.receivers.furthest_behind(true).expect("one");
    assert_eq!((behind.address, behind.blocks), (address(1, 1), 4));
    // It is as far as the sender.
    session.sent.begun = 5;
    session.progress(ahead, 5);
    assert_eq!(session.receivers.slowest(), Some(5));
    // And one that is joins as that.
    let mut session = Session::new(64);
    session.join(1, 1, 3);
    assert_eq!(session.receivers.slowest(), Some(3));
}

#[test]
fn a_restarted_sender_begins_where_the_slowest_receiver_is() {
    let mut session = Session::new(64);
    session.sent = SentBlocks {
        begun: 0,
        whole: 0,
        all: false,
    };
    assert_eq!(session.receivers.slowest_joined(), None);
    let first = session.join(1, 1, 9);
    let second = session.join(2, 1, 7);
    session.join(3, 1, 12);
    assert_eq!(session.receivers.slowest_joined(), Some(7));
    session.receivers.begin_at(7);
    assert_eq!(session.receivers.slowest(), Some(7));
    session.lost(second);
    assert_eq!(session.receivers.slowest(), Some(9));
    session.lost(first);
    assert_eq!(session.receivers.slowest(), None, "12 is past the window");
    // A receiver that has all of it does not make it begin there.
    let mut session = Session::new(64);
    let complete = report(5, Status::Complete, 20);
    let Place::New(entry) = session.receivers.place(address(1, 1)) else {
        panic!("there is room");
    };
    session
        .receivers
        .join(entry, address(1, 1), &complete, at(0), &session.sent);
    assert_eq!(session.receivers.slowest_joined(), None);
    let other = session.join(2, 1, 4);
    assert_eq!(session.receivers.slowest_joined(), Some(4));
    session.report(other, 99, Status::Joined, 0);
    assert_eq!(session.receivers.slowest_joined(), Some(0), "from nothing");
    session.lost(other);
    session.lost(entry);
    assert_eq!(session.receivers.slowest_joined(), None, "none is left");
}

#[test]
fn a_silent_receiver_is_given_up() {
    let mut session = Session::new(64);
    let first = session.join(1, 1, 2);
    session.now = at(100);
    let second = session.join(2, 1, 2);
    session.now = at(999);
    assert_eq!(session.expired(), []);
    session.now = at(1_000);
    assert_eq!(session.expired(), [(first, ReceiverFailure::Silent)]);
    session.progress(first, 2);
    session.now = at(1_100);
    assert_eq!(session.expired(), [(second, ReceiverFailure::Silent)]);
    session.lost(second);
    session.now = at(1_999);
    assert_eq!(session.expired(), [], "it is known");
    assert!(session.receivers.completed(first).is_some());
    session.now = at(9_000);
    assert_eq!(session.expired(), [], "complete");
}

#[test]
fn one_that_is_silent_since_another_joined_from_its_host_was_replaced() {
    let mut session = Session::new(64);
    let first = session.join(1, 1, 2);
    let other = session.join(2, 1, 2);
    session.now = at(10);
    let second = session.join(1, 2, 2);
    session.now = at(1_000);
    let mut expired = session.expired();
    expired.sort_by_key(|(entry, _)| session.receivers.table[*entry].address);
    let expected = [
        (first, ReceiverFailure::Replaced),
        (other, ReceiverFailure::Silent),
    ];
    assert_eq!(expired, expected);
    // A report shows that it lives.
    session.progress(first, 2);
    session.now = at(2_000);
    assert!(
        session
            .expired()
            .contains(&(first, ReceiverFailure::Silent))
    );
    session.receivers.give_up(first, ReceiverFailure::Replaced);
    session.receivers.give_up(other, ReceiverFailure::Replaced);
    assert!(session.receivers.completed(second).is_some());
    assert!(session.receivers.have_all(1), "no loss");
}

/// Reports to the session every half second, without more blocks. Returns when it is given up.
fn stands_still(session: &mut Session, entry: usize, blocks: u64) -> Option<Instant> {
    let start = session.now;
    for half in 1..20 {
        session.now = start + SILENCE / 2 * half;
        session.progress(entry, blocks);
        if session.expired() == [(entry, ReceiverFailure::NoProgress)] {
            return Some(session.now);
        }
    }
    None
}

#[test]
fn a_receiver_that_lacks_something_must_advance() {
    let mut session = Session::new(16);
    let entry = session.join(1, 1, 1);
    session.now = at(1_000);
    session.progress(entry, 1);
    assert_eq!(stands_still(&mut session, entry, 1), Some(at(3_000)));
    let mut session = Session::new(16);
    let entry = session.join(1, 1, 0);
    session.now = at(1_000);
    session.progress(entry, 1);
    assert_eq!(stands_still(&mut session, entry, 1), Some(at(4_000)));
    // The third block has begun, but was not sent whole.
    let mut session = Session::new(16);
    let entry = session.join(1, 1, 2);
    assert_eq!(stands_still(&mut session, entry, 2), None);
    // What it lacked nothing counts for begins now.
    session.sent.whole = 3;
    let now = session.now;
    assert_eq!(
        stands_still(&mut session, entry, 2),
        Some(now + PROGRESS),
        "since it lacks something"
    );
    // One that lacks nothing cannot, even while it is silent.
    let mut session = Session::new(1);
    session.sent.whole = 2;
    session.join(1, 1, 2);
    let deadlines = (SILENCE * 10, PROGRESS);
    let later = session.now + PROGRESS;
    let next = session
        .receivers
        .next_expired(later, deadlines, &session.sent);
    assert_eq!(next, None);
    // Everything was sent, and it is not complete.
    let mut session = Session::new(16);
    session.sent = SentBlocks {
        begun: 3,
        whole: 3,
        all: true,
    };
    let entry = session.join(1, 1, 3);
    assert_eq!(stands_still(&mut session, entry, 3), Some(at(3_000)));
}

#[test]
fn a_receiver_with_another_content_gets_time_to_put_it_right_once() {
    let mut session = Session::new(16);
    session.sent.all = true;
    let entry = session.join(1, 1, 3);
    session.now = at(2_000);
    session.progress(entry, 3);
    assert!(session.receivers.mismatched(entry, at(2_000)));
    session.now = at(2_500);
    session.progress(entry, 3);
    assert!(session.receivers.mismatched(entry, at(2_500)));
    session.now = at(3_400);
    session.progress(entry, 3);
    session.now = at(4_300);
    session.progress(entry, 3);
    session.now = at(4_999);
    assert_eq!(session.expired(), []);
    session.now = at(5_000);
    assert_eq!(session.expired(), [(entry, ReceiverFailure::NoProgress)]);
    let gone = session.receivers.give_up(entry, ReceiverFailure::GaveUp);
    assert_eq!(gone.expect("waited for").1, ReceiverFailure::Mismatch);
    // One that left did so.
    let other = session.join(2, 1, 3);
    assert!(session.receivers.mismatched(other, at(0)));
    let gone = session.receivers.give_up(other, ReceiverFailure::Left);
    assert_eq!(gone.expect("waited for").1, ReceiverFailure::Left);
    let third = session.join(3, 1, 3);
    let gone = session.receivers.give_up(third, ReceiverFailure::GaveUp);
    assert_eq!(gone.expect("waited for").1, ReceiverFailure::GaveUp);
    assert!(session.receivers.completed(third).is_some());
    assert!(!session.receivers.mismatched(third, at(0)), "it was right");
}

#[test]
fn a_receiver_that_is_started_again_at_its_port_begins_anew() {
    let mut session = Session::new(16);
    let entry = session.join(1, 1, 2);
    session.now = at(2_900);
    session.report(entry, 50, Status::Joined, 0);
    assert_eq!(session.receivers.slowest(), Some(0));
    let info = session.receivers.table[entry].info().expect("a receiver");
    assert_eq!((info.receiver, info.blocks), (50, 0));
    assert_eq!(info.state, ReceiverState::Receiving);
    session.now = at(3_100);
    assert_eq!(session.expired(), [], "its time begins anew");
    // Another identifier in a later report is no start.
    session.report(entry, 51, Status::Progress, 1);
    assert_eq!(session.receivers.table[entry].blocks, 1);
    // Nor is its own first report again.
    session.report(entry, 50, Status::Joined, 0);
    assert_eq!(session.receivers.table[entry].blocks, 1);
    // The window does not go back for it, and takes it in where it catches up.
    let other = session.join(2, 1, 3);
    session.report(entry, 52, Status::Joined, 0);
    assert_eq!(session.receivers.slowest(), Some(3));
    session.progress(entry, 3);
    session.lost(other);
    assert_eq!(session.receivers.slowest(), Some(3));
}

#[test]
fn a_complete_receiver_that_is_started_again_lacks_everything() {
    let mut session = Session::new(16);
    let entry = session.join(1, 1, 2);
    let other = session.join(2, 1, 2);
    for entry in [entry, other] {
        assert!(session.receivers.completed(entry).is_some());
    }
    assert!(session.receivers.have_all(2));
    session.report(entry, 50, Status::Joined, 0);
    assert_eq!(session.receivers.complete(), 1);
    assert!(!session.receivers.have_all(1), "it is waited for");
    assert!(session.receivers.completed(entry).is_some());
    assert!(session.receivers.have_all(2));
    // Another receiver of its host is still complete.
    let beside = session.join(1, 2, 2);
    assert!(session.receivers.completed(beside).is_some());
    session.report(entry, 51, Status::Joined, 0);
    assert_eq!(session.receivers.complete(), 2);
}

#[test]
fn a_receiver_that_failed_and_is_started_again_is_waited_for() {
    let mut session = Session::new(16);
    let entry = session.join(1, 1, 1);
    assert!(session.receivers.mismatched(entry, at(0)));
    session.lost(entry);
    assert!(!session.receivers.are_waited_for());
    session.report(entry, 50, Status::Joined, 0);
    assert!(session.receivers.are_waited_for());
    assert_eq!(session.receivers.slowest(), Some(0));
    let gone = session.receivers.give_up(entry, ReceiverFailure::GaveUp);
    assert_eq!(gone.expect("waited for").1, ReceiverFailure::GaveUp);
    session.report(entry, 51, Status::Progress, 2);
    assert!(session.receivers.completed(entry).is_some());
    assert!(session.receivers.have_all(1));
}

#[test]
fn a_host_whose_receivers_fail_three_times_is_not_waited_for() {
    let not_waited_for = ReceiverState::Failed(ReceiverFailure::NotWaitedFor);
    let mut session = Session::new(32);
    for port in 1..=3 {
        let entry = session.join(1, port, 0);
        assert_eq!(session.state(entry), ReceiverState::Receiving, "{port}");
        session.lost(entry);
    }
    let entry = session.join(1, 4, 0);
    assert_eq!(session.state(entry), not_waited_for);
    assert!(!session.receivers.are_waited_for());
    assert_eq!(session.receivers.slowest(), None);
    assert!(!session.receivers.have_all(0));
    // It is served all the same.
    assert!(session.receivers.completed(entry).is_some());
    assert!(session.receivers.have_all(1));
    let other = session.join(2, 1, 0);
    assert_eq!(session.state(other), ReceiverState::Receiving);
}

#[test]
fn nor_is_one_that_is_started_three_times_at_one_port() {
    let not_waited_for = ReceiverState::Failed(ReceiverFailure::NotWaitedFor);
    let mut session = Session::new(16);
    let entry = session.join(1, 1, 0);
    for run in 2..=3 {
        session.report(entry, run, Status::Joined, 0);
        assert_eq!(session.state(entry), ReceiverState::Receiving, "{run}");
    }
    session.report(entry, 4, Status::Joined, 0);
    assert_eq!(session.state(entry), not_waited_for);
    assert!(!session.receivers.are_waited_for());
    assert_eq!(session.receivers.slowest(), None);
    assert!(!session.receivers.have_all(0));
    session.report(entry, 5, Status::Joined, 0);
    assert_eq!(session.state(entry), not_waited_for);
    assert!(session.receivers.completed(entry).is_some());
    assert!(session.receivers.have_all(1));
    // Strikes of all receivers of a host add up, and stay with the place.
    let mut session = Session::new(16);
    let first = session.join(1, 1, 0);
    session.report(first, 2, Status::Joined, 0);
    session.lost(first);
    let second = session.join(1, 3, 0);
    assert_eq!(session.state(second), ReceiverState::Receiving);
    session.lost(second);
    let third = session.join(1, 4, 0);
    assert_eq!(session.state(third), not_waited_for);
}

#[test]
fn the_only_receiver_of_a_host_that_is_waited_for() {
    let mut session = Session::new(32);
    let host = address(1, 0).ip();
    assert_eq!(session.receivers.only_active(host), None);
    let first = session.join(1, 1, 0);
    session.join(2, 1, 0);
    assert_eq!(session.receivers.only_active(host), Some(address(1, 1)));
    session.join(1, 2, 0);
    assert_eq!(session.receivers.only_active(host), None, "one of two");
    session.lost(first);
    assert_eq!(session.receivers.only_active(host), Some(address(1, 2)));
}

#[test]
fn the_worst_loss_is_told_once() {
    let mut session = Session::new(16);
    let entry = session.join(1, 1, 0);
    let other = session.join(2, 1, 0);
    assert_eq!(session.receivers.take_worst_loss(), None);
    for (entry, lost) in [(entry, 20), (other, 50), (entry, 30)] {
        let mut report = report(9, Status::Progress, 0);
        report.loss = Loss {
            expected: 1_000,
            lost,
        };
        session
            .receivers
            .advance(entry, &report, at(0), &session.sent);
    }
    assert_eq!(session.receivers.take_worst_loss(), Some(50));
    assert_eq!(session.receivers.take_worst_loss(), None);
    // That of a receiver that is not waited for does not count.
    session.lost(entry);
    let mut report = report(9, Status::Progress, 0);
    report.loss = Loss {
        expected: 100,
        lost: 100,
    };
    session
        .receivers
        .advance(entry, &report, at(0), &session.sent);
    assert_eq!(session.receivers.take_worst_loss(), None);
}

#[test]
fn it_is_settled_since_the_last_receiver_was_waited_for() {
    let mut session = Session::new(16);
    assert!(!session.receivers.are_settled());
    assert_eq!(session.receivers.settle(at(5)), Some(at(5)));
    assert_eq!(session.receivers.settle(at(9)), Some(at(5)));
    assert!(session.receivers.are_settled());
    let entry = session.join(1, 1, 0);
    assert!(!session.receivers.are_settled());
    assert_eq!(session.receivers.settle(at(10)), None);
    session.lost(entry);
    assert!(!session.receivers.are_settled(), "not noted yet");
    assert_eq!(session.receivers.settle(at(12)), Some(at(12)));
}

#[test]
fn searches_of_256_members_look_at_each() {
    for (entries, batch, rounds) in [(0, 0, 1), (1, 1, 1), (256, 256, 1), (257, 256, 2)] {
        let session = Session::new(entries);
        assert_eq!(session.receivers.expire_batch(), batch, "{entries}");
        assert_eq!(session.receivers.expire_rounds(), rounds, "{entries}");
    }
}
