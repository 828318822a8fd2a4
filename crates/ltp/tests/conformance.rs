//! Sender and receiver keep the contract of `proto_core::Machine`.

use std::net::SocketAddr;

use ltp::store::HeapRing;
use ltp::{
    Destination, Duration, Instant, Meta, Receiver, ReceiverConfig, ReceiverEvent, Sender,
    SenderConfig, SenderEvent, Transmit,
};
use netsim::conformance::{self, Pair, Paired};

type Source = Sender<'static, HeapRing>;
type Sink = Receiver<'static, HeapRing>;

fn group() -> SocketAddr {
    "239.1.2.3:5000".parse().unwrap()
}

fn source() -> SocketAddr {
    "10.0.0.1:4000".parse().unwrap()
}

fn host() -> SocketAddr {
    "10.0.0.2:4000".parse().unwrap()
}

fn sender(now: Instant, rate_bps: Option<u64>) -> Source {
    let content: Vec<u8> = (0..300_000u32)
        .map(|n| (n.wrapping_mul(n) >> 7) as u8)
        .collect();
    let mut config = SenderConfig::new(group());
    config.length = Some(content.len() as u64);
    config.rate_bps = rate_bps;
    config.receivers = Some(1);
    config.max_segments = 1;
    Sender::new(config, HeapRing::whole(content), [1; 32], now).unwrap()
}

fn receiver(now: Instant) -> Sink {
    let config = ReceiverConfig::new(group());
    Receiver::new(config, HeapRing::new(5 << 16), [2; 32], now)
}

fn to_receiver(transmit: &Transmit) -> (usize, Option<Meta>) {
    let meta = match transmit.destination {
        Destination::Unicast(_) => Meta::unicast(source()),
        _ => Meta::group(source()),
    };
    (transmit.len, Some(meta))
}

fn to_sender(transmit: &Transmit) -> (usize, Option<Meta>) {
    (transmit.len, Some(Meta::unicast(host())))
}

/// Every 20th packet is lost, each way, so that both sides ask and answer.
const LOSS: u32 = 20;

struct Receives {
    is_complete: bool,
}

impl Pair for Receives {
    type Machine = Sink;
    type Peer = Source;
    type Command = ();

    fn machine(&self, now: Instant) -> Sink {
        receiver(now)
    }

    fn peer(&self, now: Instant) -> Source {
        sender(now, Some(20_000_000))
    }

    fn command(&self, _: &mut Sink, _: Instant, (): &()) {}

    fn to_peer(&self, transmit: &Transmit) -> (usize, Option<Meta>) {
        to_sender(transmit)
    }

    fn to_machine(&self, transmit: &Transmit) -> (usize, Option<Meta>) {
        to_receiver(transmit)
    }

    fn notified(&mut self, _: Instant, event: &ReceiverEvent) -> Vec<()> {
        self.is_complete |= matches!(
            event,
            ReceiverEvent::Complete {
                length: 300_000,
                ..
            }
        );
        Vec::new()
    }

    fn peer_notified(&mut self, _: &mut Source, _: Instant, _: SenderEvent) {}

    fn loses_every(&self) -> u32 {
        LOSS
    }

    fn is_goal_reached(&self) -> bool {
        self.is_complete
    }
}

#[test]
fn ltp_receiver() {
    let summary = conformance::run(|| Paired::new(Receives { is_complete: false })).unwrap();
    assert!(summary.received > 200 && summary.sent > 10, "{summary:?}");
}

struct Sends {
    rate_bps: Option<u64>,
    is_complete: bool,
}

impl Pair for Sends {
    type Machine = Source;
    type Peer = Sink;
    type Command = ();

    fn machine(&self, now: Instant) -> Source {
        sender(now, self.rate_bps)
    }

    fn peer(&self, now: Instant) -> Sink {
        receiver(now)
    }

    fn command(&self, _: &mut Source, _: Instant, (): &()) {}

    fn to_peer(&self, transmit: &Transmit) -> (usize, Option<Meta>) {
        to_receiver(transmit)
    }

    fn to_machine(&self, transmit: &Transmit) -> (usize, Option<Meta>) {
        to_sender(transmit)
    }

    fn notified(&mut self, _: Instant, event: &SenderEvent) -> Vec<()> {
        self.is_complete |= *event == SenderEvent::Complete;
        Vec::new()
    }

    fn peer_notified(&mut self, _: &mut Sink, _: Instant, _: ReceiverEvent) {}

    fn loses_every(&self) -> u32 {
        LOSS
    }

    fn is_goal_reached(&self) -> bool {
        self.is_complete
    }

    /// Packets of one quantum go together, and a short one may go before the whole quantum may.
    fn is_paced(&self) -> bool {
        self.rate_bps.is_some()
    }

    fn duration(&self) -> Duration {
        Duration::from_secs(120)
    }
}

fn sends(rate_bps: Option<u64>) {
    let make = || {
        let is_complete = false;
        Paired::new(Sends {
            rate_bps,
            is_complete,
        })
    };
    let summary = conformance::run(make).unwrap();
    assert!(summary.received >= 5 && summary.sent > 200, "{summary:?}");
}

#[test]
fn ltp_sender() {
    sends(None);
}

#[test]
fn ltp_paced_sender() {
    sends(Some(20_000_000));
}
