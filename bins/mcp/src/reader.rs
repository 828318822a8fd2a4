//! The reader thread: first compares what hosts have, then sends.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::mpsc;

use mcp_control::digest::BlockHasher;
use mcp_control::limits::BLOCK_LEN;
use mcp_control::wire::held::Held;
use mcp_control::wire::progress::FileVerdict;
use mcp_control::wire::relay::Blocks;
use mcp_control::{BlockPlace, BlockSet, Digest, Kind, Layout};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc as reports};

use crate::data::Outgoing;
use crate::hold::Hold;
use crate::relay::stock::Stock;
use crate::tree::{Look, Tree, has_more};

/// Digests of files that may wait for the slowest host before the reader pauses: 200 bytes each for each host.
const MAX_VERDICTS: usize = 4096;

/// Digests of blocks that are reported at once.
const MAX_NAMED: usize = 256;

/// Files are read in pieces that fit the processor's cache until they are hashed and sent.
const PIECE: u64 = 64 << 10;
// A block that is encrypted again is cut into the same records: one nonce, one plaintext.
const _: () = assert!(PIECE == tcpxm_tokio::seal::MAX_RECORD as u64);

/// A request to the reader.
pub(crate) enum Order {
    /// Compare these blocks of the host with this number.
    Compare(usize, Held),
    /// All blocks of the host were reported: return which of them match.
    Compared(usize),
    /// Send these blocks over this connection, if any, and report the digest of every file.
    Send(Sending),
}

/// What is sent, and how.
pub(crate) struct Sending {
    /// The blocks.
    pub(crate) layout: Arc<Layout>,
    /// The data connection, if there is one.
    pub(crate) outgoing: Option<Outgoing>,
    /// Keeps the blocks for the hosts that are fed over links.
    pub(crate) stock: Option<Arc<Stock>>,
    pub(crate) hold: Arc<Hold>,
    /// Bytes that were sent.
    sent: u64,
    /// Digests that were not reported yet, and the bytes of their blocks.
    named: Blocks,
    named_bytes: u64,
}

impl Sending {
    pub(crate) fn new(
        layout: Arc<Layout>,
        outgoing: Option<Outgoing>,
        stock: Option<Arc<Stock>>,
        hold: Arc<Hold>,
    ) -> Sending {
        let named = Blocks {
            first: 0,
            digests: Vec::new(),
        };
        Sending {
            layout,
            outgoing,
            stock,
            hold,
            sent: 0,
            named,
            named_bytes: 0,
        }
    }

    /// Sends a piece over the data connection, unless that was given up.
    fn write(&mut self, piece: &[u8]) -> io::Result<()> {
        if self.hold.is_abandoned() {
            self.outgoing = None;
        }
        let Some(outgoing) = &mut self.outgoing else {
            return Ok(());
        };
        if self.stock.is_some() {
            self.hold.pause(self.sent);
        }
        self.sent += piece.len() as u64;
        match outgoing.write(piece) {
            Err(_) if self.hold.is_abandoned() => Ok(()),
            written => written,
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        if let Some(stock) = &self.stock {
            stock.complete();
        }
        match &mut self.outgoing {
            Some(outgoing) if !self.hold.is_abandoned() => match outgoing.finish() {
                Err(_) if self.hold.is_abandoned() => Ok(()),
                finished => finished,
            },
            _ => Ok(()),
        }
    }

    /// Keeps a block for links. Returns digests that are to be reported.
    fn keep(
        &mut self,
        block: u64,
        len: u64,
        bytes: Option<Vec<u8>>,
        digest: Digest,
    ) -> Option<Blocks> {
        let stock = self.stock.as_ref()?;
        stock.put(block, bytes, digest, self.outgoing.is_none());
        let next = self.named.first + self.named.digests.len() as u64;
        let before = (next != block).then(|| self.take_named()).flatten();
        if self.named.digests.is_empty() {
            self.named.first = block;
        }
        self.named.digests.push(digest);
        self.named_bytes += len;
        if before.is_some() {
            return before;
        }
        let enough = self.named_bytes >= BLOCK_LEN || self.named.digests.len() == MAX_NAMED;
        enough.then(|| self.take_named()).flatten()
    }

    /// Returns the digests that were not reported.
    fn take_named(&mut self) -> Option<Blocks> {
        self.named_bytes = 0;
        let digests = std::mem::take(&mut self.named.digests);
        let first = self.named.first;
        (!digests.is_empty()).then_some(Blocks { first, digests })
    }
}

/// A message of the reader.
pub(crate) enum Report {
    /// The blocks that the host has.
    Has(usize, BlockSet),
    /// Digests of blocks, for the hosts whose plan has links.
    Blocks(Arc<Blocks>),
    /// The digest of a file. The permit is returned when the digest is about to be sent to every host.
    Verdict(u32, FileVerdict, Arc<OwnedSemaphorePermit>),
    /// Every file was read: the digest of the whole, unless a file changed.
    Whole(Option<Digest>),
    /// Every host has all that was sent, or has failed.
    Sent,
    /// The data connection ended early.
    Broken(io::Error),
}

/// Starts the thread; it ends when `orders` is closed, or after sending.
pub(crate) fn start(
    runtime: Handle,
    tree: Arc<Tree>,
    hosts: usize,
    orders: mpsc::Receiver<Order>,
    reports: reports::UnboundedSender<Report>,
) -> io::Result<()> {
    let mut reader = Reader {
        digests: vec![None; tree.manifest.blocks() as usize],
        has: vec![BlockSet::new(tree.manifest.blocks()); hosts],
        open: None,
        tree,
        reports,
        runtime,
        verdicts: Arc::new(Semaphore::new(MAX_VERDICTS)),
    };
    let run = move || {
        while let Ok(order) = orders.recv() {
            match order {
                Order::Compare(host, held) => reader.compare(host, &held),
                Order::Compared(host) => {
                    let has = std::mem::take(&mut reader.has[host]);
                    reader.tell(Report::Has(host, has));
                }
                Order::Send(sending) => {
                    match reader.send(sending) {
                        Ok(()) => reader.tell(Report::Sent),
                        Err(error) => reader.tell(Report::Broken(error)),
                    }
                    return;
                }
            }
        }
    };
    std::thread::Builder::new()
        .name("reader".to_owned())
        .spawn(run)?;
    Ok(())
}

struct Reader {
    tree: Arc<Tree>,
    /// Digests of the blocks that were read.
    digests: Vec<Option<Digest>>,
    has: Vec<BlockSet>,
    /// The file that was read last, by its entry.
    open: Option<(usize, File)>,
    reports: reports::UnboundedSender<Report>,
    runtime: Handle,
    verdicts: Arc<Semaphore>,
}

impl Reader {
    fn tell(&self, report: Report) {
        // The copy may be over.
        let _ = self.reports.send(report);
    }

    fn compare(&mut self, host: usize, held: &Held) {
        for (at, digest) in held.digests.iter().enumerate() {
            let block = held.first + at as u64;
            let Some(place) = self.tree.manifest.locate(block) else {
                return;
            };
            if self.digests[block as usize].is_none() {
                // A block that cannot be read now is reported when it is sent.
                let read = self.load(&place, |_| Ok(()));
                let read = read.ok().filter(|(_, failed)| failed.is_none());
                self.digests[block as usize] = read.map(|(digest, _)| digest);
            }
            if self.digests[block as usize] == Some(*digest) {
                self.has[host].insert(block);
            }
        }
    }

    fn file(&mut self, entry: usize) -> io::Result<&File> {
        if self.open.as_ref().is_none_or(|(open, _)| *open != entry) {
            // A file that has changed already is sent like one that ends early.
            let file = self.tree.open(entry)?;
            let file = file.ok_or(io::ErrorKind::UnexpectedEof)?;
            self.open = Some((entry, file));
        }
        match &self.open {
            Some((_, file)) => Ok(file),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Reads a block and passes its pieces to `take`. Returns the digest of these pieces. Data that cannot be
    /// read is passed as zeros, and the error is returned with the digest. The outer error is that of `take`.
    fn load(
        &mut self,
        place: &BlockPlace,
        mut take: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<(Digest, Option<io::Error>)> {
        let mut hasher = BlockHasher::new(place.index, place.file_len);
        let mut buffer = [0; PIECE as usize];
        let (mut at, mut failed) = (0, None);
        while at < place.len {
            let bytes = &mut buffer[..(place.len - at).min(PIECE) as usize];
            if failed.is_none() {
                let offset = place.offset + at;
                let file = self.file(place.entry);
                failed = file.and_then(|f| f.read_exact_at(bytes, offset)).err();
            }
            if failed.is_some() {
                bytes.fill(0);
            }
            hasher.update(bytes);
            at += bytes.len() as u64;
            take(bytes)?;
        }
        Ok((hasher.finish(), failed))
    }

    /// Sends the blocks of the layout, and reports the digest of every file as soon as it was read.
    fn send(&mut self, mut sending: Sending) -> io::Result<()> {
        let tree = Arc::clone(&self.tree);
        let mut files = vec![[0; 32]; tree.manifest.len()];
        let mut all_known = true;
        for (entry, what) in tree.manifest.entries().iter().enumerate() {
            if !matches!(what.kind, Kind::File { .. }) {
                continue;
            }
            let read = self.send_file(entry, &mut sending)?;
            let verdict = match read {
                Ok(()) if self.has_changed(entry) => FileVerdict::Changed,
                Ok(()) => {
                    let blocks = tree.manifest.blocks_of(entry);
                    let digests = &self.digests[blocks.start as usize..blocks.end as usize];
                    // Each of them was just read, or compared.
                    let digests: Vec<Digest> = digests.iter().copied().flatten().collect();
                    FileVerdict::Digest(mcp_control::digest::fold(&digests))
                }
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => FileVerdict::Changed,
                Err(_) => FileVerdict::Unreadable,
            };
            match verdict {
                FileVerdict::Digest(digest) => files[entry] = digest,
                _ => all_known = false,
            }
            if let Some(blocks) = sending.take_named() {
                self.tell(Report::Blocks(Arc::new(blocks)));
            }
            let permit = Arc::clone(&self.verdicts).acquire_owned();
            // The semaphore is never closed.
            let Ok(permit) = self.runtime.block_on(permit) else {
                continue;
            };
            self.tell(Report::Verdict(entry as u32, verdict, Arc::new(permit)));
        }
        // Hosts that have everything end, however long others take.
        let whole = all_known.then(|| tree.manifest.digest(&files));
        self.tell(Report::Whole(whole));
        sending.finish()
    }

    /// Sends the blocks of a file that are part of the stream, and reads those that no host has reported. The
    /// outer error is the connection's. A file that cannot be read is sent as zeros, because the stream was
    /// agreed on; its verdict rejects it.
    fn send_file(&mut self, entry: usize, sending: &mut Sending) -> io::Result<io::Result<()>> {
        let tree = Arc::clone(&self.tree);
        let mut result = Ok(());
        for block in tree.manifest.blocks_of(entry) {
            let is_sent = sending.layout.contains(block);
            if !is_sent && self.digests[block as usize].is_some() {
                continue;
            }
            let Some(place) = tree.manifest.locate(block) else {
                continue;
            };
            let is_kept = is_sent && sending.stock.as_ref().is_some_and(|s| s.feeds());
            let mut bytes = is_kept.then(|| Vec::with_capacity(place.len as usize));
            let (digest, failed) = self.load(&place, |piece| {
                if let Some(bytes) = &mut bytes {
                    bytes.extend_from_slice(piece);
                }
                match is_sent {
                    true => sending.write(piece),
                    false => Ok(()),
                }
            })?;
            if is_sent {
                if let Some(outgoing) = &sending.outgoing {
                    outgoing.wrote(digest);
                }
                if let Some(blocks) = sending.keep(block, place.len, bytes, digest) {
                    self.tell(Report::Blocks(Arc::new(blocks)));
                }
            }
            match failed {
                None => self.digests[block as usize] = Some(digest),
                Some(error) => result = Err(error),
            }
        }
        Ok(result)
    }

    /// Whether the file has changed since the tree was read, or is longer than announced.
    fn has_changed(&mut self, entry: usize) -> bool {
        if let Some((open, file)) = &self.open
            && *open == entry
            && has_more(file, self.tree.look(entry).len()).unwrap_or(true)
        {
            return true;
        }
        let look = std::fs::metadata(self.tree.source(entry));
        look.map_or(true, |metadata| {
            Look::of(&metadata) != self.tree.look(entry)
        })
    }
}
