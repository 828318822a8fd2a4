//! A child of a relay that is let in, and sends whatever feedback it likes.

use std::net::{Ipv4Addr, SocketAddrV4};

use dyram::wire::{Body, Feedback as Relayed, Role};
use dyram::{Attachment, AttachmentConfig, Seq, SessionKey};
use ltp::wire::pace::{FEEDBACK_LEN, Feedback, Pace};
use ltp::{Duration, Instant};
use netsim::ip::Datagram;
use netsim::{Io, Node, Port};

use crate::common::network::{SOURCE, datagram};
use crate::common::{group, seed};
use crate::world::relay;

pub(crate) const LIAR: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 4, 0, 1), 4000);

/// What a liar says at a time: the rank, and the message.
pub(crate) type Lie = fn(Instant, &Pace) -> (u64, Vec<u8>);

/// A feedback that answers the newest PACE in the name of the receiver that limits the rate.
pub(crate) fn feedback(now: Instant, pace: &Pace, rate_bps: u64) -> Vec<u8> {
    let is_lossless = rate_bps == u64::MAX;
    let feedback = Feedback {
        session: pace.session,
        round: pace.round,
        receiver: pace.limiting.max(1),
        token: 0,
        stamp_us: now.total_micros() as u32,
        echo_us: pace.stamp_us,
        held_us: 0,
        round_trip_us: 0,
        loss: if is_lossless { 0 } else { 1 << 20 },
        rate_bps,
        received_bps: 1_000_000_000,
    };
    let mut bytes = vec![0; FEEDBACK_LEN];
    feedback.emit(&mut bytes);
    bytes
}

/// It speaks each millisecond.
pub(crate) struct Liar {
    attachment: Attachment,
    lie: Lie,
    /// The newest PACE, and the run.
    pace: Option<(u32, Pace)>,
    next: Instant,
}

impl Liar {
    pub(crate) fn new(index: usize, lie: Lie) -> Liar {
        let config = AttachmentConfig {
            key: SessionKey::new((*SOURCE.ip()).into(), group().ip()).unwrap(),
            role: Role::Receiver,
            relays: [relay(index)].into_iter().collect(),
        };
        Liar {
            attachment: Attachment::new(config, seed(4712), Instant::ZERO),
            lie,
            pace: None,
            next: Instant::ZERO,
        }
    }
}

impl Node for Liar {
    fn handle_packet(&mut self, now: Instant, _: Port, packet: &[u8], _: &mut Io<'_>) {
        let datagram = Datagram::parse(packet).unwrap();
        let meta = dyram::Meta::unicast(datagram.source.into());
        let packet = self.attachment.handle_packet(now, &meta, datagram.payload);
        if let Ok(Some(packet)) = packet
            && let Body::Cast(inner) = packet.body
            && let Ok(pace) = Pace::parse(&inner[..inner.len() - 2])
        {
            self.pace = Some((packet.session, pace));
        }
    }

    fn handle_timeout(&mut self, now: Instant, io: &mut Io<'_>) {
        let mut buffer = [0; 1000];
        while let Some(transmit) = self.attachment.poll_transmit(now, &mut buffer) {
            let payload = &buffer[..transmit.len];
            io.send(Port(0), &datagram(LIAR, transmit.destination, &[], payload));
        }
        if self.next > now {
            return;
        }
        self.next = now + Duration::from_millis(1);
        let Some((run, pace)) = &self.pace else {
            return;
        };
        let (rank, message) = (self.lie)(now, pace);
        let body = Body::Feedback(Relayed {
            rank,
            held_us: 0,
            message: &message,
        });
        if let Some(transmit) = self.attachment.send(*run, Seq(0), body, &mut buffer) {
            let payload = &buffer[..transmit.len];
            io.send(Port(0), &datagram(LIAR, transmit.destination, &[], payload));
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let attachment = self.attachment.poll_timeout();
        attachment.into_iter().chain([self.next]).min()
    }
}
