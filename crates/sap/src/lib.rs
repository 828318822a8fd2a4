//! Announcements of multicast sessions: the Session Announcement Protocol (RFC 2974) with descriptions in SDP (RFC 8866), as a
//! machine without I/O.
//!
//! ```
//! use proto_core::time::Instant;
//! use sap::{Announcer, Config, Description, Media};
//!
//! let now = Instant::from_secs(1);
//! let own = "10.0.0.1:40000".parse().unwrap();
//! let mut sap = Announcer::new(Config::new(own), [1; 32], now);
//! let media = Media::new("video", "239.255.0.1:5004".parse().unwrap(), "udp", "mpeg");
//! sap.announce(now, 7, &Description::new("News", vec![media])).unwrap();
//!
//! let mut packet = [0; sap::MAX_PACKET_LEN];
//! let len = sap.poll_transmit(now, &mut packet).unwrap(); // to sap::group_of(...)
//! let text = String::from_utf8_lossy(&packet[..len]);
//! assert!(text.contains("s=News\r\n") && text.contains("m=video 5004 udp mpeg\r\n"));
//! assert!(sap.poll_timeout() > Some(now), "it is repeated");
//! ```
//!
//! # Driving the machine
//!
//! [`Announcer`] keeps the contract of [`proto_core::Machine`]: it has no events. Its commands are
//! [`announce`](Announcer::announce) and [`withdraw`](Announcer::withdraw); [`learned`](Announcer::learned) lists what others
//! announce. Packets leave from the driver's own socket to the group of [`group_of`], and those that this group brings
//! go to `handle_packet`, if the driver wants to learn.
//!
//! # Units and limits
//!
//! | quantity | bound | at the bound |
//! | --- | --- | --- |
//! | packets that are sent | [`Config::limit_bps`], 4000 bit/s (RFC 2974 §3.1), and a burst of [`BURST`] | they wait |
//! | time between repetitions | at least 300 s, longer with more announcements, in random order within two thirds (§3.1) | |
//! | own announcements | [`Config::max_announced`] | [`Full`] |
//! | withdrawals that wait | [`Config::max_announced`] | the oldest is not sent; listeners forget the session in an hour |
//! | learned announcements | [`Config::max_learned`] in all, [`Config::max_per_host`] of one host | counted and refused |
//! | lifetime of a learned announcement | an hour, or ten times its period (§4.1) | forgotten |
//! | description | [`MAX_SDP_LEN`] bytes, [`MAX_MEDIA`] media, texts of [`MAX_TEXT_LEN`] bytes | refused |
//!
//! # Security model
//!
//! SAP has no security here: authentication headers are skipped (§8 defines them, few programs send them), encrypted and
//! compressed packets are refused. Every host of the scope can announce anything in any name, and delete by forging
//! an address. A driver should learn only from hosts that it has reason to believe, and show what it learned as claims.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod announcer;
mod sdp;
mod stats;
mod wire;

pub use announcer::{Announcer, BURST, Config, Full, Learned};
pub use sdp::{Description, MAX_MEDIA, MAX_SDP_LEN, MAX_TEXT_LEN, Media, Origin, SdpError};
pub use stats::{Refused, Stats};
pub use wire::{MAX_PACKET_LEN, PORT, Packet, WireError, group_of};
