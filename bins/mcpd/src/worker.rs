//! The thread of one copy.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use mcp_control::wire::held::Held;
use mcp_control::wire::progress::{Done, FileDigest, Progress};
use mcp_control::{Failed, Layout, Manifest, Reason};
use tokio::sync::mpsc as reports;

use crate::data::Incoming;
use crate::store::{Store, Trouble};

/// A message of the control connection to the worker.
pub(crate) enum Order {
    /// The layout of the data, and its stream, if any data is sent.
    Receive(Arc<Layout>, Option<Incoming>),
    /// The sender's digest of a file.
    Verdict(FileDigest),
}

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
}

impl Worker {
    fn run(&mut self, folder: &Path, fsync: bool) -> Result<(), Stop> {
        let mut store = Store::new(folder, Arc::clone(&self.manifest), fsync)?;
        let reports = &self.reports;
        store.scan(|held| reports.blocking_send(Report::Held(held)).is_ok())?;
        self.tell(Report::Scanned)?;
        let (layout, incoming) = match self.orders.recv() {
            Ok(Order::Receive(layout, incoming)) => (layout, incoming),
            Ok(Order::Verdict(_)) | Err(_) => return Err(Stop::Gone),
        };
        store.prepare(&layout)?;
        self.tell(Report::Ready)?;
        if let Some(mut incoming) = incoming {
            self.receive(&mut store, &layout, &mut incoming)?;
        }
        store.pass(self.manifest.len())?;
        while store.undecided() > 0 {
            self.wait(&mut store)?;
        }
        let done = store.finish()?;
        self.tell(Report::Progress(store.progress()))?;
        self.tell(Report::Done(done))
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
        let mut told = Instant::now();
        for (block, place) in layout.blocks(&manifest) {
            store.pass(place.entry)?;
            let mut arriving = store.begin(block, &place);
            while arriving.left() > 0 {
                let piece = incoming.piece(arriving.left()).map_err(failed)?;
                store.piece(&mut arriving, piece)?;
            }
            store.end(arriving)?;
            self.verdicts(store)?;
            while store.is_crowded() {
                self.wait(store)?;
            }
            if told.elapsed() > PROGRESS {
                told = Instant::now();
                self.tell(Report::Progress(store.progress()))?;
            }
        }
        incoming.finish().map_err(failed)
    }

    /// Takes the verdicts that the sender has sent meanwhile.
    fn verdicts(&mut self, store: &mut Store) -> Result<(), Stop> {
        loop {
            match self.orders.try_recv() {
                Ok(order) => Self::obey(store, order)?,
                Err(mpsc::TryRecvError::Empty) => return Ok(()),
                Err(mpsc::TryRecvError::Disconnected) => return Err(Stop::Gone),
            }
        }
    }

    fn wait(&mut self, store: &mut Store) -> Result<(), Stop> {
        let order = self.orders.recv().map_err(|_| Stop::Gone)?;
        Self::obey(store, order)
    }

    fn obey(store: &mut Store, order: Order) -> Result<(), Stop> {
        match order {
            Order::Verdict(digest) => store.verdict(digest.entry as usize, digest.verdict)?,
            Order::Receive(..) => {}
        }
        Ok(())
    }

    fn tell(&self, report: Report) -> Result<(), Stop> {
        self.reports.blocking_send(report).map_err(|_| Stop::Gone)
    }
}
