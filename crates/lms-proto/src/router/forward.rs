//! The forwarding path: one packet in, edited in place, one verdict out. No walk over anything.

use core::net::Ipv4Addr;
use core::ops::Range;

use proto_core::Forward;

use super::policy::Way;
use super::verdict::Turn;
use super::{DropReason, Event, Interface, Meta, Output, Policy, Router, SecondCopy, Verdict};
use crate::carrier::{Carrier, Class, Dmcast, Encapsulated, Request};
use crate::hier::Hierarchy;
use crate::rule::{self, Action, Role, Tree};
use crate::table::{Entry, EntryId, Prefix};
use crate::types::is_host;
use crate::wire::ipv4;
use crate::{Iface, Instant, NextHop};

const UDP_HEADER_LEN: usize = 8;

impl<C: Carrier> Forward for Router<'_, C> {
    type Meta = Meta;
    type Verdict = Verdict;

    #[inline]
    fn forward(&mut self, now: Instant, meta: &Meta, packet: &mut [u8]) -> Verdict {
        Router::forward(self, now, meta, packet)
    }
}

impl<C: Carrier> Router<'_, C> {
    /// Forwards one packet: a whole IPv4 packet, with or without the padding of its frame. The bytes are
    /// edited only where the verdict is [`Verdict::Forward`] or [`Verdict::Multicast`]. The same as
    /// [`Forward::forward`], without an import.
    ///
    /// Allocates nothing; the cost does not depend on the number of groups or interfaces.
    #[inline]
    pub fn forward(&mut self, now: Instant, meta: &Meta, packet: &mut [u8]) -> Verdict {
        let meta = *meta;
        match C::classify(packet) {
            Ok(Class::Request(request)) => match self.policy {
                Policy::SearchParty { .. } => self.party(now, meta, &request, packet),
                _ => match self.request(now, meta, &request, packet) {
                    Ok(output) => Verdict::Forward {
                        output,
                        packet: 0..request.len,
                        second: None,
                    },
                    Err(reason) => self.drop(reason),
                },
            },
            Ok(Class::Encapsulated(outer)) => match self.dmcast(now, meta, &outer, packet) {
                Ok(Some((iface, packet))) => Verdict::Multicast { iface, packet },
                Ok(None) => self.pass(),
                Err(reason) => self.drop(reason),
            },
            Ok(Class::Other) => self.pass(),
            Err(malformed) => self.drop(malformed.into()),
        }
    }

    fn pass(&mut self) -> Verdict {
        self.stats.passed += 1;
        Verdict::Pass
    }

    fn drop(&mut self, reason: DropReason) -> Verdict {
        self.stats.count_drop(reason);
        Verdict::Drop(reason)
    }

    /// Makes the second copy of a request under Search Party out of the bytes of the first
    /// (`packet` of [`Verdict::Forward`]), and says where it goes.
    pub fn second_copy(&self, copy: SecondCopy, packet: &mut [u8]) -> Output {
        if let Some((option_at, turn)) = copy.turn {
            C::turn(packet, option_at, turn.router, turn.number);
        }
        copy.output
    }

    /// A request under any policy that knows a replier: the rule decides.
    #[inline]
    fn request(
        &mut self,
        now: Instant,
        meta: Meta,
        request: &Request,
        packet: &mut [u8],
    ) -> Result<Output, DropReason> {
        let (id, prefix) = self.lookup(request)?;
        if let Policy::Random { redraw } = self.policy {
            self.refresh_draw(now, id, redraw);
        }
        let (entry, set) = self.table.entry_and_set(id).ok_or(DropReason::NoEntry)?;
        let tree = Tree {
            parent: entry.parent,
            replier: entry.replier_iface(),
        };
        let replier = next_hop(&self.hierarchy, entry);
        let role = match tree.role(meta.iface, set.contains(meta.iface)) {
            Role::Replier if is_beside(replier, meta, request, &self.interfaces) => {
                Role::Downstream
            }
            role => role,
        };
        let (output, router) = match rule::decide(role, request.turned, tree.replier.is_set()) {
            Action::Drop(reason) => return Err(reason.into()),
            Action::ToParent if !tree.parent.is_set() => return Err(DropReason::NoParent),
            Action::ToParent => (
                Output {
                    iface: tree.parent,
                    next_hop: NextHop::Group,
                },
                None,
            ),
            action => {
                let output = Output {
                    iface: tree.replier,
                    next_hop: replier,
                };
                let router = match action {
                    Action::Turn => {
                        Some(turning_address(&self.interfaces, output.iface, meta.iface)?)
                    }
                    _ => None,
                };
                (output, router)
            }
        };
        if request.hop_limit <= 1 {
            return Err(DropReason::TtlExpired);
        }
        if !entry.requests.take(now, &self.request_limit) {
            return Err(DropReason::RequestRate);
        }
        // Last, for it costs most.
        let turn = router.map(|router| Turn {
            router,
            number: self.numbers.number(now, prefix, meta.iface),
        });
        if turn.is_some() {
            self.expect_repairs(now, id, request);
        }
        self.edit(request, turn, packet);
        Ok(output)
    }

    /// A request is turned: its repairs may come. Has the source of a shared tree looked for.
    #[inline]
    fn expect_repairs(&mut self, now: Instant, id: EntryId, request: &Request) {
        let Some(entry) = self.table.get_mut(id) else {
            return;
        };
        entry.add_credit(now, &self.credit_limit);
        if !entry.key().is_any_source() || !is_host(request.key.source) {
            return;
        }
        let (key, parent) = (request.key, entry.parent);
        if self.sources.is_wanted(now, key)
            && !self.events.push(Event::SourceWanted { key, parent })
        {
            self.stats.events_lost += 1;
        }
    }

    #[inline]
    fn lookup(&self, request: &Request) -> Result<(EntryId, Prefix), DropReason> {
        if request.key.group != request.destination {
            return Err(DropReason::GroupMismatch);
        }
        let prefix = self.table.prefix(request.key);
        let id = self.table.lookup_hashed(request.key, prefix);
        Ok((id.ok_or(DropReason::NoEntry)?, prefix))
    }

    /// A request under Search Party.
    fn party(&mut self, now: Instant, meta: Meta, request: &Request, packet: &mut [u8]) -> Verdict {
        let (output, second) = match self.party_copies(now, meta, request, packet) {
            Ok(copies) => copies,
            Err(reason) => return self.drop(reason),
        };
        let second = second.map(|(output, turn)| {
            self.count_request(request, turn);
            SecondCopy {
                output,
                turn: turn.map(|turn| (request.option_at, turn)),
            }
        });
        Verdict::Forward {
            output,
            packet: 0..request.len,
            second,
        }
    }

    /// The rule says whether the request may pass, chance says where its copies go. Edits the
    /// packet into the first copy.
    #[expect(clippy::type_complexity, reason = "two copies, the second maybe")]
    fn party_copies(
        &mut self,
        now: Instant,
        meta: Meta,
        request: &Request,
        packet: &mut [u8],
    ) -> Result<(Output, Option<(Output, Option<Turn>)>), DropReason> {
        let (id, prefix) = self.lookup(request)?;
        let entry = self.table.get(id).ok_or(DropReason::NoEntry)?;
        let tree = Tree {
            parent: entry.parent,
            replier: entry.replier_iface(),
        };
        let role = tree.role(meta.iface, self.table.is_downstream(id, meta.iface));
        // With no hierarchy there is no replier, and none is needed.
        if let Action::Drop(reason) = rule::decide(role, request.turned, true) {
            return Err(reason.into());
        }
        let (first, second) = self.search_party(id, meta.iface, role, tree.parent.is_set());
        let no_way = if role == Role::Parent {
            DropReason::NoReplier
        } else {
            DropReason::NoParent
        };
        let plan = |way| self.plan(now, (id, prefix), meta.iface, request, way);
        let (output, turn) = plan(first.ok_or(no_way)?)?;
        let second = second.and_then(|way| plan(way).ok());
        if request.hop_limit <= 1 {
            return Err(DropReason::TtlExpired);
        }
        if !self.take_request_token(now, id) {
            return Err(DropReason::RequestRate);
        }
        let second = second.filter(|_| self.take_request_token(now, id));
        let turns = [turn, second.and_then(|(_, turn)| turn)];
        for _ in turns.iter().flatten() {
            self.expect_repairs(now, id, request);
        }
        self.edit(request, turn, packet);
        Ok((output, second))
    }

    /// Returns the output of a copy and its turning point.
    fn plan(
        &self,
        now: Instant,
        (id, prefix): (EntryId, Prefix),
        arrival: Iface,
        request: &Request,
        way: Way,
    ) -> Result<(Output, Option<Turn>), DropReason> {
        let entry = self.table.get(id).ok_or(DropReason::NoEntry)?;
        match way {
            Way::Up => Ok((
                Output {
                    iface: entry.parent,
                    next_hop: NextHop::Group,
                },
                None,
            )),
            Way::Down(iface) => {
                let next_hop = match iface == entry.replier_iface() {
                    true => next_hop(&self.hierarchy, entry),
                    false => NextHop::Group,
                };
                let turned = request.turned;
                let turn = match turned {
                    true => None,
                    false => Some(Turn {
                        router: turning_address(&self.interfaces, iface, arrival)?,
                        number: self.numbers.number(now, prefix, arrival),
                    }),
                };
                Ok((Output { iface, next_hop }, turn))
            }
        }
    }

    fn take_request_token(&mut self, now: Instant, id: EntryId) -> bool {
        let limit = self.request_limit;
        self.table
            .get_mut(id)
            .is_some_and(|entry| entry.requests.take(now, &limit))
    }

    #[inline]
    fn edit(&mut self, request: &Request, turn: Option<Turn>, packet: &mut [u8]) {
        match turn {
            Some(Turn { router, number }) => {
                C::hop_and_turn(packet, request.option_at, router, number);
            }
            None => C::hop(packet),
        }
        self.count_request(request, turn);
    }

    #[inline]
    fn count_request(&mut self, request: &Request, turn: Option<Turn>) {
        match (request.turned, turn) {
            (true, _) => self.stats.requests_to_replier += 1,
            (false, Some(_)) => self.stats.requests_turned += 1,
            (false, None) => self.stats.requests_to_parent += 1,
        }
    }

    /// A dmcast addressed to this router (LMS §6.4.4): every check before anything changes. `None`:
    /// not for this router, or no dmcast.
    #[inline]
    fn dmcast(
        &mut self,
        now: Instant,
        meta: Meta,
        outer: &Encapsulated,
        packet: &mut [u8],
    ) -> Result<Option<(Iface, Range<usize>)>, DropReason> {
        if !self.is_own_address(outer.to, meta.iface) {
            return Ok(None);
        }
        let Some(dmcast) = C::open(packet, outer)? else {
            return Ok(None);
        };
        check_dmcast(&dmcast, outer.to)?;
        let prefix = self.table.prefix(dmcast.key);
        let id = self.table.lookup_hashed(dmcast.key, prefix);
        let id = id.ok_or(DropReason::NoEntry)?;
        self.check_origin(now, meta.iface, id, outer, &dmcast)?;
        let iface = self.turning_interface(now, meta.iface, (id, prefix), dmcast.iface)?;
        if dmcast.hop_limit <= 1 {
            return Err(DropReason::InnerTtlExpired);
        }
        let entry = self.table.get_mut(id).ok_or(DropReason::NoEntry)?;
        if !entry.dmcasts.take(now, &self.dmcast_limit) {
            return Err(DropReason::DmcastRate);
        }
        entry.spend_credit();
        let inner = C::strip(packet, &dmcast.inner);
        if let Some(inner) = packet.get_mut(inner.clone()) {
            C::hop(inner);
        }
        self.stats.dmcasts += 1;
        Ok(Some((iface, inner)))
    }

    /// Checks that a dmcast arrived on an interface of its entry's tree, from a host that may be there, with
    /// a packet of a source that the kernel has seen.
    #[inline]
    fn check_origin(
        &self,
        now: Instant,
        arrival: Iface,
        id: EntryId,
        outer: &Encapsulated,
        dmcast: &Dmcast,
    ) -> Result<(), DropReason> {
        let entry = self.table.get(id).ok_or(DropReason::NoEntry)?;
        let tree = Tree {
            parent: entry.parent,
            replier: Iface::UNSET,
        };
        if tree.role(arrival, self.table.is_downstream(id, arrival)) == Role::Outside {
            return Err(DropReason::NotOnTree);
        }
        if !self.may_come_from(outer.from, arrival) {
            return Err(DropReason::OuterSource);
        }
        // A source tree's entry has the source that the option and the inner packet name.
        if entry.key().is_any_source() && !self.sources.contain(now, dmcast.key) {
            return Err(DropReason::SourceNotSeen);
        }
        Ok(())
    }

    /// Returns the interface that a dmcast's number stands for, where a repair is due. Wrong numbers count
    /// against the interface that they arrived on.
    #[inline]
    fn turning_interface(
        &mut self,
        now: Instant,
        arrival: Iface,
        (id, prefix): (EntryId, Prefix),
        number: Iface,
    ) -> Result<Iface, DropReason> {
        let entry = self.table.get(id).ok_or(DropReason::NoEntry)?;
        if !entry.has_credit(now) {
            return Err(DropReason::NoCredit);
        }
        let limit = self.wrong_number_limit;
        let interface = self.interfaces.get_mut(usize::from(arrival.0));
        let wrong_numbers = &mut interface.ok_or(DropReason::NotOnTree)?.wrong_numbers;
        if !wrong_numbers.has_token(now, &limit) {
            return Err(DropReason::WrongNumberRate);
        }
        let mut candidates = self.numbers.interfaces(now, prefix, number);
        let Some(iface) = candidates.find(|&iface| self.table.is_downstream(id, iface)) else {
            wrong_numbers.take(now, &limit);
            return Err(DropReason::NotDownstream);
        };
        Ok(iface)
    }
}

/// Whether a dmcast to `address` of this router agrees with itself.
#[inline]
fn check_dmcast(dmcast: &Dmcast, address: Ipv4Addr) -> Result<(), DropReason> {
    if !dmcast.iface.is_set() {
        Err(DropReason::NoTurningPoint)
    } else if dmcast.router != address {
        Err(DropReason::OtherTurningPoint)
    } else if dmcast.source != dmcast.key.source {
        Err(DropReason::InnerSourceMismatch)
    } else if dmcast.destination != dmcast.key.group {
        Err(DropReason::InnerGroupMismatch)
    } else {
        check_datagram(dmcast)
    }
}

/// What a router multicasts in the source's name is a whole UDP datagram without options.
#[inline]
fn check_datagram(dmcast: &Dmcast) -> Result<(), DropReason> {
    if dmcast.has_options {
        Err(DropReason::InnerOption)
    } else if dmcast.is_fragment {
        Err(DropReason::InnerFragment)
    } else if dmcast.protocol != ipv4::PROTOCOL_UDP {
        Err(DropReason::InnerProtocol)
    } else if dmcast.payload_len < UDP_HEADER_LEN {
        Err(DropReason::InnerPacketLength)
    } else {
        Ok(())
    }
}

/// The address in the turning point of a request that arrived on `arrival` and goes down `towards`
/// the replier: that on the replier's side, which the replier is most likely to reach.
#[inline]
fn turning_address(
    interfaces: &[Interface],
    towards: Iface,
    arrival: Iface,
) -> Result<Ipv4Addr, DropReason> {
    let config = |iface: Iface| interfaces.get(usize::from(iface.0))?.config;
    let config = config(towards)
        .or_else(|| config(arrival))
        .ok_or(DropReason::NoAddress)?;
    Ok(config.address)
}

/// Whether a request that arrived on the replier's interface is not the replier's, but of another
/// neighbour on that link: by the address of its frame, else by its own where it is of that link.
#[inline]
fn is_beside(replier: NextHop, meta: Meta, request: &Request, interfaces: &[Interface]) -> bool {
    let NextHop::Neighbour { addr, link } = replier else {
        return false;
    };
    match (link, meta.link_source) {
        (Some(replier), Some(sender)) => replier != sender,
        _ => {
            let here = interfaces.get(usize::from(meta.iface.0));
            let here = here.and_then(|interface| interface.config);
            here.is_some_and(|here| here.on_link(request.sender)) && request.sender != addr
        }
    }
}

/// Where on its link the replier is: the neighbour table knows the elected one.
#[inline]
fn next_hop(hierarchy: &Hierarchy<'_>, entry: &Entry) -> NextHop {
    match entry.peer() {
        Some(peer) => hierarchy.next_hop(peer),
        None => entry.fixed_next_hop(),
    }
}
