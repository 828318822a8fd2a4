//! Random choice: repliers drawn at random, and Search Party (LMS §6.7).

use rand_core::Rng;

use super::{Policy, Router};
use crate::rule::Role;
use crate::table::{EntryId, Replier};
use crate::{Duration, Family, Iface, Instant};

/// The destination of one copy of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    Up,
    Down(Iface),
}

impl<A: Family> Router<'_, A> {
    /// Under [`Policy::Random`]: draws the replier of an entry when the last draw has
    /// expired.
    pub(super) fn refresh_draw(&mut self, now: Instant, id: EntryId, redraw: Duration) {
        if !self
            .table
            .get(id)
            .is_some_and(|entry| entry.is_draw_due(now))
        {
            return;
        }
        let replier = self.draw_child(id, Iface::UNSET).map(|iface| Replier {
            iface,
            cost: 0,
            neighbour: None,
        });
        if let Some(entry) = self.table.get_mut(id) {
            entry.set_drawn(now, replier, redraw);
            self.table.changed(id);
        }
    }

    /// Draws a downstream interface other than `except`, uniformly.
    fn draw_child(&mut self, id: EntryId, except: Iface) -> Option<Iface> {
        let others =
            self.table.downstream_len(id) - usize::from(self.table.is_downstream(id, except));
        // At most 65,535 interfaces, so the bias of the multiplication is below 2^-16.
        let n = ((u64::from(self.rng.next_u32()) * others as u64) >> 32) as usize;
        self.table.nth_downstream(id, n, except)
    }

    /// Draws the destinations of the copies of a request under Search Party. `role` is that of its interface and
    /// the rule has let it through: unturned from below, or turned from the parent.
    pub(super) fn search_party(
        &mut self,
        id: EntryId,
        arrival: Iface,
        role: Role,
        has_parent: bool,
    ) -> (Option<Way>, Option<Way>) {
        let Policy::SearchParty { copies, up } = self.policy else {
            return (None, None);
        };
        let first = self.draw_way(id, arrival, role, has_parent, up);
        if copies < 2 || first.is_none() {
            return (first, None);
        }
        let second = self.draw_way(id, arrival, role, has_parent, up);
        let second = second.filter(|_| first != second);
        // The copy that goes up is untouched: it must leave before the bytes are edited.
        if second == Some(Way::Up) {
            (second, first)
        } else {
            (first, second)
        }
    }

    fn draw_way(
        &mut self,
        id: EntryId,
        arrival: Iface,
        role: Role,
        has_parent: bool,
        up: u8,
    ) -> Option<Way> {
        let may_go_up = role != Role::Parent && has_parent;
        if may_go_up && (self.rng.next_u32() as u8) < up {
            return Some(Way::Up);
        }
        let down = self.draw_child(id, arrival).map(Way::Down);
        down.or(may_go_up.then_some(Way::Up))
    }
}
