//! LTP through a tree of DyRAM relays, one in each router; they carry the data.

use std::net::IpAddr;
use std::rc::Rc;

use dyram::storage::{Limits, Storage};
use dyram::wire::{Packet, Service};
use dyram::{Parents, Relay, RelayId};
use ltp::store::NullStore;
use ltp::{Assist, Sender, relayed};
use netsim::tree::Role;
use netsim::{Duration, Instant, Record};

use super::transport::{Feed, finish, receiver, sender_config};
use super::watch::{Outcome, Watch, processor_time};
use super::world::{BEGIN, World};
use crate::simulated::{GROUP, Help, Host, Plan, RelayNode, RelayedPeer, Source};

/// When relays request missing packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detection {
    /// As soon as they see a gap.
    Early,
    /// When a child asks.
    Late,
}

impl Detection {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Early => "DyRAM",
            Self::Late => "DyRAM, no early detection",
        }
    }
}

/// Time for which heartbeats are sent before the first data packet, as with the other protocols.
const OPENING: Duration = Duration::from_secs(1);
/// IPv4 and UDP headers without options.
const HEADERS: usize = 28;

type Peer = RelayedPeer<NullStore, Feed, Watch>;

/// The sequence of a DATA packet; repairs and all else are lost by chance.
fn data_sequence(record: &Record<'_>) -> Option<u32> {
    let payload = record.bytes.get(HEADERS..)?;
    let packet = Packet::new_checked(payload).ok()?;
    (packet.service() == Service::Data).then(|| packet.sequence().0)
}

/// The relay above a node.
fn parent(plan: &Plan, node: u32) -> Parents {
    let above = plan.host(plan.tree.parent(node));
    [above.into()].into_iter().collect()
}

fn peer(world: &World, plan: &Rc<Plan>, detection: Detection, node: u32) -> Peer {
    let (seed, start) = (world.node_seed(node), Instant::ZERO);
    let group: IpAddr = (*GROUP.ip()).into();
    match world.tree.role(node) {
        Role::Source => {
            let open = BEGIN - OPENING;
            let sender = Sender::new(sender_config(), NullStore, seed, open);
            let sender = sender.expect("the configuration is sound");
            let relays = [plan.host(1).into()].into_iter().collect();
            let socket = plan.source().into();
            let sender = relayed::Sender::new(sender, socket, group, relays, seed, open);
            let sender = sender.expect("all is IPv4");
            let feed = Feed::new(world.plan.packets, true);
            Peer::Source(Box::new(Source::new(plan, sender, feed)))
        }
        Role::Router => {
            let mut config = dyram::Config::new(RelayId(node));
            config.early_detection = detection == Detection::Early;
            if node != 1 {
                config.parents = parent(plan, node);
            }
            let limits = Limits {
                sessions: 1,
                children: plan.tree.children(node).len(),
                ..Limits::default()
            };
            let storage = Storage::owned(limits).expect("the sizes fit");
            let relay = Relay::new(config, storage, seed, start).expect("the configuration fits");
            Peer::Router(RelayNode::new(plan, node, Some(relay)))
        }
        Role::Receiver => {
            let receiver = receiver(Assist::Dyram, seed);
            let source = plan.source().ip().to_owned().into();
            let relays = parent(plan, node);
            let receiver = relayed::Receiver::new(receiver, source, group, relays, seed, start);
            let receiver = receiver.expect("all is IPv4");
            let mut watch = Watch::default();
            watch.relayed = true;
            let host = Host::new(plan, node, Help::None, receiver, seed, watch);
            Peer::Host(Box::new(host))
        }
    }
}

/// Runs it over the world's plan.
pub(super) fn run(world: &World, detection: Detection) -> Outcome {
    let since = processor_time();
    let plan = Rc::new(Plan::new(world.tree.clone()));
    let sim = world.simulate(data_sequence, |node| peer(world, &plan, detection, node));
    finish(sim, world, detection.name(), since)
}
