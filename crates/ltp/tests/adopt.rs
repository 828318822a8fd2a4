//! A receiver that has the content already asks for nothing, and is counted as complete.

use std::net::SocketAddr;

use ltp::store::{HeapRing, Store};
use ltp::{
    Destination, Instant, Meta, Path, Receiver, ReceiverConfig, ReceiverEvent, Sender,
    SenderConfig, SenderEvent,
};

fn group() -> SocketAddr {
    SocketAddr::from(([239, 1, 2, 3], 5000))
}

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 256) as u8).collect()
}

struct Pair {
    now: Instant,
    sender: Sender<'static, HeapRing>,
    receiver: Receiver<'static, HeapRing>,
}

impl Pair {
    fn new(bytes: &[u8]) -> Self {
        Self::with_rate(bytes, None)
    }

    fn with_rate(bytes: &[u8], rate_bps: Option<u64>) -> Self {
        let mut config = SenderConfig::new(group());
        config.rate_bps = rate_bps;
        config.length = Some(bytes.len() as u64);
        config.digest = Some(*blake3::hash(bytes).as_bytes());
        config.receivers = Some(1);
        let now = Instant::from_millis(1);
        let sender = Sender::new(config, HeapRing::whole(bytes), [1; 32], now).expect("sender");
        let mut store = HeapRing::new(bytes.len().next_multiple_of(1 << 16).max(1 << 17));
        for (at, block) in bytes.chunks(1 << 16).enumerate() {
            store.write((at as u64) << 16, block).expect("room");
        }
        let receiver = Receiver::new(ReceiverConfig::new(group()), store, [2; 32], now);
        Pair {
            now,
            sender,
            receiver,
        }
    }

    /// Everything both sides have to say now, then the clock moves.
    fn step(&mut self) {
        let mut buffer = [0; 2048];
        while let Some(transmit) = self.sender.poll_transmit(self.now, &mut buffer) {
            let path = match transmit.destination {
                Destination::Unicast(_) => Path::Unicast,
                _ => Path::Group,
            };
            let meta = Meta {
                path,
                ..Meta::group(SocketAddr::from(([10, 0, 0, 1], 4000)))
            };
            let _ = self
                .receiver
                .handle_packet(self.now, &meta, &buffer[..transmit.len]);
        }
        while let Some(transmit) = self.receiver.poll_transmit(self.now, &mut buffer) {
            let meta = Meta::unicast(SocketAddr::from(([10, 0, 0, 2], 4000)));
            let _ = self
                .sender
                .handle_packet(self.now, &meta, &buffer[..transmit.len]);
        }
        let next = [self.sender.poll_timeout(), self.receiver.poll_timeout()];
        self.now = next
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(self.now)
            .max(self.now);
        self.sender.handle_timeout(self.now);
        self.receiver.handle_timeout(self.now);
    }
}

#[test]
fn what_is_here_already_is_not_sent() {
    for len in [0, 1, 200_000] {
        let bytes = content(len);
        let digest = *blake3::hash(&bytes).as_bytes();
        let mut pair = Pair::new(&bytes);
        while pair.receiver.announced().is_none() {
            pair.step();
        }
        assert!(!pair.receiver.adopt(pair.now, [0; 32]), "another digest");
        // Of nothing there is nothing to adopt.
        assert_eq!(pair.receiver.adopt(pair.now, digest), len > 0);
        let mut ended = false;
        for _ in 0..100 {
            pair.step();
            ended |= pair.sender.poll_event() == Some(SenderEvent::Complete);
        }
        assert!(ended && pair.receiver.is_complete(), "{len} bytes");
        let events: Vec<_> = core::iter::from_fn(|| pair.receiver.poll_event()).collect();
        let complete = ReceiverEvent::Complete {
            length: len as u64,
            digest: Some(digest),
        };
        assert_eq!(events.last(), Some(&complete));
        assert_eq!(pair.receiver.stats().requests_source, 0);
    }
}

/// A sender that takes seconds to send everything learns at once that no receiver needs it.
#[test]
fn nothing_is_sent_to_receivers_that_have_it() {
    let bytes = content(4 << 20);
    let mut pair = Pair::with_rate(&bytes, Some(10_000_000));
    while pair.receiver.announced().is_none() {
        pair.step();
    }
    assert!(
        pair.receiver
            .adopt(pair.now, *blake3::hash(&bytes).as_bytes())
    );
    let mut ended = false;
    while !ended {
        pair.step();
        ended |= pair.sender.poll_event() == Some(SenderEvent::Complete);
        assert!(pair.now < Instant::from_millis(500), "confirmed late");
    }
    assert!(pair.sender.progress().0 < 1 << 20);
    assert_eq!(pair.sender.receivers(), (1, 1));
}
