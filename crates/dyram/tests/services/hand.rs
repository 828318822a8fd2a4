//! A relay whose source and children are played by the test.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use dyram::storage::{Limits, Storage};
use dyram::wire::{Body, Feedback, Join, Nack, Packet, Repr, Role, Service, Status};
use dyram::{
    Config, DropReason, Duration, Event, Instant, Meta, Relay, RelayId, Seq, SessionKey, Verdict,
};

pub(crate) const ID: u32 = 5;

pub(crate) fn source() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, 1), 5000))
}

pub(crate) fn child(number: u16) -> SocketAddr {
    SocketAddr::from((
        Ipv4Addr::new(10, 1, (number >> 8) as u8, number as u8),
        5000,
    ))
}

pub(crate) fn key() -> SessionKey {
    SessionKey::new(source().ip(), IpAddr::from([239, 1, 2, 3])).unwrap()
}

/// A packet that the relay itself sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Sent {
    pub(crate) to: SocketAddr,
    pub(crate) service: Service,
    pub(crate) first: u32,
    pub(crate) mask: u64,
}

/// A packet that the relay itself sent, with all its fields.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Whole {
    pub(crate) to: SocketAddr,
    pub(crate) session: u32,
    pub(crate) child: u16,
    pub(crate) sequence: u32,
    pub(crate) body: Body<'static>,
}

pub(crate) struct Hand {
    pub(crate) relay: Relay<'static>,
    pub(crate) now: Instant,
    /// The session that packets belong to.
    pub(crate) key: SessionKey,
}

impl Hand {
    /// Creates a relay with a registered source and this number of children.
    pub(crate) fn new(children: u16, change: impl FnOnce(&mut Config)) -> Hand {
        let mut hand = Hand::bare(children, change);
        hand.join(source(), Role::Source, 0);
        for number in 0..children {
            assert_eq!(
                hand.join(child(number), Role::Receiver, 0),
                (Status::Joined, number)
            );
        }
        hand.events();
        hand
    }

    /// Creates a relay with room for this number of children.
    pub(crate) fn bare(children: u16, change: impl FnOnce(&mut Config)) -> Hand {
        let mut config = Config::new(RelayId(9));
        change(&mut config);
        let limits = Limits {
            sessions: 4,
            children: usize::from(children).max(4),
            nack_states: 64,
            window: 256,
        };
        let now = Instant::from_secs(1);
        let storage = Storage::owned(limits).unwrap();
        let relay = Relay::new(config, storage, [3; 32], now).unwrap();
        Hand {
            relay,
            now,
            key: key(),
        }
    }

    /// Returns the events since the last call.
    pub(crate) fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.relay.poll_event()).collect()
    }

    pub(crate) fn handle(
        &mut self,
        from: SocketAddr,
        session: u32,
        child: u16,
        seq: u32,
        body: Body<'_>,
    ) -> Verdict {
        self.forward(&Meta::unicast(from), session, child, seq, body)
            .0
    }

    /// As `handle`, of any datagram. Returns the packet as the relay left it.
    pub(crate) fn forward(
        &mut self,
        meta: &Meta,
        session: u32,
        child: u16,
        seq: u32,
        body: Body<'_>,
    ) -> (Verdict, Vec<u8>) {
        let repr = Repr {
            key: self.key,
            session,
            child,
            sequence: Seq(seq),
            body,
        };
        let mut bytes = vec![0; repr.buffer_len()];
        repr.emit(&mut bytes);
        let verdict = self.relay.forward(self.now, meta, &mut bytes);
        (verdict, bytes)
    }

    /// Joins as the protocol requires: once without a token, once with it.
    pub(crate) fn join(&mut self, from: SocketAddr, role: Role, relay: u32) -> (Status, u16) {
        self.join_from_afar(from, role, relay, [0, 0])
    }

    /// As `join`, with the round-trip times to the child's farthest receiver and to the child, in microseconds.
    pub(crate) fn join_from_afar(
        &mut self,
        from: SocketAddr,
        role: Role,
        relay: u32,
        [far_us, round_trip_us]: [u32; 2],
    ) -> (Status, u16) {
        let mut join = Join {
            role,
            token: 0,
            stamp: 1,
            far_us,
            round_trip_us,
            receivers: 1,
            relay: RelayId(relay),
        };
        for _ in 0..2 {
            let verdict = self.handle(from, 0, 0xffff, 0, Body::Join(join));
            assert_eq!(verdict, Verdict::Done);
            let (to, joined, number) = self.joined();
            assert_eq!((to, joined.stamp), (from, 1));
            join.token = joined.token;
            if joined.status != Status::Challenge {
                return (joined.status, number);
            }
        }
        panic!("the token was not accepted");
    }

    pub(crate) fn joined(&mut self) -> (SocketAddr, dyram::wire::Joined, u16) {
        let mut buffer = [0; 256];
        loop {
            let transmit = self
                .relay
                .poll_transmit(self.now, &mut buffer)
                .expect("an answer");
            let packet = Packet::new_checked(&buffer[..transmit.len]).unwrap();
            let repr = Repr::parse(&packet);
            if let Body::Joined(joined) = repr.body {
                return (transmit.destination, joined, repr.child);
            }
        }
    }

    /// A child leaves with the token of its address.
    pub(crate) fn leave(&mut self, number: u16) {
        let join = Join {
            role: Role::Receiver,
            token: 0,
            stamp: 1,
            far_us: 0,
            round_trip_us: 0,
            receivers: 1,
            relay: RelayId(0),
        };
        let _ = self.handle(child(number), 0, number, 0, Body::Join(join));
        let (_, joined, _) = self.joined();
        let leave = Body::Leave(joined.token);
        let verdict = self.handle(child(number), 0, number, 0, leave);
        assert_eq!(verdict, Verdict::Done);
    }

    /// Sends new data. Returns the number of targets.
    pub(crate) fn data(&mut self, seq: u32) -> usize {
        let verdict = self.handle(source(), ID, 0xffff, seq, Body::Data(b"data"));
        self.targets(verdict).len()
    }

    pub(crate) fn nack(&mut self, number: u16, seq: u32) -> Verdict {
        self.handle(child(number), ID, number, seq, Body::Nack(Nack::default()))
    }

    pub(crate) fn repair(&mut self, number: u16, seq: u32) -> Verdict {
        self.handle(child(number), ID, number, seq, Body::Repair(b"data"))
    }

    pub(crate) fn repair_from_source(&mut self, seq: u32) -> Verdict {
        self.handle(source(), ID, 0xffff, seq, Body::Repair(b"data"))
    }

    /// Returns the targets of a packet.
    pub(crate) fn targets(&self, verdict: Verdict) -> Vec<SocketAddr> {
        match verdict {
            Verdict::Send(fanout) => self.relay.targets(&fanout).collect(),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn sent(&mut self) -> Vec<Sent> {
        let mut sent = Vec::new();
        let mut buffer = [0; 256];
        while let Some(transmit) = self.relay.poll_transmit(self.now, &mut buffer) {
            let packet = Packet::new_checked(&buffer[..transmit.len]).unwrap();
            let repr = Repr::parse(&packet);
            let mask = match repr.body {
                Body::Nack(nack) => nack.mask,
                Body::Absent(mask) => mask,
                _ => 0,
            };
            sent.push(Sent {
                to: transmit.destination,
                service: packet.service(),
                first: repr.sequence.0,
                mask,
            });
        }
        sent
    }

    /// As `sent`, with all fields.
    pub(crate) fn sent_whole(&mut self) -> Vec<Whole> {
        let mut sent = Vec::new();
        let mut buffer = [0; 256];
        while let Some(transmit) = self.relay.poll_transmit(self.now, &mut buffer) {
            let packet = Packet::new_checked(&buffer[..transmit.len]).unwrap();
            let repr = Repr::parse(&packet);
            assert_eq!(repr.key, self.key);
            let body = match repr.body {
                Body::Nack(nack) => Body::Nack(nack),
                Body::Ack => Body::Ack,
                Body::Absent(mask) => Body::Absent(mask),
                Body::Join(join) => Body::Join(join),
                Body::Joined(joined) => Body::Joined(joined),
                Body::Leave(token) => Body::Leave(token),
                Body::Move(token) => Body::Move(token),
                Body::Stalled(stalled) => Body::Stalled(stalled),
                Body::Feedback(feedback) => Body::Feedback(Feedback {
                    message: feedback.message.to_vec().leak(),
                    ..feedback
                }),
                body => panic!("a relay has no data of its own: {body:?}"),
            };
            sent.push(Whole {
                to: transmit.destination,
                session: repr.session,
                child: repr.child,
                sequence: repr.sequence.0,
                body,
            });
        }
        sent
    }

    /// Lets a millisecond pass, and returns what the relay sends.
    pub(crate) fn tick(&mut self) -> Vec<Whole> {
        self.now += Duration::from_millis(1);
        self.relay.handle_timeout(self.now);
        self.sent_whole()
    }

    /// Lets time pass in steps of a millisecond; returns what the relay sends, with the milliseconds that have passed.
    pub(crate) fn during(&mut self, milliseconds: u64) -> Vec<(u64, Whole)> {
        let mut sent = Vec::new();
        for passed in 1..=milliseconds {
            sent.extend(self.tick().into_iter().map(|one| (passed, one)));
        }
        sent
    }

    /// Lets time pass, and returns what the relay sends.
    pub(crate) fn after(&mut self, milliseconds: u64) -> Vec<Sent> {
        self.now += Duration::from_millis(milliseconds);
        self.relay.handle_timeout(self.now);
        self.sent()
    }

    /// As `after`, with calls at the very times that the relay names.
    pub(crate) fn in_time(&mut self, milliseconds: u64) -> Vec<Sent> {
        let mut sent = self.sent();
        let end = self.now + Duration::from_millis(milliseconds);
        while let Some(at) = self.relay.poll_timeout().filter(|&at| at <= end) {
            self.now = at;
            self.relay.handle_timeout(at);
            sent.extend(self.sent());
        }
        self.now = end;
        sent
    }

    pub(crate) fn drops(&self, reason: DropReason) -> u64 {
        self.relay.stats().drops.get(reason)
    }
}

pub(crate) fn nack_to(to: SocketAddr, first: u32) -> Sent {
    Sent {
        to,
        service: Service::Nack,
        first,
        mask: 0,
    }
}
