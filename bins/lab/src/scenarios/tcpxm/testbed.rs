//! The paper's testbed (Figure 9): four hosts on a router, whose links are emulated as Dummynet did.

use super::super::stage::Stage;
use crate::prelude::*;
use netlab::Branch;
use netlab::mroute::{Wanted, own};

/// One-way delay of each link (§4.1: 5 ms each queue).
const DELAY: Duration = Duration::from_millis(5);
/// Dummynet's default: 50 packets.
const QUEUE_BYTES: usize = 50 * 1514;
/// A link that is no bottleneck.
const WIDE_BPS: u64 = 100_000_000;

/// A receiver, by its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pc {
    A,
    B,
    X,
}

/// A session: its group and its receivers.
pub(super) struct Session {
    pub(super) group: Ipv4Addr,
    pub(super) to: [Pc; 2],
}

/// The testbed: PC-C sends, PC-A, PC-B and PC-X receive.
pub(super) struct Testbed {
    pub(super) stage: Stage,
    /// Of A, B, X and C.
    links: [LinkId; 4],
    shape: Shape,
}

impl Testbed {
    /// Builds it, with the trees of all sessions, and writes the file. Beside 5 ms and 50 packets its links
    /// have the loss and jitter of `shape`.
    pub(super) fn build(sessions: &[Session], shape: Shape, bytes: u64) -> Result<Testbed> {
        let mut plan = Plan::default();
        let sender = plan.host("c");
        let receivers = ["a", "b", "x"].map(|name| plan.host(name));
        let router = plan.router("router");
        let shape = Shape {
            delay: DELAY,
            rate_bps: WIDE_BPS,
            queue_bytes: QUEUE_BYTES,
            ..shape
        };
        let [a, b, x] = receivers.map(|node| plan.link(node, router, shape));
        let c = plan.link(sender, router, shape);
        let network = Network::build(plan, 9)?;
        let links = [a, b, x, c];
        let mut stage = Stage::new(network, sender, receivers.to_vec(), c, bytes)?;
        stage.routes = vec![routes(&stage.network, router, sender, &links, sessions)?];
        Ok(Testbed {
            stage,
            links,
            shape,
        })
    }

    /// Changes the bandwidth of links A, B and C, in Mbit/s.
    pub(super) fn bandwidths(&mut self, [a, b, c]: [u64; 3]) -> Result<()> {
        let receivers = &self.stage.receivers;
        let nodes = [receivers[0], receivers[1], self.stage.sender];
        let links = [self.links[0], self.links[1], self.links[3]];
        for ((node, link), mbps) in nodes.into_iter().zip(links).zip([a, b, c]) {
            self.reshape(node, link, mbps * 1_000_000)?;
        }
        Ok(())
    }

    /// Changes the bandwidth of every link.
    pub(super) fn all(&mut self, bps: u64) -> Result<()> {
        let mut nodes = self.stage.receivers.clone();
        nodes.push(self.stage.sender);
        for (node, link) in nodes.into_iter().zip(self.links) {
            self.reshape(node, link, bps)?;
        }
        Ok(())
    }

    fn reshape(&mut self, node: NodeId, link: LinkId, rate_bps: u64) -> Result<()> {
        let shape = Shape {
            rate_bps,
            ..self.shape
        };
        self.stage.network.reshape(node, link, shape)
    }
}

/// Has the router forward each session's group to its receivers.
fn routes(
    network: &Network,
    router: NodeId,
    sender: NodeId,
    links: &[LinkId; 4],
    sessions: &[Session],
) -> Result<Process> {
    let source = network.plan().address(sender);
    let branch = |session: &Session| Branch {
        router,
        up: links[3],
        down: session.to.iter().map(|pc| links[*pc as usize]).collect(),
    };
    let wanted = sessions.iter().map(|session| {
        let branch = branch(session);
        Wanted::of(network.plan(), &branch, source, session.group)
    });
    let wanted = wanted.collect::<Result<Vec<_>>>()?;
    own(network, &branch(&sessions[0]), &wanted)
}
