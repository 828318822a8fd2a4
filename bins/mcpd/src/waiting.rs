//! Connections that have offered nothing yet: few, for a short time. No peer can keep others out by occupying
//! all places.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::AbortHandle;

/// Places in total. Each costs at most 300 KiB: buffers of TLS and of the conversation, one frame.
pub(crate) const MAX_WAITING: usize = 64;
/// Places of one address.
pub(crate) const MAX_PER_ADDRESS: usize = 16;

/// The connections that wait, in the order of arrival.
#[derive(Debug, Default)]
pub(crate) struct Waiting(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    places: Vec<Place>,
    next: u64,
}

#[derive(Debug)]
struct Place {
    number: u64,
    address: IpAddr,
    /// It is authenticated.
    proved: bool,
    task: AbortHandle,
}

/// A place, which is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Ticket {
    waiting: Arc<Waiting>,
    number: u64,
}

impl Waiting {
    /// Returns the ticket of one more connection; [`Waiting::enter`] names its task.
    pub(crate) fn ticket(self: &Arc<Self>) -> Ticket {
        let mut state = self.lock();
        state.next += 1;
        Ticket {
            waiting: Arc::clone(self),
            number: state.next,
        }
    }

    /// Enters the connection of the newest ticket. If its address has too many places, or all are taken, the
    /// oldest connection that is not authenticated is ended, or else the oldest. Returns the address of that
    /// connection.
    pub(crate) fn enter(&self, address: IpAddr, task: AbortHandle) -> Option<IpAddr> {
        let mut state = self.lock();
        let own = |place: &&Place| place.address == address;
        let evicted = if state.places.iter().filter(own).count() >= MAX_PER_ADDRESS {
            state.evict(|place| place.address == address)
        } else if state.places.len() >= MAX_WAITING {
            state.evict(|_| true)
        } else {
            None
        };
        let number = state.next;
        state.places.push(Place {
            number,
            address,
            proved: false,
            task,
        });
        evicted
    }

    /// Ends the oldest connection that is not authenticated: the process may be out of descriptors.
    pub(crate) fn make_room(&self) {
        self.lock().evict(|place| !place.proved);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn evict(&mut self, among: impl Fn(&Place) -> bool) -> Option<IpAddr> {
        let candidates = self.places.iter().enumerate();
        let (at, _) = candidates
            .filter(|(_, place)| among(place))
            .min_by_key(|(at, place)| (place.proved, *at))?;
        let place = self.places.remove(at);
        place.task.abort();
        Some(place.address)
    }
}

impl Ticket {
    /// Marks the connection as authenticated.
    pub(crate) fn proved(&self) {
        let mut state = self.waiting.lock();
        let number = self.number;
        if let Some(place) = state.places.iter_mut().find(|p| p.number == number) {
            place.proved = true;
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let number = self.number;
        self.waiting.lock().places.retain(|p| p.number != number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Visitor(tokio::task::JoinHandle<()>, Arc<Ticket>);

    fn visit(waiting: &Arc<Waiting>, address: [u8; 4]) -> Visitor {
        let ticket = Arc::new(waiting.ticket());
        let kept = Arc::clone(&ticket);
        let task = tokio::spawn(async move {
            let _ticket = kept;
            std::future::pending::<()>().await;
        });
        waiting.enter(address.into(), task.abort_handle());
        Visitor(task, ticket)
    }

    async fn is_over(visitor: &mut Visitor) -> bool {
        tokio::task::yield_now().await;
        visitor.0.is_finished()
    }

    #[tokio::test]
    async fn the_oldest_that_has_proved_nothing_makes_room() {
        let waiting = Arc::new(Waiting::default());
        let mut flood: Vec<_> = (0..MAX_PER_ADDRESS)
            .map(|_| visit(&waiting, [10, 0, 0, 1]))
            .collect();
        flood[0].1.proved();
        let mut other = visit(&waiting, [10, 0, 0, 2]);
        // One more connection of the first address: its own oldest is ended, not that of another.
        let _more = visit(&waiting, [10, 0, 0, 1]);
        assert!(!is_over(&mut flood[0]).await, "it has proved who it is");
        assert!(is_over(&mut flood[1]).await);
        assert!(!is_over(&mut other).await);
        let mut many: Vec<_> = (0..MAX_WAITING as u8)
            .map(|at| visit(&waiting, [10, 0, 1, at]))
            .collect();
        assert!(!is_over(&mut flood[0]).await && is_over(&mut other).await);
        assert!(!is_over(many.last_mut().expect("one")).await);
        assert_eq!(waiting.lock().places.len(), MAX_WAITING);
    }
}
