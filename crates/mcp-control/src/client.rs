//! The client: `mcp`, one endpoint for each host.

use alloc::sync::Arc;
use core::net::IpAddr;

use proto_core::time::Instant;

use crate::digest::Digest;
use crate::endpoint::sealed::Sealed;
use crate::endpoint::{Endpoint, Role};
use crate::error::{Error, UnexpectedMessage};
use crate::layout::Layout;
use crate::limits::MAX_SUGGESTIONS;
use crate::link::{Link, Side, Timeouts};
use crate::manifest::{Kind, Manifest};
use crate::wire::held::{Held, Scanned};
use crate::wire::hello::{Capabilities, Hello, Prepared, Welcome};
use crate::wire::island::{Listen, MAX_MEMBERS, MIN_MEMBERS, Multicast};
use crate::wire::offer::{CopyId, Offer};
use crate::wire::plan::{Carrier, DataKey, Plan};
use crate::wire::port::{Port, Suggest};
use crate::wire::progress::{Done, FileDigest, FileVerdict, Progress};
use crate::wire::relay::{Blocks, Fed, Feed, LinkReport};
use crate::wire::verdict::{Failed, Reason};
use crate::wire::{self, Message as _, Type, VERSION};

/// How one client is set up. Start from [`ClientConfig::new`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientConfig {
    /// Identifies the copy in the logs of both sides; random, the same for all hosts of one copy.
    pub copy: CopyId,
    /// Capabilities of this side.
    pub capabilities: Capabilities,
    /// Capabilities that the server must have; the copy fails otherwise.
    pub required: Capabilities,
    /// Interval of keep-alives, and timeout of the peer.
    pub timeouts: Timeouts,
    /// The data connection, suggested with HELLO: a server with [`Capabilities::PREPARES`] answers by PORT and listens
    /// at once. With another server [`Client::suggest`] is needed.
    pub prepared: Option<Prepared>,
}

impl ClientConfig {
    /// Requires all of these capabilities; timeouts are [`Timeouts::default`].
    #[must_use]
    pub fn new(copy: CopyId, capabilities: Capabilities) -> Self {
        ClientConfig {
            copy,
            capabilities,
            required: capabilities,
            timeouts: Timeouts::default(),
            prepared: None,
        }
    }
}

/// How data comes to one host.
#[derive(Clone, Copy, Debug)]
pub struct DataPath {
    /// How data travels.
    pub carrier: Carrier,
    /// The group, if it may come by multicast.
    pub group: Option<IpAddr>,
    /// The port it comes from.
    pub source: u16,
    /// The port that was agreed on.
    pub destination: u16,
    /// The key, when it is sealed.
    pub key: Option<DataKey>,
    /// Links may be arranged; without ports data comes only over them. The host must have
    /// [`Capabilities::FED`].
    pub relay: bool,
}

/// An event for the application.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClientEvent {
    /// The host has accepted the offer.
    Welcome {
        /// Its capabilities.
        capabilities: Capabilities,
    },
    /// Blocks that the host has, with their digests: those that agree need not be sent.
    Held(Held),
    /// The host has named all blocks that it has.
    Scanned,
    /// An answer to [`Client::suggest`], or to the suggestion of [`ClientConfig::prepared`].
    Port {
        /// The suggested port is reserved there.
        confirmed: bool,
        /// It, or another that is free there.
        port: u16,
    },
    /// The host listens for the data, or needs none.
    Ready,
    /// How far the host is.
    Progress(Progress),
    /// The state of a link of this host.
    Link(LinkReport),
    /// It has everything, and could feed others until [`Client::expect`]. Only where the plan has links.
    Done,
    /// Everything is in place there, and digests prove it. Nothing follows.
    Verified,
    /// It ended without that. Nothing follows.
    Failed {
        /// Why.
        failed: Failed,
        /// The side that failed.
        side: Side,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Hello,
    Offered,
    Scanned,
    Planned,
    Data,
}

/// State of a client: see [`Client`].
#[derive(Debug)]
pub struct ClientRole {
    config: ClientConfig,
    manifest: Arc<Manifest>,
    state: State,
    /// Blocks named in HELD, and one past the last.
    held: u64,
    held_end: u64,
    /// The suggestion that waits for an answer, and the number of suggestions.
    suggested: Option<Suggest>,
    suggestions: u16,
    done: Option<Done>,
    expected: Option<Done>,
    stream_len: u64,
    /// What the host can do.
    peer: Capabilities,
    /// Links may be arranged.
    relay: bool,
    /// Files before this entry have had their DIGEST.
    next_digest: u32,
    /// Blocks before this one were named in BLOCKS, or are not named any more.
    next_named: u64,
}

/// The client's endpoint.
///
/// | state | sends | takes | then |
/// | --- | --- | --- | --- |
/// | hello | HELLO, OFFER, ENTRIES | WELCOME | |
/// | offered | | HELD, SCANNED; PORT, where HELLO has a suggestion | the application compares digests |
/// | scanned | SUGGEST ([`Client::suggest`]) | PORT | until all hosts agree |
/// | | PLAN, RUNS ([`Client::plan`]) | READY | the data connection is opened |
/// | data | DIGEST ([`Client::digest`]) | PROGRESS, DONE | |
/// | data, with links | BLOCKS, FEED, FED ([`Client::blocks`], [`Client::feed`], [`Client::fed`]) | LINK | |
/// | | MULTICAST, LISTEN ([`Client::multicast`], [`Client::listen`]) | | |
/// | done | VERIFIED | | [`ClientEvent::Verified`] |
///
/// FAILED and KEEPALIVE may be sent by either side at any time.
pub type Client = Endpoint<ClientRole>;

impl Sealed for ClientRole {}

impl Role for ClientRole {
    type Event = ClientEvent;

    fn failed(failed: Failed, side: Side) -> ClientEvent {
        ClientEvent::Failed { failed, side }
    }

    fn take(machine: &mut Client, now: Instant, kind: Type, frame: &[u8]) -> Result<(), Error> {
        machine.take(now, kind, frame)?;
        machine.conclude(now);
        Ok(())
    }
}

impl Client {
    /// Starts a copy of `manifest` to one host: HELLO, OFFER and ENTRIES are queued.
    pub fn new(config: ClientConfig, manifest: Arc<Manifest>, now: Instant) -> Self {
        let mut link = Link::new(config.timeouts, now);
        let hello = Hello {
            lowest: VERSION,
            highest: VERSION,
            capabilities: config.capabilities,
            prepared: config.prepared,
        };
        link.send(now, &hello);
        // It speaks a single version, so that the offer need not wait for the answer.
        let offer = Offer {
            copy: config.copy,
            entries: manifest.len() as u32,
            bytes: manifest.bytes(),
        };
        link.send(now, &offer);
        link.send_entries(Arc::clone(&manifest));
        let role = ClientRole {
            config,
            manifest,
            state: State::Hello,
            held: 0,
            held_end: 0,
            suggested: None,
            suggestions: 0,
            done: None,
            expected: None,
            stream_len: 0,
            peer: Capabilities::default(),
            relay: false,
            next_digest: 0,
            next_named: 0,
        };
        Endpoint::start(role, link)
    }

    fn take(&mut self, now: Instant, kind: Type, frame: &[u8]) -> Result<(), Error> {
        match (kind, self.role.state) {
            (Type::Welcome, State::Hello) => self.welcome(now, &Welcome::parse(frame)?),
            (Type::Held, State::Offered) => self.take_held(Held::parse(frame)?),
            (Type::Scanned, State::Offered) => {
                if Scanned::parse(frame)?.blocks != self.role.held {
                    return Err(Error::Contradiction);
                }
                self.role.state = State::Scanned;
                self.link.event(ClientEvent::Scanned);
                Ok(())
            }
            (Type::Port, State::Offered | State::Scanned) => self.take_port(&Port::parse(frame)?),
            (Type::Ready, State::Planned) => {
                wire::Ready::parse(frame)?;
                self.role.state = State::Data;
                self.link.event(ClientEvent::Ready);
                Ok(())
            }
            (Type::Progress, State::Data) if self.role.done.is_none() => {
                let progress = Progress::parse(frame)?;
                if progress.received > self.role.stream_len
                    || progress.held > self.role.manifest.bytes()
                {
                    return Err(Error::Contradiction);
                }
                self.link.event(ClientEvent::Progress(progress));
                Ok(())
            }
            (Type::Link, State::Planned | State::Data) if self.role.relay => {
                let report = LinkReport::parse(frame)?;
                self.link.event(ClientEvent::Link(report));
                Ok(())
            }
            (Type::Done, State::Data) if self.role.done.is_none() => {
                self.role.done = Some(Done::parse(frame)?);
                if self.role.relay {
                    self.link.event(ClientEvent::Done);
                }
                Ok(())
            }
            _ => Err(Error::Unexpected),
        }
    }

    fn welcome(&mut self, now: Instant, welcome: &Welcome) -> Result<(), Error> {
        if welcome.version != VERSION {
            return Err(Error::Contradiction);
        }
        let manifest = &self.role.manifest;
        if manifest.len() as u64 > u64::from(welcome.max_entries)
            || manifest.bytes() > welcome.max_bytes
        {
            self.refuse(now, Reason::TooLarge, "");
            return Ok(());
        }
        if !welcome.capabilities.has(self.role.config.required) {
            self.refuse(now, Reason::Capability, &self.lacking(welcome.capabilities));
            return Ok(());
        }
        let prepared = self.role.config.prepared;
        if let Some(prepared) =
            prepared.filter(|_| welcome.capabilities.has(Capabilities::PREPARES))
        {
            self.role.suggestions = 1;
            self.role.suggested = Some(Suggest {
                number: 1,
                carrier: prepared.carrier,
                source: prepared.source,
                destination: prepared.destination,
            });
        }
        self.role.peer = welcome.capabilities;
        self.role.state = State::Offered;
        self.link.event(ClientEvent::Welcome {
            capabilities: welcome.capabilities,
        });
        Ok(())
    }

    /// Describes the capabilities that the host lacks.
    fn lacking(&self, there: Capabilities) -> alloc::string::String {
        let names = [
            (
                Capabilities::AEAD,
                "sealed data (AEAD) is off there, or needs a key on both sides",
            ),
            (
                Capabilities::UDP,
                "data over UDP is off there: try --carrier ip",
            ),
            (
                Capabilities::IP,
                "data over IP itself (--carrier ip) is off there, or mcpd lacks CAP_NET_RAW",
            ),
        ];
        let lacks = |bit: Capabilities| self.role.config.required.has(bit) && !there.has(bit);
        let missing = names.iter().find(|(bit, _)| lacks(*bit));
        missing.map_or_else(Default::default, |(_, why)| (*why).into())
    }

    fn take_held(&mut self, held: Held) -> Result<(), Error> {
        let end = held.first + held.digests.len() as u64;
        if held.first < self.role.held_end || end > self.role.manifest.blocks() {
            return Err(Error::Contradiction);
        }
        self.role.held_end = end;
        self.role.held += held.digests.len() as u64;
        self.link.event(ClientEvent::Held(held));
        Ok(())
    }

    fn take_port(&mut self, port: &Port) -> Result<(), Error> {
        let suggested = self.role.suggested.ok_or(Error::Unexpected)?;
        let fits = port.number == suggested.number
            && port.confirmed == (port.port == suggested.destination);
        if !fits {
            return Err(Error::Contradiction);
        }
        self.role.suggested = None;
        self.link.event(ClientEvent::Port {
            confirmed: port.confirmed,
            port: port.port,
        });
        Ok(())
    }

    /// Suggests a carrier, the port that data comes from and the port that it goes to (TCP-XM §3.4); may be
    /// called again after an answer.
    ///
    /// # Errors
    /// Not after SCANNED and before the plan, or the last suggestion was not answered, or there were
    /// [`MAX_SUGGESTIONS`] already, or a port is 0.
    pub fn suggest(
        &mut self,
        now: Instant,
        carrier: Carrier,
        source: u16,
        destination: u16,
    ) -> Result<(), UnexpectedMessage> {
        let may = self.is_in(State::Scanned)
            && self.role.suggested.is_none()
            && self.role.suggestions < MAX_SUGGESTIONS;
        if !may || source == 0 || destination == 0 {
            return Err(UnexpectedMessage);
        }
        self.role.suggestions += 1;
        let suggest = Suggest {
            number: self.role.suggestions,
            carrier,
            source,
            destination,
        };
        self.role.suggested = Some(suggest);
        self.link.send(now, &suggest);
        Ok(())
    }

    /// Says how the data comes and which blocks it is; `None`: nothing is sent to this host, it has
    /// everything.
    ///
    /// # Errors
    /// Not after SCANNED, or while a suggestion waits for its answer.
    pub fn plan(
        &mut self,
        now: Instant,
        data: Option<(DataPath, Arc<Layout>)>,
    ) -> Result<(), UnexpectedMessage> {
        if !self.is_in(State::Scanned) || self.role.suggested.is_some() {
            return Err(UnexpectedMessage);
        }
        let mut plan = Plan {
            carrier: Carrier::Udp,
            group: None,
            source: 0,
            destination: 0,
            runs: 0,
            stream_len: 0,
            key: None,
            relay: false,
        };
        let data = data.filter(|(_, layout)| !layout.is_empty());
        if let Some((path, layout)) = &data {
            plan = Plan {
                carrier: path.carrier,
                group: path.group,
                source: path.source,
                destination: path.destination,
                runs: layout.runs().len() as u32,
                stream_len: layout.len(),
                key: path.key,
                relay: path.relay,
            };
            if path.relay && !self.role.peer.has(Capabilities::FED) {
                return Err(UnexpectedMessage);
            }
        }
        self.role.stream_len = plan.stream_len;
        self.role.relay = plan.relay;
        self.link.send(now, &plan);
        if let Some((_, layout)) = data {
            self.link.send_runs(layout);
        }
        self.role.state = State::Planned;
        Ok(())
    }

    /// Sends the digests of blocks, which the host verifies before it passes them on: in ascending order, each block once.
    ///
    /// # Errors
    /// The plan has no links, the blocks are out of order, or there are no such blocks.
    pub fn blocks(&mut self, now: Instant, blocks: &Blocks) -> Result<(), UnexpectedMessage> {
        let end = blocks.first + blocks.digests.len() as u64;
        let counted = (1..=crate::limits::MAX_HELD).contains(&blocks.digests.len());
        let in_order = blocks.first >= self.role.next_named;
        if end > self.role.manifest.blocks() || !counted || !in_order {
            return Err(UnexpectedMessage);
        }
        self.link_command(now, blocks)?;
        self.role.next_named = end;
        Ok(())
    }

    /// Has the host feed another one.
    ///
    /// # Errors
    /// The plan has no links, or the host does not feed others.
    pub fn feed(&mut self, now: Instant, feed: &Feed) -> Result<(), UnexpectedMessage> {
        if !self.role.peer.has(Capabilities::FEEDS) {
            return Err(UnexpectedMessage);
        }
        self.link_command(now, feed)
    }

    /// Has the host be fed over a link, in place of the one before.
    ///
    /// # Errors
    /// The plan has no links, or the host is to leave its island and knows none.
    pub fn fed(&mut self, now: Instant, fed: &Fed) -> Result<(), UnexpectedMessage> {
        if fed.alone && !self.role.peer.has(Capabilities::ISLANDS) {
            return Err(UnexpectedMessage);
        }
        self.link_command(now, fed)
    }

    /// Has the host multicast what it receives to the members of an island, in place of the one before.
    ///
    /// # Errors
    /// The plan has no links, the host knows no islands or does not feed others, or there are fewer than [`MIN_MEMBERS`] or
    /// more than [`MAX_MEMBERS`] members.
    pub fn multicast(
        &mut self,
        now: Instant,
        multicast: &Multicast,
    ) -> Result<(), UnexpectedMessage> {
        let needed = Capabilities::FEEDS.with(Capabilities::ISLANDS);
        let counted = (MIN_MEMBERS..=MAX_MEMBERS).contains(&multicast.members.len());
        if !self.role.peer.has(needed) || !counted {
            return Err(UnexpectedMessage);
        }
        self.link_command(now, multicast)
    }

    /// Has the host listen to the head of an island, in place of the one before.
    ///
    /// # Errors
    /// The plan has no links, or the host knows no islands.
    pub fn listen(&mut self, now: Instant, listen: &Listen) -> Result<(), UnexpectedMessage> {
        if !self.role.peer.has(Capabilities::ISLANDS) {
            return Err(UnexpectedMessage);
        }
        self.link_command(now, listen)
    }

    fn link_command(
        &mut self,
        now: Instant,
        message: &impl wire::Message,
    ) -> Result<(), UnexpectedMessage> {
        let may = self.is_in(State::Planned) || self.is_in(State::Data);
        if !may || !self.role.relay {
            return Err(UnexpectedMessage);
        }
        self.link.send(now, message);
        Ok(())
    }

    /// Reports the digest of file `entry`: in ascending order of entries, each once.
    ///
    /// # Errors
    /// Before the plan, out of order, or the entry is no file.
    pub fn digest(
        &mut self,
        now: Instant,
        entry: u32,
        verdict: FileVerdict,
    ) -> Result<(), UnexpectedMessage> {
        let found = self.role.manifest.entries().get(entry as usize);
        let is_file = found.is_some_and(|entry| matches!(entry.kind, Kind::File { .. }));
        let may = self.is_in(State::Planned) || self.is_in(State::Data);
        if !is_file || !may || entry < self.role.next_digest {
            return Err(UnexpectedMessage);
        }
        self.role.next_digest = entry + 1;
        let digest = FileDigest { entry, verdict };
        self.link.send(now, &digest);
        Ok(())
    }

    /// Reports the digest of the whole copy, once known: the host's DONE must match.
    pub fn expect(&mut self, now: Instant, whole: Digest) {
        self.role.expected = Some(Done {
            received: self.role.stream_len,
            bytes: self.role.manifest.bytes(),
            whole,
        });
        self.conclude(now);
    }

    /// Compares the host's digest with the expected one, once both are known.
    fn conclude(&mut self, now: Instant) {
        let (Some(done), Some(expected)) = (self.role.done, self.role.expected) else {
            return;
        };
        if self.link.is_ended() {
            return;
        }
        // A host that links feed may receive less of the stream than its length, or blocks twice.
        let done = Done {
            received: if self.role.relay {
                expected.received
            } else {
                done.received
            },
            ..done
        };
        if done != expected {
            self.refuse(now, Reason::Mismatch, "");
            return;
        }
        self.link.send(now, &wire::Verified);
        self.link.end(now);
        self.link.event(ClientEvent::Verified);
    }

    fn is_in(&self, state: State) -> bool {
        self.role.state == state && !self.link.is_ended()
    }
}
