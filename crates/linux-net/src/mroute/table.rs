use std::io;
use std::marker::PhantomData;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use thiserror::Error;

use super::Route;
use super::structures::MAXVIFS;
use crate::error::{Capability, OpenError, ReceiveError};
use crate::family::Family;
use crate::sys;

const MRT_INIT: libc::c_int = 200;
const MRT_ADD_VIF: libc::c_int = 202;
const MRT_ADD_MFC: libc::c_int = 204;
const MRT_DEL_MFC: libc::c_int = 205;
const MRT_ASSERT: libc::c_int = 207;
const MRT_ADD_MFC_PROXY: libc::c_int = 210;
const MRT_DEL_MFC_PROXY: libc::c_int = 211;
/// `SIOCGETSGCNT`, and for IPv6 `SIOCGETSGCNT_IN6`.
const SIOCGETSGCNT: libc::c_ulong = 0x89e1;

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

/// A request of the kernel to the owner of multicast routing (`struct igmpmsg`, `struct mrt6msg`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upcall<A = Ipv4Addr> {
    /// Reason.
    pub kind: UpcallKind,
    /// Source of the packet.
    pub source: A,
    /// Its group.
    pub group: A,
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

/// The owner of the kernel's multicast routing of one version of IP in this network namespace. Dropping it, or the
/// end of the process, removes all its routes.
#[derive(Debug)]
pub struct Table<A: Family = Ipv4Addr> {
    socket: OwnedFd,
    /// Interface index of each of the kernel's virtual interfaces.
    interfaces: [Option<u32>; MAXVIFS],
    family: PhantomData<A>,
}

impl Table {
    /// Takes ownership of multicast routing of IPv4; fails if another program has it. Needs CAP_NET_RAW and
    /// CAP_NET_ADMIN to open, nothing afterwards.
    ///
    /// # Errors
    /// [`TableError`]: a capability is missing, the kernel has no multicast routing, or another program owns it.
    pub fn open() -> Result<Self, TableError> {
        Self::open_for()
    }
}

impl<A: Family> Table<A> {
    /// Takes ownership of multicast routing of either version of IP, as [`Table::open`] does.
    ///
    /// # Errors
    /// As [`Table::open`].
    pub fn open_for() -> Result<Self, TableError> {
        let what = "multicast routing";
        let socket = sys::socket(A::FAMILY, libc::SOCK_RAW, A::PROTOCOL)
            .map_err(OpenError::from(what, Capability::NetRaw))?;
        A::refuse_packets(&socket).map_err(OpenError::from(what, Capability::NetRaw))?;
        sys::set_int(&socket, A::LEVEL, MRT_INIT, 1).map_err(|e| match e.raw_os_error() {
            Some(libc::EADDRINUSE) => TableError::Owned,
            _ => OpenError::classify(what, Capability::NetAdmin, e).into(),
        })?;
        // Packets from wrong interfaces are reported too.
        sys::set_int(&socket, A::LEVEL, MRT_ASSERT, 1)
            .map_err(OpenError::from(what, Capability::NetAdmin))?;
        Ok(Self {
            socket,
            interfaces: [None; MAXVIFS],
            family: PhantomData,
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
        let what = "adding an interface to multicast routing";
        let request = A::interface(vif as u16, interface).ok_or_else(|| TableError::Io {
            what,
            source: io::Error::other("the kernel routes IPv6 multicast by interfaces up to 65535"),
        })?;
        sys::set_option(&self.socket, A::LEVEL, MRT_ADD_VIF, &request).map_err(|e| {
            match e.raw_os_error() {
                Some(libc::EADDRNOTAVAIL | libc::ENODEV) => TableError::UnknownInterface(interface),
                _ => TableError::Io { what, source: e },
            }
        })?;
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
        match A::remove_interface(&self.socket, vif) {
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
    pub fn set_route(&mut self, route: &Route<A>) -> Result<(), TableError> {
        let mut outputs = [false; MAXVIFS];
        for output in &route.outputs {
            outputs[usize::from(self.vif(*output)?)] = true;
        }
        let any_source = route.source == A::UNSPECIFIED;
        let parent = self.vif(route.input)?;
        if any_source {
            // The kernel takes packets of (*, G) from any of its interfaces.
            outputs[usize::from(parent)] = true;
        }
        let request = A::entry(route.source, route.group, parent, &outputs);
        let name = if any_source {
            MRT_ADD_MFC_PROXY
        } else {
            MRT_ADD_MFC
        };
        sys::set_option(&self.socket, A::LEVEL, name, &request).map_err(|source| TableError::Io {
            what: "setting a multicast route",
            source,
        })
    }

    /// Removes a route.
    ///
    /// # Errors
    /// [`TableError`]: there is no such route, or the kernel refuses.
    pub fn remove_route(&mut self, source: A, group: A) -> Result<(), TableError> {
        let any_source = source == A::UNSPECIFIED;
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
            let request = A::entry(source, group, parent, &[false; MAXVIFS]);
            match sys::set_option(&self.socket, A::LEVEL, name, &request) {
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
    pub fn counters(&self, source: A, group: A) -> Result<Counters, TableError> {
        let mut request = A::request(source, group);
        // SAFETY: SIOCGETSGCNT reads and writes one `sioc_sg_req` (of an IPv6 socket, `sioc_sg_req6`),
        // which `request` is and which lives through the call.
        let result =
            unsafe { libc::ioctl(self.socket.as_raw_fd(), SIOCGETSGCNT as _, &raw mut request) };
        sys::check(result).map_err(|e| match e.raw_os_error() {
            Some(libc::EADDRNOTAVAIL) => TableError::NoRoute,
            _ => TableError::Io {
                what: "reading a multicast route's counters",
                source: e,
            },
        })?;
        let [packets, bytes, wrong_interface] = A::counters(&request);
        #[allow(
            clippy::useless_conversion,
            reason = "c_ulong is 32 bits on some targets"
        )]
        Ok(Counters {
            packets: packets.into(),
            bytes: bytes.into(),
            wrong_interface: wrong_interface.into(),
        })
    }

    /// Returns the kernel's next upcall; `None` when there is none. IGMP packets that arrive on
    /// the same socket are passed over.
    ///
    /// # Errors
    /// [`ReceiveError`] when the socket cannot be read.
    pub fn next_upcall(&mut self) -> Result<Option<Upcall<A>>, ReceiveError> {
        let mut buffer = [0; 128];
        loop {
            let incoming = match sys::message::receive::<16>(&self.socket, &mut buffer) {
                Ok(incoming) => incoming,
                Err(error) => return ReceiveError::classify(error).map_or(Ok(None), Err),
            };
            let Some((kind, vif, source, group)) = A::upcall(&buffer[..incoming.len]) else {
                continue;
            };
            let Some(interface) = self.interfaces.get(usize::from(vif)).copied().flatten() else {
                continue;
            };
            return Ok(Some(Upcall {
                kind: match kind {
                    1 => UpcallKind::NoRoute,
                    2 => UpcallKind::WrongInterface,
                    other => UpcallKind::Other(other),
                },
                source,
                group,
                interface,
            }));
        }
    }
}

impl<A: Family> AsFd for Table<A> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
