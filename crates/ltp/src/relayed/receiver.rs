//! A receiver below a relay.

use core::net::{IpAddr, SocketAddr};

use dyram::wire::{Body, Feedback, MAX_MESSAGE, Nack, Role};
use dyram::{Attachment, AttachmentConfig, AttachmentEvent, Parents, Seq, SessionKey};
use proto_core::time::Instant;

use super::{
    ACK_INTERVAL, ACK_REPEAT, Absent, MIN_BUFFER, Named, header_len, is_dyram, packet_to, unicast,
    wrap,
};
use crate::error::Error;
use crate::receiver::Output;
use crate::store::Store;
use crate::wire::request;
use crate::{Destination, Meta, Path, Transmit};

/// NACKs that one request can become.
const NACKS: usize = 2 * request::MAX_RANGES;

/// What a [`Receiver`] notifies its application of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// An event of the receiver itself.
    Receiver(crate::ReceiverEvent),
    /// The relay that serves this receiver has changed.
    Relay(AttachmentEvent),
}

/// A [`crate::Receiver`] and its attachment to a relay.
///
/// Drive it like the receiver, from one UDP socket, and from one that has joined the group where IP multicast
/// carries the data. Commands are those of [`Receiver::receiver_mut`].
#[derive(Debug)]
pub struct Receiver<'a, S: Store> {
    receiver: crate::Receiver<'a, S>,
    attachment: Attachment,
    key: SessionKey,
    /// The source's run, known from its packets.
    run: Option<u32>,
    /// Requests to the relay that wait to be sent, and how often they were made before.
    nacks: heapless::Deque<Named, NACKS>,
    repeats: u16,
    absent: Absent,
    /// The last acknowledgement, and when it was sent.
    ack_sent: Option<u32>,
    acked_at: Instant,
    now: Instant,
}

impl<'a, S: Store> Receiver<'a, S> {
    /// Creates a receiver below one of these relays from one that is configured with
    /// [`crate::Assist::Dyram`] and its source. `None` when source and group are not of one address family.
    #[must_use]
    pub fn new(
        receiver: crate::Receiver<'a, S>,
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
        Some(Receiver {
            receiver,
            attachment: Attachment::new(config, seed, now),
            key,
            run: None,
            nacks: heapless::Deque::new(),
            repeats: 0,
            absent: Absent::default(),
            ack_sent: None,
            acked_at: now,
            now,
        })
    }

    /// Returns the receiver.
    pub fn receiver(&self) -> &crate::Receiver<'a, S> {
        &self.receiver
    }

    /// Returns the receiver, for commands.
    pub fn receiver_mut(&mut self) -> &mut crate::Receiver<'a, S> {
        &mut self.receiver
    }

    /// Returns the relay that serves this receiver.
    pub fn relay(&self) -> Option<SocketAddr> {
        self.attachment.relay()
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        let relay = self.attachment.poll_event().map(Event::Relay);
        relay.or_else(|| self.receiver.poll_event().map(Event::Receiver))
    }

    /// Handles a datagram. `meta` says whether it came to this host or to the group.
    ///
    /// # Errors
    /// Why it was dropped: [`Error::Relay`] for a packet of a relay that is malformed or not expected,
    /// [`Error::RelayVersion`] for one of another version, else
    /// the receiver's reason.
    pub fn handle_packet(&mut self, now: Instant, meta: &Meta, packet: &[u8]) -> Result<(), Error> {
        self.now = self.now.max(now);
        let group = meta.path == Path::Group;
        if !group && !is_dyram(packet) {
            return self.receiver.handle_packet(now, meta, packet);
        }
        let source = meta.source;
        let meta = dyram::Meta { source, group };
        let packet = self.attachment.handle_packet(now, &meta, packet);
        let Some(packet) = packet? else {
            return Ok(());
        };
        let session = packet.session;
        match packet.body {
            Body::Data(payload) | Body::Repair(payload) => {
                // The relay vouches for the origin of data, which carry no port of the source.
                let known = self.receiver.source();
                let source = known.filter(|source| source.ip() == self.key.source);
                let source = source.unwrap_or(SocketAddr::new(self.key.source, 0));
                self.handle_source_packet(now, session, source, payload)
            }
            Body::Cast(payload) => {
                let (inner, port) = payload.split_last_chunk().ok_or(Error::Relay)?;
                let source = SocketAddr::new(self.key.source, u16::from_be_bytes(*port));
                self.handle_source_packet(now, session, source, inner)
            }
            Body::Nack(nack) => {
                if self.run.is_some_and(|known| known != session) {
                    return Err(Error::OtherSession);
                }
                for seq in dyram::packets(packet.sequence, nack.mask) {
                    if self.receiver.wanted(now, seq.0) != Ok(true) {
                        self.absent.push(seq.0);
                    }
                }
                Ok(())
            }
            // ABSENT: the source no longer stores the packet. Its heartbeats say so too.
            _ => Ok(()),
        }
    }

    /// Handles the passing of time. Harmless when called early or twice.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = self.now.max(now);
        self.attachment.handle_timeout(now);
        self.receiver.handle_timeout(now);
    }

    /// Returns when to call [`Receiver::handle_timeout`]; `None` when nothing more will happen.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.receiver.is_ended() {
            return None;
        }
        if !self.nacks.is_empty() || !self.absent.is_empty() {
            return Some(self.now);
        }
        let receiver = self.receiver.poll_timeout();
        let attachment = self.attachment.poll_timeout();
        let ack = self.ack_due().map(|at| at.max(self.now));
        [receiver, ack, attachment].into_iter().flatten().min()
    }

    /// Returns when the next acknowledgement is due. It is repeated without news: it may have been lost, or
    /// the relay has changed, and a source that waits for it sends nothing that could cause another.
    fn ack_due(&self) -> Option<Instant> {
        self.attachment.relay()?;
        self.run?;
        let ack = self.receiver.acknowledged()?;
        let interval = if self.ack_sent == Some(ack) {
            ACK_REPEAT
        } else {
            ACK_INTERVAL
        };
        Some(self.acked_at + interval)
    }

    /// Writes the next packet into `buffer`, which has room for the sender's longest packet and
    /// [`super::OVERHEAD`] bytes more. Drain it until `None`.
    pub fn poll_transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        self.now = self.now.max(now);
        let header = header_len(&self.key);
        if buffer.len() < header + MIN_BUFFER || self.receiver.is_ended() {
            return None;
        }
        if let Some(transmit) = self.attachment.poll_transmit(now, buffer) {
            return Some(unicast(transmit));
        }
        let delay = self.attachment.repair_within();
        self.receiver.set_relay_delay(delay);
        loop {
            let own = self
                .poll_absent(buffer)
                .or_else(|| self.poll_nack(buffer))
                .or_else(|| self.poll_ack(buffer))
                .or_else(|| self.poll_feedback(buffer));
            if own.is_some() {
                return own;
            }
            match self.receiver.poll_output(now, &mut buffer[header..])? {
                Output::Packet(Transmit {
                    destination: Destination::Unicast(destination),
                    len,
                    ..
                }) => {
                    buffer.copy_within(header..header + len, 0);
                    return Some(packet_to(destination, len));
                }
                Output::RelayRequest(request) => self.queue_nacks(&request),
                Output::RelayRepair { sequence, len } => {
                    if let Some(transmit) = self.wrap_repair(buffer, sequence, len) {
                        return Some(transmit);
                    }
                }
                // Only receivers with LMS send to the group or to turning points.
                Output::Packet(_) => {}
            }
        }
    }

    /// Hands a packet of the source to the receiver. A source that was restarted has another run; the
    /// receiver decides whether it is the same session.
    fn handle_source_packet(
        &mut self,
        now: Instant,
        run: u32,
        source: SocketAddr,
        packet: &[u8],
    ) -> Result<(), Error> {
        self.receiver
            .handle_packet(now, &Meta::group(source), packet)?;
        if self.run != Some(run) {
            // Relays have forgotten the acknowledgements of the last run.
            self.run = Some(run);
            self.ack_sent = None;
        }
        Ok(())
    }

    fn wrap_repair(&self, buffer: &mut [u8], sequence: Seq, len: usize) -> Option<Transmit> {
        let destination = self.attachment.relay()?;
        let (child, session) = (self.attachment.number(), self.run?);
        let body = Body::Repair(&[]);
        let len = wrap(buffer, self.key, child, session, sequence, body, len);
        Some(packet_to(destination, len))
    }

    /// Turns a request into NACKs.
    fn queue_nacks(&mut self, request: &request::Repr) {
        self.repeats = u16::try_from(request.number.saturating_sub(1)).unwrap_or(u16::MAX);
        if self.repeats > 1 {
            self.attachment.suspect(self.now);
        }
        for range in &request.ranges {
            let count = range.hi.wrapping_sub(range.lo).saturating_add(1);
            for sequence in (0..count).map(|index| range.lo.wrapping_add(index)) {
                if self.nacks.back_mut().is_some_and(|last| last.add(sequence)) {
                    continue;
                }
                // Without room it is requested again after the timeout.
                if self.nacks.push_back(Named::only(sequence)).is_err() {
                    return;
                }
            }
        }
    }

    fn poll_nack(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        let Some(session) = self.run.filter(|_| self.attachment.relay().is_some()) else {
            self.nacks.clear();
            return None;
        };
        let named = self.nacks.pop_front()?;
        let ack = self.receiver.acknowledged();
        let nack = Nack {
            mask: named.mask,
            ack: ack.map(Seq),
            repeats: self.repeats,
        };
        let sequence = Seq(named.first);
        let transmit = self
            .attachment
            .send(session, sequence, Body::Nack(nack), buffer)?;
        self.acked(ack);
        Some(unicast(transmit))
    }

    fn poll_absent(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        let session = self.run.unwrap_or(0);
        self.absent
            .poll_transmit(&mut self.attachment, session, buffer)
    }

    fn poll_ack(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        if self.ack_due()? > self.now {
            return None;
        }
        let ack = self.receiver.acknowledged()?;
        let transmit = self
            .attachment
            .send(self.run?, Seq(ack), Body::Ack, buffer)?;
        self.acked(Some(ack));
        Some(unicast(transmit))
    }

    /// Writes the feedback to congestion control that is due, if a relay serves this receiver.
    fn poll_feedback(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        self.attachment.relay()?;
        let session = self.run?;
        let mut message = [0; MAX_MESSAGE];
        let (rank, len) = self.receiver.poll_relay_feedback(self.now, &mut message)?;
        let body = Body::Feedback(Feedback {
            rank,
            held_us: 0,
            message: &message[..len],
        });
        let transmit = self.attachment.send(session, Seq(0), body, buffer)?;
        Some(unicast(transmit))
    }

    fn acked(&mut self, ack: Option<u32>) {
        self.ack_sent = ack;
        self.acked_at = self.now;
    }

    /// Leaves the relay: writes the packet that says so.
    pub fn leave(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        self.attachment.leave(buffer).map(unicast)
    }
}

proto_core::impl_machine! {
    impl['a, S: Store] Receiver<'a, S> {
        Meta = Meta; Transmit = Transmit; Event = Event; Error = Error;
    }
}
