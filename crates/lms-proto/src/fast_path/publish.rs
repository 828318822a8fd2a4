//! What the machine tells the driver of the fast path, and takes back.

use core::net::Ipv4Addr;
use core::num::NonZeroU16;

use proto_core::TokenBucket;

use super::records::{IFACE_LIMIT, Record, Settings, Totals, WHOLE_LINK, Words};
use crate::router::{Policy, Router};
use crate::table::{Credit, EntryId};
use crate::{Family, Iface, Key, LinkAddr, NextHop};

pub use crate::table::Changes;

impl Router<'_, Ipv4Addr> {
    /// Returns the limits and secrets: to be published again when the configuration changes. A process that reads them can forge
    /// cookies. `start_ns` is the driver's clock when that of the machine started.
    pub fn fast_path(&self, totals: Totals, start_ns: u64) -> Settings {
        let (cookies, numbers) = self.secrets();
        Settings {
            cookies,
            requests: self.request_limit,
            dmcasts: self.dmcast_limit,
            wrong_numbers: self.wrong_number_limit,
            all_requests: totals.requests,
            all_dmcasts: totals.dmcasts,
            start_ns,
            numbers,
            credit: self.credit_limit,
            udp_port: self.udp_port.map_or(0, NonZeroU16::get),
            reserved: 0,
        }
    }

    /// Returns the record of an entry; `None`: its packets are the machine's. `resolve` knows the link address of a
    /// configured replier.
    pub fn record(
        &self,
        id: EntryId,
        resolve: impl FnOnce(Iface, Ipv4Addr) -> Option<LinkAddr>,
    ) -> Option<(Key<Ipv4Addr>, Record)> {
        if !matches!(self.policy, Policy::Hierarchy | Policy::Static) {
            return None;
        }
        let entry = self.table.get(id)?;
        let key = entry.key();
        let (parent, replier) = (entry.parent(), entry.replier_iface());
        let is_near = |iface: Iface| !iface.is_set() || iface.0 < IFACE_LIMIT;
        // A repair for an interface beyond the limit may arrive on one below it.
        let are_near = is_near(parent) && self.table.downstream(id).all(is_near);
        if key.is_any_source() || !are_near {
            return None;
        }
        let (link, replier_address) = match self.next_hop(entry) {
            NextHop::Neighbour {
                link: Some(link), ..
            } => (Some(link), Ipv4Addr::UNSPECIFIED),
            NextHop::Neighbour { addr, link: None } => (Some(resolve(replier, addr)?), addr),
            NextHop::Group | NextHop::Routed => (None, Ipv4Addr::UNSPECIFIED),
        };
        if link == Some(WHOLE_LINK) {
            return None;
        }
        let turning_router = self.interface(replier).map(|config| config.address);
        Some((
            key,
            Record {
                downstream: self
                    .table
                    .downstream(id)
                    .fold(0, |bits, iface| bits | 1 << iface.0),
                slot: id.0,
                parent: parent.0,
                replier: replier.0,
                turning_router: turning_router.unwrap_or(Ipv4Addr::UNSPECIFIED),
                replier_link: link.unwrap_or(WHOLE_LINK).0,
                reserved: [0; 2],
                replier_address,
                hash: self.table.hash(key),
            },
        ))
    }
}

impl<A: Family> Router<'_, A> {
    /// Returns the entry of a request, or of the option of an encapsulated packet: the one whose words
    /// [`Router::forward`] may change. `None` where it changes none.
    pub fn entry_of(&self, packet: &[u8]) -> Option<EntryId> {
        self.table.lookup(self.key_of(packet)?)
    }

    /// Returns the buckets and the credit of an entry.
    pub fn words(&self, id: EntryId) -> Option<Words> {
        let entry = self.table.get(id)?;
        Some(Words {
            requests: entry.requests.to_bits(),
            dmcasts: entry.dmcasts.to_bits(),
            credit: entry.credit.to_bits(),
        })
    }

    /// Sets the buckets and the credit of an entry, as a driver of the fast path has them.
    pub fn set_words(&mut self, id: EntryId, words: Words) {
        if let Some(entry) = self.table.get_mut(id) {
            entry.requests = TokenBucket::from_bits(words.requests);
            entry.dmcasts = TokenBucket::from_bits(words.dmcasts);
            entry.credit = Credit::from_bits(words.credit);
        }
    }

    /// Returns the word of the wrong numbers that arrived on an interface.
    pub fn wrong_numbers(&self, iface: Iface) -> Option<u64> {
        let interface = self.interfaces.get(usize::from(iface.0))?;
        Some(interface.wrong_numbers.to_bits())
    }

    /// Sets the word of the wrong numbers that arrived on an interface.
    pub fn set_wrong_numbers(&mut self, iface: Iface, word: u64) {
        if let Some(interface) = self.interfaces.get_mut(usize::from(iface.0)) {
            interface.wrong_numbers = TokenBucket::from_bits(word);
        }
    }

    /// Returns the entries that were added, removed or changed since the last call.
    pub fn take_changes(&mut self) -> Changes {
        let links_changed = self.hierarchy.take_links_changed();
        let mut changes = self.table.take_changes();
        changes.all |= links_changed;
        changes
    }
}
