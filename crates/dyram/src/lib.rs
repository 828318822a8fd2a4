//! DyRAM: reliable multicast by active services of relays (Maimour, Mazuy, Pham: "The Cost of
//! Active Services in Active Reliable Multicast", AMS 2002).
//!
//! A [`Relay`] stands in a tree between a source and its receivers. It keeps nothing of the data. It
//! sees losses early and asks upward at once; of many NACKs for a packet it lets one through; it
//! elects, for each lost packet anew and without a message, a receiver that has it; and it passes
//! the repair to those who lost it, and to nobody else. An [`Attachment`] is the tree's end at a
//! receiver or at the source. Both are plain machines: no socket, clock, thread or entropy.
//!
//! # How to drive a relay
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
//!     in any case:  relay.handle_timeout(now)
//! }
//! ```
//!
//! ```
//! use dyram::storage::{Limits, Storage};
//! use dyram::wire::Role;
//! use dyram::{
//!     Attachment, AttachmentConfig, Config, Input, Instant, Meta, Relay, RelayId, Seq, SessionKey,
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
//! // A packet goes down.
//! let sent = source.data(7, Seq(0), b"hello", &mut buffer).unwrap();
//! let from = Meta::unicast("10.0.0.1:5000".parse().unwrap());
//! let Verdict::Send(fanout) = relay.forward(now, &from, &mut buffer[..sent.len]) else { panic!() };
//! assert_eq!(relay.targets(&fanout).collect::<Vec<_>>(), ["10.0.0.2:5000".parse().unwrap()]);
//! let from = Meta::unicast(relay_address);
//! let input = receiver.handle_packet(now, &from, &buffer[..sent.len]).unwrap();
//! assert!(matches!(input, Input::Data { payload: b"hello", .. }));
//! ```
//!
//! # Rooms
//!
//! | module | what is in it |
//! | --- | --- |
//! | [`wire`] | ANEP header and the services' bodies |
//! | `relay` | the active services; the phases of a NACK state stand in `relay/table/nack_states.rs` |
//! | `attach` | the child's side of the session protocol |
//! | `track` | the track list |
//! | `wheel` | one timer wheel for everything |
//! | [`storage`] | the tables, lent or owned, and what they take |
//!
//! # Units and bounds
//!
//! | what | unit or bound |
//! | --- | --- |
//! | packets | numbered in 32 bits; wrap |
//! | a session | less than 4 KiB with 64 children, a window of 1,024 packets, 64 NACK states |
//! | sessions, children, NACK states | [`storage::Limits`]; a JOIN beyond is answered "full", a NACK beyond is dropped and comes again. Nobody who is in is put out |
//! | relays between source and receiver | [`wire::MAX_PATH`] |
//! | answers to JOINs that wait | 32; further JOINs are dropped meanwhile |
//! | events | 32; more are counted as lost |
//! | work | constant for each packet, but for a NACK's up to 65 packets, a gap's packets (up to the window), the search of a free or forgotten child at a JOIN, and a session's NACK states when a child goes; children are walked at each refresh |
//!
//! # Trust
//!
//! Nobody is sent anything but an answer to a JOIN, no longer than it, before he has shown that the
//! address is his: the JOIN must carry a token sent there. New data is taken from above alone, and
//! what comes up from children alone, each by its address; a repair only from the replier that was
//! asked. A packet sends out at most one copy to each child that wants it, and one upward; a NACK
//! for a packet at most [`Config::replier_tries`] NACKs downward and [`Config::parent_tries`] upward,
//! whatever the number of children that ask. Source addresses can be forged where networks allow it;
//! what that can do is to confuse the track list (a jump ahead is believed only when a second packet
//! follows it) and to waste repairs. Of two sources with one name, and of two session identifiers, the
//! first is served until it is silent for [`Config::takeover`]. What is delivered is the transport's to verify.
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

pub use attach::{Attachment, AttachmentConfig, AttachmentEvent, Input};
pub use config::{Carriage, Config, ConfigError, DefaultReplier, MAX_PARENTS, Parents};
pub use core::net::SocketAddr;
pub use event::{Event, Full};
pub use proto_core::Seq;
pub use proto_core::time::{Duration, Instant};
pub use relay::{ChildInfo, Fanout, Relay, SessionInfo, Targets, Verdict, packets};
pub use stats::{DropReason, Drops, Stats};
pub use types::{Meta, RelayId, SessionKey, Transmit};

/// The longest packet that a machine makes of its own, in bytes.
pub const MAX_CONTROL_LEN: usize = wire::HEADER_LEN_V6 + wire::JOIN_LEN;
