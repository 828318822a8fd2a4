//! Requests and dmcasts: the option, and the packets around it (LMS §6.3).

use core::fmt;

use super::Endpoint;
use crate::wire::checksum::{Sum, pseudo_header};
use crate::wire::ipv4::PROTOCOL_UDP;
use crate::wire::option::EmitError;
use crate::wire::udp::{Header, Ports};
use crate::{Family, Form, Key, Kind, LmsOption, TurningPoint};

const UDP_HEADER_LEN: usize = 8;

/// Why a dmcast cannot be written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DmcastError {
    /// The turning point is unset, or an address is of the other family.
    TurningPoint,
    /// The buffer is shorter than the packet.
    Space,
    /// The packet would be longer than 65,535 bytes.
    TooLong,
}

impl fmt::Display for DmcastError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DmcastError::TurningPoint => {
                "the turning point is unset, or of the other address family"
            }
            DmcastError::Space => "buffer too short for the dmcast",
            DmcastError::TooLong => "the dmcast would be too long",
        })
    }
}

impl core::error::Error for DmcastError {}

impl From<EmitError> for DmcastError {
    fn from(error: EmitError) -> Self {
        match error {
            EmitError::Space => DmcastError::Space,
            EmitError::Family | EmitError::TurningPoint => DmcastError::TurningPoint,
        }
    }
}

fn option<A: Family>(kind: Kind, key: Key<A>, turning_point: Option<TurningPoint>) -> LmsOption {
    LmsOption {
        kind,
        turning_point,
        source: key.source.into(),
        group: key.group.into(),
    }
}

impl<A: Family> Endpoint<'_, A> {
    /// Writes what a request for data of `key` carries, not turned yet, to `buffer`, as `sendmsg` takes it as ancillary
    /// data: the option (`IP_RETOPTS`), or the hop-by-hop header with it (`IPV6_HOPOPTS`). Returns its length.
    ///
    /// # Errors
    /// [`EmitError::Space`] when `buffer` is shorter than that.
    pub fn request_option(&self, key: Key<A>, buffer: &mut [u8]) -> Result<usize, EmitError> {
        let option = option(Kind::Request, key, None);
        A::emit_ancillary(&option, self.config.form, buffer)
    }

    /// Writes a request for data of `key`, not turned yet, as the payload of a datagram of the UDP carrier, which goes to
    /// the carrier's port of the source. Returns its length.
    ///
    /// # Errors
    /// [`EmitError::Space`] when `buffer` is shorter than that.
    pub fn request_datagram(
        &self,
        key: Key<A>,
        ports: Ports,
        request: &[u8],
        buffer: &mut [u8],
    ) -> Result<usize, EmitError> {
        let option = option(Kind::Request, key, None);
        datagram::<A>(&option, 0, ports, request, buffer)
    }

    /// Writes a dmcast as the payload of a datagram of the UDP carrier, which goes to the carrier's port of the turning
    /// point. Returns its length.
    ///
    /// # Errors
    /// [`EmitError::Space`] when `buffer` is shorter than that, [`EmitError::TurningPoint`] and [`EmitError::Family`] when
    /// the turning point is unset or of the other family.
    pub fn dmcast_datagram(
        &self,
        key: Key<A>,
        turning_point: TurningPoint,
        ports: Ports,
        repair: &[u8],
        buffer: &mut [u8],
    ) -> Result<usize, EmitError> {
        let option = option(Kind::Dmcast, key, Some(turning_point));
        datagram::<A>(&option, self.config.repair_ttl, ports, repair, buffer)
    }

    /// Bytes that a dmcast has at most before the payload of its inner UDP datagram: 76 in IPv4, 160 in IPv6.
    pub fn dmcast_overhead(&self) -> usize {
        A::outer_len(Form::Own) + A::IP_HEADER_LEN + UDP_HEADER_LEN
    }

    /// Writes a whole dmcast: a UDP datagram from the source of `key` to its group with this
    /// payload, around it the packet to the turning point. Its option has the form of the request: without a cookie it is
    /// the classic one where the family has that. Send it raw. Returns its length.
    ///
    /// # Errors
    /// [`DmcastError::TooLong`] when the packet would be longer than 65,535 bytes,
    /// [`DmcastError::Space`] when `buffer` is shorter than the packet, and
    /// [`DmcastError::TurningPoint`] when the turning point is unset or of the other family.
    pub fn dmcast(
        &self,
        key: Key<A>,
        turning_point: TurningPoint,
        ports: Ports,
        payload: &[u8],
        buffer: &mut [u8],
    ) -> Result<usize, DmcastError> {
        let form = match turning_point.cookie {
            0 if A::HAS_CLASSIC_FORM => Form::Classic,
            _ => Form::Own,
        };
        let outer_len = A::outer_len(form);
        let len = outer_len + A::IP_HEADER_LEN + UDP_HEADER_LEN + payload.len();
        u16::try_from(len).map_err(|_| DmcastError::TooLong)?;
        let out = buffer.get_mut(..len).ok_or(DmcastError::Space)?;
        let (outer, inner) = out.split_at_mut(outer_len);
        let router = A::from_ip(turning_point.router).ok_or(DmcastError::TurningPoint)?;
        let option = option(Kind::Dmcast, key, Some(turning_point));
        let (from, hops) = (self.config.interface.address, self.config.dmcast_ttl);
        A::emit_outer(outer, inner.len(), hops, (from, router), &option, form)?;

        let (ip, udp) = inner.split_at_mut(A::IP_HEADER_LEN);
        let hops = self.config.repair_ttl;
        A::write_ip(ip, udp.len(), PROTOCOL_UDP, hops, key.source, key.group)
            .ok_or(DmcastError::TooLong)?;
        let udp_len = udp.len();
        udp[..2].copy_from_slice(&ports.source.to_be_bytes());
        udp[2..4].copy_from_slice(&ports.group.to_be_bytes());
        udp[4..6].copy_from_slice(&(udp_len as u16).to_be_bytes());
        udp[6..8].fill(0);
        udp[UDP_HEADER_LEN..].copy_from_slice(payload);
        let sum = Sum::of(udp).plus(pseudo_header(key.source, key.group, udp_len));
        udp[6..8].copy_from_slice(&sum.udp_checksum());
        Ok(len)
    }
}

fn datagram<A: Family>(
    option: &LmsOption,
    hop_limit: u8,
    ports: Ports,
    payload: &[u8],
    buffer: &mut [u8],
) -> Result<usize, EmitError> {
    let header = Header::<A>::of(option, hop_limit, ports)?;
    let len = Header::<A>::LEN + payload.len();
    let out = buffer.get_mut(..len).ok_or(EmitError::Space)?;
    header.emit(out)?;
    out[Header::<A>::LEN..].copy_from_slice(payload);
    Ok(len)
}
