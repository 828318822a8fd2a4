//! The server: `mcpd`, one endpoint for each connection.

use alloc::sync::Arc;
use alloc::vec::Vec;

use proto_core::time::{Duration, Instant};

use crate::blocks::Run;
use crate::endpoint::sealed::Sealed;
use crate::endpoint::{Endpoint, Role};
use crate::error::{Error, UnexpectedMessage};
use crate::layout::Layout;
use crate::limits::{MAX_BLOCKS, MAX_ENTRIES};
use crate::link::{Link, Side, Timeouts};
use crate::manifest::{Kind, Manifest, ManifestError};
use crate::wire::held::{Held, Scanned};
use crate::wire::hello::{Capabilities, Hello, Prepared, Welcome};
use crate::wire::island::{Listen, Multicast};
use crate::wire::offer::{CopyId, EntryError, Offer, parse_entries, parse_entry};
use crate::wire::plan::{Carrier, Plan, parse_runs};
use crate::wire::port::{Port, Suggest};
use crate::wire::progress::{Done, FileDigest, Progress};
use crate::wire::relay::{Blocks, Fed, Feed, LinkReport};
use crate::wire::verdict::{Failed, Reason};
use crate::wire::{self, Message as _, Type};

/// How one server is set up. Start from [`ServerConfig::new`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerConfig {
    /// Capabilities of this side.
    pub capabilities: Capabilities,
    /// Most entries of one copy.
    pub max_entries: u32,
    /// Limit of the bytes of all ENTRIES of one copy: about the memory of the manifest.
    pub max_manifest_bytes: usize,
    /// Most blocks of one copy; a block costs 32 bytes and one bit here while the copy lasts.
    pub max_blocks: u64,
    /// Timeout of HELLO, from the start of the connection.
    pub greeting: Duration,
    /// Timeout of the offer, from HELLO.
    pub setup: Duration,
    /// Interval of keep-alives, and timeout of the peer.
    pub timeouts: Timeouts,
}

impl ServerConfig {
    /// 2^20 entries in 128 MiB, 2^24 blocks (16 TiB), 5 s for HELLO, 30 s for the offer.
    pub fn new(capabilities: Capabilities) -> Self {
        ServerConfig {
            capabilities,
            max_entries: 1 << 20,
            max_manifest_bytes: 128 << 20,
            max_blocks: 1 << 24,
            greeting: Duration::from_secs(5),
            setup: Duration::from_secs(30),
            timeouts: Timeouts::default(),
        }
    }
}

/// An event for the application.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ServerEvent {
    /// The manifest is complete and valid: examine existing data, then call [`Server::scanned`].
    Offered {
        /// Which copy.
        copy: CopyId,
        /// The entries of the copy.
        manifest: Arc<Manifest>,
    },
    /// The client suggests a port: answer with [`Server::port`]. A port confirmed before is no longer needed.
    Suggested {
        /// How data will travel.
        carrier: Carrier,
        /// The port that data comes from.
        source: u16,
        /// The port that data may go to.
        destination: u16,
        /// The client connects as soon as it has sent the plan, without waiting for [`Server::ready`]: listen at
        /// once.
        prepared: Option<Prepared>,
    },
    /// The plan is complete: listen, then call [`Server::ready`].
    Planned {
        /// How data comes; with no runs nothing does.
        plan: Plan,
        /// Which blocks the data stream is.
        layout: Arc<Layout>,
    },
    /// Digests of blocks, to verify those that arrive over links before they are stored and passed on.
    Blocks(Blocks),
    /// Feed another host.
    Feed(Feed),
    /// Be fed over this link, in place of the one before.
    Fed(Fed),
    /// Multicast to the members of this island, in place of the one before.
    Multicast(Multicast),
    /// Listen to the head of this island, in place of the one before.
    Listen(Listen),
    /// The digest of a file when the client read it.
    Digest(FileDigest),
    /// The client confirms that everything is in place. Nothing follows.
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
    Offer,
    Entries,
    Scanning,
    Ports,
    Planning,
    Planned,
    Data,
    Done,
}

/// State of a server: see [`Server`].
#[derive(Debug)]
pub struct ServerRole {
    config: ServerConfig,
    state: State,
    offer: Option<Offer>,
    /// The suggestion of HELLO, until the offer is complete.
    prepared: Option<Prepared>,
    manifest: Arc<Manifest>,
    manifest_bytes: usize,
    held: u64,
    held_end: u64,
    /// The suggestion that waits for an answer, and the number of the last one.
    suggested: Option<Suggest>,
    suggestions: u16,
    /// The carrier of the last suggestion.
    carrier: Option<Carrier>,
    plan: Option<Plan>,
    runs: Vec<Run>,
    /// Files before this entry have had their DIGEST.
    next_digest: u32,
    /// Blocks before this one were named in BLOCKS, or are not named any more.
    next_named: u64,
}

/// The server's endpoint.
///
/// | state | takes | sends | then |
/// | --- | --- | --- | --- |
/// | hello | HELLO | WELCOME | |
/// | offer | OFFER, ENTRIES | | [`ServerEvent::Offered`] |
/// | scanning | | HELD, SCANNED ([`Server::held`], [`Server::scanned`]); PORT, where HELLO has a suggestion | |
/// | ports | SUGGEST, PLAN | PORT ([`Server::port`]) | |
/// | planning | RUNS | READY ([`Server::ready`]) | [`ServerEvent::Planned`] |
/// | data | DIGEST | PROGRESS, DONE ([`Server::progress`], [`Server::done`]) | |
/// | data, with links | BLOCKS, FEED, FED, MULTICAST, LISTEN | LINK ([`Server::link`]) | [`ServerEvent::Blocks`] and the others |
/// | done | VERIFIED | | [`ServerEvent::Verified`] |
///
/// FAILED and KEEPALIVE may be sent by either side at any time.
pub type Server = Endpoint<ServerRole>;

impl Sealed for ServerRole {}

impl Role for ServerRole {
    type Event = ServerEvent;

    fn failed(failed: Failed, side: Side) -> ServerEvent {
        ServerEvent::Failed { failed, side }
    }

    fn take(machine: &mut Server, now: Instant, kind: Type, frame: &[u8]) -> Result<(), Error> {
        machine.take(now, kind, frame)
    }
}

impl Server {
    /// Waits for HELLO on a new connection.
    pub fn new(config: ServerConfig, now: Instant) -> Self {
        let mut link = Link::new(config.timeouts, now);
        link.deadline = Some(now + config.greeting);
        let role = ServerRole {
            config,
            state: State::Hello,
            offer: None,
            prepared: None,
            manifest: Arc::new(Manifest::default()),
            manifest_bytes: 0,
            held: 0,
            held_end: 0,
            suggested: None,
            suggestions: 0,
            carrier: None,
            plan: None,
            runs: Vec::new(),
            next_digest: 0,
            next_named: 0,
        };
        Endpoint::start(role, link)
    }

    fn take(&mut self, now: Instant, kind: Type, frame: &[u8]) -> Result<(), Error> {
        match (kind, self.role.state) {
            (Type::Hello, State::Hello) => {
                self.hello(now, &Hello::parse(frame)?);
                Ok(())
            }
            (Type::Offer, State::Offer) => {
                self.take_offer(now, Offer::parse(frame)?);
                Ok(())
            }
            (Type::Entries, State::Entries) => self.take_entries(now, frame),
            (Type::Suggest, State::Ports) if self.role.suggested.is_none() => {
                self.take_suggest(now, Suggest::parse(frame)?)
            }
            (Type::Plan, State::Ports) if self.role.suggested.is_none() => {
                self.take_plan(Plan::parse(frame)?)
            }
            (Type::Runs, State::Planning) => self.take_runs(parse_runs(frame)?),
            (Type::Digest, State::Planned | State::Data) => {
                let digest = FileDigest::parse(frame)?;
                let entry = self.role.manifest.entries().get(digest.entry as usize);
                let is_file = entry.is_some_and(|entry| matches!(entry.kind, Kind::File { .. }));
                // Each of these comes once: what the application stores for them is bounded.
                if !is_file || digest.entry < self.role.next_digest {
                    return Err(Error::Contradiction);
                }
                self.role.next_digest = digest.entry + 1;
                self.link.event(ServerEvent::Digest(digest));
                Ok(())
            }
            // The sender may not have received DONE yet, and a host feeds others after it.
            (
                Type::Blocks | Type::Feed | Type::Fed | Type::Multicast | Type::Listen,
                State::Planned | State::Data | State::Done,
            ) if self.role.plan.is_some_and(|plan| plan.relay) => self.take_links(kind, frame),
            (Type::Verified, State::Done) => {
                wire::Verified::parse(frame)?;
                self.link.end(now);
                self.link.event(ServerEvent::Verified);
                Ok(())
            }
            _ => Err(Error::Unexpected),
        }
    }

    fn take_links(&mut self, kind: Type, frame: &[u8]) -> Result<(), Error> {
        let event = match kind {
            Type::Blocks => {
                let blocks = Blocks::parse(frame)?;
                let end = blocks.first + blocks.digests.len() as u64;
                // Each block is named once: what the application stores for them is bounded.
                if end > self.role.manifest.blocks() || blocks.first < self.role.next_named {
                    return Err(Error::Contradiction);
                }
                self.role.next_named = end;
                ServerEvent::Blocks(blocks)
            }
            Type::Feed => ServerEvent::Feed(Feed::parse(frame)?),
            Type::Multicast => ServerEvent::Multicast(Multicast::parse(frame)?),
            Type::Listen => ServerEvent::Listen(Listen::parse(frame)?),
            _ => ServerEvent::Fed(Fed::parse(frame)?),
        };
        self.link.event(event);
        Ok(())
    }

    fn hello(&mut self, now: Instant, hello: &Hello) {
        let Some(version) = hello.version() else {
            self.refuse(now, Reason::Protocol, &hello.mismatch());
            return;
        };
        let capabilities = self.role.config.capabilities;
        // A client refuses a server that lacks what its data needs.
        let usable = |prepared: &Prepared| capabilities.has(prepared.carrier.capability());
        self.role.prepared = hello.prepared.filter(usable);
        let welcome = Welcome {
            version,
            capabilities: capabilities.with(Capabilities::PREPARES),
            max_entries: self.role.config.max_entries.min(MAX_ENTRIES),
            max_bytes: self.role.config.max_blocks.min(MAX_BLOCKS) << crate::limits::BLOCK_BITS,
        };
        self.link.send(now, &welcome);
        self.role.state = State::Offer;
        self.link.deadline = Some(now + self.role.config.setup);
    }

    fn take_offer(&mut self, now: Instant, offer: Offer) {
        if offer.entries > self.role.config.max_entries {
            self.refuse(now, Reason::TooLarge, "more entries than it takes");
            return;
        }
        self.role.offer = Some(offer);
        self.role.state = State::Entries;
    }

    /// All entries of the frame are accepted, or none: an invalid one ends the copy with its reason.
    fn take_entries(&mut self, now: Instant, frame: &[u8]) -> Result<(), Error> {
        let offer = self.role.offer.ok_or(Error::Unexpected)?;
        let mut bytes = parse_entries(frame)?;
        self.role.manifest_bytes += bytes.len();
        if self.role.manifest_bytes > self.role.config.max_manifest_bytes {
            self.refuse(
                now,
                Reason::TooLarge,
                "names need more memory than it has for them",
            );
            return Ok(());
        }
        // The manifest is not shared before it is complete.
        let manifest = Arc::make_mut(&mut self.role.manifest);
        while !bytes.is_empty() {
            let next = parse_entry(bytes).and_then(|(entry, rest)| {
                manifest.push(entry)?;
                Ok(rest)
            });
            let most = offer.entries as usize;
            match next {
                Ok(_) if manifest.len() > most => return Err(Error::Contradiction),
                Ok(_) if manifest.blocks() > self.role.config.max_blocks => {
                    self.refuse(now, Reason::TooLarge, "more bytes than it takes");
                    return Ok(());
                }
                Ok(rest) => bytes = rest,
                Err(EntryError::Parse(error)) => return Err(error.into()),
                Err(EntryError::Manifest(error)) => {
                    let entry = manifest.len() as u32;
                    self.refuse_entry(now, entry, error);
                    return Ok(());
                }
            }
        }
        if self.role.manifest.len() < offer.entries as usize {
            return Ok(());
        }
        if self.role.manifest.bytes() != offer.bytes {
            return Err(Error::Contradiction);
        }
        self.role.state = State::Scanning;
        self.link.deadline = None;
        self.link.event(ServerEvent::Offered {
            copy: offer.copy,
            manifest: Arc::clone(&self.role.manifest),
        });
        if let Some(prepared) = self.role.prepared.take() {
            let suggest = Suggest {
                number: 1,
                carrier: prepared.carrier,
                source: prepared.source,
                destination: prepared.destination,
            };
            self.suggested(suggest, Some(prepared));
        }
        Ok(())
    }

    fn suggested(&mut self, suggest: Suggest, prepared: Option<Prepared>) {
        self.role.suggestions = suggest.number;
        self.role.suggested = Some(suggest);
        self.role.carrier = Some(suggest.carrier);
        self.link.event(ServerEvent::Suggested {
            carrier: suggest.carrier,
            source: suggest.source,
            destination: suggest.destination,
            prepared,
        });
    }

    fn refuse_entry(&mut self, now: Instant, entry: u32, error: ManifestError) {
        let reason = match error {
            ManifestError::TooLarge => Reason::TooLarge,
            _ => Reason::Name,
        };
        let text = alloc::format!("{error}");
        self.fail(now, Failed::new(reason, Some(entry), &text));
    }

    /// Reports existing blocks with their digests, in ascending order.
    ///
    /// # Errors
    /// Not between the offer and [`Server::scanned`], or out of order or of bounds.
    pub fn held(&mut self, now: Instant, held: &Held) -> Result<(), UnexpectedMessage> {
        let end = held.first + held.digests.len() as u64;
        let fits = held.first >= self.role.held_end && end <= self.role.manifest.blocks();
        let counted = (1..=crate::limits::MAX_HELD).contains(&held.digests.len());
        if !self.is_in(State::Scanning) || !fits || !counted {
            return Err(UnexpectedMessage);
        }
        self.role.held_end = end;
        self.role.held += held.digests.len() as u64;
        self.link.send(now, held);
        Ok(())
    }

    /// Everything that is there was named.
    ///
    /// # Errors
    /// Not after the offer, or a second time.
    pub fn scanned(&mut self, now: Instant) -> Result<(), UnexpectedMessage> {
        if !self.is_in(State::Scanning) {
            return Err(UnexpectedMessage);
        }
        let scanned = Scanned {
            blocks: self.role.held,
        };
        self.link.send(now, &scanned);
        self.role.state = State::Ports;
        Ok(())
    }

    fn take_suggest(&mut self, now: Instant, suggest: Suggest) -> Result<(), Error> {
        if suggest.number != self.role.suggestions + 1 {
            return Err(Error::Contradiction);
        }
        if !self
            .role
            .config
            .capabilities
            .has(suggest.carrier.capability())
        {
            self.refuse(now, Reason::Capability, "");
            return Ok(());
        }
        self.suggested(suggest, None);
        Ok(())
    }

    /// Answers a suggestion: the port that is kept for the data. Another than the suggested one is
    /// an alternative.
    ///
    /// # Errors
    /// No suggestion waits, or the port is 0.
    pub fn port(&mut self, now: Instant, port: u16) -> Result<(), UnexpectedMessage> {
        let may = self.is_in(State::Scanning) || self.is_in(State::Ports);
        if !may || port == 0 {
            return Err(UnexpectedMessage);
        }
        let suggested = self.role.suggested.take().ok_or(UnexpectedMessage)?;
        let answer = Port {
            number: suggested.number,
            confirmed: port == suggested.destination,
            port,
        };
        self.link.send(now, &answer);
        Ok(())
    }

    fn take_plan(&mut self, plan: Plan) -> Result<(), Error> {
        let allowed = self.role.config.capabilities.has(Capabilities::FED);
        if plan.relay && !allowed {
            return Err(Error::Contradiction);
        }
        let carried = plan.runs > 0 && !plan.has_links_only();
        if carried && self.role.carrier != Some(plan.carrier) {
            return Err(Error::Contradiction);
        }
        self.role.plan = Some(plan);
        self.role.state = State::Planning;
        if plan.runs == 0 {
            return self.planned();
        }
        Ok(())
    }

    fn take_runs(&mut self, runs: Vec<Run>) -> Result<(), Error> {
        let plan = self.role.plan.ok_or(Error::Unexpected)?;
        let all = self.role.runs.len() + runs.len();
        if all > plan.runs as usize {
            return Err(Error::Contradiction);
        }
        self.role.runs.extend_from_slice(&runs);
        if all == plan.runs as usize {
            return self.planned();
        }
        Ok(())
    }

    fn planned(&mut self) -> Result<(), Error> {
        let plan = self.role.plan.ok_or(Error::Unexpected)?;
        let runs = core::mem::take(&mut self.role.runs);
        let layout = Layout::new(&self.role.manifest, runs);
        let layout = layout.map_err(|_| Error::Contradiction)?;
        if layout.len() != plan.stream_len {
            return Err(Error::Contradiction);
        }
        self.role.state = State::Planned;
        self.link.event(ServerEvent::Planned {
            plan,
            layout: Arc::new(layout),
        });
        Ok(())
    }

    /// Reports that the data may be sent.
    ///
    /// # Errors
    /// Not after the plan, or a second time.
    pub fn ready(&mut self, now: Instant) -> Result<(), UnexpectedMessage> {
        if !self.is_in(State::Planned) {
            return Err(UnexpectedMessage);
        }
        self.link.send(now, &wire::Ready);
        self.role.state = State::Data;
        Ok(())
    }

    /// Reports progress, unless much output is queued.
    ///
    /// # Errors
    /// Not while data comes.
    pub fn progress(&mut self, now: Instant, progress: Progress) -> Result<(), UnexpectedMessage> {
        if !self.is_in(State::Data) {
            return Err(UnexpectedMessage);
        }
        if self.link.queued() < 8 {
            self.link.send(now, &progress);
        }
        Ok(())
    }

    /// Reports the state of a link.
    ///
    /// # Errors
    /// Before the plan, or it has no links.
    pub fn link(&mut self, now: Instant, report: &LinkReport) -> Result<(), UnexpectedMessage> {
        let may = [State::Planned, State::Data, State::Done].contains(&self.role.state)
            && !self.link.is_ended();
        if !may || !self.role.plan.is_some_and(|plan| plan.relay) {
            return Err(UnexpectedMessage);
        }
        self.link.send(now, report);
        Ok(())
    }

    /// Everything is in place.
    ///
    /// # Errors
    /// Not while data comes, or a second time.
    pub fn done(&mut self, now: Instant, done: &Done) -> Result<(), UnexpectedMessage> {
        if !self.is_in(State::Data) {
            return Err(UnexpectedMessage);
        }
        self.link.send(now, done);
        self.role.state = State::Done;
        Ok(())
    }

    fn is_in(&self, state: State) -> bool {
        self.role.state == state && !self.link.is_ended()
    }
}
