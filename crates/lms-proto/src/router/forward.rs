//! The forwarding path: one packet in, edited in place, one verdict out. No walk over anything.

use core::net::Ipv4Addr;

use super::policy::Way;
use super::verdict::Turn;
use super::{DropReason, Interface, Meta, Output, Policy, Router, SecondCopy, Verdict};
use crate::carrier::{Carrier, Class, Dmcast, Request};
use crate::hier::Hierarchy;
use crate::rule::{self, Action, Role, Tree};
use crate::table::{Entry, EntryId};
use crate::{Iface, Instant, Key, NextHop};

/// Packets of which [`Router::forward_batch`] looks up the entries together.
const AHEAD: usize = 32;

/// A packet of LMS, read and checked as far as that goes without its entry.
#[derive(Debug)]
enum Message {
    Request(Request),
    Dmcast(Dmcast),
}

impl Message {
    #[inline]
    fn key(&self) -> Key {
        match self {
            Message::Request(request) => request.key,
            Message::Dmcast(dmcast) => dmcast.key,
        }
    }
}

/// The entry of a message, and which of the message's interfaces are downstream there.
#[derive(Clone, Copy, Debug)]
struct Place {
    id: EntryId,
    arrival: bool,
    /// A dmcast's turning-point interface.
    target: bool,
}

/// A packet on its way through [`Router::forward_batch`].
struct Ahead<'p> {
    meta: Meta,
    packet: &'p mut [u8],
    message: Result<Option<Message>, DropReason>,
    hash: u64,
    place: Option<Place>,
}

impl<C: Carrier> Router<'_, C> {
    /// Forwards one packet: a whole IPv4 packet, maybe with padding behind it. The bytes are
    /// edited only where the verdict is [`Verdict::Forward`] or [`Verdict::Multicast`].
    ///
    /// Allocates nothing; the cost does not depend on the number of groups or interfaces.
    #[inline]
    pub fn forward(&mut self, now: Instant, meta: Meta, packet: &mut [u8]) -> Verdict {
        match self.read(meta, packet) {
            // The same twice, so that the compiler knows in each which message it is.
            Ok(Some(Message::Request(request))) => {
                self.forward_message(now, meta, &Message::Request(request), packet)
            }
            Ok(Some(Message::Dmcast(dmcast))) => {
                self.forward_message(now, meta, &Message::Dmcast(dmcast), packet)
            }
            Ok(None) => self.pass(),
            Err(reason) => self.drop(reason),
        }
    }

    #[inline(always)]
    fn forward_message(
        &mut self,
        now: Instant,
        meta: Meta,
        message: &Message,
        packet: &mut [u8],
    ) -> Verdict {
        let hash = self.table.hash(message.key());
        match self.place(meta, message, hash) {
            Some(place) => self.judge(now, meta, message, place, packet),
            None => self.drop(DropReason::NoEntry),
        }
    }

    /// Forwards packets in their order, each as [`Router::forward`] does, and gives `each` the
    /// verdict with the packet. Where the entries of many groups are not in the processor's cache
    /// this is faster: the memory is asked for those of 32 packets at once. Takes about 6 KiB of
    /// stack.
    pub fn forward_batch<'p>(
        &mut self,
        now: Instant,
        packets: impl IntoIterator<Item = (Meta, &'p mut [u8])>,
        mut each: impl FnMut(&Self, Meta, &'p mut [u8], Verdict),
    ) {
        let mut packets = packets.into_iter();
        loop {
            let mut batch: heapless::Vec<Ahead<'p>, AHEAD> = heapless::Vec::new();
            batch.extend(packets.by_ref().take(AHEAD).map(|(meta, packet)| {
                let message = self.read(meta, packet);
                let hash = match &message {
                    Ok(Some(message)) => self.table.hash(message.key()),
                    _ => 0,
                };
                Ahead {
                    meta,
                    packet,
                    message,
                    hash,
                    place: None,
                }
            }));
            if batch.is_empty() {
                return;
            }
            for ahead in &mut batch {
                if let Ok(Some(message)) = &ahead.message {
                    ahead.place = self.place(ahead.meta, message, ahead.hash);
                }
            }
            for ahead in &mut batch {
                let (meta, packet) = (ahead.meta, core::mem::take(&mut ahead.packet));
                let verdict = match (&ahead.message, ahead.place) {
                    (Ok(Some(message)), Some(place)) => {
                        self.judge(now, meta, message, place, packet)
                    }
                    (Ok(Some(_)), None) => self.drop(DropReason::NoEntry),
                    (Ok(None), _) => self.pass(),
                    (Err(reason), _) => self.drop(*reason),
                };
                each(self, meta, packet, verdict);
            }
        }
    }

    /// What the packet is and whether it agrees with itself. `None`: nothing of LMS, or a dmcast
    /// for another router.
    #[inline]
    fn read(&self, meta: Meta, packet: &[u8]) -> Result<Option<Message>, DropReason> {
        match C::classify(packet)? {
            Class::Other => Ok(None),
            Class::Request(request) => {
                if request.key.group != request.destination {
                    return Err(DropReason::GroupMismatch);
                }
                Ok(Some(Message::Request(request)))
            }
            Class::Encapsulated(outer) => {
                if !self.is_own_address(outer.to, meta.iface) {
                    return Ok(None);
                }
                let Some(dmcast) = C::open(packet, &outer)? else {
                    return Ok(None);
                };
                check_dmcast(&dmcast, outer.to)?;
                Ok(Some(Message::Dmcast(dmcast)))
            }
        }
    }

    #[inline(always)]
    fn place(&self, meta: Meta, message: &Message, hash: u64) -> Option<Place> {
        let id = self.table.lookup_hashed(message.key(), hash)?;
        Some(Place {
            id,
            arrival: self.table.is_downstream(id, meta.iface),
            target: match message {
                Message::Request(_) => false,
                Message::Dmcast(dmcast) => self.table.is_downstream(id, dmcast.iface),
            },
        })
    }

    #[inline(always)]
    fn judge(
        &mut self,
        now: Instant,
        meta: Meta,
        message: &Message,
        place: Place,
        packet: &mut [u8],
    ) -> Verdict {
        let verdict = match (message, self.policy) {
            (Message::Request(request), Policy::SearchParty { .. }) => {
                self.party(now, meta, request, place, packet)
            }
            (Message::Request(request), _) => self.request(now, meta, request, place, packet),
            (Message::Dmcast(dmcast), _) => self.dmcast(now, meta, dmcast, place, packet),
        };
        match verdict {
            Ok(verdict) => verdict,
            Err(reason) => self.drop(reason),
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
            C::turn(packet, option_at, turn.router, turn.iface);
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
        place: Place,
        packet: &mut [u8],
    ) -> Result<Verdict, DropReason> {
        let id = place.id;
        if let Policy::Random { redraw } = self.policy {
            self.refresh_draw(now, id, redraw);
        }
        let entry = self.table.get_mut(id).ok_or(DropReason::NoEntry)?;
        let tree = Tree {
            parent: entry.parent,
            replier: entry.replier_iface(),
        };
        let role = tree.role(meta.iface, place.arrival);
        let (output, turn) = match rule::decide(role, request.turned, tree.replier.is_set()) {
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
                    next_hop: next_hop(&self.hierarchy, entry),
                };
                let turn = match action {
                    Action::Turn => Some(turn(&self.interfaces, output.iface, meta.iface)?),
                    _ => None,
                };
                (output, turn)
            }
        };
        if request.hop_limit <= 1 {
            return Err(DropReason::TtlExpired);
        }
        if !entry.requests.take(now, &self.request_limit) {
            return Err(DropReason::RequestRate);
        }
        self.edit(request, turn, packet);
        Ok(Verdict::Forward {
            output,
            packet: 0..request.len,
            second: None,
        })
    }

    /// A request under Search Party.
    fn party(
        &mut self,
        now: Instant,
        meta: Meta,
        request: &Request,
        place: Place,
        packet: &mut [u8],
    ) -> Result<Verdict, DropReason> {
        let (output, second) = self.party_copies(now, meta, request, place, packet)?;
        let second = second.map(|(output, turn)| {
            self.count_request(request, turn);
            SecondCopy {
                output,
                turn: turn.map(|turn| (request.option_at, turn)),
            }
        });
        Ok(Verdict::Forward {
            output,
            packet: 0..request.len,
            second,
        })
    }

    /// The rule says whether the request may pass, chance says where its copies go. Edits the
    /// packet into the first copy.
    #[expect(clippy::type_complexity, reason = "two copies, the second maybe")]
    fn party_copies(
        &mut self,
        now: Instant,
        meta: Meta,
        request: &Request,
        place: Place,
        packet: &mut [u8],
    ) -> Result<(Output, Option<(Output, Option<Turn>)>), DropReason> {
        let id = place.id;
        let entry = self.table.get(id).ok_or(DropReason::NoEntry)?;
        let tree = Tree {
            parent: entry.parent,
            replier: entry.replier_iface(),
        };
        let role = tree.role(meta.iface, place.arrival);
        // With no hierarchy there is no replier, and none is needed.
        if let Action::Drop(reason) = rule::decide(role, request.turned, true) {
            return Err(reason.into());
        }
        let (first, second) = self.search_party(id, meta.iface, role, tree.parent.is_set());
        let nobody = if role == Role::Parent {
            DropReason::NoReplier
        } else {
            DropReason::NoParent
        };
        let (output, turn) = self.plan(id, meta.iface, request, first.ok_or(nobody)?)?;
        let second = second.and_then(|way| self.plan(id, meta.iface, request, way).ok());
        if request.hop_limit <= 1 {
            return Err(DropReason::TtlExpired);
        }
        if !self.take_request_token(now, id) {
            return Err(DropReason::RequestRate);
        }
        self.edit(request, turn, packet);
        Ok((output, second.filter(|_| self.take_request_token(now, id))))
    }

    /// Where a copy goes and what is written into it.
    fn plan(
        &self,
        id: EntryId,
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
                let turn = (!turned)
                    .then(|| turn(&self.interfaces, iface, arrival))
                    .transpose()?;
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
            Some(Turn { router, iface }) => {
                C::hop_and_turn(packet, request.option_at, router, iface);
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

    /// A dmcast to this router (LMS §6.4.4) that agrees with itself: every other check before
    /// anything changes.
    #[inline]
    fn dmcast(
        &mut self,
        now: Instant,
        meta: Meta,
        dmcast: &Dmcast,
        place: Place,
        packet: &mut [u8],
    ) -> Result<Verdict, DropReason> {
        let entry = self.table.get_mut(place.id).ok_or(DropReason::NoEntry)?;
        if !place.target {
            return Err(DropReason::NotDownstream);
        }
        let tree = Tree {
            parent: entry.parent,
            replier: Iface::UNSET,
        };
        if tree.role(meta.iface, place.arrival) == Role::Outside {
            return Err(DropReason::NotOnTree);
        }
        if dmcast.hop_limit <= 1 {
            return Err(DropReason::InnerTtlExpired);
        }
        if !entry.dmcasts.take(now, &self.dmcast_limit) {
            return Err(DropReason::DmcastRate);
        }
        let inner = C::strip(packet, &dmcast.inner);
        if let Some(inner) = packet.get_mut(inner.clone()) {
            C::hop(inner);
        }
        self.stats.dmcasts += 1;
        Ok(Verdict::Multicast {
            iface: dmcast.iface,
            packet: inner,
        })
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
        Ok(())
    }
}

/// The turning point of a request that arrived on `arrival` and goes down `towards` the replier.
/// Its address is that on the replier's side, which the replier is most likely to reach.
#[inline]
fn turn(interfaces: &[Interface], towards: Iface, arrival: Iface) -> Result<Turn, DropReason> {
    let config = |iface: Iface| interfaces.get(usize::from(iface.0))?.config;
    let config = config(towards)
        .or_else(|| config(arrival))
        .ok_or(DropReason::NoAddress)?;
    Ok(Turn {
        router: config.address,
        iface: arrival,
    })
}

/// Where on its link the replier is: the neighbour table knows the elected one.
#[inline]
fn next_hop(hierarchy: &Hierarchy<'_>, entry: &Entry) -> NextHop {
    match entry.peer() {
        Some(peer) => hierarchy.next_hop(peer),
        None => entry.fixed_next_hop(),
    }
}
