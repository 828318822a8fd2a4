//! Help by LMS routers: requests with the IP option, repairs as dmcasts, and the offer to be a replier.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd};

use linux_net::packet::{Ring, RingConfig};
use linux_net::raw::Ipv4Socket;
use linux_net::udp::{self, Membership, OptionSocket};
use linux_net::{OpenError, SendError};
use lms_proto::endpoint::{Answer, Config, DropReason, Endpoint, Storage};
use lms_proto::hier::{Cost, sender_version};
use lms_proto::wire::udp::Ports;
use lms_proto::{Family as _, Iface, InterfaceConfig, Key, LmsOption, TurningPoint};
use ltp::cost::ReplierCost;
use ltp::{Instant, Meta, Path};

use crate::ReceiveConfig;
use crate::interface::Local;
use crate::version::{FirstOther, OtherVersion};

/// Where routers announce elections (docs/wire.md).
const ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 254);
/// The one interface of this endpoint; the machine only compares it.
const IFACE: Iface = Iface(1);
/// Packets that wait: requests come one at a time, floods are dropped.
const RING_FRAMES: u32 = 256;
/// Frames taken at once.
const BATCH: usize = 64;

/// An LMS endpoint on one interface.
pub(crate) struct Lms {
    /// Requests to the group, IGMP queries and elections: a socket that joined one source does not receive
    /// requests.
    ring: Ring,
    requests: OptionSocket,
    raw: Ipv4Socket,
    endpoint: Endpoint<'static>,
    group: SocketAddrV4,
    interface: u32,
    cost: Cost,
    /// The offered cost: higher while this host loses packets itself.
    offer: Option<ReplierCost>,
    key: Option<Key>,
    /// The source's port.
    source_port: u16,
    buffer: Box<[u8]>,
    /// The first router of another version.
    pub(crate) other_version: FirstOther,
}

impl Lms {
    /// Opens the sockets, for an IPv4 group from an IPv4 address. Needs CAP_NET_RAW.
    pub(crate) fn open(
        given: &ReceiveConfig,
        local: &Local,
        (group, address): (SocketAddrV4, Ipv4Addr),
        seed: [u8; 32],
        now: Instant,
    ) -> Result<Lms, OpenError> {
        let interface = local.interface.index;
        let ring = Ring::open(&RingConfig {
            interface,
            frames: RING_FRAMES,
            max_packet_bytes: local.interface.mtu.min(9000),
            ..RingConfig::default()
        })?;
        let requests = OptionSocket::open(&udp::Config {
            bind: SocketAddrV4::new(address, 0),
            interface,
            ttl: given.group.ttl,
            ..udp::Config::default()
        })?;
        let raw = Ipv4Socket::sender()?;
        // The hardware and the switches are to pass what routers announce.
        let announcements = Membership {
            group: ROUTERS,
            source: None,
            interface,
        };
        if let Err(error) = raw.join(&announcements) {
            tracing::warn!(%error, "elections are not heard");
        }
        let own = local
            .interface
            .addresses
            .iter()
            .find(|a| a.address == address);
        let prefix_len = own.map_or(32, |own| own.prefix_len);
        let config = InterfaceConfig::ipv4(address, prefix_len);
        let mut config = Config::new(IFACE, config);
        config.repair_ttl = given.group.ttl;
        config.answer_unelected = given.replier.repair_unelected;
        let cost = if given.replier.enabled {
            Cost(given.replier.cost)
        } else {
            Cost::WITHDRAWN
        };
        Ok(Lms {
            ring,
            requests,
            raw,
            endpoint: Endpoint::new(config, Storage::owned(4), seed, now),
            group,
            interface,
            cost,
            offer: None,
            key: None,
            source_port: 0,
            buffer: vec![0; 1 << 16].into(),
            other_version: FirstOther::default(),
        })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }

    /// The source is known: offers to repair its data. `counters` are the receiver's of its loss.
    pub(crate) fn join(&mut self, now: Instant, source: SocketAddr, counters: (u64, u64)) {
        let IpAddr::V4(address) = source.ip() else {
            return;
        };
        self.source_port = source.port();
        let key = Key::new(address, *self.group.ip());
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

    /// Adapts the offered cost to this host's own loss.
    pub(crate) fn follow_loss(&mut self, now: Instant, counters: (u64, u64)) {
        if let Some(offer) = &mut self.offer
            && offer.update(now, counters)
        {
            let cost = offer.cost();
            tracing::info!(cost, "the replier cost follows this host's own loss");
            self.offer_cost(now, Cost(cost));
        }
    }

    /// Withdraws the offer.
    pub(crate) fn leave(&mut self, now: Instant) {
        if let Some(key) = self.key.take() {
            self.endpoint.leave(now, key);
        }
        self.drive(now);
    }

    /// Whether withdrawals are still to be sent.
    pub(crate) fn is_leaving(&self) -> bool {
        self.endpoint.session_count() > 0
    }

    /// Takes what has arrived.
    pub(crate) fn receive(&mut self, now: Instant, take: &mut impl FnMut(&Meta, &[u8])) {
        let mut batch = self.ring.batch(BATCH);
        for frame in batch.frames() {
            match request(frame.packet, self.group) {
                Some((meta, payload)) => {
                    let answer = meta
                        .option
                        .map(|option| self.endpoint.should_answer(&option));
                    let elected = answer == Some(Answer::AsReplier);
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
                        self.other_version.note(other_version(frame.packet));
                    }
                }
            }
        }
    }

    /// Drives the machine: its timeout, its packets, its events.
    pub(crate) fn drive(&mut self, now: Instant) {
        self.endpoint.handle_timeout(now);
        while let Some(transmit) = self.endpoint.poll_transmit(now, &mut self.buffer) {
            if let Err(error) = self.raw.send(self.interface, &self.buffer[..transmit.len]) {
                tracing::debug!(%error, "report not sent");
            }
        }
        while let Some(event) = self.endpoint.poll_event() {
            tracing::debug!(?event, "election");
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.endpoint.poll_timeout()
    }

    /// Multicasts a request with its option.
    pub(crate) fn send_request(
        &mut self,
        option: &LmsOption,
        payload: &[u8],
    ) -> Result<(), SendError> {
        let mut bytes = [0; 40];
        let form = self.endpoint.config().form;
        let len = option
            .emit(form, &mut bytes)
            .map_err(|_| SendError::Malformed)?;
        self.requests.send(self.group, &bytes[..len], payload)
    }

    /// Sends a repair to the turning point, which multicasts it below one of its interfaces.
    pub(crate) fn send_repair(
        &mut self,
        to: TurningPoint,
        payload: &[u8],
    ) -> Result<(), SendError> {
        let Some(key) = self.key else { return Ok(()) };
        let ports = Ports {
            source: self.source_port,
            group: self.group.port(),
        };
        let len = self
            .endpoint
            .dmcast(key, to, ports, payload, &mut self.buffer)
            .map_err(|_| SendError::Malformed)?;
        self.raw.send(0, &self.buffer[..len])
    }
}

/// Returns the version of a message of LMS-HIER.
fn other_version(packet: &[u8]) -> Option<OtherVersion> {
    let (router, version) = sender_version::<Ipv4Addr>(packet)?;
    let own_version = lms_proto::wire::hier::VERSION;
    Some(OtherVersion::new(router, "LMS-HIER", version, own_version))
}

/// Returns source, option and payload of a request to this group and port.
fn request(packet: &[u8], group: SocketAddrV4) -> Option<(Meta, &[u8])> {
    use smoltcp::wire::{IpProtocol, Ipv4Packet, UdpPacket};
    let ip = Ipv4Packet::new_checked(packet).ok()?;
    let header_len = usize::from(ip.header_len());
    if ip.next_header() != IpProtocol::Udp || ip.dst_addr() != *group.ip() || header_len == 20 {
        return None;
    }
    // Every fragment carries the option, and none of them the whole request.
    if ip.more_frags() || ip.frag_offset() != 0 {
        return None;
    }
    let datagram = packet.get(header_len..usize::from(ip.total_len()))?;
    let udp = UdpPacket::new_checked(datagram).ok()?;
    let (source, destination) = (ip.src_addr(), ip.dst_addr());
    if udp.dst_port() != group.port() || !udp.verify_checksum(&source.into(), &destination.into()) {
        return None;
    }
    let payload = datagram.get(8..usize::from(udp.len()))?;
    let option = Ipv4Addr::find_option(packet.get(20..header_len)?);
    let source = SocketAddr::V4(SocketAddrV4::new(source, udp.src_port()));
    Some((
        Meta {
            source,
            path: Path::Group,
            option,
            elected: false,
        },
        payload,
    ))
}
