//! Where a sender hears requests that LMS routers forward to it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use linux_net::udp::{self, Batch, GroupSocket, Membership, OptionBuffer, OptionSocket};
use lms_proto::wire::udp::Header;
use ltp::{Meta, Path};

use super::host::Family;
use crate::interface::Local;
use crate::{Error, SendConfig};

/// Requests taken in a row.
const MAX_REQUESTS: usize = 64;
const BUFFER_BYTES: usize = 2048;

/// The sockets that hear requests: those with the option, and datagrams.
pub(crate) struct Requests {
    options: Options,
    /// `None` where another sender on this host has the port.
    datagrams: Option<(GroupSocket, Batch)>,
    group: SocketAddr,
}

/// The socket that hears requests with the option.
enum Options {
    Ipv4(OptionSocket<Ipv4Addr>, OptionBuffer),
    Ipv6(OptionSocket<Ipv6Addr>, OptionBuffer),
}

impl Requests {
    /// Opens the sockets of the sender to a group.
    pub(crate) fn open(given: &SendConfig, local: &Local, udp_port: u16) -> Result<Self, Error> {
        let group = given.group.address;
        let options = match group {
            SocketAddr::V4(to) => {
                let (socket, buffer) = options::<Ipv4Addr>(given, local, to, *to.ip())?;
                Options::Ipv4(socket, buffer)
            }
            SocketAddr::V6(to) => {
                let (socket, buffer) = options::<Ipv6Addr>(given, local, to, *to.ip())?;
                Options::Ipv6(socket, buffer)
            }
        };
        let config = udp::Config {
            interface: local.interface.index,
            receive_buffer_bytes: 1 << 20,
            send_buffer_bytes: 1 << 16,
            ..udp::Config::new(SocketAddr::new(local.address, udp_port))
        };
        let datagrams = match GroupSocket::open(&config) {
            Ok(socket) => Some((socket, Batch::new(4))),
            Err(error) => {
                tracing::warn!(
                    event = "lms_port_taken", port = udp_port, %error,
                    "requests by datagram are not heard: another sender on this host hears them; receivers ask this one directly"
                );
                None
            }
        };
        Ok(Requests {
            options,
            datagrams,
            group,
        })
    }

    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let options = match &self.options {
            Options::Ipv4(socket, _) => socket.as_fd(),
            Options::Ipv6(socket, _) => socket.as_fd(),
        };
        let datagrams = self.datagrams.iter().map(|(socket, _)| socket.as_fd());
        std::iter::once(options).chain(datagrams)
    }

    /// Takes what has arrived, a bounded number.
    pub(crate) fn receive(&mut self, take: &mut dyn FnMut(&Meta, &[u8])) -> Result<(), Error> {
        match &mut self.options {
            Options::Ipv4(socket, buffer) => receive(socket, buffer, take)?,
            Options::Ipv6(socket, buffer) => receive(socket, buffer, take)?,
        }
        let group = self.group;
        let Some((socket, batch)) = &mut self.datagrams else {
            return Ok(());
        };
        for _ in 0..MAX_REQUESTS / 4 {
            if socket.receive(batch)? == 0 {
                break;
            }
            for datagram in batch.received() {
                let request = match group.ip() {
                    IpAddr::V4(_) => request::<Ipv4Addr>(datagram.payload, group),
                    IpAddr::V6(_) => request::<Ipv6Addr>(datagram.payload, group),
                };
                if let Some((option, payload)) = request {
                    take(&meta(datagram.source, Some(option)), payload);
                }
            }
        }
        Ok(())
    }
}

fn meta(source: SocketAddr, option: Option<lms_proto::LmsOption>) -> Meta {
    Meta {
        source,
        path: Path::Group,
        option,
        elected: true,
    }
}

fn options<A: Family>(
    given: &SendConfig,
    local: &Local,
    group: A::Socket,
    address: A,
) -> Result<(OptionSocket<A>, OptionBuffer), Error> {
    let interface = local.interface.index;
    let socket = OptionSocket::<A>::open(&udp::Config {
        interface,
        ttl: given.group.ttl,
        // Receivers on this host ask too.
        loopback: true,
        receive_buffer_bytes: 4 << 20,
        send_buffer_bytes: 2 << 20,
        ..udp::Config::new(group)
    })?;
    let membership = Membership {
        group: address,
        source: None,
        interface,
    };
    let joined = socket.join(&membership);
    joined.map_err(Error::join("joining the group to receive requests"))?;
    Ok((socket, OptionBuffer::new(BUFFER_BYTES)))
}

fn receive<A: Family>(
    socket: &OptionSocket<A>,
    buffer: &mut OptionBuffer,
    take: &mut dyn FnMut(&Meta, &[u8]),
) -> Result<(), Error> {
    for _ in 0..MAX_REQUESTS {
        let Some(datagram) = socket.receive(buffer)? else {
            break;
        };
        let option = <A as lms_proto::Family>::find_option(datagram.options);
        let source: SocketAddr = datagram.source.into();
        take(&meta(source, option), datagram.payload);
    }
    Ok(())
}

/// Option and payload of a request datagram for this group and port.
pub(super) fn request<A: Family>(
    payload: &[u8],
    group: SocketAddr,
) -> Option<(lms_proto::LmsOption, &[u8])> {
    let header = Header::<A>::parse(payload).ok()?;
    let option = header.option();
    let is_ours = option.kind == lms_proto::Kind::Request
        && option.group == group.ip()
        && header.ports.group == group.port();
    is_ours.then(|| (option, payload.get(Header::<A>::LEN..).unwrap_or_default()))
}
