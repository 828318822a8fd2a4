//! The hot path: a batch of captured packets, each forwarded where it lies, and one system
//! call that sends them all. Nothing is allocated.

use std::num::NonZeroU16;

use linux_net::nft;
use linux_net::packet::{Capture, Frame, SendBatch, Sender, group_link_address};
use linux_net::raw;
use lms_proto::router::{Meta, Output, Verdict};
use lms_proto::{Duration, Iface, Instant, LinkAddr, NextHop, Router, hier, wire};

use super::Hidden;
use super::family::Family;
use super::fast::Fast;
use super::interfaces::Interfaces;
use super::limit::TotalLimit;
use super::proxy::Proxy;
use super::resolve::Resolver;
use super::watch::SourceWatch;

/// Packets read at a time: one `sendmmsg`.
pub(crate) const BATCH: usize = 64;

/// Shortest time between two log lines about neighbours of another version.
const VERSION_LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Counters of this path that the machine does not have.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PathStats {
    /// Packets on interfaces that the router does not work on.
    pub(crate) unused_interface: u64,
    /// Packets above the limit of all groups together.
    pub(crate) requests_over_total: u64,
    pub(crate) dmcasts_over_total: u64,
    /// Packets for an interface that has gone meanwhile.
    pub(crate) gone: u64,
    /// Handed to interfaces.
    pub(crate) sent: u64,
    /// Refused by an interface: it is down, or its queue is full.
    pub(crate) send_failed: u64,
    /// Requests multicast on the link because the neighbour's link address is not known yet.
    pub(crate) unresolved: u64,
    /// LMS messages that the guard cannot hide from the kernel.
    pub(crate) unguarded: u64,
    /// Requests that the kernel did not take to send on.
    pub(crate) not_routed: u64,
    /// IGMP, MLD and LMS-HIER messages received.
    pub(crate) control: u64,
    /// Packets dropped because the fast path changed their entry at the same moment.
    pub(crate) contended: u64,
}

/// Everything the path works with, each part borrowed from the data thread.
pub(crate) struct Path<'a, A: Family> {
    pub(crate) now: Instant,
    pub(crate) router: &'a mut Router<'static, A>,
    pub(crate) interfaces: &'a mut Interfaces,
    pub(crate) resolver: &'a mut Resolver<A>,
    pub(crate) watch: &'a mut SourceWatch<A>,
    pub(crate) proxy: Option<&'a mut Proxy<A>>,
    pub(crate) raw: &'a raw::Socket<A>,
    pub(crate) requests: &'a mut TotalLimit,
    pub(crate) dmcasts: &'a mut TotalLimit,
    pub(crate) stats: &'a mut PathStats,
    /// Earliest time of the next log line about a neighbour of another version.
    pub(crate) version_log_at: &'a mut Option<Instant>,
    /// What a guard hides from the kernel, where there is one.
    pub(crate) guard: Option<Hidden>,
    /// The fast path, where there is one.
    pub(crate) fast: Option<&'a Fast>,
}

/// The kind of a packet to send.
#[derive(Clone, Copy)]
enum Kind {
    Request,
    Dmcast,
}

impl<A: Family> Path<'_, A> {
    /// Forwards up to `BATCH` packets that have arrived, and returns their number.
    pub(crate) fn batch(&mut self, capture: &mut Capture, sender: &Sender) -> usize {
        let mut batch = capture.batch(BATCH);
        let count = batch.len();
        if count == 0 {
            return 0;
        }
        let mut sends = sender.batch();
        let mut frames = batch.frames();
        let frames: [Option<Frame<'_>>; BATCH] = std::array::from_fn(|_| frames.next());
        self.router
            .look_ahead(frames.iter().flatten().filter_map(|frame| {
                let iface = self.interfaces.number(frame.interface)?;
                Some((iface, &*frame.packet))
            }));
        for frame in frames.into_iter().flatten() {
            let Some(iface) = self.arrived(&frame) else {
                continue;
            };
            let meta = Meta {
                iface,
                link_source: frame.link_source.map(LinkAddr),
            };
            if A::is_control(frame.packet) {
                self.stats.control += 1;
                // The hierarchy counts refused messages.
                let handled = self.router.handle_packet(self.now, &meta, frame.packet);
                if handled == Err(hier::DropReason::Version) {
                    self.other_version(iface, frame.packet);
                }
                if let Some(proxy) = &mut self.proxy {
                    proxy.handle_packet(self.now, meta, frame.packet);
                }
            } else {
                self.one(meta, frame.packet, sender, &mut sends);
            }
        }
        let sent = sends.flush();
        self.stats.sent += sent.sent;
        self.stats.send_failed += sent.failed;
        count
    }

    #[inline]
    fn arrived(&mut self, frame: &Frame<'_>) -> Option<Iface> {
        let iface = self.interfaces.number(frame.interface);
        match iface.and_then(|iface| self.interfaces.get_mut(iface)) {
            Some(slot) => slot.counters.received += 1,
            None => self.stats.unused_interface += 1,
        }
        iface
    }

    /// Logs that a neighbour speaks another version of LMS-HIER, at most once in [`VERSION_LOG_INTERVAL`].
    #[cold]
    fn other_version(&mut self, iface: Iface, packet: &[u8]) {
        if self.version_log_at.is_some_and(|at| self.now < at) {
            return;
        }
        let Some((peer, version)) = hier::sender_version::<A>(packet) else {
            return;
        };
        *self.version_log_at = Some(self.now + VERSION_LOG_INTERVAL);
        tracing::warn!(
            event = "other_version",
            interface = self.interfaces.name(iface),
            %peer,
            version,
            own_version = wire::hier::VERSION,
            "neighbour speaks another version of LMS-HIER; install the same release of polycast on both"
        );
    }

    #[inline]
    fn one<'p>(
        &mut self,
        meta: Meta,
        packet: &'p mut [u8],
        sender: &Sender,
        sends: &mut SendBatch<'_, 'p>,
    ) {
        let port = |hidden: Hidden| hidden.udp_port.map(NonZeroU16::get);
        let is_unguarded = self
            .guard
            .is_some_and(|hidden| !nft::hides(packet, port(hidden)));
        let held = match self.fast {
            Some(fast) if A::HAS_FAST_PATH => fast.lend(self.router, packet, meta.iface),
            _ => None,
        };
        let verdict = self.router.forward(self.now, &meta, packet);
        if let (Some(fast), Some(held)) = (self.fast, held)
            && !fast.take_back(self.router, held)
        {
            self.stats.contended += 1;
            return self.dropped(meta.iface);
        }
        if is_unguarded && !matches!(verdict, Verdict::Pass) {
            self.stats.unguarded += 1;
        }
        match verdict {
            Verdict::Pass => self.watch.passed(self.now, meta.iface, packet, self.router),
            Verdict::Drop(_) => self.dropped(meta.iface),
            Verdict::Forward {
                output,
                packet: range,
                second: None,
            } => {
                if !self.take_request() {
                    self.stats.requests_over_total += 1;
                    return self.dropped(meta.iface);
                }
                self.queue(output, &packet[range], Kind::Request, sends);
            }
            Verdict::Forward {
                output,
                packet: range,
                second: Some(second),
            } => {
                // Both copies live in the same bytes: the first must leave before the edit.
                let mut first = sender.batch();
                if !self.take_request() {
                    self.stats.requests_over_total += 1;
                    return self.dropped(meta.iface);
                }
                self.queue(output, &packet[range.clone()], Kind::Request, &mut first);
                let sent = first.flush();
                self.stats.sent += sent.sent;
                self.stats.send_failed += sent.failed;
                if !self.take_request() {
                    self.stats.requests_over_total += 1;
                    return;
                }
                let output = self.router.second_copy(second, &mut packet[range.clone()]);
                self.queue(output, &packet[range], Kind::Request, sends);
            }
            Verdict::Multicast {
                iface,
                packet: range,
            } => {
                if !self.take_dmcast() {
                    self.stats.dmcasts_over_total += 1;
                    return self.dropped(meta.iface);
                }
                let output = Output {
                    iface,
                    next_hop: NextHop::Group,
                };
                self.queue(output, &packet[range], Kind::Dmcast, sends);
            }
        }
    }

    #[inline]
    fn take_request(&mut self) -> bool {
        match self.fast {
            Some(fast) => fast.take_request(self.now, self.requests),
            None => self.requests.take(self.now),
        }
    }

    #[inline]
    fn take_dmcast(&mut self) -> bool {
        match self.fast {
            Some(fast) => fast.take_dmcast(self.now, self.dmcasts),
            None => self.dmcasts.take(self.now),
        }
    }

    #[inline]
    fn dropped(&mut self, iface: Iface) {
        if let Some(slot) = self.interfaces.get_mut(iface) {
            slot.counters.dropped += 1;
        }
    }

    #[inline]
    fn queue<'p>(
        &mut self,
        output: Output<A>,
        packet: &'p [u8],
        kind: Kind,
        sends: &mut SendBatch<'_, 'p>,
    ) {
        if output.next_hop == NextHop::Routed {
            return self.send_routed(packet);
        }
        let Some(slot) = self.interfaces.get_mut(output.iface) else {
            self.stats.gone += 1;
            return;
        };
        if packet.len() > slot.mtu as usize {
            slot.counters.too_long += 1;
            return;
        }
        let index = slot.index;
        match kind {
            Kind::Request => slot.counters.requests_sent += 1,
            Kind::Dmcast => slot.counters.dmcasts_sent += 1,
        }
        let link = match output.next_hop {
            NextHop::Neighbour {
                link: Some(LinkAddr(link)),
                ..
            } => link,
            NextHop::Neighbour { addr, link: None } => match self.resolver.find(index, addr) {
                Some(link) => link,
                None => {
                    self.stats.unresolved += 1;
                    group_link::<A>(packet)
                }
            },
            NextHop::Group | NextHop::Routed => group_link::<A>(packet),
        };
        sends.queue(index, link, packet);
    }

    /// The kernel finds the way of a request to its source.
    fn send_routed(&mut self, packet: &[u8]) {
        match self.raw.send(0, packet) {
            Ok(()) => self.stats.sent += 1,
            Err(error) => {
                tracing::debug!(%error, "request not sent on");
                self.stats.not_routed += 1;
            }
        }
    }
}

/// The Ethernet address of a packet's destination, which is a group.
#[inline]
pub(crate) fn group_link<A: Family>(packet: &[u8]) -> [u8; 6] {
    group_link_address(<A as lms_proto::Family>::destination(packet))
}
