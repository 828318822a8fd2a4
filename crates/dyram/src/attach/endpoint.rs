//! The attachment of an endpoint to a relay: of a receiver below it, or of the source above it.

use proto_core::Machine;
use proto_core::time::Instant;

use super::parent::{Outcome, Parent};
use crate::config::Parents;
use crate::secret::Secrets;
use crate::stats::DropReason;
use crate::wire::{Body, Join, Joined, Packet, Repr, Role, Service, emit};
use crate::{MAX_CONTROL_LEN, Meta, RelayId, Seq, SessionKey, SocketAddr, Transmit};

/// Configuration of an [`Attachment`].
#[derive(Clone, PartialEq, Debug)]
pub struct AttachmentConfig {
    /// The session's name.
    pub key: SessionKey,
    /// [`Role::Receiver`] or [`Role::Source`].
    pub role: Role,
    /// Relays to attach to, in order of preference; at least one.
    pub relays: Parents,
}

/// An event of the attachment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AttachmentEvent {
    /// The relay accepted this endpoint.
    Attached(SocketAddr),
    /// The relay is silent or drains; the next one is tried.
    Lost(SocketAddr),
    /// The relay is full or drains; the next one is tried.
    Refused(SocketAddr),
}

/// Attaches an endpoint to a relay, switches to the next relay when one is silent, and encodes the packets of the
/// transport.
///
/// [`Attachment::handle_packet`] returns packets for the transport, which sends through [`Attachment::send`].
#[derive(Clone, Debug)]
pub struct Attachment {
    config: AttachmentConfig,
    parent: Parent,
    secrets: Secrets,
    event: Option<AttachmentEvent>,
    /// A pending LEAVE to a former relay: its address, this endpoint's number and token there.
    pending_leave: Option<(SocketAddr, u16, u64)>,
    left: bool,
    now: Instant,
}

impl Attachment {
    /// Creates an attachment whose first JOIN is due now. `seed` must be secret.
    #[must_use]
    pub fn new(config: AttachmentConfig, seed: [u8; 32], now: Instant) -> Self {
        Attachment {
            left: config.relays.is_empty(),
            config,
            parent: Parent::new(now),
            secrets: Secrets::new(seed),
            event: None,
            pending_leave: None,
            now,
        }
    }

    /// Returns the relay that has accepted this endpoint.
    #[must_use]
    pub fn relay(&self) -> Option<SocketAddr> {
        let joined = self.parent.is_joined() && !self.left;
        self.parent.address(&self.config.relays).filter(|_| joined)
    }

    /// Returns the number that the relay assigned to this endpoint.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.parent.child()
    }

    /// Returns the smoothed round-trip time to the relay, in microseconds; 0 before the first sample.
    #[must_use]
    pub fn round_trip_us(&self) -> u32 {
        self.parent.round_trip_us()
    }

    /// Returns how long the relay may need for a repair. Ask neither the relay again nor the source before.
    #[must_use]
    pub fn repair_within(&self) -> crate::Duration {
        self.parent.answer_after()
    }

    /// Handles a packet. Returns it if it is for the transport:
    ///
    /// | body | meaning | for |
    /// | --- | --- | --- |
    /// | [`Body::Data`], [`Body::Repair`], [`Body::Cast`] | what the source, or a replier, sent | receivers |
    /// | [`Body::Nack`] | packets are requested ([`packets`](crate::packets) lists them): answer each with REPAIR or ABSENT | both |
    /// | [`Body::Ack`], [`Nack::ack`](crate::wire::Nack::ack) | every receiver that the tree waits for has everything before this packet | the source |
    /// | [`Body::Absent`] | the last replier lacks these packets | receivers |
    /// | [`Body::Stalled`] | the tree no longer waits for a receiver or relay, until the next run | the source |
    /// | [`Body::Feedback`] | what the receiver below with the lowest rank says | the source |
    ///
    /// # Errors
    /// The packet was dropped; nothing has changed.
    pub fn handle_packet<'p>(
        &mut self,
        now: Instant,
        meta: &Meta,
        bytes: &'p [u8],
    ) -> Result<Option<Repr<'p>>, DropReason> {
        self.now = self.now.max(now);
        let packet = Packet::new_checked(bytes)?;
        if packet.key() != self.config.key {
            return Err(DropReason::NoSession);
        }
        let service = packet.service();
        if self.parent.address(&self.config.relays) != Some(meta.source) {
            // Where IP multicast carries the data, it comes from the source itself.
            let from_source = meta.group && meta.source.ip() == self.config.key.source;
            if !from_source || !matches!(service, Service::Data | Service::Cast) {
                return Err(DropReason::NotFromParent);
            }
        }
        let is_source = self.config.role == Role::Source;
        let fits = match service {
            Service::Joined => return self.joined(now, &packet).map(|()| None),
            Service::Move => return self.moved(now, &packet).map(|()| None),
            Service::Nack => true,
            Service::Ack | Service::Stalled | Service::Feedback => is_source,
            Service::Data | Service::Repair | Service::Cast | Service::Absent => !is_source,
            Service::Join | Service::Leave => false,
        };
        fits.then(|| Some(Repr::parse(&packet)))
            .ok_or(DropReason::WrongWay)
    }

    fn joined(&mut self, now: Instant, packet: &Packet<&[u8]>) -> Result<(), DropReason> {
        let (relays, address) = (
            &self.config.relays,
            self.parent.address(&self.config.relays),
        );
        let (joined, no_relay) = (Joined::read(packet), RelayId(0));
        let outcome = self
            .parent
            .handle_joined(now, relays, no_relay, packet.child(), &joined)
            .ok_or(DropReason::BadToken)?;
        let relay = address.ok_or(DropReason::NotFromParent)?;
        match outcome {
            Outcome::Attached => self.event = Some(AttachmentEvent::Attached(relay)),
            Outcome::Refused | Outcome::Loop(_) => {
                self.event = Some(AttachmentEvent::Refused(relay));
            }
            Outcome::Refreshed | Outcome::Challenged => {}
        }
        Ok(())
    }

    fn moved(&mut self, now: Instant, packet: &Packet<&[u8]>) -> Result<(), DropReason> {
        if packet.token() != self.parent.token() {
            return Err(DropReason::BadToken);
        }
        if self.config.relays.len() > 1 {
            self.event = self.relay().map(AttachmentEvent::Lost);
            let (child, token) = (self.parent.child(), self.parent.token());
            self.pending_leave = self.relay().map(|relay| (relay, child, token));
            self.parent.try_next(now, &self.config.relays);
        }
        Ok(())
    }

    /// The relay did not answer a request: checks soon whether it is alive.
    pub fn suspect(&mut self, now: Instant) {
        self.parent.suspect(now);
    }

    /// Handles the passing of time. Harmless when called early or twice.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    /// Returns when to call [`Attachment::handle_timeout`] and [`Attachment::poll_transmit`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.pending_leave.is_some() {
            return Some(self.now);
        }
        (!self.left).then(|| self.parent.due())
    }

    /// Returns the last event; only the newest one is kept.
    pub fn poll_event(&mut self) -> Option<AttachmentEvent> {
        self.event.take()
    }

    /// Writes the next packet of the attachment itself into the buffer. A buffer shorter than [`MAX_CONTROL_LEN`]
    /// gets no packet.
    pub fn poll_transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        self.now = self.now.max(now);
        if buffer.len() < MAX_CONTROL_LEN {
            return None;
        }
        if let Some(leave) = self.send_leave(buffer) {
            return Some(leave);
        }
        let relays = &self.config.relays;
        while !self.left && self.parent.due() <= now {
            let relay = self.parent.address(relays)?;
            let was_joined = self.parent.is_joined();
            let (child, token) = (self.parent.child(), self.parent.token());
            let Some(stamp) = self.parent.next_try(now, relays, &mut self.secrets) else {
                if was_joined {
                    self.event = Some(AttachmentEvent::Lost(relay));
                    // A single relay is its own successor.
                    let other = relays.len() > 1;
                    self.pending_leave = other.then_some((relay, child, token));
                }
                continue;
            };
            let join = Join {
                role: self.config.role,
                token: self.parent.token(),
                stamp,
                far_us: self.parent.round_trip_us(),
                receivers: 1,
                relay: RelayId(0),
                round_trip_us: self.parent.round_trip_us(),
            };
            return Some(self.emit(relay, 0, Seq(0), Body::Join(join), buffer));
        }
        None
    }

    /// Writes the pending LEAVE to a former relay.
    fn send_leave(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        let (relay, child, token) = self.pending_leave.take()?;
        let key = self.config.key;
        let leave = Body::Leave(token);
        Some(emit(relay, key, 0, child, Seq(0), leave, buffer))
    }

    fn emit(
        &self,
        destination: SocketAddr,
        session: u32,
        sequence: Seq,
        body: Body<'_>,
        buffer: &mut [u8],
    ) -> Transmit {
        let (key, child) = (self.config.key, self.parent.child());
        emit(destination, key, session, child, sequence, body, buffer)
    }

    /// Leaves: writes LEAVE to the relay. The attachment is silent from then on.
    pub fn leave(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        let relay = self.relay();
        self.left = true;
        let token = self.parent.token();
        Some(self.emit(relay?, 0, Seq(0), Body::Leave(token), buffer))
    }

    /// Writes a packet of the transport to the relay. `None` while no relay has accepted this endpoint.
    ///
    /// | body | `sequence` |
    /// | --- | --- |
    /// | [`Body::Data`], [`Body::Repair`] | the packet's number |
    /// | [`Body::Cast`] | every packet before it was sent: relays that miss the last ones learn it here |
    /// | [`Body::Nack`], [`Body::Absent`] | the first packet that is missing here |
    /// | [`Body::Ack`] | everything before it was received |
    /// | [`Body::Feedback`] | 0 |
    ///
    /// # Panics
    /// If the buffer is shorter than the packet.
    pub fn send(
        &self,
        session: u32,
        sequence: Seq,
        body: Body<'_>,
        buffer: &mut [u8],
    ) -> Option<Transmit> {
        Some(self.emit(self.relay()?, session, sequence, body, buffer))
    }
}

/// As a [`Machine`], the attachment drops packets for the transport; a driver that carries one calls
/// [`Attachment::handle_packet`].
impl Machine for Attachment {
    type Meta = Meta;
    type Transmit = Transmit;
    type Event = AttachmentEvent;
    type Error = DropReason;

    fn handle_packet(
        &mut self,
        now: Instant,
        meta: &Meta,
        packet: &[u8],
    ) -> Result<(), DropReason> {
        Attachment::handle_packet(self, now, meta, packet).map(|_| ())
    }

    fn handle_timeout(&mut self, now: Instant) {
        Attachment::handle_timeout(self, now);
    }

    fn poll_transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        Attachment::poll_transmit(self, now, buffer)
    }

    fn poll_event(&mut self) -> Option<AttachmentEvent> {
        Attachment::poll_event(self)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Attachment::poll_timeout(self)
    }
}
