//! A small copy, and both machines of it.

use std::sync::Arc;

use mcp_control::limits::{BLOCK_LEN, MAX_FRAME_LEN};
use mcp_control::wire::held::Held;
use mcp_control::wire::hello::Capabilities;
use mcp_control::wire::offer::CopyId;
use mcp_control::wire::plan::{Carrier, DataKey};
use mcp_control::*;

pub(crate) fn manifest() -> Arc<Manifest> {
    let entry = |path: &str, kind| Entry {
        path: RelPath::new(path.as_bytes()).unwrap(),
        kind,
        mode: 0o644,
        modified: Timestamp::default(),
    };
    let entries = vec![
        entry("t", Kind::Folder),
        entry("t/a", Kind::File { len: 3 * BLOCK_LEN }),
        entry("t/b", Kind::File { len: 10 }),
    ];
    Arc::new(Manifest::new(entries).unwrap())
}

pub(crate) fn client_config() -> ClientConfig {
    let capabilities = Capabilities::UDP.with(Capabilities::AEAD);
    let mut config = ClientConfig::new(CopyId([3; 16]), capabilities);
    config.required = Capabilities::UDP;
    config
}

pub(crate) struct Pair {
    pub(crate) now: Instant,
    pub(crate) client: Client,
    pub(crate) server: Server,
    pub(crate) at_client: Vec<ClientEvent>,
    pub(crate) at_server: Vec<ServerEvent>,
}

impl Pair {
    pub(crate) fn new(client: ClientConfig, server: ServerConfig) -> Pair {
        Pair::with(client, server, manifest())
    }

    pub(crate) fn with(
        client: ClientConfig,
        server: ServerConfig,
        manifest: Arc<Manifest>,
    ) -> Pair {
        let now = Instant::from_secs(1);
        Pair {
            now,
            client: Client::new(client, manifest, now),
            server: Server::new(server, now),
            at_client: Vec::new(),
            at_server: Vec::new(),
        }
    }

    /// Moves messages until both are quiet.
    pub(crate) fn settle(&mut self) {
        let mut buffer = vec![0; MAX_FRAME_LEN];
        loop {
            let mut quiet = true;
            while let Some(frame) = self.client.poll_transmit(self.now, &mut buffer) {
                quiet = false;
                if !self.server.is_ended() {
                    let frame = &buffer[..frame.len];
                    self.server.handle_packet(self.now, &(), frame).unwrap();
                }
                while let Some(event) = self.server.poll_event() {
                    self.at_server.push(event);
                }
            }
            while let Some(frame) = self.server.poll_transmit(self.now, &mut buffer) {
                quiet = false;
                if !self.client.is_ended() {
                    let frame = &buffer[..frame.len];
                    self.client.handle_packet(self.now, &(), frame).unwrap();
                }
                while let Some(event) = self.client.poll_event() {
                    self.at_client.push(event);
                }
            }
            while let Some(event) = self.server.poll_event() {
                self.at_server.push(event);
            }
            while let Some(event) = self.client.poll_event() {
                self.at_client.push(event);
            }
            if quiet {
                return;
            }
        }
    }

    /// Up to the point where ports are negotiated; the server has block 1.
    pub(crate) fn scanned(&mut self) {
        self.settle();
        let held = Held {
            first: 1,
            digests: vec![[9; 32]],
        };
        self.server.held(self.now, &held).unwrap();
        self.server.scanned(self.now).unwrap();
        self.settle();
    }

    /// Agrees on the ports of [`path`].
    pub(crate) fn suggest(&mut self) {
        self.client
            .suggest(self.now, Carrier::Udp, 4000, 5000)
            .unwrap();
        self.settle();
        self.server.port(self.now, 5000).unwrap();
        self.settle();
    }

    pub(crate) fn planned(&mut self) -> Arc<Layout> {
        self.scanned();
        self.suggest();
        let layout = layout();
        let data = Some((path(), Arc::clone(&layout)));
        self.client.plan(self.now, data).unwrap();
        self.settle();
        self.server.ready(self.now).unwrap();
        self.settle();
        layout
    }

    pub(crate) fn last_client(&self) -> &ClientEvent {
        self.at_client.last().unwrap()
    }

    pub(crate) fn last_server(&self) -> &ServerEvent {
        self.at_server.last().unwrap()
    }
}

pub(crate) fn path() -> DataPath {
    DataPath {
        carrier: Carrier::Udp,
        group: Some([239, 1, 1, 1].into()),
        source: 4000,
        destination: 5000,
        key: Some(DataKey([4; 32])),
        relay: false,
    }
}

pub(crate) fn udp() -> ServerConfig {
    ServerConfig::new(Capabilities::UDP)
}

/// Both machines, before the plan; the server has these capabilities beside UDP.
pub(crate) fn linked(capabilities: Capabilities) -> Pair {
    let mut pair = Pair::new(
        client_config(),
        ServerConfig::new(Capabilities::UDP.with(capabilities)),
    );
    pair.settle();
    pair.server.scanned(pair.now).unwrap();
    pair.settle();
    pair
}

/// All data comes over links.
pub(crate) fn links_only() -> DataPath {
    DataPath {
        group: None,
        source: 0,
        destination: 0,
        key: None,
        relay: true,
        ..path()
    }
}

/// The blocks that a server with block 1 lacks.
pub(crate) fn layout() -> Arc<Layout> {
    let runs = vec![Run { first: 0, count: 1 }, Run { first: 2, count: 2 }];
    Arc::new(Layout::new(&manifest(), runs).unwrap())
}

/// The digest of the whole copy if each file has this digest.
pub(crate) fn whole() -> Digest {
    manifest().digest(&[[0; 32], [1; 32], [1; 32]])
}
