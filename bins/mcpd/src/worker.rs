//! The thread of one copy: what is there already, what comes, what is in place.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use mcp_control::wire::held::Held;
use mcp_control::wire::progress::{Done, FileDigest, Progress};
use mcp_control::{Failed, Layout, Manifest, Reason};
use tokio::sync::mpsc as news;

use crate::data::Incoming;
use crate::store::{Store, Trouble};

/// What the control connection tells the worker.
pub(crate) enum Order {
    /// How the data comes; nothing comes without it.
    Receive(Arc<Layout>, Option<Incoming>),
    /// What a file was when the sender read it.
    Verdict(FileDigest),
}

/// What the worker tells the control connection.
#[derive(Debug)]
pub(crate) enum News {
    Held(Held),
    Scanned,
    Ready,
    Progress(Progress),
    Done(Done),
    Failed(Failed),
}

/// Progress is told so often.
const PROGRESS: Duration = Duration::from_millis(200);

/// Starts the thread. It ends when the other ends of its channels are gone.
pub(crate) fn start(
    folder: PathBuf,
    fsync: bool,
    manifest: Arc<Manifest>,
    orders: mpsc::Receiver<Order>,
    news: news::Sender<News>,
) -> io::Result<()> {
    let run = move || {
        let mut worker = Worker {
            orders,
            news,
            manifest,
        };
        match worker.run(&folder, fsync) {
            Ok(()) | Err(Stop::Gone) => {}
            Err(Stop::Trouble(trouble)) => {
                // Nobody is there to be told: so be it.
                let _ = worker.tell(News::Failed(trouble.failed()));
            }
        }
    };
    std::thread::Builder::new()
        .name("copy".to_owned())
        .spawn(run)?;
    Ok(())
}

/// Why the worker ends before its time.
enum Stop {
    Trouble(Trouble),
    /// The control connection is gone: it has said why.
    Gone,
}

impl From<Trouble> for Stop {
    fn from(trouble: Trouble) -> Self {
        Stop::Trouble(trouble)
    }
}

struct Worker {
    orders: mpsc::Receiver<Order>,
    news: news::Sender<News>,
    manifest: Arc<Manifest>,
}

impl Worker {
    fn run(&mut self, folder: &Path, fsync: bool) -> Result<(), Stop> {
        let mut store = Store::new(folder, Arc::clone(&self.manifest), fsync)?;
        let news = &self.news;
        store.scan(|held| news.blocking_send(News::Held(held)).is_ok())?;
        self.tell(News::Scanned)?;
        let (layout, incoming) = match self.orders.recv() {
            Ok(Order::Receive(layout, incoming)) => (layout, incoming),
            Ok(Order::Verdict(_)) | Err(_) => return Err(Stop::Gone),
        };
        store.prepare(&layout)?;
        self.tell(News::Ready)?;
        if let Some(mut incoming) = incoming {
            self.receive(&mut store, &layout, &mut incoming)?;
        }
        store.pass(self.manifest.len())?;
        while store.undecided() > 0 {
            self.wait(&mut store)?;
        }
        let done = store.finish()?;
        self.tell(News::Progress(store.progress()))?;
        self.tell(News::Done(done))
    }

    /// The data stream, block by block.
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
                self.tell(News::Progress(store.progress()))?;
            }
        }
        incoming.finish().map_err(failed)
    }

    /// Takes what the sender has said about files meanwhile.
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

    fn tell(&self, news: News) -> Result<(), Stop> {
        self.news.blocking_send(news).map_err(|_| Stop::Gone)
    }
}
