//! Packets that arrive: whose they are, and whether they go on.

use smoltcp::time::Instant;

use super::edge::Carrier;
use super::plane::{Cursor, entry};
use super::table::{Entry, Key};
use super::{DataError, HEADER_LEN, Meta, Plane, Verdict};
use crate::types::FlowLabel;
use crate::wire::data::{Kind, MAX_PAYLOAD_LEN, Packet};
use crate::wire::report::Repr as Report;

impl Plane {
    /// What becomes of a packet. `frame` is the whole packet, header included; from the native
    /// network, [`HEADER_LEN`] bytes of room and the data.
    pub fn forward(&mut self, now: Instant, meta: &Meta, frame: &mut [u8]) -> Verdict {
        self.now = now;
        self.stats.packets += 1;
        match self.ingress(now, meta, frame) {
            Ok(Some(from)) => match self.start(&from, frame.len()) {
                Ok(cursor) => Verdict::Forward(cursor),
                Err(reason) => self.dropped(reason),
            },
            Ok(None) => Verdict::Taken,
            Err(reason) => self.dropped(reason),
        }
    }

    fn dropped(&mut self, reason: DataError) -> Verdict {
        self.stats.drop(reason, 1);
        Verdict::Drop(reason)
    }

    /// The edge that a packet of data came on.
    fn ingress(
        &mut self,
        now: Instant,
        meta: &Meta,
        frame: &[u8],
    ) -> Result<Option<Entry>, DataError> {
        if let Meta::Native(channel) = meta {
            let fits = (HEADER_LEN..=HEADER_LEN + MAX_PAYLOAD_LEN).contains(&frame.len());
            if !fits {
                return Err(DataError::Malformed);
            }
            let id = *self
                .channels
                .get(channel)
                .ok_or(DataError::UnknownChannel)?;
            let edge = self.edge(id).ok_or(DataError::UnknownChannel)?;
            return Ok(Some(entry(id, edge)));
        }
        let packet = Packet::new_checked(frame).map_err(|_| DataError::Malformed)?;
        match packet.kind() {
            Kind::Data => self.data(now, meta, &packet).map(Some),
            Kind::Attach => self.attached(meta, packet.label()).map(|()| None),
            Kind::Report => self.reported(now, meta, &packet).map(|()| None),
        }
    }

    fn data(
        &mut self,
        now: Instant,
        meta: &Meta,
        packet: &Packet<&[u8]>,
    ) -> Result<Entry, DataError> {
        let key = match *meta {
            Meta::Datagram(from) => Key::datagram(from, packet.label()),
            Meta::Stream(conn, _) => Key::stream(conn, packet.label()),
            Meta::Native(_) => return Err(DataError::UnknownFlow),
        };
        let entry = self.table.get(&key).ok_or(DataError::UnknownFlow)?;
        if !entry.counts {
            return Ok(entry);
        }
        let edge = self.edge_mut(entry.edge).ok_or(DataError::UnknownFlow)?;
        if let Some(receiver) = &mut edge.receiver {
            let before = receiver.poll_timeout();
            let len = HEADER_LEN + packet.payload().len();
            let (sequence, time) = (packet.sequence(), packet.timestamp_us());
            if !receiver.receive(now, sequence, time, packet.rtt_us(), len) {
                return Err(DataError::Duplicate);
            }
            if receiver.poll_timeout() != before {
                self.schedule(entry.edge);
            }
        }
        Ok(entry)
    }

    /// The other side of a TCP channel says which flow it has come for.
    fn attached(&mut self, meta: &Meta, label: FlowLabel) -> Result<(), DataError> {
        let Meta::Stream(conn, from) = *meta else {
            return Err(DataError::NotYours);
        };
        let id = self
            .labels
            .get(&label)
            .copied()
            .ok_or(DataError::UnknownFlow)?;
        let edge = self.edge(id).ok_or(DataError::UnknownFlow)?;
        let theirs = match edge.carrier {
            Carrier::Stream(address, _) => {
                !edge.up && address.ip().to_canonical() == from.to_canonical()
            }
            _ => false,
        };
        if !theirs || self.streams.contains_key(&conn) {
            return Err(DataError::NotYours);
        }
        self.set_stream(id, conn);
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
        let theirs = match (edge.carrier, meta) {
            (Carrier::Datagram(to), Meta::Datagram(from)) => to == *from,
            _ => false,
        };
        let sender = edge
            .sender
            .as_mut()
            .filter(|_| theirs)
            .ok_or(DataError::NotYours)?;
        sender.report(now, &report);
        if !edge.queue.is_empty() {
            self.ready.insert(id);
        }
        Ok(())
    }

    fn start(&mut self, from: &Entry, end: usize) -> Result<Cursor, DataError> {
        let Entry {
            edge: from,
            flow,
            up,
            ..
        } = *from;
        let state = self.flow_mut(flow).ok_or(DataError::UnknownFlow)?;
        if !up && !state.multi {
            return Err(DataError::WrongDirection);
        }
        let len = (end - HEADER_LEN) as u64;
        state.counts.packets += 1;
        state.counts.bytes += len;
        self.stats.bytes += len;
        Ok(Cursor {
            flow,
            from,
            next: 0,
            end,
            shared: None,
        })
    }
}
