use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, BorrowedFd};

use super::channels::{ChannelBatch, Channels};
use super::ring::{Frame, Ring, RingBatch, RingConfig, RingStats};
use crate::error::OpenError;
use crate::family::Family;

/// How packets come into the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// A [`Ring`].
    #[default]
    Ring,
    /// [`Channels`], where there are no packet rings.
    Pnet,
}

/// A [`Ring`] or [`Channels`]: the packets that a router must handle.
#[derive(Debug)]
pub enum Capture {
    /// A packet ring.
    Ring(Ring),
    /// Channels of `pnet_datalink`.
    Pnet(Channels),
}

impl Capture {
    /// Opens a capture; channels have room for this many interfaces. Needs CAP_NET_RAW.
    ///
    /// # Errors
    /// [`OpenError`]: CAP_NET_RAW is missing, or the kernel refuses the sockets or the ring.
    pub fn open(
        backend: Backend,
        config: &RingConfig,
        interfaces: usize,
    ) -> Result<Self, OpenError> {
        Self::open_for::<Ipv4Addr>(backend, config, interfaces)
    }

    /// Opens a capture of packets of either version of IP, as [`Capture::open`] does.
    ///
    /// # Errors
    /// As [`Capture::open`].
    pub fn open_for<A: Family>(
        backend: Backend,
        config: &RingConfig,
        interfaces: usize,
    ) -> Result<Self, OpenError> {
        match backend {
            Backend::Ring => Ring::open_for::<A>(config).map(Capture::Ring),
            Backend::Pnet => Channels::open_for::<A>(config, interfaces).map(Capture::Pnet),
        }
    }

    /// Makes an interface pass packets to every group up from its hardware, and channels receive from it at all.
    ///
    /// # Errors
    /// The kernel's error: most often there is no such interface; or all channels are in use.
    pub fn add_interface(&mut self, interface: u32) -> io::Result<()> {
        match self {
            Capture::Ring(ring) => ring.receive_all_multicast(interface),
            Capture::Pnet(channels) => channels.add_interface(interface),
        }
    }

    /// See [`Ring::watch_sources`].
    ///
    /// # Errors
    /// More than [`Ring::MAX_SOURCES`] are refused with [`io::ErrorKind::InvalidInput`].
    pub fn watch_sources<A: Copy + Into<IpAddr>>(&mut self, sources: &[(A, A)]) -> io::Result<()> {
        match self {
            Capture::Ring(ring) => ring.watch_sources(sources),
            Capture::Pnet(channels) => channels.watch_sources(sources),
        }
    }

    /// The packets that have arrived, `max` at most.
    pub fn batch(&mut self, max: usize) -> CaptureBatch<'_> {
        match self {
            Capture::Ring(ring) => CaptureBatch::Ring(ring.batch(max)),
            Capture::Pnet(channels) => CaptureBatch::Pnet(channels.batch(max)),
        }
    }

    /// Counters since the last call.
    ///
    /// # Errors
    /// The kernel's error when the counters cannot be read.
    pub fn stats(&mut self) -> io::Result<RingStats> {
        match self {
            Capture::Ring(ring) => ring.stats(),
            Capture::Pnet(channels) => channels.stats(),
        }
    }
}

impl AsFd for Capture {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Capture::Ring(ring) => ring.as_fd(),
            Capture::Pnet(channels) => channels.as_fd(),
        }
    }
}

/// The packets of one [`Capture::batch`].
#[derive(Debug)]
pub enum CaptureBatch<'c> {
    /// In the ring.
    Ring(RingBatch<'c>),
    /// In the buffers of the channels.
    Pnet(ChannelBatch<'c>),
}

impl CaptureBatch<'_> {
    /// How many packets there are.
    pub fn len(&self) -> usize {
        match self {
            CaptureBatch::Ring(batch) => batch.len(),
            CaptureBatch::Pnet(batch) => batch.len(),
        }
    }

    /// Nothing has arrived.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The packets, those of one interface in order of arrival.
    pub fn frames(&mut self) -> impl Iterator<Item = Frame<'_>> {
        let (ring, channels) = match self {
            CaptureBatch::Ring(batch) => (Some(batch.frames()), None),
            CaptureBatch::Pnet(batch) => (None, Some(batch.frames())),
        };
        ring.into_iter()
            .flatten()
            .chain(channels.into_iter().flatten())
    }
}
