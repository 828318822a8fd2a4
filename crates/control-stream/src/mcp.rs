//! The machines of [`mcp_control`] as stream machines.

use mcp_control::{Instant, Machine, Role};

use crate::conversation::StreamMachine;

impl<R: Role> StreamMachine for Machine<R> {
    type Event = R::Event;

    fn handle_bytes(&mut self, now: Instant, bytes: &mut &[u8]) -> bool {
        Machine::hear(self, now, bytes)
    }

    fn handle_close(&mut self, now: Instant) {
        Machine::handle_close(self, now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        Machine::handle_timeout(self, now);
    }

    fn poll_transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<usize> {
        Machine::poll_transmit(self, now, buffer).map(|frame| frame.len)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Machine::poll_timeout(self)
    }

    fn poll_event(&mut self) -> Option<R::Event> {
        Machine::poll_event(self)
    }

    fn is_ended(&self) -> bool {
        Machine::is_ended(self)
    }
}
