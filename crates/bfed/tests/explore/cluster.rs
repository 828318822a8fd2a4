//! A gateway with two control nodes and a data node, the gateway that owns the session, and a viewer.
//!
//! ```text
//!   etcd -- control node 0 --+-- owner's gateway (network 2)
//!       \-- control node 1 --+        | data
//!                            +-- data node -- viewer (network 1)
//! ```

mod checks;
mod nodes;

use std::collections::BTreeMap;

use bfed::control::TreeStatus;
use bfed::wire::MAX_MESSAGE_LEN;
use bfed::wire::client::Answer;
use bfed::wire::subscribe::Edge;
use bfed::*;
use netsim::explore::{Outbox, START};

use crate::carrier::Carrier;
use crate::election::{self, Client, Etcd, Request, View};
use crate::gateway::{Gateway, REPEAT, SECOND};
use crate::streams::{self, Streams, What};

/// Control nodes have the numbers 0 and 1.
pub(crate) const CONTROLS: usize = 2;
const ETCD: usize = 2;
pub(crate) const OWNER: usize = 3;
const VIEWER: usize = 4;
pub(crate) const DATA: usize = 5;
/// Ends cuts.
const LINK: usize = 6;
/// The client of etcd in control node n is node `CLIENT` + n.
const CLIENT: usize = 7;
const COUNT: usize = CLIENT + CONTROLS;

/// The gateway, as the owner's knows it, and the owner's, as the control nodes know it.
const PEER: PeerId = PeerId(0);

/// What is explored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    /// How often a control node dies, is cut off from etcd, and is cut off from everything.
    pub(crate) deaths: u32,
    pub(crate) etcd_cuts: u32,
    pub(crate) cuts: u32,
    /// Dead control nodes that are started again.
    pub(crate) returns: u32,
    /// How often the stream of the data node breaks while both control nodes believe that they are active.
    pub(crate) breaks: u32,
    /// Whether the viewer may leave.
    pub(crate) leaves: bool,
    /// Clocks of the control nodes do not advance: none notices that its lease has expired.
    pub(crate) is_blind: bool,
    /// How long a control node is cut off.
    pub(crate) cut_for: Duration,
    /// Until when control nodes die or are cut off: it is enough to cover each timer once.
    pub(crate) until: Duration,
}

/// Something that happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    Join,
    Leave,
    Die(usize),
    Return(usize),
    CutFromEtcd(usize),
    Cut(usize),
    Break,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Packet {
    Stream(streams::Packet),
    /// A request of a control node, in its life with this number.
    Ask(usize, u32, Request),
    Answer(election::Answer),
    /// The leader is gone.
    Gone,
    /// The client of etcd has an event for the driver.
    Event,
}

impl From<streams::Packet> for Packet {
    fn from(packet: streams::Packet) -> Self {
        Packet::Stream(packet)
    }
}

/// Numbers of the streams between the control nodes and etcd; those of [`Streams`] are higher.
fn to_etcd(at: usize) -> u32 {
    at as u32
}
fn from_etcd(at: usize) -> u32 {
    10 + at as u32
}
fn gone(at: usize) -> u32 {
    20 + at as u32
}
fn to_driver(at: usize) -> u32 {
    30 + at as u32
}

/// From what a control node is cut off.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Cut {
    Etcd,
    All,
}

/// A control node that runs.
struct Control {
    machine: ControlNode<View>,
    client: Client,
}

#[derive(Default)]
struct Place {
    /// `None` while it is dead.
    control: Option<Control>,
    life: u32,
    /// Until when it is cut off.
    cut: Option<(Cut, Instant)>,
    /// It has dialled the owner while it was cut off.
    is_dialling: bool,
}

/// The viewer, which wants the session or not.
#[derive(Debug, Hash, Default)]
struct Viewer {
    /// When the next request is due, while it wants the session.
    request_at: Option<Instant>,
    requests: u64,
    /// Requests without an answer, and the control node that has them.
    open: BTreeMap<ClientId, usize>,
    /// The addresses of the session, while it has it.
    addresses: Option<Vec<ChannelAddress>>,
    /// It has received data since it joined.
    has_received: bool,
}

#[derive(Clone, Copy, Debug, Hash, Default)]
struct Counts {
    deaths: u32,
    etcd_cuts: u32,
    cuts: u32,
    returns: u32,
    breaks: u32,
}

pub(crate) struct Cluster {
    setup: Setup,
    places: [Place; CONTROLS],
    etcd: Etcd,
    owner: Gateway,
    viewer: Viewer,
    data: Carrier,
    streams: Streams,
    counts: Counts,
    violation: Option<String>,
    now: Instant,
    buffer: Vec<u8>,
}

pub(crate) fn session() -> SessionName {
    SessionName::parse("bfed://2/a").expect("a name")
}

fn id(network: u32) -> GatewayId {
    GatewayId::new(network, 1).expect("not 0")
}

fn config(network: u32) -> Config {
    let mut config = Config::new(id(network));
    config.tables = Tables::NONE.with(session().table());
    config.damping = None;
    config.hold_time_s = 0;
    config.restart_time_s = 60;
    config.advertisement_interval = Duration::ZERO;
    config.retry_delay = SECOND;
    config.refresh_interval = SECOND * 3;
    config.soft_state_lifetime = SECOND * 6;
    // Longer than a data node takes to find the successor: heartbeats are this rare to keep the world small.
    config.join_timeout = SECOND * 10;
    config.refusal_time = SECOND;
    config.heartbeat_interval = SECOND;
    config
}

fn control(now: Instant, is_blind: bool, seed: u8, is_restart: bool) -> Control {
    let (client, view) = Client::new(now, is_blind);
    let mut config = config(1);
    config.restarting = is_restart;
    let machine = ControlNode::with_coordinator(config, view, [seed; 32], now);
    let mut machine = machine.expect("a configuration");
    let added = machine.add_peer(now, PEER, PeerConfig::new(id(2)));
    added.expect("a peer");
    Control { machine, client }
}

impl Cluster {
    pub(crate) fn new(setup: Setup) -> Self {
        let mut config = config(2);
        config.heartbeat_interval = SECOND * 3600;
        let mut owner = Gateway::new(config, 9, session());
        let mut peer = PeerConfig::new(id(1));
        peer.dial = false;
        owner.control.add_peer(START, PEER, peer).expect("a peer");
        let place = |seed| Place {
            control: Some(control(START, setup.is_blind, seed, false)),
            ..Place::default()
        };
        Cluster {
            setup,
            places: [place(1), place(2)],
            etcd: Etcd::default(),
            owner,
            viewer: Viewer::default(),
            data: Carrier::new(),
            streams: Streams::default(),
            counts: Counts::default(),
            violation: None,
            now: START,
            buffer: vec![0; MAX_MESSAGE_LEN],
        }
    }

    fn has_etcd(&self, at: usize) -> bool {
        self.places[at].cut.is_none()
    }

    fn is_reachable(&self, at: usize) -> bool {
        let is_cut = matches!(self.places[at].cut, Some((Cut::All, _)));
        self.places[at].control.is_some() && !is_cut
    }

    fn violated(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    /// Calls a control node's machine as the driver does.
    fn drive(
        &mut self,
        now: Instant,
        at: usize,
        out: &mut Outbox<Packet>,
        input: impl FnOnce(&mut ControlNode<View>),
    ) {
        let Some(Control { machine, .. }) = &mut self.places[at].control else {
            return;
        };
        machine.coordinator_mut().now = now;
        input(machine);
        self.step_down_in_time(now, at);
        while let Some(Control { machine, .. }) = &mut self.places[at].control {
            machine.handle_timeout(now);
            self.drain(now, at, out);
            if !self.is_due(now, at) {
                break;
            }
        }
    }

    fn is_due(&self, now: Instant, at: usize) -> bool {
        let control = self.places[at].control.as_ref();
        let due = control.and_then(|control| control.machine.poll_timeout());
        due.is_some_and(|due| due <= now)
    }

    fn step_down_in_time(&mut self, now: Instant, at: usize) {
        let Some(Control { machine, .. }) = &mut self.places[at].control else {
            return;
        };
        machine.coordinator_mut().now = now;
        if machine.coordinator_mut().step_down_in_time() {
            machine.coordinator_changed(now);
        }
        if !machine.coordinator().is_active() {
            // Its requests are lost.
            self.viewer.open.retain(|_, control| *control != at);
        }
    }

    /// Lets the client of etcd act.
    fn client_turn(&mut self, now: Instant, at: usize, out: &mut Outbox<Packet>) {
        let has_etcd = self.has_etcd(at);
        let place = &mut self.places[at];
        let Some(Control { client, .. }) = &mut place.control else {
            return;
        };
        let was_waiting = client.is_waiting();
        client.handle_timeout(now);
        if was_waiting && !client.is_waiting() {
            out.end_stream(ETCD, to_etcd(at));
            out.end_stream(CLIENT + at, from_etcd(at));
        }
        if let Some(request) = client.request.take().filter(|_| has_etcd) {
            let ask = Packet::Ask(at, place.life, request);
            out.send_in_stream(ETCD, to_etcd(at), ask);
        }
        while client.has_more_events() {
            out.send_in_stream(at, to_driver(at), Packet::Event);
        }
    }

    /// Does what the machine asks for.
    fn drain(&mut self, now: Instant, at: usize, out: &mut Outbox<Packet>) {
        let mut buffer = core::mem::take(&mut self.buffer);
        while let Some(Control { machine, .. }) = &mut self.places[at].control {
            if let Some(event) = machine.poll_event() {
                self.event(at, event, out);
            } else if let Some(transmit) = machine.poll_transmit(now, &mut buffer) {
                self.send(at, transmit.conn, &buffer[..transmit.len], out);
            } else {
                break;
            }
        }
        self.buffer = buffer;
    }

    fn send(&mut self, at: usize, conn: ConnId, message: &[u8], out: &mut Outbox<Packet>) {
        if self.streams.has(conn, at) {
            let (to, _) = self.streams.other_end(conn, at);
            let what = What::Message(streams::without_counters(message));
            self.streams.post(conn, to, what, out);
        }
    }

    fn event(&mut self, at: usize, event: Event, out: &mut Outbox<Packet>) {
        match event {
            Event::Dial(_) if self.is_reachable(at) => {
                self.streams.open_from(at, OWNER, out);
            }
            Event::Dial(_) => self.places[at].is_dialling = true,
            Event::Close(conn) => self.streams.close(conn, at, out),
            Event::Answer { client, answer, .. } => self.answer(at, client, answer),
            Event::Moved { addresses, .. } => self.moved(addresses),
            Event::Ended { reason, .. } => {
                self.violated(format!("control node {at} ends the session: {reason:?}"));
            }
            _ => {}
        }
    }

    fn moved(&mut self, addresses: Vec<ChannelAddress>) {
        if self.viewer.request_at.is_some() {
            self.viewer.addresses = Some(addresses);
        }
    }

    fn answer(&mut self, at: usize, client: ClientId, answer: Answer) {
        if self.viewer.open.remove(&client) != Some(at) && !self.setup.is_blind {
            self.violated(format!("control node {at} answers {client:?} once more"));
        }
        match answer {
            Answer::Translation(addresses) => self.moved(addresses),
            other => self.violated(format!("control node {at} answers {other:?}")),
        }
    }

    /// The viewer sends a request to all control nodes.
    fn request(&mut self, now: Instant, out: &mut Outbox<Packet>) {
        self.viewer.request_at = Some(now + REPEAT);
        self.viewer.requests += 1;
        let client = ClientId(self.viewer.requests);
        for at in (0..CONTROLS)
            .filter(|&at| self.is_reachable(at))
            .collect::<Vec<_>>()
        {
            self.step_down_in_time(now, at);
            let control = self.places[at].control.as_ref();
            if control.is_some_and(|control| control.machine.coordinator().is_active()) {
                self.viewer.open.insert(client, at);
            }
            self.drive(now, at, out, |machine| {
                machine.join(now, client, session(), 0, Scope::Chosen);
            });
        }
    }

    fn drive_owner(&mut self, now: Instant, out: &mut Outbox<Packet>) {
        let mut buffer = core::mem::take(&mut self.buffer);
        self.owner.control.handle_timeout(now);
        loop {
            if let Some(event) = self.owner.control.poll_event() {
                if let Event::Close(conn) = event {
                    self.streams.close(conn, OWNER, out);
                }
                continue;
            }
            let Some(transmit) = self.owner.control.poll_transmit(now, &mut buffer) else {
                break;
            };
            let message = &buffer[..transmit.len];
            if transmit.conn != crate::gateway::NODE {
                self.send(OWNER, transmit.conn, message, out);
            } else if let Some(answer) = self.owner.node_answers(message) {
                self.owner.answered(now, &answer);
            }
        }
        self.buffer = buffer;
        self.probe(now);
    }

    fn drive_data(&mut self, now: Instant, out: &mut Outbox<Packet>) {
        for message in self.data.drive(now) {
            if let Some(conn) = self.data.conn {
                self.send(DATA, conn, &message, out);
            }
        }
        if std::mem::take(&mut self.data.is_lost)
            && let Some(conn) = self.data.conn
        {
            self.streams.close(conn, DATA, out);
            self.data.disconnected(now);
        }
        self.probe(now);
    }

    /// Dials the next control node.
    fn dial(&mut self, now: Instant) {
        let at = self.data.next_control();
        if self.is_reachable(at) {
            self.data.connected(now, self.streams.connect(DATA, at));
        } else {
            self.data.refused(now);
        }
    }

    /// Lets the owner's data node send a packet.
    fn probe(&mut self, now: Instant) {
        let edge = Edge::Peer {
            peer: PEER,
            rate_bps: 0,
        };
        let own = self.owner.receivers().find(|(to, _)| **to == edge);
        let label = own.and_then(|(_, own)| own.first()?.label);
        self.data.probe(now, label);
        self.viewer.has_received |= self.receives();
    }

    /// Whether data flows to the addresses of the viewer.
    fn receives(&self) -> bool {
        let wanted = self.viewer.addresses.iter().flatten();
        self.data.delivers_to.iter().eq(wanted) && self.viewer.addresses.is_some()
    }

    fn control_packet(
        &mut self,
        now: Instant,
        at: usize,
        packet: &streams::Packet,
        out: &mut Outbox<Packet>,
    ) {
        let conn = packet.conn;
        if !self.streams.has(conn, at) {
            return;
        }
        let (from, has_dialled) = self.streams.other_end(conn, at);
        match &packet.what {
            What::Opened => self.drive(now, at, out, |machine| {
                machine.connected(now, conn, PEER, has_dialled);
            }),
            What::Message(bytes) => {
                let is_first = from == DATA && self.streams.begins(conn);
                self.drive(now, at, out, |machine| {
                    if is_first {
                        machine.node_connected(now, conn, NodeIdentity::default());
                    }
                    // What is refused is counted.
                    let _ = machine.handle_packet(now, &conn, bytes);
                });
            }
            What::Closed | What::Broken => {
                self.streams.ended(conn, at, out);
                self.drive(now, at, out, |machine| machine.disconnected(now, conn));
            }
        }
    }

    fn owner_packet(&mut self, now: Instant, packet: &streams::Packet, out: &mut Outbox<Packet>) {
        let conn = packet.conn;
        if !self.streams.has(conn, OWNER) {
            return;
        }
        let owner = &mut self.owner.control;
        match &packet.what {
            What::Message(bytes) => {
                if self.streams.begins(conn) {
                    owner.connected(now, conn, PEER, false);
                }
                let _ = owner.handle_packet(now, &conn, bytes);
            }
            What::Opened => {}
            What::Closed | What::Broken => {
                owner.disconnected(now, conn);
                self.streams.ended(conn, OWNER, out);
            }
        }
        self.drive_owner(now, out);
    }

    fn data_packet(&mut self, now: Instant, packet: &streams::Packet, out: &mut Outbox<Packet>) {
        if self.data.conn != Some(packet.conn) {
            return;
        }
        match &packet.what {
            What::Message(bytes) => {
                if let Err(violation) = self.data.handle_message(now, bytes) {
                    self.violated(violation);
                }
            }
            What::Opened => {}
            What::Closed | What::Broken => {
                self.streams.ended(packet.conn, DATA, out);
                self.data.disconnected(now);
            }
        }
        self.drive_data(now, out);
    }

    fn die(&mut self, at: usize, out: &mut Outbox<Packet>) {
        let place = &mut self.places[at];
        (place.control, place.cut, place.is_dialling) = (None, None, false);
        place.life += 1;
        self.viewer.open.retain(|_, control| *control != at);
        self.streams.leave(at, out);
    }

    fn cut(&mut self, now: Instant, at: usize, cut: Cut, out: &mut Outbox<Packet>) {
        self.places[at].cut = Some((cut, now + self.setup.cut_for));
        out.end_stream(CLIENT + at, from_etcd(at));
        out.end_stream(CLIENT + at, gone(at));
        if cut == Cut::All {
            self.streams.stall_all(at, out);
        }
    }

    /// Ends the cut of a control node.
    fn heal(&mut self, at: usize, out: &mut Outbox<Packet>) {
        let place = &mut self.places[at];
        let cut = place.cut.take();
        let is_dialling = std::mem::take(&mut place.is_dialling);
        if matches!(cut, Some((Cut::All, _))) {
            self.streams.break_all(|ends| ends.contains(&at), out);
        }
        if is_dialling {
            self.streams.open_from(at, OWNER, out);
        }
    }

    fn tree(&self, at: usize) -> Option<TreeStatus> {
        self.places[at].control.as_ref()?.machine.trees().next()
    }

    fn actives(&self) -> impl Iterator<Item = usize> {
        (0..CONTROLS).filter(|&at| {
            let control = self.places[at].control.as_ref();
            control.is_some_and(|control| control.machine.coordinator().is_active())
        })
    }
}
