//! A router whose daemon fails, temporarily or permanently, while the router keeps forwarding.

use std::collections::VecDeque;

use netsim::{Instant, Io, Node, Port};

use super::profile::NetworkProfile;

/// Makes the node anew: with its daemon, or without.
type Make<N> = Box<dyn Fn(Instant, bool) -> N>;

/// A node and the times at which its daemon fails and returns.
pub(super) struct Daemon<N> {
    pub(super) node: N,
    changes: VecDeque<(Instant, bool)>,
    make: Make<N>,
}

impl<N> Daemon<N> {
    /// The node as it is at this time.
    pub(super) fn new(
        profile: &NetworkProfile,
        number: u32,
        now: Instant,
        make: impl Fn(Instant, bool) -> N + 'static,
    ) -> Self {
        let mut changes = VecDeque::new();
        for (from, until) in profile.daemon_outages(number) {
            changes.push_back((from, false));
            changes.extend(until.map(|at| (at, true)));
        }
        let mut up = true;
        while let Some(then) = due(&mut changes, now) {
            up = then;
        }
        Self {
            node: make(now, up),
            changes,
            make: Box::new(make),
        }
    }

    fn change(&mut self, now: Instant) {
        while let Some(up) = due(&mut self.changes, now) {
            self.node = (self.make)(now, up);
        }
    }
}

/// The next change, if its time has come.
fn due(changes: &mut VecDeque<(Instant, bool)>, now: Instant) -> Option<bool> {
    let (at, up) = *changes.front()?;
    if at > now {
        return None;
    }
    changes.pop_front();
    Some(up)
}

impl<N: Node> Node for Daemon<N> {
    fn handle_packet(&mut self, now: Instant, port: Port, packet: &[u8], io: &mut Io<'_>) {
        self.change(now);
        self.node.handle_packet(now, port, packet, io);
    }

    fn handle_timeout(&mut self, now: Instant, io: &mut Io<'_>) {
        self.change(now);
        self.node.handle_timeout(now, io);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let change = self.changes.front().map(|(at, _)| *at);
        change.into_iter().chain(self.node.poll_timeout()).min()
    }
}
