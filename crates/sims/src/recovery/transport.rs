//! LTP over the tree, with or without the routers' help.

use std::rc::Rc;

use dyram::wire::{Packet, Service};
use lms_proto::Form;
use ltp::store::NullStore;
use ltp::wire::{data, request, sync};
use ltp::{Assist, Receiver, ReceiverConfig, ReceiverLimits, Sender, SenderConfig};
use netsim::tree::Role;
use netsim::{Duration, Instant, Node, NodeId, Record, Sim};

use super::watch::{Hierarchy, Outcome, Watch, processor_time};
use super::world::{BEGIN, GAP, TIMEOUT, World};
use crate::simulated::{
    self, Application, GROUP, Help, Plan, Receiving, RouterNode, Sending, Watcher,
};

/// Time for which heartbeats are sent before the first data packet: all receivers know the session then.
const OPENING: Duration = Duration::from_secs(1);

/// Bytes of the stream in a data packet, 64 packets to a block of 64 KiB. Their lengths are all that
/// is kept.
const PAYLOAD_LEN: u16 = 1024;

/// The source's link in [`Variant::Unicast`] and [`Variant::Lms`], Ethernet frames included: data
/// takes 43 % of it.
const SOURCE_RATE_BPS: u64 = 20_000_000;

/// What is compared of LTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Variant {
    /// LMS in the routers, repliers elected or set.
    Lms(Help),
    /// Every receiver asks the source, whose packets of all sorts leave at its link's rate.
    Unicast,
    /// The same with a source that has no limit: any number of repairs leaves at once, and requests
    /// are answered the moment they come.
    UnicastIdeal,
}

impl Variant {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Lms(Help::Live) => "LMS",
            Self::Lms(_) => "LMS, repliers set",
            Self::Unicast => "unicast, paced source",
            Self::UnicastIdeal => "unicast, ideal source",
        }
    }

    fn help(self) -> Help {
        match self {
            Self::Lms(help) => help,
            Self::Unicast | Self::UnicastIdeal => Help::None,
        }
    }
}

/// The application that feeds the source: a packet's worth each [`GAP`], so that every packet leaves
/// at the same time in every protocol.
pub(super) struct Feed {
    packets_left: u32,
    next: Instant,
    /// Whether NACKs of relays are counted too.
    relayed: bool,
    /// REQUEST packets that arrived.
    requests: u64,
}

impl Feed {
    pub(super) fn new(packets: u32, relayed: bool) -> Self {
        Feed {
            packets_left: packets,
            next: BEGIN,
            relayed,
            requests: 0,
        }
    }
}

impl Application<NullStore> for Feed {
    fn poll_timeout(&self) -> Option<Instant> {
        (self.packets_left > 0).then_some(self.next)
    }

    fn feed(&mut self, now: Instant, sender: &mut Sender<'static, NullStore>) {
        if self.packets_left == 0 || now < self.next {
            return;
        }
        let taken = sender.send(now, &[0; PAYLOAD_LEN as usize]);
        assert_eq!(
            taken.ok(),
            Some(usize::from(PAYLOAD_LEN)),
            "a null store has room"
        );
        self.packets_left -= 1;
        self.next += GAP;
        if self.packets_left == 0 {
            sender.finish(now);
        }
    }

    fn packet(&mut self, payload: &[u8]) {
        let is_nack = || Packet::new_checked(payload).is_ok_and(|p| p.service() == Service::Nack);
        let is_request = request::Repr::parse(payload).is_ok();
        self.requests += u64::from(is_request || self.relayed && is_nack());
    }
}

/// Records packets that arrived, and packets that the source announced.
impl Watcher for Watch {
    #[inline]
    fn packet(&mut self, now: Instant, payload: &[u8]) {
        let packet = match self.relayed {
            true => Packet::new_checked(payload).ok(),
            false => None,
        };
        let payload = packet.as_ref().map_or(payload, carried);
        match payload.first().map(|first| first & 0xf) {
            Some(1 | 2) => {
                if let Ok(packet) = data::Packet::new_checked(payload) {
                    self.arrived(now, packet.sequence().0, packet.is_repair());
                }
            }
            Some(3) => {
                if let Ok(repr) = sync::Repr::parse(payload) {
                    self.announced(now, repr.next as u32);
                }
            }
            _ => {}
        }
    }
}

/// The packet of LTP that a relay has sent on.
fn carried<'p>(packet: &'p Packet<&[u8]>) -> &'p [u8] {
    let inner = packet.payload();
    match packet.service() {
        Service::Data | Service::Repair => inner,
        // The source's port follows.
        Service::Cast => &inner[..inner.len().saturating_sub(2)],
        _ => &[],
    }
}

type Peer = simulated::Peer<NullStore, Feed, Watch>;

/// The source's configuration.
pub(super) fn sender_config() -> SenderConfig {
    let mut config = SenderConfig::new(GROUP.into());
    config.integrity = false; // there are no bytes
    config.max_packet_len = PAYLOAD_LEN + data::DATA_HEADER_LEN as u16;
    config.rate_bps = Some(SOURCE_RATE_BPS);
    config.linger = Duration::from_secs(3600);
    config
}

fn source(
    world: &World,
    plan: &Rc<Plan>,
    variant: Variant,
) -> simulated::Source<Sender<'static, NullStore>, Feed> {
    let mut config = sender_config();
    if variant == Variant::UnicastIdeal {
        config.rate_bps = None;
        config.repair.aggregate = Duration::ZERO;
    }
    let open = BEGIN - OPENING;
    let sender = Sender::new(config, NullStore, world.node_seed(0), open);
    let feed = Feed::new(world.plan.packets, false);
    simulated::Source::new(plan, sender.expect("the configuration is sound"), feed)
}

fn host(
    world: &World,
    plan: &Rc<Plan>,
    node: u32,
    variant: Variant,
) -> simulated::Host<NullStore, Watch> {
    let assist = match variant {
        Variant::Lms(_) => Assist::Lms,
        Variant::Unicast | Variant::UnicastIdeal => Assist::None,
    };
    let seed = world.node_seed(node);
    let receiver = receiver(assist, seed);
    simulated::Host::new(plan, node, variant.help(), receiver, seed, Watch::default())
}

/// A receiver that helps others in that way.
pub(super) fn receiver(assist: Assist, seed: [u8; 32]) -> Receiver<'static, NullStore> {
    let mut config = ReceiverConfig::new(GROUP.into());
    config.require_integrity = false;
    config.assist = assist;
    config.source_timeout = Duration::from_secs(3600);
    config.limits = ReceiverLimits {
        window_blocks: 32,
        requests: 16,
        repairs: 16,
        hold_down: 64,
        targets: 8,
        parity: 0,
    };
    Receiver::new(config, NullStore, seed, Instant::ZERO)
}

/// The sequence of a DATA packet of LTP.
fn data_sequence(record: &Record<'_>) -> Option<u32> {
    let payload = record.bytes.get(28..)?;
    if record.bytes[0] != 0x45 || payload.first()? & 0xf != 1 {
        return None;
    }
    let packet = data::Packet::new_checked(payload).ok()?;
    Some(packet.sequence().0)
}

/// Runs LTP in that variant over the world's plan, with LMS's option in the classic form.
pub(super) fn run(world: &World, variant: Variant) -> Outcome {
    run_in(world, variant, Form::Classic)
}

/// As [`run`], with the option in this form.
pub(super) fn run_in(world: &World, variant: Variant, form: Form) -> Outcome {
    let since = processor_time();
    let plan = Rc::new(Plan::new(world.tree.clone()).with_form(form));
    let mut sim = world.simulate(data_sequence, |node| match world.tree.role(node) {
        Role::Source => Peer::Source(Box::new(source(world, &plan, variant))),
        Role::Router => {
            let seed = world.node_seed(node);
            Peer::Router(RouterNode::new(&plan, node, variant.help(), seed))
        }
        Role::Receiver => Peer::Host(Box::new(host(world, &plan, node, variant))),
    });
    sim.run_until(BEGIN);
    let hierarchy = (variant == Variant::Lms(Help::Live)).then(|| hierarchy(&sim, &plan));
    let mut outcome = finish(sim, world, variant.name(), since);
    outcome.hierarchy = hierarchy;
    outcome
}

/// Runs a simulation until every receiver has everything, and sums it up.
pub(super) fn finish<T, R, N>(
    mut sim: Sim<simulated::Peer<NullStore, Feed, Watch, T, R, N>>,
    world: &World,
    name: &'static str,
    since: std::time::Duration,
) -> Outcome
where
    T: Sending<NullStore>,
    R: Receiving<NullStore>,
    N: Node,
{
    let packets = world.plan.packets;
    let last = BEGIN + GAP * packets;
    sim.run_until(last);
    let is_done = |sim: &Sim<_>| hosts(sim).all(|(_, host)| host.watch.has_all(packets));
    while !is_done(&sim) && sim.now() < last + TIMEOUT {
        let at = sim.now() + Duration::from_millis(250);
        sim.run_until(at);
    }
    let watches = hosts(&sim).map(|(id, host)| (id, &host.watch));
    let outcome = Outcome::gather(name, world, watches);
    let sent = hosts(&sim).map(|(_, host)| host.receiver.receiver().stats().repairs_sent);
    let (requests, repairs) = match sim.node(NodeId(0)) {
        Some(simulated::Peer::Source(source)) => {
            let stats = source.sender.sender().stats();
            let repairs = stats.repairs_group + stats.repairs_unicast;
            (source.application.requests, repairs)
        }
        _ => (0, 0),
    };
    let outcome = outcome.loads(repairs, sent);
    outcome.source_requests(requests).costs(&sim, world, since)
}

/// The receivers of a simulation.
fn hosts<T, R, N>(
    sim: &Sim<simulated::Peer<NullStore, Feed, Watch, T, R, N>>,
) -> impl Iterator<Item = (u32, &simulated::Host<NullStore, Watch, R>)>
where
    T: Sending<NullStore>,
    R: Receiving<NullStore>,
    N: Node,
{
    sim.nodes().filter_map(|(id, node)| match node {
        simulated::Peer::Host(host) => Some((id.0, &**host)),
        _ => None,
    })
}

/// What LMS-HIER has elected by now.
fn hierarchy(sim: &Sim<Peer>, plan: &Plan) -> Hierarchy {
    let mut out = Hierarchy::default();
    for (id, node) in sim.nodes() {
        let Peer::Router(router) = node else { continue };
        let Some(lms) = router.lms() else { continue };
        out.routers += 1;
        let stats = lms.hierarchy().stats();
        out.messages += stats.updates_sent + stats.elected_sent;
        let entry = lms
            .table()
            .find(plan.key())
            .and_then(|id| lms.table().get(id));
        if let Some(replier) = entry.and_then(|entry| entry.replier()) {
            out.elected += 1;
            out.nearest += u32::from(replier.iface.0 == plan.replier_port(id.0).0);
        }
    }
    out
}
