//! The forwarding path: one packet in, edited in place, one verdict out. No walk over anything.

use core::num::NonZeroU16;
use core::ops::Range;

use proto_core::Forward;

use super::numbers::period;
use super::policy::Way;
use super::verdict::Edit;
use super::{DropReason, Event, Interface, Meta, Output, Policy, Router, SecondCopy, Verdict};
use crate::carrier::{Carrier, Class, Dmcast, Request, Udp, Upward};
use crate::hier::Hierarchy;
use crate::rule::{self, Action, Role, Tree};
use crate::table::{Entry, EntryId, KeyHash, tick};
use crate::wire::found::Turn;
use crate::wire::ipv4;
use crate::{Family, Iface, Instant, Key, NextHop};

const UDP_HEADER_LEN: usize = 8;

impl<A: Family> Forward for Router<'_, A> {
    type Meta = Meta;
    type Verdict = Verdict<A>;

    #[inline]
    fn forward(&mut self, now: Instant, meta: &Meta, packet: &mut [u8]) -> Verdict<A> {
        Router::forward(self, now, meta, packet)
    }
}

impl<A: Family> Router<'_, A> {
    /// Forwards one packet: a whole IP packet of the router's family, with or without the padding of its frame. The
    /// bytes are edited only where the verdict is [`Verdict::Forward`] or [`Verdict::Multicast`]. The same as
    /// [`Forward::forward`], without an import.
    ///
    /// Allocates nothing; the cost does not depend on the number of groups or interfaces.
    #[inline]
    pub fn forward(&mut self, now: Instant, meta: &Meta, packet: &mut [u8]) -> Verdict<A> {
        let is_datagram = |port: NonZeroU16| Udp::<A>::is_to(packet, port.get());
        if self.udp_port.is_some_and(is_datagram) {
            self.forward_by::<Udp<A>>(now, *meta, packet)
        } else {
            self.forward_by::<A::Option>(now, *meta, packet)
        }
    }

    #[inline]
    fn forward_by<C: Carrier<Address = A>>(
        &mut self,
        now: Instant,
        meta: Meta,
        packet: &mut [u8],
    ) -> Verdict<A> {
        match C::classify(packet) {
            Ok(Class::Request(at)) => match at.read(packet) {
                Some(request) => self.forward_request::<C>(now, meta, &request, packet),
                None => self.pass(),
            },
            Ok(Class::Encapsulated(outer)) => match self.dmcast::<C>(now, meta, outer, packet) {
                Ok(Some((iface, packet))) => Verdict::Multicast { iface, packet },
                Ok(None) => self.pass(),
                Err(reason) => self.drop(reason),
            },
            Ok(Class::Other) => self.pass(),
            Err(malformed) => self.drop(malformed.into()),
        }
    }

    #[inline]
    fn forward_request<C: Carrier<Address = A>>(
        &mut self,
        now: Instant,
        meta: Meta,
        request: &Request<A>,
        packet: &mut [u8],
    ) -> Verdict<A> {
        if let Policy::SearchParty { .. } = self.policy {
            return self.party::<C>(now, meta, request, packet);
        }
        match self.request::<C>(now, meta, request, packet) {
            Ok(output) => Verdict::Forward {
                output,
                packet: 0..request.len,
                second: None,
            },
            Err(reason) => self.refuse::<C>(reason, request, packet),
        }
    }

    /// A request that is not forwarded by an entry. One that travels by unicast routing and is of no entry here goes on
    /// as the datagram that it is: this router is on its way without being in its tree.
    fn refuse<C: Carrier<Address = A>>(
        &mut self,
        reason: DropReason,
        request: &Request<A>,
        packet: &mut [u8],
    ) -> Verdict<A> {
        let is_on_its_way = C::UPWARD == Upward::Routed && reason == DropReason::NoEntry;
        if !is_on_its_way || request.turned {
            return self.drop(reason);
        }
        if request.hop_limit <= 1 {
            return self.drop(DropReason::TtlExpired);
        }
        C::hop(packet);
        self.stats.requests_routed += 1;
        Verdict::Forward {
            output: Output {
                iface: Iface::UNSET,
                next_hop: NextHop::Routed,
            },
            packet: 0..request.len,
            second: None,
        }
    }

    fn pass(&mut self) -> Verdict<A> {
        self.stats.passed += 1;
        Verdict::Pass
    }

    fn drop(&mut self, reason: DropReason) -> Verdict<A> {
        self.stats.count_drop(reason);
        Verdict::Drop(reason)
    }

    /// Makes the second copy of a request under Search Party out of the bytes of the first
    /// (`packet` of [`Verdict::Forward`]), and says where it goes.
    pub fn second_copy(&self, copy: SecondCopy<A>, packet: &mut [u8]) -> Output<A> {
        if copy.is_datagram {
            apply::<Udp<A>>(copy.edit, packet);
        } else {
            apply::<A::Option>(copy.edit, packet);
        }
        copy.output
    }

    /// A request under any policy that knows a replier: the rule decides.
    #[inline]
    fn request<C: Carrier<Address = A>>(
        &mut self,
        now: Instant,
        meta: Meta,
        request: &Request<A>,
        packet: &mut [u8],
    ) -> Result<Output<A>, DropReason> {
        let (id, hash) = self.lookup::<C>(request)?;
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
        let action = match rule::decide(role, request.turned, tree.replier.is_set()) {
            Action::Drop(reason) => return Err(reason.into()),
            Action::ToParent if !tree.parent.is_set() => return Err(DropReason::NoParent),
            action => action,
        };
        let output = match action {
            Action::ToParent => upward::<C>(tree.parent),
            _ => Output {
                iface: tree.replier,
                next_hop: replier,
            },
        };
        let router = match action {
            Action::Turn => Some(turning_address(&self.interfaces, output.iface, meta.iface)?),
            _ => None,
        };
        if request.hop_limit <= 1 {
            return Err(DropReason::TtlExpired);
        }
        if !entry.requests.take(now, &self.request_limit) {
            return Err(DropReason::RequestRate);
        }
        // Last, for it costs most.
        let edit = match router {
            Some(router) => {
                let turn = self.turn(now, &hash, request, meta.iface, *router);
                self.expect_repairs(now, id, request);
                Edit::Turn(request.turn_at, turn)
            }
            None if action == Action::ToParent => Edit::Up,
            None => Edit::Down,
        };
        self.edit::<C>(request, edit, packet);
        Ok(output)
    }

    /// The turning point of a request that arrived on `arrival`.
    #[inline]
    fn turn(
        &self,
        now: Instant,
        hash: &KeyHash,
        request: &Request<A>,
        arrival: Iface,
        router: A,
    ) -> Turn<A> {
        let has_cookie = request.turn_at.cookie_at.is_some();
        let period = period(now);
        let cookie = || self.cookies.cookie(period, hash.hash, arrival);
        Turn {
            router,
            number: self.numbers.number(period, hash.prefix, arrival),
            cookie: if has_cookie { cookie() } else { 0 },
        }
    }

    /// A request is turned: its repairs may come. Has the source of a shared tree looked for.
    #[inline]
    fn expect_repairs(&mut self, now: Instant, id: EntryId, request: &Request<A>) {
        let Some(entry) = self.table.get_mut(id) else {
            return;
        };
        let is_classic = request.turn_at.cookie_at.is_none();
        let limit = &self.credit_limit;
        entry.credit = entry.credit.with_request(tick(now), limit, is_classic);
        if !entry.key().is_any_source() || !request.key.source.is_host() {
            return;
        }
        let (key, parent) = (request.key, entry.parent);
        if self.sources.is_wanted(now, key)
            && !self.events.push(Event::SourceWanted { key, parent })
        {
            self.stats.events_lost += 1;
        }
    }

    /// Source and group that the option of a packet names.
    pub(crate) fn key_of(&self, packet: &[u8]) -> Option<Key<A>> {
        let is_datagram = |port: NonZeroU16| Udp::<A>::is_to(packet, port.get());
        if self.udp_port.is_some_and(is_datagram) {
            key_of::<Udp<A>>(packet)
        } else {
            key_of::<A::Option>(packet)
        }
    }

    /// Where requests of an entry that go down are sent to on the replier's link.
    pub(crate) fn next_hop(&self, entry: &Entry<A>) -> NextHop<A> {
        next_hop(&self.hierarchy, entry)
    }

    #[inline]
    fn lookup<C: Carrier<Address = A>>(
        &self,
        request: &Request<A>,
    ) -> Result<(EntryId, KeyHash), DropReason> {
        if !C::is_addressed(request) {
            return Err(DropReason::GroupMismatch);
        }
        let hash = self.table.hash(request.key);
        let id = self.table.lookup_hashed(request.key, hash.hash);
        Ok((id.ok_or(DropReason::NoEntry)?, hash))
    }

    /// A request under Search Party.
    fn party<C: Carrier<Address = A>>(
        &mut self,
        now: Instant,
        meta: Meta,
        request: &Request<A>,
        packet: &mut [u8],
    ) -> Verdict<A> {
        let (output, second) = match self.party_copies::<C>(now, meta, request, packet) {
            Ok(copies) => copies,
            Err(reason) => return self.refuse::<C>(reason, request, packet),
        };
        let second = second.map(|(output, edit)| {
            self.count_request(edit);
            SecondCopy {
                output,
                edit,
                is_datagram: C::UPWARD == Upward::Routed,
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
    fn party_copies<C: Carrier<Address = A>>(
        &mut self,
        now: Instant,
        meta: Meta,
        request: &Request<A>,
        packet: &mut [u8],
    ) -> Result<(Output<A>, Option<(Output<A>, Edit<A>)>), DropReason> {
        let (id, hash) = self.lookup::<C>(request)?;
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
        let plan = |way| self.plan::<C>(now, (id, &hash), meta.iface, request, way);
        let (output, edit) = plan(first.ok_or(no_way)?)?;
        let second = second.and_then(|way| plan(way).ok());
        if request.hop_limit <= 1 {
            return Err(DropReason::TtlExpired);
        }
        if !self.take_request_token(now, id) {
            return Err(DropReason::RequestRate);
        }
        let second = second.filter(|_| self.take_request_token(now, id));
        let edits = [Some(edit), second.map(|(_, edit)| edit)];
        for edit in edits.into_iter().flatten() {
            if matches!(edit, Edit::Turn(..)) {
                self.expect_repairs(now, id, request);
            }
        }
        self.edit::<C>(request, edit, packet);
        Ok((output, second))
    }

    /// Returns the output of a copy, and what changes in it.
    fn plan<C: Carrier<Address = A>>(
        &self,
        now: Instant,
        (id, hash): (EntryId, &KeyHash),
        arrival: Iface,
        request: &Request<A>,
        way: Way,
    ) -> Result<(Output<A>, Edit<A>), DropReason> {
        let entry = self.table.get(id).ok_or(DropReason::NoEntry)?;
        let Way::Down(iface) = way else {
            return Ok((upward::<C>(entry.parent), Edit::Up));
        };
        let next_hop = match iface == entry.replier_iface() {
            true => next_hop(&self.hierarchy, entry),
            false => NextHop::Group,
        };
        let edit = match request.turned {
            true => Edit::Down,
            false => {
                let router = turning_address(&self.interfaces, iface, arrival)?;
                let turn = self.turn(now, hash, request, arrival, *router);
                Edit::Turn(request.turn_at, turn)
            }
        };
        Ok((Output { iface, next_hop }, edit))
    }

    fn take_request_token(&mut self, now: Instant, id: EntryId) -> bool {
        let limit = self.request_limit;
        self.table
            .get_mut(id)
            .is_some_and(|entry| entry.requests.take(now, &limit))
    }

    #[inline]
    fn edit<C: Carrier<Address = A>>(
        &mut self,
        request: &Request<A>,
        edit: Edit<A>,
        packet: &mut [u8],
    ) {
        debug_assert!(request.len <= packet.len());
        match edit {
            Edit::Turn(at, turn) => C::turn_down(packet, at, &turn),
            edit => {
                C::hop(packet);
                apply::<C>(edit, packet);
            }
        }
        self.count_request(edit);
    }

    #[inline]
    fn count_request(&mut self, edit: Edit<A>) {
        match edit {
            Edit::Down => self.stats.requests_to_replier += 1,
            Edit::Turn(..) => self.stats.requests_turned += 1,
            Edit::Up => self.stats.requests_to_parent += 1,
        }
    }

    /// A dmcast addressed to this router (LMS §6.4.4): every check before anything changes. `None`:
    /// not for this router, or no dmcast.
    #[inline]
    fn dmcast<C: Carrier<Address = A>>(
        &mut self,
        now: Instant,
        meta: Meta,
        outer: C::Outer,
        packet: &mut [u8],
    ) -> Result<Option<(Iface, Range<usize>)>, DropReason> {
        let (from, to) = (A::source(packet), A::destination(packet));
        if !self.is_own_address(to, meta.iface) {
            return Ok(None);
        }
        let Some(dmcast) = C::open(packet, outer)? else {
            return Ok(None);
        };
        check_dmcast(&dmcast, to)?;
        let hash = self.table.hash(dmcast.key);
        let id = self.table.lookup_hashed(dmcast.key, hash.hash);
        let id = id.ok_or(DropReason::NoEntry)?;
        self.check_origin(now, meta.iface, id, from, dmcast.key)?;
        let number = (dmcast.iface, dmcast.cookie);
        let iface = self.turning_interface(now, meta.iface, (id, &hash), number)?;
        if dmcast.hop_limit <= 1 {
            return Err(DropReason::InnerTtlExpired);
        }
        let entry = self.table.get_mut(id).ok_or(DropReason::NoEntry)?;
        if !entry.dmcasts.take(now, &self.dmcast_limit) {
            return Err(DropReason::DmcastRate);
        }
        entry.credit = entry.credit.spent();
        let inner = C::unwrap(packet, &dmcast);
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
        from: A,
        key: Key<A>,
    ) -> Result<(), DropReason> {
        let entry = self.table.get(id).ok_or(DropReason::NoEntry)?;
        let tree = Tree {
            parent: entry.parent,
            replier: Iface::UNSET,
        };
        if tree.role(arrival, self.table.is_downstream(id, arrival)) == Role::Outside {
            return Err(DropReason::NotOnTree);
        }
        if !self.may_come_from(from, arrival) {
            return Err(DropReason::OuterSource);
        }
        // A source tree's entry has the source that the option and the inner packet name.
        if entry.key().is_any_source() && !self.sources.contain(now, key) {
            return Err(DropReason::SourceNotSeen);
        }
        Ok(())
    }

    /// Returns the interface that a dmcast's number stands for, where a repair is due. A cookie proves that this router
    /// wrote the number. Without one, a request in the classic form must be open, and wrong numbers count against the
    /// interface that they arrived on.
    #[inline]
    fn turning_interface(
        &mut self,
        now: Instant,
        arrival: Iface,
        (id, hash): (EntryId, &KeyHash),
        (number, cookie): (Iface, Option<u64>),
    ) -> Result<Iface, DropReason> {
        let entry = self.table.get(id).ok_or(DropReason::NoEntry)?;
        if !entry.credit.allows(tick(now), cookie.is_none()) {
            return Err(DropReason::NoCredit);
        }
        let limit = self.wrong_number_limit;
        let interface = self.interfaces.get_mut(usize::from(arrival.0));
        let wrong_numbers = &mut interface.ok_or(DropReason::NotOnTree)?.wrong_numbers;
        if cookie.is_none() && !wrong_numbers.has_token(now, &limit) {
            return Err(DropReason::WrongNumberRate);
        }
        // A number of the last period may stand for another downstream interface in this one: the cookie decides.
        let period = period(now);
        let is_proved = |iface| {
            cookie.is_none_or(|cookie| self.cookies.is_valid(period, hash.hash, iface, cookie))
        };
        let mut candidates = self.numbers.interfaces(period, hash.prefix, number);
        let found =
            candidates.find(|&iface| self.table.is_downstream(id, iface) && is_proved(iface));
        if found.is_none() && cookie.is_none() {
            wrong_numbers.take(now, &limit);
        }
        found.ok_or(match cookie {
            Some(_) => DropReason::Cookie,
            None => DropReason::NotDownstream,
        })
    }
}

fn key_of<C: Carrier>(packet: &[u8]) -> Option<Key<C::Address>> {
    match C::classify(packet) {
        Ok(Class::Request(at)) => Some(at.read(packet)?.key),
        Ok(Class::Encapsulated(outer)) => Some(C::open(packet, outer).ok()??.key),
        Ok(Class::Other) | Err(_) => None,
    }
}

/// Changes the bytes of a request whose hop is counted.
#[inline]
fn apply<C: Carrier>(edit: Edit<C::Address>, packet: &mut [u8]) {
    match edit {
        Edit::Up => {}
        Edit::Down => C::send_down(packet),
        Edit::Turn(at, turn) => {
            C::turn(packet, at, &turn);
            C::send_down(packet);
        }
    }
}

/// Where a request goes towards the source.
#[inline]
fn upward<C: Carrier>(parent: Iface) -> Output<C::Address> {
    Output {
        iface: parent,
        next_hop: match C::UPWARD {
            Upward::Link => NextHop::Group,
            Upward::Routed => NextHop::Routed,
        },
    }
}

/// Whether a dmcast to `address` of this router agrees with itself.
#[inline]
pub(crate) fn check_dmcast<A: Family, I>(
    dmcast: &Dmcast<A, I>,
    address: A,
) -> Result<(), DropReason> {
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
fn check_datagram<A, I>(dmcast: &Dmcast<A, I>) -> Result<(), DropReason> {
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
fn turning_address<A: Family>(
    interfaces: &[Interface<A>],
    towards: Iface,
    arrival: Iface,
) -> Result<&A, DropReason> {
    let config = |iface: Iface| interfaces.get(usize::from(iface.0))?.config.as_ref();
    let config = config(towards)
        .or_else(|| config(arrival))
        .ok_or(DropReason::NoAddress)?;
    Ok(&config.address)
}

/// Whether a request that arrived on the replier's interface is not the replier's, but of another
/// neighbour on that link: by the address of its frame, else by its own where it is of that link.
#[inline]
fn is_beside<A: Family>(
    replier: NextHop<A>,
    meta: Meta,
    request: &Request<A>,
    interfaces: &[Interface<A>],
) -> bool {
    let NextHop::Neighbour { addr, link } = replier else {
        return false;
    };
    match (link, meta.link_source) {
        (Some(replier), Some(sender)) => replier != sender,
        _ => {
            let here = interfaces.get(usize::from(meta.iface.0));
            let here = here.and_then(|interface| interface.config.as_ref());
            here.is_some_and(|here| here.on_link(request.sender)) && request.sender != addr
        }
    }
}

/// Where on its link the replier is: the neighbour table knows the elected one.
#[inline]
fn next_hop<A: Family>(hierarchy: &Hierarchy<'_, A>, entry: &Entry<A>) -> NextHop<A> {
    match entry.peer() {
        Some(peer) => hierarchy.next_hop(peer),
        None => entry.fixed_next_hop(),
    }
}
