//! Help by LMS routers: requests and repairs by the option of IP headers or by datagrams, and the offer to be a replier.
//!
//! | | with CAP_NET_RAW | without |
//! | --- | --- | --- |
//! | requests leave | by option or datagram, whichever is answered | by datagram |
//! | requests are heard | by packet ring and by datagram | by datagram |
//! | repairs leave | as the request came | by datagram |
//! | offers leave | in reports of IGMP or MLD | as messages of LMS-HIER |

mod choice;
mod host;
mod source;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::BorrowedFd;

use linux_net::udp::GroupSocket;
use linux_net::{OpenError, SendError};
use lms_proto::{LmsOption, TurningPoint};
use ltp::{Instant, Meta};

use self::host::Host;
pub(crate) use self::source::Requests;
use crate::interface::Local;
use crate::version::FirstOther;
use crate::{LmsCarrier, ReceiveConfig};

/// The LMS side of a receiver, whatever its address family.
pub(crate) trait Lms: Send {
    /// The descriptors to wait for.
    fn fds(&self) -> Vec<BorrowedFd<'_>>;

    /// The source is known: offers to repair its data. `counters` are the receiver's of its loss.
    fn join(&mut self, now: Instant, source: SocketAddr, counters: (u64, u64));

    /// Adapts the offered cost to this host's own loss.
    fn follow_loss(&mut self, now: Instant, counters: (u64, u64));

    /// Looks whether requests are answered: how many went to the group so far, and how many then had to go to the
    /// source.
    fn follow_answers(&mut self, group: u64, source: u64);

    /// Withdraws the offer.
    fn leave(&mut self, now: Instant);

    /// Whether withdrawals are still to be sent.
    fn is_leaving(&self) -> bool;

    /// Takes what has arrived.
    fn receive(&mut self, now: Instant, take: &mut dyn FnMut(&Meta, &[u8]));

    /// Drives the machine: its timeout, its packets, its events.
    fn drive(&mut self, now: Instant);

    fn poll_timeout(&self) -> Option<Instant>;

    /// Sends a request; what goes to the source leaves from `own`.
    fn send_request(
        &mut self,
        option: &LmsOption,
        payload: &[u8],
        own: &GroupSocket,
    ) -> Result<(), SendError>;

    /// Sends a repair to the turning point, which multicasts it below one of its interfaces.
    fn send_repair(&mut self, to: TurningPoint, payload: &[u8]) -> Result<(), SendError>;

    /// The first router of another version.
    fn other_version(&mut self) -> &mut FirstOther;
}

/// Opens the LMS side of a receiver. Without privileges it speaks by datagrams: `unprivileged` is told why.
pub(crate) fn open(
    given: &ReceiveConfig,
    carrier: (LmsCarrier, u16),
    local: &Local,
    seed: [u8; 32],
    now: Instant,
    unprivileged: &mut dyn FnMut(OpenError),
) -> Result<Box<dyn Lms>, OpenError> {
    match (given.group.address.ip(), local.address) {
        (IpAddr::V6(group), IpAddr::V6(address)) => Ok(Box::new(Host::<Ipv6Addr>::open(
            given,
            carrier,
            local,
            (group, address),
            seed,
            now,
            unprivileged,
        )?)),
        (IpAddr::V4(group), IpAddr::V4(address)) => Ok(Box::new(Host::<Ipv4Addr>::open(
            given,
            carrier,
            local,
            (group, address),
            seed,
            now,
            unprivileged,
        )?)),
        _ => Err(OpenError::Io {
            what: "LMS",
            source: std::io::Error::other("this host's address and the group are of two families"),
        }),
    }
}
