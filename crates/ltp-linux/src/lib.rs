//! LTP over sockets: files, streams and buffers to every receiver of a multicast group, reliably.
//!
//! The protocol is [`ltp`], a state machine without sockets; this crate drives it. `lms-send` and `lms-recv`
//! are command lines around it.
//!
//! ```no_run
//! use ltp_linux::{Group, SendConfig, Source, send};
//!
//! let group = Group::new("239.1.2.3:5000".parse()?).interface("eth0");
//! let mut config = SendConfig::new(group);
//! config.receivers = Some(8);
//! send(&config, Source::file("image.iso")?)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! On each of the eight hosts:
//!
//! ```no_run
//! use ltp_linux::{Group, ReceiveConfig, Sink, receive};
//!
//! let group = Group::new("239.1.2.3:5000".parse()?).interface("eth0");
//! let received = receive(&ReceiveConfig::new(group), Sink::folder("/srv/images"))?;
//! println!("{:?}: {} bytes", received.path, received.length);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Layout
//!
//! | to ... | use |
//! | --- | --- |
//! | send or receive and wait for the end | [`send`], [`receive`], [`receive_buffer`] |
//! | watch, cancel, read counters | [`Sender`], [`Receiver`], [`Cancel`] |
//! | name the group and the way to it | [`Group`] |
//! | transfer in a tokio program | `tokio::Transfer` (feature `tokio`) |
//! | use LMS routers or DyRAM relays | [`Recovery`] |
//! | send a file, a pipe, memory | [`Source`] |
//! | receive into a folder, a writer, memory | [`Sink`] |
//! | sanitise a file name from the network | [`name`] |
//! | write a file that appears when it is complete | [`output`] |
//!
//! # Driving
//!
//! `open` reports what cannot work: the interface, the sockets, the content. `run` blocks the calling thread
//! until the transfer has ended, and calls the observer, on that thread, with each event; packets wait
//! meanwhile, so an observer returns soon. `close` tells the peers that this host leaves. Counters can be read between and
//! after these calls.
//!
//! [`Cancel`] ends a transfer from another thread, such as the one that handles Ctrl-C. A sender then tells its
//! receivers, which fail; a receiver drops the incomplete file or buffer, and a stream keeps the bytes that were
//! written. A process that is killed leaves a file `.NAME.XXXXXX.part`, which can be deleted: handle SIGTERM with
//! [`Cancel`] too.
//!
//! A receiver that writes a stream has a second thread for that, so that a slow writer does not keep packets
//! waiting; data that it has not taken yet counts towards [`ReceiveConfig::buffer_bytes`], and a full buffer slows
//! a sender that waits for its receivers.
//!
//! # Units and limits
//!
//! | what | unit or limit |
//! | --- | --- |
//! | rates | bits of Ethernet frames a second |
//! | addresses | IPv4, IPv6 |
//! | memory of a sender | 0.4 MiB, two blocks of a file or [`SendConfig::buffer_bytes`] of a stream, and [`ltp`]'s tables |
//! | memory of a receiver | up to [`ReceiveConfig::buffer_bytes`], 2.5 MiB of socket batches, [`ltp`]'s tables; the content of a [`Sink::buffer`] |
//! | socket buffers | 2 to 4 MiB (sender), 36 MiB (receiver) are asked for; `net.core.rmem_max` may grant less |
//! | descriptors | up to 4 (sender), 8 (receiver), and those of the content |
//! | threads | none, and one while a stream is written |
//! | reaction to a cancel | at once; leaving takes up to 0.3 s |
//!
//! # Trust
//!
//! Any host can send to a group. A block is written only when its digest is what the source announced, and a
//! file gets its name only when the digest of the whole is right, so that loss, damage and blind forgery do
//! not reach the application. An attacker who sends forged packets before the sender does, or reads its unicast
//! packets, is kept out by [`Group::key`] alone; "Trust" in [`ltp`] has the details. Nothing is encrypted.
//! Names from the network are stripped of folders and of characters that steer terminals.
//!
//! # Privileges
//!
//! None. A receiver with [`Recovery::Lms`] that has CAP_NET_RAW also speaks by IP options; without it it speaks to
//! routers by datagrams alone, and says so ([`ReceiveEvent::LmsUnprivileged`]).
#![forbid(unsafe_code)]

mod cancel;
mod clock;
mod config;
mod error;
mod interface;
mod lms;
mod machine;
pub mod name;
mod net;
pub mod output;
mod recv;
mod relays;
mod send;
#[cfg(feature = "tokio")]
pub mod tokio;
mod transfer;
mod version;

pub use cancel::Cancel;
pub use config::{Carriage, Group, LMS_PORT, LmsCarrier, Recovery};
pub use error::{Error, Incomplete};
pub use interface::{InterfaceError, zone_index};
pub use ltp::relayed::AttachmentEvent;
pub use ltp::{
    Parity, ReceiverFailure, ReceiverState, ReceiverStats, SenderStats, SessionId, Start,
};
pub use recv::{
    ReceiveConfig, ReceiveEvent, Received, Receiver, Replier, Sink, receive, receive_buffer,
};
pub use relays::NoRelay;
pub use send::{
    LimitingStatus, Rate, ReceiverStatus, SendConfig, SendEvent, SendOutcome, Sender, Source,
    Unconfirmed, send,
};
pub use version::OtherVersion;
