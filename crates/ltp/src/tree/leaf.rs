//! A receiver below a relay.

use core::net::{IpAddr, SocketAddr};

use dyram::wire::{Body, Nack, Role};
use dyram::{Attachment, AttachmentConfig, AttachmentEvent, Input, Parents, Seq, SessionKey};
use proto_core::time::Instant;

use super::{
    ABSENT, ACK_INTERVAL, ACK_REPEAT, Named, PORT_LEN, Transmit, header_len, is_dyram, wrap,
};
use crate::error::Error;
use crate::store::Store;
use crate::wire::request;
use crate::{Destination, Meta, Receiver};

/// NACKs that one request can become.
const NACKS: usize = 2 * request::MAX_RANGES;

/// A [`Receiver`] and its attachment to a relay. Drive it like the receiver, from one UDP socket;
/// commands and events are [`Leaf::receiver_mut`]'s.
pub struct Leaf<'a, S: Store> {
    receiver: Receiver<'a, S>,
    attachment: Attachment,
    key: SessionKey,
    /// The source's run, by what came from it.
    run: Option<u32>,
    /// Requests to the relay that wait to be sent, and how often they were made before.
    nacks: heapless::Deque<Named, NACKS>,
    repeats: u16,
    /// Packets that the relay wants and that are not here.
    absent: heapless::Vec<u32, ABSENT>,
    ack_sent: Option<u32>,
    /// When that was; a while ago before the first.
    acked_at: Instant,
    now: Instant,
}

impl<'a, S: Store> Leaf<'a, S> {
    /// A receiver (configured with [`crate::Assist::Dyram`] and its source) below one of these
    /// relays. `None` when source and group are not of one address family.
    #[must_use]
    pub fn new(
        receiver: Receiver<'a, S>,
        source: IpAddr,
        group: IpAddr,
        relays: Parents,
        seed: [u8; 32],
        now: Instant,
    ) -> Option<Self> {
        let key = SessionKey::new(source, group)?;
        let config = AttachmentConfig {
            key,
            role: Role::Receiver,
            relays,
        };
        Some(Leaf {
            receiver,
            attachment: Attachment::new(config, seed, now),
            key,
            run: None,
            nacks: heapless::Deque::new(),
            repeats: 0,
            absent: heapless::Vec::new(),
            ack_sent: None,
            acked_at: now,
            now,
        })
    }

    /// The receiver.
    pub fn receiver(&self) -> &Receiver<'a, S> {
        &self.receiver
    }

    /// The receiver, for commands and events. Packets come from the leaf's own methods.
    pub fn receiver_mut(&mut self) -> &mut Receiver<'a, S> {
        &mut self.receiver
    }

    /// The relay that serves this leaf now.
    pub fn relay(&self) -> Option<SocketAddr> {
        self.attachment.relay()
    }

    /// What happened to the attachment.
    pub fn poll_relay_event(&mut self) -> Option<AttachmentEvent> {
        self.attachment.poll_event()
    }

    /// A datagram arrived.
    ///
    /// # Errors
    /// Why it was dropped: [`Error::Relay`] for a relay's packet that does not fit, else the
    /// receiver's reason.
    pub fn handle_packet(
        &mut self,
        now: Instant,
        from: SocketAddr,
        packet: &[u8],
    ) -> Result<(), Error> {
        self.now = self.now.max(now);
        if !is_dyram(packet) {
            return self
                .receiver
                .handle_packet(now, &Meta::unicast(from), packet);
        }
        self.handle_relayed(now, &dyram::Meta::unicast(from), packet)
    }

    /// A datagram arrived at the group, which carries the data beside the relays
    /// ([`Root::over_multicast`](super::Root::over_multicast)).
    ///
    /// # Errors
    /// As [`Leaf::handle_packet`].
    pub fn handle_group_packet(
        &mut self,
        now: Instant,
        from: SocketAddr,
        packet: &[u8],
    ) -> Result<(), Error> {
        self.now = self.now.max(now);
        let meta = dyram::Meta {
            source: from,
            group: true,
        };
        self.handle_relayed(now, &meta, packet)
    }

    fn handle_relayed(
        &mut self,
        now: Instant,
        meta: &dyram::Meta,
        packet: &[u8],
    ) -> Result<(), Error> {
        let input = self.attachment.handle_packet(now, meta, packet);
        match input.map_err(|_| Error::Relay)? {
            Input::Data {
                session, payload, ..
            } => {
                // The relay proves where data come from: they carry no port of the source's.
                let known = self.receiver.source();
                let source = known.filter(|source| source.ip() == self.key.source);
                let source = source.unwrap_or(SocketAddr::new(self.key.source, 0));
                self.source_says(now, session, source, payload)
            }
            Input::Cast { session, payload } => {
                let at = payload.len().checked_sub(PORT_LEN).ok_or(Error::Relay)?;
                let (inner, port) = payload.split_at(at);
                let port = u16::from_be_bytes([port[0], port[1]]);
                let source = SocketAddr::new(self.key.source, port);
                self.source_says(now, session, source, inner)
            }
            Input::Requested {
                session,
                first,
                mask,
                ..
            } => {
                if self.run.is_some_and(|known| known != session) {
                    return Err(Error::OtherSession);
                }
                for seq in dyram::packets(first, mask) {
                    if self.receiver.wanted(now, seq.0) != Ok(true) {
                        // With no room the relay waits for an answer, and moves on.
                        let _ = self.absent.push(seq.0);
                    }
                }
                Ok(())
            }
            // The source has it no more: its heartbeats say so too.
            Input::Absent { .. }
            | Input::Acknowledged { .. }
            | Input::Stalled { .. }
            | Input::Nothing => Ok(()),
        }
    }

    /// Time has passed; harmless when called early or twice.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = self.now.max(now);
        self.attachment.handle_timeout(now);
        self.receiver.handle_timeout(now);
    }

    /// When to call [`Leaf::handle_timeout`]; `None` when nothing more will happen.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.receiver.is_ended() {
            return None;
        }
        if !self.nacks.is_empty() || !self.absent.is_empty() {
            return Some(self.now);
        }
        let receiver = self.receiver.poll_timeout();
        let attachment = self.attachment.poll_timeout();
        [receiver, self.ack_due(), attachment]
            .into_iter()
            .flatten()
            .min()
    }

    /// When the relay is told next how far this leaf is. What it was told may have been lost, or
    /// it is another relay by now: without news it is told again, since a source that waits for this
    /// acknowledgement sends nothing that could make some.
    fn ack_due(&self) -> Option<Instant> {
        self.attachment.relay()?;
        let ack = self.receiver.acknowledged()?;
        let interval = if self.ack_sent == Some(ack) {
            ACK_REPEAT
        } else {
            ACK_INTERVAL
        };
        Some(self.acked_at + interval)
    }

    /// The next packet to send, written into `buffer`, which has room for the sender's longest
    /// packet and [`super::OVERHEAD`] bytes more; drain until `None`.
    pub fn poll_transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        self.now = self.now.max(now);
        if let Some(transmit) = self.attachment.poll_transmit(now, buffer) {
            return Some(transmit.into());
        }
        self.receiver
            .set_relay_delay(self.attachment.repair_within());
        loop {
            let own = self
                .poll_absent(buffer)
                .or_else(|| self.poll_nack(buffer))
                .or_else(|| self.poll_ack(buffer));
            if own.is_some() {
                return own;
            }
            let header = header_len(&self.key);
            let room = buffer.get_mut(header..)?;
            let inner = self.receiver.poll_transmit(now, room)?;
            match inner.destination {
                Destination::Unicast(destination) => {
                    buffer.copy_within(header..header + inner.len, 0);
                    return Some(Transmit {
                        destination,
                        len: inner.len,
                    });
                }
                Destination::Relay if is_request(&buffer[header..]) => {
                    self.queue_nacks(&buffer[header..header + inner.len]);
                }
                Destination::Relay => {
                    if let Some(transmit) = self.wrap_repair(buffer, header, inner.len) {
                        return Some(transmit);
                    }
                }
                // There is no group, and no router: not with this helper.
                Destination::Group | Destination::Request(_) | Destination::Dmcast(_) => {}
            }
        }
    }

    /// What the source sent to all. A source that was started again has another run; the receiver
    /// knows whether it is the same session of LTP's.
    fn source_says(
        &mut self,
        now: Instant,
        run: u32,
        source: SocketAddr,
        packet: &[u8],
    ) -> Result<(), Error> {
        let meta = Meta::group(source);
        self.receiver.handle_packet(now, &meta, packet)?;
        if self.run != Some(run) {
            // The relays have forgotten what the last run was told.
            self.run = Some(run);
            self.ack_sent = None;
        }
        Ok(())
    }

    fn wrap_repair(&self, buffer: &mut [u8], header: usize, len: usize) -> Option<Transmit> {
        let destination = self.attachment.relay()?;
        let sequence = Seq(crate::wire::u32_at(&buffer[header..], 8));
        let (child, session) = (self.attachment.number(), self.run?);
        let body = Body::Repair(&[]);
        let len = wrap(buffer, self.key, child, session, sequence, body, len);
        Some(Transmit { destination, len })
    }

    /// A request of the receiver's, as NACKs.
    fn queue_nacks(&mut self, bytes: &[u8]) {
        let Ok(request) = request::Packet::new_checked(bytes) else {
            return;
        };
        self.repeats = u16::try_from(request.number().saturating_sub(1)).unwrap_or(u16::MAX);
        if self.repeats > 1 {
            self.attachment.suspect(self.now);
        }
        for range in request.ranges() {
            let count = range.hi.wrapping_sub(range.lo).saturating_add(1);
            for sequence in (0..count).map(|index| range.lo.wrapping_add(index)) {
                if self.nacks.back_mut().is_some_and(|last| last.add(sequence)) {
                    continue;
                }
                // What finds no room is asked for again after the timeout.
                if self.nacks.push_back(Named::only(sequence)).is_err() {
                    return;
                }
            }
        }
    }

    fn poll_nack(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        let named = self.nacks.pop_front()?;
        let ack = self.receiver.acknowledged();
        let nack = Nack {
            mask: named.mask,
            ack: ack.map(Seq),
            repeats: self.repeats,
        };
        let session = self.run?;
        let transmit = self
            .attachment
            .nack(session, Seq(named.first), nack, buffer)?;
        self.ack_sent = ack;
        self.acked_at = self.now;
        Some(transmit.into())
    }

    fn poll_absent(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        let first = *self.absent.first()?;
        let mut named = Named::only(first);
        self.absent.retain(|&sequence| !named.add(sequence));
        let session = self.run.unwrap_or(0);
        let transmit = self
            .attachment
            .absent(session, Seq(first), named.mask, buffer)?;
        Some(transmit.into())
    }

    fn poll_ack(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        if self.ack_due()? > self.now {
            return None;
        }
        let ack = self.receiver.acknowledged()?;
        let transmit = self.attachment.ack(self.run?, Seq(ack), buffer)?;
        self.ack_sent = Some(ack);
        self.acked_at = self.now;
        Some(transmit.into())
    }

    /// Leaves the relay: writes the goodbye.
    pub fn leave(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        self.attachment.leave(buffer).map(Transmit::from)
    }

    /// The receiver, for what comes after.
    pub fn into_receiver(self) -> Receiver<'a, S> {
        self.receiver
    }
}

fn is_request(packet: &[u8]) -> bool {
    packet[0] & 0xf == crate::wire::Type::Request as u8
}
