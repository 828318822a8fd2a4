//! Clients, their mediators, and sources.

use std::collections::{BTreeMap, BTreeSet};

use bfed::wire::client::Answer;
use bfed::wire::no_route::Reason;
use bfed::{ChannelAddress, ClientId, Content, Duration, Event, Instant, Scope, SessionName};

use super::host::own_address;
use super::plan::Component;
use super::world::{End, Happening, World};

/// Between a client and a mediator.
const NEAR: Duration = Duration::from_millis(2);
/// Until a client asks again.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Between two frames of a source, and of a client: while all of them must arrive, and before.
const PUBLISH_INTERVALS: [Duration; 2] = [Duration::from_millis(400), Duration::from_secs(1)];

/// The clients of one gateway, by session, and until when they want it.
#[derive(Default)]
pub(super) struct Mediator(pub(super) BTreeMap<SessionName, BTreeMap<usize, Instant>>);

/// A frame's source (0: that of the owner's network), flow and number.
pub(super) type FrameId = (u32, usize, u64);

/// A client of a session.
pub(super) struct Client {
    pub(super) wants: bool,
    /// The gateway that it asks, or that serves it.
    pub(super) at: usize,
    redirects: u8,
    asked: Option<(ClientId, Instant)>,
    ask_at: Instant,
    /// The addresses that it listens to, by flow, and until when.
    pub(super) listens: Option<(Vec<Vec<u8>>, Instant)>,
    /// Why it does not receive the session.
    pub(super) reason: Option<String>,
    /// Frames of the window, and how often each came.
    pub(super) heard: BTreeMap<FrameId, u32>,
    /// The last frame of each source and flow, where frames keep their order.
    last: BTreeMap<(u32, usize), u64>,
    /// Gateways that know of it.
    known_at: BTreeSet<usize>,
    next_request: u64,
}

impl Client {
    pub(super) fn new(home: usize) -> Self {
        Self {
            wants: false,
            at: home,
            redirects: 0,
            asked: None,
            ask_at: Instant::ZERO,
            listens: None,
            reason: None,
            heard: BTreeMap::new(),
            last: BTreeMap::new(),
            known_at: BTreeSet::new(),
            next_request: 0,
        }
    }

    /// Whether it receives the session.
    pub(super) fn is_served(&self) -> bool {
        self.listens.is_some()
    }
}

/// What a frame carries: session, source, flow and number, and bytes that depend on them.
fn frame(session: usize, (source, flow, number): FrameId) -> Vec<u8> {
    let mut bytes = vec![session as u8, flow as u8];
    bytes.extend(source.to_be_bytes());
    bytes.extend(number.to_be_bytes());
    let len = 14 + (number * 37 % 400) as usize;
    bytes.resize(len, number as u8 ^ source as u8);
    bytes
}

fn parse(bytes: &[u8]) -> Option<(usize, FrameId)> {
    let session = usize::from(*bytes.first()?);
    let flow = usize::from(*bytes.get(1)?);
    let source = u32::from_be_bytes(bytes.get(2..6)?.try_into().ok()?);
    let number = u64::from_be_bytes(bytes.get(6..14)?.try_into().ok()?);
    let id = (source, flow, number);
    (frame(session, id) == bytes).then_some((session, id))
}

impl World {
    pub(super) fn happen(&mut self, what: Happening) {
        match what {
            Happening::Fails(fault) => self.fails(fault, true),
            Happening::Returns(fault) => self.fails(fault, false),
            Happening::Wants(client, wants, silent) => self.wants(client, wants, silent),
            Happening::Tick(client) => {
                self.tick_client(client);
                self.after(Duration::from_secs(1), Happening::Tick(client));
            }
            Happening::Ask(at, client, id, redirects) => self.asked(at, client, id, redirects),
            Happening::Leave(at, client) => self.left(at, client),
            Happening::Answered(client, at, answer, lifetime) => {
                self.answered(client, at, answer, lifetime);
            }
            Happening::Frame(host, boot, channel, data) => self.frame(host, boot, channel, &data),
            Happening::Heard(client, address, data) => self.heard(client, &address, &data),
            Happening::Publish(session) => self.publish(session),
            Happening::Dial(host, boot) => self.dial_control(host, boot),
            Happening::Sroutes(at, boot, request, name) => self.sroutes(at, boot, request, &name),
        }
    }

    /// A fault begins or ends.
    fn fails(&mut self, fault: usize, begins: bool) {
        let fault = self.plan.faults[fault];
        match fault.what {
            Component::Link(link, breaks) => {
                let breaks = breaks || fault.until.is_none();
                self.set_link(link, !begins, breaks);
            }
            Component::Control(at) => self.set_control(at, begins, false),
            Component::Node(at, number) => {
                let host = self.gateways[at].hosts[number];
                self.set_node(host, begins, false);
            }
            Component::Gateway(at) => {
                let is_silent = self.rng.chance(0.5);
                self.set_control(at, begins, is_silent);
                for host in self.gateways[at].hosts.clone() {
                    self.set_node(host, begins, is_silent);
                }
            }
            Component::Freeze(at) => {
                self.freeze(End::Control(at), begins);
                for host in self.gateways[at].hosts.clone() {
                    self.freeze(End::Node(host), begins);
                }
            }
            Component::FreezeControl(at) => self.freeze(End::Control(at), begins),
            Component::FreezeNode(at, number) => {
                let host = self.gateways[at].hosts[number];
                self.freeze(End::Node(host), begins);
            }
            Component::Cluster(at, number) if begins => {
                let host = self.gateways[at].hosts[number];
                for (stream, ends) in self.streams.of(End::Node(host)) {
                    if ends.contains(&End::Control(at)) {
                        let after = [0; 2].map(|_| self.random(Duration::from_secs(1)));
                        self.streams.break_off(self.now, stream, after);
                    }
                }
            }
            Component::Cluster(..) => {}
        }
    }

    fn set_control(&mut self, at: usize, dies: bool, is_silent: bool) {
        if dies {
            self.kill_control(at, is_silent);
        } else if let Err(error) = self.start_control(at) {
            self.fault(error.to_string());
        }
    }

    fn set_node(&mut self, host: usize, dies: bool, is_silent: bool) {
        if dies {
            self.kill_node(host, is_silent);
        } else {
            self.start_node(host);
        }
    }

    fn set_link(&mut self, link: usize, is_up: bool, breaks: bool) {
        let now = self.now;
        self.links[link].0 = is_up;
        for id in self.links[link].1.clone() {
            if is_up {
                self.sim.restore_link(now, id);
            } else {
                self.sim.fail_link(now, id);
            }
        }
        for stream in self.streams_over(link) {
            if !is_up && breaks {
                let after = [0; 2].map(|_| self.random(Duration::from_secs(8)));
                self.streams.break_off(now, stream, after);
            } else {
                self.streams.hold(now, stream, !is_up);
            }
        }
        self.unblock();
    }

    fn name(&self, client: usize) -> SessionName {
        let session = self.plan.clients[client].session;
        self.plan.sessions[session].name.clone()
    }

    fn scope(&self, client: usize) -> Scope {
        let network = self.network(self.plan.clients[client].home);
        match self.plan.heard.contains(&network) {
            true => Scope::Heard,
            false => Scope::Chosen,
        }
    }

    /// The gateways that a client's message reaches.
    fn reached(&self, client: usize) -> Vec<usize> {
        match self.scope(client) {
            Scope::Heard => {
                let network = self.network(self.plan.clients[client].home);
                self.plan.of(network).collect()
            }
            Scope::Chosen => vec![self.clients[client].at],
        }
    }

    /// A client begins or ceases to want its session.
    pub(super) fn wants(&mut self, client: usize, wants: bool, silent: bool) {
        let home = self.plan.clients[client].home;
        let at = self.reached(client);
        let state = &mut self.clients[client];
        state.wants = wants;
        state.listens = None;
        state.asked = None;
        state.reason = None;
        state.redirects = 0;
        state.ask_at = self.now;
        let known = std::mem::take(&mut state.known_at);
        state.at = home;
        if wants {
            self.tick_client(client);
        } else if !silent {
            for at in at.into_iter().chain(known).collect::<BTreeSet<_>>() {
                self.after(NEAR, Happening::Leave(at, client));
            }
        }
    }

    fn tick_client(&mut self, client: usize) {
        let (now, home) = (self.now, self.plan.clients[client].home);
        let state = &mut self.clients[client];
        if !state.wants {
            return;
        }
        if state
            .listens
            .as_ref()
            .is_some_and(|(_, until)| *until <= now)
        {
            state.listens = None;
            state.reason = Some("no answer".to_owned());
        }
        match state.asked {
            Some((_, until)) if until <= now => {
                state.reason.get_or_insert_with(|| "no answer".to_owned());
                (state.at, state.redirects) = (home, 0);
            }
            Some(_) => return,
            None if state.ask_at > now => return,
            None => {}
        }
        // While everything is judged, no request of a client that was refused is under way.
        if self.is_window && !self.clients[client].is_served() {
            return;
        }
        self.ask(client);
    }

    fn ask(&mut self, client: usize) {
        let reached = self.reached(client);
        let now = self.now;
        let state = &mut self.clients[client];
        state.next_request += 1;
        let id = ClientId(((client as u64) << 32) + state.next_request);
        state.asked = Some((id, now + ANSWER_TIMEOUT));
        state.known_at.extend(reached.iter().copied());
        let redirects = state.redirects;
        for at in reached {
            self.after(NEAR, Happening::Ask(at, client, id, redirects));
        }
    }

    /// A request reaches a gateway.
    fn asked(&mut self, at: usize, client: usize, id: ClientId, redirects: u8) {
        let (name, scope) = (self.name(client), self.scope(client));
        if self.runs(End::Control(at)) {
            let until = self.now + self.plan.lifetime;
            let clients = &mut self.gateways[at].mediator.0;
            let clients = clients.entry(name.clone()).or_default();
            clients.insert(client, until);
            self.with_control(at, |control, now| {
                control.join(now, id, name, redirects, scope);
            });
        }
    }

    /// A LEAVE reaches a gateway.
    fn left(&mut self, at: usize, client: usize) {
        let (name, now) = (self.name(client), self.now);
        if !self.runs(End::Control(at)) {
            return;
        }
        let Some(clients) = self.gateways[at].mediator.0.get_mut(&name) else {
            return;
        };
        clients.remove(&client);
        clients.retain(|_, until| *until > now);
        if clients.is_empty() {
            self.with_control(at, |control, now| control.leave(now, &name));
        }
    }

    /// What a control node says to its network's clients.
    pub(super) fn mediate(&mut self, at: usize, event: Event) {
        let lifetime = self.plan.lifetime;
        match event {
            Event::Answer {
                client,
                session,
                answer,
                lifetime_s,
            } => {
                let number = (client.0 >> 32) as usize;
                if !matches!(answer, Answer::Translation(_))
                    && let Some(clients) = self.gateways[at].mediator.0.get_mut(&session)
                {
                    clients.remove(&number);
                }
                let is_asked = self.clients[number].asked.map(|(id, _)| id) == Some(client);
                if is_asked {
                    let lifetime = Duration::from_secs(lifetime_s.into());
                    self.after(NEAR, Happening::Answered(number, at, answer, lifetime));
                }
            }
            Event::Moved { session, addresses } => {
                for client in self.clients_of(at, &session) {
                    let answer = Answer::Translation(addresses.clone());
                    self.after(NEAR, Happening::Answered(client, at, answer, lifetime));
                }
            }
            Event::Ended { session, reason } => {
                for client in self.clients_of(at, &session) {
                    let answer = Answer::NoRoute(reason);
                    self.after(NEAR, Happening::Answered(client, at, answer, lifetime));
                }
                self.gateways[at].mediator.0.remove(&session);
            }
            _ => {}
        }
    }

    fn clients_of(&self, at: usize, session: &SessionName) -> Vec<usize> {
        let clients = self.gateways[at].mediator.0.get(session);
        clients.map_or_else(Vec::new, |clients| clients.keys().copied().collect())
    }

    /// An answer reaches a client.
    fn answered(&mut self, client: usize, at: usize, answer: Answer, lifetime: Duration) {
        let (now, home) = (self.now, self.plan.clients[client].home);
        let is_heard = self.scope(client) == Scope::Heard;
        let wait = Duration::from_secs(3) + self.random(Duration::from_secs(4));
        let name = self.name(client);
        let state = &mut self.clients[client];
        if !state.wants {
            return;
        }
        let is_served = state.is_served() && state.at != at;
        match answer {
            Answer::Translation(addresses) => {
                let address = |address: &ChannelAddress| match address {
                    ChannelAddress::Native(address) => address.clone(),
                    _ => Vec::new(),
                };
                let addresses = addresses.iter().map(address).collect();
                state.listens = Some((addresses, now + lifetime));
                state.reason = None;
                state.at = at;
                state.ask_at = now + lifetime / 3;
            }
            Answer::NoRoute(Reason::Local) => {
                let flows = name.flows().map(|flow| own_address(&name, flow));
                state.listens = Some((flows.collect(), now + lifetime));
                state.reason = None;
                state.ask_at = now + lifetime / 3;
            }
            // Another gateway of the network serves it.
            Answer::NoRoute(_) if is_heard && is_served => return,
            Answer::NoRoute(reason) => {
                state.listens = None;
                state.reason = Some(reason.name().to_owned());
                state.ask_at = now + wait;
                (state.at, state.redirects) = (home, 0);
            }
            Answer::Redirect { gateway, .. } => {
                let gateways = self.plan.gateways.iter();
                let to = gateways.map(|one| one.id).position(|id| id == gateway);
                state.at = to.unwrap_or(home);
                state.redirects += 1;
                self.ask(client);
                return;
            }
            Answer::Cost(_) => return,
        }
        self.clients[client].asked = None;
    }

    /// A frame on the native network reaches a client.
    fn heard(&mut self, client: usize, address: &[u8], data: &[u8]) {
        let session = self.plan.clients[client].session;
        let state = &self.clients[client];
        let listens = state.listens.as_ref().filter(|_| state.wants);
        let Some((addresses, _)) = listens else {
            return;
        };
        let Some(flow) = addresses.iter().position(|one| one == address) else {
            return;
        };
        let Some((of, id)) = parse(data) else {
            return self.fault(format!("client {client} receives something else"));
        };
        if (of, id.1) != (session, flow) {
            return self.fault(format!("client {client} receives another session's frame"));
        }
        if !self.is_window {
            return;
        }
        let in_order = self.plan.sessions[session].name.content() == Content::Bulk;
        let state = &mut self.clients[client];
        *state.heard.entry(id).or_default() += 1;
        let last = state.last.insert((id.0, id.1), id.2);
        if in_order && last.is_some_and(|last| last > id.2) {
            let words = format!("client {client} receives frame {id:?} after {last:?}");
            self.fault(words);
        }
    }

    /// The sources of a session publish.
    fn publish(&mut self, session: usize) {
        if !self.is_publishing {
            return;
        }
        let interval = PUBLISH_INTERVALS[usize::from(!self.is_window)];
        self.after(interval, Happening::Publish(session));
        let (name, owner) = {
            let session = &self.plan.sessions[session];
            if !session.exists {
                return;
            }
            (session.name.clone(), session.owner)
        };
        let number = self.next_frame;
        self.next_frame += 1;
        for (flow, flow_name) in name.flows().enumerate() {
            let data = frame(session, (0, flow, number));
            self.note_published(session, (0, flow, number));
            self.broadcast(owner, None, None, &own_address(&name, flow_name), &data);
        }
        if !name.multi_source() {
            return;
        }
        for client in 0..self.clients.len() {
            let plan = &self.plan.clients[client];
            let (network, state) = (self.network(plan.home), &self.clients[client]);
            let Some((addresses, _)) = &state.listens else {
                continue;
            };
            if !plan.publishes || plan.session != session || !state.wants {
                continue;
            }
            for (flow, address) in addresses.clone().into_iter().enumerate() {
                let id = (client as u32 + 1, flow, number);
                self.note_published(session, id);
                let data = frame(session, id);
                self.broadcast(network, None, Some(client), &address, &data);
            }
        }
    }

    fn note_published(&mut self, session: usize, (source, flow, number): FrameId) {
        if self.is_window {
            self.published.push((session, source, flow, number));
        }
    }
}
