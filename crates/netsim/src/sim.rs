//! The simulator: nodes, the loop, failures.

use std::any::Any;
use std::io;

use proto_core::time::Instant;

use crate::core::{Core, Ports};
use crate::link::{Cold, Hot, LinkConfig, LinkStats};
use crate::node::{Io, LinkId, Node, NodeId, Port};
use crate::packet;
use crate::queue::{Event, Kind};
use crate::rng::{DOMAIN_LINK, Rng, derive_seed};
use crate::script::Disposition;
use crate::trace::{Direction, Filter, Record};

/// Counters of a whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SimStats {
    /// Events taken from the queue, stale timers among them.
    pub events: u64,
    /// Packets delivered to a node.
    pub packets: u64,
    /// Calls of [`Node::handle_timeout`].
    pub timeouts: u64,
    /// Packets that arrived at a failed node.
    pub dead_node: u64,
    /// Packets sent on a port that does not exist.
    pub no_such_port: u64,
}

type Factory<N> = Box<dyn FnMut(Instant) -> N>;

struct Slot<N> {
    node: Option<N>,
    /// Time of the live timer event; others in the queue are stale. `u64::MAX` for none.
    armed_ns: u64,
}

/// Number of timeouts at one instant after which a node counts as stuck.
const MAX_SPINS: u32 = 1_000_000;

/// A network of nodes of type `N`, by default boxed nodes of any type.
pub struct Sim<N: Node = Box<dyn Node>> {
    seed: [u8; 32],
    core: Core,
    slots: Vec<Slot<N>>,
    /// For nodes that can be restarted: (node, maker), few.
    factories: Vec<(u32, Factory<N>)>,
    spins: (u32, u64, u32),
}

impl<N: Node> Sim<N> {
    /// Creates an empty network at time 0.
    #[must_use]
    pub fn new(seed: [u8; 32]) -> Self {
        Self {
            seed,
            core: Core::new(),
            slots: Vec::new(),
            factories: Vec::new(),
            spins: (u32::MAX, 0, 0),
        }
    }

    /// Reserves memory for this many nodes and links.
    pub fn reserve(&mut self, nodes: usize, links: usize) {
        self.slots.reserve_exact(nodes);
        self.core.ports.reserve_exact(nodes);
        self.core.reserve_directions(links * 2);
    }

    /// Adds a node. It cannot be restarted after a failure.
    ///
    /// # Panics
    ///
    /// At the 2^32nd node.
    pub fn add_node(&mut self, node: N) -> NodeId {
        let id = u32::try_from(self.slots.len()).expect("fewer than 2^32 nodes");
        self.slots.push(Slot {
            node: Some(node),
            armed_ns: u64::MAX,
        });
        self.core.ports.push(Ports::default());
        self.rearm(id);
        NodeId(id)
    }

    /// Adds a node created by `make`, now and at each restore after a failure.
    pub fn add_node_with(&mut self, mut make: impl FnMut(Instant) -> N + 'static) -> NodeId {
        let id = self.add_node(make(self.now()));
        self.factories.push((id.0, Box::new(make)));
        id
    }

    /// Links `a` and `b` with equal directions. The link becomes the next port of each.
    pub fn add_link(&mut self, a: NodeId, b: NodeId, config: LinkConfig) -> LinkId {
        self.add_asymmetric_link(a, b, config, config)
    }

    /// Links `a` and `b`.
    ///
    /// # Panics
    ///
    /// An unknown node, a node with 2^16 ports, or a [`LinkConfig`] out of bounds.
    pub fn add_asymmetric_link(
        &mut self,
        a: NodeId,
        b: NodeId,
        a_to_b: LinkConfig,
        b_to_a: LinkConfig,
    ) -> LinkId {
        let link = u32::try_from(self.core.hot.len() / 2).expect("fewer than 2^31 links");
        let a_port = self.core.ports[a.0 as usize].count;
        let b_port = self.core.ports[b.0 as usize].count + u16::from(a == b);
        self.add_direction(a.0, (b.0, b_port), a_to_b);
        self.add_direction(b.0, (a.0, a_port), b_to_a);
        LinkId(link)
    }

    fn add_direction(&mut self, from: u32, to: (u32, u16), config: LinkConfig) {
        let seed = derive_seed(&self.seed, DOMAIN_LINK, self.core.hot.len() as u64);
        let mut hot = Hot::new(to.0, to.1);
        let mut cold = Cold::new(Rng::new(seed));
        hot.configure(&mut cold, config);
        self.core.add_direction(from, hot, cold);
    }

    /// Derives a seed for another part of the simulation, such as the machine of a node. `domain` is below 2^32.
    #[must_use]
    pub fn derive_seed(&self, domain: u32, index: u64) -> [u8; 32] {
        derive_seed(&self.seed, u64::from(domain), index)
    }

    /// Returns the present.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.core.now()
    }

    /// Returns the present in nanoseconds.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.core.now_ns
    }

    /// Returns the counters of the run.
    #[must_use]
    pub fn stats(&self) -> SimStats {
        self.core.stats
    }

    /// Returns the counters of a link: from its first end to its second, and back.
    ///
    /// # Panics
    ///
    /// An unknown link, as in all methods that take a link or a node.
    #[must_use]
    pub fn link_stats(&self, link: LinkId) -> [LinkStats; 2] {
        [0, 1].map(|way| self.core.link_stats(link.0 * 2 + way))
    }

    /// Returns the number of waiting events, and of packets in flight.
    #[must_use]
    pub fn pending(&self) -> (usize, usize) {
        (self.core.queue.len(), self.core.store.live())
    }

    /// Returns the node unless it has failed.
    #[must_use]
    pub fn node(&self, id: NodeId) -> Option<&N> {
        self.slots[id.0 as usize].node.as_ref()
    }

    /// Returns all living nodes in the order of their numbers.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &N)> {
        let numbered = self.slots.iter().zip(0u32..);
        numbered.filter_map(|(slot, id)| slot.node.as_ref().map(|node| (NodeId(id), node)))
    }

    /// Calls commands on a node at the present instant, and asks for its timeout afterwards. Returns `None` if the
    /// node has failed.
    pub fn with_node<R>(
        &mut self,
        id: NodeId,
        act: impl FnOnce(&mut N, Instant, &mut Io<'_>) -> R,
    ) -> Option<R> {
        self.settle();
        let now = self.core.now();
        let node = self.slots[id.0 as usize].node.as_mut()?;
        let mut io = Io {
            core: &mut self.core,
            node: id.0,
            current: None,
        };
        let result = act(node, now, &mut io);
        self.rearm(id.0);
        Some(result)
    }

    /// Changes the configuration of a link; packets in flight are not affected.
    pub fn set_link(&mut self, link: LinkId, a_to_b: LinkConfig, b_to_a: LinkConfig) {
        for (direction, config) in [(link.0 * 2, a_to_b), (link.0 * 2 + 1, b_to_a)] {
            let place = self.core.place(direction);
            self.core.hot[place].configure(&mut self.core.cold[place], config);
        }
    }

    /// Fails the link at this time: packets in flight and sent later are dropped. A failure examines every event in
    /// the queue.
    pub fn fail_link(&mut self, at: Instant, link: LinkId) {
        self.plan(at, Kind::LinkDown, link.0);
    }

    /// Restores the link at this time.
    pub fn restore_link(&mut self, at: Instant, link: LinkId) {
        self.plan(at, Kind::LinkUp, link.0);
    }

    /// Fails the node at this time, with loss of its state.
    pub fn fail_node(&mut self, at: Instant, node: NodeId) {
        self.plan(at, Kind::NodeDown, node.0);
    }

    /// Recreates a failed node at this time.
    ///
    /// # Panics
    ///
    /// The node was not added by [`Sim::add_node_with`].
    pub fn restore_node(&mut self, at: Instant, node: NodeId) {
        let known = self.factories.iter().any(|(id, _)| *id == node.0);
        assert!(
            known,
            "node {} was added without a way to make it again",
            node.0
        );
        self.plan(at, Kind::NodeUp, node.0);
    }

    fn plan(&mut self, at: Instant, kind: Kind, target: u32) {
        let time_ns = to_ns(at).max(self.core.now_ns);
        self.core.queue.push(Event::new(time_ns, kind, target));
    }

    /// Lets `script` decide for each packet sent on a link whether it is lost; there is one script at a time. For
    /// example, to lose the second packet that node 3 sends:
    ///
    /// ```
    /// # use netsim::{Disposition, Sim};
    /// # let mut sim: Sim = Sim::new([0; 32]);
    /// let mut sent = 0;
    /// sim.script(move |packet| {
    ///     sent += u32::from(packet.from == 3);
    ///     if packet.from == 3 && sent == 2 { Disposition::Lose } else { Disposition::Chance }
    /// });
    /// ```
    pub fn script(&mut self, script: impl FnMut(&Record<'_>) -> Disposition + 'static) {
        self.core.script = Some(Box::new(script));
    }

    /// Calls `tap` for every packet that passes the filter.
    pub fn tap(&mut self, filter: Filter, tap: impl FnMut(&Record<'_>) + 'static) {
        self.core.traces.add_tap(filter, Box::new(tap));
    }

    /// Writes every packet that passes the filter as pcap (link type raw IP, nanoseconds).
    ///
    /// # Errors
    ///
    /// The header cannot be written. Later errors are kept for [`Sim::finish_captures`].
    pub fn capture(&mut self, filter: Filter, writer: impl io::Write + 'static) -> io::Result<()> {
        self.core.traces.add_capture(filter, Box::new(writer))
    }

    /// Ends all captures and flushes them.
    ///
    /// # Errors
    ///
    /// The first error of any capture.
    pub fn finish_captures(&mut self) -> io::Result<()> {
        self.core.traces.finish_captures()
    }

    /// Starts the digest of the run.
    pub fn enable_trace_hash(&mut self) {
        self.core.traces.enable_hash();
    }

    /// Returns the digest: equal for equal runs. `None` until enabled.
    #[must_use]
    pub fn trace_hash(&self) -> Option<u64> {
        self.core.traces.hash()
    }

    /// Runs until `end` or [`Io::stop`]; the present is then `end`, or the time of the stop. Returns `true` if it
    /// was stopped.
    pub fn run_until(&mut self, end: Instant) -> bool {
        let end_ns = to_ns(end);
        let stopped = self.run(end_ns);
        if !stopped {
            self.core.now_ns = self.core.now_ns.max(end_ns);
        }
        stopped
    }

    /// Runs until no event is left, or [`Io::stop`]. Returns `true` if it was stopped. Machines with periodic
    /// timers run without end.
    pub fn run_to_rest(&mut self) -> bool {
        self.run(u64::MAX)
    }

    /// Handles the next event. Returns `false` if there is none up to `end`.
    pub fn step(&mut self, end: Instant) -> bool {
        self.settle();
        match self.core.queue.pop_until(to_ns(end)) {
            Some(event) => {
                self.dispatch(event);
                true
            }
            None => false,
        }
    }

    fn run(&mut self, end_ns: u64) -> bool {
        self.core.stop = false;
        self.settle();
        self.touch();
        while let Some(event) = self.core.queue.pop_until(end_ns) {
            self.touch();
            self.dispatch(event);
            if self.core.stop {
                return true;
            }
        }
        false
    }

    /// Reads the memory of the next events together, so that the waits overlap.
    #[inline]
    fn touch(&self) {
        let mut sum = 0;
        for event in self.core.queue.batch() {
            if let Some(slot) = self.slots.get(event.target as usize) {
                sum ^= slot.armed_ns ^ self.core.first_sent(event.target);
                sum ^= slot.node.as_ref().map_or(0, Node::touch);
            }
        }
        std::hint::black_box(sum);
    }

    fn settle(&mut self) {
        if !self.core.settled {
            self.core.settle();
        }
    }

    #[inline]
    fn dispatch(&mut self, event: Event) {
        self.core.now_ns = event.time_ns;
        self.core.stats.events += 1;
        match event.kind {
            Kind::Deliver => self.deliver(event, event.packet),
            Kind::DeliverCorrupt => {
                let packet = self.core.corrupt(event.place as usize, event.packet);
                self.deliver(event, packet);
            }
            Kind::Lost => {
                self.core.cold[event.place as usize].link_down += 1;
                self.core.store.release(event.packet);
            }
            Kind::Timer => self.timer(event),
            Kind::LinkDown | Kind::LinkUp => {
                let up = event.kind == Kind::LinkUp;
                self.core.set_up(event.target * 2, up);
                self.core.set_up(event.target * 2 + 1, up);
            }
            Kind::NodeDown => {
                let slot = &mut self.slots[event.target as usize];
                (slot.node, slot.armed_ns) = (None, u64::MAX);
            }
            Kind::NodeUp => self.restart(event.target),
        }
    }

    #[inline]
    fn deliver(&mut self, event: Event, packet: packet::PacketId) {
        let (id, port) = (event.target, Port(event.port));
        let bytes = self.core.store.lend(packet);
        if !self.core.traces.is_empty() {
            self.core
                .trace(Direction::Received, event.place as usize, &bytes);
        }
        if let Some(node) = self.slots[id as usize].node.as_mut() {
            self.core.stats.packets += 1;
            let now = self.core.now();
            let mut io = Io {
                core: &mut self.core,
                node: id,
                current: Some((packet, &bytes)),
            };
            node.handle_packet(now, port, &bytes, &mut io);
        } else {
            self.core.stats.dead_node += 1;
        }
        self.core.store.give_back(packet, bytes);
        self.core.store.release(packet);
        self.rearm(id);
    }

    fn timer(&mut self, event: Event) {
        let id = event.target;
        let slot = &mut self.slots[id as usize];
        if slot.armed_ns != event.time_ns {
            return; // replaced by an earlier one, or its node died
        }
        slot.armed_ns = u64::MAX;
        let Some(node) = slot.node.as_mut() else {
            return;
        };
        if node
            .poll_timeout()
            .is_some_and(|at| to_ns(at) <= event.time_ns)
        {
            self.core.stats.timeouts += 1;
            let now = self.core.now();
            node.handle_timeout(
                now,
                &mut Io {
                    core: &mut self.core,
                    node: id,
                    current: None,
                },
            );
            self.check_progress(id);
        }
        self.rearm(id);
    }

    /// # Panics
    ///
    /// A node requests a timeout at one instant endlessly.
    fn check_progress(&mut self, id: u32) {
        let now_ns = self.core.now_ns;
        let (node, time_ns, count) = &mut self.spins;
        if (*node, *time_ns) != (id, now_ns) {
            (*node, *time_ns, *count) = (id, now_ns, 0);
        }
        *count += 1;
        assert!(
            *count < MAX_SPINS,
            "node {id} asks for a timeout at {now_ns} ns for ever"
        );
    }

    /// Queues the node's timeout unless an earlier timer will ask for it anyway.
    #[inline]
    fn rearm(&mut self, id: u32) {
        let slot = &mut self.slots[id as usize];
        let Some(node) = slot.node.as_ref() else {
            return;
        };
        let Some(at) = node.poll_timeout() else {
            return;
        };
        let time_ns = to_ns(at).max(self.core.now_ns);
        if time_ns < slot.armed_ns {
            slot.armed_ns = time_ns;
            self.core.queue.push(Event::new(time_ns, Kind::Timer, id));
        }
    }

    fn restart(&mut self, id: u32) {
        let now = self.core.now();
        if self.slots[id as usize].node.is_some() {
            return;
        }
        if let Some((_, make)) = self.factories.iter_mut().find(|(node, _)| *node == id) {
            self.slots[id as usize] = Slot {
                node: Some(make(now)),
                armed_ns: u64::MAX,
            };
            self.rearm(id);
        }
    }
}

impl Sim<Box<dyn Node>> {
    /// Returns the node as its type.
    ///
    /// # Panics
    ///
    /// The node has failed or is of another type.
    #[must_use]
    pub fn get<T: Node>(&self, id: NodeId) -> &T {
        let node: &dyn Any = &**self.node(id).expect("the node is alive");
        node.downcast_ref().expect("the node is of this type")
    }

    /// Calls [`Sim::with_node`] with the node as its type.
    ///
    /// # Panics
    ///
    /// The node has failed or is of another type.
    pub fn with<T: Node, R>(
        &mut self,
        id: NodeId,
        act: impl FnOnce(&mut T, Instant, &mut Io<'_>) -> R,
    ) -> R {
        let done = self.with_node(id, |node, now, io| {
            let node: &mut dyn Any = &mut **node;
            act(
                node.downcast_mut().expect("the node is of this type"),
                now,
                io,
            )
        });
        done.expect("the node is alive")
    }
}

fn to_ns(at: Instant) -> u64 {
    u64::try_from(at.total_micros())
        .unwrap_or(0)
        .saturating_mul(1000)
}
