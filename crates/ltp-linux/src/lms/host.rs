//! A receiver's side: it asks, and answers the requests of others.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use linux_net::packet::{Ring, RingConfig};
use linux_net::udp::{self, Batch, GroupSocket, Membership, OptionSocket};
use linux_net::{Endpoint as _, OpenError, SendError, raw};
use lms_proto::endpoint::{Answer, Config, DropReason, Endpoint, Offers, Storage};
use lms_proto::hier::{Cost, sender_version};
use lms_proto::wire::udp::Ports;
use lms_proto::{Iface, InterfaceConfig, Key, LmsOption, TurningPoint};
use ltp::cost::ReplierCost;
use ltp::{Instant, Meta, Path};

use super::choice::{Carrier, Choice};
use super::{Lms, source};
use crate::interface::Local;
use crate::version::{FirstOther, OtherVersion};
use crate::{LmsCarrier, ReceiveConfig};

/// The one interface of this endpoint; the machine only compares it.
const IFACE: Iface = Iface(1);
/// Packets that wait: requests come one at a time, floods are dropped.
const RING_FRAMES: u32 = 256;
/// Frames taken at once.
const BATCH: usize = 64;
/// Datagrams taken at once, and batches of them in a row.
const DATAGRAMS: usize = 16;
const ROUNDS: usize = 8;
/// Turning points whose carrier is remembered.
const RECENT: usize = 16;
const UDP_HEADER_LEN: usize = 8;
/// Length of the longest option, or hop-by-hop header.
const ANCILLARY_LEN: usize = 72;

/// An address family of receivers.
pub(super) trait Family: lms_proto::Family + linux_net::Family {
    /// What the machine must know of this host's interface.
    fn interface_config(local: &Local, address: Self) -> InterfaceConfig<Self>;
}

impl Family for Ipv4Addr {
    fn interface_config(local: &Local, address: Self) -> InterfaceConfig {
        let mut all = local.interface.addresses.iter();
        let own = all.find(|own| own.address == address);
        InterfaceConfig::ipv4(address, own.map_or(32, |own| own.prefix_len))
    }
}

impl Family for Ipv6Addr {
    fn interface_config(local: &Local, address: Self) -> InterfaceConfig<Self> {
        let all = &local.interface.ipv6;
        let own = all.iter().find(|own| own.address.address == address);
        let link_local = all
            .iter()
            .find(|own| own.is_usable() && own.is_link_local());
        let link_local = link_local.map_or(address, |own| own.address.address);
        InterfaceConfig::ipv6(
            address,
            own.map_or(128, |own| own.address.prefix_len),
            link_local,
        )
    }
}

/// The sockets that need CAP_NET_RAW.
struct Privileged<A: Family> {
    /// Requests to the group, IGMP or MLD queries and elections: a socket that joined one source does not receive
    /// requests.
    ring: Ring,
    requests: OptionSocket<A>,
    raw: raw::Socket<A>,
}

/// An LMS endpoint on one interface.
pub(super) struct Host<A: Family> {
    privileged: Option<Privileged<A>>,
    /// Turned requests; repairs leave here.
    datagrams: (GroupSocket, Batch),
    /// Elections, and offers, of a host without privileges.
    messages: Option<(GroupSocket, Batch)>,
    endpoint: Endpoint<'static, A>,
    group: SocketAddr,
    group_address: A,
    interface: u32,
    mtu: usize,
    udp_port: u16,
    choice: Choice,
    /// How the last requests came, by turning point: their repairs go the same way.
    recent: VecDeque<(TurningPoint, Carrier)>,
    cost: Cost,
    /// The offered cost: higher while this host loses packets itself.
    offer: Option<ReplierCost>,
    key: Option<Key<A>>,
    /// The source's port.
    source_port: u16,
    buffer: Box<[u8]>,
    other_version: FirstOther,
}

impl<A: Family> Privileged<A> {
    fn open(given: &ReceiveConfig, local: &Local, address: A) -> Result<Self, OpenError> {
        let interface = local.interface.index;
        Ok(Privileged {
            ring: Ring::open_for::<A>(&RingConfig {
                interface,
                frames: RING_FRAMES,
                max_packet_bytes: local.interface.mtu.min(9000),
                ..RingConfig::default()
            })?,
            requests: OptionSocket::open(&udp::Config {
                interface,
                ttl: given.group.ttl,
                receive_buffer_bytes: 1 << 16,
                send_buffer_bytes: 1 << 20,
                ..udp::Config::new(A::Socket::with_port(address, 0, interface))
            })?,
            raw: raw::Socket::sender()?,
        })
    }
}

/// A socket for what comes to the group of the link.
fn link_socket<A: Family>(interface: u32, port: u16) -> Result<(GroupSocket, Batch), OpenError> {
    let group: IpAddr = A::LINK_GROUP.into();
    let socket = GroupSocket::open(&udp::Config {
        interface,
        ttl: 1,
        receive_buffer_bytes: 1 << 20,
        send_buffer_bytes: 1 << 20,
        ..udp::Config::new(link_address::<A>(interface, port))
    })?;
    let membership = Membership {
        group,
        source: None,
        interface,
    };
    if let Err(error) = socket.join(&membership) {
        tracing::warn!(%error, "LMS routers on the link are not heard");
    }
    Ok((socket, Batch::new(DATAGRAMS)))
}

/// The group of the link with a port.
fn link_address<A: Family>(interface: u32, port: u16) -> SocketAddr {
    A::Socket::with_port(A::LINK_GROUP, port, interface).into()
}

impl<A: Family> Host<A> {
    /// Opens the sockets.
    pub(super) fn open(
        given: &ReceiveConfig,
        (carrier, port): (LmsCarrier, u16),
        local: &Local,
        (group, address): (A, A),
        seed: [u8; 32],
        now: Instant,
        unprivileged: &mut dyn FnMut(OpenError),
    ) -> Result<Self, OpenError> {
        let interface = local.interface.index;
        let privileged = match carrier {
            LmsCarrier::Udp => None,
            LmsCarrier::Auto => match Privileged::open(given, local, address) {
                Ok(privileged) => Some(privileged),
                Err(error @ OpenError::Privilege { .. }) => {
                    unprivileged(error);
                    None
                }
                Err(error) => return Err(error),
            },
        };
        let mut config = Config::new(IFACE, A::interface_config(local, address));
        config.repair_ttl = given.group.ttl;
        config.answer_unelected = given.replier.repair_unelected;
        config.offers = match privileged {
            Some(_) => Offers::Reports,
            None => Offers::Updates,
        };
        let messages = match privileged {
            Some(_) => None,
            None => Some(link_socket::<A>(interface, lms_proto::wire::hier::PORT)?),
        };
        let choice = match privileged {
            Some(_) => Choice::new(Carrier::Option, false),
            None => Choice::new(Carrier::Datagram, true),
        };
        let cost = if given.replier.enabled {
            Cost(given.replier.cost)
        } else {
            Cost::WITHDRAWN
        };
        Ok(Host {
            privileged,
            datagrams: link_socket::<A>(interface, port)?,
            messages,
            endpoint: Endpoint::new(config, Storage::owned(4), seed, now),
            group: given.group.address,
            group_address: group,
            interface,
            mtu: local.interface.mtu as usize,
            udp_port: port,
            choice,
            recent: VecDeque::with_capacity(RECENT),
            cost,
            offer: None,
            key: None,
            source_port: 0,
            buffer: vec![0; 1 << 16].into(),
            other_version: FirstOther::default(),
        })
    }

    fn offer_cost(&mut self, now: Instant, cost: Cost) {
        if let Some(key) = self.key
            && self.endpoint.join(now, key, cost).is_err()
        {
            tracing::warn!(
                event = "sessions_full",
                "the endpoint has no space for another session"
            );
        }
    }

    fn ports(&self) -> Ports {
        Ports {
            source: self.source_port,
            group: self.group.port(),
        }
    }

    /// A datagram of LMS-HIER from a plain socket.
    fn message(&mut self, now: Instant, source: SocketAddr, message: &[u8]) {
        let Some(router) = <A as lms_proto::Address>::from_ip(source.ip()) else {
            return;
        };
        // Counted by the machine under its reason.
        let handled = self.endpoint.handle_message(now, router, message);
        if handled == Err(DropReason::Version)
            && let Some(version) = lms_proto::wire::hier::version(message)
        {
            self.other_version
                .note(Some(other_version(router, version)));
        }
    }

    fn receive_ring(&mut self, now: Instant, take: &mut dyn FnMut(&Meta, &[u8])) {
        let Some(privileged) = &mut self.privileged else {
            return;
        };
        let mut batch = privileged.ring.batch(BATCH);
        for frame in batch.frames() {
            match request::<A>(frame.packet, self.group_address, self.group.port()) {
                Some((meta, payload)) => {
                    let elected = meta.option.is_some_and(|option| {
                        answers(&self.endpoint, &option, &mut self.recent, Carrier::Option)
                    });
                    take(&Meta { elected, ..meta }, payload);
                }
                None => {
                    let meta = lms_proto::Meta {
                        iface: IFACE,
                        link_source: None,
                    };
                    // Counted by the machine under its reason.
                    let handled = self.endpoint.handle_packet(now, &meta, frame.packet);
                    if handled == Err(DropReason::Version) {
                        let sender = sender_version::<A>(frame.packet);
                        let other = sender.map(|(router, version)| other_version(router, version));
                        self.other_version.note(other);
                    }
                }
            }
        }
    }
}

/// Whether this host answers a request as a replier; remembers how it came.
fn answers<A: Family>(
    endpoint: &Endpoint<'_, A>,
    option: &LmsOption,
    recent: &mut VecDeque<(TurningPoint, Carrier)>,
    carrier: Carrier,
) -> bool {
    let is_ours = endpoint.should_answer(option) == Answer::AsReplier;
    if let Some(at) = option.turning_point.filter(|_| is_ours) {
        recent.retain(|(known, _)| *known != at);
        recent.truncate(RECENT - 1);
        recent.push_front((at, carrier));
    }
    is_ours
}

impl<A: Family> Lms for Host<A> {
    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        let ring = self.privileged.iter().map(|open| open.ring.as_fd());
        let messages = self.messages.iter().map(|(socket, _)| socket.as_fd());
        ring.chain(messages)
            .chain([self.datagrams.0.as_fd()])
            .collect()
    }

    fn join(&mut self, now: Instant, source: SocketAddr, counters: (u64, u64)) {
        let Some(address) = <A as lms_proto::Address>::from_ip(source.ip()) else {
            return;
        };
        self.source_port = source.port();
        let key = Key::new(address, self.group_address);
        if self.key == Some(key) {
            return;
        }
        if let Some(old) = self.key.replace(key) {
            self.endpoint.leave(now, old);
        }
        let offer = ReplierCost::new(self.cost.0, now, counters);
        self.offer = self.cost.is_offer().then_some(offer);
        self.offer_cost(now, self.cost);
    }

    fn follow_loss(&mut self, now: Instant, counters: (u64, u64)) {
        if let Some(offer) = &mut self.offer
            && offer.update(now, counters)
        {
            let cost = offer.cost();
            tracing::info!(cost, "the replier cost follows this host's own loss");
            self.offer_cost(now, Cost(cost));
        }
    }

    fn follow_answers(&mut self, group: u64, source: u64) {
        if let Some(carrier) = self.choice.follow(group, source) {
            tracing::info!(
                event = "lms_carrier",
                ?carrier,
                "too few requests are answered on the way: they travel by the other carrier now"
            );
        }
    }

    fn leave(&mut self, now: Instant) {
        if let Some(key) = self.key.take() {
            self.endpoint.leave(now, key);
        }
        self.drive(now);
    }

    fn is_leaving(&self) -> bool {
        self.endpoint.session_count() > 0
    }

    fn receive(&mut self, now: Instant, take: &mut dyn FnMut(&Meta, &[u8])) {
        self.receive_ring(now, take);
        let (socket, batch) = &mut self.datagrams;
        for _ in 0..ROUNDS {
            if !socket.receive(batch).is_ok_and(|count| count > 0) {
                break;
            }
            for datagram in batch.received() {
                let request = source::request::<A>(datagram.payload, self.group);
                let Some((option, payload)) = request else {
                    continue;
                };
                let elected = answers(&self.endpoint, &option, &mut self.recent, Carrier::Datagram);
                let meta = Meta {
                    source: datagram.source,
                    path: Path::Group,
                    option: Some(option),
                    elected,
                };
                take(&meta, payload);
            }
        }
        let Some((socket, mut batch)) = self.messages.take() else {
            return;
        };
        for _ in 0..ROUNDS {
            if !socket.receive(&mut batch).is_ok_and(|count| count > 0) {
                break;
            }
            for datagram in batch.received() {
                self.message(now, datagram.source, datagram.payload);
            }
        }
        self.messages = Some((socket, batch));
    }

    fn drive(&mut self, now: Instant) {
        self.endpoint.handle_timeout(now);
        while let Some(transmit) = self.endpoint.poll_transmit(now, &mut self.buffer) {
            let packet = &self.buffer[..transmit.len];
            let sent = match (&self.privileged, &self.messages) {
                (Some(open), _) => open.raw.send(self.interface, packet),
                (None, Some((socket, _))) => {
                    let message = udp::Transmit {
                        destination: link_address::<A>(self.interface, lms_proto::wire::hier::PORT),
                        bytes: &packet[A::IP_HEADER_LEN + UDP_HEADER_LEN..],
                        segment_len: None,
                    };
                    socket.send(&message).map(drop)
                }
                (None, None) => Ok(()),
            };
            if let Err(error) = sent {
                tracing::debug!(%error, "offer not sent");
            }
        }
        while let Some(event) = self.endpoint.poll_event() {
            tracing::debug!(?event, "election");
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.endpoint.poll_timeout()
    }

    fn send_request(
        &mut self,
        option: &LmsOption,
        payload: &[u8],
        own: &GroupSocket,
    ) -> Result<(), SendError> {
        let key = key_of::<A>(option).ok_or(SendError::Malformed)?;
        if let (Carrier::Option, Some(open)) = (self.choice.carrier(), &self.privileged) {
            let mut bytes = [0; ANCILLARY_LEN];
            let written = self.endpoint.request_option(key, &mut bytes);
            let len = written.map_err(|_| SendError::Malformed)?;
            let to = A::Socket::with_port(self.group_address, self.group.port(), self.interface);
            return open.requests.send(to, &bytes[..len], payload);
        }
        let ports = self.ports();
        let written = self
            .endpoint
            .request_datagram(key, ports, payload, &mut self.buffer);
        let len = written.map_err(|_| SendError::Malformed)?;
        let datagram = udp::Transmit {
            destination: SocketAddr::new(key.source.into(), self.udp_port),
            bytes: &self.buffer[..len],
            segment_len: None,
        };
        own.send(&datagram).map(drop)
    }

    fn send_repair(&mut self, to: TurningPoint, payload: &[u8]) -> Result<(), SendError> {
        let Some(key) = self.key else { return Ok(()) };
        let ports = self.ports();
        let came = self.recent.iter().find(|(known, _)| *known == to);
        let option_fits = self.endpoint.dmcast_overhead() + payload.len() <= self.mtu;
        let carrier = match (came, to.cookie) {
            // The classic form has no cookie, which a datagram needs.
            (_, 0) => Carrier::Option,
            // Data of a sender that left too little room; a datagram takes less.
            _ if !option_fits => Carrier::Datagram,
            (Some((_, carrier)), _) => *carrier,
            (None, _) => self.choice.carrier(),
        };
        if carrier == Carrier::Option {
            let Some(open) = &self.privileged else {
                return Err(SendError::Privilege(linux_net::Capability::NetRaw));
            };
            let written = self
                .endpoint
                .dmcast(key, to, ports, payload, &mut self.buffer);
            let len = written.map_err(|_| SendError::Malformed)?;
            return open.raw.send(0, &self.buffer[..len]);
        }
        let written = self
            .endpoint
            .dmcast_datagram(key, to, ports, payload, &mut self.buffer);
        let len = written.map_err(|_| SendError::Malformed)?;
        let datagram = udp::Transmit {
            destination: SocketAddr::new(to.router, self.udp_port),
            bytes: &self.buffer[..len],
            segment_len: None,
        };
        self.datagrams.0.send(&datagram).map(drop)
    }

    fn other_version(&mut self) -> &mut FirstOther {
        &mut self.other_version
    }
}

fn key_of<A: Family>(option: &LmsOption) -> Option<Key<A>> {
    let address = <A as lms_proto::Address>::from_ip;
    Some(Key::new(address(option.source)?, address(option.group)?))
}

/// A router that speaks another version of LMS-HIER.
fn other_version<A: Family>(router: A, version: u8) -> OtherVersion {
    let own_version = lms_proto::wire::hier::VERSION;
    OtherVersion::new(router, "LMS-HIER", version, own_version)
}

/// Returns source, option and payload of a request with an option, to this group and port.
fn request<A: Family>(packet: &[u8], group: A, port: u16) -> Option<(Meta, &[u8])> {
    use smoltcp::wire::UdpPacket;
    const UDP: u8 = 17;
    let ip = A::read_ip(packet).ok()?;
    // Every fragment carries the option, and none of them the whole request.
    if ip.protocol != UDP || ip.destination != group || ip.is_fragment {
        return None;
    }
    let options = packet.get(A::IP_HEADER_LEN..ip.payload.start)?;
    if options.is_empty() {
        return None;
    }
    let datagram = packet.get(ip.payload)?;
    let udp = UdpPacket::new_checked(datagram).ok()?;
    // smoltcp takes a datagram without checksum of either version of IP; RFC 8200 §8.1 forbids it.
    if <A as lms_proto::Family>::NEEDS_UDP_CHECKSUM && udp.checksum() == 0 {
        return None;
    }
    let (source, destination): (IpAddr, IpAddr) = (ip.source.into(), ip.destination.into());
    if udp.dst_port() != port || !udp.verify_checksum(&source.into(), &destination.into()) {
        return None;
    }
    let payload = datagram.get(8..usize::from(udp.len()))?;
    let meta = Meta {
        source: SocketAddr::new(source, udp.src_port()),
        path: Path::Group,
        option: <A as lms_proto::Family>::find_option(options),
        elected: false,
    };
    Some((meta, payload))
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    const PORT: u16 = 5000;

    /// A datagram of 2 bytes without a checksum, to [`PORT`].
    fn datagram() -> Vec<u8> {
        let mut udp = vec![0x10, 0, 0, 0, 0, 10, 0, 0, 7, 7];
        udp[2..4].copy_from_slice(&PORT.to_be_bytes());
        udp
    }

    #[test]
    fn a_request_over_ipv6_needs_a_udp_checksum_and_one_over_ipv4_does_not() {
        let (source, group) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(239, 0, 0, 1));
        // A header of 24 bytes: the option is a no-operation and an end of the list.
        let mut v4 = vec![0x46, 0, 0, 34, 0, 0, 0, 0, 1, 17, 0, 0];
        v4.extend(source.octets().into_iter().chain(group.octets()));
        v4.extend([1, 0, 0, 0]);
        let sum: u32 = v4
            .chunks(2)
            .map(|w| u32::from(w[0]) << 8 | u32::from(w[1]))
            .sum();
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        v4[10..12].copy_from_slice(&sum.to_be_bytes());
        v4.extend(datagram());
        assert!(request(&v4, group, PORT).is_some());

        let source = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
        let group = Ipv6Addr::new(0xff1e, 0, 0, 0, 0, 0, 0, 1);
        let mut v6 = vec![0x60, 0, 0, 0, 0, 18, 0, 1];
        v6.extend(source.octets().into_iter().chain(group.octets()));
        // Hop-by-hop options: a PadN of 6 bytes.
        v6.extend([17, 0, 1, 4, 0, 0, 0, 0]);
        let udp_at = v6.len();
        v6.extend(datagram());
        assert!(request(&v6, group, PORT).is_none());
        let mut udp = smoltcp::wire::UdpPacket::new_unchecked(&mut v6[udp_at..]);
        udp.fill_checksum(&source.into(), &group.into());
        assert!(request(&v6, group, PORT).is_some());
        *v6.last_mut().expect("a byte") ^= 1;
        assert!(request(&v6, group, PORT).is_none());
    }
}
