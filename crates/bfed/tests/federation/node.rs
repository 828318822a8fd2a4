//! A data node without data: it records what the control node tells it, and answers at once.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use bfed::wire::Message;
use bfed::wire::allocate::{Outcome as Done, Response};
use bfed::wire::join::FlowChannel;
use bfed::wire::reclaim::ReclaimTarget;
use bfed::wire::subscribe::Edge;
use bfed::*;

/// What a data node has for a session.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub(crate) struct SessionRecord {
    pub(crate) up: Option<(Edge, Vec<FlowChannel>)>,
    pub(crate) allocated: BTreeMap<Edge, Vec<FlowChannel>>,
    pub(crate) down: BTreeMap<Edge, (Vec<FlowChannel>, Vec<FlowChannel>)>,
    pub(crate) refreshes: u32,
}

pub(crate) struct FakeNode {
    pub(crate) conn: ConnId,
    pub(crate) next_label: u32,
    pub(crate) records: BTreeMap<SessionName, SessionRecord>,
    pub(crate) alive: bool,
    pub(crate) epoch: u64,
    pub(crate) at: (u8, u8),
    pub(crate) heartbeat_at: Instant,
}

impl FakeNode {
    fn channels(&mut self, session: &SessionName, native: bool) -> Vec<FlowChannel> {
        let (gw, node) = self.at;
        let count = session.flow_count();
        (0..count)
            .map(|_| {
                self.next_label += 1;
                let port = (self.next_label % 60_000) as u16 + 1;
                let socket = SocketAddr::from(([10, gw, node, 1], port));
                let address = match (native, session.content()) {
                    (true, _) => ChannelAddress::Native(format!("{socket}").into_bytes()),
                    (false, Content::RealTime) => ChannelAddress::Datagram(socket),
                    (false, Content::Bulk) => ChannelAddress::Stream(socket),
                };
                let label = FlowLabel::new(self.next_label).filter(|_| !native);
                FlowChannel { label, address }
            })
            .collect()
    }

    /// Receives a message. Returns the answer.
    pub(crate) fn receive(
        &mut self,
        message: Message,
        missing: &BTreeSet<SessionName>,
    ) -> Option<Message> {
        let done = |request, flows, session| {
            let outcome = Done::Done;
            Some(Message::AllocateResponse(Response {
                request,
                outcome,
                flows,
                session,
            }))
        };
        match message {
            Message::Heartbeat(beat) => {
                assert!(beat.epoch >= self.epoch);
                self.epoch = beat.epoch;
                None
            }
            Message::Allocate(ask) => {
                let mut flows = self.channels(&ask.session, false);
                if !ask.session.multi_source() {
                    flows.iter_mut().for_each(|flow| flow.label = None);
                }
                let records = self.records.entry(ask.session.clone()).or_default();
                let flows = records.allocated.entry(ask.edge).or_insert(flows).clone();
                done(ask.request, flows, ask.session)
            }
            Message::Subscribe(ask) if ask.up => {
                if missing.contains(&ask.session) {
                    let (request, session) = (ask.request, ask.session);
                    let (outcome, flows) = (Done::NoSession, Vec::new());
                    let response = Response {
                        request,
                        outcome,
                        flows,
                        session,
                    };
                    return Some(Message::AllocateResponse(response));
                }
                let records = self.records.entry(ask.session.clone()).or_default();
                records.up = Some((ask.edge, ask.flows));
                done(ask.request, Vec::new(), ask.session)
            }
            Message::Subscribe(ask) => {
                let own = self.channels(&ask.session, ask.edge == Edge::Native);
                let records = self.records.entry(ask.session.clone()).or_default();
                records.down.insert(ask.edge, (ask.flows, own.clone()));
                done(ask.request, own, ask.session)
            }
            Message::Reclaim(gone) => {
                let records = self.records.get_mut(&gone.session)?;
                match gone.what {
                    None => records.refreshes += 1,
                    Some(ReclaimTarget::All) => {
                        self.records.remove(&gone.session);
                    }
                    Some(ReclaimTarget::Receiver(edge)) => {
                        records.down.remove(&edge);
                    }
                    Some(ReclaimTarget::Source(edge)) => {
                        records.allocated.remove(&edge);
                        if records.up.as_ref().is_some_and(|(up, _)| *up == edge) {
                            records.up = None;
                        }
                    }
                }
                None
            }
            other => panic!("unexpected message {other:?}"),
        }
    }
}
