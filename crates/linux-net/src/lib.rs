//! The interface between polycast and the Linux kernel: sockets, raw packets, netlink.
//!
//! Protocols live in crates without I/O; programs drive them and use these sockets. Every socket is
//! non-blocking (use [`poll::wait`] on it), allocates nothing on the path of a packet, and returns
//! errors that say what to do.
//!
//! # Choosing a socket
//!
//! | to ... | use | to open it takes | and later |
//! | --- | --- | --- | --- |
//! | send and receive the data of groups in bulk | [`udp::GroupSocket`] | nothing | nothing |
//! | send and receive LMS requests (options of IP on UDP: in the IPv4 header, or a hop-by-hop header of IPv6) | [`udp::OptionSocket`] | nothing | CAP_NET_RAW to send |
//! | receive other receivers' requests to a source-specific group | [`packet::RequestTap`] | CAP_NET_RAW | nothing |
//! | send dmcasts and IGMP reports, receive IGMP queries | [`raw::Ipv4Socket`] | CAP_NET_RAW | nothing |
//! | send dmcasts and MLD reports, with any extension headers | [`raw::Ipv6Socket`] | CAP_NET_RAW | nothing |
//! | carry TCP-XM over UDP, IPv4 and IPv6 | [`inet::UdpSocket`] | nothing | nothing |
//! | carry TCP-XM as IP protocol 6, beside the kernel's TCP | [`inet::SegmentSocket`] | CAP_NET_RAW | nothing |
//! | capture LMS packets before the kernel sees them | [`packet::Ring`] | CAP_NET_RAW | nothing |
//! | send a packet on a link, to a given neighbour | [`packet::Sender`] | CAP_NET_RAW | nothing |
//! | keep LMS messages from the kernel and its routing daemon | [`nft::Guard`] | CAP_NET_ADMIN | CAP_NET_ADMIN to read counters |
//! | follow the kernel's multicast routes | [`mroute::Watcher`] | nothing | nothing |
//! | own the kernel's multicast routes | [`mroute::Table`] | CAP_NET_RAW, CAP_NET_ADMIN | nothing |
//! | list and follow interfaces and addresses | [`link::list`], [`link::Watcher`] | nothing | nothing |
//! | change interfaces, look a neighbour up | [`link::Editor`] | nothing | CAP_NET_ADMIN |
//! | detect paths that drop segmentation batches | [`batching::Fallback`] | | |
//! | forward a stream to another without copies | [`pipe::Pipe`] | nothing | nothing |
//! | switch offloads | [`ethtool`] | | CAP_NET_ADMIN |
//! | build a network inside one machine | [`netns::Namespace`] | CAP_SYS_ADMIN, or [`netns::become_root`] | |
//! | wait for several descriptors, or for thousands; wake a waiting thread | [`poll::wait`], [`poll::Set`], [`wake::Waker`] | nothing | nothing |
//! | drop privileges | [`privileges::drop_to`] | | |
//!
//! Everything works as root, and as an ordinary user inside `unshare -Urn`.
//!
//! # Two versions of IP
//!
//! Group data, memberships and TCP-XM take addresses of either version: [`std::net::SocketAddr`], [`std::net::IpAddr`].
//! What the kernel has once for each version takes the version as a type parameter, a [`Family`], which is IPv4 where
//! none is given: [`udp::OptionSocket`], [`packet::RequestTap`], [`raw::Socket`], [`mroute::Table`],
//! [`mroute::Watcher`], and [`packet::Ring::open_for`]. Link-local IPv6 addresses take the interface of the socket as
//! their zone unless they have one.
//!
//! # Combining sockets
//!
//! A **receiver** binds two sockets to one port: a [`udp::GroupSocket`] that refuses datagrams
//! with IP options takes data in bulk, a [`udp::OptionSocket`] takes requests. In a
//! source-specific group the requests come from a [`packet::RequestTap`] instead.
//! `examples/listen.rs` is such a receiver, to copy.
//!
//! A **router** opens a [`packet::Ring`], a [`packet::Sender`] and an [`nft::Guard`], follows
//! [`mroute::Watcher`] and [`link::Watcher`], drops its privileges, and then for each batch of the
//! ring edits packets where they lie, queues them in a [`packet::SendBatch`], flushes it and
//! drops the batch.
//!
//! # Kernel facts this relies on
//!
//! Each is checked by a test in `tests/`.
//!
//! - Hop-by-hop headers are sent as they are, by processes with CAP_NET_RAW only; to receive them takes nothing. A raw
//!   socket needs the capability to open, and its packets may then have any extension headers.
//! - A packet socket for IPv4 or IPv6 sees packets before the `prerouting` hook: what the guard drops, the
//!   ring still shows.
//! - A host delivers a packet to a group it joined also when the frame bears its own address.
//! - On virtual links a packet may arrive with its UDP checksum left to hardware that does not
//!   exist; the ring completes it, the tap does not require it.
//! - A filter on a UDP socket reads the IP header, so two sockets share a port by whether there are
//!   options, or a hop-by-hop header.
//! - Notifications are lost when a netlink socket overflows; the watchers read the tables again.
//! - An interface that reports a carrier may drop its first packets: its queue is attached a moment
//!   later.
//!
//! # Dependencies
//!
//! UDP sockets come from `socket2`, namespaces, users and eventfds from `nix`, bulk UDP with GSO and GRO
//! from `quinn-udp`. The packet ring, netlink and the packet filter are our own on `libc`: `pnet`
//! opens packet sockets with neither a ring nor a kernel filter, takes and sends one frame a call,
//! and lists interfaces without notifications; its packet types would duplicate
//! `smoltcp::wire`, which the protocols use.
//!
//! # Bounds
//!
//! | what | bound |
//! | --- | --- |
//! | [`udp::Batch`] | 64 KiB a buffer, 32 buffers |
//! | [`packet::Ring`] | [`packet::RingConfig::frames`] times the frame size (2 KiB at an MTU of 1,500) |
//! | [`packet::SendBatch`] | 64 packets, on the stack |
//! | [`mroute::Watcher`] | [`mroute::WatcherConfig::max_routes`], about 150 bytes each |
//! | [`link::Watcher`] | one entry an interface |
//! | netlink sockets | 64 KiB of buffer each |

pub mod batching;
mod error;
#[allow(unsafe_code, reason = "an ioctl")]
pub mod ethtool;
mod family;
mod filter;
mod follow;
pub mod inet;
pub mod link;
#[allow(unsafe_code, reason = "structures and an ioctl of multicast routing")]
pub mod mroute;
mod netlink;
pub mod netns;
pub mod nft;
pub mod packet;
pub mod pipe;
#[allow(unsafe_code, reason = "the pollfd array of ppoll")]
pub mod poll;
pub mod privileges;
pub mod process;
pub mod raw;
#[allow(unsafe_code, reason = "system calls")]
mod sys;
pub mod tcp;
pub mod udp;
pub mod wake;
pub mod xdp;

pub use error::{Capability, JoinError, OpenError, ReceiveError, SendError};
pub use family::{Endpoint, Family};
pub use follow::Event;
