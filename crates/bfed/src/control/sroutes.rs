//! Session-specific routes (§5.2.2).
//!
//! | gateway | condition | action |
//! | --- | --- | --- |
//! | wants a session | all routes to the owner's gateways have one next hop | joins there, without a request |
//! | | several next hops, and costs are known (from a JOIN, from another gateway of its network, or still fresh) | joins along the best sum of route and SROUTE cost |
//! | | several next hops, no costs known | sends a request along its best route, with the owner's gateways that it knows |
//! | on the path | costs are known for all gateways in the request | answers |
//! | | otherwise | forwards the request and remembers the sender |
//! | of the owner | | asks its native network, and those gateways that the native network does not know; answers after at most half the time with the costs it has; a native network without costs gives a null response |
//! | forwards a response | | keeps it for the lifetime of soft state |
//! | sent the request | costs, or null | joins; with null, or where no route leads to a gateway with costs, routes alone decide |
//! | receives a JOIN | it claims costs | uses them while only that peer wants the session |
//! | | no session | NO_ROUTE to all that want it |
//! | | no route, or no answer in time | joins by routes alone; sends a request again at the next refresh |
//! | | the best next hop is in its own network | passes the costs on to it, and redirects its clients there |
//! | hears a client with all gateways of its network | which of them answers depends on costs | passes the costs on to the one that answers because of them, and to the one that would answer without them |
//! | of the owner, on a tree | a JOIN refreshes | sends the costs down the tree again |

use alloc::vec::Vec;

use proto_core::time::Instant;

use super::ControlNode;
use super::sroute_store::Open;
use crate::coordination::Coordinator;
use crate::error::Error;
use crate::event::{Event, Sroutes};
use crate::name::SessionName;
use crate::tree::{Discovery, Slot, Tree};
use crate::types::{Cost, GatewayId, PeerId};
use crate::wire::Message;
use crate::wire::attributes::MAX_PATH;
use crate::wire::no_route::Reason;
use crate::wire::sroute::{GatewayCost, MAX_GATEWAYS, Outcome, Request, Response};

impl<C: Coordinator> ControlNode<C> {
    /// Sends a request for the owner's costs along the best route. Returns whether it was sent.
    pub(super) fn discover(&mut self, now: Instant, slot: Slot) -> bool {
        let Some(tree) = self.trees.get(slot) else {
            return false;
        };
        let (session, table) = (tree.name.clone(), tree.table);
        let Some(network) = tree.network else {
            return false;
        };
        let fit = |id: PeerId| self.is_up(id) && !tree.failures.excludes(id, now);
        let Some(choice) = self.rib.choose(table, network, &[], fit) else {
            return false;
        };
        let gateways = self.rib.gateways(table, network, MAX_GATEWAYS);
        let number = self.numbers.next_request();
        let deadline = now + self.config.sroute_timeout;
        let open = Open::Own {
            slot,
            to: choice.peer,
        };
        if gateways.is_empty() || !self.sroutes.add(number, &session, open, deadline) {
            return false;
        }
        if let Some(tree) = self.trees.get_mut(slot) {
            tree.discoveries += 1;
            tree.discovery = Some(Discovery {
                request: number,
                deadline,
            });
        }
        self.stats.discoveries += 1;
        let request = Request {
            request: number,
            towards: choice.gateway,
            hop_limit: MAX_PATH as u8,
            internal: false,
            gateways,
            session,
        };
        self.send(choice.peer, Message::SrouteRequest(request));
        true
    }

    fn respond(
        &mut self,
        to: PeerId,
        request: u32,
        session: &SessionName,
        costs: Result<Vec<GatewayCost>, Outcome>,
    ) {
        let (outcome, costs) = match costs {
            Ok(costs) if costs.is_empty() => (Outcome::Null, costs),
            Ok(costs) => (Outcome::Costs, costs),
            Err(outcome) => (outcome, Vec::new()),
        };
        let session = session.clone();
        self.send(
            to,
            Message::SrouteResponse(Response {
                request,
                outcome,
                costs,
                session,
            }),
        );
    }

    pub(super) fn sroute_request(
        &mut self,
        now: Instant,
        from: PeerId,
        request: Request,
    ) -> Result<(), Error> {
        let refuse = |this: &mut Self, outcome| {
            this.respond(from, request.request, &request.session, Err(outcome));
            Err(Error::SrouteRefused)
        };
        let limit = self.new_session_limit();
        let Some(state) = self.peers.get_mut(&from) else {
            return Err(Error::UnknownStream);
        };
        let internal = state.config.gateway.network == self.config.gateway.network;
        let within_rate = state.bucket.take(now, &limit);
        let owner = self.owner_of(&request.session);
        // Gateways of another network do not know the owner's costs.
        let misled = owner.is_some_and(|owner| owner != request.towards.network);
        if !within_rate || misled || (request.internal && !internal) {
            return refuse(self, Outcome::NoRoute);
        }
        if request.towards.network == self.config.gateway.network {
            let number = self.numbers.next_request();
            let open = Open::Native {
                from,
                number: request.request,
                wanted: request.gateways.clone(),
                internal: request.internal,
            };
            return if self.measure(now, number, &request.session, open) {
                Ok(())
            } else {
                refuse(self, Outcome::NoRoute)
            };
        }
        let table = request.session.table();
        let known = self.sroutes.get(&request.session);
        let named = |costs: &&[GatewayCost]| {
            let has = |wanted| costs.iter().any(|cost| cost.gateway == wanted);
            costs.is_empty() || request.gateways.iter().all(|&wanted| has(wanted))
        };
        if let Some(costs) = known.filter(named) {
            let costs = costs.to_vec();
            self.respond(from, request.request, &request.session, Ok(costs));
            return Ok(());
        }
        let hop = self
            .rib
            .next_hop(table, request.towards)
            .filter(|&hop| hop != from && self.is_up(hop) && request.hop_limit > 0);
        let reachable = internal
            || self
                .rib
                .is_announced_to(from, table, request.towards.network);
        let Some(to) = hop.filter(|_| reachable) else {
            return refuse(self, Outcome::NoRoute);
        };
        let number = self.numbers.next_request();
        let open = Open::Passed {
            from,
            number: request.request,
            to,
        };
        let deadline = now + self.config.sroute_timeout;
        if !self.sroutes.add(number, &request.session, open, deadline) {
            return refuse(self, Outcome::NoRoute);
        }
        let hop_limit = request.hop_limit - 1;
        self.send(
            to,
            Message::SrouteRequest(Request {
                request: number,
                hop_limit,
                ..request
            }),
        );
        Ok(())
    }

    /// Asks the native network of this gateway, which belongs to the owner.
    fn measure(&mut self, now: Instant, number: u32, session: &SessionName, open: Open) -> bool {
        let Open::Native { wanted, .. } = &open else {
            return false;
        };
        let own = self.config.gateway.network;
        let gateways = wanted
            .iter()
            .copied()
            .filter(|gateway| gateway.network == own)
            .collect();
        let deadline = now + self.config.sroute_timeout / 2;
        if !self.sroutes.add(number, session, open, deadline) {
            return false;
        }
        let session = session.clone();
        self.events.push_back(Event::GetSroutes {
            request: number,
            session,
            gateways,
        });
        true
    }

    /// Sends the owner's costs down the tree to a peer (§5.2.2: every time that JOINs reach the owner).
    pub(super) fn update_sroutes(&mut self, now: Instant, to: PeerId, session: &SessionName) {
        let fresh = self
            .sroutes
            .known
            .get(session)
            .filter(|known| known.at + self.config.refresh_interval / 2 > now);
        if let Some(known) = fresh {
            let costs = known.costs.clone();
            self.respond(to, 0, session, Ok(costs));
            return;
        }
        let own = self.config.gateway;
        let internal = |gateway: &GatewayId| gateway.network == own.network;
        let others = self
            .peers
            .values()
            .map(|state| state.config.gateway)
            .filter(internal);
        let wanted: Vec<_> = core::iter::once(own)
            .chain(others)
            .take(MAX_GATEWAYS)
            .collect();
        if wanted.len() < 2 {
            return;
        }
        let number = self.numbers.next_request();
        let open = Open::Native {
            from: to,
            number: 0,
            wanted,
            internal: false,
        };
        self.measure(now, number, session, open);
    }

    /// Takes the native network's answer to [`Event::GetSroutes`].
    pub fn sroutes(&mut self, now: Instant, request: u32, answer: Sroutes) {
        self.now = now;
        let Some(pending) = self.sroutes.take(request) else {
            return;
        };
        let Open::Native {
            from,
            number,
            wanted,
            internal,
        } = pending.open
        else {
            return;
        };
        let session = pending.session;
        let mut costs = match answer.outcome {
            Outcome::Costs => answer.costs,
            Outcome::Null => Vec::new(),
            refused => {
                self.respond(from, number, &session, Err(refused));
                return;
            }
        };
        costs.retain(|cost| wanted.contains(&cost.gateway));
        costs.truncate(MAX_GATEWAYS);
        let null = answer.outcome == Outcome::Null;
        if internal || answer.got_all || null {
            self.give(now, from, number, &session, costs);
            return;
        }
        let mut missing = Vec::new();
        let unknown = |id: GatewayId| !costs.iter().any(|cost| cost.gateway == id);
        for gateway in wanted.iter().copied().filter(|&id| unknown(id)) {
            let peer = self.peers.iter().find(|(_, state)| {
                state.config.gateway == gateway && state.session.is_established()
            });
            if let Some((&id, _)) = peer {
                missing.push((id, gateway));
            }
        }
        self.gather(now, from, number, &session, costs, missing);
    }

    /// Asks other gateways of this network for their own costs.
    fn gather(
        &mut self,
        now: Instant,
        from: PeerId,
        number: u32,
        session: &SessionName,
        costs: Vec<GatewayCost>,
        missing: Vec<(PeerId, GatewayId)>,
    ) {
        if missing.is_empty() {
            self.give(now, from, number, session, costs);
            return;
        }
        let own = self.numbers.next_request();
        let open = Open::Gather {
            from,
            number,
            costs: costs.clone(),
            missing: missing.iter().map(|(id, _)| *id).collect(),
        };
        let deadline = now + self.config.sroute_timeout / 2;
        if !self.sroutes.add(own, session, open, deadline) {
            self.give(now, from, number, session, costs);
            return;
        }
        for (id, gateway) in missing {
            let request = Request {
                request: own,
                towards: gateway,
                hop_limit: 0,
                internal: true,
                gateways: [gateway].into(),
                session: session.clone(),
            };
            self.send(id, Message::SrouteRequest(request));
        }
    }

    /// Sends the owner's answer to the gateway that asked, or down the tree.
    fn give(
        &mut self,
        now: Instant,
        to: PeerId,
        number: u32,
        session: &SessionName,
        costs: Vec<GatewayCost>,
    ) {
        if number == 0 {
            self.keep_sroutes(now, session, costs.clone());
        }
        self.respond(to, number, session, Ok(costs));
    }

    pub(super) fn sroute_response(
        &mut self,
        now: Instant,
        from: PeerId,
        response: Response,
    ) -> Result<(), Error> {
        let number = response.request;
        if number == 0 {
            return self.unsolicited_sroutes(now, from, response);
        }
        let pending = self
            .sroutes
            .take_from(number, from, &response.session)
            .ok_or(Error::SrouteUnasked)?;
        let learned = matches!(response.outcome, Outcome::Costs | Outcome::Null);
        match pending.open {
            Open::Passed {
                from: requester,
                number,
                ..
            } => {
                // Costs are kept only where the owner is known, and only if no costs that trees here need must be
                // evicted.
                let keep = learned
                    && self.owner_of(&response.session).is_some()
                    && self.sroutes.has_room(&response.session);
                if keep {
                    self.keep_sroutes(now, &response.session, response.costs.clone());
                }
                self.send(
                    requester,
                    Message::SrouteResponse(Response {
                        request: number,
                        ..response
                    }),
                );
            }
            Open::Own { slot, .. } => {
                if learned {
                    self.keep_sroutes(now, &response.session, response.costs);
                }
                self.discovered(now, slot, number, response.outcome);
            }
            Open::Gather {
                from: requester,
                number: their_number,
                mut costs,
                mut missing,
            } => {
                missing.retain(|id| *id != from);
                let gateway = self.peers.get(&from).map(|state| state.config.gateway);
                let own = |cost: &GatewayCost| Some(cost.gateway) == gateway;
                costs.extend(response.costs.into_iter().filter(own));
                if missing.is_empty() {
                    self.give(now, requester, their_number, &pending.session, costs);
                } else {
                    let open = Open::Gather {
                        from: requester,
                        number: their_number,
                        costs,
                        missing,
                    };
                    self.sroutes
                        .add(number, &pending.session, open, pending.deadline);
                }
            }
            Open::Native { .. } => {}
        }
        Ok(())
    }

    /// Handles unsolicited costs: from upstream, or from another gateway of this network.
    fn unsolicited_sroutes(
        &mut self,
        now: Instant,
        from: PeerId,
        update: Response,
    ) -> Result<(), Error> {
        if !matches!(update.outcome, Outcome::Costs | Outcome::Null) {
            return Err(Error::SrouteUnasked);
        }
        let internal = self.is_internal(from);
        let slot = self.trees.find(&update.session);
        let tree = slot.and_then(|slot| self.trees.get(slot));
        let upstream = tree.is_some_and(|tree| tree.is_upstream_or_joining(from));
        if !internal && !upstream {
            return Err(Error::SrouteUnasked);
        }
        // Another gateway of this network sends them for clients that it redirects here; an attached tree does not
        // need them.
        if !upstream && tree.is_some_and(Tree::is_attached) {
            return Ok(());
        }
        let changed = self.keep_sroutes(now, &update.session, update.costs.clone());
        if let Some(slot) = slot.filter(|_| upstream) {
            let below = self.trees.get(slot).map_or_else(Vec::new, Tree::below);
            for id in below.into_iter().filter(|&id| id != from) {
                self.send(id, Message::SrouteResponse(update.clone()));
            }
        }
        if let Some(slot) = slot.filter(|_| changed) {
            self.trees.pending.insert(slot);
        }
        Ok(())
    }

    /// Ends this gateway's own discovery.
    fn discovered(&mut self, now: Instant, slot: Slot, number: u32, outcome: Outcome) {
        let Some(tree) = self.trees.get_mut(slot) else {
            return;
        };
        if tree
            .discovery
            .as_ref()
            .is_none_or(|discovery| discovery.request != number)
        {
            return;
        }
        tree.discovery = None;
        if outcome == Outcome::NoSession {
            self.fail(now, slot, Reason::NoSession);
        } else {
            self.advance(now, slot);
        }
    }

    pub(super) fn expire_sroutes(&mut self, now: Instant) {
        while self.sroutes.known.pop_expired(now).is_some() {}
        while let Some((number, pending)) = self.sroutes.pending.pop_expired(now) {
            match pending.open {
                Open::Passed { from, number, .. } => {
                    self.respond(from, number, &pending.session, Err(Outcome::NoRoute));
                }
                // No answer from the native network counts as a null response.
                Open::Native { from, number, .. } => {
                    self.respond(from, number, &pending.session, Err(Outcome::Null));
                }
                Open::Gather {
                    from,
                    number,
                    mut costs,
                    missing,
                    ..
                } => {
                    // A gateway that does not answer is not used.
                    for id in missing {
                        if let Some(state) = self.peers.get(&id) {
                            let gateway = state.config.gateway;
                            costs.push(GatewayCost {
                                gateway,
                                cost: Cost::INFINITE,
                            });
                        }
                    }
                    self.give(now, from, number, &pending.session, costs);
                }
                Open::Own { slot, .. } => {
                    self.stats.discoveries_failed += 1;
                    self.discovered(now, slot, number, Outcome::NoRoute);
                }
            }
        }
    }
}
