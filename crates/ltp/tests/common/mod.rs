//! A sender and its receivers around one switch, in the simulator.
//!
//! ```text
//!                     +--- receiver 0 (with LMS the elected replier)
//! source --- switch --+--- receiver 1
//!                     +--- ...
//! ```
//!
//! The source's link is perfect; those of the receivers have the delay and the faults that a test sets.
#![allow(unreachable_pub, missing_docs)]
#![allow(dead_code, reason = "no test uses all of it")]

pub mod network;
pub mod packets;

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use ltp::store::HeapRing;
use ltp::{
    Duration, Error, Instant, Meta, Receiver, ReceiverConfig, ReceiverEvent, Sender, SenderConfig,
    SenderEvent,
};
use netsim::ip::Datagram;
use netsim::{Disposition, Filter, LinkConfig, LinkId, Loss, NodeId, Port, Sim};

use network::{
    GROUP, Host, SOURCE, SWITCH, Switch, attach, machine, network, set_machine, with_machine,
};
pub use network::{content, seed};

pub type Source = Sender<'static, HeapRing>;
pub type Sink = Receiver<'static, HeapRing>;

pub fn group() -> SocketAddr {
    GROUP.into()
}

pub fn source() -> SocketAddr {
    SOURCE.into()
}

pub fn host(index: usize) -> SocketAddr {
    host_address(index).into()
}

fn host_address(index: usize) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::from(0x0a00_0100 + index as u32), 4000)
}

/// The switch's port to a receiver.
pub fn port(receiver: usize) -> Port {
    Port(receiver as u16 + 1)
}

/// The link of a receiver, in each direction.
pub fn link() -> LinkConfig {
    LinkConfig::new().delay(Duration::from_micros(500))
}

/// Bytes of Ethernet frames around a packet.
pub const FRAME_OVERHEAD: u32 = 14;

pub struct Group {
    pub sim: Sim,
    pub source: NodeId,
    pub receivers: Vec<NodeId>,
    source_link: LinkId,
    pub links: Vec<LinkId>,
    link: LinkConfig,
}

impl Group {
    pub fn new(sender: Source, receivers: Vec<Sink>, number: u64) -> Self {
        let mut sim = network(number);
        let perfect = [LinkConfig::new(); 2];
        let (source, source_link) =
            attach(&mut sim, SOURCE, Host::new(SOURCE, sender), false, perfect);
        let attached = receivers.into_iter().enumerate().map(|(index, receiver)| {
            let address = host_address(index);
            let host = Host::new(address, receiver);
            attach(&mut sim, address, host, true, [link(); 2])
        });
        let (receivers, links): (Vec<_>, _) = attached.unzip();
        let members = receivers.clone();
        sim.tap(Filter::Sent, move |record| {
            let from = NodeId(record.from);
            let is_member = members.contains(&from);
            if is_member || from == source {
                let packet = Datagram::parse(record.bytes).expect("a datagram");
                let is_request = packet.destination == GROUP && !packet.options.is_empty();
                let is_to_source = packet.destination.ip() == SOURCE.ip();
                assert_eq!(is_member, is_request || is_to_source);
            }
        });
        Group {
            sim,
            source,
            receivers,
            source_link,
            links,
            link: link(),
        }
    }

    pub fn now(&self) -> Instant {
        self.sim.now()
    }

    pub fn sender(&self) -> &Source {
        machine(&self.sim, self.source)
    }

    pub fn receiver(&self, index: usize) -> &Sink {
        machine(&self.sim, self.receivers[index])
    }

    pub fn receivers(&self) -> impl Iterator<Item = &Sink> {
        self.receivers.iter().map(|&node| machine(&self.sim, node))
    }

    pub fn sender_events(&self) -> &[SenderEvent] {
        &self.sim.get::<Host<Source>>(self.source).events
    }

    pub fn events(&self, receiver: usize) -> &[ReceiverEvent] {
        &self.sim.get::<Host<Sink>>(self.receivers[receiver]).events
    }

    /// Calls commands of the sender; what it then has to send is sent.
    pub fn with_sender<T>(&mut self, act: impl FnOnce(&mut Source, Instant) -> T) -> T {
        with_machine(&mut self.sim, self.source, act)
    }

    /// Calls commands of a receiver; what it then has to send is sent.
    pub fn with_receiver<T>(
        &mut self,
        index: usize,
        act: impl FnOnce(&mut Sink, Instant) -> T,
    ) -> T {
        with_machine(&mut self.sim, self.receivers[index], act)
    }

    /// Gives the sender a packet that no host has sent.
    pub fn inject_to_sender(&mut self, meta: &Meta, packet: &[u8]) -> Result<(), Error> {
        self.with_sender(|sender, now| sender.handle_packet(now, meta, packet))
    }

    /// Gives a receiver a packet that no host has sent.
    pub fn inject(&mut self, receiver: usize, meta: &Meta, packet: &[u8]) -> Result<(), Error> {
        self.with_receiver(receiver, |machine, now| {
            machine.handle_packet(now, meta, packet)
        })
    }

    /// Reads what a receiver has for its application: nothing after a failure.
    pub fn read(&mut self, receiver: usize) -> Vec<u8> {
        self.with_receiver(receiver, |receiver, now| {
            let mut bytes = Vec::new();
            while let Ok(chunk @ [_, ..]) = receiver.peek() {
                let len = chunk.len();
                bytes.extend_from_slice(chunk);
                receiver.consume(now, len);
            }
            bytes
        })
    }

    /// Starts another sender in place of the last one, or ends it.
    pub fn set_sender(&mut self, sender: Option<Source>) {
        set_machine(&mut self.sim, self.source, sender);
    }

    /// Starts another receiver in place of the last one.
    pub fn set_receiver(&mut self, index: usize, receiver: Sink) {
        set_machine(&mut self.sim, self.receivers[index], Some(receiver));
    }

    /// Takes a receiver out of its host.
    pub fn take_receiver(&mut self, index: usize) -> Sink {
        let node = self.receivers[index];
        let receiver = self
            .sim
            .with(node, |host: &mut Host<Sink>, _, _| host.machine.take());
        receiver.expect("the host is up")
    }

    /// Adds another source.
    pub fn add_source(&mut self, address: SocketAddrV4, sender: Source) -> NodeId {
        let host = Host::new(address, sender);
        let perfect = [LinkConfig::new(); 2];
        attach(&mut self.sim, address, host, false, perfect).0
    }

    /// The switch turns requests to receiver 0.
    pub fn elect_replier(&mut self) {
        self.sim.with(SWITCH, |switch: &mut Switch, _, _| {
            switch.replier = Some(port(0));
        });
    }

    /// Configures the links of all receivers, in each direction.
    pub fn set_links(&mut self, config: LinkConfig) {
        self.link = config;
        for &link in &self.links {
            self.sim.set_link(link, config, config);
        }
    }

    pub fn set_loss(&mut self, loss: f64) {
        self.set_links(link().loss(Loss::Bernoulli(loss)));
    }

    /// A deaf receiver sends, but gets nothing.
    pub fn set_deaf(&mut self, receiver: usize, is_deaf: bool) {
        let deaf = self.link.loss(Loss::Bernoulli(1.0));
        let down = if is_deaf { deaf } else { self.link };
        self.sim.set_link(self.links[receiver], self.link, down);
    }

    /// Loses the packets to a node for which `is_lost` returns true, by their payload.
    pub fn lose(&mut self, mut is_lost: impl FnMut(NodeId, &[u8]) -> bool + 'static) {
        self.sim.script(move |record| {
            let packet = Datagram::parse(record.bytes).expect("a datagram");
            match is_lost(NodeId(record.to), packet.payload) {
                true => Disposition::Lose,
                false => Disposition::Chance,
            }
        });
    }

    /// Takes the packets that were sent to addresses without a host.
    pub fn take_strays(&mut self) -> Vec<(SocketAddr, Vec<u8>)> {
        self.sim.with(SWITCH, |switch: &mut Switch, _, _| {
            std::mem::take(&mut switch.strays)
        })
    }

    /// Changes the packets to a receiver.
    pub fn change(&mut self, receiver: usize, mut change: impl FnMut(&mut [u8]) + 'static) {
        self.sim.with(SWITCH, |switch: &mut Switch, _, _| {
            switch.change = Some(Box::new(move |to, packet| {
                if to == port(receiver) {
                    change(packet);
                }
            }));
        });
    }

    /// Bytes of the frames that left the source.
    pub fn source_bytes(&self) -> u64 {
        let [sent, _] = self.sim.link_stats(self.source_link);
        sent.sent_bytes + u64::from(FRAME_OVERHEAD) * sent.sent
    }

    pub fn run_for(&mut self, time: Duration) {
        self.sim.run_until(self.now() + time);
    }

    /// Runs until the condition holds; panics after `limit` of virtual time.
    pub fn run_until(&mut self, limit: Duration, mut done: impl FnMut(&mut Self) -> bool) {
        let end = self.now() + limit;
        while !done(self) {
            assert!(
                self.sim.step(end),
                "not done at {}: {}",
                self.now(),
                self.state()
            );
        }
    }

    pub fn state(&self) -> String {
        let sender = self.sim.get::<Host<Source>>(self.source).machine.as_ref();
        let sender = sender.map(|one| (one.poll_timeout(), one.progress(), one.stats()));
        let receivers = self.receivers.iter().map(|&node| {
            let host = self.sim.get::<Host<Sink>>(node);
            let receiver = host.machine.as_ref();
            let receiver = receiver.map(|one| (one.progress(), one.stats()));
            format!("{receiver:?} {:?}\n", host.events)
        });
        format!("sender {sender:?}\n{}", receivers.collect::<String>())
    }

    /// Whether every receiver has everything.
    pub fn all_complete(&self) -> bool {
        let is_complete = |event: &_| matches!(event, ReceiverEvent::Complete { .. });
        (0..self.receivers.len()).all(|index| self.events(index).iter().any(is_complete))
    }

    /// Whether every receiver has told the source that it has everything.
    pub fn is_confirmed(&self) -> bool {
        self.sender_events().contains(&SenderEvent::Complete)
    }

    pub fn check_content(&self, bytes: &[u8]) {
        for receiver in self.receivers() {
            assert!(has_content(receiver, bytes), "bytes differ");
        }
    }
}

pub fn has_content(receiver: &Sink, bytes: &[u8]) -> bool {
    receiver.store().as_bytes()[..bytes.len()] == *bytes
}

pub fn sender_config(length: usize) -> SenderConfig {
    let mut config = SenderConfig::new(group());
    config.length = Some(length as u64);
    config.rate_bps = Some(100_000_000);
    config
}

pub fn receiver_config() -> ReceiverConfig {
    let mut config = ReceiverConfig::new(group());
    config.limits.window_blocks = 256;
    config
}

/// A content in memory to `count` receivers that gather it in memory.
pub fn files(
    bytes: &[u8],
    count: usize,
    number: u64,
    sender: SenderConfig,
    receiver: &ReceiverConfig,
) -> Group {
    let block = 1usize << sender.block_exponent;
    let capacity = bytes.len().next_multiple_of(block).max(2 * block);
    let store = HeapRing::whole(bytes.to_vec());
    let sender = Sender::new(sender, store, seed(number), Instant::ZERO).expect("configuration");
    let mut config = receiver.clone();
    config.limits.window_blocks = (capacity / block).next_power_of_two();
    let receivers = (1..=count as u64).map(|index| {
        let seed = seed(number * 1000 + index);
        Receiver::new(config.clone(), HeapRing::new(capacity), seed, Instant::ZERO)
    });
    Group::new(sender, receivers.collect(), number)
}
