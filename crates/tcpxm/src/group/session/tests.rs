use core::net::Ipv4Addr;

use super::*;

/// The end of a stream, and how far it was released.
struct Recording {
    end: u64,
    released: u64,
    is_rereadable: bool,
}

impl Store for Recording {
    fn write(&mut self, bytes: &[u8]) -> usize {
        self.end += bytes.len() as u64;
        bytes.len()
    }

    fn read(&mut self, _offset: u64, _out: &mut [u8]) -> Result<(), StoreError> {
        Err(StoreError::NotHeld)
    }

    fn end(&self) -> u64 {
        self.end
    }

    fn room(&self) -> usize {
        0
    }

    fn release(&mut self, before: u64) {
        self.released = before;
    }

    fn is_rereadable(&self) -> bool {
        self.is_rereadable
    }
}

fn address(last: u8) -> IpAddr {
    Ipv4Addr::new(239, 192, 0, last).into()
}

fn group(start: Mode) -> GroupState {
    let key = Key {
        local_port: 1,
        remote: Ipv4Addr::new(10, 0, 0, 1).into(),
        remote_port: 2,
        outer_port: 2,
    };
    GroupState {
        start,
        sender: (key, Ipv4Addr::new(10, 0, 1, 1).into(), Seq(0)),
        offered: Some(address(1)),
        signer: None,
        max_alternatives: 2,
        alternative_ranges: alloc::vec![Prefix {
            address: address(0),
            len: 24,
        }],
        min_receivers: 1,
        waiting: 0,
        open: 0,
        ready: true,
        min_rate_bps: None,
        watch: None,
        ready_due: false,
        writable_due: false,
        closed: Report::default(),
    }
}

/// A session with 1000 bytes, and how much of them leaves the store when a receiver has everything before
/// `una`, while receivers that count have the rest from `least` on.
fn released(is_rereadable: bool, start: Option<Mode>, least: Option<u64>, una: u64) -> u64 {
    let store = Recording {
        end: 1_000,
        released: 0,
        is_rereadable,
    };
    let mut session = Session::new(1, Buffer::Given(store), None);
    session.group = start.map(group);
    if let Some(least) = least {
        session.unas.set(3, least);
    }
    session.release(una);
    let Buffer::Given(store) = session.store else {
        unreachable!()
    };
    store.released
}

#[test]
fn data_leaves_the_store_when_the_last_receiver_has_it() {
    let mode = Some(Mode::UnicastGroup);
    for is_rereadable in [false, true] {
        assert_eq!(released(is_rereadable, mode, Some(300), 700), 300);
        assert_eq!(released(is_rereadable, None, Some(300), 300), 300);
    }
    assert_eq!(released(false, mode, None, 700), 0, "no receiver is left");
    assert_eq!(released(false, mode, None, MinTree::NONE), 0);
}

/// A receiver that was detached reads it again.
#[test]
fn a_store_that_can_read_everything_again_waits_for_no_detached_receiver() {
    let mode = Some(Mode::UnicastGroup);
    assert_eq!(released(true, mode, None, 200), 1_000);
    assert_eq!(released(true, mode, None, MinTree::NONE), 1_000);
}

/// All are alone: the first one to have data says that it was sent.
#[test]
fn receivers_that_are_never_in_step_release_what_the_first_of_them_has() {
    let mode = Some(Mode::UnicastOnly);
    assert_eq!(released(true, mode, None, 200), 200);
    assert_eq!(released(true, mode, None, MinTree::NONE), 0);
}

#[test]
fn space_is_reported_when_it_is_a_quarter_of_the_store() {
    let mut session = Session::<Ring>::new(1, Buffer::Given(Ring::new(1_024)), None);
    assert_eq!(session.store.write(&[7; 2_000]), 1_024);
    for (una, is_writable) in [(0, false), (255, false), (256, true), (1_024, true)] {
        session.unas.set(0, una);
        session.release(una);
        assert_eq!(session.is_writable(), is_writable, "{una}");
    }
    session.unas.clear(0);
    assert!(session.is_writable(), "without receivers");
}

#[test]
fn a_store_without_space_is_never_writable() {
    let store = Recording {
        end: 0,
        released: 0,
        is_rereadable: true,
    };
    assert!(!Session::new(1, Buffer::Given(store), None).is_writable());
}

#[test]
fn flows_learn_of_new_data_and_of_its_end() {
    let mut session = Session::<Ring>::new(1, Buffer::Given(Ring::new(1_024)), None);
    for nxt in [0, 100, 300] {
        let mut flow = Flow::new(1_000, 0, true);
        flow.nxt = nxt;
        session.flows.push(flow);
    }
    session.store.write(&[7; 200]);
    session.closing = true;
    session.refresh_unsent();
    let unsent: Vec<u64> = session.flows.iter().map(|flow| flow.unsent).collect();
    assert_eq!(unsent, [200, 100, 0]);
    assert!(session.flows.iter().all(|flow| flow.closing));
}

#[test]
fn members_are_numbered_and_counted() {
    let mut session = Session::<Ring>::new(1, Buffer::Given(Ring::new(1_024)), None);
    assert_eq!((session.add_member(70), session.add_member(80)), (0, 1));
    assert_eq!(session.members, [Some(70), Some(80)]);
    assert_eq!(session.present, 2);
}

#[test]
fn a_flow_waits_for_the_rate_and_for_those_that_wait_already() {
    let now = Instant::from_millis(0);
    let mut session = Session::<Ring>::new(1, Buffer::Given(Ring::new(1_024)), Some(8_000));
    assert!(!session.must_wait(0, now));
    session.turns.waiting.push_back(1);
    assert!(session.must_wait(0, now));
    session.turns.given = Some(0);
    assert!(!session.must_wait(0, now));
    assert!(session.must_wait(2, now));
    session.turns.waiting.clear();
    assert!(!session.must_wait(2, now));
    session.turns.cap.spend(now, 1);
    assert!(session.must_wait(0, now), "its turn, but too early");
}

#[test]
fn alternatives_are_bounded_in_number_and_range() {
    let known = |last| GroupAddress {
        address: address(last),
        listeners: 0,
    };
    let mut state = group(Mode::UnicastGroup);
    let elsewhere = IpAddr::from([239, 193, 0, 1]);
    assert!(state.may_serve(address(1), &[]));
    assert!(state.may_serve(address(2), &[known(1), known(3)]));
    assert!(!state.may_serve(elsewhere, &[]), "out of the range");
    let full = [known(1), known(3), known(4)];
    assert!(!state.may_serve(address(2), &full), "a third one");
    assert!(state.may_serve(address(4), &full), "in use");
    assert!(state.may_serve(address(1), &full));
    state.offered = None;
    assert!(!state.may_serve(address(1), &full), "no group was offered");
}

#[test]
fn the_first_check_for_stragglers_comes_after_25_milliseconds() {
    let watch = Watch::begin(Instant::from_millis(100), 5_000);
    assert_eq!(watch.next, Instant::from_millis(125));
    assert_eq!(
        (watch.since, watch.sent),
        (Instant::from_millis(100), 5_000)
    );
}
