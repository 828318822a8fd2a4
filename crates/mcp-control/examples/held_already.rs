//! One host and one file of three blocks, of which the host has two: what still has to be sent.
//!
//! `cargo run -p mcp-control --example held_already`

use std::sync::Arc;

use mcp_control::wire::held::Held;
use mcp_control::wire::hello::Capabilities;
use mcp_control::wire::offer::CopyId;
use mcp_control::{
    Client, ClientConfig, ClientEvent, Entry, Instant, Kind, Manifest, RelPath, Server,
    ServerConfig, ServerEvent, Timestamp, limits,
};

fn main() {
    let now = Instant::ZERO;
    let file = Entry {
        path: RelPath::new(b"image.iso").expect("a plain name"),
        kind: Kind::File { len: 3 << 20 },
        mode: 0o644,
        modified: Timestamp::default(),
    };
    let manifest = Arc::new(Manifest::new(vec![file]).expect("entries in order"));
    let config = ClientConfig::new(CopyId([7; 16]), Capabilities::UDP);
    let mut client = Client::new(config, manifest, now);
    let mut server = Server::new(ServerConfig::new(Capabilities::UDP), now);

    // The bytes of a control connection, until both fall silent.
    let mut buffer = vec![0; limits::MAX_FRAME_LEN];
    let mut missing = vec![0, 1, 2];
    loop {
        let mut quiet = true;
        while let Some(frame) = client.poll_transmit(now, &mut buffer) {
            quiet = false;
            server
                .handle_packet(now, &(), &buffer[..frame.len])
                .expect("a sound frame");
        }
        while let Some(event) = server.poll_event() {
            if let ServerEvent::Offered { manifest, .. } = event {
                println!("mcpd is offered {} entries", manifest.entries().len());
                // It found the first two blocks in an unfinished file.
                let held = Held {
                    first: 0,
                    digests: vec![[1; 32], [2; 32]],
                };
                server.held(now, &held).expect("the time for it");
                server.scanned(now).expect("the time for it");
            }
        }
        while let Some(frame) = server.poll_transmit(now, &mut buffer) {
            quiet = false;
            client
                .handle_packet(now, &(), &buffer[..frame.len])
                .expect("a sound frame");
        }
        while let Some(event) = client.poll_event() {
            match event {
                // A real client compares each digest with its own.
                ClientEvent::Held(held) => {
                    let blocks = held.first..held.first + held.digests.len() as u64;
                    println!("mcp hears that blocks {blocks:?} are there");
                    missing.retain(|block| !blocks.contains(block));
                }
                ClientEvent::Scanned => println!("mcp has to send blocks {missing:?}"),
                other => println!("mcp: {other:?}"),
            }
        }
        if quiet {
            break;
        }
    }
    assert_eq!(missing, [2]);
}
