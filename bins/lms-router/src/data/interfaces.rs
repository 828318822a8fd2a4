//! The interfaces that the router uses, and their numbers.
//!
//! A number identifies an interface in the machine; in turning points it is enciphered. Numbers are small, because tables
//! are bitmaps over them. An interface that returns under the same name gets its previous number unless all others are in
//! use.

use std::collections::{BTreeMap, HashMap};
use std::net::Ipv6Addr;

use linux_net::link::{Address, Interface as Link};
use lms_proto::Iface;

use crate::config::Config;
use crate::status::{Interface as Status, InterfaceCounters};

/// Kernel numbers below this are found by index; they are rarely larger.
const DIRECT: u32 = 4096;

/// An interface that the router uses.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    pub(crate) name: String,
    /// The kernel's number.
    pub(crate) index: u32,
    pub(crate) mtu: u32,
    /// Its Ethernet address, where it has one.
    pub(crate) link: Option<[u8; 6]>,
    /// Our IPv4 address there.
    pub(crate) address: Option<Address>,
    /// Our IPv6 address there that reaches further than the link.
    pub(crate) ipv6: Option<Address<Ipv6Addr>>,
    /// Our link-local IPv6 address there.
    pub(crate) link_local: Option<Ipv6Addr>,
    pub(crate) counters: InterfaceCounters,
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Interfaces {
    /// By number.
    slots: Vec<Option<Slot>>,
    /// Number of the interface with a kernel number, `Iface::UNSET` for none.
    direct: Vec<Iface>,
    /// The same for larger kernel numbers; never iterated.
    far: HashMap<u32, Iface>,
    /// Numbers of interfaces that are gone, by name; at most one a slot.
    retired: BTreeMap<String, Iface>,
    /// Interfaces left out because all numbers are taken.
    pub(crate) refused: u64,
}

/// What changed for the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// New, or with another address: update the machine and install the routes again.
    Set(Iface),
    /// Another name: install the routes again.
    Renamed,
    /// No longer used.
    Removed(Iface),
    /// No change of the tables.
    None,
}

impl Interfaces {
    pub(crate) fn new(limit: u16) -> Interfaces {
        Interfaces {
            slots: vec![None; usize::from(limit)],
            direct: vec![Iface::UNSET; DIRECT as usize],
            far: HashMap::new(),
            retired: BTreeMap::new(),
            refused: 0,
        }
    }

    /// The number of the interface with a kernel number.
    #[inline]
    pub(crate) fn number(&self, index: u32) -> Option<Iface> {
        match self.direct.get(index as usize) {
            Some(iface) if iface.is_set() => Some(*iface),
            Some(_) => None,
            None => self.far.get(&index).copied(),
        }
    }

    /// The number of the interface with a name.
    pub(crate) fn named(&self, name: &str) -> Option<Iface> {
        let mut all = self.iter();
        all.find(|(_, slot)| slot.name == name)
            .map(|(iface, _)| iface)
    }

    #[inline]
    pub(crate) fn get(&self, iface: Iface) -> Option<&Slot> {
        self.slots.get(usize::from(iface.0))?.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, iface: Iface) -> Option<&mut Slot> {
        self.slots.get_mut(usize::from(iface.0))?.as_mut()
    }

    /// By number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Iface, &Slot)> {
        self.slots
            .iter()
            .enumerate()
            .filter_map(|(i, slot)| Some((Iface(u16::try_from(i).ok()?), slot.as_ref()?)))
    }

    /// An IPv6 address of this host that reaches further than its link.
    pub(crate) fn any_ipv6(&self) -> Option<Ipv6Addr> {
        let mut all = self.iter().filter_map(|(_, slot)| slot.ipv6);
        all.next().map(|own| own.address)
    }

    pub(crate) fn len(&self) -> usize {
        self.iter().count()
    }

    /// The state of one interface of this host, as it is now.
    pub(crate) fn update(&mut self, link: &Link, config: &Config) -> Change {
        let usable =
            link.is_up && link.is_multicast && !link.is_loopback && config.uses(&link.name);
        let known = self.number(link.index);
        if !usable {
            return known.map_or(Change::None, |iface| self.retire(iface));
        }
        let address = own_address(link, config);
        let ipv6 = own_ipv6(link, config);
        let link_local = link
            .ipv6
            .iter()
            .find(|own| own.is_usable() && own.is_link_local())
            .map(|own| own.address.address);
        let addresses = (address, ipv6, link_local);
        if let Some(slot) = known.and_then(|iface| self.get_mut(iface)) {
            let same_name = slot.name == link.name;
            let same_address = (slot.address, slot.ipv6, slot.link_local) == addresses
                && (slot.mtu, slot.link) == (link.mtu, link.link_address);
            (slot.mtu, slot.link) = (link.mtu, link.link_address);
            slot.name.clone_from(&link.name);
            (slot.address, slot.ipv6, slot.link_local) = addresses;
            return match known {
                Some(iface) if !same_address => Change::Set(iface),
                _ if !same_name => Change::Renamed,
                _ => Change::None,
            };
        }
        let Some(iface) = self.choose(&link.name) else {
            self.refused += 1;
            tracing::warn!(
                event = "interface_left_out",
                interface = link.name,
                "interface left out: limits.interfaces is reached"
            );
            return Change::None;
        };
        self.slots[usize::from(iface.0)] = Some(Slot {
            name: link.name.clone(),
            index: link.index,
            mtu: link.mtu,
            link: link.link_address,
            address,
            ipv6,
            link_local,
            counters: InterfaceCounters::default(),
        });
        match self.direct.get_mut(link.index as usize) {
            Some(direct) => *direct = iface,
            None => {
                self.far.insert(link.index, iface);
            }
        }
        tracing::info!(
            event = "interface_in_use",
            interface = link.name,
            number = iface.0,
            "interface in use"
        );
        Change::Set(iface)
    }

    /// An interface of this host is gone.
    pub(crate) fn remove(&mut self, index: u32) -> Change {
        self.number(index)
            .map_or(Change::None, |iface| self.retire(iface))
    }

    fn retire(&mut self, iface: Iface) -> Change {
        let Some(slot) = self
            .slots
            .get_mut(usize::from(iface.0))
            .and_then(Option::take)
        else {
            return Change::None;
        };
        match self.direct.get_mut(slot.index as usize) {
            Some(direct) => *direct = Iface::UNSET,
            None => {
                self.far.remove(&slot.index);
            }
        }
        tracing::info!(
            event = "interface_removed",
            interface = slot.name,
            number = iface.0,
            "interface no longer in use"
        );
        self.retired.insert(slot.name, iface);
        Change::Removed(iface)
    }

    /// Returns the number that an interface had before, else one that was never used, else the lowest free one.
    fn choose(&mut self, name: &str) -> Option<Iface> {
        if let Some(before) = self.retired.remove(name)
            && self.get(before).is_none()
        {
            return Some(before);
        }
        let free = |(i, slot): (usize, &Option<Slot>)| match slot {
            None => u16::try_from(i).ok().map(Iface),
            Some(_) => None,
        };
        let mut numbers = self.slots.iter().enumerate().filter_map(free);
        let unused = numbers
            .clone()
            .find(|iface| !self.retired.values().any(|old| old == iface));
        let chosen = unused.or_else(|| numbers.next())?;
        self.retired.retain(|_, old| *old != chosen);
        Some(chosen)
    }

    /// For the status.
    pub(crate) fn status(&self) -> Vec<Status> {
        let status = |(iface, slot): (Iface, &Slot)| Status {
            name: slot.name.clone(),
            number: iface.0,
            index: slot.index,
            address: slot.address.map(|address| address.address.to_string()),
            prefix_len: slot.address.map_or(0, |address| address.prefix_len),
            ipv6: slot
                .ipv6
                .map(|own| format!("{}/{}", own.address, own.prefix_len)),
            link_local: slot.link_local.map(|own| own.to_string()),
            mtu: slot.mtu,
            fast_path: None,
            counters: slot.counters,
        };
        self.iter().map(status).collect()
    }

    /// A name to show.
    pub(crate) fn name(&self, iface: Iface) -> String {
        self.get(iface)
            .map_or_else(|| format!("#{}", iface.0), |slot| slot.name.clone())
    }
}

/// The configured address where the interface has it, else its primary one.
fn own_address(link: &Link, config: &Config) -> Option<Address> {
    let primary = link.addresses.first().copied();
    let Some(wanted) = config.interface(&link.name).and_then(|rule| rule.address) else {
        return primary;
    };
    let found = link
        .addresses
        .iter()
        .find(|address| address.address == wanted)
        .copied();
    if found.is_none() {
        tracing::warn!(event = "address_not_found", interface = link.name,
            address = %wanted,
            "the interface does not have the configured address; its primary one is used"
        );
    }
    found.or(primary)
}

/// The configured IPv6 address where the interface has it, else the first that reaches further than the link.
fn own_ipv6(link: &Link, config: &Config) -> Option<Address<Ipv6Addr>> {
    let usable = || {
        let wide = link.ipv6.iter();
        wide.filter(|own| own.is_usable() && !own.is_link_local())
            .map(|own| own.address)
    };
    let primary = usable().next();
    let Some(wanted) = config.interface(&link.name).and_then(|rule| rule.ipv6) else {
        return primary;
    };
    let found = usable().find(|own| own.address == wanted);
    if found.is_none() {
        tracing::warn!(event = "address_not_found", interface = link.name,
            address = %wanted,
            "the interface does not have the configured address; its first one is used"
        );
    }
    found.or(primary)
}

#[cfg(test)]
mod tests {
    use daemon_kit::daemon::Configuration;

    use super::*;

    fn link(index: u32, name: &str) -> Link {
        let address = Address {
            address: [10, 0, index as u8, 1].into(),
            prefix_len: 24,
        };
        Link {
            index,
            name: name.to_owned(),
            mtu: 1500,
            is_up: true,
            is_running: true,
            is_multicast: true,
            addresses: vec![address],
            ..Link::default()
        }
    }

    fn config(text: &str) -> Config {
        Config::parse(text).unwrap()
    }

    #[test]
    fn numbers_are_small_and_stay() {
        let (mut all, config) = (Interfaces::new(4), config(""));
        assert_eq!(all.update(&link(70, "a"), &config), Change::Set(Iface(0)));
        assert_eq!(
            all.update(&link(100_000, "b"), &config),
            Change::Set(Iface(1))
        );
        assert_eq!(all.number(100_000), Some(Iface(1)));
        assert_eq!(all.update(&link(70, "a"), &config), Change::None);
        assert_eq!(all.remove(70), Change::Removed(Iface(0)));
        // Another name does not get the number of one that may come back.
        assert_eq!(all.update(&link(71, "c"), &config), Change::Set(Iface(2)));
        assert_eq!(all.update(&link(72, "a"), &config), Change::Set(Iface(0)));
        // A renamed interface keeps its number.
        assert_eq!(all.update(&link(71, "renamed"), &config), Change::Renamed);
        assert_eq!(all.update(&link(71, "renamed"), &config), Change::None);
        assert_eq!(all.named("renamed"), Some(Iface(2)));
    }

    #[test]
    fn numbers_of_the_gone_are_reused_last_and_the_limit_holds() {
        let (mut all, config) = (Interfaces::new(2), config(""));
        all.update(&link(1, "a"), &config);
        all.update(&link(2, "b"), &config);
        assert_eq!(all.update(&link(3, "c"), &config), Change::None);
        assert_eq!((all.refused, all.len()), (1, 2));
        all.remove(1);
        assert_eq!(all.update(&link(3, "c"), &config), Change::Set(Iface(0)));
        all.remove(2);
        assert_eq!(all.update(&link(4, "a"), &config), Change::Set(Iface(1)));
    }

    #[test]
    fn what_is_not_used() {
        let config = config("[[interface]]\nname = \"no*\"\nuse = false");
        let mut all = Interfaces::new(8);
        assert_eq!(all.update(&link(1, "no1"), &config), Change::None);
        let down = Link {
            is_up: false,
            ..link(2, "a")
        };
        assert_eq!(all.update(&down, &config), Change::None);
        all.update(&link(2, "a"), &config);
        assert_eq!(all.update(&down, &config), Change::Removed(Iface(0)));
        let loopback = Link {
            is_loopback: true,
            ..link(3, "lo")
        };
        assert_eq!(all.update(&loopback, &config), Change::None);
    }

    #[test]
    fn the_configured_address_decides_where_the_interface_has_it() {
        let config = config("[[interface]]\nname = \"a\"\naddress = \"10.9.9.9\"");
        let mut all = Interfaces::new(8);
        let mut both = link(1, "a");
        all.update(&both, &config);
        assert_eq!(all.get(Iface(0)).unwrap().address, Some(both.addresses[0]));
        let second = Address {
            address: [10, 9, 9, 9].into(),
            prefix_len: 16,
        };
        both.addresses.push(second);
        assert_eq!(all.update(&both, &config), Change::Set(Iface(0)));
        assert_eq!(all.get(Iface(0)).unwrap().address, Some(second));
    }
}
