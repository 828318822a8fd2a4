//! The control protocol between `mcp`, which copies files to many hosts, and `mcpd`, which receives
//! them (TCP-XM §3.4; `docs/wire.md` draws its messages).
//!
//! Control travels over one kernel TCP connection for each host, inside TLS with a key: the list of files, the
//! blocks that the host already has, the ports of the data, progress, and the verification. The data travels
//! over TCP-XM in one stream for all hosts and consists of content only: [`Layout`] maps each byte of it to a
//! byte of a file.
//!
//! A [`Client`] is `mcp`'s side for one host, a [`Server`] is `mcpd`'s side for one connection. Both are an
//! [`Endpoint`] in a [`Role`], state machines without socket, clock, thread or entropy. They use no randomness,
//! so their constructors take no seed.
//!
//! # How to drive a machine
//!
//! ```text
//! loop {
//!     while let Some(transmit) = machine.poll_transmit(now, &mut buffer) { write it all }
//!     while let Some(event) = machine.poll_event() { act on it }
//!     if machine.is_ended() { close the connection }
//!     wait for bytes, or until machine.poll_timeout()
//!     on bytes:     machine.handle_bytes(now, &mut bytes), until none are left
//!     on the end:   machine.handle_close(now)
//!     in any case:  machine.handle_timeout(now)
//! }
//! ```
//!
//! ```
//! use std::sync::Arc;
//! use mcp_control::wire::hello::Capabilities;
//! use mcp_control::wire::offer::CopyId;
//! use mcp_control::*;
//!
//! let file = Entry {
//!     path: RelPath::new(b"hello.txt").unwrap(),
//!     kind: Kind::File { len: 5 },
//!     mode: 0o644,
//!     modified: Timestamp::default(),
//! };
//! let manifest = Arc::new(Manifest::new(vec![file]).unwrap());
//! let config = ClientConfig::new(CopyId([7; 16]), Capabilities::UDP);
//! let now = Instant::ZERO;
//! let mut client = Client::new(config, manifest.clone(), now);
//! let mut server = Server::new(ServerConfig::new(Capabilities::UDP), now);
//!
//! let mut buffer = vec![0; limits::MAX_FRAME_LEN];
//! for _ in 0..2 {
//!     while let Some(frame) = client.poll_transmit(now, &mut buffer) {
//!         server.handle_packet(now, &(), &buffer[..frame.len]).unwrap();
//!     }
//!     while let Some(frame) = server.poll_transmit(now, &mut buffer) {
//!         client.handle_packet(now, &(), &buffer[..frame.len]).unwrap();
//!     }
//! }
//! let Some(ServerEvent::Offered { manifest: offered, .. }) = server.poll_event() else { panic!() };
//! assert_eq!(offered, manifest);
//! ```
//!
//! # What is sent
//!
//! Files are cut into blocks of 1 MiB, counted through all files of the copy ([`Manifest`]). A server sends the
//! digests of the blocks that it has (HELD); blocks that match the client's are not sent to it. The data stream
//! is the union of the blocks that the hosts lack; each host ignores blocks that it has, and a host that lacks
//! none is not part of the data connection. At the end DIGEST has the digest of each file, and DONE that of the
//! host's result.
//!
//! # Units and bounds
//!
//! | what | unit or bound |
//! | --- | --- |
//! | a frame | 64 KiB; one longer than its type allows is refused when its header is there |
//! | a path | 4096 bytes, 128 components of 1 to 255 bytes, no `..`, no link that leads out |
//! | a copy | 2^24 entries, 2^28 blocks; a server takes less ([`ServerConfig`]) |
//! | a client | what the manifest and the plan need (shared by all hosts), one frame, and 56 bytes for each DIGEST that waits to be sent |
//! | a server | [`ServerConfig::max_manifest_bytes`] for names and as much again for the lists; 1 MiB for the plan; one frame, and 32 bytes for each block that its application names faster than they are sent |
//! | a server before its peer has said HELLO | 264 bytes of frame |
//! | events | 16; then messages are refused with [`Error::Full`], and may be offered again |
//! | a setup that takes too long, a silent peer | [`ServerConfig::greeting`], [`ServerConfig::setup`], [`Timeouts::silence`] |
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod blocks;
mod client;
pub mod digest;
mod endpoint;
mod error;
mod explain;
pub mod layout;
pub mod limits;
mod link;
mod manifest;
pub mod path;
mod requests;
mod server;
pub mod wire;

pub use blocks::{BlockSet, Run};
pub use client::{Client, ClientConfig, ClientEvent, ClientRole, DataPath};
pub use digest::Digest;
pub use endpoint::{Endpoint, Role};
pub use error::{Error, UnexpectedMessage};
pub use explain::explain;
pub use layout::Layout;
pub use link::{Side, Stats, Timeouts, Transmit};
pub use manifest::{BlockPlace, Entry, Kind, Manifest, ManifestError, Timestamp};
pub use path::{PathError, RelPath};
pub use proto_core::time::{Duration, Instant};
pub use requests::Requests;
pub use server::{Server, ServerConfig, ServerEvent, ServerRole};
pub use wire::verdict::{Failed, Reason};

/// TCP port of control connections, unless configured otherwise.
pub const PORT: u16 = 4139;
