//! The demo's story in the simulator, for machines that permit no namespaces: the same machines, the
//! same network, in virtual time.
//!
//! ```text
//!                    ,- r2 --- h1
//! source --- r1 ---<    `----- h2       2 % loss on each link, both directions
//!                    `- r3 --- h3
//!                         `--- h4
//! ```

use std::rc::Rc;
use std::time::{Duration as WallDuration, Instant as WallInstant};

use anyhow::{Context as _, Result};
use ltp::store::HeapRing;
use ltp::{Assist, Receiver, ReceiverConfig, ReceiverEvent, Sender, SenderConfig, SenderEvent};
use netsim::tree::{Role, Tree};
use netsim::{Duration, Instant, LinkConfig, Loss, NodeId, Rng, Sim, derive_seed};

use crate::bars::Bars;
use crate::report::{Report, Table};
use crate::scenario::Context;
use crate::simulated::{self, Application, GROUP, Help, Plan, RouterNode, Source, Watcher};

const NAMES: [&str; 8] = ["source", "r1", "r2", "h1", "h2", "r3", "h3", "h4"];
const PARENTS: [u32; 8] = [0, 0, 1, 2, 2, 1, 5, 5];
const RECEIVERS: u32 = 4;
const LOSS: f64 = 0.02;
const SEED: [u8; 32] = *b"the demo of polycast, simulated.";
/// Virtual time after which the story has failed.
const TIMEOUT: Instant = Instant::from_micros(120_000_000);

type Digest = [u8; 32];

/// Whether the source knows that all have everything.
#[derive(Default)]
struct Finish {
    all_complete: bool,
}

impl Application<HeapRing> for Finish {
    fn event(&mut self, event: &SenderEvent) {
        self.all_complete |= *event == SenderEvent::Complete;
    }
}

/// When a receiver had everything, and its digest.
#[derive(Default)]
struct Arrival {
    complete: Option<(Instant, Option<Digest>)>,
}

impl Watcher for Arrival {
    fn event(&mut self, now: Instant, event: &ReceiverEvent) {
        if let ReceiverEvent::Complete { digest, .. } = event {
            self.complete = Some((now, *digest));
        }
    }
}

type Peer = simulated::Peer<HeapRing, Finish, Arrival>;
type Host = simulated::Host<HeapRing, Arrival>;

/// Tells the demo's story in virtual time.
///
/// # Errors
/// When the simulation does not end as it should.
pub fn run(context: &Context) -> Result<Report> {
    let bytes = if context.quick { 2 << 20 } else { 16 << 20 };
    context.note("source -- r1 -- r2 -- h1, h2    2 % of all packets are lost");
    context.note("           `--- r3 -- h3, h4    on every link, both ways");
    context.note("in the simulator: the real machines, virtual time");
    let mut sim = build(bytes)?;
    let receivers = NAMES.into_iter().filter(|name| name.starts_with('h'));
    let mut bars = Bars::new(context, receivers, bytes as u64);
    let started = WallInstant::now();
    while sim.now() < TIMEOUT && !is_done(&sim) {
        sim.run_until(sim.now() + Duration::from_millis(50));
        bars.show(hosts(&sim).map(|(_, host)| state(host)));
        if bars.are_drawn() {
            // Virtual time runs as fast as real time, so that there is something to see.
            let elapsed = WallDuration::from_millis(sim.now().total_millis().unsigned_abs());
            std::thread::sleep(elapsed.saturating_sub(started.elapsed()));
        }
    }
    bars.done();
    Ok(report(&sim, bytes as u64))
}

fn build(bytes: usize) -> Result<Sim<Peer>> {
    let tree = Tree::from_parents(&PARENTS, &[Duration::from_millis(5); PARENTS.len()]);
    let plan = Rc::new(Plan::new(tree));
    let tree = &plan.tree;
    let seed = |node: u32| derive_seed(&SEED, 1, u64::from(node));
    let mut content = vec![0; bytes];
    let mut rng = Rng::new(derive_seed(&SEED, 2, 0));
    content.chunks_mut(8).for_each(|chunk| {
        chunk.copy_from_slice(&rng.next_u64().to_le_bytes()[..chunk.len()]);
    });
    let mut config = SenderConfig::new(GROUP.into());
    config.length = Some(bytes as u64);
    config.rate_bps = Some(40_000_000);
    config.receivers = Some(RECEIVERS);
    let sender = Sender::new(config, HeapRing::whole(content), seed(0), Instant::ZERO)
        .context("start the sender")?;
    let mut source = Some(Source::new(&plan, sender, Finish::default()));
    let host = |node: u32| {
        let mut config = ReceiverConfig::new(GROUP.into());
        config.assist = Assist::Lms;
        let receiver = Receiver::new(
            config,
            HeapRing::whole(vec![0; bytes]),
            seed(node),
            Instant::ZERO,
        );
        let watch = Arrival::default();
        Host::new(&plan, node, Help::Static, receiver, seed(node), watch)
    };
    let mut sim = Sim::new(SEED);
    let link = LinkConfig::new()
        .loss(Loss::Bernoulli(LOSS))
        .rate_bps(100_000_000)
        .queue_packets(500);
    let node = |node: u32| match tree.role(node) {
        Role::Router => Peer::Router(RouterNode::new(&plan, node, Help::Static, seed(node))),
        Role::Receiver => Peer::Host(Box::new(host(node))),
        Role::Source => Peer::Source(Box::new(source.take().expect("there is one source"))),
    };
    tree.build(&mut sim, node, |_| link);
    Ok(sim)
}

fn is_done(sim: &Sim<Peer>) -> bool {
    sim.nodes().all(|(_, node)| match node {
        Peer::Host(host) => host.watch.complete.is_some(),
        Peer::Source(source) => source.application.all_complete,
        Peer::Router(_) => true,
    })
}

fn hosts(sim: &Sim<Peer>) -> impl Iterator<Item = (&'static str, &Host)> {
    sim.nodes().filter_map(|(id, node)| match node {
        Peer::Host(host) => Some((NAMES[id.0 as usize], &**host)),
        Peer::Source(_) | Peer::Router(_) => None,
    })
}

/// The bytes that a receiver has, and its losses in words.
fn state(host: &Host) -> (u64, String) {
    let stats = host.receiver.stats();
    let words = format!("lost {}, repaired {}", stats.lost_packets, stats.repairs);
    (host.receiver.progress().0, words)
}

fn report(sim: &Sim<Peer>, bytes: u64) -> Report {
    let title = "one file to four receivers through three LMS routers, in the simulator";
    let mut report = Report::new("demo", title);
    report.tables = vec![receiver_table(sim), router_table(sim)];
    let Some(Peer::Source(source)) = sim.node(NodeId(0)) else {
        return report;
    };
    let digest = source.sender.digest();
    let stats = source.sender.stats();
    report.note(format!(
        "the source sent {bytes} bytes in {} packets, heard {} requests and repaired {} packets",
        stats.data_packets,
        stats.requests_group + stats.requests_unicast,
        stats.repairs_group + stats.repairs_unicast,
    ));
    report.note(format!(
        "{:.2} s of virtual time",
        sim.now().total_millis() as f64 / 1e3
    ));
    if let Some(digest) = digest {
        report.note(format!("BLAKE3 of the file: {}", hex(&digest)));
    }
    for (name, host) in hosts(sim) {
        let whole = host
            .watch
            .complete
            .is_some_and(|(_, own)| own.is_some() && own == digest);
        report.holds(
            format!("{name} has the file, its digest is the source's"),
            whole,
        );
    }
    let known = source.application.all_complete;
    report.holds("the source knows that all have it", known);
    let dmcasts: u64 = routers(sim).map(|(_, router)| router.stats().dmcasts).sum();
    report.holds("routers turned requests and multicast repairs", dmcasts > 0);
    report
}

fn receiver_table(sim: &Sim<Peer>) -> Table {
    let columns = "receiver | seconds | lost | repaired | requests | repairs for others | BLAKE3";
    let mut table = Table::with_header("receivers", columns);
    for (name, host) in hosts(sim) {
        let stats = host.receiver.stats();
        let (seconds, digest) = match &host.watch.complete {
            Some((at, digest)) => (at.total_millis() as f64 / 1e3, digest.as_ref()),
            None => (f64::NAN, None),
        };
        table.row([
            name.into(),
            crate::report::Cell::number(seconds, 2),
            stats.lost_packets.into(),
            stats.repairs.into(),
            (stats.requests_group + stats.requests_source).into(),
            stats.repairs_sent.into(),
            digest
                .map_or_else(|| "-".to_owned(), |digest| hex(&digest[..8]))
                .into(),
        ]);
    }
    table
}

fn routers(sim: &Sim<Peer>) -> impl Iterator<Item = (&'static str, &lms_proto::Router<'static>)> {
    sim.nodes().filter_map(|(id, node)| match node {
        Peer::Router(router) => router.lms().map(|lms| (NAMES[id.0 as usize], lms)),
        Peer::Source(_) | Peer::Host(_) => None,
    })
}

fn router_table(sim: &Sim<Peer>) -> Table {
    let columns = "router | requests turned | to the replier | to the parent | dmcasts | dropped";
    let mut table = Table::with_header("routers", columns);
    for (name, router) in routers(sim) {
        let stats = router.stats();
        table.row([
            name.into(),
            stats.requests_turned.into(),
            stats.requests_to_replier.into(),
            stats.requests_to_parent.into(),
            stats.dmcasts.into(),
            stats.drops.total().into(),
        ]);
    }
    table
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Verdict;

    #[test]
    fn every_receiver_gets_the_file_and_the_story_repeats() {
        let context = Context {
            quick: true,
            ..Context::default()
        };
        let first = run(&context).expect("a story");
        assert_eq!(first.verdict(false), Verdict::Met, "{}", first.text());
        assert_eq!(first.text(), run(&context).expect("a story").text());
    }
}
