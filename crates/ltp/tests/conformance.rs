//! Sender and receiver keep the contract of `proto_core::Machine`, alone and with a DyRAM relay.

use std::collections::VecDeque;
use std::net::SocketAddr;

use dyram::storage::{Limits, Storage};
use dyram::{Relay, RelayId, Verdict};
use ltp::relayed;
use ltp::store::HeapRing;
use ltp::{
    Assist, Destination, Duration, Instant, Meta, Receiver, ReceiverConfig, ReceiverEvent, Sender,
    SenderConfig, SenderEvent, Transmit,
};
use netsim::conformance::{self, EventOf, Pair, Paired};
use proto_core::Machine;

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

fn content() -> Vec<u8> {
    (0..300_000u32)
        .map(|n| (n.wrapping_mul(n) >> 7) as u8)
        .collect()
}

fn sender_config() -> SenderConfig {
    let mut config = SenderConfig::new(group());
    config.length = Some(300_000);
    config.receivers = Some(1);
    config.max_segments = 1;
    config
}

fn sender(now: Instant, rate_bps: Option<u64>) -> Source {
    let mut config = sender_config();
    config.rate_bps = rate_bps;
    Sender::new(config, HeapRing::whole(content()), [1; 32], now).unwrap()
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

fn relay() -> SocketAddr {
    "10.0.0.3:4143".parse().unwrap()
}

fn relays() -> relayed::Parents {
    [relay()].into_iter().collect()
}

fn relayed_sender(now: Instant) -> relayed::Sender<'static, HeapRing> {
    // An unpaced sender sends nothing earlier because junk has it polled once more.
    let mut sender = sender_config();
    sender.max_packet_len = 1200;
    let sender = Sender::new(sender, HeapRing::whole(content()), [1; 32], now).unwrap();
    relayed::Sender::new(sender, source(), group().ip(), relays(), [3; 32], now).unwrap()
}

fn relayed_receiver(now: Instant) -> relayed::Receiver<'static, HeapRing> {
    let mut config = ReceiverConfig::new(group());
    config.assist = Assist::Dyram;
    config.source = Some(source().ip());
    let receiver = Receiver::new(config, HeapRing::new(5 << 16), [2; 32], now);
    let (source, group) = (source().ip(), group().ip());
    relayed::Receiver::new(receiver, source, group, relays(), [4; 32], now).unwrap()
}

/// A machine with a relay on its side, as one peer. Packets between the two arrive at once.
struct Behind<M> {
    machine: M,
    address: SocketAddr,
    relay: Relay<'static>,
    now: Instant,
    /// Packets that wait: from, to.
    inside: VecDeque<(SocketAddr, SocketAddr, Vec<u8>)>,
}

impl<M: Machine<Meta = Meta, Transmit = Transmit>> Behind<M> {
    fn new(machine: M, address: SocketAddr, now: Instant) -> Self {
        let mut config = dyram::Config::new(RelayId(1));
        config.parents = dyram::Parents::new();
        let storage = Storage::owned(Limits::default()).unwrap();
        Behind {
            machine,
            address,
            relay: Relay::new(config, storage, [5; 32], now).unwrap(),
            now,
            inside: VecDeque::new(),
        }
    }

    fn deliver(&mut self, from: SocketAddr, to: SocketAddr, mut packet: Vec<u8>) {
        if to == self.address {
            let _ = self
                .machine
                .handle_packet(self.now, &Meta::unicast(from), &packet);
        } else if to == relay() {
            let meta = dyram::Meta::unicast(from);
            if let Verdict::Send(fanout) = self.relay.forward(self.now, &meta, &mut packet) {
                for target in self.relay.targets(&fanout) {
                    self.inside.push_back((relay(), target, packet.clone()));
                }
            }
        }
    }
}

impl<M: Machine<Meta = Meta, Transmit = Transmit>> Machine for Behind<M> {
    /// Source and destination.
    type Meta = (SocketAddr, SocketAddr);
    type Transmit = (SocketAddr, SocketAddr, usize);
    type Event = M::Event;
    type Error = M::Error;

    fn handle_packet(
        &mut self,
        now: Instant,
        &(from, to): &Self::Meta,
        packet: &[u8],
    ) -> Result<(), M::Error> {
        self.now = now;
        self.deliver(from, to, packet.to_vec());
        Ok(())
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        self.machine.handle_timeout(now);
        self.relay.handle_timeout(now);
    }

    fn poll_transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Self::Transmit> {
        self.now = now;
        loop {
            let (from, to, packet) = if let Some(packet) = self.inside.pop_front() {
                packet
            } else if let Some(transmit) = self.machine.poll_transmit(now, buffer) {
                let to = transmit.destination.unicast().expect("a unicast packet");
                (self.address, to, buffer[..transmit.len].to_vec())
            } else {
                let transmit = self.relay.poll_transmit(now, buffer)?;
                let packet = buffer[..transmit.len].to_vec();
                (relay(), transmit.destination, packet)
            };
            if to != self.address && to != relay() {
                buffer[..packet.len()].copy_from_slice(&packet);
                return Some((from, to, packet.len()));
            }
            self.deliver(from, to, packet);
        }
    }

    fn poll_event(&mut self) -> Option<M::Event> {
        self.machine.poll_event()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let waits = (!self.inside.is_empty()).then_some(self.now);
        let timeouts = [
            self.machine.poll_timeout(),
            self.relay.poll_timeout(),
            waits,
        ];
        timeouts.into_iter().flatten().min()
    }
}

fn to_unicast(transmit: &Transmit, from: SocketAddr) -> (usize, Option<(SocketAddr, SocketAddr)>) {
    let to = transmit.destination.unicast();
    (transmit.len, to.map(|to| (from, to)))
}

fn from_behind(transmit: &(SocketAddr, SocketAddr, usize)) -> (usize, Option<Meta>) {
    (transmit.2, Some(Meta::unicast(transmit.0)))
}

struct ReceivesFromRelay {
    is_complete: bool,
}

impl Pair for ReceivesFromRelay {
    type Machine = relayed::Receiver<'static, HeapRing>;
    type Peer = Behind<relayed::Sender<'static, HeapRing>>;
    type Command = ();

    fn machine(&self, now: Instant) -> Self::Machine {
        relayed_receiver(now)
    }

    fn peer(&self, now: Instant) -> Self::Peer {
        Behind::new(relayed_sender(now), source(), now)
    }

    fn command(&self, _: &mut Self::Machine, _: Instant, (): &()) {}

    fn to_peer(&self, transmit: &Transmit) -> (usize, Option<(SocketAddr, SocketAddr)>) {
        to_unicast(transmit, host())
    }

    fn to_machine(&self, transmit: &(SocketAddr, SocketAddr, usize)) -> (usize, Option<Meta>) {
        from_behind(transmit)
    }

    fn notified(&mut self, _: Instant, event: &EventOf<Self::Machine>) -> Vec<()> {
        use relayed::ReceiverEvent::Receiver;
        self.is_complete |= matches!(event, Receiver(ReceiverEvent::Complete { .. }));
        Vec::new()
    }

    fn peer_notified(&mut self, _: &mut Self::Peer, _: Instant, _: relayed::SenderEvent) {}

    fn loses_every(&self) -> u32 {
        LOSS
    }

    fn is_goal_reached(&self) -> bool {
        self.is_complete
    }

    fn max_idle_wakeups(&self) -> usize {
        // A JOIN every few seconds, for an hour.
        10_000
    }
}

#[test]
fn relayed_receiver_keeps_the_contract() {
    let make = || Paired::new(ReceivesFromRelay { is_complete: false });
    let summary = conformance::run(make).unwrap();
    assert!(summary.received > 200 && summary.sent > 10, "{summary:?}");
}

struct SendsToRelay {
    is_complete: bool,
}

impl Pair for SendsToRelay {
    type Machine = relayed::Sender<'static, HeapRing>;
    type Peer = Behind<relayed::Receiver<'static, HeapRing>>;
    type Command = ();

    fn machine(&self, now: Instant) -> Self::Machine {
        relayed_sender(now)
    }

    fn peer(&self, now: Instant) -> Self::Peer {
        Behind::new(relayed_receiver(now), host(), now)
    }

    fn command(&self, _: &mut Self::Machine, _: Instant, (): &()) {}

    fn to_peer(&self, transmit: &Transmit) -> (usize, Option<(SocketAddr, SocketAddr)>) {
        to_unicast(transmit, source())
    }

    fn to_machine(&self, transmit: &(SocketAddr, SocketAddr, usize)) -> (usize, Option<Meta>) {
        from_behind(transmit)
    }

    fn notified(&mut self, _: Instant, event: &EventOf<Self::Machine>) -> Vec<()> {
        self.is_complete |= *event == relayed::SenderEvent::Sender(SenderEvent::Complete);
        Vec::new()
    }

    fn peer_notified(&mut self, _: &mut Self::Peer, _: Instant, _: relayed::ReceiverEvent) {}

    fn loses_every(&self) -> u32 {
        LOSS
    }

    fn is_goal_reached(&self) -> bool {
        self.is_complete
    }

    fn duration(&self) -> Duration {
        Duration::from_secs(120)
    }

    fn max_idle_wakeups(&self) -> usize {
        // A JOIN every few seconds, for an hour.
        10_000
    }
}

#[test]
fn relayed_sender_keeps_the_contract() {
    let make = || Paired::new(SendsToRelay { is_complete: false });
    let summary = conformance::run(make).unwrap();
    assert!(summary.received > 10 && summary.sent > 200, "{summary:?}");
}
