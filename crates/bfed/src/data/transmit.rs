//! Queues, reports and timers.

use proto_core::time::Instant;

use super::edge::Edge;
use super::flow::Flow;
use super::liveness::SignContent;
use super::node::DataEvent;
use super::queue::{Payload, Timing, Waiting};
use super::{DataError, Destination, EdgeId, HEADER_LEN, Plane, Transmit};
use crate::types::Content;
use crate::wire::data::{Kind, Repr};
use crate::wire::init::ATTACH_INIT;
use crate::wire::report;

impl Plane {
    /// Reports that an edge takes no more for now. Its packets wait, and a bulk session's source is paused.
    pub fn blocked(&mut self, id: EdgeId) {
        let now = self.now;
        self.ready.remove(&id);
        let Some(edge) = self.edge_mut(id) else {
            return;
        };
        edge.blocked = true;
        let flow = edge.flow;
        self.close_shortcut(flow);
        let bulk = |flow: &mut Flow| flow.content == Content::Bulk;
        if !self.flow_mut(flow).is_some_and(bulk) {
            return;
        }
        if let Some(edge) = self.edge_mut(id)
            && edge.rest.full_since.is_none()
        {
            edge.rest.full_since = Some(now);
            self.pause(flow);
            self.schedule(id);
        }
    }

    /// Reports that a blocked edge has made progress, so that it does not count as stalled.
    pub fn takes(&mut self, now: Instant, id: EdgeId) {
        self.now = now;
        if let Some(edge) = self.edge_mut(id) {
            edge.rest.full_since = edge.rest.full_since.map(|_| now);
            self.schedule(id);
        }
    }

    /// Reports that an edge takes more again.
    pub fn writable(&mut self, now: Instant, id: EdgeId) {
        self.now = now;
        if let Some(edge) = self.edge_mut(id) {
            edge.blocked = false;
            if edge.waits() {
                self.ready.insert(id);
            } else {
                self.eased(id);
            }
        }
    }

    /// Resumes the source when nothing waits for an open edge.
    pub(super) fn eased(&mut self, id: EdgeId) {
        let Some(edge) = self.edge_mut(id) else {
            return;
        };
        let flow = edge.flow;
        if edge.rest.full_since.take().is_some() {
            if let Some(flow) = self.flow_mut(flow) {
                flow.rest.full -= 1;
            }
            self.resume(flow);
            self.schedule(id);
        }
    }

    pub(super) fn lose(&mut self, id: EdgeId, reason: DataError, count: u64) {
        self.stats.drop(reason, count);
        let flow = self.edge(id).map(|edge| edge.flow);
        if let Some(flow) = flow.and_then(|flow| self.flow_mut(flow)) {
            flow.rest.dropped += count;
        }
    }

    pub(super) fn enqueue(
        &mut self,
        now: Instant,
        id: EdgeId,
        payload: impl Into<Payload>,
        timing: Timing,
    ) {
        let (config, payload) = (self.config, payload.into());
        let Some(flow) = self.edge(id).map(|edge| edge.flow) else {
            return;
        };
        let Some(content) = self.flow_mut(flow).map(|flow| flow.content) else {
            return;
        };
        self.drop_late(now, id);
        let Some(edge) = self.edge_mut(id) else {
            return;
        };
        let was_full = edge.rest.full_since.is_some();
        let expires = match content {
            // It is of use whenever it comes.
            Content::RealTime if payload.kind == Kind::Init => None,
            Content::RealTime => timing.expires().or(Some(now + config.real_time_delay)),
            Content::Bulk => None,
        };
        let packet = Waiting::new(now, timing, expires, payload);
        let dropped = edge.push(now, packet, content, &config);
        let full = edge.rest.full_since.is_some();
        self.stats.queued += 1;
        self.lose(id, DataError::QueueFull, dropped);
        self.queue_for_turn(now, id);
        if full && !was_full {
            self.pause(flow);
        }
        self.schedule(id);
    }

    /// Pauses the source of a bulk flow.
    fn pause(&mut self, flow: u32) {
        let Some(state) = self.flow_mut(flow) else {
            return;
        };
        state.rest.full += 1;
        if core::mem::replace(&mut state.paused, true) {
            return;
        }
        self.stats.pauses += 1;
        if let Some(from) = self.source(flow) {
            self.events.push_back(DataEvent::Pause(from));
        }
    }

    /// Resumes the source of a bulk flow once no edge is full.
    pub(super) fn resume(&mut self, flow: u32) {
        let Some(state) = self
            .flow_mut(flow)
            .filter(|flow| flow.rest.full == 0 && flow.paused)
        else {
            return;
        };
        state.paused = false;
        if let Some(from) = self.source(flow) {
            self.events.push_back(DataEvent::Resume(from));
        }
    }

    /// Returns the source of a flow.
    fn source(&self, flow: u32) -> Option<Destination> {
        let flow = self.flows.get(flow)?;
        self.edge(flow.up?)?.to
    }

    pub(super) fn clear_queue(&mut self, id: EdgeId, reason: DataError) {
        let Some(edge) = self.edge_mut(id) else {
            return;
        };
        let lost = edge.clear();
        self.eased(id);
        self.ready.remove(&id);
        self.lose(id, reason, lost);
    }

    /// Sets the timer of an edge: next report, next packet, stall.
    pub(super) fn schedule(&mut self, id: EdgeId) {
        let (now, stall) = (self.now, self.config.stall_timeout);
        let links = &self.links;
        let Some(edge) = self.edges.get_mut(id.index) else {
            return;
        };
        let waits = edge.is_open();
        let paced = edge
            .sender
            .as_ref()
            .map_or(now, |sender| sender.next_send(now));
        let link = links.next_send(edge.link);
        let times = [
            edge.rest
                .receiver
                .as_ref()
                .and_then(|receiver| receiver.poll_timeout()),
            // A link with a rate limit schedules its edges itself.
            (waits && !(link.is_some() && edge.rest.is_waiting_for_turn)).then_some(paced),
            edge.sender
                .as_ref()
                .filter(|_| waits)
                .map(|sender| sender.poll_timeout()),
            edge.stalls_at(stall),
            edge.rest.init.poll_timeout(),
            edge.rest.gaps.as_ref().and_then(|gaps| gaps.poll_timeout()),
            edge.rest
                .store
                .as_ref()
                .and_then(|store| store.poll_timeout()),
        ];
        let due = times.into_iter().flatten().min();
        if due == edge.rest.due {
            return;
        }
        if let Some(before) = core::mem::replace(&mut edge.rest.due, due) {
            self.timers.remove(&(before, id));
        }
        if let Some(due) = due {
            self.timers.insert((due, id));
        }
    }

    /// Handles the passing of time.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        let stall = self.config.stall_timeout;
        while let Some(&(at, id)) = self.timers.first().filter(|(at, _)| *at <= now) {
            self.timers.remove(&(at, id));
            let Some(edge) = self.edge_mut(id) else {
                continue;
            };
            edge.rest.due = None;
            if let Some(sender) = &mut edge.sender {
                sender.handle_timeout(now);
            }
            if edge.stalls_at(stall).is_some_and(|at| at <= now) {
                self.cut(id);
            }
            // `poll_transmit` sends reports and queues, and sets the timer again.
            self.ready.insert(id);
        }
    }

    /// Disconnects a stalled receiver, which may reconnect. A channel that this node opened is opened again.
    fn cut(&mut self, id: EdgeId) {
        self.clear_queue(id, DataError::Stalled);
        let Some(edge) = self.edge_mut(id) else {
            return;
        };
        edge.rest.awaits_stream = false;
        let (conn, remote) = (edge.stream(), edge.rest.remote.filter(|_| edge.up));
        if let Some(conn) = conn {
            self.stream_ended(conn);
            self.events.push_back(DataEvent::Close(conn));
            self.dials.extend(remote.map(|to| (id, to)));
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let waits = !self.ready.is_empty() || !self.attach.is_empty() || !self.events.is_empty();
        if waits || self.liveness.waits() {
            return Some(self.now);
        }
        let timer = self.timers.first().map(|(at, _)| *at);
        timer.into_iter().chain(self.links.poll_timeout()).min()
    }

    /// Writes the next queued packet, PROBE, ECHO or report into `buffer`; drain until `None`. A packet that does
    /// not fit is kept for a larger buffer.
    pub fn poll_transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        self.now = now;
        if buffer.len() < HEADER_LEN + report::LEN {
            return None;
        }
        if let Some(transmit) = self
            .next_attach(now, buffer)
            .or_else(|| self.next_sign(buffer))
        {
            return Some(transmit);
        }
        while let Some(&id) = self.ready.first() {
            self.give_up(now, id);
            let report = self.report(now, id, buffer);
            let asks = report.or_else(|| self.ask_init(now, id, buffer));
            let asks = asks.or_else(|| self.ask_repair(now, id, buffer));
            let asks = asks.or_else(|| self.say_tail(now, id, buffer));
            if let Some(transmit) = asks.or_else(|| self.say_none(id, buffer)) {
                return Some(transmit);
            }
            let bounded = self
                .edge(id)
                .is_some_and(|edge| self.links.is_bounded(edge.link));
            if bounded {
                self.queue_for_turn(now, id);
            } else if !self.fits_front(now, id, buffer) {
                return None;
            } else if let Some(transmit) = self.dequeue(now, id, buffer) {
                return Some(transmit);
            }
            self.ready.remove(&id);
            self.schedule(id);
        }
        let mut from = 0;
        while let Some(link) = self.links.busy(from) {
            if let Some(transmit) = self.turn(now, link, buffer) {
                return Some(transmit);
            }
            from = link + 1;
        }
        None
    }

    /// Returns whether a buffer has room for the oldest packet of an edge, if any.
    fn fits_front(&mut self, now: Instant, id: EdgeId, buffer: &[u8]) -> bool {
        self.drop_late(now, id);
        let len = self.edge(id).and_then(Edge::front_len);
        len.is_none_or(|len| HEADER_LEN + len <= buffer.len())
    }

    /// Queues an edge for its turn on a link with a rate limit.
    fn queue_for_turn(&mut self, now: Instant, id: EdgeId) {
        let Some(edge) = self.edges.get_mut(id.index) else {
            return;
        };
        let paced = edge.sender.as_ref();
        let may = paced.is_none_or(|sender| sender.next_send(now) <= now);
        if self.links.is_bounded(edge.link)
            && edge.is_open()
            && may
            && !edge.rest.is_waiting_for_turn
        {
            edge.rest.is_waiting_for_turn = true;
            self.links.wait(edge.link, edge.rest.session, id);
        }
    }

    /// Returns the next packet for a link, of the session whose turn it is.
    fn turn(&mut self, now: Instant, link: u32, buffer: &mut [u8]) -> Option<Transmit> {
        while let Some(id) = self.links.turn(now, link) {
            if !self.fits_front(now, id, buffer) {
                return None;
            }
            let edge = self.edges.get_mut(id.index)?;
            let paced = edge.sender.as_ref();
            let may = paced.is_none_or(|sender| sender.next_send(now) <= now);
            let len = edge.front_len().filter(|_| edge.is_open() && may);
            let Some(len) = len else {
                self.leave_turns(id);
                continue;
            };
            if !self.links.afford(link, HEADER_LEN + len) {
                continue;
            }
            let copy = self.dequeue(now, id, buffer);
            let waits = self.edge(id).is_some_and(Edge::waits);
            if copy.is_none() || !waits {
                self.leave_turns(id);
            }
            if copy.is_some() {
                return copy;
            }
        }
        None
    }

    fn leave_turns(&mut self, id: EdgeId) {
        if let Some(edge) = self.edges.get_mut(id.index) {
            edge.rest.is_waiting_for_turn = false;
            self.links.leave(edge.link, edge.rest.session, id);
        }
        self.schedule(id);
    }

    /// Drops frames of a real-time session that would arrive too late, or that give way.
    fn drop_late(&mut self, now: Instant, id: EdgeId) {
        let transit = self.transit(id);
        let Some(edge) = self.edges.get_mut(id.index) else {
            return;
        };
        let flow = self.flows.get(edge.flow);
        if edge.waits() && flow.is_some_and(|flow| flow.content == Content::RealTime) {
            let lost = edge.drop_late(now, transit);
            self.lose(id, DataError::TooLate, lost.late);
            self.lose(id, DataError::Yielded, lost.yielded);
        }
    }

    fn next_attach(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        while let Some(id) = self.attach.pop_front() {
            if self.edge(id).is_some_and(|edge| edge.rest.init.asks()) {
                let request = self.ask_init(now, id, buffer);
                self.schedule(id);
                if request.is_some() {
                    return request;
                }
                continue;
            }
            let label = self.edge(id).and_then(|edge| edge.rest.label_in);
            let to = self.edge(id).and_then(|edge| edge.to);
            if let (Some(label), Some(to)) = (label, to) {
                Repr {
                    sequence: ATTACH_INIT,
                    ..Repr::new(Kind::Attach, label)
                }
                .emit(buffer);
                return Some(Transmit {
                    edge: id,
                    to,
                    range: 0..HEADER_LEN,
                });
            }
        }
        None
    }

    /// Writes a PROBE or an ECHO.
    fn next_sign(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        while let Some((to, id, message)) = self.liveness.poll_transmit() {
            let own = self.edge(id).and_then(|edge| edge.rest.label_in);
            let (kind, label, sequence, cookie) = match message {
                SignContent::Echo(label, nonce, cookie) => (Kind::Echo, Some(label), nonce, cookie),
                SignContent::Probe(nonce, cookie) => (Kind::Probe, own, nonce, cookie),
            };
            let Some(label) = label else {
                continue;
            };
            Repr {
                sequence,
                ..Repr::new(kind, label).with_cookie(cookie)
            }
            .emit(buffer);
            let path = self.edge(id).and_then(|edge| edge.rest.path);
            return Some(Transmit {
                edge: id,
                to: path.map_or(Destination::Datagram(to), Destination::Path),
                range: 0..HEADER_LEN,
            });
        }
        None
    }

    fn report(&mut self, now: Instant, id: EdgeId, buffer: &mut [u8]) -> Option<Transmit> {
        let edge = self.edge_mut(id)?;
        let report = edge.rest.receiver.as_mut()?.poll_report(now)?;
        let (label, to) = (edge.rest.label_in?, edge.to?);
        let edge = self.edge(id)?;
        // An address that is not proved may be forged: it gets no reports.
        if !self
            .neighbour(edge)
            .is_some_and(|key| self.liveness.is_proved(&key))
        {
            return None;
        }
        Repr {
            payload_len: report::LEN,
            ..Repr::new(Kind::Report, label)
        }
        .emit(buffer);
        report.emit(&mut buffer[HEADER_LEN..]);
        self.stats.reports += 1;
        Some(Transmit {
            edge: id,
            to,
            range: 0..HEADER_LEN + report::LEN,
        })
    }

    fn dequeue(&mut self, now: Instant, id: EdgeId, buffer: &mut [u8]) -> Option<Transmit> {
        let transit = self.transit(id);
        let edge = self.edges.get_mut(id.index)?;
        let len = edge.front_len().filter(|_| !edge.blocked)?;
        let mut to = edge.to?;
        if !edge.allowed(now, &mut self.links, len) {
            return None;
        }
        let frame = edge.pop()?;
        let room = edge.rest.full_since.is_some() && !edge.is_full(&self.config);
        edge.rest.full_since = edge.rest.full_since.filter(|_| !room).map(|_| now);
        let Payload {
            kind,
            bytes,
            number,
        } = frame.payload;
        let timing = frame.timing;
        match (kind, to) {
            (Kind::Init, Destination::Native(channel)) => to = Destination::NativeInit(channel),
            (_, Destination::Native(_)) => self.stats.ages.delivered(now, &timing),
            _ => {}
        }
        let end = HEADER_LEN + bytes.len();
        buffer[HEADER_LEN..end].copy_from_slice(&bytes);
        let packet = (kind, number);
        let range = edge.stamp(now, packet, (timing, transit), buffer, bytes.len())..end;
        let at = edge.flow;
        if let Some(flow) = self.flows.get_mut(at) {
            self.stats.copied(flow, bytes.len());
            flow.rest.full -= usize::from(room);
        }
        if room {
            self.resume(at);
        }
        if number.is_none() && kind != Kind::Init && timing.class.is_some() {
            self.keep(now, id, (kind, bytes), timing);
        }
        Some(Transmit {
            edge: id,
            to,
            range,
        })
    }
}
