//! The protocol between a gateway and the process that is its native network: the paper's loadable library
//! (Broadcast Federation §5.4) without foreign code in the gateway.
//!
//! The gateway listens on Unix sockets, one for its control node and one for each data node; the *client*, a program of the
//! network's operator, connects to all of them. `docs/manual/external-networks.md` is the reference for authors of clients.
//!
//! ```
//! use bfed::data::HEADER_LEN;
//! use bfed::native::{Direction, NativeFlow, NativeNet};
//! use bfed::{GatewayId, Instant, SessionName};
//! use bfed_external::{Channels, Greeting, Limits, Part, frame, frame::Type};
//!
//! let now = Instant::from_secs(1);
//! let greeting = Greeting::new(GatewayId::new(7, 1).unwrap(), Part::Data { part: 0, parts: 1 });
//! let mut channels = Channels::new(greeting, Limits::default());
//!
//! // A client connects, greets and lends an address.
//! channels.connected(now);
//! let mut bytes = Vec::new();
//! frame::emit(&mut bytes, Type::Hello, 0, br#"{"version": 1}"#);
//! frame::emit(&mut bytes, Type::Lend, 0, br#"{"addresses": ["room 1"]}"#);
//! channels.link_mut().unwrap().space()[..bytes.len()].copy_from_slice(&bytes);
//! channels.link_mut().unwrap().filled(now, bytes.len());
//! let mut buffer = vec![0; HEADER_LEN + bfed_external::MAX_DATA_LEN];
//! assert_eq!(channels.poll_upcall(now, &mut buffer), None);
//!
//! // A session from elsewhere is presented at that address, at once.
//! let session = SessionName::parse("bfed://9/news").unwrap();
//! let flow = NativeFlow::new(&session, "", Direction::Down);
//! let (_, address) = channels.allocate_channel(now, flow).unwrap();
//! assert_eq!(address, b"room 1");
//! ```
//!
//! # Parts
//!
//! | part | |
//! | --- | --- |
//! | [`frame`] | the header of a frame, and frames out of a byte stream |
//! | [`message`] | what frames mean: JSON, and the bytes of data |
//! | [`Link`] | one connection: greeting, liveness, the queue of output |
//! | [`Channels`] | a data node's side: channels, lent addresses, back-pressure; a [`NativeNet`](bfed::NativeNet) |
//!
//! A driver reads into [`Link::space`], says how much with [`Link::filled`], drains the messages ([`Link::next_message`], or
//! `poll_upcall` of [`Channels`]), writes [`Link::output`], and says how much with [`Link::sent`]. It closes the
//! connection when one of them returns a [`Closed`].
//!
//! # Units and limits
//!
//! | quantity | bound | at the bound |
//! | --- | --- | --- |
//! | body of a frame | [`frame::MAX_BODY_LEN`]; of DATA [`MAX_DATA_LEN`] | the connection is closed |
//! | input | 128 KiB for each connection | the socket is read later |
//! | data for paused channels | [`MAX_HELD`] bytes | the socket is not read until a channel resumes |
//! | data of real-time sessions to the client | [`Limits::queue`] bytes | the oldest frames are dropped and counted |
//! | data of bulk sessions to the client | [`MAX_BULK`] bytes | the sessions wait (`NativeError::Busy`) |
//! | messages to the client | [`MAX_CONTROL`] bytes | the connection is closed |
//! | lent addresses | [`MAX_LENT`], each as long as [`MAX_NATIVE_ADDRESS_LEN`](bfed::wire::address::MAX_NATIVE_ADDRESS_LEN) | ignored and counted |
//! | a greeting | [`GREETING_TIMEOUT`] | the connection is closed |
//! | silence | [`SILENCE_TIMEOUT`]; PING after half of it | the connection is closed |
//!
//! # Security model
//!
//! The client is a process that the permissions of the socket admit, and an authorized attacker of its own network: it
//! can invent, change and drop everything of that network, and nothing else. No message makes the gateway allocate more
//! than the table says, and a client that does not read, does not answer or does not obey loses its connection or its data.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod channels;
pub mod frame;
mod lent;
mod link;
pub mod message;
mod queue;

pub use bfed::wire::data::MAX_PAYLOAD_LEN as MAX_DATA_LEN;
pub use channels::{Channels, MAX_HELD};
pub use lent::MAX_LENT;
pub use link::{Closed, GREETING_TIMEOUT, Limits, Link, SILENCE_TIMEOUT};
pub use message::{Greeting, Part};
pub use queue::{MAX_BULK, MAX_CONTROL};

/// Version of the protocol. A client of another version is refused.
pub const VERSION: u32 = 1;
