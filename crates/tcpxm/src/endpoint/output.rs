//! Output of packets.

use core::net::{IpAddr, SocketAddr};

use proto_core::RateLimit;
use proto_core::time::Instant;

use super::repairs::SharedRepair;
use super::{Endpoint, timer_key};
use crate::config::Carrier;
use crate::error::Failure;
use crate::event::{Meta, SegmentBatch, Transmit};
use crate::group::{Copy, Mode};
use crate::mintree::MinTree;
use crate::pcb::{Key, Plan};
use crate::ranges::Span;
use crate::seq::{Seq, SynNumber};
use crate::store::Store;
use crate::wire::{Flags, Options, Place, Segment, Tag};

/// A reset for a segment that belongs to no connection.
#[derive(Debug)]
pub(super) struct Reply {
    source: IpAddr,
    destination: SocketAddr,
    local_port: u16,
    remote_port: u16,
    seq: Seq,
    ack: Option<Seq>,
}

/// Resets that may wait to be sent.
const MAX_REPLIES: usize = 32;

impl<S: Store> Endpoint<S> {
    /// Writes the next packet to send into the buffer, which has at least [`Endpoint::max_segment_bytes`]; `None` when
    /// there is none for now, or the buffer is too short. Packets to one destination come one after the other as far as
    /// that delays nothing.
    pub fn poll_transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        let batch = self.poll_transmit_batch(now, buffer, 1)?;
        Some(Transmit {
            len: batch.len,
            source: batch.source,
            destination: batch.destination,
        })
    }

    /// As [`Endpoint::poll_transmit`], with the segments that follow to the same destination in the same length, up to
    /// `max_segments` and as far as the buffer reaches. A system that cuts packets (`UDP_SEGMENT`) takes them in one
    /// piece.
    pub fn poll_transmit_batch(
        &mut self,
        now: Instant,
        buffer: &mut [u8],
        max_segments: usize,
    ) -> Option<SegmentBatch> {
        let now = self.advance(now);
        if buffer.len() < self.max_segment_bytes() {
            return None;
        }
        if let Some(reply) = self.replies.pop_front() {
            return Some(self.write_reply(&reply, buffer).into());
        }
        self.transmit_burst(now, buffer, max_segments)
            .or_else(|| self.transmit_own(now, buffer).map(SegmentBatch::from))
            .or_else(|| self.transmit_new(now, buffer, max_segments))
            // The end of a flow, which `transmit_new` finds, makes the FINs of its members due.
            .or_else(|| self.transmit_own(now, buffer).map(SegmentBatch::from))
    }

    /// Sends what control blocks have to send by themselves: handshakes, repairs, acknowledgements.
    fn transmit_own(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        while let Some(index) = self.ready.front() {
            self.hold_repairs(now, index);
            let repair = self.shared_repair(now, index);
            if let Some(SharedRepair::Multicast(group, span)) = repair {
                let written = self.repair_group(now, index, group, span, buffer);
                self.sync(index);
                if written.is_some() {
                    return written;
                }
                continue;
            }
            let plan = match repair {
                Some(SharedRepair::Unicast(plan)) => Some(plan),
                _ => self
                    .parts(index)
                    .and_then(|(pcb, flow, _)| pcb.poll(now, flow)),
            };
            let Some(plan) = plan else {
                self.ready.pop();
                self.sync(index);
                continue;
            };
            let written = self.write(index, &plan, buffer);
            if let (Some(written), Some(_)) = (&written, plan.data) {
                self.pace_repair(now, index, written.len as u64);
            }
            self.sync(index);
            if written.is_some() {
                return written;
            }
        }
        None
    }

    /// Writes a repair for all receivers of a group.
    fn repair_group(
        &mut self,
        now: Instant,
        index: u32,
        group: IpAddr,
        span: Span,
        buffer: &mut [u8],
    ) -> Option<Transmit> {
        let slot = self.pcbs.get(index)?.slot;
        self.stats.shared_repairs += 1;
        let written = self.write_group(now, (slot.session, slot.flow), group, span, buffer)?;
        self.pace_shared_repair(now, index, written.len as u64);
        Some(written)
    }

    /// The rest of a burst that was begun, before all that was asked for since: it counts as sent
    /// when it began, and a repair that overtook it would show it as lost (RFC 8985 §6.2).
    fn transmit_burst(
        &mut self,
        now: Instant,
        buffer: &mut [u8],
        max_segments: usize,
    ) -> Option<SegmentBatch> {
        let &flow @ (session, number) = self.flows_ready.front()?;
        loop {
            let batch = match self.flow(session, number)?.next_copy()? {
                (Copy::Group(group), span) => self
                    .write_group(now, flow, group, span, buffer)
                    .map(|first| self.append(first, None, flow, buffer, max_segments)),
                (Copy::Unicast(index), span) => {
                    let plan = self
                        .parts(index)
                        .map(|(pcb, flow, _)| pcb.data(now, flow, span));
                    let first = plan.and_then(|plan| self.write(index, &plan, buffer));
                    let batch = first
                        .map(|first| self.append(first, Some(index), flow, buffer, max_segments));
                    self.sync(index);
                    batch
                }
            };
            if batch.is_some() {
                return batch;
            }
        }
    }

    /// Appends the segments that follow the first one of a copy: their headers differ in the sequence number,
    /// the push bit and everything computed from the bytes. A segment that cannot be read is left for its own
    /// turn.
    fn append(
        &mut self,
        first: Transmit,
        receiver: Option<u32>,
        (session, number): (u32, u32),
        buffer: &mut [u8],
        max_segments: usize,
    ) -> SegmentBatch {
        let header_len = Segment::written_header_len(buffer);
        let mut batch = SegmentBatch::from(first);
        let pcb = receiver.and_then(|index| self.pcbs.get(index));
        let Some(session) = self.sessions.get_mut(session) else {
            return batch;
        };
        let Some(flow) = session.flows.get_mut(number as usize) else {
            return batch;
        };
        let (iss, signer) = match (pcb, &session.group) {
            (Some(pcb), _) => (pcb.send.iss, pcb.signer()),
            (None, Some(group)) => (group.sender.2, group.signer.as_ref()),
            (None, None) => return batch,
        };
        while batch.segments < max_segments
            && let Some(span) = flow.peek_copy()
        {
            let (done, rest) = buffer.split_at_mut(batch.len);
            let len = header_len + span.len() as usize;
            if len > batch.segment_size || rest.len() < len {
                break;
            }
            let bytes = &mut rest[..len];
            bytes[..header_len].copy_from_slice(&done[..header_len]);
            let read = session.store.read(span.start, &mut bytes[header_len..]);
            if read.is_err() {
                break;
            }
            flow.pass_copy();
            let seq = iss.at(span.start);
            Segment::renumber(bytes, seq, pcb.is_none() || flow.pushes(span.end));
            if let Some(signer) = signer {
                let place = match pcb {
                    Some(pcb) => pcb.place_of(seq, flow),
                    None => Place {
                        receiver: None,
                        offset: span.start as i64,
                    },
                };
                signer.sign(place, bytes);
            }
            if self.config.carrier == Carrier::Ip {
                Segment::fill_checksum(bytes, batch.source, batch.destination.ip());
            }
            batch.len += len;
            batch.segments += 1;
            if len < batch.segment_size {
                break;
            }
        }
        self.count_sent(
            batch.destination.ip(),
            batch.segments - 1,
            batch.len - first.len,
        );
        batch
    }

    /// New data of flows.
    fn transmit_new(
        &mut self,
        now: Instant,
        buffer: &mut [u8],
        max_segments: usize,
    ) -> Option<SegmentBatch> {
        while let Some(&(session, number)) = self.flows_ready.front() {
            if !self.begin_burst(now, session, number) {
                self.flows_ready.pop_front();
                self.end_turn(session, number);
                continue;
            }
            let batch = self.transmit_burst(now, buffer, max_segments);
            if batch.is_some() {
                return batch;
            }
        }
        None
    }

    /// Takes up the next new data, if windows and rates let some go.
    fn begin_burst(&mut self, now: Instant, session: u32, number: u32) -> bool {
        self.end_idle(now, session, number);
        let half_window = self.half_window(session, number);
        self.set_pace(session, number);
        let Some(session_ref) = self.sessions.get_mut(session) else {
            return false;
        };
        if session_ref.must_wait(number, now) {
            return false;
        }
        let turns = &mut session_ref.turns;
        let Some(flow) = session_ref.flows.get_mut(number as usize) else {
            return false;
        };
        let Ok(span) = flow.sendable(now, half_window) else {
            if flow.is_complete() {
                self.wake_members(session, number);
            }
            return false;
        };
        let idle = core::mem::take(&mut flow.idle);
        turns.given = None;
        turns
            .cap
            .spend(now, flow.begin_burst(span, now, half_window));
        for index in idle {
            let Some((pcb, flow, _)) = self.parts(index) else {
                continue;
            };
            if pcb.slot.session != session || pcb.slot.flow != number || !pcb.slot.idle {
                continue;
            }
            pcb.slot.idle = false;
            if pcb.state().sends() {
                pcb.begin_outstanding(now, flow);
                flow.limits
                    .set(flow.slot(pcb.slot.member), pcb.send_limit());
                let next = pcb.timers.next().map_or(MinTree::NONE, timer_key);
                self.timers.set(index as usize, next);
            }
        }
        true
    }

    /// Windows of receivers to which nothing was in flight for some time start anew before data follows.
    fn end_idle(&mut self, now: Instant, session: u32, number: u32) {
        let Some(flow) = self.flow(session, number) else {
            return;
        };
        let idle = core::mem::take(&mut flow.idle);
        for &index in &idle {
            let Some((pcb, flow, _)) = self.parts(index) else {
                continue;
            };
            let belongs = pcb.slot.session == session && pcb.slot.flow == number;
            if belongs && pcb.slot.idle && pcb.state().sends() {
                pcb.end_idle(now, flow);
                flow.limits
                    .set(flow.slot(pcb.slot.member), pcb.send_limit());
            }
        }
        if let Some(flow) = self.flow(session, number) {
            flow.idle = idle;
        }
    }

    /// All data is sent: the FINs of all members may follow (TCP-XM §2.1, step 13).
    pub(super) fn wake_members(&mut self, session: u32, number: u32) {
        let Some(session_ref) = self.sessions.get(session) else {
            return;
        };
        let members: alloc::vec::Vec<u32> = session_ref.members.iter().flatten().copied().collect();
        for index in members {
            let due = self
                .parts(index)
                .is_some_and(|(pcb, flow, _)| pcb.slot.flow == number && pcb.fin_waits(flow));
            if due {
                self.sync(index);
            }
        }
    }

    /// Writes one copy for all receivers of a group. Only its data is valid there; the acknowledgement, which
    /// differs between receivers, is 0.
    fn write_group(
        &mut self,
        now: Instant,
        (session, number): (u32, u32),
        group: IpAddr,
        span: Span,
        buffer: &mut [u8],
    ) -> Option<Transmit> {
        let session_ref = self.sessions.get_mut(session)?;
        let flow = &session_ref.flows[number as usize];
        let state = session_ref.group.as_ref()?;
        let (key, local, iss) = state.sender;
        let options = Options {
            timestamps: self.config.timestamps.then(|| (flow.stamp_at(now), 0)),
            tag: state.signer.as_ref().map(|_| Tag::default()),
            ..Options::default()
        };
        let plan = Plan {
            seq: iss.at(span.start),
            ack: Seq(0),
            flags: Flags {
                psh: true,
                ack: true,
                ..Flags::default()
            },
            window: 0,
            options,
            data: Some(span),
        };
        let Some(len) = write_segment(&key, &plan, &mut session_ref.store, buffer) else {
            self.fail_session(session);
            return None;
        };
        if let Some(signer) = &state.signer {
            let place = Place {
                receiver: None,
                offset: span.start as i64,
            };
            signer.sign(place, &mut buffer[..len]);
        }
        let destination = SocketAddr::new(group, key.outer_port);
        Some(self.finish(len, local, destination, buffer))
    }

    /// Writes a control block's segment. A read error of the store ends the session, or only the connection of
    /// a receiver that is not in step.
    fn write(&mut self, index: u32, plan: &Plan, buffer: &mut [u8]) -> Option<Transmit> {
        let (pcb, flow, _) = self.parts(index)?;
        let place = pcb.place_of(plan.seq, flow);
        let (key, local, remote) = (pcb.key, pcb.local, pcb.remote());
        let (session, alone) = (pcb.slot.session, pcb.multicast.mode == Mode::UnicastOnly);
        let session_ref = self.sessions.get_mut(session)?;
        let Some(len) = write_segment(&key, plan, &mut session_ref.store, buffer) else {
            if alone {
                self.pcbs.get_mut(index)?.abort(Failure::Store);
                self.sync(index);
            } else {
                self.fail_session(session);
            }
            return None;
        };
        if let Some(signer) = self.pcbs.get(index)?.signer() {
            signer.sign(place, &mut buffer[..len]);
        }
        Some(self.finish(len, local, remote, buffer))
    }

    fn fail_session(&mut self, session: u32) {
        let Some(session) = self.sessions.get(session) else {
            return;
        };
        let members: alloc::vec::Vec<u32> = session.members.iter().flatten().copied().collect();
        for index in members {
            if let Some(pcb) = self.pcbs.get_mut(index) {
                pcb.abort(Failure::Store);
                self.sync(index);
            }
        }
    }

    fn finish(
        &mut self,
        len: usize,
        source: IpAddr,
        destination: SocketAddr,
        buffer: &mut [u8],
    ) -> Transmit {
        if self.config.carrier == Carrier::Ip {
            Segment::fill_checksum(&mut buffer[..len], source, destination.ip());
        }
        self.count_sent(destination.ip(), 1, len);
        Transmit {
            len,
            source,
            destination,
        }
    }

    fn count_sent(&mut self, destination: IpAddr, packets: usize, bytes: usize) {
        self.stats.packets_sent += packets as u64;
        if destination.is_multicast() {
            self.stats.multicast_bytes_sent += bytes as u64;
        } else {
            self.stats.unicast_bytes_sent += bytes as u64;
        }
    }

    /// RFC 9293 §3.10.7.1: a reset that its receiver can distinguish from a forged one, never longer than its
    /// cause, and limited in rate.
    pub(super) fn queue_reset(&mut self, now: Instant, meta: &Meta, segment: &Segment<'_>) {
        let rate = u32::from(self.config.resets_per_second);
        let has_room = self.replies.len() < MAX_REPLIES;
        if !has_room || !self.reply_credit.take(now, &RateLimit::new(rate, rate)) {
            self.stats.resets_suppressed += 1;
            return;
        }
        self.stats.resets_sent += 1;
        let (seq, ack) = if segment.flags.ack {
            (segment.ack, None)
        } else {
            (Seq(0), Some(segment.seq.plus(segment.sequence_len())))
        };
        let key = self.key_of(meta, segment);
        self.replies.push_back(Reply {
            source: meta.destination,
            destination: SocketAddr::new(key.remote, key.outer_port),
            local_port: key.local_port,
            remote_port: key.remote_port,
            seq,
            ack,
        });
    }

    fn write_reply(&mut self, reply: &Reply, buffer: &mut [u8]) -> Transmit {
        let segment = Segment {
            source_port: reply.local_port,
            destination_port: reply.remote_port,
            seq: reply.seq,
            ack: reply.ack.unwrap_or_default(),
            flags: Flags {
                rst: true,
                ack: reply.ack.is_some(),
                ..Flags::default()
            },
            window: 0,
            options: Options::default(),
            payload: &[],
        };
        let len = segment.emit(buffer);
        self.finish(len, reply.source, reply.destination, buffer)
    }
}

/// Writes a segment with its data; returns its length.
fn write_segment<S: Store>(
    key: &Key,
    plan: &Plan,
    store: &mut crate::group::Buffer<S>,
    buffer: &mut [u8],
) -> Option<usize> {
    let segment = Segment {
        source_port: key.local_port,
        destination_port: key.remote_port,
        seq: plan.seq,
        ack: plan.ack,
        flags: plan.flags,
        window: plan.window,
        options: plan.options,
        payload: &[],
    };
    let header_len = segment.header_len();
    segment.emit_header(buffer);
    let Some(span) = plan.data else {
        return Some(header_len);
    };
    let len = header_len + span.len() as usize;
    store
        .read(span.start, buffer.get_mut(header_len..len)?)
        .ok()?;
    Some(len)
}
