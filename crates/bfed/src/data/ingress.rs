//! Incoming packets: lookup and admission.

use core::hint::black_box;
use core::net::SocketAddr;

use proto_core::time::{Duration, Instant};

use super::cursor::Cursor;
use super::flow::Flow;
use super::liveness::ProbeResult;
use super::queue::Timing;
use super::table::{Entry, Found, Key};
use super::{DataError, Destination, EdgeId, HEADER_LEN, Meta, PathId, Plane, Transmit, Verdict};
use crate::native::FrameClass;
use crate::types::{ConnId, Content};
use crate::wire::class::Class;
use crate::wire::data::{Kind, MAX_PAYLOAD_LEN, Packet};
use crate::wire::fragment::Repr as Fragment;
use crate::wire::init::{self, ATTACH_INIT};
use crate::wire::report::Repr as Report;

/// Most packets that [`Plane::prefetch`] examines: the prefetched lines must still be cached when they are forwarded.
pub const PREFETCH_MAX: usize = 32;

impl Plane {
    /// Announces the packets that are forwarded next, at most [`PREFETCH_MAX`], so that the memory that they need
    /// is fetched for all at once. This is a hint: results are the same without it, whatever is forwarded.
    #[inline]
    pub fn prefetch<'a>(&mut self, packets: impl Iterator<Item = (&'a Meta, &'a [u8])>) {
        self.table.forget();
        for (meta, frame) in packets.take(PREFETCH_MAX) {
            if let Some(key) = key(meta, frame) {
                self.table.prefetch(key);
            }
        }
        // The loads of one pass are independent, so that the processor overlaps them. The result is passed to
        // `black_box`, or the compiler would remove the loads.
        let mut read = 0;
        for (key, entry, short) in self.table.ahead() {
            if !short {
                let flow = self.flows.get(entry.flow);
                read ^= flow.map_or(0, Flow::outs);
            }
            if key.is_datagram() {
                let edge = self.edges.get(entry.edge);
                read ^= edge.map_or(0, |edge| edge.flow);
            }
        }
        for (key, entry, short) in self.table.ahead() {
            if !short {
                let flow = self.flows.get(entry.flow);
                let out = flow.and_then(|flow| flow.out(0));
                let out = out.and_then(|out| self.edges.get(out.index));
                read ^= out.map_or(0, |edge| edge.flow);
            }
            if key.is_datagram() {
                let edge = self.edges.get(entry.edge);
                read ^= edge.map_or(0, |edge| edge.rest.generation);
            }
        }
        black_box(read);
    }

    /// Forwards a packet. `frame` is the whole packet with its header; from the native network, [`HEADER_LEN`]
    /// unused bytes and the data.
    // Without inlining, the cursor would be returned through memory, which costs as much as the lookup of the flow.
    #[inline(always)]
    pub fn forward(&mut self, now: Instant, meta: &Meta, frame: &mut [u8]) -> Verdict {
        self.now = now;
        self.stats.packets += 1;
        match self.ingress(now, meta, frame) {
            Ok(Some(from)) if is_fragment(meta, frame) => self.start_fragment(meta, from, frame),
            Ok(Some(from)) => self.start(meta, from, frame),
            Ok(None) => Verdict::Taken,
            Err(reason) => self.dropped(reason),
        }
    }

    /// Forwards a packet of a TCP channel by its header alone, for a driver that moves payloads without reading them.
    /// The header becomes that of the copy. The whole packet must have arrived.
    ///
    /// Returns `None` unless the packet goes to one other TCP channel that takes it now; then nothing has changed,
    /// and the whole packet is for [`Plane::forward`].
    pub fn forward_header(
        &mut self,
        now: Instant,
        conn: ConnId,
        header: &mut [u8; HEADER_LEN],
    ) -> Option<Transmit> {
        let end = Packet::<&[u8]>::check_header(header).ok()?;
        let (kind, label) = Packet::<&[u8]>::kind_and_label(header);
        let key = Key::stream(conn, label);
        let found = self.table.get(&key).filter(|_| kind == Kind::Data)?;
        let shortcut = self.table.shortcut_of(found);
        if !shortcut.is_to_stream() {
            return None;
        }
        let copy = shortcut.enter(end)?.copy_header(header, end);
        self.now = now;
        self.stats.packets += 1;
        self.stats.bytes += (end - HEADER_LEN) as u64;
        self.stats.copies += 1;
        self.stats.copied_bytes += (end - HEADER_LEN) as u64;
        Some(copy)
    }

    #[cold]
    fn dropped(&mut self, reason: DataError) -> Verdict {
        self.stats.drop(reason, 1);
        Verdict::Drop(reason)
    }

    /// Finds the edge of a data packet, or handles a packet for this node.
    #[inline(always)]
    fn ingress(
        &mut self,
        now: Instant,
        meta: &Meta,
        frame: &[u8],
    ) -> Result<Option<Found>, DataError> {
        if let Meta::Native(channel) | Meta::Frame(channel, _) = *meta {
            let fits = (HEADER_LEN..=HEADER_LEN + MAX_PAYLOAD_LEN).contains(&frame.len());
            if !fits {
                return Err(DataError::Malformed);
            }
            let found = self.table.get(&Key::native(channel));
            return found.map(Some).ok_or(DataError::UnknownChannel);
        }
        let packet = Packet::new_checked(frame)?;
        match packet.kind() {
            Kind::Data => self.data(now, meta, &packet).map(Some),
            Kind::Fragment => {
                Fragment::parse(packet.payload()).map_err(|_| DataError::Malformed)?;
                if let Meta::Stream(..) | Meta::PathStream(..) = meta {
                    return Err(DataError::Malformed);
                }
                self.data(now, meta, &packet).map(Some)
            }
            Kind::Attach => self.attached(now, meta, &packet).map(|()| None),
            Kind::Report => self.reported(now, meta, &packet).map(|()| None),
            Kind::Probe => self.probed(now, meta, &packet).map(|()| None),
            Kind::Echo => self.echoed(now, meta, &packet).map(|()| None),
            Kind::RepairRequest => self.repair_requested(now, meta, &packet).map(|()| None),
            Kind::Tail => {
                let timing = timing(now, meta, Class::NONE, frame)?;
                self.tail(now, meta, &packet, timing).map(|()| None)
            }
            Kind::Parity => {
                let timing = timing(now, meta, Class::NONE, frame)?;
                self.parity(now, meta, &packet, timing).map(|()| None)
            }
            Kind::Init => {
                let found = self.init(now, meta, &packet)?;
                self.skip(now, found.entry, packet.sequence());
                self.take_init(now, found.entry, packet.payload())
                    .map(|()| None)
            }
            Kind::InitRequest => self.init_requested(now, meta, &packet).map(|()| None),
        }
    }

    #[inline(always)]
    fn data(
        &mut self,
        now: Instant,
        meta: &Meta,
        packet: &Packet<&[u8]>,
    ) -> Result<Found, DataError> {
        match *meta {
            Meta::Datagram(from) => {
                let found = self.table.get(&Key::datagram(from, packet.label()));
                let found = found.ok_or(DataError::UnknownFlow)?;
                self.received(now, found.entry.edge, packet)?;
                Ok(found)
            }
            Meta::Path(path) => {
                let found = self.table.get(&Key::path(path, packet.label()));
                found.ok_or(DataError::UnknownFlow)
            }
            Meta::Stream(conn, _) | Meta::PathStream(conn, _) => {
                let found = self.table.get(&Key::stream(conn, packet.label()));
                found.ok_or(DataError::UnknownFlow)
            }
            Meta::Native(_) | Meta::Frame(..) => Err(DataError::UnknownFlow),
        }
    }

    /// Returns where an INIT came from. The answer that there is none has no place in the sequence of a UDP channel.
    #[cold]
    fn init(
        &mut self,
        now: Instant,
        meta: &Meta,
        packet: &Packet<&[u8]>,
    ) -> Result<Found, DataError> {
        match *meta {
            Meta::Datagram(from)
                if packet.sequence() == 0 && packet.payload() == [0; init::LEN] =>
            {
                let found = self.table.get(&Key::datagram(from, packet.label()));
                found.ok_or(DataError::UnknownFlow)
            }
            _ => self.data(now, meta, packet),
        }
    }

    /// Updates loss and rate statistics of a UDP channel.
    fn received(&mut self, now: Instant, at: u32, packet: &Packet<&[u8]>) -> Result<(), DataError> {
        let edge = self.edges.get_mut(at).ok_or(DataError::UnknownFlow)?;
        // It was counted when it was lost.
        if packet.is_again() {
            return Ok(());
        }
        let id = EdgeId {
            index: at,
            generation: edge.rest.generation,
        };
        if let Some(receiver) = &mut edge.rest.receiver {
            let before = receiver.poll_timeout();
            let len = HEADER_LEN + packet.payload().len();
            let (sequence, time) = (packet.sequence(), packet.timestamp_us());
            if !receiver.receive(now, sequence, time, packet.rtt_us(), len) {
                return Err(DataError::Duplicate);
            }
            if receiver.poll_timeout() != before {
                self.schedule(id);
            }
        }
        Ok(())
    }

    /// Handles an ATTACH, with which the other side of a TCP channel names its flow.
    fn attached(
        &mut self,
        now: Instant,
        meta: &Meta,
        packet: &Packet<&[u8]>,
    ) -> Result<(), DataError> {
        let label = packet.label();
        let (conn, from) = match *meta {
            Meta::Stream(conn, from) => (conn, Err(from)),
            Meta::PathStream(conn, path) => (conn, Ok(path)),
            _ => return Err(DataError::NotYours),
        };
        let id = self
            .labels
            .get(&label)
            .copied()
            .ok_or(DataError::UnknownFlow)?;
        let edge = self.edge(id).ok_or(DataError::UnknownFlow)?;
        let remote = edge.rest.remote.filter(|_| !edge.up);
        let theirs = match (from, edge.rest.path) {
            (Ok(path), own) => own == Some(path) && edge.wants_stream(),
            // A TCP channel does not take the place of a QUIC stream.
            (Err(_), Some(_)) => false,
            (Err(from), None) => {
                remote.is_some_and(|to| to.ip().to_canonical() == from.to_canonical())
            }
        };
        let theirs = theirs && !edge.up;
        if !theirs || self.streams.contains_key(&conn) {
            return Err(DataError::NotYours);
        }
        self.set_stream(id, conn);
        if packet.sequence() & ATTACH_INIT != 0 {
            self.want_init(now, id);
        }
        Ok(())
    }

    fn reported(
        &mut self,
        now: Instant,
        meta: &Meta,
        packet: &Packet<&[u8]>,
    ) -> Result<(), DataError> {
        let report = Report::parse(packet.payload()).map_err(|_| DataError::Malformed)?;
        let id = self
            .labels
            .get(&packet.label())
            .copied()
            .ok_or(DataError::UnknownFlow)?;
        let edge = self.edge_mut(id).ok_or(DataError::UnknownFlow)?;
        let theirs = match *meta {
            Meta::Datagram(from) => edge.to == Some(Destination::Datagram(from)),
            _ => false,
        };
        let sender = edge
            .sender
            .as_mut()
            .filter(|_| theirs)
            .ok_or(DataError::NotYours)?;
        sender.report(now, &report);
        if edge.waits() {
            self.ready.insert(id);
        }
        Ok(())
    }

    /// Handles a PROBE. It is answered only at the receiver's own address, which the control node named; once it
    /// repeats the cookie of the answer, packets may be sent there.
    #[cold]
    fn probed(
        &mut self,
        now: Instant,
        meta: &Meta,
        packet: &Packet<&[u8]>,
    ) -> Result<(), DataError> {
        let ((from, path), label) = (self.alone(meta, packet)?, packet.label());
        let id = self.labels.get(&label).copied();
        let id = id.ok_or(DataError::UnknownFlow)?;
        let edge = self.edge(id).ok_or(DataError::UnknownFlow)?;
        let key = self.neighbour(edge);
        let key = key.filter(|key| key.0 == from && edge.rest.path == path);
        let key = key.ok_or(DataError::NotYours)?;
        let probe = (id, label, packet.sequence());
        match self.liveness.probed(now, key, probe, packet.cookie()) {
            ProbeResult::Proved(edges) => self.unlock(now, edges),
            ProbeResult::Unproved => return Ok(()),
            ProbeResult::Refused if self.liveness.is_proved(&key) => {
                return Err(DataError::QueueFull);
            }
            ProbeResult::Refused => return Err(DataError::ProbeRate),
        }
        if let Some(edge) = self.edge_mut(id)
            && let Some(sender) = &mut edge.sender
        {
            sender.ready(now);
            if edge.waits() {
                self.ready.insert(id);
            }
        }
        Ok(())
    }

    #[cold]
    fn echoed(
        &mut self,
        now: Instant,
        meta: &Meta,
        packet: &Packet<&[u8]>,
    ) -> Result<(), DataError> {
        let (from, path) = self.alone(meta, packet)?;
        // PROBEs to a path are answered on the path.
        if path.is_none() && self.paths.leads_to(from) {
            return Err(DataError::NotYours);
        }
        let (nonce, cookie) = (packet.sequence(), packet.cookie());
        let edges = self.liveness.echoed(now, from, nonce, cookie);
        self.unlock(now, edges.ok_or(DataError::NotYours)?);
        Ok(())
    }

    /// Returns the sender of a datagram without payload: its address, and its path if it came over QUIC.
    fn alone(
        &self,
        meta: &Meta,
        packet: &Packet<&[u8]>,
    ) -> Result<(SocketAddr, Option<PathId>), DataError> {
        let from = match *meta {
            Meta::Datagram(from) => (from, None),
            Meta::Path(path) => {
                let (from, _) = self.paths.end(path).ok_or(DataError::NotYours)?;
                (from, Some(path))
            }
            _ => return Err(DataError::NotYours),
        };
        match packet.payload().is_empty() {
            true => Ok(from),
            false => Err(DataError::Malformed),
        }
    }

    #[inline(always)]
    fn start(&mut self, meta: &Meta, from: Found, frame: &mut [u8]) -> Verdict {
        let end = frame.len();
        let len = (end - HEADER_LEN) as u64;
        if let Some(way) = self.table.shortcut_of(from).enter(end) {
            self.stats.bytes += len;
            self.stats.copies += 1;
            self.stats.copied_bytes += len;
            return Verdict::Only(way.copy(frame));
        }
        let timing = match self.enter(meta, from.entry, frame) {
            Ok(Some(timing)) => timing,
            Ok(None) => return Verdict::Taken,
            Err(reason) => return self.dropped(reason),
        };
        Verdict::Forward(Cursor {
            from,
            next: 0,
            end,
            timing,
            kind: Kind::Data,
            shared: None,
        })
    }

    /// Forwards a fragment as it is; native networks get the whole frame with its last fragment.
    #[cold]
    fn start_fragment(&mut self, meta: &Meta, from: Found, frame: &[u8]) -> Verdict {
        let end = frame.len();
        let timing = match self.enter(meta, from.entry, frame) {
            Ok(Some(timing)) => timing,
            Ok(None) => return Verdict::Taken,
            Err(reason) => return self.dropped(reason),
        };
        self.join(self.now, from.entry, &frame[HEADER_LEN..], timing);
        Verdict::Forward(Cursor {
            from,
            next: 0,
            end,
            timing,
            kind: Kind::Fragment,
            shared: None,
        })
    }

    /// Checks on the slow path whether the flow accepts a packet from the edge. Returns its class and when it began; `None`
    /// if it waits for packets before it.
    #[inline]
    fn enter(
        &mut self,
        meta: &Meta,
        from: Entry,
        frame: &[u8],
    ) -> Result<Option<Timing>, DataError> {
        let now = self.now;
        let flow = self.flow_mut(from.flow).ok_or(DataError::UnknownFlow)?;
        if !flow.multi && flow.up.is_none_or(|up| up.index != from.edge) {
            return Err(DataError::WrongDirection);
        }
        if flow.awaits_init {
            if now < flow.rest.gate {
                return Err(DataError::BeforeInit);
            }
            flow.awaits_init = false;
        }
        let len = (frame.len() - HEADER_LEN) as u64;
        flow.packets += 1;
        flow.bytes += len;
        let (timing, is_next) = match flow.content {
            Content::Bulk => (Timing::now(now), true),
            Content::RealTime => {
                let own = flow.rest.class;
                let timing = timing(now, meta, own, frame)?;
                let is_next = self.order(now, meta, from, frame, timing)?;
                if is_next && timing.expires().is_some_and(|at| at < now) {
                    return Err(DataError::TooLate);
                }
                (timing, is_next)
            }
        };
        self.stats.bytes += len;
        Ok(is_next.then_some(timing))
    }
}

/// Returns class and beginning of a real-time frame; `own` is the flow's class, for a frame that enters the federation
/// here.
#[inline]
fn timing(now: Instant, meta: &Meta, own: Class, frame: &[u8]) -> Result<Timing, DataError> {
    match *meta {
        Meta::Native(_) => Ok(Timing {
            class: own,
            born: now,
        }),
        Meta::Frame(_, FrameClass { priority, lifetime }) => {
            let class = lifetime.map_or(own, |lifetime| Class::new(priority, lifetime));
            Ok(Timing {
                class: class.with_priority(priority),
                born: now,
            })
        }
        Meta::Stream(..) | Meta::PathStream(..) => Ok(Timing::now(now)),
        Meta::Datagram(_) | Meta::Path(_) => {
            let packet = Packet::new_checked(frame)?;
            let age = Duration::from_millis(u64::from(packet.age_ms()));
            Ok(Timing {
                class: packet.class(),
                born: now - age,
            })
        }
    }
}

/// Returns the lookup key of a data packet, `None` for other packets.
#[inline(always)]
fn key(meta: &Meta, frame: &[u8]) -> Option<Key> {
    if let Meta::Native(channel) | Meta::Frame(channel, _) = *meta {
        return Some(Key::native(channel));
    }
    let packet = Packet::new_checked(frame).ok();
    let packet = packet.filter(|packet| packet.kind() == Kind::Data)?;
    match *meta {
        Meta::Datagram(from) => Some(Key::datagram(from, packet.label())),
        Meta::Path(path) => Some(Key::path(path, packet.label())),
        Meta::Stream(conn, _) | Meta::PathStream(conn, _) => {
            Some(Key::stream(conn, packet.label()))
        }
        Meta::Native(_) | Meta::Frame(..) => None,
    }
}

/// Returns whether the packet is a fragment; the native network delivers whole frames.
#[inline]
fn is_fragment(meta: &Meta, frame: &[u8]) -> bool {
    !matches!(meta, Meta::Native(_) | Meta::Frame(..)) && frame[0] & 15 == Kind::Fragment as u8
}
