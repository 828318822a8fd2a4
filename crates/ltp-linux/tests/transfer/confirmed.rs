//! The hosts that a sender expects, each with an address of the loopback interface.

use std::net::Ipv4Addr;
use std::sync::mpsc::{Sender as Queue, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ltp_linux::{
    Cancel, Error, Group, Rate, ReceiveConfig, ReceiveEvent, Received, Receiver, ReceiverFailure,
    ReceiverState, SendConfig, SendOutcome, Sender, Sink, Source, Unconfirmed, send,
};

use super::{content, group};

/// Receives at this address into a buffer. A receiver that `dies` does so without a word once it has a part.
fn receive(
    mut group: Group,
    address: Ipv4Addr,
    dies: bool,
    ready: Queue<()>,
) -> Result<Received, Error> {
    group.local_address = Some(address.into());
    let cancel = Cancel::new().expect("eventfd");
    let (config, sink) = (ReceiveConfig::new(group), Sink::buffer(1 << 20));
    let mut receiver = Receiver::open(&config, sink, cancel.clone(), &mut |_| {})?;
    ready.send(()).expect("the test waits");
    let received = receiver.run(&mut |event| match event {
        ReceiveEvent::Position { bytes, .. } if dies && bytes > 0 => cancel.cancel(),
        _ => {}
    });
    if !dies {
        receiver.close();
    }
    received
}

/// Starts a receiver at `127.0.0.HOST`, and returns when it listens.
fn start(group: &Group, host: u8, dies: bool) -> JoinHandle<Result<Received, Error>> {
    let (group, address) = (group.clone(), Ipv4Addr::new(127, 0, 0, host));
    let (ready, is_ready) = channel();
    let receiving = thread::spawn(move || receive(group, address, dies, ready));
    is_ready.recv().expect("it listens");
    receiving
}

#[test]
fn a_transfer_that_all_confirm_is_complete() {
    let (group, bytes) = (group(), content(300_000));
    let receiving = [2, 3].map(|host| start(&group, host, false));
    let mut config = SendConfig::new(group);
    config.receivers = Some(2);
    let outcome = send(&config, Source::buffer(bytes.clone())).expect("confirmed");
    assert_eq!(outcome, SendOutcome::Complete);
    for receiving in receiving {
        let received = receiving.join().expect("no panic").expect("received");
        assert!(received.bytes == bytes);
    }
}

#[test]
fn a_receiver_that_never_joins_is_missed() {
    let (group, bytes) = (group(), content(300_000));
    let receiving = start(&group, 2, false);
    let mut config = SendConfig::new(group);
    config.receivers = Some(2);
    config.connect_timeout = Duration::from_secs(1);
    config.linger = Duration::from_millis(100);
    let error = send(&config, Source::buffer(bytes.clone())).expect_err("one is missing");
    assert_eq!(
        error.to_string(),
        "sent, but not confirmed by all: 2 hosts expected, 1 joined, 1 confirmed"
    );
    let received = receiving.join().expect("no panic").expect("received");
    assert!(received.bytes == bytes, "the other one has everything");
}

#[test]
fn a_receiver_that_dies_in_the_middle_is_missed_and_named() {
    let (group, bytes) = (group(), content(900_000));
    let living = start(&group, 2, false);
    let dying = start(&group, 3, true);
    let mut config = SendConfig::new(group);
    config.receivers = Some(2);
    config.rate = Rate::Fixed(20_000_000);
    config.timeout = Duration::from_secs(1);
    config.linger = Duration::from_millis(100);
    let (source, cancel) = (Source::buffer(bytes), Cancel::new().expect("eventfd"));
    let mut sender = Sender::open(&config, source, cancel, &mut |_| {}).expect("open");
    let error = sender.run(&mut |_| {}).expect_err("one has died");
    let Error::Unconfirmed(why) = error else {
        panic!("{error}");
    };
    assert_eq!(
        why,
        Unconfirmed::Receivers {
            expected: 2,
            joined: 2,
            confirmed: 1
        }
    );
    let lacking = |state| state != ReceiverState::Complete;
    let lacking: Vec<_> = sender.members().filter(|one| lacking(one.state)).collect();
    assert_eq!(lacking.len(), 1);
    assert_eq!(lacking[0].address.ip(), Ipv4Addr::new(127, 0, 0, 3));
    let silent = ReceiverState::Failed(ReceiverFailure::Silent);
    assert_eq!(lacking[0].state, silent);
    living.join().expect("no panic").expect("received");
    let died = dying.join().expect("no panic");
    assert!(matches!(died, Err(Error::Canceled)));
}

#[test]
fn without_receivers_nothing_is_confirmed() {
    let mut config = SendConfig::new(group());
    config.receivers = Some(2);
    config.connect_timeout = Duration::from_millis(100);
    config.linger = Duration::from_millis(100);
    let error = send(&config, Source::buffer(content(10_000))).expect_err("no receiver");
    assert!(
        error.to_string().ends_with("0 joined, 0 confirmed"),
        "{error}"
    );
}
