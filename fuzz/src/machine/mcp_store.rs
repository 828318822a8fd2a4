//! `mcpd` against a sender that was let in: its control machine and its store on a real folder, driven as
//! its worker drives them. The sender says anything well-formed, in an order that gets far, and sends any
//! bytes as data.
//!
//! Asserted: nothing outside the folder is made, changed or removed, though links that lead out of it lie
//! there; no step fails without an end of the copy; each call ends after a bounded number of frames; memory
//! stays within the bounds of the configuration; and another copy into the same folder works afterwards.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mcp_control::limits::{BLOCK_LEN, MAX_FRAME_LEN};
use mcp_control::wire::hello::{Capabilities, Hello};
use mcp_control::wire::offer::{CopyId, Offer, emit_entries};
use mcp_control::wire::plan::{Carrier, DataKey, Plan, emit_runs};
use mcp_control::wire::port::Suggest;
use mcp_control::wire::progress::{Done, FileDigest, FileVerdict};
use mcp_control::{
    BlockPlace, Entry, Failed, Instant, Kind, Layout, Manifest, Reason, RelPath, Run, Server,
    ServerConfig, ServerEvent, Timestamp,
};

use super::mcp::frame;
use super::pass;
use crate::memory::Meter;
use crate::script::{Lines, Script};

// The store of `mcpd`, as it stands there.
#[allow(dead_code, unreachable_pub, reason = "a part of another program")]
#[path = "../../../bins/mcpd/src/store/mod.rs"]
mod store;

use store::{Arriving, Store, Trouble};

const MAX_ENTRIES: u32 = 32;
const MAX_BLOCKS: u64 = 64;
const MAX_MANIFEST: usize = 8 << 10;
/// The machine's share is that of the target `mcp_server`; the store has 32 bytes and a digest for each
/// block and entry, one block that arrives, and a buffer for a block that is read.
const BOUND: usize = MAX_MANIFEST * 4 + 17 * MAX_FRAME_LEN + 3 * BLOCK_LEN as usize;
/// Frames that one step may draw.
const MOST_FRAMES: usize = 64;

/// Names that entries have: ordinary ones, links out of the folder that lie there already, and hidden ones.
const NAMES: [&[u8]; 8] = [
    b"t", b"a", b"b", b"out", b"up", b"file", b".hidden", b"link",
];

/// The folder of a run, with a file beside it that must stay as it is.
struct Place {
    base: PathBuf,
}

impl Place {
    fn new() -> Place {
        use std::sync::atomic::{AtomicU64, Ordering};
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let memory = Path::new("/dev/shm");
        let above = if memory.is_dir() {
            memory.to_owned()
        } else {
            std::env::temp_dir()
        };
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let base = above.join(format!("polycast-fuzz-{}-{number}", std::process::id()));
        let _ = std::fs::remove_dir_all(&base);
        let place = Place { base };
        std::fs::create_dir_all(place.root().join("t")).expect("a folder");
        std::fs::create_dir(place.base.join("outside")).expect("a folder");
        std::fs::write(place.base.join("outside/secret"), b"secret").expect("a file");
        for (link, target) in [
            ("out", "../outside"),
            ("up", ".."),
            ("t/out", "../../outside"),
            ("file", "../outside/secret"),
        ] {
            std::os::unix::fs::symlink(target, place.root().join(link)).expect("a link");
        }
        place
    }

    fn root(&self) -> PathBuf {
        self.base.join("root")
    }

    /// Everything but the folder itself: names, content and the time of the last change.
    fn outside(&self) -> BTreeMap<PathBuf, (Vec<u8>, i64)> {
        use std::os::unix::fs::MetadataExt;
        let mut all = BTreeMap::new();
        for folder in [self.base.clone(), self.base.join("outside")] {
            for entry in std::fs::read_dir(&folder).expect("a folder").flatten() {
                let path = entry.path();
                let metadata = std::fs::symlink_metadata(&path).expect("metadata");
                let is_root = path == self.root();
                let content = std::fs::read(&path).unwrap_or_default();
                let changed = if is_root { 0 } else { metadata.ctime_nsec() };
                all.insert(path, (content, changed));
            }
        }
        all
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.base);
    }
}

/// A copy that was accepted, as the worker of `mcpd` has it.
struct Copy {
    store: Store,
    manifest: Arc<Manifest>,
    /// Blocks of the data stream that are to come, the next one last.
    blocks: Vec<(u64, BlockPlace)>,
    arriving: Option<Arriving>,
    planned: bool,
    finished: bool,
}

struct Daemon {
    now: Instant,
    server: Server,
    root: PathBuf,
    copy: Option<Copy>,
    /// Ports that the sender has suggested.
    suggestions: u16,
    meter: Meter,
}

impl Daemon {
    fn new(root: PathBuf) -> Daemon {
        let now = Instant::from_secs(1);
        let mut config = ServerConfig::new(Capabilities(7));
        config.max_entries = MAX_ENTRIES;
        config.max_blocks = MAX_BLOCKS;
        config.max_manifest_bytes = MAX_MANIFEST;
        Daemon {
            now,
            server: Server::new(config, now),
            root,
            copy: None,
            suggestions: 0,
            meter: Meter::default(),
        }
    }

    fn hear(&mut self, frame: &[u8]) {
        let now = self.now;
        let ended = self.server.is_ended();
        let heard = self
            .meter
            .run(|| self.server.handle_packet(now, &(), frame));
        if let Err(error) = heard
            && !ended
        {
            let failed = Failed::new(Reason::Protocol, None, &error.to_string());
            self.meter.run(|| self.server.fail(now, failed));
        }
        self.drain();
    }

    fn drain(&mut self) {
        let mut buffer = vec![0; MAX_FRAME_LEN];
        for round in 0.. {
            assert!(round < MOST_FRAMES, "one step draws frames without end");
            let now = self.now;
            let sent = self
                .meter
                .run(|| self.server.poll_transmit(now, &mut buffer));
            let event = self.meter.run(|| self.server.poll_event());
            if sent.is_none() && event.is_none() {
                break;
            }
            if let Some(event) = event {
                let done = self.event(&event);
                self.settle(done);
                self.meter.drop(event);
            }
        }
        if self.server.is_ended() {
            let copy = self.copy.take();
            self.meter.drop(copy);
        }
        self.meter.check(BOUND);
    }

    /// What went wrong in the store ends the copy.
    fn settle(&mut self, done: Result<(), Trouble>) {
        if let Err(trouble) = done {
            let now = self.now;
            self.meter.run(|| self.server.fail(now, trouble.failed()));
        }
    }

    fn event(&mut self, event: &ServerEvent) -> Result<(), Trouble> {
        let now = self.now;
        let Daemon {
            server,
            root,
            copy,
            meter,
            ..
        } = self;
        match event {
            ServerEvent::Offered { manifest, .. } => meter.run(|| {
                assert!(manifest.len() <= MAX_ENTRIES as usize && manifest.blocks() <= MAX_BLOCKS);
                let mut store = Store::new(root, Arc::clone(manifest), false)?;
                store.scan(|held| server.held(now, &held).is_ok())?;
                *copy = Some(Copy {
                    store,
                    manifest: Arc::clone(manifest),
                    blocks: Vec::new(),
                    arriving: None,
                    planned: false,
                    finished: false,
                });
                let _ = server.scanned(now);
                Ok(())
            }),
            ServerEvent::Suggested { destination, .. } => {
                let _ = meter.run(|| server.port(now, *destination));
                Ok(())
            }
            ServerEvent::Planned { layout, .. } => meter.run(|| {
                let Some(copy) = copy else { return Ok(()) };
                assert!(layout.runs().iter().all(|run| run.end() <= MAX_BLOCKS));
                copy.store.prepare(layout)?;
                copy.blocks = layout.blocks(&copy.manifest).collect();
                copy.blocks.reverse();
                copy.planned = true;
                let _ = server.ready(now);
                Ok(())
            }),
            ServerEvent::Digest(digest) => meter.run(|| {
                let Some(copy) = copy else { return Ok(()) };
                copy.store.verdict(digest.entry as usize, digest.verdict)
            }),
            // Links are not offered here, nor islands.
            ServerEvent::Blocks(_)
            | ServerEvent::Feed(_)
            | ServerEvent::Fed(_)
            | ServerEvent::Multicast(_)
            | ServerEvent::Listen(_) => panic!("{event:?} without links"),
            ServerEvent::Verified | ServerEvent::Failed { .. } => Ok(()),
        }
    }

    /// So many bytes of the data stream arrive, all the same.
    fn data(&mut self, byte: u8, mut len: usize) {
        while len > 0 {
            let Some(copy) = self.copy.as_mut().filter(|copy| copy.planned) else {
                return;
            };
            let (done, more) = self.meter.run(|| copy.data(byte, &mut len));
            self.settle(done);
            self.drain();
            if !more {
                return;
            }
        }
    }

    /// Everything has come, and every file has its verdict: the copy ends.
    fn finish(&mut self) {
        let now = self.now;
        let Some(copy) = &mut self.copy else { return };
        let whole = copy.planned && copy.blocks.is_empty() && copy.arriving.is_none();
        if !whole || copy.finished {
            return;
        }
        let entries = copy.manifest.len();
        let passed = self.meter.run(|| copy.store.pass(entries));
        let done = match passed {
            Ok(()) if copy.store.undecided() > 0 => return,
            Ok(()) => self.meter.run(|| copy.store.finish()),
            Err(trouble) => Err(trouble),
        };
        copy.finished = true;
        let done: Result<(), Trouble> = done.map(|done: Done| {
            let _ = self.meter.run(|| self.server.done(now, &done));
        });
        self.settle(done);
        self.drain();
    }

    fn wait(&mut self, us: u64) {
        let mut at = self.now;
        let due = |daemon: &Daemon| daemon.server.poll_timeout();
        pass(self, &mut at, us, due, |daemon, now| {
            daemon.now = now;
            daemon.meter.run(|| daemon.server.handle_timeout(now));
            daemon.drain();
        });
        self.now = at;
    }
}

impl Copy {
    /// Takes up to `len` bytes of one block; whether more are wanted.
    fn data(&mut self, byte: u8, len: &mut usize) -> (Result<(), Trouble>, bool) {
        let mut arriving = match self.arriving.take() {
            Some(arriving) => arriving,
            None => match self.blocks.pop() {
                None => return (Ok(()), false),
                Some((block, place)) => {
                    if let Err(trouble) = self.store.pass(place.entry) {
                        return (Err(trouble), false);
                    }
                    self.store.begin(block, &place)
                }
            },
        };
        let part = arriving.left().min(*len);
        *len -= part;
        if let Err(trouble) = self.store.piece(&mut arriving, &vec![byte; part]) {
            return (Err(trouble), false);
        }
        if arriving.left() > 0 {
            self.arriving = Some(arriving);
            return (Ok(()), false);
        }
        (self.store.end(arriving), true)
    }
}

fn entries(script: &mut Script<'_>) -> Vec<Entry> {
    let mut list = Vec::new();
    let top = NAMES[script.pick(NAMES.len())];
    for number in 0..1 + script.pick(6) {
        let mut path = top.to_vec();
        for _ in 0..script.pick(3).max(usize::from(number > 0)) {
            path.push(b'/');
            path.extend_from_slice(NAMES[script.pick(NAMES.len())]);
        }
        let kind = match script.pick(4) {
            0 | 1 => Kind::File {
                len: u64::from(script.u16()) * u64::from(script.u8() % 64),
            },
            2 => Kind::Folder,
            _ => Kind::Link {
                target: script.bytes().into(),
            },
        };
        if let Ok(path) = RelPath::new(&path) {
            list.push(Entry {
                path,
                kind,
                mode: script.u16() & 0o777,
                modified: Timestamp::default(),
            });
        }
    }
    list
}

/// The first messages of a sender: a HELLO, and a list that matches its announcement.
fn offer(daemon: &mut Daemon, script: &mut Script<'_>) {
    daemon.hear(&frame(&Hello {
        lowest: 1,
        highest: 1,
        capabilities: Capabilities(script.u16()).with(Capabilities::UDP),
        prepared: None,
    }));
    let list = entries(script);
    let bytes = list.iter().map(|entry| match entry.kind {
        Kind::File { len } => len,
        Kind::Folder | Kind::Link { .. } => 0,
    });
    daemon.hear(&frame(&Offer {
        copy: CopyId([3; 16]),
        entries: list.len() as u32,
        bytes: bytes.sum(),
    }));
    let mut bytes = vec![0; MAX_FRAME_LEN];
    let len = emit_entries(&list, &mut bytes).map_or(0, |(len, _)| len);
    bytes.truncate(len);
    daemon.hear(&bytes);
}

/// A port, and a plan that fits the offer unless the script says otherwise.
fn plan(daemon: &mut Daemon, script: &mut Script<'_>) {
    daemon.suggestions += 1;
    daemon.hear(&frame(&Suggest {
        number: daemon.suggestions,
        carrier: Carrier::Udp,
        source: 4000,
        destination: 5000,
    }));
    let Some(manifest) = daemon.copy.as_ref().map(|copy| Arc::clone(&copy.manifest)) else {
        return;
    };
    let blocks = manifest.blocks();
    let first = u64::from(script.u8()) % blocks.max(1);
    let count = match script.flag() {
        true => blocks - first.min(blocks),
        false => u64::from(script.u8() % 8),
    };
    let runs = vec![Run { first, count }];
    let layout = Layout::new(&manifest, runs.clone()).unwrap_or_default();
    daemon.hear(&frame(&Plan {
        carrier: Carrier::Udp,
        group: None,
        source: 4000,
        destination: 5000,
        runs: layout.runs().len() as u32,
        stream_len: layout.len(),
        key: script.flag().then_some(DataKey([4; 32])),
        relay: false,
    }));
    if !layout.is_empty() {
        let mut bytes = vec![0; MAX_FRAME_LEN];
        let len = emit_runs(&runs, &mut bytes).map_or(0, |(len, _)| len);
        bytes.truncate(len);
        daemon.hear(&bytes);
    }
}

/// Says what a file is: rightly, if it is all of one byte, or not.
fn verdict(daemon: &mut Daemon, script: &mut Script<'_>) {
    let Some(copy) = &daemon.copy else { return };
    let manifest = &copy.manifest;
    let entry = script.pick(manifest.len());
    let byte = script.u8();
    let digests: Vec<_> = manifest
        .blocks_of(entry)
        .filter_map(|block| manifest.locate(block))
        .map(|place| {
            let bytes = vec![byte; place.len as usize];
            mcp_control::digest::block(&bytes, place.index, place.file_len)
        })
        .collect();
    let verdict = match script.pick(6) {
        0 => FileVerdict::Changed,
        1 => FileVerdict::Unreadable,
        2 => FileVerdict::Digest([byte; 32]),
        _ => FileVerdict::Digest(mcp_control::digest::fold(&digests)),
    };
    daemon.hear(&frame(&FileDigest {
        entry: entry as u32,
        verdict,
    }));
}

/// Another sender copies a file into the same folder.
fn copies_for_others(root: &Path) {
    let entry = Entry {
        path: RelPath::new(b"of-another").expect("a path"),
        kind: Kind::File { len: 3 },
        mode: 0o644,
        modified: Timestamp::default(),
    };
    let manifest = Arc::new(Manifest::new(vec![entry]).expect("a manifest"));
    let all = vec![Run { first: 0, count: 1 }];
    let layout = Layout::new(&manifest, all).expect("a layout");
    let copied = || -> Result<(), Trouble> {
        let mut store = Store::new(root, Arc::clone(&manifest), false)?;
        store.scan(|_| true)?;
        store.prepare(&layout)?;
        for (block, place) in layout.blocks(&manifest) {
            let mut arriving = store.begin(block, &place);
            store.piece(&mut arriving, b"abc")?;
            store.end(arriving)?;
        }
        let digest = mcp_control::digest::fold(&[mcp_control::digest::block(b"abc", 0, 3)]);
        store.verdict(0, FileVerdict::Digest(digest))?;
        store.pass(1)?;
        store.finish().map(|_| ())
    };
    if let Err(trouble) = copied() {
        panic!("another copy fails: {:?}", trouble.failed());
    }
    let copy = std::fs::read(root.join("of-another")).expect("the copy");
    assert_eq!(copy, b"abc");
}

/// The target: `mcpd` against a sender that was let in.
pub fn run(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let place = Place::new();
    let before = place.outside();
    // The second continues with the files that the first has left.
    for _ in 0..2 {
        let mut daemon = Daemon::new(place.root());
        offer(&mut daemon, &mut script);
        let mut steps = 0;
        while script.more() && steps < 40 && !daemon.server.is_ended() {
            steps += 1;
            match script.pick(8) {
                0 => offer(&mut daemon, &mut script),
                1 => plan(&mut daemon, &mut script),
                2 | 3 => verdict(&mut daemon, &mut script),
                4 => daemon.wait(script.pause_us()),
                5 => daemon.hear(&super::mcp::message(&mut script)),
                6 => daemon.finish(),
                _ => {
                    let (byte, len) = (script.u8(), usize::from(script.u16()) * 32);
                    daemon.data(byte, len);
                }
            }
        }
        daemon.finish();
    }
    assert!(place.outside() == before, "something outside has changed");
    copies_for_others(&place.root());
}

pub fn seeds() -> Vec<Vec<u8>> {
    // One file of 3000 bytes of `7`, its plan, its verdict, its data, and the same for the remainder.
    let whole = |top: u8, name: u8, kind: u8| {
        let mut lines = Lines(Vec::new());
        lines.u8(0).u8(0).u8(top).u8(1);
        lines.u8(0).u8(2).u8(0).u8(1);
        lines
            .u8(1)
            .u8(name)
            .u8(kind)
            .u8(184)
            .u8(11)
            .u8(1)
            .u8(255)
            .u8(1);
        lines.u8(1).u8(0).u8(1).u8(0);
        lines.u8(2).u8(1).u8(7).u8(5);
        lines.u8(7).u8(7).u8(0).u8(1);
        lines.u8(6);
        lines.0
    };
    let mut seeds = Vec::new();
    for top in 0..NAMES.len() as u8 {
        for name in 0..NAMES.len() as u8 {
            let once = whole(top, name, 0);
            seeds.push([once.clone(), once].concat());
        }
        seeds.push(whole(top, 1, 2));
        seeds.push(whole(top, 3, 3));
    }
    seeds
}
