//! IP multicast carries the data, and the relay serves recovery only.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::time::Duration;

use dyram::wire::{Body, Nack, Repr, Role};
use dyram::{Attachment, AttachmentConfig, Instant, Meta, Seq, SessionKey};
use linux_net::udp::{Batch, Config, GroupSocket, Membership, Transmit};
use proto_core::clock::Clock;

use super::{Daemon, eventually, socket};

const SESSION: u32 = 7;
const PACKETS: u32 = 300;
/// Time after which a receiver asks again.
const AGAIN: dyram::Duration = dyram::Duration::from_millis(2_000);

fn group() -> SocketAddrV4 {
    let process = std::process::id();
    let low = (process % 250 + 1) as u8;
    SocketAddrV4::new(
        Ipv4Addr::new(239, 196, 3, low),
        20_000 + (process % 20_000) as u16,
    )
}

fn key() -> SessionKey {
    SessionKey::new(Ipv4Addr::LOCALHOST.into(), (*group().ip()).into()).expect("key")
}

fn attach(role: Role, relay: SocketAddr, seed: u8, now: Instant) -> Attachment {
    let config = AttachmentConfig {
        key: key(),
        role,
        relays: [relay].into_iter().collect(),
    };
    Attachment::new(config, [seed; 32], now)
}

fn loopback() -> u32 {
    linux_net::link::find("lo").expect("lo").index
}

/// A receiver: a member of the group, and a child of the relay.
struct Member {
    attachment: Attachment,
    unicast: UdpSocket,
    group: GroupSocket,
    batch: Batch,
    /// Every how many packets of the group one is lost.
    lose: u32,
    have: BTreeSet<u32>,
    /// Every packet before this one was sent.
    known: u32,
    asked: BTreeMap<u32, Instant>,
    repairs: u32,
    unneeded: u32,
}

impl Member {
    fn new(relay: SocketAddr, seed: u8, lose: u32, now: Instant) -> Member {
        let config = Config {
            bind: group(),
            interface: loopback(),
            ..Config::default()
        };
        let socket_of_group = GroupSocket::open(&config).expect("socket");
        let membership = Membership {
            group: *group().ip(),
            source: None,
            interface: loopback(),
        };
        socket_of_group.join(&membership).expect("join");
        Member {
            attachment: attach(Role::Receiver, relay, seed, now),
            unicast: socket(Ipv4Addr::LOCALHOST.into()),
            group: socket_of_group,
            batch: Batch::new(32),
            lose,
            have: BTreeSet::new(),
            known: 0,
            asked: BTreeMap::new(),
            repairs: 0,
            unneeded: 0,
        }
    }

    fn step(&mut self, now: Instant) {
        let mut arrived = Vec::new();
        while self.group.receive(&mut self.batch).expect("receive") > 0 {
            for datagram in self.batch.iter() {
                let source = datagram.source.into();
                let meta = Meta {
                    source,
                    group: true,
                };
                arrived.push((meta, datagram.payload.to_vec()));
            }
        }
        let mut buffer = [0; 2048];
        while let Ok((len, from)) = self.unicast.recv_from(&mut buffer) {
            arrived.push((Meta::unicast(from), buffer[..len].to_vec()));
        }
        for (meta, bytes) in arrived {
            self.handle(now, &meta, &bytes);
        }
        self.attachment.handle_timeout(now);
        while let Some(out) = self.attachment.poll_transmit(now, &mut buffer) {
            self.send(out, &buffer);
        }
        self.ask(now);
    }

    fn send(&self, out: dyram::Transmit, buffer: &[u8]) {
        let _ = self.unicast.send_to(&buffer[..out.len], out.destination);
    }

    fn handle(&mut self, now: Instant, meta: &Meta, bytes: &[u8]) {
        let Ok(Some(packet)) = self.attachment.handle_packet(now, meta, bytes) else {
            return;
        };
        let seq = packet.sequence;
        match packet.body {
            Body::Data(_) | Body::Repair(_) => {
                let repair = matches!(packet.body, Body::Repair(_));
                if !repair && self.lose > 0 && seq.0 % self.lose == 0 {
                    return;
                }
                let new = self.have.insert(seq.0);
                self.repairs += u32::from(repair);
                self.unneeded += u32::from(repair && !new);
                self.known = self.known.max(seq.0 + 1);
            }
            Body::Cast(payload) => {
                let next = payload.try_into().map(u32::from_be_bytes);
                self.known = self.known.max(next.expect("a number"));
            }
            Body::Nack(Nack { mask, .. }) => {
                let mut buffer = [0; 2048];
                for seq in dyram::packets(seq, mask) {
                    let out = if self.have.contains(&seq.0) {
                        self.attachment
                            .send(SESSION, seq, Body::Repair(&[1; 500]), &mut buffer)
                    } else {
                        self.attachment
                            .send(SESSION, seq, Body::Absent(0), &mut buffer)
                    };
                    self.send(out.expect("attached"), &buffer);
                }
            }
            _ => {}
        }
    }

    fn ask(&mut self, now: Instant) {
        for index in 0..self.known {
            let recent = |at: &Instant| now < *at + AGAIN;
            if self.have.contains(&index) || self.asked.get(&index).is_some_and(recent) {
                continue;
            }
            let mut buffer = [0; 256];
            let nack = Nack::default();
            if let Some(out) =
                self.attachment
                    .send(SESSION, Seq(index), Body::Nack(nack), &mut buffer)
            {
                self.send(out, &buffer);
                self.asked.insert(index, now);
            }
        }
    }
}

/// The source: a socket that multicasts and attaches to the relay.
struct Source {
    attachment: Attachment,
    socket: GroupSocket,
    batch: Batch,
    sent: u32,
    asked: u32,
}

impl Source {
    fn to(&self, destination: SocketAddr, bytes: &[u8]) {
        let SocketAddr::V4(destination) = destination else {
            return;
        };
        let transmit = Transmit {
            destination,
            bytes,
            segment_len: None,
        };
        self.socket.send(&transmit).expect("send");
    }

    fn step(&mut self, now: Instant) {
        while self.socket.receive(&mut self.batch).expect("receive") > 0 {
            for datagram in self.batch.iter() {
                let meta = Meta::unicast(datagram.source.into());
                let packet = self.attachment.handle_packet(now, &meta, datagram.payload);
                let is_nack = |packet: &Repr<'_>| matches!(packet.body, Body::Nack(_));
                self.asked += u32::from(packet.ok().flatten().as_ref().is_some_and(is_nack));
            }
        }
        self.attachment.handle_timeout(now);
        let mut buffer = [0; 2048];
        while let Some(out) = self.attachment.poll_transmit(now, &mut buffer) {
            self.to(out.destination, &buffer[..out.len]);
        }
    }

    /// Multicasts the next packet, or announces how many were sent.
    fn speak(&mut self) {
        let mut buffer = [0; 2048];
        let next = Seq(self.sent);
        let out = if self.sent < PACKETS {
            self.sent += 1;
            self.attachment
                .send(SESSION, next, Body::Data(&[1; 500]), &mut buffer)
        } else {
            let number = self.sent.to_be_bytes();
            self.attachment
                .send(SESSION, next, Body::Cast(&number), &mut buffer)
        };
        let out = out.expect("attached");
        self.to(group().into(), &buffer[..out.len]);
    }
}

#[test]
fn beside_ip_multicast_a_relay_serves_recovery_and_carries_nothing() {
    let rest = format!(
        "[multicast]\ninterface = \"lo\"\ngroups = [\"{}\"]\n\
         [timers]\nhold-min = \"1s\"\n",
        group()
    );
    let relay = Daemon::start(1, "127.0.0.1", "carriage = \"multicast\"", &rest);
    let clock = Clock::new();
    let config = Config {
        bind: SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0),
        interface: loopback(),
        loopback: true,
        ..Config::default()
    };
    let mut source = Source {
        attachment: attach(Role::Source, relay.address, 1, clock.now()),
        socket: GroupSocket::open(&config).expect("socket"),
        batch: Batch::new(32),
        sent: 0,
        asked: 0,
    };
    let loses = [10, 7, 0];
    let mut members: Vec<Member> = (2u8..)
        .zip(loses)
        .map(|(seed, lose)| Member::new(relay.address, seed, lose, clock.now()))
        .collect();
    eventually("everybody is taken in", || {
        source.step(clock.now());
        members
            .iter_mut()
            .for_each(|member| member.step(clock.now()));
        let all = members
            .iter()
            .all(|member| member.attachment.relay().is_some());
        (all && source.attachment.relay().is_some()).then_some(())
    });
    let received = relay.counter("sockets", "received");
    let sent = relay.counter("sockets", "sent");
    eventually("everybody has everything", || {
        source.speak();
        source.step(clock.now());
        members
            .iter_mut()
            .for_each(|member| member.step(clock.now()));
        std::thread::sleep(Duration::from_micros(500));
        let all = |member: &Member| member.have.len() == PACKETS as usize;
        members.iter().all(all).then_some(())
    });
    assert!(relay.counter("recovery", "data") >= u64::from(PACKETS) * 9 / 10);
    assert!(relay.counter("sockets", "received") - received > u64::from(PACKETS));
    // 30 and 43 packets were lost: a NACK to a replier and a repair for each, and little else.
    let sent = relay.counter("sockets", "sent") - sent;
    assert!(
        sent < u64::from(PACKETS),
        "it carries no data: {sent} packets"
    );
    assert!(relay.counter("recovery", "repaired_below") > 0);
    // Packets that both lost the third one has.
    assert_eq!(source.asked, 0);
    assert_eq!(members[2].repairs, 0, "who lost nothing hears of nothing");
    assert_eq!(members[0].unneeded + members[1].unneeded, 0);
}
