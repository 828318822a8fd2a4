//! A sender above a relay.

use core::net::{IpAddr, SocketAddr};

use dyram::wire::{Body, NO_CHILD, Role, Stalled};
use dyram::{Attachment, AttachmentConfig, AttachmentEvent, Input, Parents, Seq, SessionKey};
use proto_core::time::Instant;
use rand_chacha::ChaCha12Rng;
use rand_core::{Rng, SeedableRng};

use super::{ABSENT, Named, PORT_LEN, Transmit, header_len, is_dyram, wrap};
use crate::error::Error;
use crate::store::Store;
use crate::wire::Type;
use crate::{Destination, Meta, Sender};

/// Most receivers and relays that a [`Root`] names as stalled.
pub const STALLED: usize = 64;

/// A [`Sender`] and its attachment to the relay nearest to it. Drive it like the sender, from one
/// UDP socket; commands and events are [`Root::sender_mut`]'s.
///
/// While no relay has taken it in, the sender sends nothing new and answers by unicast only. It must be configured with `max_segments` of 1
/// and a `max_packet_len` that leaves [`super::OVERHEAD`] bytes free.
pub struct Root<'a, S: Store> {
    sender: Sender<'a, S>,
    attachment: Attachment,
    key: SessionKey,
    /// The session identifier towards relays: of this run, where LTP's is that of the content.
    run: u32,
    /// Port of the socket: where leaves ask the source itself.
    port: u16,
    /// Where new packets go when IP multicast carries them, not the relay.
    group: Option<SocketAddr>,
    /// The relay whose acknowledgements the sender counts.
    served_by: Option<SocketAddr>,
    /// Somebody below the relay has acknowledged something, or asked for it.
    heard: bool,
    /// The highest acknowledgement of this relay, and when it advanced or nothing was left to acknowledge.
    advanced: Option<(Seq, Instant)>,
    /// The relay that it came from.
    advanced_at: Option<SocketAddr>,
    /// Receivers and relays that the tree no longer waits for, and how many of them were told.
    stalled: heapless::Vec<Stalled, STALLED>,
    told: usize,
    absent: heapless::Vec<u32, ABSENT>,
    now: Instant,
}

impl<'a, S: Store> Root<'a, S> {
    /// A sender whose socket has that address, above one of these relays. `None` when source and
    /// group are not of one address family.
    #[must_use]
    pub fn new(
        mut sender: Sender<'a, S>,
        source: SocketAddr,
        group: IpAddr,
        relays: Parents,
        seed: [u8; 32],
        now: Instant,
    ) -> Option<Self> {
        let key = SessionKey::new(source.ip(), group)?;
        sender.say_digests_again();
        let mut rng = ChaCha12Rng::from_seed(seed);
        let run = rng.next_u32();
        let mut seed = [0; 32];
        rng.fill_bytes(&mut seed);
        let config = AttachmentConfig {
            key,
            role: Role::Source,
            relays,
        };
        Some(Root {
            sender,
            attachment: Attachment::new(config, seed, now),
            key,
            run,
            port: source.port(),
            group: None,
            served_by: None,
            heard: false,
            advanced: None,
            advanced_at: None,
            stalled: heapless::Vec::new(),
            told: 0,
            absent: heapless::Vec::new(),
            now,
        })
    }

    /// IP multicast carries the data, to that group and port ([`dyram::Carriage::Multicast`]); the relay
    /// serves recovery beside it, and data flows before one has taken the source in, too.
    #[must_use]
    pub fn over_multicast(mut self, group: SocketAddr) -> Self {
        self.group = Some(group);
        self
    }

    /// The sender.
    pub fn sender(&self) -> &Sender<'a, S> {
        &self.sender
    }

    /// The sender, for commands and events. Packets come from the root's own methods.
    pub fn sender_mut(&mut self) -> &mut Sender<'a, S> {
        &mut self.sender
    }

    /// The relay that serves this source now.
    pub fn relay(&self) -> Option<SocketAddr> {
        self.attachment.relay()
    }

    /// Whether anybody below the relay has acknowledged or asked for anything of this run.
    pub fn is_heard(&self) -> bool {
        self.heard
    }

    /// What happened to the attachment.
    pub fn poll_relay_event(&mut self) -> Option<AttachmentEvent> {
        self.attachment.poll_event()
    }

    /// The next receiver or relay that the tree has stopped waiting for, each address once. At most
    /// [`STALLED`] addresses are named in a run; the names are what relays say, not proven.
    pub fn poll_stalled(&mut self) -> Option<Stalled> {
        let stalled = self.stalled.get(self.told).copied()?;
        self.told += 1;
        Some(stalled)
    }

    /// A datagram arrived.
    ///
    /// # Errors
    /// Why it was dropped: [`Error::Relay`] for a relay's packet that does not fit, else the
    /// sender's reason.
    pub fn handle_packet(
        &mut self,
        now: Instant,
        from: SocketAddr,
        packet: &[u8],
    ) -> Result<(), Error> {
        self.now = self.now.max(now);
        if !is_dyram(packet) {
            return self.sender.handle_packet(now, &Meta::unicast(from), packet);
        }
        let meta = dyram::Meta::unicast(from);
        let input = self.attachment.handle_packet(now, &meta, packet);
        let own = self.run;
        match input.map_err(|_| Error::Relay)? {
            Input::Requested { session, .. }
            | Input::Acknowledged { session, .. }
            | Input::Stalled { session, .. }
                if session != own =>
            {
                Err(Error::OtherSession)
            }
            Input::Requested {
                first, mask, ack, ..
            } => {
                self.heard = true;
                if let Some(ack) = ack {
                    self.acknowledged(now, ack);
                }
                for seq in dyram::packets(first, mask) {
                    if self.sender.wanted(now, seq.0) == Ok(false) {
                        // With no room the relay waits for an answer, and asks again.
                        let _ = self.absent.push(seq.0);
                    }
                }
                Ok(())
            }
            Input::Acknowledged { ack, .. } => {
                self.heard = true;
                self.acknowledged(now, ack);
                Ok(())
            }
            Input::Stalled { stalled, .. } => {
                let known = self.stalled.iter().any(|one| one.child == stalled.child);
                if !known {
                    // With no room the relay's own log names it.
                    let _ = self.stalled.push(stalled);
                }
                Ok(())
            }
            Input::Nothing => {
                self.begin_window();
                Ok(())
            }
            Input::Data { .. } | Input::Cast { .. } | Input::Absent { .. } => {
                Err(Error::Unexpected)
            }
        }
    }

    /// Hands an acknowledgement of the relay to the sender, which limits new data by it. One that has not advanced
    /// for [`crate::SenderConfig::receiver_timeout`] although packets are outstanding is not handed on: the relay
    /// should have stopped waiting for the child that causes it, and the sender does not wait for the relay.
    fn acknowledged(&mut self, now: Instant, ack: Seq) {
        let relay = self.attachment.relay();
        if self.advanced_at != relay {
            (self.advanced, self.advanced_at) = (None, relay);
        }
        let next = Seq(self.sender.next_sequence());
        let advances = match self.advanced {
            Some((highest, _)) => highest.before(ack) || ack == next,
            None => true,
        };
        // What was never sent is the sender's to refuse: it must not be the highest.
        if advances && !next.before(ack) {
            self.advanced = Some((ack, now));
        }
        let timeout = self.sender.receiver_timeout();
        if self.advanced.is_some_and(|(_, at)| now < at + timeout) {
            self.sender.acknowledged(now, ack.0);
        }
    }

    /// From the moment that a relay took us in, the window waits for its first acknowledgement.
    fn begin_window(&mut self) {
        let relay = self.attachment.relay();
        if relay.is_some() && relay != self.served_by {
            self.served_by = relay;
            self.sender.relay_changed(self.now);
        }
        if self.attachment.relay().is_some() && !self.sender.has_relay_ack() {
            let next = self.sender.next_sequence();
            self.sender.acknowledged(self.now, next);
        }
    }

    /// Time has passed; harmless when called early or twice.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = self.now.max(now);
        self.attachment.handle_timeout(now);
        self.sender.handle_timeout(now);
    }

    /// When to call [`Root::handle_timeout`]; `None` when nothing more will happen.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.sender.is_ended() {
            return None;
        }
        let sender = self.sender.poll_timeout();
        let attachment = self.attachment.poll_timeout();
        let attached = self.attachment.relay().is_some();
        let absent = (attached && !self.absent.is_empty()).then_some(self.now);
        [sender, attachment, absent].into_iter().flatten().min()
    }

    /// The next packet to send, written into `buffer`, which has room for the sender's longest
    /// packet and [`super::OVERHEAD`] bytes more; drain until `None`.
    pub fn poll_transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        self.now = self.now.max(now);
        if let Some(transmit) = self.attachment.poll_transmit(now, buffer) {
            return Some(transmit.into());
        }
        let relay = self.attachment.relay();
        self.sender.hold(relay.or(self.group).is_none());
        if let Some(transmit) = self.poll_absent(buffer) {
            return Some(transmit);
        }
        let header = header_len(&self.key);
        let end = buffer.len().checked_sub(PORT_LEN)?;
        loop {
            let room = buffer.get_mut(header..end)?;
            let inner = self.sender.poll_transmit(now, room)?;
            if let Destination::Unicast(destination) = inner.destination {
                buffer.copy_within(header..header + inner.len, 0);
                return Some(Transmit {
                    destination,
                    len: inner.len,
                });
            }
            // Heartbeats and repairs that nobody carries are lost as on any other way.
            let carrier = match inner.destination {
                Destination::Relay => relay,
                _ => self.group.or(relay),
            };
            if let Some(carrier) = carrier {
                return Some(self.wrap(carrier, inner, header, buffer));
            }
        }
    }

    /// An LTP packet that stands behind the place of the headers, for the relay or the group.
    fn wrap(
        &self,
        destination: SocketAddr,
        inner: crate::Transmit,
        header: usize,
        buffer: &mut [u8],
    ) -> Transmit {
        let session = self.run;
        let kind = buffer[header] & 0xf;
        let numbered = kind == Type::Data as u8 || inner.destination == Destination::Relay;
        let (sequence, body, len) = if numbered {
            let sequence = Seq(crate::wire::u32_at(&buffer[header..], 8));
            let body = match inner.destination {
                Destination::Relay => Body::Repair(&[]),
                _ => Body::Data(&[]),
            };
            (sequence, body, inner.len)
        } else {
            let at = header + inner.len;
            buffer[at..at + PORT_LEN].copy_from_slice(&self.port.to_be_bytes());
            let next = Seq(self.sender.next_sequence());
            (next, Body::Cast(&[]), inner.len + PORT_LEN)
        };
        let len = wrap(buffer, self.key, NO_CHILD, session, sequence, body, len);
        Transmit { destination, len }
    }

    fn poll_absent(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        let first = *self.absent.first()?;
        let mut named = Named::only(first);
        self.absent.retain(|&sequence| !named.add(sequence));
        let session = self.run;
        let transmit = self
            .attachment
            .absent(session, Seq(first), named.mask, buffer)?;
        Some(transmit.into())
    }

    /// Leaves the relay: writes the goodbye.
    pub fn leave(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        self.attachment.leave(buffer).map(Transmit::from)
    }
}
