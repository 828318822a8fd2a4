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
