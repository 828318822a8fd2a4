use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use thiserror::Error;

use super::Route;
use crate::error::{Capability, OpenError, ReceiveError};
use crate::sys::{self, Plain, in_addr};

/// The kernel's bound on interfaces that take part in multicast routing.
const MAXVIFS: usize = 32;

const MRT_INIT: libc::c_int = 200;
const MRT_ADD_VIF: libc::c_int = 202;
const MRT_DEL_VIF: libc::c_int = 203;
const MRT_ADD_MFC: libc::c_int = 204;
const MRT_DEL_MFC: libc::c_int = 205;
const MRT_ASSERT: libc::c_int = 207;
const MRT_ADD_MFC_PROXY: libc::c_int = 210;
const MRT_DEL_MFC_PROXY: libc::c_int = 211;
const VIFF_USE_IFINDEX: u8 = 0x8;
const SIOCGETSGCNT: libc::c_ulong = 0x89e1;

/// `struct vifctl` with an interface index.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Vifctl {
    vif: u16,
    flags: u8,
    threshold: u8,
    rate_limit: u32,
    ifindex: i32,
    remote: u32,
}

/// `struct mfcctl`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Mfcctl {
    origin: libc::in_addr,
    group: libc::in_addr,
    parent: u16,
    ttls: [u8; MAXVIFS],
    pad: u16,
    unused: [u32; 4],
}

/// `struct sioc_sg_req`.
#[derive(Clone, Copy)]
#[repr(C)]
struct SgRequest {
    source: libc::in_addr,
    group: libc::in_addr,
    packets: libc::c_ulong,
    bytes: libc::c_ulong,
    wrong_interface: libc::c_ulong,
}

// SAFETY: `repr(C)`, integers only, padding spelled out.
unsafe impl Plain for Vifctl {}
// SAFETY: as above.
unsafe impl Plain for Mfcctl {}

/// A verb of a [`Table`] failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TableError {
    /// Another program owns multicast routing here.
    #[error(
        "another program (pimd, smcroute, mrouted, an IGMP proxy) owns the kernel's multicast routing in this network namespace: stop it, or follow its routes instead of setting them"
    )]
    Owned,
    /// The socket did not open.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The kernel supports 32 interfaces.
    #[error("the kernel routes multicast between 32 interfaces at most")]
    TooManyInterfaces,
    /// Not added with [`Table::add_interface`], or gone.
    #[error("interface {0} takes no part in multicast routing: add it first")]
    UnknownInterface(u32),
    /// No such route.
    #[error("no such multicast route")]
    NoRoute,
    /// Anything else.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// A request of the kernel to the owner of multicast routing (`struct igmpmsg`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upcall {
    /// Reason.
    pub kind: UpcallKind,
    /// Source of the packet.
    pub source: Ipv4Addr,
    /// Its group.
    pub group: Ipv4Addr,
    /// Interface it arrived on, by index.
    pub interface: u32,
}

/// The reason of an upcall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpcallKind {
    /// No route for this source and group; the packet waits for one, for 10 s.
    NoRoute,
    /// It came from one of the route's outputs instead of its input: a loop, or a second router
    /// on that link. Reported once in 3 s a route at most.
    WrongInterface,
    /// Anything else, by the kernel's number.
    Other(u8),
}

/// What a route carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that matched it.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets that came from a wrong interface.
    pub wrong_interface: u64,
}

/// The owner of the kernel's multicast routing in this network namespace. Dropping it, or the
/// end of the process, removes all its routes.
#[derive(Debug)]
pub struct Table {
    socket: OwnedFd,
    /// Interface index of each of the kernel's virtual interfaces.
    interfaces: [Option<u32>; MAXVIFS],
}

impl Table {
    /// Takes ownership of multicast routing; fails if another program has it. Needs CAP_NET_RAW and
    /// CAP_NET_ADMIN to open, nothing afterwards.
    ///
    /// # Errors
    /// [`TableError`]: a capability is missing, the kernel has no multicast routing, or another program owns it.
    pub fn open() -> Result<Self, TableError> {
        let what = "multicast routing";
        let socket = sys::socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_IGMP)
            .map_err(OpenError::from(what, Capability::NetRaw))?;
        sys::set_int(&socket, libc::IPPROTO_IP, MRT_INIT, 1).map_err(|e| {
            match e.raw_os_error() {
                Some(libc::EADDRINUSE) => TableError::Owned,
                _ => OpenError::classify(what, Capability::NetAdmin, e).into(),
            }
        })?;
        // Packets from wrong interfaces are reported too.
        sys::set_int(&socket, libc::IPPROTO_IP, MRT_ASSERT, 1)
            .map_err(OpenError::from(what, Capability::NetAdmin))?;
        Ok(Self {
            socket,
            interfaces: [None; MAXVIFS],
        })
    }

    /// Lets an interface take part.
    ///
    /// # Errors
    /// [`TableError`]: there is no such interface, or all places for interfaces are taken.
    pub fn add_interface(&mut self, interface: u32) -> Result<(), TableError> {
        if self.interfaces.contains(&Some(interface)) {
            return Ok(());
        }
        let vif = self
            .interfaces
            .iter()
            .position(Option::is_none)
            .ok_or(TableError::TooManyInterfaces)?;
        let request = Vifctl {
            vif: vif as u16,
            flags: VIFF_USE_IFINDEX,
            threshold: 1,
            ifindex: interface.cast_signed(),
            ..Vifctl::default()
        };
        sys::set_option(&self.socket, libc::IPPROTO_IP, MRT_ADD_VIF, &request).map_err(
            |e| match e.raw_os_error() {
                Some(libc::EADDRNOTAVAIL | libc::ENODEV) => TableError::UnknownInterface(interface),
                _ => TableError::Io {
                    what: "adding an interface to multicast routing",
                    source: e,
                },
            },
        )?;
        self.interfaces[vif] = Some(interface);
        Ok(())
    }

    /// Takes an interface out, also one that is gone.
    ///
    /// # Errors
    /// [`TableError`]: the kernel refuses.
    pub fn remove_interface(&mut self, interface: u32) -> Result<(), TableError> {
        let vif = self.vif(interface)?;
        self.interfaces[usize::from(vif)] = None;
        let request = Vifctl {
            vif,
            ..Vifctl::default()
        };
        match sys::set_option(&self.socket, libc::IPPROTO_IP, MRT_DEL_VIF, &request) {
            // The kernel removes it with the interface.
            Err(e) if e.raw_os_error() != Some(libc::EADDRNOTAVAIL) => Err(TableError::Io {
                what: "removing an interface from multicast routing",
                source: e,
            }),
            _ => Ok(()),
        }
    }

    fn vif(&self, interface: u32) -> Result<u16, TableError> {
        self.interfaces
            .iter()
            .position(|known| *known == Some(interface))
            .map(|vif| vif as u16)
            .ok_or(TableError::UnknownInterface(interface))
    }

    /// Adds a route, or replaces the one of the same source and group.
    ///
    /// # Errors
    /// [`TableError`]: an interface of the route does not take part, or the kernel refuses.
    pub fn set_route(&mut self, route: &Route) -> Result<(), TableError> {
        let mut ttls = [0; MAXVIFS];
        for output in &route.outputs {
            ttls[usize::from(self.vif(*output)?)] = 1;
        }
        let any_source = route.source.is_unspecified();
        let parent = self.vif(route.input)?;
        if any_source {
            // The kernel takes packets of (*, G) from any of its interfaces.
            ttls[usize::from(parent)] = 1;
        }
        let request = mfcctl(route.source, route.group, parent, ttls);
        let name = if any_source {
            MRT_ADD_MFC_PROXY
        } else {
            MRT_ADD_MFC
        };
        sys::set_option(&self.socket, libc::IPPROTO_IP, name, &request).map_err(|source| {
            TableError::Io {
                what: "setting a multicast route",
                source,
            }
        })
    }

    /// Removes a route.
    ///
    /// # Errors
    /// [`TableError`]: there is no such route, or the kernel refuses.
    pub fn remove_route(&mut self, source: Ipv4Addr, group: Ipv4Addr) -> Result<(), TableError> {
        let any_source = source.is_unspecified();
        let name = if any_source {
            MRT_DEL_MFC_PROXY
        } else {
            MRT_DEL_MFC
        };
        // The kernel requires the input of a (*, G) route, which is not stored here: try each.
        let parents = self
            .interfaces
            .iter()
            .enumerate()
            .filter(|(_, known)| known.is_some());
        let parents: Vec<u16> = if any_source {
            parents.map(|(vif, _)| vif as u16).collect()
        } else {
            vec![0]
        };
        for parent in parents {
            let request = mfcctl(source, group, parent, [0; MAXVIFS]);
            match sys::set_option(&self.socket, libc::IPPROTO_IP, name, &request) {
                Ok(()) => return Ok(()),
                Err(e) if e.raw_os_error() == Some(libc::ENOENT) => {}
                Err(source) => {
                    return Err(TableError::Io {
                        what: "removing a multicast route",
                        source,
                    });
                }
            }
        }
        Err(TableError::NoRoute)
    }

    /// Returns the packets and bytes that a route has carried.
    ///
    /// # Errors
    /// [`TableError`]: there is no such route, or the kernel refuses.
    pub fn counters(&self, source: Ipv4Addr, group: Ipv4Addr) -> Result<Counters, TableError> {
        let mut request = SgRequest {
            source: in_addr(source),
            group: in_addr(group),
            packets: 0,
            bytes: 0,
            wrong_interface: 0,
        };
        // SAFETY: SIOCGETSGCNT reads and writes one `sioc_sg_req`, which `request` is and which
        // lives through the call.
        let result =
            unsafe { libc::ioctl(self.socket.as_raw_fd(), SIOCGETSGCNT as _, &raw mut request) };
        sys::check(result).map_err(|e| match e.raw_os_error() {
            Some(libc::EADDRNOTAVAIL) => TableError::NoRoute,
            _ => TableError::Io {
                what: "reading a multicast route's counters",
                source: e,
            },
        })?;
        #[allow(
            clippy::useless_conversion,
            reason = "c_ulong is 32 bits on some targets"
        )]
        Ok(Counters {
            packets: request.packets.into(),
            bytes: request.bytes.into(),
            wrong_interface: request.wrong_interface.into(),
        })
    }

    /// Returns the kernel's next upcall; `None` when there is none. IGMP packets that arrive on the
    /// same socket are passed over.
    ///
    /// # Errors
    /// [`ReceiveError`] when the socket cannot be read.
    pub fn next_upcall(&mut self) -> Result<Option<Upcall>, ReceiveError> {
        let mut buffer = [0; 128];
        loop {
            let incoming = match sys::message::receive::<16>(&self.socket, &mut buffer) {
                Ok(incoming) => incoming,
                Err(error) => return ReceiveError::classify(error).map_or(Ok(None), Err),
            };
            // `struct igmpmsg` overlays the IPv4 header: a protocol of 0 marks it.
            let message = &buffer[..incoming.len];
            let Some(message) = message.first_chunk::<20>().filter(|m| m[9] == 0) else {
                continue;
            };
            let vif = usize::from(u16::from_le_bytes([message[10], message[11]]));
            let Some(interface) = self.interfaces.get(vif).copied().flatten() else {
                continue;
            };
            let address = |at: usize| {
                Ipv4Addr::new(
                    message[at],
                    message[at + 1],
                    message[at + 2],
                    message[at + 3],
                )
            };
            return Ok(Some(Upcall {
                kind: match message[8] {
                    1 => UpcallKind::NoRoute,
                    2 => UpcallKind::WrongInterface,
                    other => UpcallKind::Other(other),
                },
                source: address(12),
                group: address(16),
                interface,
            }));
        }
    }
}

fn mfcctl(source: Ipv4Addr, group: Ipv4Addr, parent: u16, ttls: [u8; MAXVIFS]) -> Mfcctl {
    Mfcctl {
        origin: in_addr(source),
        group: in_addr(group),
        parent,
        ttls,
        pad: 0,
        unused: [0; 4],
    }
}

impl AsFd for Table {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
