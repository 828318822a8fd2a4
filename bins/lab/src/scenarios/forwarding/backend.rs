//! What forwards in `lms-router`: the packet ring, or XDP in front of it.

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use super::saturate::{WORKER, sysfs};
use crate::prelude::*;

/// What forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
pub(super) enum Backend {
    /// The packet ring.
    Ring,
    /// XDP in the driver.
    Xdp,
    /// XDP in the kernel.
    XdpGeneric,
}

impl Backend {
    pub(super) fn label(self) -> &'static str {
        match self {
            Backend::Ring => "",
            Backend::Xdp => ", XDP",
            Backend::XdpGeneric => ", generic XDP",
        }
    }

    /// A short name, as part of a router's.
    pub(super) fn name(self) -> &'static str {
        match self {
            Backend::Ring => "ring",
            Backend::Xdp => "xdp",
            Backend::XdpGeneric => "generic",
        }
    }

    /// The section `[capture]` of the router's configuration.
    pub(super) fn section(self) -> &'static str {
        match self {
            Backend::Ring => "",
            Backend::Xdp => "backend = \"xdp\"\nxdp-mode = \"native\"",
            Backend::XdpGeneric => "backend = \"xdp\"\nxdp-mode = \"generic\"",
        }
    }

    pub(super) fn is_native(self) -> bool {
        self == Backend::Xdp
    }

    /// Packets in flight at most: the queue of a virtual link before a program in its driver has 256 places.
    pub(super) fn window(self) -> u64 {
        match self {
            Backend::Ring | Backend::XdpGeneric => 384,
            Backend::Xdp => 160,
        }
    }
}

/// Prepares hosts for a program in the router's driver: a veth takes frames from it while it has GRO, and what a host
/// sends must have its checksums, as on a real wire.
pub(super) fn prepare_host(network: &Network, host: NodeId) -> Result<()> {
    network.within(host, || {
        let offloads = [("rx-gro", true), ("tx-checksum-ip-generic", false)];
        Ok(linux_net::ethtool::switch_offloads("eth0", &offloads)?)
    })
}

/// Has the measured core run the driver's part of a router: else it would run where the generator does.
pub(super) fn move_driver(network: &Network, router: NodeId, interfaces: &[String]) -> Result<()> {
    network.within(router, || {
        sysfs()?;
        for interface in interfaces {
            std::fs::write(format!("/sys/class/net/{interface}/threaded"), "1")
                .context("a thread for the driver")?;
        }
        let mut core = CpuSet::new();
        core.set(WORKER)?;
        for entry in std::fs::read_dir("/proc").context("/proc")? {
            let Ok(pid) = entry?.file_name().to_string_lossy().parse::<i32>() else {
                continue;
            };
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            if interfaces
                .iter()
                .any(|interface| name.starts_with(&format!("napi/{interface}-")))
            {
                sched_setaffinity(Pid::from_raw(pid), &core).context("bind the driver's thread")?;
            }
        }
        Ok(())
    })
}
