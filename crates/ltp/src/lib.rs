//! LTP: a reliable multicast transport that uses LMS routers or DyRAM relays where they exist, and works
//! without them (LMS chapter 6, "LTP"; `docs/wire.md` draws its packets).
//!
//! A [`Sender`] multicasts numbered packets and heartbeats. A [`Receiver`] requests missing packets,
//! verifies blocks against digests from the source, and repairs losses of other receivers as replier.
//! Both are plain state machines without socket, clock, thread or entropy.
//!
//! # How to drive a machine
//!
//! ```text
//! while !machine.is_finished() {
//!     while let Some(transmit) = machine.poll_transmit(now, &mut buffer) { send it }
//!     while let Some(event) = machine.poll_event() { notify the application }
//!     wait for a packet, or until machine.poll_timeout()
//!     on a packet:  machine.handle_packet(now, &meta, bytes)   // Err: dropped and counted
//!     in any case:  machine.handle_timeout(now)
//! }
//! ```
//!
//! The driver sends each packet to its [`Destination`]: a plain multicast, a multicast with the LMS
//! option, a unicast, or a dmcast (IPIP to the turning point, inner UDP packet from the source's
//! address and port to the group). A receiver sends and receives unicast from one socket; the
//! source answers to that address.
//!
//! # When a driver may stop
//!
//! | state | of a [`Sender`] | of a [`Receiver`] |
//! | --- | --- | --- |
//! | `is_complete` | | everything arrived and verified; the source may not know it, so the driver continues |
//! | `is_finished` | every receiver has confirmed, or the sender has ended: the driver may stop | everything arrived, verified and was confirmed, or the receiver gave up and has reported that: the driver may stop |
//! | `is_ended` | nothing more is sent: after [`SenderConfig::linger`] or [`Sender::close`] | [`Receiver::close`] was called |
//!
//! A machine that is finished may be driven further: a sender serves late receivers, a receiver repairs losses
//! of other receivers. The last event is the result: [`SenderEvent::Complete`] or
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
//! let content = b"0123456789abcdef".repeat(10_000);
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
//! # Recovery
//!
//! | help | a receiver sends requests to | repairs come from |
//! | --- | --- | --- |
//! | [`Assist::Lms`] | the group, with the option; after [`ReceiverConfig::attempts_before_source`] unanswered requests the source by unicast | the replier by dmcast to the turning point; the source, when no router has turned the request, to the group |
//! | [`Assist::Dyram`] | its relay; after as many unanswered requests the source by unicast | the replier that the relay elects, through relays to the receivers that lost it; the source, when no receiver below has it |
//! | [`Assist::None`] | the source by unicast | the source: to that receiver alone, or to the group when two request the same, or when the receiver has not returned a token |
//!
//! # Units and bounds
//!
//! | what | unit or bound |
//! | --- | --- |
//! | rates | bits of Ethernet frames (UDP payload + 42 bytes) a second |
//! | packets | numbered from 0 (64 bits); the wire carries the low 32 bits plus an offset, and wraps |
//! | a block | 2^10 to 2^22 bytes, 1 to 64 packets; at most 2^32 - 1 blocks |
//! | a sender | at most 10 KiB and its [`storage::SenderStorage`]; with [`SenderConfig::parity`] also 1 MiB and two blocks |
//! | a receiver | at most 4.5 KiB and its [`storage::ReceiverStorage`]: 8 KiB in all for 1,000 packets; with parity also the packets of [`ReceiverLimits::parity`] and four blocks, and as replier 1 MiB and two blocks |
//! | parity | 8.5 MiB of tables in each process, once for all machines |
//! | events | 32 (sender), 8 (receiver); more are counted as lost, the last one never is |
//! | requests | for data at most [`ReceiverConfig::requests_per_second`], in bursts of a twentieth of that, 32 ranges each; for digests one at a time |
//!
//! # Trust
//!
//! Any host can send to a group. A block is delivered only if its digest is the one that the source
//! announced; otherwise it is discarded and requested again, from the source. Announcements can be
//! forged too. A heartbeat that contradicts an earlier one, or would end the transfer, is therefore
//! confirmed by the source, by unicast under a random nonce. A forged block that comes first *and*
//! with a matching digest is believed until the digest of the whole differs. The receiver then audits:
//! it requests the digests of all blocks from the source by unicast, a range at a time, reads each
//! block from its store once, and discards and requests the wrong ones. An audit costs the source 32
//! bytes for each block and receiver, within the rate of its answers.
//!
//! An audit is not possible with [`Delivery::Read`], where bytes already read cannot be taken back (the
//! session ends with [`Failure::WholeDigest`]), nor with a content that was stored before the session
//! ([`Receiver::adopt`]). A receiver that starts late gets the chaining values before its start from the
//! source, by unicast, and so computes the digest of the whole too. Where the source no longer knows
//! them, each block is verified but the whole is not, and [`ReceiverEvent::Complete`] names no digest. A
//! receiver that completed before the first contradiction, and does not report to the source, does not
//! learn of it. An attacker who can read the source's unicast packets can still deceive. A
//! [`SenderConfig::key`] keeps out every host without it: digests are then keyed and control packets
//! authenticated. A member of the group can still forge to the others.
//!
//! Parity is not signed, as data is not. A block that was restored from parity and does not match its digest is fetched
//! from the source, packet by packet; after eight of them a receiver takes no more parity in that session.
//!
//! No peer can be made to flood another one: a unicast answer longer than its cause goes only to an
//! address that returned a token; all other packets go to the group or, as dmcast, to a turning point,
//! within a rate and never twice within the hold-down time.
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
#[cfg_attr(
    not(feature = "alloc"),
    allow(dead_code, reason = "without a heap no block is restored")
)]
mod parity;
pub mod rate;
mod receiver;
pub mod relayed;
mod replier;
mod sender;
mod session;
mod stats;
pub mod storage;
pub mod store;
pub mod tfmcc;
pub mod wire;

pub use config::{
    Assist, Delivery, Name, Parity, ReceiverConfig, ReceiverLimits, RepairConfig, ReplierConfig,
    SenderConfig, SenderLimits, SessionChoice, Start,
};
pub use error::{Drops, Error};
pub use event::{
    Failure, ReceiverEvent, ReceiverFailure, ReceiverInfo, ReceiverState, SenderEvent,
};
pub use geometry::Geometry;
pub use lms_proto::{LmsOption, TurningPoint};
pub use proto_core::Machine;
pub use proto_core::time::{Duration, Instant};
pub use receiver::{Missing, Receiver};
pub use sender::Sender;
pub use session::{ConfigError, Destination, Meta, Path, SessionId, Transmit};
pub use stats::{ReceiverStats, SenderStats};
