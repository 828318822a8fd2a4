//! A receiver whose store fails ends at once, says why, and tells the source.

mod common;

use common::{content, group, host, seed, sender_config, source};
use ltp::store::{HeapRing, Store, StoreError};
use ltp::wire::data;
use ltp::{
    Destination, Failure, Instant, Meta, Parity, Receiver, ReceiverConfig, ReceiverEvent,
    ReceiverFailure, Sender, SenderEvent,
};

const BLOCK: usize = 1 << 12;
const BLOCKS: usize = 8;

/// What the store does when it fails.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Call {
    Write,
    Block,
    Commit,
    /// Bytes that came, to restore others from parity.
    Read,
    /// The same; the store says that it has not got them, and works on.
    Missing,
}

/// A store that does one thing `left` times, and then no more.
struct Failing {
    bytes: HeapRing,
    call: Call,
    left: usize,
}

impl Failing {
    fn count(&mut self, call: Call) -> Result<(), StoreError> {
        if call == Call::Read && self.call == Call::Missing {
            self.left = self.left.checked_sub(1).ok_or(StoreError::NotStored)?;
        }
        if call == self.call {
            self.left = self.left.checked_sub(1).ok_or(StoreError::Failed)?;
        }
        Ok(())
    }
}

impl Store for Failing {
    fn capacity(&self) -> Option<u64> {
        None
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.count(Call::Write)?;
        self.bytes.write(offset, bytes)
    }

    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        self.count(Call::Read)?;
        self.bytes.read(offset, out)
    }

    fn block(&mut self, offset: u64, len: usize) -> Result<&[u8], StoreError> {
        self.count(Call::Block)?;
        self.bytes.block(offset, len)
    }

    fn commit(&mut self, _offset: u64, _len: usize) -> Result<(), StoreError> {
        self.count(Call::Commit)
    }
}

/// Runs a session over a link that loses the first packet of each block, once; parity comes in advance. Returns the last event of the receiver, and why the sender no longer waits.
fn run(call: Call, left: usize) -> (Option<ReceiverEvent>, Option<ReceiverFailure>) {
    let bytes = content(BLOCK * BLOCKS, 1);
    let mut config = sender_config(bytes.len());
    config.block_exponent = BLOCK.trailing_zeros() as u8;
    config.receivers = Some(1);
    config.parity = Some(Parity::Percent(30));
    let mut now = Instant::ZERO;
    let mut sender = Sender::new(config, HeapRing::whole(bytes.clone()), seed(1), now).unwrap();
    let store = Failing {
        bytes: HeapRing::whole(vec![0; bytes.len()]),
        call,
        left,
    };
    let config = ReceiverConfig::new(group());
    let mut receiver = Receiver::new(config, store, seed(2), now);
    let per_block = sender.geometry().packets_per_block();
    let (mut last, mut given_up) = (None, None);
    let mut buffer = [0; 2048];
    while !sender.is_finished() || !receiver.is_finished() {
        while let Some(transmit) = sender.poll_transmit(now, &mut buffer) {
            let meta = match transmit.destination {
                Destination::Unicast(_) => Meta::unicast(source()),
                _ => Meta::group(source()),
            };
            let packet = &buffer[..transmit.len];
            let data = data::Packet::new_checked(packet).ok();
            let first =
                data.is_some_and(|data| !data.is_repair() && data.sequence().0 % per_block == 0);
            if !first {
                let _ = receiver.handle_packet(now, &meta, packet);
            }
        }
        while let Some(transmit) = receiver.poll_transmit(now, &mut buffer) {
            let meta = Meta::unicast(host(0));
            let _ = sender.handle_packet(now, &meta, &buffer[..transmit.len]);
        }
        while let Some(event) = sender.poll_event() {
            if let SenderEvent::ReceiverFailed { failure, .. } = event {
                given_up = Some(failure);
            }
        }
        last = std::iter::from_fn(|| receiver.poll_event()).last().or(last);
        let next = [sender.poll_timeout(), receiver.poll_timeout()];
        let Some(next) = next.into_iter().flatten().min() else {
            break;
        };
        now = next.max(now);
        sender.handle_timeout(now);
        receiver.handle_timeout(now);
    }
    (last, given_up)
}

#[test]
fn a_failed_store_ends_the_receiver_and_the_source_hears_it() {
    for call in [Call::Write, Call::Block, Call::Commit, Call::Read] {
        for left in 0..BLOCKS {
            let (last, given_up) = run(call, left);
            let failed = matches!(
                last,
                Some(ReceiverEvent::Failed {
                    failure: Failure::Store,
                    ..
                })
            );
            assert!(failed, "{call:?} after {left}: {last:?}");
            let reported = Some(ReceiverFailure::GaveUp);
            assert_eq!(given_up, reported, "{call:?} after {left}");
        }
    }
}

#[test]
fn a_store_that_works_gets_everything() {
    for call in [Call::Write, Call::Block, Call::Commit, Call::Read] {
        let (last, given_up) = run(call, usize::MAX);
        assert!(
            matches!(last, Some(ReceiverEvent::Complete { .. })),
            "{last:?}"
        );
        assert_eq!(given_up, None);
    }
}

/// What cannot be restored is requested.
#[test]
fn a_store_without_the_bytes_to_restore_from_gets_everything() {
    for left in 0..BLOCKS {
        let (last, given_up) = run(Call::Missing, left);
        let is_whole = matches!(last, Some(ReceiverEvent::Complete { .. }));
        assert!(is_whole, "after {left}: {last:?}");
        assert_eq!(given_up, None);
    }
}
