//! The fast path in the driver: the XDP program, which has what the data thread publishes. It forwards IPv4; the packets
//! that it leaves come in by the ring as ever.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant as StdInstant;

use linux_net::{ethtool, xdp};
use lms_proto::fast_path::{Port, Totals, Words};
use lms_proto::table::EntryId;
use lms_proto::{Duration, Family, Iface, Instant, LinkAddr, Router};
use lms_xdp::{Attached, FastPath, Limits, LoadError, MapError, Mode, PortCounters, Refusal};
use proto_core::{RateLimit, TokenBucket};

use super::interfaces::{Interfaces, Slot};
use super::limit::TotalLimit;
use super::resolve::Resolver;
use crate::config::Config;

/// How often it is looked whether programs can send on an interface: no notification says so.
const REFRESH: Duration = Duration::from_secs(10);

/// The loaded program, and what it was told.
#[derive(Debug)]
pub(crate) struct Fast {
    program: FastPath,
    mode: Mode,
    /// The time of the kernel's clock when the machine's was 0.
    start_ns: u64,
    /// By number.
    ports: BTreeMap<Iface, Attachment>,
    /// The subnets are published; else outer sources are judged by the machine alone.
    has_links: bool,
    features: Option<xdp::Features>,
    /// When to look again whether programs can send on the interfaces.
    refresh_at: Instant,
    /// Log the next failure of a map.
    may_log: bool,
}

/// An interface that the program was told.
#[derive(Debug)]
struct Attachment {
    /// The kernel's number.
    index: u32,
    /// Where the program runs on it, if it does.
    attached: Option<Attached>,
    /// What the program had counted of its number before.
    before: PortCounters,
}

/// What the program counted.
#[derive(Debug, Default)]
pub(super) struct Readings {
    pub(super) counters: PortCounters,
    pub(super) refusals: Vec<(Refusal, u64)>,
    /// Entries that the kernel did not take.
    pub(super) refused: u64,
}

impl Readings {
    /// Packets dropped for a reason.
    pub(super) fn count(&self, wanted: Refusal) -> u64 {
        let found = self.refusals.iter().find(|(refusal, _)| *refusal == wanted);
        found.map_or(0, |(_, count)| *count)
    }
}

/// The words that the machine has while it forwards a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    /// Those of the packet's entry, where the program forwards it too.
    entry: Option<(EntryId, Words)>,
    /// The wrong numbers that arrived on the packet's interface, of any entry.
    wrong_numbers: u64,
    iface: Iface,
}

impl Fast {
    /// Loads the program.
    pub(crate) fn load(config: &Config, mode: Mode) -> Result<Fast, LoadError> {
        let limits = Limits {
            groups: config.limits.groups,
            interfaces: config.limits.interfaces,
        };
        Ok(Fast {
            program: FastPath::load(limits)?,
            mode,
            start_ns: 0,
            ports: BTreeMap::new(),
            has_links: false,
            features: xdp::Features::open().ok(),
            refresh_at: Instant::ZERO,
            may_log: true,
        })
    }

    /// The machine's clock was 0 at `started`.
    pub(super) fn started(&mut self, started: StdInstant) {
        self.start_ns = FastPath::start_ns(started);
    }

    /// Publishes limits, interfaces and all entries: the configuration or the interfaces changed.
    pub(super) fn publish_all(
        &mut self,
        router: &mut Router<'static>,
        resolver: &mut Resolver<Ipv4Addr>,
        interfaces: &Interfaces,
        totals: Totals,
    ) {
        let settings = router.fast_path(totals, self.start_ns);
        let result = self.program.set_settings(settings);
        self.log(result);
        let result = self.program.set_links(router.interfaces());
        self.has_links = result.is_ok();
        self.log(result);
        self.follow_interfaces(interfaces);
        let resolve = |iface, address| find(resolver, interfaces, iface, address);
        self.program.publish_all(router, resolve);
    }

    /// Publishes what changed in the entries.
    pub(super) fn publish(
        &mut self,
        now: Instant,
        router: &mut Router<'static>,
        resolver: &mut Resolver<Ipv4Addr>,
        interfaces: &Interfaces,
    ) {
        let resolved = resolver.take_changed();
        let resolve = |iface, address| find(resolver, interfaces, iface, address);
        if resolved {
            self.program.publish_all(router, resolve);
        } else {
            self.program.publish(router, resolve);
        }
        if now >= self.refresh_at {
            self.refresh_at = now + REFRESH;
            self.set_ports(interfaces);
        }
    }

    /// When [`Fast::publish`] has something to do besides changes of entries.
    pub(super) fn poll_timeout(&self) -> Instant {
        self.refresh_at
    }

    /// Attaches the program to new interfaces, and forgets those that are gone.
    fn follow_interfaces(&mut self, interfaces: &Interfaces) {
        let gone =
            |iface: Iface, index: u32| interfaces.get(iface).is_none_or(|slot| slot.index != index);
        let old = self.ports.iter().map(|(iface, port)| (*iface, port.index));
        let old: Vec<_> = old.filter(|(iface, index)| gone(*iface, *index)).collect();
        for (iface, index) in old {
            self.program.remove_port(iface, index);
            self.ports.remove(&iface);
        }
        for (iface, slot) in interfaces.iter() {
            // The program reads Ethernet frames.
            if slot.link.is_some() && !self.ports.contains_key(&iface) {
                let port = Attachment {
                    index: slot.index,
                    before: self.program.port_counters(iface).unwrap_or_default(),
                    attached: self.attach(slot),
                };
                self.ports.insert(iface, port);
            }
        }
        self.set_ports(interfaces);
    }

    fn attach(&mut self, slot: &Slot) -> Option<Attached> {
        // A veth hands on checksums that its peer left to be computed: the driver's frames do not show it.
        let is_veth = || ethtool::driver(&slot.name).is_ok_and(|driver| driver == "veth");
        // Before Linux 6.3 it is not known which drivers can send what a program redirects.
        let mode = match self.mode {
            Mode::Auto if self.features.is_none() || is_veth() => Mode::Generic,
            mode => mode,
        };
        match self.program.attach(slot.index, mode) {
            Ok(attached) => {
                let mode = match attached {
                    Attached::Native => "native",
                    Attached::Generic => "generic",
                };
                tracing::info!(
                    event = "xdp_attached",
                    interface = slot.name,
                    mode,
                    "forwarding in XDP on the interface"
                );
                Some(attached)
            }
            Err(error) => {
                let hint = match error.is_busy() {
                    true => "another XDP program is attached: `ip link` shows it",
                    false => "the packet ring forwards there",
                };
                tracing::warn!(
                    event = "xdp_refused",
                    interface = slot.name,
                    %error,
                    "no XDP on the interface: {hint}"
                );
                None
            }
        }
    }

    fn set_ports(&mut self, interfaces: &Interfaces) {
        // A packet that came in by a driver leaves by one; the kernel sends those of generic mode on any interface.
        let mut ports = self.ports.values();
        let any_native = ports.any(|port| port.attached == Some(Attached::Native));
        for (iface, slot) in interfaces.iter() {
            let Some(link) = slot.link else { continue };
            let can_send = !any_native || self.can_send(slot.index);
            let address = slot.address.filter(|_| self.has_links);
            let port = Port {
                mtu: if can_send { slot.mtu } else { 0 },
                address: address.map_or(Ipv4Addr::UNSPECIFIED, |own| own.address),
                prefix_len: slot.address.map_or(0, |own| own.prefix_len),
                link,
                ..Port::NONE
            };
            let result = self.program.set_port(iface, slot.index, port);
            self.log(result);
        }
    }

    fn can_send(&mut self, index: u32) -> bool {
        match &mut self.features {
            Some(features) => features.can_send(index).unwrap_or(false),
            // The administrator says so: the mode is `native`.
            None => true,
        }
    }

    /// Logs the first failure: what could not be published stays with the machine.
    fn log(&mut self, result: Result<(), MapError>) {
        if let Err(error) = result
            && std::mem::take(&mut self.may_log)
        {
            tracing::warn!(event = "xdp_map_failed", %error, "cannot publish to the XDP program: the packet ring forwards instead");
        }
    }

    /// Gives the machine the words that a packet of an entry may change, and the program too.
    #[inline]
    pub(super) fn lend<A: Family + Into<IpAddr>>(
        &self,
        router: &mut Router<'static, A>,
        packet: &[u8],
        iface: Iface,
    ) -> Option<Held> {
        let id = router.entry_of(packet)?;
        let shared = self.program.shared();
        let wrong_numbers = shared.wrong_numbers(iface)?;
        router.set_wrong_numbers(iface, wrong_numbers);
        let key = router.table().get(id)?.key();
        let words = match self.program.is_published(id, key) {
            true => shared.words(id.index() as u32),
            false => None,
        };
        if let Some(words) = words {
            router.set_words(id, words);
        }
        Some(Held {
            entry: words.map(|words| (id, words)),
            wrong_numbers,
            iface,
        })
    }

    /// Takes them back; false where the program has changed them meanwhile, and the packet must be dropped.
    #[inline]
    #[must_use]
    pub(super) fn take_back<A: Family>(&self, router: &Router<'static, A>, held: Held) -> bool {
        let shared = self.program.shared();
        let after = router.wrong_numbers(held.iface);
        let after = after.unwrap_or(held.wrong_numbers);
        let is_whole = shared.replace_wrong_numbers(held.iface, held.wrong_numbers, after);
        let Some((id, before)) = held.entry else {
            return is_whole;
        };
        let Some(after) = router.words(id) else {
            return is_whole;
        };
        shared.replace_words(id.index() as u32, before, after) && is_whole
    }

    /// Whether one more request may pass now, by the limit of all groups.
    #[inline]
    pub(super) fn take_request(&self, now: Instant, limit: &TotalLimit) -> bool {
        take(self.program.shared().all_requests(), now, limit.rate())
    }

    /// Whether one more dmcast may pass now, by the limit of all groups.
    #[inline]
    pub(super) fn take_dmcast(&self, now: Instant, limit: &TotalLimit) -> bool {
        take(self.program.shared().all_dmcasts(), now, limit.rate())
    }

    /// What the program counted.
    pub(super) fn readings(&self) -> Readings {
        let (counters, refusals) = self.program.counters().unwrap_or_default();
        Readings {
            counters,
            refusals,
            refused: self.program.published().refused(),
        }
    }

    /// The entries that the program forwards.
    pub(super) fn published(&self) -> u64 {
        self.program.published().len() as u64
    }

    /// What the program counted of an interface.
    pub(super) fn port(&self, iface: Iface) -> PortCounters {
        let now = self.program.port_counters(iface).unwrap_or_default();
        let Some(Attachment { before, .. }) = self.ports.get(&iface) else {
            return PortCounters::default();
        };
        now.since(before)
    }

    /// Where the program runs on an interface.
    pub(super) fn mode(&self, iface: Iface) -> &'static str {
        match self.ports.get(&iface).and_then(|port| port.attached) {
            Some(Attached::Native) => "native",
            Some(Attached::Generic) => "generic",
            None => "ring",
        }
    }
}

fn take(word: &AtomicU64, now: Instant, limit: &RateLimit) -> bool {
    let now_ns = now.total_micros().saturating_mul(1_000);
    let taken = |bits| {
        Some(
            TokenBucket::from_bits(bits)
                .taken_ns(now_ns, limit)?
                .to_bits(),
        )
    };
    word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken)
        .is_ok()
}

fn find(
    resolver: &mut Resolver<Ipv4Addr>,
    interfaces: &Interfaces,
    iface: Iface,
    address: Ipv4Addr,
) -> Option<LinkAddr> {
    let slot = interfaces.get(iface)?;
    resolver.find(slot.index, address).map(LinkAddr)
}
