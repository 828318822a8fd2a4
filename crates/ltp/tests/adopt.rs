//! A receiver that has the content already asks for nothing, and is counted as complete.

mod common;

use common::{Group, content, files, receiver_config, seed, sender_config};
use ltp::store::{HeapRing, Store};
use ltp::{Duration, Receiver, ReceiverEvent};

const LIMIT: Duration = Duration::from_millis(500);

/// A sender and a receiver that has the content and an announcement of it.
fn pair(bytes: &[u8], rate_bps: Option<u64>) -> Group {
    let mut config = sender_config(bytes.len());
    config.rate_bps = rate_bps;
    config.digest = Some(*blake3::hash(bytes).as_bytes());
    config.receivers = Some(1);
    let mut net = files(bytes, 1, 1, config, &receiver_config());
    let mut store = HeapRing::new(bytes.len().next_multiple_of(1 << 16).max(1 << 17));
    for (at, block) in bytes.chunks(1 << 16).enumerate() {
        store.write((at as u64) << 16, block).expect("room");
    }
    let receiver = Receiver::new(receiver_config(), store, seed(2), net.now());
    net.set_receiver(0, receiver);
    net.run_until(LIMIT, |net| net.receiver(0).announced().is_some());
    net
}

fn adopt(net: &mut Group, digest: [u8; 32]) -> bool {
    net.with_receiver(0, |receiver, now| receiver.adopt(now, digest))
}

#[test]
fn what_is_here_already_is_not_sent() {
    for len in [0, 1, 200_000] {
        let bytes = content(len, 1);
        let digest = *blake3::hash(&bytes).as_bytes();
        let mut net = pair(&bytes, None);
        assert!(!adopt(&mut net, [0; 32]), "another digest");
        // Of nothing there is nothing to adopt.
        assert_eq!(adopt(&mut net, digest), len > 0);
        net.run_until(LIMIT, |net| net.all_complete() && net.is_confirmed());
        let complete = ReceiverEvent::Complete {
            length: len as u64,
            digest: Some(digest),
        };
        assert_eq!(net.events(0).last(), Some(&complete));
        assert_eq!(net.receiver(0).stats().requests_source, 0);
    }
}

/// A sender that takes seconds to send everything learns at once that no receiver needs it.
#[test]
fn nothing_is_sent_to_receivers_that_have_it() {
    let bytes = content(4 << 20, 1);
    let mut net = pair(&bytes, Some(10_000_000));
    assert!(adopt(&mut net, *blake3::hash(&bytes).as_bytes()));
    net.run_until(LIMIT, |net| net.is_confirmed());
    assert!(net.sender().progress().0 < 1 << 20);
    assert_eq!(net.sender().receivers(), (1, 1));
}
