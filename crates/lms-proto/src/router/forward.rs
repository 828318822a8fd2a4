//! The forwarding path: one packet in, edited in place, one verdict out. No walk over anything.

use super::policy::Way;
use super::verdict::Turn;
use super::{DropReason, Meta, Output, Policy, Router, SecondCopy, Verdict};
use crate::carrier::{Carrier, Class, Encapsulated, Request};
use crate::rule::{self, Action, Reason, Role, Tree};
use crate::table::EntryId;
use crate::{Iface, Instant, NextHop};

/// A request that passed the checks, before it is sent.
struct Admitted {
    request: Request,
    id: EntryId,
    arrival: Iface,
}

impl<C: Carrier> Router<'_, C> {
    /// Forwards one packet: a whole IPv4 packet, maybe with padding behind it. The bytes are
    /// edited only where the verdict is [`Verdict::Forward`] or [`Verdict::Multicast`].
    ///
    /// Allocates nothing; the cost does not depend on the number of groups or interfaces.
    #[inline]
    pub fn forward(&mut self, now: Instant, meta: Meta, packet: &mut [u8]) -> Verdict {
        let result = match C::classify(packet) {
            Ok(Class::Other) => Ok(Verdict::Pass),
            Ok(Class::Request(request)) => self.request(now, meta, request, packet),
            Ok(Class::Encapsulated(outer)) => self.dmcast(now, meta, &outer, packet),
            Err(malformed) => Err(malformed.into()),
        };
        match result {
            Ok(verdict) => {
                self.stats.passed += u64::from(verdict == Verdict::Pass);
                verdict
            }
            Err(reason) => {
                self.stats.count_drop(reason);
                Verdict::Drop(reason)
            }
        }
    }

    /// Makes the second copy of a request under Search Party out of the bytes of the first
    /// (`packet` of [`Verdict::Forward`]), and says where it goes.
    pub fn second_copy(&self, copy: SecondCopy, packet: &mut [u8]) -> Output {
        if let Some(turn) = copy.turn {
            C::turn(packet, turn.option_at, turn.router, turn.iface);
        }
        copy.output
    }

    #[inline]
    fn request(
        &mut self,
        now: Instant,
        meta: Meta,
        request: Request,
        packet: &mut [u8],
    ) -> Result<Verdict, DropReason> {
        if request.key.group != request.destination {
            return Err(DropReason::GroupMismatch);
        }
        let id = self.table.lookup(request.key).ok_or(DropReason::NoEntry)?;
        if matches!(self.policy, Policy::Random { .. }) {
            self.refresh_draw(now, id);
        }
        let entry = self.table.get(id).ok_or(DropReason::NoEntry)?;
        let tree = Tree {
            parent: entry.parent,
            replier: entry.replier_iface(),
        };
        let role = tree.role(meta.iface, self.table.is_downstream(id, meta.iface));
        let action = rule::decide(role, request.turned, tree.replier.is_set());
        let admitted = Admitted {
            request,
            id,
            arrival: meta.iface,
        };
        if let Policy::SearchParty { .. } = self.policy {
            return self.party(now, &admitted, role, action, packet);
        }
        let way = match action {
            Action::Drop(reason) => return Err(reason.into()),
            Action::ToParent => Way::Up,
            Action::Turn | Action::ToReplier => Way::Down(tree.replier),
        };
        let (output, turn) = self.plan(&admitted, way)?;
        self.admit(now, &admitted)?;
        Ok(self.send(&admitted, output, turn, None, packet))
    }

    /// Search Party: the rule says whether the request may pass, chance says where.
    fn party(
        &mut self,
        now: Instant,
        admitted: &Admitted,
        role: Role,
        action: Action,
        packet: &mut [u8],
    ) -> Result<Verdict, DropReason> {
        // With no hierarchy there is no replier, and none is needed.
        if let Action::Drop(reason) = action
            && reason != Reason::NoReplier
        {
            return Err(reason.into());
        }
        let entry = self.table.get(admitted.id).ok_or(DropReason::NoEntry)?;
        let has_parent = entry.parent.is_set();
        let (first, second) = self.search_party(admitted.id, admitted.arrival, role, has_parent);
        let nobody = if role == Role::Parent {
            DropReason::NoReplier
        } else {
            DropReason::NoParent
        };
        let (output, turn) = self.plan(admitted, first.ok_or(nobody)?)?;
        let second = second.and_then(|way| self.plan(admitted, way).ok());
        self.admit(now, admitted)?;
        let second = second.filter(|_| self.take_request_token(now, admitted.id));
        Ok(self.send(admitted, output, turn, second, packet))
    }

    /// Where a copy goes and what is written into it.
    #[inline]
    fn plan(&self, admitted: &Admitted, way: Way) -> Result<(Output, Option<Turn>), DropReason> {
        let entry = self.table.get(admitted.id).ok_or(DropReason::NoEntry)?;
        let iface = match way {
            Way::Up if entry.parent.is_set() => {
                return Ok((
                    Output {
                        iface: entry.parent,
                        next_hop: NextHop::Group,
                    },
                    None,
                ));
            }
            Way::Up => return Err(DropReason::NoParent),
            Way::Down(iface) => iface,
        };
        let next_hop = match iface == entry.replier_iface() {
            true => entry.replier_next_hop(),
            false => NextHop::Group,
        };
        let output = Output { iface, next_hop };
        if admitted.request.turned {
            return Ok((output, None));
        }
        // The address the replier is most likely to reach: that on its own side.
        let towards = self
            .interface(iface)
            .or_else(|| self.interface(admitted.arrival));
        let router = towards.ok_or(DropReason::NoAddress)?.address;
        let option_at = admitted.request.option_at;
        Ok((
            output,
            Some(Turn {
                option_at,
                router,
                iface: admitted.arrival,
            }),
        ))
    }

    /// The last two checks: time to live and rate.
    #[inline]
    fn admit(&mut self, now: Instant, admitted: &Admitted) -> Result<(), DropReason> {
        if admitted.request.hop_limit <= 1 {
            return Err(DropReason::TtlExpired);
        }
        match self.take_request_token(now, admitted.id) {
            true => Ok(()),
            false => Err(DropReason::RequestRate),
        }
    }

    #[inline]
    fn take_request_token(&mut self, now: Instant, id: EntryId) -> bool {
        let limit = self.request_limit;
        self.table
            .get_mut(id)
            .is_some_and(|entry| entry.requests.take(now, &limit))
    }

    #[inline]
    fn send(
        &mut self,
        admitted: &Admitted,
        output: Output,
        turn: Option<Turn>,
        second: Option<(Output, Option<Turn>)>,
        packet: &mut [u8],
    ) -> Verdict {
        C::hop(packet);
        if let Some(Turn {
            option_at,
            router,
            iface,
        }) = turn
        {
            C::turn(packet, option_at, router, iface);
        }
        self.count_request(admitted, turn);
        if let Some((_, turn)) = second {
            self.count_request(admitted, turn);
        }
        let second = second.map(|(output, turn)| SecondCopy { output, turn });
        Verdict::Forward {
            output,
            packet: 0..admitted.request.len,
            second,
        }
    }

    #[inline]
    fn count_request(&mut self, admitted: &Admitted, turn: Option<Turn>) {
        match (admitted.request.turned, turn) {
            (true, _) => self.stats.requests_to_replier += 1,
            (false, Some(_)) => self.stats.requests_turned += 1,
            (false, None) => self.stats.requests_to_parent += 1,
        }
    }

    /// A dmcast addressed to this router (LMS §6.4.4): every check before anything changes.
    #[inline]
    fn dmcast(
        &mut self,
        now: Instant,
        meta: Meta,
        outer: &Encapsulated,
        packet: &mut [u8],
    ) -> Result<Verdict, DropReason> {
        if !self.is_own_address(outer.to, meta.iface) {
            return Ok(Verdict::Pass);
        }
        let Some(dmcast) = C::open(packet, outer)? else {
            return Ok(Verdict::Pass);
        };
        if !dmcast.iface.is_set() {
            return Err(DropReason::NoTurningPoint);
        }
        if dmcast.router != outer.to {
            return Err(DropReason::OtherTurningPoint);
        }
        if dmcast.source != dmcast.key.source {
            return Err(DropReason::InnerSourceMismatch);
        }
        if dmcast.destination != dmcast.key.group {
            return Err(DropReason::InnerGroupMismatch);
        }
        let id = self.table.lookup(dmcast.key).ok_or(DropReason::NoEntry)?;
        if !self.table.is_downstream(id, dmcast.iface) {
            return Err(DropReason::NotDownstream);
        }
        let on_tree = |parent: Iface| {
            (parent.is_set() && meta.iface == parent) || self.table.is_downstream(id, meta.iface)
        };
        let limit = self.dmcast_limit;
        let parent = self.table.get(id).ok_or(DropReason::NoEntry)?.parent;
        if !on_tree(parent) {
            return Err(DropReason::NotOnTree);
        }
        if dmcast.hop_limit <= 1 {
            return Err(DropReason::InnerTtlExpired);
        }
        if !self
            .table
            .get_mut(id)
            .is_some_and(|entry| entry.dmcasts.take(now, &limit))
        {
            return Err(DropReason::DmcastRate);
        }
        let inner = C::strip(packet, &dmcast);
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
