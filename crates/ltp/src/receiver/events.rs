//! Events that wait for the application.

use heapless::Deque;

use crate::event::ReceiverEvent;

/// Events in order; the last one of a session is never lost.
#[derive(Default, Debug)]
pub(super) struct Events {
    waiting: Deque<ReceiverEvent, 8>,
    last: Option<ReceiverEvent>,
    /// The last event waits until the source has confirmed it.
    is_unconfirmed: bool,
}

impl Events {
    /// Adds an event. Returns false without room.
    pub(super) fn push(&mut self, event: ReceiverEvent) -> bool {
        self.waiting.push_back(event).is_ok()
    }

    pub(super) fn poll(&mut self) -> Option<ReceiverEvent> {
        let is_ready = !self.is_unconfirmed;
        let last = || self.last.take_if(|_| is_ready);
        self.waiting.pop_front().or_else(last)
    }

    /// Sets the last event. `is_confirmed`: it need not wait for [`Events::confirm_last`].
    pub(super) fn set_last(&mut self, event: ReceiverEvent, is_confirmed: bool) {
        self.last = Some(event);
        self.is_unconfirmed = !is_confirmed;
    }

    /// The source has confirmed the last event, or cannot be reached.
    pub(super) fn confirm_last(&mut self) {
        self.is_unconfirmed = false;
    }

    /// The session continues: forgets the last event, which the application has not seen.
    pub(super) fn withdraw_last(&mut self) {
        self.last = None;
        self.is_unconfirmed = false;
    }

    pub(super) fn is_unconfirmed(&self) -> bool {
        self.is_unconfirmed
    }

    /// Whether the application has taken the last event.
    pub(super) fn is_last_taken(&self) -> bool {
        self.last.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Failure, SessionId};

    fn resumed(session: u32) -> ReceiverEvent {
        ReceiverEvent::Resumed {
            session: SessionId(session),
        }
    }

    fn failed() -> ReceiverEvent {
        ReceiverEvent::Failed {
            failure: Failure::Store,
            first_missing: 0..1,
        }
    }

    #[test]
    fn events_come_in_order_and_the_last_one_comes_last() {
        let mut events = Events::default();
        assert!(events.is_last_taken());
        events.set_last(failed(), true);
        for session in 0..8 {
            assert!(events.push(resumed(session)));
        }
        assert!(!events.push(resumed(8)), "there is no room");
        for session in 0..8 {
            assert_eq!(events.poll(), Some(resumed(session)));
        }
        assert!(!events.is_last_taken());
        assert_eq!(events.poll(), Some(failed()));
        assert!(events.is_last_taken());
        assert_eq!(events.poll(), None);
    }

    #[test]
    fn the_last_event_waits_for_the_source() {
        let mut events = Events::default();
        events.set_last(failed(), false);
        assert!(events.is_unconfirmed() && !events.is_last_taken());
        assert!(events.push(resumed(1)));
        assert_eq!(events.poll(), Some(resumed(1)));
        assert_eq!(events.poll(), None);
        events.confirm_last();
        assert!(!events.is_unconfirmed());
        assert_eq!(events.poll(), Some(failed()));
        // One that the source has denied is never seen.
        events.set_last(failed(), false);
        events.withdraw_last();
        assert!(events.is_last_taken() && !events.is_unconfirmed());
        assert_eq!(events.poll(), None);
    }
}
