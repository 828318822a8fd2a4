//! LTP: the reliable multicast transport that uses LMS routers or DyRAM relays where there are some,
//! and works without (LMS chapter 6, "LTP"; `docs/wire.md` draws its packets).
//!
//! A [`Sender`] multicasts numbered packets and heartbeats. A [`Receiver`] asks for what it lacks,
//! verifies blocks against digests from the source, and answers others' requests as replier.
//! Both are plain state machines: no socket, clock, thread or entropy of their own.
//!
//! # How to drive a machine
//!
//! ```text
//! while !machine.is_finished() {
//!     while let Some(transmit) = machine.poll_transmit(now, &mut buffer) { send it }
//!     while let Some(event) = machine.poll_event() { tell the application }
//!     wait for a packet, or until machine.poll_timeout()
//!     on a packet:  machine.handle_packet(now, &meta, bytes)   // Err: dropped and counted
//!     in any case:  machine.handle_timeout(now)
//! }
//! ```
//!
//! What [`Destination`] says is the driver's work: a plain multicast, a multicast with the LMS
//! option, a unicast, or a dmcast (IPIP to the turning point, inner UDP packet from the source's
//! address and port to the group). A receiver sends and receives unicast from one socket; the
//! source answers to that address.
//!
//! # When a driver may stop
//!
//! | state | of a [`Sender`] | of a [`Receiver`] |
//! | --- | --- | --- |
//! | `is_complete` | | everything arrived and verified; the source may not know it, so the driver goes on |
//! | `is_finished` | every receiver has confirmed, or the sender has ended: the driver may stop | everything arrived, verified and was confirmed, or the receiver gave up and has said so: the driver may stop |
//! | `is_ended` | nothing more is sent: after [`SenderConfig::linger`] or [`Sender::close`] | [`Receiver::close`] was called |
//!
//! A machine that is finished may be driven further: a sender serves receivers that come late, a receiver
//! answers others as replier. The last event tells how it ended: [`SenderEvent::Complete`] or
//! [`SenderEvent::Finished`], [`ReceiverEvent::Complete`] or [`ReceiverEvent::Failed`].
//!
//! ```
//! use std::net::SocketAddr;
//! use ltp::{Destination, Instant, Meta, Receiver, ReceiverConfig, Sender, SenderConfig};
//! use ltp::store::HeapRing;
//!
//! let group: SocketAddr = "239.1.2.3:5000".parse().unwrap();
//! let (source, host): (SocketAddr, SocketAddr) =
//!     ("10.0.0.1:4000".parse().unwrap(), "10.0.0.2:4000".parse().unwrap());
//! let content = b"to whom it may concern".repeat(10_000);
//! let mut config = SenderConfig::new(group);
//! config.length = Some(content.len() as u64);
//! config.receivers = Some(1);
//! let mut now = Instant::ZERO;
//! let mut sender = Sender::new(config, HeapRing::whole(content.clone()), [1; 32], now).unwrap();
//! let store = HeapRing::new(content.len().next_multiple_of(1 << 16));
//! let mut receiver = Receiver::new(ReceiverConfig::new(group), store, [2; 32], now);
//!
//! let mut buffer = [0; 2048];
//! while !sender.is_finished() || !receiver.is_finished() {
//!     while let Some(transmit) = sender.poll_transmit(now, &mut buffer) {
//!         let meta = match transmit.destination {
//!             Destination::Unicast(_) => Meta::unicast(source),
//!             _ => Meta::group(source),
//!         };
//!         receiver.handle_packet(now, &meta, &buffer[..transmit.len]).unwrap();
//!     }
//!     while let Some(transmit) = receiver.poll_transmit(now, &mut buffer) {
//!         // A first report without a token is dropped, and answered with one.
//!         let _ = sender.handle_packet(now, &Meta::unicast(host), &buffer[..transmit.len]);
//!     }
//!     while let Some(event) = sender.poll_event() { println!("sender: {event:?}"); }
//!     while let Some(event) = receiver.poll_event() { println!("receiver: {event:?}"); }
//!     now = [sender.poll_timeout(), receiver.poll_timeout()].into_iter().flatten().min().unwrap();
//!     sender.handle_timeout(now);
//!     receiver.handle_timeout(now);
//! }
//! assert!(receiver.is_complete());
//! assert_eq!(&receiver.store().as_bytes()[..content.len()], content);
//! ```
//!
//! # Who repairs
//!
//! | assistance | a receiver asks | who repairs, and where to |
//! | --- | --- | --- |
//! | [`Assist::Lms`] | the group, with the option; after [`ReceiverConfig::attempts_before_source`] requests in vain the source by unicast | the replier by dmcast to the turning point; the source, when no router has turned the request, to the group |
//! | [`Assist::Dyram`] | its relay; after as many requests in vain the source by unicast | the replier that the relay elects, through relays to those who lost it; the source, when nobody below has it |
//! | [`Assist::None`] | the source by unicast | the source: to that receiver alone, or to the group when two ask for the same, or when the requester has not proved its address |
//!
//! # Units and bounds
//!
//! | what | unit or bound |
//! | --- | --- |
//! | rates | bits of Ethernet frames (UDP payload + 42 bytes) a second |
//! | packets | numbered from 0 (64 bits); the wire carries the low 32 bits plus an offset, and wraps |
//! | a block | 2^10 to 2^22 bytes, 1 to 64 packets; at most 2^32 - 1 blocks |
//! | a sender | at most 9 KiB and its [`storage::SenderStorage`] |
//! | a receiver | at most 4 KiB and its [`storage::ReceiverStorage`]: 8 KiB in all for 1,000 packets |
//! | events | 32 (sender), 8 (receiver); more are counted as lost, the last word never is |
//! | requests | for data at most [`ReceiverConfig::requests_per_second`], in bursts of a twentieth of that, 32 ranges each; for digests one at a time |
//!
//! # Trust
//!
//! Anybody can send to a group. A block is delivered only if its digest is what the source
//! announced; one that is not is thrown away and asked for again, from the source. Announcements
//! can be forged too, so whatever contradicts what is known, or would end the transfer, is put to
//! the source by unicast under a random nonce, and only that answer counts. A forger who is first
//! with a block *and* a matching digest is believed until the digest of the whole tells; the
//! receiver then audits: it asks the source by unicast for the digests of all blocks, a range at a
//! time, reads each block from its store once, throws the wrong ones away and fetches them again.
//! An audit costs the source 32 bytes a block and receiver, within the rate of its answers. Not
//! covered: [`Delivery::Read`], where bytes already read cannot be taken back (the session ends
//! with [`Failure::WholeDigest`]); and a content that was here before ([`Receiver::adopt`]). One who
//! starts late gets from the source, by unicast, the chaining values to the left of its start, and
//! so computes the digest of the whole too; where the source no longer knows them, each block is
//! verified but the whole is not, and [`ReceiverEvent::Complete`] names no digest. Who completed
//! before the first contradiction was heard, and does not report to the source, is not told better
//! afterwards. Who can read the
//! source's unicast traffic can still deceive; a [`SenderConfig::key`] stops everybody without it:
//! digests are then keyed, control packets authenticated. A member of the group who knows the key
//! can still forge to the others.
//!
//! Nobody is made to flood others: a unicast answer longer than its cause goes only to an address
//! that returned a token sent to it; everything else goes to the group or, as dmcast, to a turning
//! point, within a rate and never twice within the hold-down time.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(feature = "alloc")]
extern crate alloc;

mod config;
pub mod cost;
pub mod digest;
mod error;
mod event;
mod geometry;
pub mod pacing;
pub mod rate;
mod receiver;
mod replier;
mod sender;
mod session;
mod stats;
pub mod storage;
pub mod store;
pub mod tree;
pub mod wire;

pub use config::{
    Assist, Delivery, Name, ReceiverConfig, ReceiverLimits, RepairConfig, ReplierConfig,
    SenderConfig, SenderLimits, SessionChoice, Start,
};
pub use error::{Drops, Error};
pub use event::{
    Failure, ReceiverEvent, ReceiverFailure, ReceiverInfo, ReceiverState, SenderEvent,
};
pub use geometry::Geometry;
pub use lms_proto::{LmsOption, TurningPoint};
pub use proto_core::time::{Duration, Instant};
pub use receiver::{Missing, Receiver};
pub use sender::Sender;
pub use session::{ConfigError, Destination, Meta, Path, SessionId, Transmit};
pub use stats::{ReceiverStats, SenderStats};
