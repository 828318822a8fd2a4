//! TCP-XM: a TCP whose sender has many receivers (Jeacle, Crowcroft, Barcellos, Pettini: "Hybrid
//! Reliable Multicast with TCP-XM", CoNEXT 2005).
//!
//! An [`Endpoint`] is a whole TCP (RFC 9293): it opens and accepts connections, and it opens
//! *groups*, one stream to many receivers. Data for a group is stored once. It is sent by multicast to
//! the receivers that report multicast reception, and by unicast to the others; retransmissions are
//! unicast, but for data that several receivers of a group lack. A receiver needs only a listener; it may be any ordinary TCP.
//!
//! It is a plain state machine: no socket, clock, thread or entropy of its own.
//!
//! # How to drive it
//!
//! ```text
//! loop {
//!     while let Some(event) = endpoint.poll_event() { tell the application, which may act }
//!     while let Some(transmit) = endpoint.poll_transmit(now, &mut buffer) { send it }
//!     wait for a packet, or until endpoint.poll_timeout()
//!     on a packet:  endpoint.handle_packet(now, &meta, segment)   // Err: dropped and counted
//!     in any case:  endpoint.handle_timeout(now)
//! }
//! ```
//!
//! Where the system moves several packets per call, [`Endpoint::poll_transmit_batch`] and
//! [`Endpoint::handle_packets`] do the same for less. While more packets wait than were handled,
//! [`Endpoint::defer_acks`] spares acknowledgements.
//!
//! Packets are TCP segments with their header. [`Carrier`] says what the driver puts around them: a UDP header
//! (one socket, whose port is that of the endpoint's connections; receivers also join groups with it), or an IP
//! header with protocol 6. On [`Event::Join`] the driver joins a group, source-specific where it can, and
//! passes its packets with [`Meta::destination`] set to the group. Packets have the don't-fragment bit. When
//! the system learns that a path takes less, the driver calls [`Endpoint::set_path_mtu`]; otherwise timeouts
//! reveal it.
//!
//! ```
//! use std::net::{IpAddr, SocketAddr};
//! use tcpxm::store::SliceStore;
//! use tcpxm::{Config, Duration, Endpoint, GroupConfig, Instant, Meta, Received};
//!
//! let content = b"one stream for many receivers".repeat(10_000);
//! let now = Instant::ZERO;
//! let [a, b]: [IpAddr; 2] = ["10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()];
//! let mut sender = Endpoint::new(Config::default(), [1; 32], now);
//! let mut receiver = Endpoint::<SliceStore<Vec<u8>>>::new(Config::default(), [2; 32], now);
//! receiver.listen(now, 7000).unwrap();
//! let group = GroupConfig::new(SocketAddr::new(a, 0), vec![b], 7000);
//! let group = sender.open_group(now, &group, SliceStore::new(content.clone())).unwrap();
//! sender.shutdown(now, group).unwrap(); // nothing will follow what the store holds
//!
//! let (mut received, mut buffer, mut connection) = (Vec::new(), [0; 1500], None);
//! let mut now = now;
//! while received.len() < content.len() {
//!     while let Some(transmit) = sender.poll_transmit(now, &mut buffer) {
//!         let to = transmit.destination;
//!         let port = u16::from_be_bytes([buffer[0], buffer[1]]);
//!         let meta = Meta { source: SocketAddr::new(a, port), destination: to.ip() };
//!         // A copy to a group that the receiver has not joined yet is refused, and counted.
//!         let _ = receiver.handle_packet(now, &meta, &buffer[..transmit.len]);
//!     }
//!     connection = connection.or_else(|| receiver.accept(now, 7000));
//!     while let Some(connection) = connection {
//!         match receiver.recv(now, connection, &mut buffer).unwrap() {
//!             Received::Data(len) => received.extend_from_slice(&buffer[..len]),
//!             Received::Nothing | Received::End => break,
//!         }
//!     }
//!     while let Some(transmit) = receiver.poll_transmit(now, &mut buffer) {
//!         let meta = Meta { source: SocketAddr::new(b, 7000), destination: transmit.destination.ip() };
//!         sender.handle_packet(now, &meta, &buffer[..transmit.len]).unwrap();
//!     }
//!     now += Duration::from_millis(1);
//!     sender.handle_timeout(now);
//!     receiver.handle_timeout(now);
//! }
//! assert_eq!(received, content);
//! ```
//!
//! # Module layout
//!
//! | module | contents |
//! | --- | --- |
//! | [`wire`] | segments and options |
//! | `pcb` | the protocol control block: one connection to one peer (RFC 9293, 5961, 7323, 2018, 2883) |
//! | `recovery` | round trips and timeouts (RFC 6298), the scoreboard (RFC 6675), loss detection (RFC 8985), proportional rate reduction (RFC 9937) |
//! | `cc` | CUBIC (RFC 9438), NewReno (RFC 5681, 6582), HyStart++ (RFC 9406), BBR version 3 (draft-ietf-ccwg-bbr) |
//! | `group` | modes (Figure 1), flows of synchronised receivers, sessions; the table of transitions is [here](Mode) |
//! | `endpoint` | demultiplexing, listeners, groups, queues, timers |
//! | [`store`] | where sent data lives |
//!
//! # Units and bounds
//!
//! | what | unit or bound |
//! | --- | --- |
//! | streams | bytes from 0, in 64 bits; the wire carries 32 and wraps |
//! | rates | bits a second |
//! | windows | at most 1 GiB (RFC 7323); a receive window never shrinks |
//! | a connection | at most 4 KiB beside its buffers as the receiver of a group, without what losses need; as a receiver that listens to one 1 KiB more |
//! | a connection's buffers | [`Config::receive_buffer`], [`Config::send_buffer`]; nothing before the first byte |
//! | out-of-order data | within the receive buffer, in at most 512 ranges of 16 bytes |
//! | what is missing at a receiver | 256 ranges each that have arrived, are lost, or were sent again: 20 KiB, taken as losses need it |
//! | a group | its store, once; 4 KiB a receiver; 20 KiB for repairs that several lack |
//! | connections | [`Config::max_connections`]; half-open ones [`Config::max_half_open`], the oldest gives way |
//! | events | one of each kind and connection |
//! | work | constant or logarithmic in the number of connections and receivers for each packet; a group's close walks its receivers, and so does, with a least rate, the look for stragglers 40 times a second |
//!
//! # Trust
//!
//! Initial sequence numbers are keyed hashes (RFC 6528), ports and groups are random, and segments that are in
//! the window but not exactly right are challenged (RFC 5961), each connection at its own rate. Anyone can send
//! to a group address: there only data within the receive window and with a plausible timestamp is accepted,
//! and everything else is dropped. No acknowledgement has to match there. An attacker who can use the sender's
//! address and port, and who either receives the group or guesses a number in the window (one in 1024 for 4
//! MiB), can insert bytes into the stream; one who receives the group also knows what a reset by unicast needs.
//!
//! With [`GroupConfig::key`] and [`Endpoint::listen_keyed`] each segment of the sender except SYNs has a tag
//! ([`wire::Tag`]), by multicast and by unicast, resets too. Segments without a valid tag are dropped and
//! counted before anything else is examined. Each receiver knows the key and can forge to the others: digests
//! that the sender gives over another connection decide. Segments of receivers are not signed: an attacker who
//! only receives the group does not know their sequence numbers, and a sender with a small
//! [`Config::receive_buffer`] makes them hard to guess. The tag costs 12 bytes a segment, and hashing each byte
//! on both sides. A receiver's segments can slow its group down; [`GroupConfig::receiver_timeout`] keeps them
//! from stopping it, and [`GroupConfig::min_rate_bps`] does against a receiver that answers and keeps its
//! window closed.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod cc;
mod config;
mod endpoint;
mod error;
mod event;
mod group;
mod mintree;
mod pcb;
mod ranges;
mod reassembly;
mod recovery;
mod seq;
mod slab;
mod stats;
pub mod store;
pub mod wire;

pub use cc::CongestionControl;
pub use config::{Carrier, Config, GroupChoice, GroupConfig, GroupMode, GroupPolicy, Prefix};
pub use endpoint::{Endpoint, Received};
pub use error::{CommandError, Drops, Error, Failure};
pub use event::{ConnId, Event, GroupId, Meta, SegmentBatch, Target, Transmit};
pub use group::{FALL_BACK_LOSSES, FALL_FORWARD_PERCENT, FALL_FORWARD_SEGMENTS, Mode};
pub use pcb::State;
pub use proto_core::time::{Duration, Instant};
pub use seq::{Seq, SynNumber};
pub use stats::{ConnStats, Stats};
