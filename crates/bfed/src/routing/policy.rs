//! Policies on import and export (§5.1): rules in order, the first that matches decides.

use alloc::vec::Vec;

use super::Route;
use crate::types::{BnNum, Cost, GatewayId, Table, Tables};
use crate::wire::attributes::MAX_TAGS;

/// What a rule looks at. Everything that is set must hold; nothing set matches every route.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Match {
    /// The route is of one of these tables.
    pub tables: Option<Tables>,
    /// It leads to a gateway of this network.
    pub network: Option<BnNum>,
    /// It leads to this gateway.
    pub destination: Option<GatewayId>,
    /// It goes through this network, or leads there.
    pub passes: Option<BnNum>,
    /// It bears this tag.
    pub tag: Option<u32>,
    /// It goes through more gateways than that.
    pub longer_than: Option<usize>,
}

/// What a rule changes on a route that it accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Changes {
    /// On import: prefer the route by this; higher wins, 100 is usual.
    pub preference: Option<u32>,
    /// Make it dearer by this (by the table's way to join costs).
    pub add_cost: Cost,
    /// Mark it, unless it bears as many tags as may be.
    pub add_tag: Option<u32>,
    /// Take a mark away.
    pub remove_tag: Option<u32>,
}

/// What becomes of a route.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// It is taken, with these changes.
    Accept(Changes),
    /// It is not.
    Reject,
}

/// One rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// Which routes.
    pub when: Match,
    /// What becomes of them.
    pub then: Action,
}

/// Rules in order, and what becomes of routes that none matches. Each route walks them: keep them to
/// hundreds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Policy {
    /// The rules.
    pub rules: Vec<Rule>,
    /// For routes that no rule matches.
    pub otherwise: Action,
}

impl Policy {
    /// Takes every route as it is.
    #[must_use]
    pub fn accept_all() -> Self {
        Policy {
            rules: Vec::new(),
            otherwise: Action::Accept(Changes::default()),
        }
    }

    /// Takes none.
    #[must_use]
    pub fn reject_all() -> Self {
        Policy {
            rules: Vec::new(),
            otherwise: Action::Reject,
        }
    }

    /// On export: only routes to the gateways of `network` itself. A network that is no transit
    /// exports so (§5.1).
    #[must_use]
    pub fn only_to(network: BnNum) -> Self {
        let when = Match {
            network: Some(network),
            ..Match::default()
        };
        let rule = Rule {
            when,
            then: Action::Accept(Changes::default()),
        };
        Policy {
            rules: [rule].into(),
            otherwise: Action::Reject,
        }
    }

    /// What becomes of a route.
    #[must_use]
    pub fn decide(&self, table: Table, destination: GatewayId, route: &Route) -> Action {
        let rule = self
            .rules
            .iter()
            .find(|rule| rule.when.holds(table, destination, route));
        rule.map_or(self.otherwise, |rule| rule.then)
    }
}

impl Match {
    fn holds(&self, table: Table, destination: GatewayId, route: &Route) -> bool {
        self.tables.is_none_or(|tables| tables.contains(table))
            && self
                .network
                .is_none_or(|network| network == destination.network)
            && self
                .destination
                .is_none_or(|gateway| gateway == destination)
            && self
                .passes
                .is_none_or(|network| route.path.iter().any(|on| on.network == network))
            && self.tag.is_none_or(|tag| route.tags.contains(&tag))
            && self.longer_than.is_none_or(|len| route.path.len() > len)
    }
}

impl Changes {
    /// Applies them but for the preference.
    pub(super) fn apply(&self, table: Table, route: &mut Route) {
        route.cost = table.metric().join(route.cost, self.add_cost);
        if self.remove_tag.is_none() && self.add_tag.is_none() {
            return;
        }
        let mut tags = route.tags.to_vec();
        tags.retain(|&tag| Some(tag) != self.remove_tag);
        if let Some(tag) = self.add_tag
            && !tags.contains(&tag)
            && tags.len() < MAX_TAGS
        {
            tags.push(tag);
        }
        route.tags = tags.into();
    }
}
