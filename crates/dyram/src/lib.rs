//! DyRAM: reliable multicast by active services of relays (Maimour, Mazuy, Pham: "The Cost of
//! Active Services in Active Reliable Multicast", AMS 2002).
//!
//! A [`Relay`] is a node of a tree between a source and its receivers. It stores no data. It detects losses early and
//! sends a NACK upward at once. It forwards one of many NACKs for a packet. For each lost packet it elects a receiver
//! that has it, without a message. It forwards the repair only to the receivers that lost the packet. An
//! [`Attachment`] connects a receiver or the source to a relay. Both implement [`Machine`](proto_core::Machine): they
//! own no socket, clock, thread or source of entropy.
//!
//! # Driving a relay
//!
//! ```text
//! loop {
//!     while let Some(transmit) = relay.poll_transmit(now, &mut buffer) { send it }
//!     while let Some(event) = relay.poll_event() { log it }
//!     wait for a packet, or until relay.poll_timeout()
//!     on a packet:  match relay.forward(now, &meta, &mut packet) {
//!                       Verdict::Send(fanout) => to each of relay.targets(&fanout): send packet
//!                       Verdict::Done | Verdict::Drop(_) => {}
//!                   }
//!     always:       relay.handle_timeout(now)
//! }
//! ```
//!
//! ```
//! use dyram::storage::{Limits, Storage};
//! use dyram::wire::{Body, Role};
//! use dyram::{
//!     Attachment, AttachmentConfig, Config, Instant, Meta, Relay, RelayId, Seq, SessionKey,
//!     Verdict,
//! };
//!
//! let now = Instant::ZERO;
//! let storage = Storage::owned(Limits::default()).unwrap();
//! let mut relay = Relay::new(Config::new(RelayId(1)), storage, [1; 32], now).unwrap();
//! let relay_address = "10.0.0.9:4143".parse().unwrap();
//!
//! // The source and one receiver attach to it.
//! let key = SessionKey::new("10.0.0.1".parse().unwrap(), "239.1.2.3".parse().unwrap()).unwrap();
//! let attach = |role, seed| {
//!     let relays = [relay_address].into_iter().collect();
//!     Attachment::new(AttachmentConfig { key, role, relays }, [seed; 32], now)
//! };
//! let mut source = attach(Role::Source, 2);
//! let mut receiver = attach(Role::Receiver, 3);
//! let mut buffer = [0; 2048];
//! for (end, address) in [(&mut source, "10.0.0.1:5000"), (&mut receiver, "10.0.0.2:5000")] {
//!     let address = address.parse().unwrap();
//!     while end.relay().is_none() {
//!         let join = end.poll_transmit(now, &mut buffer).unwrap();
//!         let _ = relay.forward(now, &Meta::unicast(address), &mut buffer[..join.len]);
//!         while let Some(answer) = relay.poll_transmit(now, &mut buffer) {
//!             let from = Meta::unicast(relay_address);
//!             end.handle_packet(now, &from, &buffer[..answer.len]).unwrap();
//!         }
//!     }
//! }
//!
//! // A packet goes to the receiver.
//! let sent = source.send(7, Seq(0), Body::Data(b"hello"), &mut buffer).unwrap();
//! let from = Meta::unicast("10.0.0.1:5000".parse().unwrap());
//! let Verdict::Send(fanout) = relay.forward(now, &from, &mut buffer[..sent.len]) else { panic!() };
//! assert_eq!(relay.targets(&fanout).collect::<Vec<_>>(), ["10.0.0.2:5000".parse().unwrap()]);
//! let from = Meta::unicast(relay_address);
//! let packet = receiver.handle_packet(now, &from, &buffer[..sent.len]).unwrap().unwrap();
//! assert_eq!(packet.body, Body::Data(b"hello"));
//! ```
//!
//! # Module layout
//!
//! | module | contents |
//! | --- | --- |
//! | [`wire`] | ANEP header and the services' bodies |
//! | `relay` | the active services; `relay/table/nack_states.rs` lists the phases of a NACK state |
//! | `attach` | the child's side of the session protocol |
//! | `track` | the track list |
//! | `wheel` | the timer wheel |
//! | [`storage`] | the tables, lent or owned, and their sizes |
//!
//! # Units and limits
//!
//! | quantity | unit or limit |
//! | --- | --- |
//! | packet numbers | 32 bits; wrap |
//! | a session | less than 4.25 KiB with 64 children, a window of 1,024 packets, 64 NACK states |
//! | sessions, children, NACK states | [`storage::Limits`]; at the limit a JOIN is answered "full", and a NACK is dropped, which the child repeats. No child is evicted |
//! | relays between source and receiver | [`wire::MAX_PATH`] |
//! | feedback of a session | one goes upward in 5 ms, one waits |
//! | pending answers to JOINs | 32; further JOINs are dropped |
//! | pending events | 32; further ones are counted as lost |
//! | work | constant for each packet, except for the up to 65 packets of a NACK, the packets of a gap (up to the window), the search for a free or known child at a JOIN, and the NACK states of a session when a child leaves; each refresh visits all children of a session |
//!
//! # Security model
//!
//! Until an address is verified, the relay sends it only answers to its JOINs, each no longer than the JOIN. An address
//! is verified when a JOIN carries the token that was sent there. New data is accepted only from above, packets that go
//! up only from children, each by its address, and a repair only from the replier that was asked. A data packet causes
//! at most one copy for each child, and one upward. A lost packet causes at most [`Config::replier_tries`] NACKs
//! downward and [`Config::parent_tries`] upward, regardless of the number of children that ask. A child causes at most
//! 200 FEEDBACK packets a second upward. Source addresses can be forged where networks allow it; a forger can confuse
//! the track list (a jump ahead is accepted only when a second packet follows it) and waste repairs. Of two sources
//! with one name, and of two session identifiers, the first is served until it is silent for [`Config::takeover`]. The
//! transport verifies the data.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(feature = "alloc")]
extern crate alloc;

mod attach;
mod config;
mod event;
mod relay;
mod secret;
mod stats;
pub mod storage;
mod track;
mod types;
mod wheel;
pub mod wire;

pub use attach::{Attachment, AttachmentConfig, AttachmentEvent};
pub use config::{Carriage, Config, ConfigError, DefaultReplier, MAX_PARENTS, Parents};
pub use core::net::SocketAddr;
pub use event::{Event, Full};
pub use proto_core::Seq;
pub use proto_core::time::{Duration, Instant};
pub use relay::{ChildInfo, Fanout, Relay, SessionInfo, Targets, Verdict, packets};
pub use stats::{DropReason, Drops, Stats};
pub use types::{Meta, RelayId, SessionKey, Transmit};

/// Length of the longest packet that a machine itself sends, in bytes.
pub const MAX_CONTROL_LEN: usize = wire::HEADER_LEN_V6 + wire::FEEDBACK_LEN;
