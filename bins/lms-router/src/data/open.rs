//! Everything the data path needs from the kernel, opened while there are privileges.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU16;

use daemon_kit::RunError;
use linux_net::link;
use linux_net::nft::Guard;
use linux_net::packet::{Capture, RingConfig, Sender};
use linux_net::raw;
use linux_net::wake::Waker;
use lms_xdp::Mode;

use super::family::Family;
use super::fast::Fast;
use super::resolve::Resolver;
use super::routes::Routes;
use super::side::OpenedSide;
use crate::config::Config;

/// Packets are taken whole up to this length, where the interfaces at the start do not say more.
const LEAST_PACKET: u32 = 1500;
/// And up to this one where they do: jumbo frames. Larger MTUs belong to interfaces (loopback,
/// tunnels) whose LMS packets are never that long.
const MOST_PACKET: u32 = 9216;

/// Open sockets.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(super) links: link::Watcher,
    pub(super) ipv4: OpenedSide<Ipv4Addr>,
    pub(super) ipv6: Option<OpenedSide<Ipv6Addr>>,
    pub(super) sender: Sender,
    pub(super) guard: Option<Guard>,
    pub(super) fast: Option<Fast>,
    pub(super) waker: Waker,
}

impl Opened {
    pub(crate) fn open(config: &Config) -> Result<Opened, RunError> {
        let links = link::Watcher::open().map_err(RunError::open("interfaces"))?;
        let widest = links
            .interfaces()
            .filter(|link| !link.is_loopback && config.uses(&link.name))
            .map(|link| link.mtu.min(MOST_PACKET))
            .max();
        let udp_port = config.capture.udp_port.map(NonZeroU16::get);
        let ring = RingConfig {
            frames: config.capture.frames,
            max_packet_bytes: config
                .capture
                .packet_bytes
                .unwrap_or_else(|| widest.unwrap_or(LEAST_PACKET).max(LEAST_PACKET)),
            udp_ports: udp_port.into_iter().collect(),
            ..RingConfig::default()
        };
        // The routes first, because this detects another owner of them.
        let ipv4 = side(config, &ring)?;
        let ipv6 = match config.ipv6 && has_ipv6() {
            true => Some(side(config, &ring)?),
            false => None,
        };
        let guard = match config.capture.guard {
            true => Some(Guard::open(udp_port).map_err(RunError::open("capture.guard"))?),
            false => None,
        };
        Ok(Opened {
            links,
            ipv4,
            ipv6,
            guard,
            fast: config.capture.xdp.and_then(|mode| fast(config, mode)),
            sender: Sender::open().map_err(RunError::open("capture"))?,
            waker: Waker::new().map_err(|e| RunError::Io("making a waker", e))?,
        })
    }

    pub(crate) fn waker(&self) -> Waker {
        self.waker.clone()
    }
}

/// The fast path; where the kernel refuses it, the ring is there for all packets.
fn fast(config: &Config, mode: Mode) -> Option<Fast> {
    Fast::load(config, mode)
        .inspect_err(|error| {
            tracing::warn!(
                event = "xdp_unavailable",
                %error,
                "no XDP here: the packet ring forwards everything; XDP needs CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN and Linux 5.15"
            );
        })
        .ok()
}

fn side<A: Family>(config: &Config, ring: &RingConfig) -> Result<OpenedSide<A>, RunError> {
    let seed = linux_net::process::random().map_err(|e| RunError::Io("reading /dev/urandom", e))?;
    Ok(OpenedSide {
        routes: Routes::open(config, seed)?,
        capture: Capture::open_for::<A>(
            config.capture.backend,
            ring,
            usize::from(config.limits.interfaces),
        )
        .map_err(RunError::open("capture"))?,
        resolver: Resolver::open(config.names_neighbours())
            .map_err(RunError::open("replier.static"))?,
        raw: raw::Socket::sender().map_err(RunError::open("capture"))?,
        seed,
    })
}

/// Whether this host speaks IPv6: it does not when the kernel was started with `ipv6.disable=1`.
fn has_ipv6() -> bool {
    std::path::Path::new("/proc/net/if_inet6").exists()
}
