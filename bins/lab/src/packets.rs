//! Builds whole IPv4 packets for probes, and parses captured ones.

use crate::prelude::*;
use lms_proto::wire::encap::{DmcastRepr, Placement};
use lms_proto::wire::ipv4;
use lms_proto::{Form, Iface, Kind, LmsOption, TurningPoint};
use netlab::Capture;

/// IP protocols.
const UDP: u8 = 17;
pub(crate) const IPIP: u8 = 4;
const TTL: u8 = 16;

/// A UDP packet with these IP options and this payload.
fn udp(from: SocketAddrV4, to: SocketAddrV4, options: &[u8], payload: &[u8]) -> Result<Vec<u8>> {
    let header = 20 + options.len();
    let total = u16::try_from(header + 8 + payload.len()).context("packet too long")?;
    let mut packet = vec![0; header];
    packet[0] = 0x40 | u8::try_from(header / 4).context("options too long")?;
    packet[2..4].copy_from_slice(&total.to_be_bytes());
    packet[8] = TTL;
    packet[9] = UDP;
    packet[12..16].copy_from_slice(&from.ip().octets());
    packet[16..20].copy_from_slice(&to.ip().octets());
    packet[20..].copy_from_slice(options);
    ipv4::fill_checksum(&mut packet);
    // Checksum 0: not computed, which UDP over IPv4 allows.
    let length = total - header as u16;
    for field in [from.port(), to.port(), length, 0] {
        packet.extend_from_slice(&field.to_be_bytes());
    }
    packet.extend_from_slice(payload);
    Ok(packet)
}

/// A packet of data from the source to the group.
pub(crate) fn data(source: SocketAddrV4, group: SocketAddrV4, payload: &[u8]) -> Result<Vec<u8>> {
    udp(source, group, &[], payload)
}

/// A request of `host` for data of `source` to the group.
pub(crate) fn request(
    host: SocketAddrV4,
    source: Ipv4Addr,
    group: SocketAddrV4,
    payload: &[u8],
) -> Result<Vec<u8>> {
    let option = LmsOption {
        kind: Kind::Request,
        turning_point: None,
        source: source.into(),
        group: (*group.ip()).into(),
    };
    let mut bytes = vec![0; option.buffer_len(Form::Classic)];
    option.emit(Form::Classic, &mut bytes)?;
    udp(host, group, &bytes, payload)
}

/// A dmcast of `replier` around a packet of data, to be multicast by `router` on `iface`.
pub(crate) fn dmcast(
    replier: Ipv4Addr,
    router: Ipv4Addr,
    iface: Iface,
    inner: &[u8],
) -> Result<Vec<u8>> {
    let dmcast = DmcastRepr {
        replier,
        router,
        iface,
        cookie: 0,
        form: Form::Classic,
        placement: Placement::Outer,
        ttl: TTL,
        identification: 0,
    };
    let mut packet = vec![0; dmcast.buffer_len(inner.len())];
    dmcast.emit(inner, &mut packet)?;
    Ok(packet)
}

/// The fields of a captured IPv4 packet that LMS needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) source: Ipv4Addr,
    pub(crate) destination: Ipv4Addr,
    pub(crate) ttl: u8,
    pub(crate) protocol: u8,
    /// The whole packet's length.
    pub(crate) total_bytes: usize,
    /// The header's length, options included.
    pub(crate) header_bytes: usize,
    /// The LMS option and its length, if there is one.
    pub(crate) option: Option<(LmsOption, usize)>,
    /// What the IP header carries.
    pub(crate) payload: Vec<u8>,
}

impl Seen {
    /// Reads one IPv4 packet; `None` when it is none.
    pub(crate) fn read(packet: &[u8]) -> Option<Seen> {
        let layout = ipv4::Layout::check(packet).ok()?;
        let header = packet.get(..layout.header_len)?;
        let option = ipv4::find_lms(header).ok()?.and_then(|found| {
            let bytes = header.get(found.option.at..)?;
            let (_, option) = LmsOption::parse::<Ipv4Addr>(bytes).ok()?;
            Some((option, found.option.len))
        });
        Some(Seen {
            source: ipv4::source(packet),
            destination: ipv4::destination(packet),
            ttl: ipv4::ttl(packet),
            protocol: ipv4::protocol(packet),
            total_bytes: layout.total_len,
            header_bytes: layout.header_len,
            option,
            payload: packet.get(layout.header_len..layout.total_len)?.to_vec(),
        })
    }

    /// As [`Seen::read`], for packets that are wanted.
    pub(crate) fn of(wanted: impl Fn(&Seen) -> bool) -> impl Fn(&[u8]) -> Option<Seen> {
        move |packet| Seen::read(packet).filter(|seen| wanted(seen))
    }

    /// Returns the IPv4 packets since the last call.
    pub(crate) fn drain(capture: &Capture) -> Result<Vec<Seen>> {
        let packets = capture.drain()?;
        Ok(packets
            .iter()
            .filter_map(|packet| Seen::read(packet))
            .collect())
    }

    /// Whether it is a request.
    pub(crate) fn is_request(&self) -> bool {
        let kind = self.option.map(|(option, _)| option.kind);
        self.protocol == UDP && kind == Some(Kind::Request)
    }

    /// Whether it is data to this group, or a repair as receivers see it.
    pub(crate) fn is_data(&self, group: Ipv4Addr) -> bool {
        self.protocol == UDP && self.destination == group && self.option.is_none()
    }

    /// Whether it is a dmcast.
    pub(crate) fn is_dmcast(&self) -> bool {
        self.protocol == IPIP
    }

    /// The turning point, if the option carries one.
    pub(crate) fn turning_point(&self) -> Option<TurningPoint> {
        self.option.and_then(|(option, _)| option.turning_point)
    }
}
