//! Seeds for [`bfed_control`](super::bfed_control): lists of steps, as its `run` reads them.

use bfed::Table;
use bfed::wire::no_route;

use crate::script::Lines;

/// The gateway of the honest session's network that only the liar announces, as a script names it.
const LIARS_GATEWAY: [u8; 2] = [1, 1];

/// Steps that establish the lying peer and the lying data node.
fn established() -> Lines {
    let mut lines = Lines::default();
    lines.u8(4).u8(0).u8(0).u8(4).u8(2).u8(4).u8(1).u8(4).u8(3);
    lines
}

/// Valid messages of the liar about the honest client's session, as [`bfed_control`](super::bfed_control) reads them.
impl Lines {
    /// Two seconds pass.
    fn pause(&mut self) -> &mut Self {
        self.u8(5).u8(136)
    }

    /// Starts a message of that kind, see `peer_message`.
    fn lie(&mut self, kind: u8) -> &mut Self {
        self.u8(1).u8(kind)
    }

    /// Names the honest session, and leaves the message whole.
    fn honest(&mut self) -> &mut Self {
        self.u8(0).u8(0)
    }

    fn one_channel(&mut self) -> &mut Self {
        self.u8(1).u8(9).u8(1).u8(0)
    }

    /// One cost for the gateway that the liar announces.
    fn one_cost(&mut self, cost: u32) -> &mut Self {
        self.u8(1).u8(LIARS_GATEWAY[0]).u8(LIARS_GATEWAY[1]);
        self.0.extend(cost.to_le_bytes());
        self
    }

    /// Announces another gateway of the session's network, in every table.
    fn announce(&mut self) -> &mut Self {
        for table in 0..Table::COUNT as u8 {
            self.lie(2).u8(table).u8(0).u8(1);
            self.u8(LIARS_GATEWAY[0]).u8(LIARS_GATEWAY[1]);
            self.u8(0).u8(10).u8(0).u8(0).u8(0);
        }
        self
    }

    fn join(&mut self, cost: u32) -> &mut Self {
        self.lie(5).u8(20).u8(1).one_cost(cost);
        self.one_channel().honest()
    }

    fn leave(&mut self) -> &mut Self {
        self.lie(7).honest()
    }

    fn translate(&mut self) -> &mut Self {
        self.lie(8).u8(2).u8(2).u8(0);
        self.u8(LIARS_GATEWAY[0]).u8(LIARS_GATEWAY[1]);
        self.one_channel().honest()
    }

    fn no_route(&mut self, reason: u8) -> &mut Self {
        self.lie(9).u8(reason).honest()
    }

    fn sroutes(&mut self, request: u8, outcome: u8, cost: u32) -> &mut Self {
        self.lie(10).u8(0).u8(request).u8(outcome);
        self.one_cost(cost).honest()
    }
}

/// What an established liar says about the honest client's session, all of it well-formed.
fn lies() -> Vec<Vec<u8>> {
    let told = || {
        let mut lines = established();
        lines.pause().pause();
        lines
    };
    let mut seeds = Vec::new();
    // Costs in a JOIN: for a gateway without a route, an infinite one, and one that leads to the liar.
    for (announced, cost) in [(false, 0), (true, u32::MAX), (true, 0)] {
        let mut lines = told();
        if announced {
            lines.announce();
        }
        for _ in 0..4 {
            lines.join(cost).pause().translate().pause();
        }
        seeds.push(lines.0);
    }
    // The liar gets the session no more, so that it may be joined; the costs that it claimed would lead to it.
    for leave_first in [false, true] {
        let mut lines = told();
        lines.join(0).pause();
        match leave_first {
            true => lines.leave().announce(),
            false => lines.announce().leave(),
        };
        for _ in 0..4 {
            lines.pause().translate();
        }
        seeds.push(lines.0);
    }
    // Costs without a request, and as answers to requests that other peers were sent.
    for outcome in 0..3 {
        let mut lines = told();
        lines.announce();
        for request in 0..24 {
            lines.sroutes(request, outcome, 0);
        }
        lines.pause().translate().pause().translate().pause();
        seeds.push(lines.0);
    }
    // NO_ROUTE of each reason, and TRANSLATION, by a peer that was not asked.
    let mut lines = told();
    lines.announce().translate();
    for reason in 0..no_route::Reason::ALL.len() as u8 {
        lines.no_route(reason).translate().pause();
    }
    seeds.push(lines.0);
    // The same by a peer that gets the session from here.
    let mut lines = told();
    lines.announce().join(0).translate();
    for reason in 0..no_route::Reason::ALL.len() as u8 {
        lines.no_route(reason).sroutes(0, 0, 0).pause().translate();
    }
    seeds.push(lines.0);
    seeds
}

/// Each golden message of an established hostile peer, steps of every kind, and false messages about the honest session.
pub fn seeds() -> Vec<Vec<u8>> {
    let start = established;
    let mut seeds = Vec::new();
    for golden in crate::goldens::of("crates/bfed/tests/wire/golden.rs") {
        let mut lines = start();
        lines
            .u8(0)
            .bytes(&golden)
            .u8(1)
            .u8(5)
            .u8(170)
            .u8(0)
            .bytes(&golden)
            .u8(0);
        seeds.push(lines.0);
    }
    for kind in 0..11 {
        let mut lines = start();
        for step in 0..20u8 {
            lines
                .u8(1)
                .u8(kind)
                .u8(step)
                .u8(1)
                .u8(step % 3)
                .u8(2)
                .u8(1)
                .u8(step)
                .u8(0)
                .u8(1)
                .u8(0);
            lines
                .u8(6)
                .u8(step % 5)
                .u8(0)
                .u8(step)
                .u8(0)
                .u8(step % 6)
                .u8(5)
                .u8(120 + step);
        }
        seeds.push(lines.0);
    }
    seeds.extend(lies());
    seeds
}
