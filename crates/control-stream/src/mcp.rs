//! The endpoints of [`mcp_control`] as stream machines.

use mcp_control::{Endpoint, Instant, Role};

use crate::conversation::StreamMachine;

impl<R: Role> StreamMachine for Endpoint<R> {
    type Event = R::Event;

    fn handle_bytes(&mut self, now: Instant, bytes: &mut &[u8]) -> bool {
        Endpoint::handle_bytes(self, now, bytes)
    }

    fn handle_close(&mut self, now: Instant) {
        Endpoint::handle_close(self, now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        Endpoint::handle_timeout(self, now);
    }

    fn poll_transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<usize> {
        Endpoint::poll_transmit(self, now, buffer).map(|frame| frame.len)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Endpoint::poll_timeout(self)
    }

    fn poll_event(&mut self) -> Option<R::Event> {
        Endpoint::poll_event(self)
    }

    fn is_ended(&self) -> bool {
        Endpoint::is_ended(self)
    }
}
