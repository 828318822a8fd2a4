//! Everything the data path needs from the kernel, opened while there are privileges.

use daemon_kit::RunError;
use linux_net::link;
use linux_net::nft::Guard;
use linux_net::packet::{Capture, RingConfig, Sender};
use linux_net::wake::Waker;

use super::resolve::Resolver;
use super::routes::Routes;
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
    pub(super) routes: Routes,
    pub(super) capture: Capture,
    pub(super) sender: Sender,
    pub(super) resolver: Resolver,
    pub(super) guard: Option<Guard>,
    pub(super) waker: Waker,
    pub(super) seed: [u8; 32],
}

impl Opened {
    pub(crate) fn open(config: &Config) -> Result<Opened, RunError> {
        let links = link::Watcher::open().map_err(RunError::open("interfaces"))?;
        // First, because this detects another owner of the routes.
        let seed =
            linux_net::process::random().map_err(|e| RunError::Io("reading /dev/urandom", e))?;
        let routes = Routes::open(config, seed)?;
        let guard = match config.capture.guard {
            true => Some(Guard::open().map_err(RunError::open("capture.guard"))?),
            false => None,
        };
        let widest = links
            .interfaces()
            .filter(|link| !link.is_loopback && config.uses(&link.name))
            .map(|link| link.mtu.min(MOST_PACKET))
            .max();
        let ring = RingConfig {
            frames: config.capture.frames,
            max_packet_bytes: config
                .capture
                .packet_bytes
                .unwrap_or_else(|| widest.unwrap_or(LEAST_PACKET).max(LEAST_PACKET)),
            ..RingConfig::default()
        };
        let interfaces = usize::from(config.limits.interfaces);
        Ok(Opened {
            links,
            routes,
            guard,
            capture: Capture::open(config.capture.backend, &ring, interfaces)
                .map_err(RunError::open("capture"))?,
            sender: Sender::open().map_err(RunError::open("capture"))?,
            resolver: Resolver::open(config.names_neighbours())
                .map_err(RunError::open("replier.static"))?,
            waker: Waker::new().map_err(|e| RunError::Io("making a waker", e))?,
            seed,
        })
    }

    pub(crate) fn waker(&self) -> Waker {
        self.waker.clone()
    }
}
