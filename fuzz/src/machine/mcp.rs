//! The control machines of `mcp`: a client and a server, each against a peer that breaks the rules
//! and one that keeps them.
//!
//! Asserted: a machine that has ended hears nothing more; a manifest, plan or island that reaches the
//! application is within the configured bounds, and links and islands reach it only where the plan has
//! links; memory stays within the bounds too; a message draws two answers at most.

use std::collections::VecDeque;
use std::sync::Arc;

use mcp_control::limits::{BLOCK_LEN, MAX_FRAME_LEN};
use mcp_control::wire::Message;
use mcp_control::wire::held::Held;
use mcp_control::wire::hello::{Capabilities, Hello, Prepared, Welcome};
use mcp_control::wire::island::{Island, Listen, MAX_MEMBERS, MIN_MEMBERS, Multicast};
use mcp_control::wire::offer::{CopyId, Offer, emit_entries};
use mcp_control::wire::plan::{Carrier, DataKey, Plan, emit_runs};
use mcp_control::wire::port::{Port, Suggest};
use mcp_control::wire::progress::{Done, FileDigest, FileVerdict, Progress};
use mcp_control::wire::relay::{Blocks, Fed, Feed, LinkId, LinkReport, LinkSecret, LinkState};
use mcp_control::{
    Client, ClientConfig, ClientEvent, DataPath, Endpoint, Entry, Failed, Instant, Kind, Layout,
    Manifest, Reason, RelPath, Role, Run, Server, ServerConfig, ServerEvent, Timestamp,
};

use super::pass;
use crate::memory::Meter;
use crate::script::{Lines, Script};

const MAX_ENTRIES: u32 = 64;
const MAX_BLOCKS: u64 = 256;
const MAX_MANIFEST: usize = 16 << 10;
/// The manifest, events and messages that wait: a frame of the longest kind for each of 16 events,
/// and the block set of what the server has.
const SERVER_BOUND: usize = MAX_MANIFEST * 4 + 17 * MAX_FRAME_LEN;
/// As much for the client, whose manifest is the caller's.
const CLIENT_BOUND: usize = 17 * MAX_FRAME_LEN;
/// Kinds of messages that [`message`] makes.
const MESSAGES: usize = 20;

fn entries(script: &mut Script<'_>) -> Vec<Entry> {
    let entry = |path: &[u8], kind| {
        Some(Entry {
            path: RelPath::new(path).ok()?,
            kind,
            mode: 0o644,
            modified: Timestamp::default(),
        })
    };
    let mut list = vec![entry(b"t", Kind::Folder)];
    for number in 0..script.pick(6) {
        let name = [b"t/".as_slice(), &[b'a' + number as u8]].concat();
        let kind = match script.pick(3) {
            0 => Kind::Folder,
            1 => Kind::File {
                len: script.u8() as u64 * (BLOCK_LEN / 32),
            },
            _ => Kind::Link {
                target: script.bytes().into(),
            },
        };
        list.push(entry(&name, kind));
    }
    list.into_iter().flatten().collect()
}

/// Three files, of two blocks, of less than one and of three.
fn manifest() -> Arc<Manifest> {
    let files = [3, 1, 64, 1, 1, 1, 96];
    let entries = entries(&mut Script::new(&files));
    Arc::new(Manifest::new(entries).expect("in order"))
}

pub(super) fn frame(message: &impl Message) -> Vec<u8> {
    let mut bytes = vec![0; message.buffer_len()];
    message.emit(&mut bytes);
    bytes
}

/// What a HELLO says of the data connection.
fn prepared(script: &mut Script<'_>) -> Option<Prepared> {
    let wanted = script.flag();
    wanted.then(|| Prepared {
        carrier: Carrier::Udp,
        source: script.u16().max(1),
        destination: script.u16().max(1),
        key: script.flag().then_some(DataKey([7; 32])),
    })
}

fn island(script: &mut Script<'_>) -> Island {
    Island {
        link: LinkId([script.u8(); 16]),
        secret: LinkSecret([6; 32]),
        group: [239, 255, 1, 2].into(),
        source: script.u16().max(1),
        destination: script.u16().max(1),
        sealed: script.flag(),
    }
}

fn multicast(script: &mut Script<'_>) -> Multicast {
    let members = MIN_MEMBERS + script.pick(MAX_MEMBERS - 1);
    Multicast {
        island: island(script),
        members: vec![[10, 0, 0, script.u8()].into(); members],
    }
}

fn listen(script: &mut Script<'_>) -> Listen {
    Listen {
        island: island(script),
        head: [10, 0, 0, script.u8()].into(),
    }
}

/// A message that is well-formed and perhaps out of place.
pub(super) fn message(script: &mut Script<'_>) -> Vec<u8> {
    let run = |script: &mut Script<'_>| Run {
        first: script.u8().into(),
        count: script.u8().into(),
    };
    match script.pick(MESSAGES) {
        0 => frame(&Hello {
            lowest: 1,
            highest: script.u8(),
            capabilities: Capabilities(script.u16()),
            prepared: prepared(script),
        }),
        1 => frame(&Welcome {
            version: 1,
            capabilities: Capabilities(script.u16()),
            max_entries: script.u32(),
            max_bytes: script.u64(),
        }),
        2 => frame(&Offer {
            copy: CopyId([3; 16]),
            entries: script.u8().into(),
            bytes: script.u32().into(),
        }),
        3 => {
            let list = entries(script);
            let mut bytes = vec![0; MAX_FRAME_LEN];
            let len = emit_entries(&list, &mut bytes).map_or(0, |(len, _)| len);
            bytes.truncate(len);
            bytes
        }
        4 => frame(&Held {
            first: script.u8().into(),
            digests: vec![[script.u8(); 32]; 1 + script.pick(20)],
        }),
        5 => frame(&mcp_control::wire::held::Scanned {
            blocks: script.u8().into(),
        }),
        6 => frame(&Suggest {
            number: script.u8().into(),
            carrier: script.of(&[Carrier::Udp, Carrier::Ip]),
            source: script.u16(),
            destination: script.u16(),
        }),
        7 => frame(&Port {
            number: script.u8().into(),
            confirmed: script.flag(),
            port: script.u16(),
        }),
        8 => frame(&Plan {
            carrier: script.of(&[Carrier::Udp, Carrier::Ip]),
            group: script.flag().then_some([239, 1, 1, 1].into()),
            source: script.u16(),
            destination: script.u16(),
            runs: script.u8().into(),
            stream_len: script.u32().into(),
            key: script.flag().then_some(DataKey([4; 32])),
            relay: script.flag(),
        }),
        9 => {
            let runs: Vec<Run> = (0..1 + script.pick(5)).map(|_| run(script)).collect();
            let mut bytes = vec![0; MAX_FRAME_LEN];
            let len = emit_runs(&runs, &mut bytes).map_or(0, |(len, _)| len);
            bytes.truncate(len);
            bytes
        }
        10 => frame(&Progress {
            received: script.u32().into(),
            held: script.u32().into(),
        }),
        11 => frame(&FileDigest {
            entry: script.u8().into(),
            verdict: FileVerdict::Digest([1; 32]),
        }),
        12 => frame(&Done {
            received: script.u32().into(),
            bytes: script.u32().into(),
            whole: [script.u8(); 32],
        }),
        13 => frame(&Blocks {
            first: script.u8().into(),
            digests: vec![[script.u8(); 32]; 1 + script.pick(20)],
        }),
        14 => frame(&Feed {
            link: LinkId([script.u8(); 16]),
            secret: LinkSecret([6; 32]),
            child: ([10, 0, 0, 1], script.u16().max(1)).into(),
            sealed: script.flag(),
        }),
        15 => frame(&Fed {
            link: LinkId([script.u8(); 16]),
            secret: LinkSecret([6; 32]),
            sealed: script.flag(),
            alone: script.flag(),
        }),
        16 => frame(&LinkReport {
            link: LinkId([script.u8(); 16]),
            state: LinkState::Wrong {
                block: script.u8().into(),
            },
        }),
        17 => frame(&multicast(script)),
        18 => frame(&listen(script)),
        _ => frame(&Failed::new(
            Reason::Interrupted,
            Some(script.u8().into()),
            "why",
        )),
    }
}

struct Bench {
    now: Instant,
    client: Client,
    server: Server,
    meters: [Meter; 2],
    to_server: VecDeque<Vec<u8>>,
    to_client: VecDeque<Vec<u8>>,
    /// The plan that has reached the server's application has links.
    has_links: bool,
}

impl Bench {
    fn new(script: &mut Script<'_>) -> Bench {
        let now = Instant::from_secs(1);
        let mut client = ClientConfig::new(CopyId([3; 16]), Capabilities(script.u16()));
        client.required = Capabilities(u16::from(script.u8() & 3));
        let mut server = ServerConfig::new(Capabilities(0x77));
        server.max_entries = MAX_ENTRIES;
        server.max_blocks = MAX_BLOCKS;
        server.max_manifest_bytes = MAX_MANIFEST;
        Bench {
            now,
            client: Client::new(client, manifest(), now),
            server: Server::new(server, now),
            meters: Default::default(),
            to_server: VecDeque::new(),
            to_client: VecDeque::new(),
            has_links: false,
        }
    }

    /// Both machines send their output; events are checked and dropped.
    fn drain(&mut self) {
        let mut buffer = vec![0; MAX_FRAME_LEN];
        let now = self.now;
        let [to_client, to_server] = &mut self.meters;
        while let Some(out) = to_client.run(|| self.client.poll_transmit(now, &mut buffer)) {
            self.to_server.push_back(buffer[..out.len].to_vec());
        }
        while let Some(event) = to_client.run(|| self.client.poll_event()) {
            if let ClientEvent::Held(held) = &event {
                assert!(held.digests.len() <= 1024);
            }
            to_client.drop(event);
        }
        while let Some(out) = to_server.run(|| self.server.poll_transmit(now, &mut buffer)) {
            self.to_client.push_back(buffer[..out.len].to_vec());
        }
        while let Some(event) = to_server.run(|| self.server.poll_event()) {
            match &event {
                ServerEvent::Offered { manifest, .. } => {
                    assert!(
                        manifest.len() <= MAX_ENTRIES as usize && manifest.blocks() <= MAX_BLOCKS
                    );
                }
                ServerEvent::Planned { plan, layout } => {
                    assert!(layout.runs().iter().all(|run| run.end() <= MAX_BLOCKS));
                    self.has_links = plan.relay;
                }
                ServerEvent::Multicast(multicast) => {
                    let members = multicast.members.len();
                    assert!(self.has_links && (MIN_MEMBERS..=MAX_MEMBERS).contains(&members));
                }
                ServerEvent::Blocks(_)
                | ServerEvent::Feed(_)
                | ServerEvent::Fed(_)
                | ServerEvent::Listen(_) => assert!(self.has_links, "{event:?} without links"),
                _ => {}
            }
            to_server.drop(event);
        }
        self.meters[0].check(CLIENT_BOUND);
        self.meters[1].check(SERVER_BOUND);
        self.to_server.truncate(64);
        self.to_client.truncate(64);
    }

    fn hear<R: Role>(machine: &mut Endpoint<R>, meter: &mut Meter, now: Instant, bytes: &[u8]) {
        let ended = machine.is_ended();
        let queued = machine.queued();
        let result = meter.run(|| machine.handle_packet(now, &(), bytes));
        if ended {
            assert_eq!(machine.queued(), queued, "an ended machine answers");
        }
        assert!(machine.queued() <= queued + 2, "one message draws many");
        if let Err(error) = result
            && !ended
        {
            let failed = Failed::new(Reason::Protocol, None, &error.to_string());
            meter.run(|| machine.fail(now, failed));
        }
    }

    fn relay(&mut self, count: usize) {
        for _ in 0..count {
            self.drain();
            let (to_server, to_client) = (self.to_server.pop_front(), self.to_client.pop_front());
            if to_server.is_none() && to_client.is_none() {
                return;
            }
            if let Some(frame) = to_server {
                Bench::hear(&mut self.server, &mut self.meters[1], self.now, &frame);
            }
            if let Some(frame) = to_client {
                Bench::hear(&mut self.client, &mut self.meters[0], self.now, &frame);
            }
        }
    }

    fn wait(&mut self, us: u64) {
        let mut at = self.now;
        let due = |bench: &Bench| {
            bench
                .client
                .poll_timeout()
                .into_iter()
                .chain(bench.server.poll_timeout())
                .min()
        };
        pass(self, &mut at, us, due, |bench, now| {
            bench.now = now;
            bench.meters[0].run(|| bench.client.handle_timeout(now));
            bench.meters[1].run(|| bench.server.handle_timeout(now));
            bench.drain();
        });
        self.now = at;
    }

    /// The applications do something, at the right time or not.
    fn command(&mut self, script: &mut Script<'_>) {
        let now = self.now;
        let Bench {
            client,
            server,
            meters,
            ..
        } = self;
        let [to_client, to_server] = meters;
        let first = u64::from(script.u8() % 8);
        match script.pick(12) {
            0 => drop(to_client.run(|| client.suggest(now, Carrier::Udp, 4000, 5000))),
            1 => {
                let runs = vec![Run {
                    first,
                    count: 1 + u64::from(script.u8() % 8),
                }];
                let layout = Layout::new(&manifest(), runs).ok().map(Arc::new);
                let path = DataPath {
                    carrier: Carrier::Udp,
                    group: None,
                    source: 4000,
                    destination: 5000,
                    key: script.flag().then_some(DataKey([4; 32])),
                    relay: script.flag(),
                };
                let data = layout.map(|layout| (path, layout));
                let _ = to_client.run(|| client.plan(now, data));
            }
            2 => drop(
                to_client.run(|| client.digest(now, first as u32, FileVerdict::Digest([1; 32]))),
            ),
            3 => to_client.run(|| client.expect(now, [script.u8(); 32])),
            4 => {
                let held = Held {
                    first,
                    digests: vec![[9; 32]],
                };
                let _ = to_server.run(|| server.held(now, &held));
            }
            5 => drop(to_server.run(|| server.scanned(now))),
            6 => drop(to_server.run(|| server.port(now, script.u16()))),
            7 => drop(to_server.run(|| server.ready(now))),
            8 => drop(to_server.run(|| {
                server.progress(
                    now,
                    Progress {
                        received: 1,
                        held: 2,
                    },
                )
            })),
            9 => {
                let done = Done {
                    received: 1,
                    bytes: if script.flag() { manifest().bytes() } else { 2 },
                    whole: [0; 32],
                };
                let _ = to_server.run(|| server.done(now, &done));
            }
            10 => drop(to_client.run(|| client.multicast(now, &multicast(script)))),
            _ => drop(to_client.run(|| client.listen(now, &listen(script)))),
        }
        self.drain();
    }
}

fn run(bytes: &[u8], against_server: bool) {
    let mut script = Script::new(bytes);
    let mut bench = Bench::new(&mut script);
    let mut steps = 0;
    while script.more() && steps < 400 {
        steps += 1;
        let hostile = match script.pick(6) {
            0 => script.bytes().to_vec(),
            1 => message(&mut script),
            2 => {
                let queue = if against_server {
                    &mut bench.to_server
                } else {
                    &mut bench.to_client
                };
                if let Some(frame) = queue.front_mut() {
                    script.damage(frame);
                }
                Vec::new()
            }
            3 => {
                bench.relay(1 + script.pick(8));
                Vec::new()
            }
            4 => {
                bench.wait(script.pause_us());
                Vec::new()
            }
            _ => {
                bench.command(&mut script);
                Vec::new()
            }
        };
        if !hostile.is_empty() {
            let now = bench.now;
            if against_server {
                Bench::hear(&mut bench.server, &mut bench.meters[1], now, &hostile);
            } else {
                Bench::hear(&mut bench.client, &mut bench.meters[0], now, &hostile);
            }
        }
        bench.drain();
    }
}

/// A client against whatever a server may say.
pub fn client(bytes: &[u8]) {
    run(bytes, false);
}

/// A server against whatever a client may say.
pub fn server(bytes: &[u8]) {
    run(bytes, true);
}

pub fn seeds() -> Vec<Vec<u8>> {
    let start = |capabilities: u8| Lines(vec![capabilities, 0, 2]);
    let mut seeds = Vec::new();
    for golden in crate::goldens::of("crates/mcp-control/tests/golden_wire.rs") {
        let mut lines = start(7);
        lines
            .u8(3)
            .u8(7)
            .u8(0)
            .bytes(&golden)
            .u8(3)
            .u8(7)
            .u8(0)
            .bytes(&golden);
        seeds.push(lines.0);
    }
    for steps in 0..=STEPS.len() {
        seeds.push(copy(steps));
        let mut multicast = copy(steps);
        multicast.extend([1, 17, 62]);
        multicast.extend(ISLAND);
        let mut listen = copy(steps);
        listen.extend([1, 18]);
        listen.extend(ISLAND);
        seeds.extend([multicast, listen]);
    }
    // Every other message, before the plan, while data comes, and after DONE.
    for steps in [1, 6, 10] {
        for kind in 0..17 {
            let mut lines = copy(steps);
            lines.extend([1, kind]);
            lines.extend([1; 8]);
            seeds.push(lines);
        }
    }
    seeds
}

/// An island and the address of one host, as a script has them.
const ISLAND: [u8; 7] = [1, 0xa0, 0x0f, 0x88, 0x13, 1, 9];

/// The commands of a copy with links, each with its argument and the bytes that it reads: HELD, SCANNED, SUGGEST, PORT, PLAN,
/// READY, PROGRESS, DIGEST, MULTICAST, LISTEN, DONE, VERIFIED.
const STEPS: [(u8, u8, &[u8]); 12] = [
    (0, 4, &[]),
    (0, 5, &[]),
    (0, 0, &[]),
    (0, 6, &[0x88, 0x13]),
    (0, 1, &[2, 0, 1]),
    (0, 7, &[]),
    (0, 8, &[]),
    (1, 2, &[]),
    (0, 10, &[62, 1, 0xa0, 0x0f, 0x88, 0x13, 1, 9]),
    (0, 11, &ISLAND),
    (0, 9, &[1]),
    (0, 3, &[0]),
];

/// A copy up to this step, each of which follows when all messages have arrived.
fn copy(steps: usize) -> Vec<u8> {
    let mut lines = vec![7, 0, 2];
    for (argument, command, rest) in &STEPS[..steps] {
        lines.extend([3, 7, 5, *argument, *command]);
        lines.extend_from_slice(rest);
    }
    lines.extend([3, 7]);
    lines
}
