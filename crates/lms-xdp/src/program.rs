//! The program in the kernel: loading, interfaces, counters.

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use aya::maps::xdp::DevMap;
use aya::maps::{Array, HashMap, LpmTrie, Map, MapData, PerCpuArray};
use aya::programs::xdp::{XdpLinkId, XdpMode};
use aya::programs::{ProgramError, Xdp};
use aya::{Ebpf, EbpfLoader};
use lms_proto::fast_path::{Port, PortCounters, Record, Refusal, Settings, Words};
use lms_proto::{Iface, Key};
use nix::time::{ClockId, clock_gettime};
use proto_core::TokenBucket;

use crate::error::{AttachError, LoadError, MapError};
use crate::publish::{Published, is_apart};
use crate::sys::{Shared, Value};

/// The program, aligned as the parser of ELF files wants it.
const OBJECT: &[u8] =
    aya::include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/lms.bpf.o"));

/// Interfaces with this number of the kernel or a higher one are the router's alone.
const INDEX_LIMIT: u32 = 1 << 16;

/// Name of the program in it.
const PROGRAM: &str = "lms";

/// The sizes of the maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Entries; further ones stay with the router.
    pub groups: u32,
    /// Interface numbers, from 0.
    pub interfaces: u16,
}

/// Where the program runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// In the driver where it can, else in the kernel.
    #[default]
    Auto,
    /// In the driver, on the bytes as they come in.
    Native,
    /// In the kernel, once the driver has handed the packet over.
    Generic,
}

/// Where the program runs on an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attached {
    /// In the driver.
    Native,
    /// In the kernel.
    Generic,
}

/// The loaded program with its maps. Dropped, it leaves nothing behind.
pub struct FastPath {
    ebpf: Ebpf,
    limits: Limits,
    pub(crate) shared: Shared,
    pub(crate) published: Published,
    pub(crate) records: HashMap<MapData, [u8; 8], Value<Record>>,
    settings: Array<MapData, Value<Settings>>,
    numbers: Array<MapData, u32>,
    ports: Array<MapData, Value<Port>>,
    devices: DevMap<MapData>,
    pub(crate) links: LpmTrie<MapData, [u8; 4], u32>,
    drops: PerCpuArray<MapData, u64>,
    port_counters: PerCpuArray<MapData, Value<PortCounters>>,
    /// Numbers of interfaces below it were set since the program was loaded.
    used_numbers: u16,
    attached: BTreeMap<u32, XdpLinkId>,
}

/// Without the maps, which have the secrets.
impl fmt::Debug for FastPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FastPath")
            .field("limits", &self.limits)
            .field("attached", &self.attached)
            .finish_non_exhaustive()
    }
}

impl FastPath {
    /// Loads the program. It is attached to no interface yet.
    ///
    /// # Errors
    /// [`LoadError`]: a capability is missing, or the kernel has no BPF, or too little of it.
    pub fn load(limits: Limits) -> Result<FastPath, LoadError> {
        let (groups, interfaces) = (limits.groups.max(1), u32::from(limits.interfaces.max(1)));
        let mut ebpf = EbpfLoader::new()
            .map_max_entries("RECORDS", groups)
            .map_max_entries("WORDS", groups)
            .map_max_entries("WRONG_NUMBERS", interfaces)
            .map_max_entries("NUMBERS", INDEX_LIMIT)
            .map_max_entries("PORTS", interfaces)
            .map_max_entries("DEVICES", interfaces)
            // The subnet and the address of each, and as many that are about to go.
            .map_max_entries("LINKS", 4 * interfaces)
            .map_max_entries("PORT_COUNTERS", interfaces)
            .load(OBJECT)?;
        let shared = Shared::new(
            (memory(&ebpf, "WORDS")?, groups as usize),
            (memory(&ebpf, "WRONG_NUMBERS")?, interfaces as usize),
            memory(&ebpf, "TOTALS")?,
        )
        .map_err(MapError::Memory)?;
        for slot in 0..groups {
            shared.set_words(slot, Words::NEW);
        }
        for number in 0..limits.interfaces {
            shared.set_wrong_numbers(Iface(number), TokenBucket::FULL.to_bits());
        }
        for total in [shared.all_requests(), shared.all_dmcasts()] {
            total.store(
                TokenBucket::FULL.to_bits(),
                std::sync::atomic::Ordering::Relaxed,
            );
        }
        let program: &mut Xdp = program(&mut ebpf)?;
        program.load()?;
        Ok(FastPath {
            limits,
            shared,
            published: Published::new(groups as usize),
            records: take(&mut ebpf, "RECORDS")?
                .try_into()
                .map_err(MapError::Map)?,
            settings: take(&mut ebpf, "SETTINGS")?
                .try_into()
                .map_err(MapError::Map)?,
            numbers: take(&mut ebpf, "NUMBERS")?
                .try_into()
                .map_err(MapError::Map)?,
            ports: take(&mut ebpf, "PORTS")?
                .try_into()
                .map_err(MapError::Map)?,
            devices: take(&mut ebpf, "DEVICES")?
                .try_into()
                .map_err(MapError::Map)?,
            links: take(&mut ebpf, "LINKS")?
                .try_into()
                .map_err(MapError::Map)?,
            drops: take(&mut ebpf, "DROPS")?
                .try_into()
                .map_err(MapError::Map)?,
            port_counters: take(&mut ebpf, "PORT_COUNTERS")?
                .try_into()
                .map_err(MapError::Map)?,
            used_numbers: 0,
            attached: BTreeMap::new(),
            ebpf,
        })
    }

    /// The time of the kernel's clock at `start`, for [`Settings`]: when the router's own clock was 0.
    pub fn start_ns(start: Instant) -> u64 {
        // Both are CLOCK_MONOTONIC.
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from);
        let start = now.saturating_sub(start.elapsed());
        u64::try_from(start.as_nanos()).unwrap_or(u64::MAX)
    }

    /// The words that program and router share.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Sets limits and secrets; the program forwards nothing before.
    ///
    /// # Errors
    /// [`MapError`] by the kernel's answer.
    pub fn set_settings(&mut self, settings: Settings) -> Result<(), MapError> {
        Ok(self.settings.set(0, Value(settings), 0)?)
    }

    /// Sets an interface of the router: its number, the kernel's number, and what the program must know of it; `is_apart` is
    /// kept by the subnets ([`FastPath::set_links`]). A number beyond the limits, or one of the kernel's from
    /// 65,536, is the router's alone.
    ///
    /// # Errors
    /// [`MapError`] by the kernel's answer: most often the interface has just gone.
    pub fn set_port(&mut self, iface: Iface, index: u32, port: Port) -> Result<(), MapError> {
        if !self.has_room(iface, index) {
            return Ok(());
        }
        let is_apart = is_apart(&self.published.subnets, iface, &port).into();
        let port = Port { is_apart, ..port };
        self.used_numbers = self.used_numbers.max(iface.0 + 1);
        // Only then packets go there.
        self.devices.set(iface.0.into(), index, None, 0)?;
        self.ports.set(iface.0.into(), Value(port), 0)?;
        Ok(self.numbers.set(index, u32::from(iface.0) + 1, 0)?)
    }

    /// Sets anew which interfaces have subnets of their own.
    pub(crate) fn set_apart(
        &mut self,
        is_apart: impl Fn(Iface, &Port) -> bool,
    ) -> Result<(), MapError> {
        for iface in (0..self.used_numbers).map(Iface) {
            let Value(port) = self.ports.get(&iface.0.into(), 0)?;
            let is_apart = is_apart(iface, &port).into();
            if port.is_apart != is_apart {
                let port = Port { is_apart, ..port };
                self.ports.set(iface.0.into(), Value(port), 0)?;
            }
        }
        Ok(())
    }

    /// Whether the tables have room for an interface.
    fn has_room(&self, iface: Iface, index: u32) -> bool {
        iface.0 < self.limits.interfaces && index < INDEX_LIMIT
    }

    /// Removes an interface; the kernel has detached the program from one that is gone.
    pub fn remove_port(&mut self, iface: Iface, index: u32) {
        if !self.has_room(iface, index) {
            return;
        }
        // What is not there need not be removed.
        let _ = self.ports.set(iface.0.into(), Value(Port::NONE), 0);
        let _ = self.numbers.set(index, 0, 0);
        self.detach(index);
    }

    /// Attaches the program to an interface, by the kernel's number. Does nothing where it is attached.
    ///
    /// # Errors
    /// [`AttachError`]: the driver and the kernel refuse it, or there is another program.
    pub fn attach(&mut self, index: u32, mode: Mode) -> Result<Attached, AttachError> {
        let native = || (XdpMode::Driver, Attached::Native);
        let generic = || (XdpMode::Skb, Attached::Generic);
        let modes = match mode {
            Mode::Auto => vec![native(), generic()],
            Mode::Native => vec![native()],
            Mode::Generic => vec![generic()],
        };
        if index >= INDEX_LIMIT {
            let name = format!("{index}: the program has numbers below {INDEX_LIMIT}");
            return Err(AttachError(ProgramError::UnknownInterface { name }));
        }
        self.detach(index);
        let program: &mut Xdp = program(&mut self.ebpf)?;
        let mut refused = None;
        for (mode, attached) in modes {
            match program.attach_to_if_index(index, mode) {
                Ok(link) => {
                    self.attached.insert(index, link);
                    return Ok(attached);
                }
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        let error = refused.unwrap_or(ProgramError::NotAttached);
        Err(AttachError(error))
    }

    /// Detaches the program from an interface.
    pub fn detach(&mut self, index: u32) {
        if let Some(link) = self.attached.remove(&index)
            && let Ok(program) = program(&mut self.ebpf)
        {
            // The kernel has done it where the interface is gone.
            let _ = program.detach(link);
        }
    }

    /// What the program counted since it was loaded: the sum of all interfaces, and packets dropped by [`Refusal::ALL`].
    ///
    /// # Errors
    /// [`MapError`] by the kernel's answer.
    pub fn counters(&self) -> Result<(PortCounters, Vec<(Refusal, u64)>), MapError> {
        let mut sum = PortCounters::default();
        for iface in 0..self.used_numbers {
            sum = sum.and(&self.port_counters(Iface(iface))?);
        }
        let mut drops = Vec::new();
        for (index, &refusal) in (0..).zip(Refusal::ALL) {
            let counts = self.drops.get(&index, 0)?;
            drops.push((refusal, counts.iter().sum()));
        }
        Ok((sum, drops))
    }

    /// What the program counted of one interface's number since it was loaded, on all processors.
    ///
    /// # Errors
    /// [`MapError`] by the kernel's answer.
    pub fn port_counters(&self, iface: Iface) -> Result<PortCounters, MapError> {
        let mut sum = PortCounters::default();
        if iface.0 < self.limits.interfaces {
            for Value(one) in self.port_counters.get(&iface.0.into(), 0)?.iter() {
                sum = sum.and(one);
            }
        }
        Ok(sum)
    }

    pub(crate) fn program(&mut self) -> Result<&mut Xdp, ProgramError> {
        program(&mut self.ebpf)
    }
}

/// A record's key in its map: source and group, as on the wire.
pub(crate) fn record_key(key: Key<Ipv4Addr>) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&key.source.octets());
    bytes[4..].copy_from_slice(&key.group.octets());
    bytes
}

fn program(ebpf: &mut Ebpf) -> Result<&mut Xdp, ProgramError> {
    let program = ebpf.program_mut(PROGRAM);
    program
        .ok_or(ProgramError::UnexpectedProgramType)?
        .try_into()
}

fn take(ebpf: &mut Ebpf, name: &str) -> Result<Map, MapError> {
    let missing = || aya::maps::MapError::InvalidName {
        name: name.to_owned(),
    };
    Ok(ebpf.take_map(name).ok_or_else(missing)?)
}

/// The descriptor of an array whose memory is mapped.
fn memory<'e>(ebpf: &'e Ebpf, name: &str) -> Result<std::os::fd::BorrowedFd<'e>, MapError> {
    use std::os::fd::AsFd as _;
    match ebpf.map(name) {
        Some(Map::Array(data)) => Ok(data.fd().as_fd()),
        _ => Err(MapError::Map(aya::maps::MapError::InvalidName {
            name: name.to_owned(),
        })),
    }
}
