//! The bodies of control messages.

use std::net::SocketAddr;

use bfed::wire::client::Answer;
use bfed::wire::join::FlowChannel;
use bfed::wire::reclaim::ReclaimTarget;
use bfed::wire::sroute::GatewayCost;
use bfed::wire::subscribe::Edge;
use bfed::wire::{Message, client, open, statistics, subscribe, update};
use bfed::{ChannelAddress, GatewayId, SessionName};

use crate::Fields;

fn gateway(fields: &mut Fields, gateway: GatewayId) {
    fields
        .put("network", gateway.network.get())
        .put("gateway", gateway.number);
}

fn gateways(fields: &mut Fields, list: &[GatewayId]) {
    fields.put("count", list.len());
    list.iter().for_each(|&one| gateway(fields, one));
}

fn costs(fields: &mut Fields, list: &[GatewayCost]) {
    fields.put("count", list.len());
    for cost in list {
        gateway(fields, cost.gateway);
        fields.put("cost", cost.cost.0);
    }
}

fn address(fields: &mut Fields, address: &ChannelAddress) {
    let (kinds, socket, certificate) = match address {
        ChannelAddress::Datagram(socket) => ([1, 3], socket, None),
        ChannelAddress::Stream(socket) => ([2, 4], socket, None),
        ChannelAddress::Quic(socket, certificate) => ([6, 7], socket, Some(certificate)),
        ChannelAddress::Native(bytes) => {
            fields
                .put("address_kind", 5)
                .put("address_length", bytes.len())
                .bytes("native", bytes);
            return;
        }
    };
    let more = certificate.map_or(0, |certificate| certificate.0.len());
    match socket {
        SocketAddr::V4(v4) => fields
            .put("address_kind", kinds[0])
            .put("address_length", 6 + more)
            .put("address", v4.ip()),
        SocketAddr::V6(v6) => fields
            .put("address_kind", kinds[1])
            .put("address_length", 18 + more)
            .put("address6", v6.ip()),
    };
    fields.put("port", socket.port());
    if let Some(certificate) = certificate {
        fields.bytes("certificate", &certificate.0);
    }
}

fn flows(fields: &mut Fields, flows: &[FlowChannel]) {
    fields.put("count", flows.len());
    for flow in flows {
        fields.put("label", flow.label.map_or(0, |label| label.get()));
        address(fields, &flow.address);
    }
}

fn edge(fields: &mut Fields, edge: &Edge) {
    match edge {
        Edge::Native => fields.put("edge", 0),
        Edge::Peer { peer, rate_bps } => fields
            .put("edge", 1)
            .put("peer", peer.0)
            .put("rate", rate_bps),
    };
}

fn session(fields: &mut Fields, name: &SessionName) {
    fields
        .put("name_length", name.as_str().len())
        .put("session", name.as_str());
}

fn text(fields: &mut Fields, text: &str) {
    fields.put("text_length", text.len());
    if !text.is_empty() {
        fields.put("text", text);
    }
}

/// What tells the parser's value from the bytes: bits and entries that it passes over.
fn open(fields: &mut Fields, open: &open::Repr, body: &[u8]) -> Option<()> {
    fields
        .put("version_low", open.version_low)
        .put("version_high", open.version_high)
        .put("hold_time", open.hold_time_s);
    gateway(fields, open.gateway);
    fields.put("boot", open.boot);
    let count = u16::from_be_bytes([body[16], body[17]]);
    fields.put("count", count);
    let mut rest = &body[18..];
    while let [kind, len, more @ ..] = rest {
        let (value, left) = more.split_at_checked(usize::from(*len))?;
        fields.put("capability", kind).put("capability_length", len);
        match kind {
            1 => {
                assert_eq!(
                    u16::from_be_bytes([value[0], value[1]]) & 0xfff,
                    open.tables.bits()
                );
                fields.put("tables", u16::from_be_bytes([value[0], value[1]]));
            }
            2 => {
                let graceful = open.graceful?;
                fields
                    .put("restart_flags", u16::from_be_bytes([value[0], value[1]]))
                    .flag("restarting", graceful.restarting)
                    .flag("preserved", graceful.preserved)
                    .put("restart_time", graceful.restart_time_s);
            }
            3 => drop(fields.put("transport", open.transport as u8)),
            4 => assert!(open.echo && value.is_empty()),
            _ if value.is_empty() => {}
            _ => {
                fields.bytes("unknown", value);
            }
        }
        rest = left;
    }
    Some(())
}

/// The attributes are written in one order, so flags and order are the golden's own.
fn update(fields: &mut Fields, update: &update::Repr) {
    fields.put("table", update.table.number());
    gateways(fields, &update.withdrawn);
    fields.put("count", update.announced.len());
    for route in &update.announced {
        gateway(fields, route.destination);
        let attributes = &route.attributes;
        let tags = attributes.tags.len();
        let len = 8 + 4 + 8 * attributes.path.len() + if tags > 0 { 4 + 4 * tags } else { 0 };
        fields.put("attributes_length", len);
        let head = |fields: &mut Fields, flags: u8, kind: u8, len: usize| {
            fields
                .put("attribute_flags", flags)
                .flag("optional", flags != 0)
                .put("attribute", kind)
                .put("attribute_length", len);
        };
        head(fields, 0, 1, 4);
        fields.put("cost", attributes.cost.0);
        head(fields, 0, 2, 8 * attributes.path.len());
        attributes.path.iter().for_each(|&one| gateway(fields, one));
        if tags > 0 {
            head(fields, 0x80, 3, 4 * tags);
            for tag in &attributes.tags {
                fields.put("tag", tag);
            }
        }
    }
}

fn peering(fields: &mut Fields, message: &Message, body: &[u8]) -> Option<()> {
    match message {
        Message::Open(repr) => open(fields, repr, body)?,
        Message::KeepAlive => {}
        Message::Notification(repr) => {
            fields.put("end_reason", repr.reason as u8);
            text(fields, &repr.text);
        }
        Message::Update(repr) => update(fields, repr),
        Message::EndOfTable(table) => {
            fields.put("table", table.number());
        }
        Message::Echo(repr) => {
            fields.put("echo_token", repr.token);
        }
        Message::SrouteRequest(repr) => {
            fields.put("request", repr.request);
            gateway(fields, repr.towards);
            fields
                .put("hop_limit", repr.hop_limit)
                .put("internal", u8::from(repr.internal));
            gateways(fields, &repr.gateways);
            session(fields, &repr.session);
        }
        Message::SrouteResponse(repr) => {
            fields
                .put("request", repr.request)
                .put("sroute_outcome", repr.outcome as u8);
            costs(fields, &repr.costs);
            session(fields, &repr.session);
        }
        Message::Join(repr) => {
            fields
                .put("flags", u8::from(repr.sroutes.is_some()))
                .flag("sroute_known", repr.sroutes.is_some())
                .put("hop_limit", repr.hop_limit);
            costs(fields, repr.sroutes.as_deref().unwrap_or(&[]));
            flows(fields, &repr.flows);
            session(fields, &repr.session);
        }
        Message::Leave(name) => session(fields, name),
        Message::Translation(repr) => {
            gateways(fields, &repr.path);
            flows(fields, &repr.flows);
            session(fields, &repr.session);
        }
        Message::NoRoute(repr) => {
            fields.put("no_route_reason", repr.reason as u8);
            session(fields, &repr.session);
        }
        _ => return None,
    }
    Some(())
}

fn subscribe(fields: &mut Fields, repr: &subscribe::Repr) {
    fields.put("request", repr.request).put("epoch", repr.epoch);
    edge(fields, &repr.edge);
    flows(fields, &repr.flows);
    session(fields, &repr.session);
}

fn statistics(fields: &mut Fields, repr: &statistics::Repr) {
    fields
        .put("sessions", repr.sessions)
        .put("forwarded", repr.rate_bps)
        .put("count", repr.entries.len());
    for entry in &repr.entries {
        fields
            .put("packets", entry.packets)
            .put("bytes", entry.bytes)
            .put("copies", entry.copies)
            .put("dropped", entry.dropped);
        session(fields, &entry.session);
    }
}

fn cluster(fields: &mut Fields, message: &Message) {
    match message {
        Message::Register(repr) => {
            fields
                .put("node", repr.node.0)
                .put("boot", repr.boot)
                .put("max_sessions", repr.max_sessions)
                .put("epoch", repr.epoch);
        }
        Message::Heartbeat(repr) => {
            fields
                .put("epoch", repr.epoch)
                .put("sequence", repr.sequence)
                .put(
                    "heartbeat_flags",
                    u8::from(repr.draining) | u8::from(repr.complete) << 1,
                )
                .flag("draining", repr.draining)
                .flag("complete", repr.complete);
        }
        Message::Subscribe(repr) => subscribe(fields, repr),
        Message::Allocate(repr) => {
            fields.put("request", repr.request).put("epoch", repr.epoch);
            edge(fields, &repr.edge);
            fields.put("transport", repr.transport as u8);
            session(fields, &repr.session);
        }
        Message::AllocateResponse(repr) => {
            fields
                .put("request", repr.request)
                .put("outcome", repr.outcome as u8);
            flows(fields, &repr.flows);
            session(fields, &repr.session);
        }
        Message::Reclaim(repr) => {
            fields.put("epoch", repr.epoch);
            match &repr.what {
                None => {}
                Some(ReclaimTarget::All) => drop(fields.put("what", 0)),
                Some(ReclaimTarget::Receiver(gone)) => edge(fields.put("what", 1), gone),
                Some(ReclaimTarget::Source(gone)) => edge(fields.put("what", 2), gone),
            }
            session(fields, &repr.session);
        }
        Message::Statistics(repr) => statistics(fields, repr),
        Message::Liveness(repr) => {
            fields
                .put("peer", repr.peer.0)
                .put("state", repr.state as u8);
        }
        Message::Request(repr) => {
            fields
                .put("nonce", repr.nonce)
                .put("want", repr.want as u8)
                .put("redirects", repr.redirects);
            session(fields, &repr.session);
            if let Some(token) = &repr.token {
                fields
                    .put("token_length", token.as_str().len())
                    .put("token", token.as_str());
            }
        }
        Message::Answer(repr) => answer(fields, repr),
        _ => unreachable!("a message of a peering"),
    }
}

fn answer(fields: &mut Fields, repr: &client::AnswerRepr) {
    let kind = match &repr.answer {
        Answer::Translation(_) => 1,
        Answer::NoRoute(_) => 2,
        Answer::Redirect { .. } => 3,
        Answer::Cost(_) => 4,
    };
    fields
        .put("nonce", repr.nonce)
        .put("answer", kind)
        .put("lifetime", repr.lifetime_s);
    match &repr.answer {
        Answer::Translation(list) => {
            fields.put("count", list.len());
            list.iter().for_each(|one| address(fields, one));
        }
        Answer::NoRoute(reason) => {
            fields.put("no_route_reason", *reason as u8);
        }
        Answer::Redirect {
            gateway: to,
            mediator,
        } => {
            gateway(fields, *to);
            text(fields, mediator);
        }
        Answer::Cost(cost) => {
            fields.put("cost", cost.0);
        }
    }
    session(fields, &repr.session);
}

pub(super) fn read(fields: &mut Fields, bytes: &[u8]) -> Option<()> {
    let message = Message::parse(bytes).ok()?;
    if peering(fields, &message, &bytes[8..]).is_none() {
        cluster(fields, &message);
    }
    Some(())
}
