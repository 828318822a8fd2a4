//! Requests the blocks that this host lacks from its feeder, and stores its answers and what the head of an island sends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mcp_control::wire::relay::{Blocks, LinkId, LinkState};
use mcp_control::{BlockSet, Layout, Manifest, Requests};
use mcp_relay::child::Asker;

use super::island::Streamed;
use super::links::Links;
use super::shelf::Shelf;
use crate::store::{Store, Trouble};

/// Blocks that are requested at a time while this host listens to an island: enough between hosts of one subnet.
const LISTENING_REQUESTS: u64 = 2;
/// A stream that brings nothing for this long is not waited for: the feeder is asked for what it could bring.
const STREAM_IDLE: Duration = Duration::from_millis(250);

/// The feeder that is asked now.
struct Current {
    link: LinkId,
    asker: Box<Asker>,
    requests: Requests,
    /// Blocks before this one are requested already, or their digests are not known yet.
    next: u64,
}

/// The stream of the island that this host listens to. What its head has passed over, and only that, is requested from the
/// feeder while it flows.
struct Stream {
    island: LinkId,
    /// Once the first block has come.
    flow: Option<Flow>,
    /// Blocks whose digest is not known yet: no more than a stream has wait for the worker.
    early: Vec<Streamed>,
}

/// A stream that has brought blocks.
struct Flow {
    /// The last block. The head sends them in the order in which it has received them, hardly ever an earlier one later.
    newest: u64,
    /// Bytes that have arrived, as of the last look, and when that was.
    arrived: Arc<AtomicU64>,
    seen: u64,
    moved: Instant,
}

impl Flow {
    /// Returns the block from which on it is to bring blocks: none if it has brought nothing lately.
    fn brings_from(&mut self) -> u64 {
        let arrived = self.arrived.load(Ordering::Relaxed);
        if arrived != self.seen {
            (self.seen, self.moved) = (arrived, Instant::now());
        }
        let flows = self.moved.elapsed() < STREAM_IDLE;
        if flows { self.newest } else { u64::MAX }
    }
}

/// The state of a copy that links may feed.
pub(crate) struct Pull {
    manifest: Arc<Manifest>,
    layout: Arc<Layout>,
    shelf: Arc<Shelf>,
    links: Arc<Links>,
    /// Blocks of the layout that are not in place with the sender's digest.
    missing: BlockSet,
    /// Those of them whose digest is known and that are not requested.
    wanted: BlockSet,
    current: Option<Current>,
    /// The stream of the island that this host is a member of.
    stream: Option<Stream>,
    /// The data connection has ended, or there is none: the feeder is asked.
    active: bool,
}

impl Pull {
    pub(crate) fn new(
        manifest: Arc<Manifest>,
        layout: Arc<Layout>,
        shelf: Arc<Shelf>,
        links: Arc<Links>,
    ) -> Pull {
        let mut missing = BlockSet::new(manifest.blocks());
        for (block, _) in layout.blocks(&manifest) {
            missing.insert(block);
        }
        Pull {
            wanted: BlockSet::new(manifest.blocks()),
            manifest,
            layout,
            shelf,
            links,
            missing,
            current: None,
            stream: None,
            active: false,
        }
    }

    /// Records that the copy ends on this host: blocks that are missing will not be served.
    pub(crate) fn close(&self) {
        self.shelf.close();
    }

    /// Starts to request blocks from the feeder.
    pub(crate) fn activate(&mut self, store: &Store) {
        self.active = true;
        self.ask(store);
    }

    /// Whether every block of the layout is in place.
    pub(crate) fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }

    /// Entries before this one have all their blocks.
    pub(crate) fn passed(&self) -> usize {
        let first = self.missing.first_from(0);
        let place = first.and_then(|block| self.manifest.locate(block));
        place.map_or(self.manifest.len(), |place| place.entry)
    }

    /// Returns the bytes that have arrived: `streamed` over the data connection, the others over links. Blocks may arrive
    /// twice, so it is capped at the length of the stream.
    pub(crate) fn received(&self, streamed: u64) -> u64 {
        (streamed + self.links.arrived()).min(self.layout.len())
    }

    /// Takes digests of the sender.
    pub(crate) fn named(&mut self, store: &mut Store, blocks: &Blocks) -> Result<(), Trouble> {
        for (block, digest) in (blocks.first..).zip(&blocks.digests) {
            self.shelf.expect(block, *digest);
            if self.missing.contains(block) && !self.settle(store, block) {
                self.wanted.insert(block);
                if let Some(current) = &mut self.current {
                    current.next = current.next.min(block);
                }
            }
        }
        let early = self
            .stream
            .as_mut()
            .map(|stream| std::mem::take(&mut stream.early));
        for streamed in early.into_iter().flatten() {
            self.streamed(store, streamed)?;
        }
        self.ask(store);
        Ok(())
    }

    /// Compares the digest of a stored block with the sender's. Returns true, and records the block, when they match.
    pub(crate) fn settle(&mut self, store: &Store, block: u64) -> bool {
        let expected = self.shelf.expected(block);
        if expected.is_none() || store.digest(block) != expected {
            return false;
        }
        self.placed(block, None);
        true
    }

    fn placed(&mut self, block: u64, bytes: Option<Vec<u8>>) {
        self.missing.remove(block);
        self.wanted.remove(block);
        self.shelf.add(block, bytes);
    }

    /// Takes a new feeder.
    pub(crate) fn linked(&mut self, store: &Store, link: LinkId, asker: Box<Asker>) {
        self.unlink();
        self.current = Some(Current {
            link,
            asker,
            requests: Requests::default(),
            next: 0,
        });
        self.ask(store);
    }

    /// Drops the feeder. The blocks that it has not sent are requested again.
    fn unlink(&mut self) {
        let Some(mut current) = self.current.take() else {
            return;
        };
        current.asker.closer().close();
        while let Some(block) = current.requests.front() {
            if self.missing.contains(block) {
                self.wanted.insert(block);
            }
            current.requests.answered(&self.manifest);
        }
    }

    /// Handles the end of a link.
    pub(crate) fn unlinked(&mut self, link: LinkId, state: LinkState) {
        if self.current.as_ref().is_some_and(|now| now.link == link) {
            self.unlink();
        }
        if !self.is_complete() {
            self.links.report(link, state);
        }
    }

    /// Takes a block of the feeder: it is stored if its digest is the one that the sender named.
    pub(crate) fn arrived(
        &mut self,
        store: &mut Store,
        link: LinkId,
        block: u64,
        bytes: Vec<u8>,
    ) -> Result<(), Trouble> {
        let Some(current) = self.current.as_mut().filter(|now| now.link == link) else {
            return Ok(());
        };
        current.requests.answered(&self.manifest);
        if !self.missing.contains(block) {
            // The island has brought it meanwhile.
        } else if !self.store_block(store, block, bytes)? {
            self.wanted.insert(block);
            self.unlink();
            self.links.report(link, LinkState::Wrong { block });
            return Ok(());
        }
        self.ask(store);
        Ok(())
    }

    /// Stores a block if its digest is the one that the sender named; returns whether it is.
    fn store_block(
        &mut self,
        store: &mut Store,
        block: u64,
        bytes: Vec<u8>,
    ) -> Result<bool, Trouble> {
        let Some(place) = self.manifest.locate(block) else {
            return Ok(false);
        };
        let digest = mcp_control::digest::block(&bytes, place.index, place.file_len);
        if self.shelf.expected(block) != Some(digest) {
            return Ok(false);
        }
        if store.insert(block, &place, &bytes, digest)? {
            self.placed(block, Some(bytes));
        } else {
            self.missing.remove(block);
            self.wanted.remove(block);
            self.shelf.give_up(block);
        }
        Ok(true)
    }

    /// Expects blocks of an island's stream, in place of the one before.
    pub(crate) fn listening(&mut self, island: LinkId) {
        self.stream = Some(Stream {
            island,
            flow: None,
            early: Vec::new(),
        });
    }

    /// Takes a block of the island's stream.
    pub(crate) fn streamed(
        &mut self,
        store: &mut Store,
        mut streamed: Streamed,
    ) -> Result<(), Trouble> {
        let (island, block) = (streamed.island, streamed.block);
        // Blocks of a stream that was replaced come late.
        let stream = self.stream.as_mut().filter(|now| now.island == island);
        let Some(stream) = stream else { return Ok(()) };
        let flow = stream.flow.get_or_insert_with(|| {
            self.links
                .report(island, LinkState::Open { round_trip_us: 0 });
            Flow {
                newest: 0,
                arrived: Arc::clone(&streamed.arrived),
                seen: 0,
                moved: Instant::now(),
            }
        });
        flow.newest = flow.newest.max(block);
        if self.missing.contains(block) {
            if self.shelf.expected(block).is_none() {
                stream.early.push(streamed);
                return Ok(());
            }
            let bytes = std::mem::take(&mut streamed.bytes);
            if !self.store_block(store, block, bytes)? {
                // Before the stream reports its end.
                self.links.report(island, LinkState::Wrong { block });
                streamed.end_stream();
                self.stream = None;
            }
        }
        self.ask(store);
        Ok(())
    }

    /// Handles the end of an island's stream.
    pub(crate) fn island_ended(&mut self, store: &Store, island: LinkId) {
        self.stream.take_if(|stream| stream.island == island);
        self.ask(store);
    }

    /// Asks the feeder for what the bounds allow, unless too many files wait for verdicts.
    pub(crate) fn ask(&mut self, store: &Store) {
        if !self.active || store.is_crowded() {
            return;
        }
        // What is requested while a stream may bring it comes twice.
        let most = self
            .stream
            .as_ref()
            .map_or(u64::MAX, |_| LISTENING_REQUESTS);
        let flow = self.stream.as_mut().and_then(|stream| stream.flow.as_mut());
        let end = flow.map_or(u64::MAX, Flow::brings_from);
        while let Some(current) = &mut self.current {
            let Some(first) = self.wanted.first_from(current.next) else {
                return;
            };
            let room = most.saturating_sub(current.requests.blocks());
            let range = first..end.min(first.saturating_add(room));
            let want = current.requests.want(&self.manifest, &self.wanted, range);
            let Some(want) = want else { return };
            let end = want.first + u64::from(want.count);
            current.next = end;
            for block in want.first..end {
                self.wanted.remove(block);
            }
            if current.asker.ask(want).is_err() {
                // The thread that reads reports why.
                self.unlink();
            }
        }
    }
}
