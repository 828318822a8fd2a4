//! One control connection.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use control_stream::conversation::{Conversation, Turn};
use mcp_control::explain;
use mcp_control::wire::hello::{Capabilities, Prepared};
use mcp_control::wire::island::{Listen, Multicast};
use mcp_control::wire::plan::{Carrier, Plan};
use mcp_control::wire::progress::Done;
use mcp_control::wire::relay::{Fed, Feed, LinkReport, LinkState};
use mcp_control::{Failed, Layout, Manifest, Reason, Server, ServerEvent, Side};
use mcp_relay::Terms;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, mpsc as reports, watch};

use crate::activity::{Entry, Running};
use crate::config::Settings;
use crate::data::{Abort, Incoming, Reservation};
use crate::events::{Event, hex};
use crate::listen::Shared;
use crate::relay::island::Islands;
use crate::relay::links::{Links, MAX_LINK_REPORTS};
use crate::relay::shelf::Shelf;
use crate::waiting::Ticket;
use crate::worker::{self, Order, Report};

/// Messages of the worker that may wait; the worker pauses when they are not taken.
const MAX_REPORTS: usize = 16;
/// Frames that may wait to be sent; messages of the worker are not taken meanwhile.
const MAX_QUEUED: usize = 64;
/// Time allowed for the sender's own reason after the data connection failed: a sender that stops resets the
/// data connection, and its message on the control connection may arrive later.
const REASON_TIMEOUT: Duration = Duration::from_secs(1);

/// The result of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Copied,
    Failed,
}

/// One control connection.
pub(crate) struct Session<S> {
    shared: Arc<Shared>,
    settings: Arc<Settings>,
    conversation: Conversation<Server, S>,
    peer: SocketAddr,
    /// This host's address on the connection, to which data is sent.
    local: SocketAddr,
    began: Instant,
    copy: Option<Copy>,
    port: Option<Reserved>,
    abort: Abort,
    /// The failure of the data connection, and how long to wait for the sender's own reason.
    data_failed: Option<(Failed, tokio::time::Instant)>,
    /// Its place among the connections that have offered nothing yet.
    waiting: Option<Ticket>,
    /// Its permit to copy.
    copying: Option<OwnedSemaphorePermit>,
    links: Arc<Links>,
    islands: Islands,
    /// What links report to the sender.
    link_reports: reports::Receiver<LinkReport>,
    /// The verified blocks, where the plan has links.
    shelf: Option<Arc<Shelf>>,
    /// The sender has arranged a link that feeds this host.
    is_fed: bool,
}

/// The offered copy.
struct Copy {
    id: String,
    manifest: Arc<Manifest>,
    orders: mpsc::Sender<Order>,
    reports: reports::Receiver<Report>,
    done: Option<Done>,
    held: u64,
    entry: Entry,
}

impl Copy {
    fn name(&self) -> String {
        self.manifest
            .entries()
            .first()
            .map_or_else(String::new, |entry| entry.path.to_string())
    }
}

/// A port that is reserved for the data.
enum Reserved {
    Port(Reservation),
    /// The sender connects without waiting for READY, from this port and with this key: listening already.
    Listening(Incoming, Prepared),
}

impl Reserved {
    fn port(&self) -> u16 {
        match self {
            Reserved::Port(reservation) => reservation.port(),
            Reserved::Listening(incoming, _) => incoming.port(),
        }
    }
}

/// The reason why the session was woken.
enum Wake {
    Turn(Turn<ServerEvent>),
    Report(Option<Report>),
    Link(LinkReport),
    /// The sender sent no reason of its own.
    NoReason(Failed),
    Stop,
}

impl<S: AsyncRead + AsyncWrite> Session<S> {
    pub(crate) fn new(
        (shared, settings): (Arc<Shared>, Arc<Settings>),
        stream: S,
        peer: SocketAddr,
        local: SocketAddr,
        waiting: Ticket,
    ) -> Self {
        let clock = shared.clock;
        let (to_here, link_reports) = reports::channel(MAX_LINK_REPORTS);
        let expected = Arc::clone(&shared.expected);
        let links = Links::new(expected, Arc::clone(&shared.activity), peer.ip(), to_here);
        let links = Arc::new(links);
        let machine = Server::new(settings.server.clone(), clock.now());
        Session {
            shared,
            settings,
            conversation: Conversation::new(machine, stream, clock),
            waiting: Some(waiting),
            copying: None,
            peer,
            local,
            began: Instant::now(),
            copy: None,
            port: None,
            abort: Abort::default(),
            data_failed: None,
            islands: Islands::new(Arc::clone(&links)),
            links,
            link_reports,
            shelf: None,
            is_fed: false,
        }
    }

    /// Runs until the connection ends; `None` when nothing was offered.
    pub(crate) async fn run(mut self, mut stop: watch::Receiver<bool>) -> Option<Outcome> {
        let mut outcome = Outcome::Failed;
        loop {
            let wake = self.wake(&mut stop).await;
            match wake {
                Wake::Turn(Turn::Over) => break,
                // More messages of the worker can be taken.
                Wake::Turn(Turn::Sent) => {}
                Wake::Turn(Turn::Event(ServerEvent::Verified)) => {
                    self.verified();
                    outcome = Outcome::Copied;
                    if let Some(copy) = &mut self.copy {
                        copy.entry.outcome = outcome;
                    }
                }
                Wake::Turn(Turn::Event(event)) => self.event(event),
                Wake::Report(Some(report)) => self.take_report(report),
                Wake::Report(None) => self.worker_ended(),
                Wake::Link(report) => {
                    let now = self.conversation.now();
                    // After the end of the copy the report is dropped.
                    let _ = self.conversation.machine.link(now, &report);
                }
                Wake::NoReason(failed) => {
                    self.data_failed = None;
                    let now = self.conversation.now();
                    self.conversation.machine.fail(now, failed);
                }
                Wake::Stop => self.fail(Reason::Interrupted, "mcpd was stopped"),
            }
        }
        self.abort.abort();
        self.islands.close();
        self.links.close();
        self.copy.is_some().then_some(outcome)
    }

    /// Handles the end of the worker, which has reported its result or failure before.
    fn worker_ended(&mut self) {
        let Some(copy) = &mut self.copy else { return };
        copy.reports.close();
        let unexplained = copy.done.is_none() && self.data_failed.is_none();
        if unexplained && !self.conversation.machine.is_ended() {
            self.fail(Reason::Storage, "the thread of the copy has ended");
        }
    }

    async fn wake(&mut self, stop: &mut watch::Receiver<bool>) -> Wake {
        let ended = self.conversation.machine.is_ended();
        let room = self.conversation.machine.queued() < MAX_QUEUED;
        let reports = async {
            match &mut self.copy {
                Some(copy) if !copy.reports.is_closed() || !copy.reports.is_empty() => {
                    copy.reports.recv().await
                }
                _ => std::future::pending().await,
            }
        };
        let data_failed = self.data_failed.clone();
        let no_reason = async {
            match data_failed {
                Some((failed, until)) => {
                    tokio::time::sleep_until(until).await;
                    failed
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            turn = self.conversation.turn() => Wake::Turn(turn),
            reports = reports, if room && !ended => Wake::Report(reports),
            Some(report) = self.link_reports.recv(), if room && !ended => Wake::Link(report),
            failed = no_reason, if !ended => Wake::NoReason(failed),
            _ = stop.wait_for(|stop| *stop), if !ended => Wake::Stop,
        }
    }

    fn event(&mut self, event: ServerEvent) {
        match event {
            ServerEvent::Offered { copy, manifest } => {
                self.offered(copy.to_string(), manifest);
            }
            ServerEvent::Suggested {
                carrier,
                destination,
                prepared,
                ..
            } => self.suggested(carrier, destination, prepared),
            ServerEvent::Planned { plan, layout } => self.planned(&plan, layout),
            ServerEvent::Digest(digest) => {
                self.order(Order::Verdict(digest));
            }
            ServerEvent::Blocks(blocks) => self.order(Order::Named(blocks)),
            ServerEvent::Fed(fed) => self.fed(&fed),
            ServerEvent::Feed(feed) => self.feed(feed),
            ServerEvent::Multicast(multicast) => self.multicast(multicast),
            ServerEvent::Listen(listen) => self.listen_to(&listen),
            ServerEvent::Failed { failed, side } => self.failed(&failed, side),
            ServerEvent::Verified => {}
        }
    }

    fn order(&self, order: Order) {
        if let Some(copy) = &self.copy {
            // A worker that has ended has reported why.
            let _ = copy.orders.send(order);
        }
    }

    /// Expects a feeder.
    fn fed(&mut self, fed: &Fed) {
        // A data connection that the sender has given up for it has not failed.
        self.data_failed = None;
        self.is_fed = true;
        self.abort.abort();
        if fed.alone {
            self.islands.leave();
        }
        let Some(copy) = &self.copy else { return };
        let terms = Terms {
            link: fed.link,
            secret: fed.secret,
            sealed: fed.sealed,
        };
        let manifest = Arc::clone(&copy.manifest);
        self.links.expect(terms, manifest, copy.orders.clone());
        self.links.report(fed.link, LinkState::Expected);
    }

    /// Feeds another host.
    fn feed(&self, feed: Feed) {
        match (&self.shelf, &self.copy) {
            (Some(shelf), Some(copy)) if self.feeds() => {
                let manifest = Arc::clone(&copy.manifest);
                self.links.feed(feed, manifest, Arc::clone(shelf));
            }
            _ => self.links.report(feed.link, LinkState::Refused),
        }
    }

    /// Passes blocks on to an island.
    fn multicast(&self, multicast: Multicast) {
        match (&self.shelf, &self.copy) {
            (Some(shelf), Some(copy)) if self.feeds() => {
                let manifest = Arc::clone(&copy.manifest);
                self.islands
                    .multicast(multicast, self.local, manifest, Arc::clone(shelf));
            }
            _ => self.links.report(multicast.island.link, LinkState::Refused),
        }
    }

    /// Listens to the head of an island.
    fn listen_to(&self, listen: &Listen) {
        let Some(copy) = &self.copy else { return };
        let manifest = Arc::clone(&copy.manifest);
        self.islands
            .listen(listen, self.local, manifest, copy.orders.clone());
    }

    fn feeds(&self) -> bool {
        let capabilities = self.settings.server.capabilities;
        capabilities.has(Capabilities::FEEDS)
    }

    fn offered(&mut self, id: String, manifest: Arc<Manifest>) {
        self.waiting = None;
        self.copying = Arc::clone(&self.shared.copies).try_acquire_owned().ok();
        if self.copying.is_none() {
            self.fail(Reason::Busy, "");
            return;
        }
        let (orders, from_here) = mpsc::channel();
        let (to_here, reports) = reports::channel(MAX_REPORTS);
        let name = manifest.entries().first();
        let name = name.map_or_else(String::new, |entry| entry.path.to_string());
        let entry = self.shared.activity.begin(Running {
            peer: self.peer,
            name,
            bytes: manifest.bytes(),
            received: 0,
            held: 0,
            since: self.began,
        });
        let copy = Copy {
            id,
            manifest: Arc::clone(&manifest),
            orders,
            reports,
            done: None,
            held: 0,
            entry,
        };
        tracing::info!(event = "offered", peer = %self.peer, name = copy.name(), bytes = manifest.bytes(), "offered");
        self.shared.events.emit(&Event::Offered {
            copy: copy.id.clone(),
            peer: self.peer,
            name: copy.name(),
            entries: manifest.len(),
            bytes: manifest.bytes(),
        });
        self.copy = Some(copy);
        let folder = self.settings.folder.clone();
        if let Err(error) = worker::start(folder, self.settings.fsync, manifest, from_here, to_here)
        {
            self.fail(Reason::Busy, &format!("no thread: {error}"));
        }
    }

    /// Reserves the suggested port (TCP-XM §3.4), or another one.
    fn suggested(&mut self, carrier: Carrier, port: u16, prepared: Option<Prepared>) {
        // Release the port reserved before.
        self.port = None;
        match self.reserve(carrier, port, prepared) {
            Ok(reservation) => {
                let now = self.conversation.now();
                let port = reservation.port();
                self.port = Some(reservation);
                if self.conversation.machine.port(now, port).is_err() {
                    self.fail(Reason::Protocol, "");
                }
            }
            Err(error) => self.fail(Reason::NoPort, &error.to_string()),
        }
    }

    /// Reserves the suggested port, or another free one, and listens there at once if that is wanted.
    fn reserve(
        &self,
        carrier: Carrier,
        port: u16,
        prepared: Option<Prepared>,
    ) -> std::io::Result<Reserved> {
        let kept = Reservation::new(carrier, self.local, port);
        let kept = kept.or_else(|_| Reservation::new(carrier, self.local, 0))?;
        let Some(prepared) = prepared.filter(|_| kept.port() == port) else {
            return Ok(Reserved::Port(kept));
        };
        let from = SocketAddr::new(self.peer.ip(), prepared.source);
        let key = prepared.key.map(|key| key.0);
        let incoming = Incoming::open(kept, from, key, self.abort.clone())?;
        Ok(Reserved::Listening(incoming, prepared))
    }

    fn planned(&mut self, plan: &Plan, layout: Arc<Layout>) {
        if plan.has_links_only() {
            // The port that was suggested is not used.
            self.port = None;
        }
        let Some(copy) = &self.copy else { return };
        let sealed = plan.key.is_some();
        let group = plan.group.map(|group| group.to_string());
        self.shared.events.emit(&Event::Started {
            copy: copy.id.clone(),
            held: copy.held,
            to_receive: plan.stream_len,
            port: plan.destination,
            group,
            sealed,
        });
        if plan.relay {
            let folder = &self.settings.folder;
            let activity = Arc::clone(&self.shared.activity);
            match Shelf::new(folder, Arc::clone(&copy.manifest), activity) {
                Ok(shelf) => self.shelf = Some(Arc::new(shelf)),
                Err(trouble) => {
                    let now = self.conversation.now();
                    self.conversation.machine.fail(now, trouble.failed());
                    return;
                }
            }
        }
        let incoming = if layout.is_empty() || plan.has_links_only() {
            None
        } else {
            match self.listen(plan) {
                Ok(incoming) => Some(incoming),
                Err((reason, text)) => {
                    self.fail(reason, &text);
                    return;
                }
            }
        };
        let shelf = self.shelf.as_ref();
        let relay = shelf.map(|shelf| (Arc::clone(shelf), Arc::clone(&self.links)));
        self.order(Order::Receive(layout, incoming, relay));
    }

    /// Opens the receiving end of the data connection.
    fn listen(&mut self, plan: &Plan) -> Result<Incoming, (Reason, String)> {
        let reserved = self.port.take();
        let reserved = reserved.filter(|port| port.port() == plan.destination);
        let mut incoming = match reserved {
            Some(Reserved::Port(reservation)) => {
                let key = plan.key.map(|key| key.0);
                let from = SocketAddr::new(self.peer.ip(), plan.source);
                Incoming::open(reservation, from, key, self.abort.clone())
                    .map_err(|error| (Reason::Data, error.to_string()))?
            }
            Some(Reserved::Listening(incoming, prepared))
                if prepared.source == plan.source && prepared.key == plan.key =>
            {
                incoming
            }
            Some(Reserved::Listening(..)) | None => return Err((Reason::Protocol, String::new())),
        };
        incoming.expect_group(plan.group);
        Ok(incoming)
    }

    fn take_report(&mut self, report: Report) {
        let now = self.conversation.now();
        let machine = &mut self.conversation.machine;
        let said = match report {
            Report::Held(held) => machine.held(now, &held),
            Report::Scanned => machine.scanned(now),
            Report::Ready => machine.ready(now),
            Report::Progress(progress) => {
                if let Some(copy) = &mut self.copy {
                    copy.held = progress.held;
                    copy.entry.progress(progress.received, progress.held);
                    self.shared.events.emit(&Event::Progress {
                        copy: copy.id.clone(),
                        received: progress.received,
                        held: progress.held,
                        bytes: copy.manifest.bytes(),
                    });
                }
                machine.progress(now, progress)
            }
            Report::Done(done) => {
                let said = machine.done(now, &done);
                if let Some(copy) = &mut self.copy {
                    copy.done = Some(done);
                }
                said
            }
            // The sender has arranged a link meanwhile.
            Report::Failed(failed) if failed.reason == Reason::Data && self.is_fed => Ok(()),
            Report::Failed(failed) if failed.reason == Reason::Data => {
                self.data_failed = Some((failed, tokio::time::Instant::now() + REASON_TIMEOUT));
                Ok(())
            }
            Report::Failed(failed) => {
                machine.fail(now, failed);
                Ok(())
            }
        };
        if said.is_err() && !self.conversation.machine.is_ended() {
            self.fail(Reason::Protocol, "");
        }
    }

    fn fail(&mut self, reason: Reason, text: &str) {
        let now = self.conversation.now();
        let failed = Failed::new(reason, None, text);
        self.conversation.machine.fail(now, failed);
    }

    fn verified(&self) {
        let Some(copy) = &self.copy else { return };
        let Some(done) = &copy.done else { return };
        let seconds = self.began.elapsed().as_secs_f64();
        let name = copy.name();
        tracing::info!(event = "copied", peer = %self.peer,
            name,
            bytes = done.bytes,
            received = done.received,
            seconds,
            "copied, verified"
        );
        self.shared.events.emit(&Event::Copied {
            copy: copy.id.clone(),
            peer: self.peer,
            name,
            bytes: done.bytes,
            received: done.received,
            digest: hex(&done.whole),
            seconds,
        });
    }

    fn failed(&self, failed: &Failed, side: Side) {
        let name = self.copy.as_ref().map(Copy::name);
        let mut message = explain(failed, side, self.copy.as_ref().map(|copy| &*copy.manifest));
        if side == Side::Peer {
            message = format!("the sender: {message}");
        }
        let shown = name.as_deref().unwrap_or("no copy");
        tracing::warn!(event = "failed", peer = %self.peer, name = shown, message, "failed");
        self.shared.events.emit(&Event::Failed {
            copy: self.copy.as_ref().map(|copy| copy.id.clone()),
            peer: self.peer,
            name,
            reason: failed.reason.name(),
            message,
        });
    }
}
