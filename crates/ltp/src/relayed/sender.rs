//! A sender above a relay.

use core::net::{IpAddr, SocketAddr};

use dyram::wire::{Body, NO_CHILD, Role, Stalled};
use dyram::{Attachment, AttachmentConfig, AttachmentEvent, Parents, Seq, SessionKey};
use proto_core::time::Instant;
use rand_chacha::ChaCha12Rng;
use rand_core::{Rng, SeedableRng};

use super::{Absent, MIN_BUFFER, PORT_LEN, header_len, is_dyram, packet_to, unicast, wrap};
use crate::error::Error;
use crate::store::Store;
use crate::{Destination, Meta, Transmit};

/// Most receivers and relays that a [`Sender`] reports as stalled.
pub const MAX_STALLED: usize = 64;

/// What a [`Sender`] notifies its application of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// An event of the sender itself.
    Sender(crate::SenderEvent),
    /// The relay that serves this source has changed.
    Relay(AttachmentEvent),
    /// A relay no longer waits for this receiver or relay. Each address is reported once, at most
    /// [`MAX_STALLED`] in a run; the addresses are those that relays name, not proven.
    Stalled(Stalled),
}

/// A [`crate::Sender`] and its attachment to the nearest relay.
///
/// Drive it like the sender, from one UDP socket. Commands are those of [`Sender::sender_mut`]. The sender is
/// configured with `max_segments` of 1 and a `max_packet_len` that leaves [`super::OVERHEAD`] bytes free. Until
/// a relay serves it, it sends no new data and answers by unicast only.
#[derive(Debug)]
pub struct Sender<'a, S: Store> {
    sender: crate::Sender<'a, S>,
    attachment: Attachment,
    key: SessionKey,
    /// The session identifier towards relays, of this run alone; LTP's is that of the content.
    run: u32,
    /// Port of the socket, to which receivers send requests.
    port: u16,
    /// IP multicast carries new packets, not the relay.
    is_over_multicast: bool,
    /// Whether a receiver below the relay has acknowledged or requested anything.
    is_heard: bool,
    acks: RelayAcks,
    stalled: heapless::Vec<Stalled, MAX_STALLED>,
    /// How many of `stalled` were reported.
    reported: usize,
    absent: Absent,
    now: Instant,
}

/// The acknowledgements of the relay.
#[derive(Default, Debug)]
struct RelayAcks {
    /// The relay that serves this source, and the one that `advanced` is of.
    served_by: Option<SocketAddr>,
    advanced_at: Option<SocketAddr>,
    /// The highest acknowledgement, and when it advanced or nothing was left to acknowledge.
    advanced: Option<(Seq, Instant)>,
}

impl<'a, S: Store> Sender<'a, S> {
    /// Creates a sender above one of these relays, from a socket with the address `source`. `None` when
    /// source and group are not of one address family.
    #[must_use]
    pub fn new(
        mut sender: crate::Sender<'a, S>,
        source: SocketAddr,
        group: IpAddr,
        relays: Parents,
        seed: [u8; 32],
        now: Instant,
    ) -> Option<Self> {
        let key = SessionKey::new(source.ip(), group)?;
        sender.repeat_digests();
        sender.follow_relays();
        let mut rng = ChaCha12Rng::from_seed(seed);
        let run = rng.next_u32();
        let mut seed = [0; 32];
        rng.fill_bytes(&mut seed);
        let config = AttachmentConfig {
            key,
            role: Role::Source,
            relays,
        };
        Some(Sender {
            sender,
            attachment: Attachment::new(config, seed, now),
            key,
            run,
            port: source.port(),
            is_over_multicast: false,
            is_heard: false,
            acks: RelayAcks::default(),
            stalled: heapless::Vec::new(),
            reported: 0,
            absent: Absent::default(),
            now,
        })
    }

    /// Has IP multicast carry the data ([`dyram::Carriage::Multicast`]). The relay serves recovery beside it,
    /// and data also flows before a relay serves this source.
    #[must_use]
    pub fn over_multicast(mut self) -> Self {
        self.is_over_multicast = true;
        self
    }

    /// Returns the sender.
    pub fn sender(&self) -> &crate::Sender<'a, S> {
        &self.sender
    }

    /// Returns the sender, for commands.
    pub fn sender_mut(&mut self) -> &mut crate::Sender<'a, S> {
        &mut self.sender
    }

    /// Returns the relay that serves this source.
    pub fn relay(&self) -> Option<SocketAddr> {
        self.attachment.relay()
    }

    /// Whether a receiver below the relay has acknowledged or requested anything of this run.
    pub fn is_heard(&self) -> bool {
        self.is_heard
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        if let Some(event) = self.attachment.poll_event() {
            return Some(Event::Relay(event));
        }
        if let Some(stalled) = self.stalled.get(self.reported) {
            self.reported += 1;
            return Some(Event::Stalled(*stalled));
        }
        self.sender.poll_event().map(Event::Sender)
    }

    /// Handles a datagram that came to this host.
    ///
    /// # Errors
    /// Why it was dropped: [`Error::Relay`] for a packet of a relay that is malformed or not expected,
    /// [`Error::RelayVersion`] for one of another version, else
    /// the sender's reason.
    pub fn handle_packet(&mut self, now: Instant, meta: &Meta, packet: &[u8]) -> Result<(), Error> {
        self.now = self.now.max(now);
        if !is_dyram(packet) {
            return self.sender.handle_packet(now, meta, packet);
        }
        let source = meta.source;
        let meta = dyram::Meta::unicast(source);
        let packet = self.attachment.handle_packet(now, &meta, packet);
        let Some(packet) = packet? else {
            self.begin_window();
            return Ok(());
        };
        if packet.session != self.run {
            return Err(Error::OtherSession);
        }
        match packet.body {
            Body::Nack(nack) => {
                self.is_heard = true;
                if let Some(ack) = nack.ack {
                    self.acknowledged(now, ack);
                }
                for seq in dyram::packets(packet.sequence, nack.mask) {
                    if self.sender.wanted(now, seq.0) == Ok(false) {
                        self.absent.push(seq.0);
                    }
                }
            }
            Body::Ack => {
                self.is_heard = true;
                self.acknowledged(now, packet.sequence);
            }
            Body::Stalled(stalled) => {
                let known = self.stalled.iter().any(|one| one.child == stalled.child);
                if !known {
                    // Without room the relay's own log names it.
                    let _ = self.stalled.push(stalled);
                }
            }
            Body::Feedback(feedback) => {
                let dyram::wire::Feedback {
                    rank,
                    held_us,
                    message,
                } = feedback;
                return self
                    .sender
                    .relay_feedback(now, source, rank, held_us, message);
            }
            _ => return Err(Error::Unexpected),
        }
        Ok(())
    }

    /// Hands an acknowledgement of the relay to the sender, which limits new data by it. One that has not
    /// advanced for [`crate::SenderConfig::receiver_timeout`] while packets are outstanding is ignored: the
    /// relay should have stopped waiting for the child that causes it.
    fn acknowledged(&mut self, now: Instant, ack: Seq) {
        let relay = self.attachment.relay();
        let acks = &mut self.acks;
        if acks.advanced_at != relay {
            (acks.advanced, acks.advanced_at) = (None, relay);
        }
        let next = Seq(self.sender.next_sequence());
        let advances = match acks.advanced {
            Some((highest, _)) => highest.before(ack) || ack == next,
            None => true,
        };
        // The sender refuses a packet that was never sent, so it must not become the highest.
        if advances && !next.before(ack) {
            acks.advanced = Some((ack, now));
        }
        let timeout = self.sender.receiver_timeout();
        if acks.advanced.is_some_and(|(_, at)| now < at + timeout) {
            self.sender.acknowledged(now, ack.0);
        }
    }

    /// Has the window wait for the first acknowledgement of a relay that begins to serve this source.
    fn begin_window(&mut self) {
        let relay = self.attachment.relay();
        if relay.is_some() && relay != self.acks.served_by {
            self.acks.served_by = relay;
            self.sender.relay_changed(self.now);
        }
        if relay.is_some() && !self.sender.has_relay_ack() {
            let next = self.sender.next_sequence();
            self.sender.acknowledged(self.now, next);
        }
    }

    /// Handles the passing of time. Harmless when called early or twice.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = self.now.max(now);
        self.attachment.handle_timeout(now);
        self.sender.handle_timeout(now);
    }

    /// Returns when to call [`Sender::handle_timeout`]; `None` when nothing more will happen.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.sender.is_ended() {
            return None;
        }
        let sender = self.sender.poll_timeout();
        let attachment = self.attachment.poll_timeout();
        let absent = (!self.absent.is_empty()).then_some(self.now);
        [sender, attachment, absent].into_iter().flatten().min()
    }

    /// Writes the next packet into `buffer`, which has room for the sender's longest packet and
    /// [`super::OVERHEAD`] bytes more. Drain it until `None`.
    pub fn poll_transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        self.now = self.now.max(now);
        let header = header_len(&self.key);
        if buffer.len() < header + MIN_BUFFER + PORT_LEN || self.sender.is_ended() {
            return None;
        }
        if let Some(transmit) = self.attachment.poll_transmit(now, buffer) {
            return Some(unicast(transmit));
        }
        let relay = self.attachment.relay();
        let is_carried = relay.is_some() || self.is_over_multicast;
        self.sender.wait_for_relay(!is_carried);
        let absent = self
            .absent
            .poll_transmit(&mut self.attachment, self.run, buffer);
        if absent.is_some() {
            return absent;
        }
        let end = buffer.len() - PORT_LEN;
        loop {
            let (inner, sequence) = self.sender.poll_output(now, &mut buffer[header..end])?;
            let to_relay = relay.map(Destination::Unicast);
            let carrier = match inner.destination {
                Destination::Unicast(destination) => {
                    buffer.copy_within(header..header + inner.len, 0);
                    return Some(packet_to(destination, inner.len));
                }
                Destination::Relay => to_relay,
                _ if self.is_over_multicast => Some(Destination::Group),
                _ => to_relay,
            };
            // Without a carrier, heartbeats and repairs are lost as on any other path.
            if let Some(destination) = carrier {
                let len = self.wrap(&inner, sequence, header, buffer);
                return Some(Transmit::packet(destination, len));
            }
        }
    }

    /// Wraps an LTP packet that stands after the place of the headers. Returns the length of the whole.
    fn wrap(
        &self,
        inner: &Transmit,
        sequence: Option<Seq>,
        header: usize,
        buffer: &mut [u8],
    ) -> usize {
        let is_repair = inner.destination == Destination::Relay;
        let (sequence, body, len) = match sequence {
            Some(sequence) if is_repair => (sequence.0, Body::Repair(&[]), inner.len),
            Some(sequence) => (sequence.0, Body::Data(&[]), inner.len),
            None => {
                let at = header + inner.len;
                buffer[at..at + PORT_LEN].copy_from_slice(&self.port.to_be_bytes());
                let next = self.sender.next_sequence();
                (next, Body::Cast(&[]), inner.len + PORT_LEN)
            }
        };
        wrap(
            buffer,
            self.key,
            NO_CHILD,
            self.run,
            Seq(sequence),
            body,
            len,
        )
    }

    /// Leaves the relay: writes the packet that says so.
    pub fn leave(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        self.attachment.leave(buffer).map(unicast)
    }
}

proto_core::impl_machine! {
    impl['a, S: Store] Sender<'a, S> {
        Meta = Meta; Transmit = Transmit; Event = Event; Error = Error;
    }
}
