//! The data node upstream: keeps packets, sends them again and protects them.

use alloc::sync::Arc;
use alloc::vec::Vec;

use proto_core::time::Instant;

use super::super::paths::max_payload;
use super::super::queue::{Payload, Timing};
use super::super::{DataError, Destination, EdgeId, HEADER_LEN, Meta, Plane, Transmit};
use super::parity::Made;
use super::store::Refused;
use crate::wire::data::{Kind, Packet, Repr};
use crate::wire::repair::Request;

impl Plane {
    /// Keeps a packet that has just been sent on an edge to a data node that may ask for it again.
    pub(in super::super) fn keep(
        &mut self,
        now: Instant,
        id: EdgeId,
        packet: (Kind, Arc<[u8]>),
        timing: Timing,
    ) {
        let Some(edge) = self.edges.get_mut(id.index) else {
            return;
        };
        let Some(store) = &mut edge.rest.store else {
            return;
        };
        let parity = store.protect(now, packet.clone(), timing);
        let is_first = store.keep(now, packet, timing, &mut self.pool);
        if let Some(parity) = parity {
            self.queue_parity(now, id, parity);
        }
        if is_first {
            self.schedule(id);
        }
    }

    /// Queues the parity of a block, if packets on the link can be that long.
    fn queue_parity(&mut self, now: Instant, id: EdgeId, made: Made) {
        let Some(edge) = self.edge(id) else {
            return;
        };
        let (link, max) = (edge.link, max_payload(&self.config, &self.paths, edge.to));
        let fits = |payload: &Arc<[u8]>| max.is_some_and(|(max, _)| payload.len() <= max);
        for bytes in made.payloads.into_iter().filter(fits) {
            self.count(link, |repairs| repairs.parity += 1);
            let payload = Payload {
                kind: Kind::Parity,
                bytes,
                number: Some(made.first),
            };
            self.enqueue(now, id, payload, made.timing);
        }
        self.ready.insert(id);
    }

    /// Gives an edge a store for sent packets, unless repairs are off.
    pub(in super::super) fn begin_store(&mut self, id: EdgeId) {
        let repairs = self.config.repairs;
        if let Some(edge) = self.edge_mut(id).filter(|_| repairs) {
            edge.rest.store.get_or_insert_default();
        }
    }

    /// Handles a REPAIR_REQUEST.
    #[cold]
    pub(in super::super) fn repair_requested(
        &mut self,
        now: Instant,
        meta: &Meta,
        packet: &Packet<&[u8]>,
    ) -> Result<(), DataError> {
        let request = Request::parse(packet.payload()).map_err(|_| DataError::Malformed)?;
        let id = self.labels.get(&packet.label()).copied();
        let id = id.ok_or(DataError::UnknownFlow)?;
        let rtt = self.transit(id) * 2;
        let edge = self.edge_mut(id).ok_or(DataError::UnknownFlow)?;
        let theirs = match *meta {
            Meta::Datagram(from) => edge.to == Some(Destination::Datagram(from)),
            Meta::Path(path) => edge.to == Some(Destination::Path(path)),
            _ => false,
        };
        if !theirs || edge.up || edge.unproved {
            return Err(DataError::NotYours);
        }
        let link = edge.link;
        let store = edge.rest.store.as_mut().ok_or(DataError::NotYours)?;
        let (mut again, mut gone, mut refused) = (Vec::new(), 0, 0);
        for sequence in request.packets() {
            match store.again(now, sequence, rtt) {
                Ok(packet) => again.push((sequence, packet)),
                Err(Refused::Gone) => gone += 1,
                Err(Refused::Rate) => refused += 1,
            }
        }
        if gone > 0 {
            store.raise_parity();
        }
        let answered = again.len() as u64;
        self.count(link, |repairs| repairs.answered += answered);
        self.stats.drop(DataError::RepairGone, gone);
        self.stats.drop(DataError::RepairRate, refused);
        for (sequence, (kind, bytes, timing)) in again {
            let payload = Payload {
                number: Some(sequence),
                ..Payload::from((kind, bytes))
            };
            self.enqueue(now, id, payload, timing);
        }
        self.ready.insert(id);
        Ok(())
    }

    /// Writes the TAIL of an edge that is due.
    pub(in super::super) fn say_tail(
        &mut self,
        now: Instant,
        id: EdgeId,
        buffer: &mut [u8],
    ) -> Option<Transmit> {
        let transit = self.transit(id);
        let edge = self.edge_mut(id)?;
        let store = edge.rest.store.as_mut()?;
        let timing = store.poll_tail(now)?;
        let (sequence, parity) = (store.sequence(), store.end_block());
        if let Some(parity) = parity {
            self.queue_parity(now, id, parity);
        }
        let edge = self.edge(id)?;
        // Where packets wait, the last one was not the last.
        if edge.waits() || edge.unproved {
            return None;
        }
        let (label, to) = (edge.label_out?, edge.to?);
        Repr {
            sequence,
            class: timing.class,
            age_ms: timing.age_ms(now, transit),
            ..Repr::new(Kind::Tail, label)
        }
        .emit(buffer);
        Some(Transmit {
            edge: id,
            to,
            range: 0..HEADER_LEN,
        })
    }
}
