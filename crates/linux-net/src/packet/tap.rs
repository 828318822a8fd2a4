use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::checksum::{header_holds, udp_holds, well_formed};
use crate::error::{Capability, OpenError, ReceiveError};
use crate::sys::message::{from_bytes, receive};
use crate::udp::{OptionBuffer, OptionDatagram};
use crate::{filter, sys};

/// Hears the LMS requests to one group and port on one interface, whoever sends them: what a
/// socket that joined (S, G) never hears, since requests come from other receivers.
///
/// The membership itself must be held by a socket (so that the hardware and the routers pass
/// the group). Requests from this host itself are not heard.
#[derive(Debug)]
pub struct RequestTap {
    socket: OwnedFd,
    buffer: Vec<u8>,
}

const TP_STATUS_CSUM_NOT_READY: u32 = 8;

impl RequestTap {
    /// Opens a tap. Needs CAP_NET_RAW. `interface` by index; 0 for all.
    pub fn open(interface: u32, group: Ipv4Addr, port: u16) -> Result<Self, OpenError> {
        let error = OpenError::from("packet socket for LMS requests", Capability::NetRaw);
        // Protocol 0: nothing arrives before the filter is in place.
        let socket = sys::socket(libc::AF_PACKET, libc::SOCK_DGRAM, 0).map_err(error)?;
        sys::attach_filter(&socket, &filter::tap(u32::from(group), port)).map_err(error)?;
        sys::set_int(&socket, libc::SOL_PACKET, libc::PACKET_AUXDATA, 1).map_err(error)?;
        let _ = sys::set_int(&socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1);
        sys::bind_packet(&socket, libc::ETH_P_IP as u16, interface).map_err(error)?;
        Ok(Self {
            socket,
            buffer: vec![0; 1 << 16],
        })
    }

    /// Takes the next request; `None` when nothing is there. Packets with wrong lengths or
    /// checksums are passed over.
    pub fn receive<'b>(
        &mut self,
        buffer: &'b mut OptionBuffer,
    ) -> Result<Option<OptionDatagram<'b>>, ReceiveError> {
        loop {
            let incoming = match receive::<64>(&self.socket, &mut self.buffer) {
                Ok(incoming) => incoming,
                Err(error) => return ReceiveError::sort(error).map_or(Ok(None), Err),
            };
            let Some(link) = incoming.link.filter(|_| !incoming.truncated) else {
                continue;
            };
            let status = incoming
                .control()
                .find(|(level, kind, _)| {
                    (*level, *kind) == (libc::SOL_PACKET, libc::PACKET_AUXDATA)
                })
                .and_then(|(_, _, data)| from_bytes::<libc::tpacket_auxdata>(data))
                .map_or(0, |auxdata| auxdata.tp_status);
            let complete = status & TP_STATUS_CSUM_NOT_READY == 0;
            let Some(parsed) = parse(&mut self.buffer[..incoming.len], complete) else {
                continue;
            };
            let Some(room) = buffer.payload.get_mut(..parsed.payload.len()) else {
                continue;
            };
            room.copy_from_slice(parsed.payload);
            buffer.options[..parsed.options.len()].copy_from_slice(parsed.options);
            return Ok(Some(OptionDatagram {
                source: parsed.source,
                destination: parsed.destination,
                interface: link.sll_ifindex.unsigned_abs(),
                options: &buffer.options[..parsed.options.len()],
                payload: &buffer.payload[..parsed.payload.len()],
            }));
        }
    }
}

struct Parsed<'a> {
    source: SocketAddrV4,
    destination: Ipv4Addr,
    options: &'a [u8],
    payload: &'a [u8],
}

/// Takes an IPv4 and UDP packet apart. `complete`: the sender computed the UDP checksum.
fn parse(packet: &mut [u8], complete: bool) -> Option<Parsed<'_>> {
    let (header, packet) = well_formed(packet)?;
    let packet = &*packet;
    if !header_holds(packet, header) || (complete && !udp_holds(packet, header)) {
        return None;
    }
    let udp = packet.get(header..)?;
    let (udp_header, _) = udp.split_first_chunk::<8>()?;
    let len = usize::from(u16::from_be_bytes([udp_header[4], udp_header[5]]));
    let address = |at: usize| Some(Ipv4Addr::from(*packet.get(at..)?.first_chunk::<4>()?));
    Some(Parsed {
        source: SocketAddrV4::new(
            address(12)?,
            u16::from_be_bytes([udp_header[0], udp_header[1]]),
        ),
        destination: address(16)?,
        options: packet.get(20..header)?,
        payload: udp.get(8..len)?,
    })
}

impl AsFd for RequestTap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
