//! The thread of one copy.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use mcp_control::wire::held::Held;
use mcp_control::wire::progress::{Done, FileDigest, Progress};
use mcp_control::wire::relay::{Blocks, LinkId, LinkState};
use mcp_control::{Failed, Layout, Manifest, Reason};
use mcp_relay::child::Asker;
use tokio::sync::mpsc as reports;

use crate::data::Incoming;
use crate::relay::island::Streamed;
use crate::relay::links::Links;
use crate::relay::pull::Pull;
use crate::relay::shelf::Shelf;
use crate::store::{Store, Trouble};

/// A message of the control connection to the worker.
pub(crate) enum Order {
    /// The layout of the data, its stream, if there is one, and what links need.
    Receive(Arc<Layout>, Option<Incoming>, Option<Relay>),
    /// Digests of blocks.
    Named(Blocks),
    /// A feeder has connected.
    Linked(LinkId, Box<Asker>),
    /// It has sent a block.
    Arrived(LinkId, u64, Vec<u8>),
    /// A link has ended.
    Unlinked(LinkId, LinkState),
    /// This host listens to the head of an island.
    Listening(LinkId),
    /// The head of the island has sent a block.
    Streamed(Streamed),
    /// The stream of the island has ended.
    IslandEnded(LinkId),
    /// The sender's digest of a file.
    Verdict(FileDigest),
}

/// Shared state of a copy that links may feed.
pub(crate) type Relay = (Arc<Shelf>, Arc<Links>);

/// A message of the worker to the control connection.
#[derive(Debug)]
pub(crate) enum Report {
    Held(Held),
    Scanned,
    Ready,
    Progress(Progress),
    Done(Done),
    Failed(Failed),
}

/// Interval of progress reports.
const PROGRESS: Duration = Duration::from_millis(200);

/// Starts the thread, which ends when its channels are closed.
pub(crate) fn start(
    folder: PathBuf,
    fsync: bool,
    manifest: Arc<Manifest>,
    orders: mpsc::Receiver<Order>,
    reports: reports::Sender<Report>,
) -> io::Result<()> {
    let run = move || {
        let mut worker = Worker {
            orders,
            reports,
            manifest,
            pull: None,
            told: Instant::now(),
        };
        match worker.run(&folder, fsync) {
            Ok(()) | Err(Stop::Gone) => {}
            Err(Stop::Trouble(trouble)) => {
                // The control connection may be gone.
                let _ = worker.tell(Report::Failed(trouble.failed()));
            }
        }
    };
    std::thread::Builder::new()
        .name("copy".to_owned())
        .spawn(run)?;
    Ok(())
}

/// The reason why the worker ends early.
enum Stop {
    Trouble(Trouble),
    /// The control connection is gone, and has reported why.
    Gone,
}

impl From<Trouble> for Stop {
    fn from(trouble: Trouble) -> Self {
        Stop::Trouble(trouble)
    }
}

struct Worker {
    orders: mpsc::Receiver<Order>,
    reports: reports::Sender<Report>,
    manifest: Arc<Manifest>,
    /// The blocks that come over links, if they may.
    pull: Option<Pull>,
    /// When progress was reported last.
    told: Instant,
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Some(pull) = &self.pull {
            pull.close();
        }
    }
}

impl Worker {
    fn run(&mut self, folder: &Path, fsync: bool) -> Result<(), Stop> {
        let mut store = Store::new(folder, Arc::clone(&self.manifest), fsync)?;
        let reports = &self.reports;
        store.scan(|held| reports.blocking_send(Report::Held(held)).is_ok())?;
        self.tell(Report::Scanned)?;
        let (layout, incoming) = match self.orders.recv() {
            Ok(Order::Receive(layout, incoming, relay)) => {
                self.pull = relay.map(|(shelf, links)| {
                    Pull::new(
                        Arc::clone(&self.manifest),
                        Arc::clone(&layout),
                        shelf,
                        links,
                    )
                });
                (layout, incoming)
            }
            Ok(_) | Err(_) => return Err(Stop::Gone),
        };
        store.prepare(&layout)?;
        self.tell(Report::Ready)?;
        if let Some(mut incoming) = incoming {
            self.receive_or_pull(&mut store, &layout, &mut incoming)?;
        } else if self.pull.is_some() {
            self.pull(&mut store)?;
        }
        store.pass(self.manifest.len())?;
        while store.undecided() > 0 {
            self.wait(&mut store)?;
        }
        let mut done = store.finish()?;
        self.tell(Report::Progress(self.progress(&store)))?;
        done.received = self.progress(&store).received;
        self.tell(Report::Done(done))
    }

    /// Receives the data stream. Where links may be arranged, a broken stream does not end the copy.
    fn receive_or_pull(
        &mut self,
        store: &mut Store,
        layout: &Layout,
        incoming: &mut Incoming,
    ) -> Result<(), Stop> {
        match self.receive(store, layout, incoming) {
            Err(Stop::Trouble(trouble))
                if trouble.reason == Reason::Data && self.pull.is_some() =>
            {
                // The control connection waits a moment for the sender to arrange a link.
                self.tell(Report::Failed(trouble.failed()))?;
                self.pull(store)
            }
            received => received,
        }
    }

    /// Receives the data stream block by block.
    fn receive(
        &mut self,
        store: &mut Store,
        layout: &Layout,
        incoming: &mut Incoming,
    ) -> Result<(), Stop> {
        let failed = |error: io::Error| Stop::Trouble(Trouble::new(Reason::Data, error));
        incoming.accept().map_err(failed)?;
        let manifest = Arc::clone(&self.manifest);
        for (block, place) in layout.blocks(&manifest) {
            store.pass(place.entry)?;
            let mut arriving = store.begin(block, &place);
            while arriving.left() > 0 {
                let piece = incoming.piece(arriving.left()).map_err(failed)?;
                store.piece(&mut arriving, piece)?;
            }
            store.end(arriving)?;
            if let Some(pull) = &mut self.pull {
                pull.settle(store, block);
            }
            self.verdicts(store)?;
            while store.is_crowded() {
                self.wait(store)?;
            }
            self.tell_progress(store)?;
        }
        incoming.finish().map_err(failed)
    }

    /// Requests the missing blocks from the feeder until all are in place.
    fn pull(&mut self, store: &mut Store) -> Result<(), Stop> {
        if let Some(pull) = &mut self.pull {
            pull.activate(store);
        }
        while let Some(pull) = &self.pull
            && !pull.is_complete()
        {
            store.pass(pull.passed())?;
            match self.orders.recv_timeout(PROGRESS) {
                Ok(order) => self.obey(store, order)?,
                // A block may take longer than that, or the stream of the island may have stopped.
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    if let Some(pull) = &mut self.pull {
                        pull.ask(store);
                    }
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => return Err(Stop::Gone),
            }
            self.tell_progress(store)?;
        }
        Ok(())
    }

    fn tell_progress(&mut self, store: &Store) -> Result<(), Stop> {
        if self.told.elapsed() > PROGRESS {
            self.told = Instant::now();
            self.tell(Report::Progress(self.progress(store)))?;
        }
        Ok(())
    }

    /// Returns the progress.
    fn progress(&self, store: &Store) -> Progress {
        let mut progress = store.progress();
        if let Some(pull) = &self.pull {
            progress.received = pull.received(progress.received);
        }
        progress
    }

    /// Takes the verdicts that the sender has sent meanwhile.
    fn verdicts(&mut self, store: &mut Store) -> Result<(), Stop> {
        loop {
            match self.orders.try_recv() {
                Ok(order) => self.obey(store, order)?,
                Err(mpsc::TryRecvError::Empty) => return Ok(()),
                Err(mpsc::TryRecvError::Disconnected) => return Err(Stop::Gone),
            }
        }
    }

    fn wait(&mut self, store: &mut Store) -> Result<(), Stop> {
        let order = self.orders.recv().map_err(|_| Stop::Gone)?;
        self.obey(store, order)
    }

    fn obey(&mut self, store: &mut Store, order: Order) -> Result<(), Stop> {
        match (order, &mut self.pull) {
            (Order::Verdict(digest), pull) => {
                store.verdict(digest.entry as usize, digest.verdict)?;
                if let Some(pull) = pull {
                    pull.ask(store);
                }
            }
            (Order::Named(blocks), Some(pull)) => pull.named(store, &blocks)?,
            (Order::Linked(link, asker), Some(pull)) => pull.linked(store, link, asker),
            (Order::Arrived(link, block, bytes), Some(pull)) => {
                pull.arrived(store, link, block, bytes)?;
            }
            (Order::Unlinked(link, state), Some(pull)) => pull.unlinked(link, state),
            (Order::Listening(island), Some(pull)) => pull.listening(island),
            (Order::Streamed(streamed), Some(pull)) => pull.streamed(store, streamed)?,
            (Order::IslandEnded(island), Some(pull)) => pull.island_ended(store, island),
            // The control connection lets none of these through where the plan has no links.
            (_, _) => {}
        }
        Ok(())
    }

    fn tell(&self, report: Report) -> Result<(), Stop> {
        self.reports.blocking_send(report).map_err(|_| Stop::Gone)
    }
}
