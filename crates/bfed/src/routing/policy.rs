//! Import and export policies (§5.1): the first rule that matches decides.

use alloc::vec::Vec;

use super::Route;
use crate::types::{BnNum, Cost, GatewayId, Table, Tables};
use crate::wire::attributes::MAX_TAGS;

/// Conditions of a rule. All that are set must hold; without any, every route matches.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Match {
    /// The route is of one of these tables.
    pub tables: Option<Tables>,
    /// Its destination is a gateway of this network.
    pub network: Option<BnNum>,
    /// Its destination is this gateway.
    pub destination: Option<GatewayId>,
    /// Its path contains a gateway of this network.
    pub passes: Option<BnNum>,
    /// It has this tag.
    pub tag: Option<u32>,
    /// Its path has more gateways than this.
    pub longer_than: Option<usize>,
}

/// Changes to an accepted route.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Changes {
    /// On import: the preference; higher wins, the default is 100.
    pub preference: Option<u32>,
    /// Cost to add, by the metric of the table.
    pub add_cost: Cost,
    /// Tag to add, unless the route has as many as allowed.
    pub add_tag: Option<u32>,
    /// Tag to remove.
    pub remove_tag: Option<u32>,
}

/// Action of a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Accept the route, with changes.
    Accept(Changes),
    /// Reject the route.
    Reject,
}

/// A rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// The condition.
    pub when: Match,
    /// The action.
    pub then: Action,
}

/// Rules in order, and the action for routes that match none. Each route is compared with them in turn: keep them
/// to hundreds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Policy {
    /// The rules.
    pub rules: Vec<Rule>,
    /// Action for routes that match no rule.
    pub otherwise: Action,
}

impl Policy {
    /// Accepts every route unchanged.
    #[must_use]
    pub fn accept_all() -> Self {
        Policy {
            rules: Vec::new(),
            otherwise: Action::Accept(Changes::default()),
        }
    }

    /// Rejects every route.
    #[must_use]
    pub fn reject_all() -> Self {
        Policy {
            rules: Vec::new(),
            otherwise: Action::Reject,
        }
    }

    /// On export: accepts only routes to the gateways of `network` itself, for a network that carries no transit
    /// (§5.1).
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

    /// Returns the action for a route.
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
    /// Applies the changes except for the preference.
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
