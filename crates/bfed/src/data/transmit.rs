//! What waits: queues, reports, timers.

use alloc::sync::Arc;

use smoltcp::time::Instant;

use super::edge::Carrier;
use super::node::DataEvent;
use super::{Copy, DataError, Destination, EdgeId, HEADER_LEN, Plane};
use crate::wire::data::{Kind, Repr};
use crate::wire::report;

impl Plane {
    /// The edge takes no more for now: what is for it waits.
    pub fn blocked(&mut self, id: EdgeId) {
        if let Some(edge) = self.edge_mut(id) {
            edge.blocked = true;
        }
        self.ready.remove(&id);
    }

    /// The edge takes more again.
    pub fn writable(&mut self, now: Instant, id: EdgeId) {
        self.now = now;
        if let Some(edge) = self.edge_mut(id) {
            edge.blocked = false;
            if !edge.queue.is_empty() {
                self.ready.insert(id);
            }
        }
    }

    pub(super) fn lose(&mut self, id: EdgeId, reason: DataError, count: u64) {
        self.stats.drop(reason, count);
        let flow = self.edge(id).map(|edge| edge.flow);
        if let Some(flow) = flow.and_then(|flow| self.flow_mut(flow)) {
            flow.counts.dropped += count;
        }
    }

    pub(super) fn enqueue(&mut self, now: Instant, id: EdgeId, frame: Arc<[u8]>) {
        let config = self.config;
        let Some(flow) = self.edge(id).map(|edge| edge.flow) else {
            return;
        };
        let Some(content) = self.flow_mut(flow).map(|flow| flow.content) else {
            return;
        };
        let Some(edge) = self.edge_mut(id) else {
            return;
        };
        let was_full = edge.full_since.is_some();
        let dropped = edge.push(now, frame, content, &config);
        let full = edge.full_since.is_some();
        self.stats.queued += 1;
        self.lose(id, DataError::QueueFull, dropped);
        if full && !was_full {
            self.pause(flow);
        }
        self.schedule(id);
    }

    /// The source of a bulk flow is to stop.
    fn pause(&mut self, flow: u32) {
        let Some(state) = self.flow_mut(flow) else {
            return;
        };
        state.full += 1;
        if core::mem::replace(&mut state.paused, true) {
            return;
        }
        self.stats.pauses += 1;
        if let Some(from) = self.source(flow) {
            self.events.push_back(DataEvent::Pause(from));
        }
    }

    /// The source of a bulk flow may go on, once no edge is full.
    pub(super) fn resume(&mut self, flow: u32) {
        let Some(state) = self
            .flow_mut(flow)
            .filter(|flow| flow.full == 0 && flow.paused)
        else {
            return;
        };
        state.paused = false;
        if let Some(from) = self.source(flow) {
            self.events.push_back(DataEvent::Resume(from));
        }
    }

    /// Where a flow comes from.
    fn source(&self, flow: u32) -> Option<Destination> {
        let flow = self.flows.get(flow as usize)?.as_ref()?;
        let up = flow
            .edges
            .iter()
            .filter_map(|&id| self.edge(id))
            .find(|edge| edge.up)?;
        up.destination()
    }

    pub(super) fn clear_queue(&mut self, id: EdgeId, reason: DataError) {
        let Some(edge) = self.edge_mut(id) else {
            return;
        };
        let flow = edge.flow;
        let lost = edge.queue.len() as u64;
        edge.queue = super::edge::Queue::default();
        if edge.full_since.take().is_some() {
            if let Some(flow) = self.flow_mut(flow) {
                flow.full -= 1;
            }
            self.resume(flow);
        }
        self.ready.remove(&id);
        self.lose(id, reason, lost);
    }

    /// Sets the timer of an edge: its next report, its next packet, its stall.
    pub(super) fn schedule(&mut self, id: EdgeId) {
        let (now, stall) = (self.now, self.config.stall_timeout);
        let links = &self.links;
        let Some((_, Some(edge))) = self.edges.get_mut(id.index as usize) else {
            return;
        };
        let waits = !edge.queue.is_empty() && !edge.blocked;
        let paced = edge
            .sender
            .as_ref()
            .map_or(now, |sender| sender.next_send(now));
        let link = edge
            .link
            .and_then(|peer| links.get(&peer))
            .map(|link| link.next_send());
        let times = [
            edge.receiver
                .as_ref()
                .and_then(|receiver| receiver.poll_timeout()),
            waits.then(|| link.map_or(paced, |link| paced.max(link))),
            edge.sender
                .as_ref()
                .filter(|_| waits)
                .map(|sender| sender.poll_timeout()),
            edge.stalls_at(stall),
        ];
        let due = times.into_iter().flatten().min();
        if due == edge.due {
            return;
        }
        if let Some(before) = core::mem::replace(&mut edge.due, due) {
            self.timers.remove(&(before, id));
        }
        if let Some(due) = due {
            self.timers.insert((due, id));
        }
    }

    /// Time has passed.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        let stall = self.config.stall_timeout;
        while let Some(&(at, id)) = self.timers.first().filter(|(at, _)| *at <= now) {
            self.timers.remove(&(at, id));
            let Some(edge) = self.edge_mut(id) else {
                continue;
            };
            edge.due = None;
            if let Some(sender) = &mut edge.sender {
                sender.handle_timeout(now);
            }
            if edge.stalls_at(stall).is_some_and(|at| at <= now) {
                self.cut(id);
            }
            // Reports and queues go out by `poll_transmit`, which sets the timer again.
            self.ready.insert(id);
        }
    }

    /// A receiver that holds up its session is cut off; it may come again.
    fn cut(&mut self, id: EdgeId) {
        self.clear_queue(id, DataError::Stalled);
        let stream = self.edge(id).and_then(|edge| match edge.carrier {
            Carrier::Stream(_, conn) => conn,
            _ => None,
        });
        if let Some(conn) = stream {
            self.stream_ended(conn);
            self.events.push_back(DataEvent::Close(conn));
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        if !self.ready.is_empty() || !self.attach.is_empty() {
            return Some(self.now);
        }
        self.timers.first().map(|(at, _)| *at)
    }

    /// The next packet that waited, or a report; written into `buffer`, which has room for the
    /// longest packet. Drain until `None`.
    pub fn poll_transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Copy> {
        self.now = now;
        if let Some(copy) = self.next_attach(buffer) {
            return Some(copy);
        }
        while let Some(&id) = self.ready.first() {
            if let Some(copy) = self.report(now, id, buffer) {
                return Some(copy);
            }
            if let Some(copy) = self.dequeue(now, id, buffer) {
                return Some(copy);
            }
            self.ready.remove(&id);
            self.schedule(id);
        }
        None
    }

    fn next_attach(&mut self, buffer: &mut [u8]) -> Option<Copy> {
        while let Some(id) = self.attach.pop_front() {
            let label = self.edge(id).and_then(|edge| edge.label_in);
            let to = self.edge(id).and_then(|edge| edge.destination());
            if let (Some(label), Some(to)) = (label, to) {
                let kind = Kind::Attach;
                let (sequence, timestamp_us, rtt_us, payload_len) = (0, 0, 0, 0);
                Repr {
                    kind,
                    label,
                    sequence,
                    timestamp_us,
                    rtt_us,
                    payload_len,
                }
                .emit(buffer);
                return Some(Copy {
                    edge: id,
                    to,
                    range: 0..HEADER_LEN,
                });
            }
        }
        None
    }

    fn report(&mut self, now: Instant, id: EdgeId, buffer: &mut [u8]) -> Option<Copy> {
        let edge = self.edge_mut(id)?;
        let report = edge.receiver.as_mut()?.poll_report(now)?;
        let (label, to) = (edge.label_in?, edge.destination()?);
        let kind = Kind::Report;
        let payload_len = report::LEN;
        Repr {
            kind,
            label,
            sequence: 0,
            timestamp_us: 0,
            rtt_us: 0,
            payload_len,
        }
        .emit(buffer);
        report.emit(&mut buffer[HEADER_LEN..]);
        self.stats.reports += 1;
        Some(Copy {
            edge: id,
            to,
            range: 0..HEADER_LEN + report::LEN,
        })
    }

    fn dequeue(&mut self, now: Instant, id: EdgeId, buffer: &mut [u8]) -> Option<Copy> {
        let edge = self.edge(id)?;
        let len = edge.queue.front_len().filter(|_| !edge.blocked)?;
        if edge.destination().is_none() || !self.allowed(now, id, len) {
            return None;
        }
        let config = self.config;
        let edge = self.edge_mut(id)?;
        let frame = edge.queue.pop()?;
        let flow = edge.flow;
        let room = edge.full_since.is_some() && !edge.is_full(&config);
        edge.full_since = edge.full_since.filter(|_| !room).map(|_| now);
        if room {
            if let Some(flow) = self.flow_mut(flow) {
                flow.full -= 1;
            }
            self.resume(flow);
        }
        let end = HEADER_LEN + frame.len();
        buffer[HEADER_LEN..end].copy_from_slice(&frame);
        match self.stamp(now, id, frame.len()) {
            Some(header) => {
                header.emit(buffer);
                self.copy(id, 0..end)
            }
            None => self.copy(id, HEADER_LEN..end),
        }
    }
}
