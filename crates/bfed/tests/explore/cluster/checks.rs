//! Properties of every state, and of the end of a run.

use bfed::control::TreeStatus;
use bfed::*;

use super::{Cluster, Control, session};
use crate::carrier;
use crate::gateway::check_counts;

impl Cluster {
    /// What holds in every state.
    pub(super) fn check_state(&self, now: Instant) -> Result<(), String> {
        if let Some(violation) = &self.violation {
            return Err(violation.clone());
        }
        let owner = check_counts(&self.owner.control);
        owner.map_err(|wrong| format!("the owner's control node {wrong}"))?;
        let mut holders = 0;
        for (at, place) in (0..).zip(&self.places) {
            if let Some(Control { machine, .. }) = &place.control {
                let counts = check_counts(machine);
                counts.map_err(|wrong: String| format!("control node {at} {wrong}"))?;
                holders += usize::from(machine.coordinator().holds(now));
            }
        }
        if holders > 1 {
            return Err("two control nodes hold a lease".into());
        }
        let wants = self.viewer.request_at.is_some();
        if self.data.delivers_to.len() > 1 {
            return Err(format!("data goes to {:?}", self.data.delivers_to));
        }
        match wants && self.viewer.has_received && !self.receives() {
            true => Err(format!("no data for {:?}", self.viewer)),
            false => Ok(()),
        }
    }

    /// One control node is active if one is alive, and it is the one that etcd knows.
    pub(super) fn check_active(&self) -> Result<Option<usize>, String> {
        let actives: Vec<_> = self.actives().collect();
        let is_alive = self.places.iter().any(|place| place.control.is_some());
        let leader = self.etcd.leader();
        match actives[..] {
            [] if !is_alive => Ok(None),
            [active] => {
                let control = self.places[active].control.as_ref();
                let lease = control.and_then(|control| control.client.lease());
                match lease == leader {
                    true => Ok(Some(active)),
                    false => Err(format!(
                        "active is {active}, but etcd knows lease {leader:?}"
                    )),
                }
            }
            _ => Err(format!("active are {actives:?}")),
        }
    }

    pub(super) fn check_served(&mut self, active: usize) -> Result<(), String> {
        let (tree, counts) = (self.tree(active), self.data.counts());
        let is_right =
            |tree: &TreeStatus| tree.attached && tree.clients && tree.node == Some(carrier::NUMBER);
        if !tree.as_ref().is_some_and(is_right) || counts != [1, 2, 1] {
            return Err(format!("{tree:?}; sessions, edges, channels: {counts:?}"));
        }
        let assigned: Vec<_> = self.etcd.assigned.iter().collect();
        if assigned != [(&session(), &carrier::NUMBER)] {
            return Err(format!("assigned in etcd: {assigned:?}"));
        }
        if self.owner.receivers().count() != 1 || !self.receives() {
            return Err(format!(
                "the owner's data node has {:?}",
                self.owner.record()
            ));
        }
        match self.viewer.open.is_empty() {
            true => Ok(()),
            false => Err(format!("requests without an answer: {:?}", self.viewer)),
        }
    }

    pub(super) fn check_released(&mut self, active: usize) -> Result<(), String> {
        let (tree, counts) = (self.tree(active), self.data.counts());
        if tree.is_some() || counts != [0, 0, 0] {
            return Err(format!("{tree:?}; sessions, edges, channels: {counts:?}"));
        }
        if let Some(record) = self.owner.record() {
            return Err(format!("the owner's data node has {record:?}"));
        }
        match self.etcd.assigned.is_empty() {
            true => Ok(()),
            false => Err(format!("assigned in etcd: {:?}", self.etcd.assigned)),
        }
    }
}
