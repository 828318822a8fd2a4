//! Announcements by SAP (RFC 2974) in networks of groups: data nodes announce the sessions from elsewhere that they present
//! ([`Presenter`]), and the mediator lists what hosts of the network announce ([`Learner`]), if it is told which hosts to
//! believe. [`sap`] has the machine.
//!
//! A session's name carries its description through the federation, in parameters that gateways otherwise ignore:
//!
//! | parameter | value |
//! | --- | --- |
//! | `title` | the session's name for people |
//! | `media` | for each flow `KIND:PROTOCOL:FORMAT` or `KIND:PROTOCOL:FORMAT:RTPMAP`, separated by commas |

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use bfed::native::NativeFlow;
use bfed::wire::client::AnswerRepr;
use bfed::{BnNum, ClientId, Instant, Prefix, SessionName};
use linux_net::inet::{Membership, Transmit, UdpSocket};
use linux_net::poll::Set;
use linux_net::udp::Batch;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use sap::{Announcer, Config, Description, MAX_PACKET_LEN, Media, group_of};

use super::clients::PendingRequest;
use super::datagrams::Link;
use super::groups::{MulticastConfig, own_group};
use super::mediator::{Answered, Front, TakeRequest};
use super::{Counter, Role};

/// Configuration of announcements.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct SapConfig {
    /// Announces sessions from elsewhere.
    pub announce: bool,
    /// Hosts whose announcements are listed; none by default, because any host may forge them.
    pub learn_from: Vec<Prefix>,
}

/// A session of this network that one of its hosts announces.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AnnouncedSession {
    /// Its name in the federation.
    pub session: SessionName,
    /// Its name for people.
    pub title: String,
    /// The host that announced it.
    pub host: IpAddr,
}

/// What a player takes for any stream over UDP.
const DEFAULT_MEDIA: (&str, &str, &str) = ("video", "udp", "mpeg");
/// Longest title in characters; longer ones are cut.
const MAX_TITLE: usize = 128;

/// Returns a parameter of a session's name, decoded.
pub(super) fn parameter(session: &SessionName, name: &str) -> Option<String> {
    let value = session.parameters().find(|(found, _)| *found == name)?.1;
    let text = percent_decode_str(value).decode_utf8_lossy();
    Some(text.chars().filter(|char| !char.is_control()).collect())
}

/// Describes a session that is presented at these groups, one for each flow.
fn describe(
    session: &SessionName,
    groups: impl Iterator<Item = SocketAddr>,
    (source, ttl): (Option<IpAddr>, u8),
) -> Description {
    let title = parameter(session, "title").unwrap_or_else(|| session.as_str().to_owned());
    let listed = parameter(session, "media").unwrap_or_default();
    let mut listed = listed.split(',');
    let media = groups.map(|group| {
        let mut words = listed.next().unwrap_or_default().splitn(4, ':');
        let mut next = |default| {
            words
                .next()
                .filter(|word| !word.is_empty())
                .unwrap_or(default)
        };
        let (kind, protocol, format) = DEFAULT_MEDIA;
        let media = Media::new(next(kind), group, next(protocol), next(format));
        let rtpmap = words.next().map(str::to_owned);
        let ttl = Some(ttl);
        Media {
            rtpmap,
            ttl,
            source,
            ..media
        }
    });
    let title: String = title.chars().take(MAX_TITLE).collect();
    Description {
        federated: Some(session.as_str().to_owned()),
        ..Description::new(&title, media.collect())
    }
}

/// Returns the name in the federation of a session that a host of the network announces; `None` if its media have different
/// groups.
fn name_of(network: BnNum, description: &Description) -> Option<SessionName> {
    let first = description.media.first()?;
    let place = |media: &Media| (media.group.ip(), media.source);
    if description
        .media
        .iter()
        .any(|media| place(media) != place(first))
    {
        return None;
    }
    let native = match first.source {
        Some(source) => format!("{source}@{}", first.group.ip()),
        None => first.group.ip().to_string(),
    };
    let escaped = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let ports: Vec<String> = description
        .media
        .iter()
        .map(|media| media.group.port().to_string())
        .collect();
    let path = format!("bfed://{network}/{native}/{}", ports.join("/"));
    let media = description.media.iter().map(|media| {
        let rtpmap = media.rtpmap.iter().map(|map| format!(":{map}"));
        let rtpmap: String = rtpmap.collect();
        format!("{}:{}:{}{rtpmap}", media.kind, media.protocol, media.format)
    });
    let media = media.collect::<Vec<_>>().join(",");
    let title: String = description.name.chars().take(MAX_TITLE).collect();
    let whole = format!(
        "{path}/?content=real-time&media={}&title={}",
        escaped(&media),
        escaped(&title)
    );
    // One with a description that is too long is available without it.
    SessionName::parse(&whole)
        .or_else(|_| SessionName::parse(&format!("{path}/?content=real-time")))
        .ok()
}

#[derive(Debug)]
struct Presented {
    number: u64,
    groups: BTreeMap<usize, SocketAddr>,
}

/// Announces the sessions that a data node presents.
#[derive(Debug)]
pub(super) struct Presenter {
    socket: UdpSocket,
    group: SocketAddr,
    machine: Announcer,
    sessions: BTreeMap<SessionName, Presented>,
    next: u64,
    source: Option<IpAddr>,
    ttl: u8,
    /// Sessions that are not announced, because there are too many.
    left_out: u64,
    unsent: u64,
}

impl Presenter {
    /// Opens the sockets. `pool` is a group of the sessions; all data nodes of a process share the limit of RFC 2974.
    pub(super) fn open(
        link: &Link,
        pool: IpAddr,
        role: Role,
        specific: bool,
        (seed, now): ([u8; 32], Instant),
    ) -> Result<Self, String> {
        let local = link.local(pool)?;
        let socket = link.sender(local, 0)?;
        let own = socket.local_address().map_err(|error| error.to_string())?;
        let parts = match role {
            Role::Channels { parts, .. } => parts.max(1) as u32,
            Role::Mediator => 1,
        };
        let config = Config::new(own);
        let config = Config {
            limit_bps: (config.limit_bps / parts).max(1),
            ..config
        };
        Ok(Presenter {
            socket,
            group: group_of(pool),
            machine: Announcer::new(config, seed, now),
            sessions: BTreeMap::new(),
            next: 0,
            source: specific.then_some(own.ip()),
            ttl: link.ttl,
            left_out: 0,
            unsent: 0,
        })
    }

    /// A flow is presented at a group; a session is announced when all of its flows are.
    pub(super) fn add(&mut self, now: Instant, flow: NativeFlow<'_>, group: SocketAddr) {
        let Some(at) = flow.session.flows().position(|name| name == flow.name) else {
            return;
        };
        let presented = self
            .sessions
            .entry(flow.session.clone())
            .or_insert_with(|| {
                self.next += 1;
                Presented {
                    number: self.next,
                    groups: BTreeMap::new(),
                }
            });
        presented.groups.insert(at, group);
        if presented.groups.len() == flow.session.flow_count() {
            let place = (self.source, self.ttl);
            let groups = presented.groups.values().copied();
            let description = describe(flow.session, groups, place);
            let announced = self.machine.announce(now, presented.number, &description);
            self.left_out += u64::from(announced.is_err());
        }
    }

    /// A flow is no longer presented.
    pub(super) fn remove(&mut self, now: Instant, flow: NativeFlow<'_>) {
        let Some(at) = flow.session.flows().position(|name| name == flow.name) else {
            return;
        };
        if let Some(presented) = self.sessions.get_mut(flow.session) {
            presented.groups.remove(&at);
            self.machine.withdraw(now, presented.number);
            if presented.groups.is_empty() {
                self.sessions.remove(flow.session);
            }
        }
    }

    /// Sends the packets that are due.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.machine.handle_timeout(now);
        let mut buffer = [0; MAX_PACKET_LEN];
        while let Some(len) = self.machine.poll_transmit(now, &mut buffer) {
            let sent = self.socket.send(&Transmit {
                source: None,
                destination: self.group,
                bytes: &buffer[..len],
                segment_len: None,
            });
            self.unsent += u64::from(sent.is_err());
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.machine.poll_timeout()
    }

    pub(super) fn counters(&self) -> [Counter; 3] {
        [
            ("announcements_sent", self.machine.stats().sent),
            ("announcements_unsent", self.unsent),
            ("announcements_left_out", self.left_out),
        ]
    }
}

/// Tells listeners that the sessions end, as many as the limit allows at once.
impl Drop for Presenter {
    fn drop(&mut self) {
        let now = self.machine.now();
        let numbers: Vec<u64> = self.sessions.values().map(|one| one.number).collect();
        for number in numbers {
            self.machine.withdraw(now, number);
        }
        self.handle_timeout(now);
    }
}

/// Returns the groups where sessions in a prefix may be announced: those of all scopes that it touches.
fn listened(prefix: &Prefix) -> BTreeSet<SocketAddr> {
    let scopes: Vec<IpAddr> = match prefix.address() {
        IpAddr::V4(_) => {
            let zones = [
                [239, 255, 0, 0],
                [239, 192, 0, 0],
                [239, 0, 0, 0],
                [224, 2, 0, 0],
            ];
            zones.map(IpAddr::from).into()
        }
        // RFC 7346 defines these scopes. The other half of the octet holds flags.
        IpAddr::V6(_) => [0x1, 0x2, 0x3, 0x4, 0x5, 0x8, 0xe]
            .into_iter()
            .flat_map(|scope| [0x00, 0x10, 0x30, 0x70].map(|flags| 0xff00 | flags | scope))
            .map(|first| IpAddr::from([first, 0, 0, 0, 0, 0, 0, 0]))
            .collect(),
    };
    // Scopes 0 and f are reserved: such an address is the start of a wide prefix.
    let is_scope = |address: &IpAddr| match address {
        IpAddr::V4(_) => true,
        IpAddr::V6(address) => !matches!(address.segments()[0] & 0xf, 0 | 0xf),
    };
    let touched = scopes.into_iter().filter(|scope| prefix.contains(*scope));
    let own = Some(prefix.address()).filter(is_scope);
    touched.chain(own).map(group_of).collect()
}

/// A mediator that also listens to announcements.
pub(super) struct Learner<F> {
    front: F,
    config: MulticastConfig,
    network: BnNum,
    specific: bool,
    set: Set,
    sockets: Vec<UdpSocket>,
    batch: Batch,
    machine: Announcer,
    now: Instant,
    /// Packets of hosts that are not in `learn-from`.
    foreign: u64,
}

/// Packets of announcements that are read in a row: 64 batches.
const ROUNDS: usize = 64;

impl<F: Front> Learner<F> {
    /// Opens the groups of all scopes that sessions of this network may be in.
    pub(super) fn open(
        front: F,
        config: &MulticastConfig,
        specific: bool,
        network: BnNum,
        (seed, now): ([u8; 32], Instant),
    ) -> Result<Self, String> {
        let link = &config.data.link;
        let groups: BTreeSet<SocketAddr> = config.data.export.iter().flat_map(listened).collect();
        let set = Set::new().map_err(|error| error.to_string())?;
        let add = |fd: BorrowedFd<'_>, key| {
            let added = set.add(fd, key, true, false);
            added.map_err(|error| error.to_string())
        };
        add(front.as_fd(), 0)?;
        let mut sockets = Vec::new();
        for group in groups {
            let local = link.local(group.ip())?;
            let failed = |error: String| format!("announcements at {group}: {error}");
            let socket = link.open(local, group, true).map_err(failed)?;
            let joined = socket.join(&Membership {
                group: group.ip(),
                source: None,
                interface: local.index,
            });
            joined.map_err(|error| failed(error.to_string()))?;
            sockets.push(socket);
            add(sockets[sockets.len() - 1].as_fd(), sockets.len() as u64)?;
        }
        // It sends nothing, so no packet is its own.
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        Ok(Learner {
            front,
            config: config.clone(),
            network,
            specific,
            set,
            sockets,
            batch: Batch::new(2),
            machine: Announcer::new(Config::new(nowhere), seed, now),
            now,
            foreign: 0,
        })
    }

    fn listen(&mut self) {
        let believed = |from: IpAddr| {
            let hosts = &self.config.sap.learn_from;
            hosts.iter().any(|prefix| prefix.contains(from))
        };
        for socket in &self.sockets {
            for _ in 0..ROUNDS {
                // A failed read is repeated later.
                if socket.receive(&mut self.batch).unwrap_or(0) == 0 {
                    break;
                }
                for datagram in self.batch.received() {
                    if !believed(datagram.source.ip()) {
                        self.foreign += 1;
                        continue;
                    }
                    // What is refused is counted.
                    let from = datagram.source;
                    let _ = self
                        .machine
                        .handle_packet(self.now, &from, datagram.payload);
                }
            }
        }
    }
}

impl<F: Front> AsFd for Learner<F> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }
}

impl<F: Front> Front for Learner<F> {
    type Client = F::Client;

    fn receive(&mut self, take: &mut TakeRequest<'_, F::Client>) -> bool {
        self.listen();
        self.front.receive(take)
    }

    fn answer(
        &mut self,
        client: ClientId,
        pending: &PendingRequest<F::Client>,
        answer: &AnswerRepr,
    ) -> Answered {
        self.front.answer(client, pending, answer)
    }

    fn announce(&mut self, clients: &[F::Client], answer: &AnswerRepr) -> Answered {
        self.front.announce(clients, answer)
    }

    fn knows(&self, session: &SessionName) -> bool {
        self.front.knows(session)
    }

    fn expire(&mut self) {
        self.front.expire();
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        self.machine.handle_timeout(now);
        self.front.handle_timeout(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let own = self.machine.poll_timeout();
        own.into_iter().chain(self.front.poll_timeout()).min()
    }

    /// Those that peers can have: not what gateways present here, and not groups that are not exported.
    fn announced(&self) -> Vec<AnnouncedSession> {
        let own = self
            .machine
            .learned()
            .filter(|(_, one)| one.federated.is_none());
        own.filter_map(|(host, description)| {
            let session = name_of(self.network, description)?;
            let (specific, reserved) = (self.specific, Some(self.config.mediator));
            let reserved = reserved.filter(|_| !specific);
            let is_there = session.flows().all(|flow| {
                own_group(&session, flow, specific, &self.config.data, reserved).is_some()
            });
            is_there.then(|| AnnouncedSession {
                title: description.name.chars().take(MAX_TITLE).collect(),
                session,
                host,
            })
        })
        .collect()
    }

    fn counters(&self) -> Vec<Counter> {
        let stats = self.machine.stats();
        let mut counters = self.front.counters();
        counters.extend([
            ("announcements_received", stats.received),
            ("announcements_malformed", stats.malformed),
            ("announcements_no_room", stats.no_room),
            ("announcements_not_believed", self.foreign),
        ]);
        counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_prefixes_touch_several_scopes() {
        for (prefix, expected) in [
            ("239.1.0.0/16", &["224.2.127.254:9875"][..]),
            ("239.255.7.0/24", &["239.255.255.255:9875"]),
            (
                "239.0.0.0/8",
                &[
                    "224.2.127.254:9875",
                    "239.195.255.255:9875",
                    "239.255.255.255:9875",
                ],
            ),
            ("ff15::/16", &["[ff05::2:7ffe]:9875"]),
            ("ff3e::8000:0/97", &["[ff0e::2:7ffe]:9875"]),
        ] {
            let expected: BTreeSet<SocketAddr> =
                expected.iter().map(|one| one.parse().unwrap()).collect();
            assert_eq!(listened(&prefix.parse().unwrap()), expected, "{prefix}");
        }
        assert_eq!(listened(&"ff00::/8".parse().unwrap()).len(), 7);
    }
}
