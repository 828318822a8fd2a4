//! `lms-tree`: a file through a tree of LMS routers, beside other owners of the multicast routes.

use std::collections::BTreeMap;
use std::net::UdpSocket;

use linux_net::udp::{Config, GroupSocket, Membership};

use crate::prelude::*;
use crate::session::{Carrier, Ip, Owner, Replies, Session};
use crate::transfer::{Outcome, Transfer, router_table};

/// 3 levels, 7 routers, 16 receivers, loss on each link, beside smcroute and FRR pimd
#[derive(Debug, clap::Args)]
pub(crate) struct Tree {
    /// Size of the file in MiB (quick: 4)
    #[arg(long, default_value_t = 64, default_value_if("quick", "true", "4"))]
    mib: u64,
    /// Loss on each link, 0.02 is 2 %
    #[arg(long, default_value_t = 0.02)]
    loss: f64,
    /// The sender's rate
    #[arg(long, default_value = "40M")]
    rate: String,
    /// How routers find repliers
    #[arg(long, default_value = "hierarchy", value_parser = ["hierarchy", "search-party", "random"])]
    policy: String,
    /// How requests and repairs travel: by IP options, or by UDP to a port of their own
    #[arg(long, value_enum, default_value_t)]
    carrier: Carrier,
    /// Version of IP
    #[arg(long, value_enum, default_value_t)]
    ip: Ip,
    /// Receivers of one router share one link, and each loses packets at its own port
    #[arg(long)]
    shared: bool,
    /// Programs that own the multicast routes, one run for each
    #[arg(long, value_delimiter = ',', default_value = "all", value_parser = OWNERS)]
    owner: Vec<String>,
    /// What shapes the links
    #[arg(long, value_enum, default_value_t)]
    network: Shaper,
}

impl Scenario for Tree {
    const NAME: &'static str = "lms-tree";
    const FIGURE: &'static str = "LMS §6.4, §6.7.1";

    fn run(&self, context: &Context) -> Result<Report> {
        let mut report = Report::new(Self::NAME, "a file to 16 receivers through 7 LMS routers");
        let columns = "routes by | s | whole | lost | unneeded | by source | dmcasts | dmcasts % | ceiling \
             % | repairable %";
        report.tables.push(Table::with_header("repairs", columns));
        if self.network == Shaper::System
            && let Some(reason) = system::missing()
        {
            report.skip("all of it", reason);
            return Ok(report);
        }
        let file = Path::new(SCRATCH).join("file.bin");
        write_file(&file, self.mib << 20)?;
        let mut shares = Vec::new();
        for owner in chosen(&self.owner, &OWNERS).into_iter().map(Owner::of) {
            if let Some(reason) = owner.missing(self.ip) {
                report.skip(format!("routes by {}", owner.name()), reason);
                continue;
            }
            context.note(owner.name());
            let share = self
                .trial(&mut report, owner, &file)
                .with_context(|| format!("routes by {}", owner.name()))?;
            shares.push((owner.name(), share));
        }
        if shares.is_empty() {
            bail!("none of the owners is installed here: --owner lab needs nothing");
        }
        notes(&mut report, self.shared);
        let (names, shares): (Vec<&str>, Vec<f64>) = shares.into_iter().unzip();
        let plot = Plot::bars("repairs by receivers", "% of all repairs", names);
        report.plots.push(plot.heights("dmcasts", shares));
        Ok(report)
    }
}

/// What `--owner` takes.
const OWNERS: [&str; 4] = ["all", "lab", "smcroute", "pimd"];

fn notes(report: &mut Report, shared: bool) {
    let (plan, source, receivers) = plan(Shape::default(), shared);
    let (chain, links) = lossy_parts(&plan, source, receivers[0]);
    let rest = links - chain;
    report.note(format!(
        "by source: a request of the replier of the whole tree reaches the source with no turning point \
         (LMS \u{a7}6.4.3: the replier's own router passes it to its parent untouched), and the source answers \
         to the group. Its path has {chain} of the {links} links and ports, so about {rest}/{links} = {:.1} % of all \
         repairs can be dmcasts when each link loses the same. The target is for the others",
        rest as f64 * 100.0 / links as f64
    ));
    report.note(
        "ceiling %: the losses on all other links, of all that the links did lose in this run",
    );
    report.note("repairable %: dmcasts among the repairs of losses that are not on that path");
}

/// What the source's interface lets go in a network of the system.
const SYSTEM_BPS: u64 = 100_000_000;

/// An emulated link.
fn lossy(loss: f64) -> Shape {
    Shape::lossy(loss).delayed(Duration::from_millis(1))
}

/// The network: each router has two routers or four receivers below.
fn plan(shape: Shape, shared: bool) -> (Plan, NodeId, Vec<NodeId>) {
    const ROUTERS: usize = 7;
    const RECEIVERS: usize = 4;
    let mut plan = Plan::default();
    if !shared {
        let (source, _, receivers) = plan.binary_tree(ROUTERS, RECEIVERS, shape);
        return (plan, source, receivers);
    }
    let (source, routers, _) = plan.binary_tree(ROUTERS, 0, shape);
    let mut receivers = Vec::new();
    for router in &routers[ROUTERS / 2..] {
        let mut ports = vec![(*router, shape)];
        for _ in 0..RECEIVERS {
            let host = plan.host(&format!("h{}", receivers.len() + 1));
            receivers.push(host);
            ports.push((host, shape));
        }
        plan.shared(&ports);
    }
    (plan, source, receivers)
}

/// How many links and ports of shared links lose packets: those between the source and a receiver, and all.
fn lossy_parts(plan: &Plan, source: NodeId, receiver: NodeId) -> (usize, usize) {
    let chain = chain(plan, source, receiver);
    let ports = chain.iter().filter(|(link, _)| plan.is_shared(*link));
    // Each node but the source has a link or a port that leads to it, and each router of a shared link one more.
    let routers = plan.links().filter(|link| plan.is_shared(*link));
    let all = plan.nodes().count() - 1 + routers.count();
    (chain.len() + ports.count(), all)
}

/// The links between the source and one receiver, each with its node that is farther from the source.
fn chain(plan: &Plan, source: NodeId, receiver: NodeId) -> Vec<(LinkId, NodeId)> {
    let hops = plan.toward(source);
    let mut links = Vec::new();
    let mut node = receiver;
    while let Some((link, next)) = hops[node.0] {
        links.push((link, node));
        node = next;
    }
    links
}

impl Tree {
    fn trial(&self, report: &mut Report, owner: Owner, file: &Path) -> Result<f64> {
        let by_system = self.network == Shaper::System;
        let shape = if by_system {
            Shape::default()
        } else {
            lossy(self.loss)
        };
        let (plan, source, receivers) = plan(shape, self.shared);
        let network = Network::build(self.ip.addresses(plan), 11)?;
        if by_system {
            network.lose_everywhere(self.loss)?;
            network.shape_by_htb(source, LinkId(0), SYSTEM_BPS)?;
        }
        // A source-specific group, so that PIM needs no rendezvous point.
        let mut session = Session::new(network, source, receivers, self.ip.group());
        session.own(owner)?;
        session.carrier = self.carrier;
        let from = session.source_address().to_string();
        session.receive_more = ["--source", &from].map(str::to_owned).to_vec();
        if self.policy != "hierarchy" {
            // Those routers elect no replier.
            session.receive_more.push("--repair-unelected".to_owned());
        }
        // The daemons' own routes exist already: PIM's only after a host has joined and the source has sent.
        if owner == Owner::Pimd {
            warm_up(&mut session)?;
        }
        session.wait_for_routes(Duration::from_secs(40))?;
        session.start_routers(&Replies::of(&self.policy))?;
        let before = session.routes()?;
        let mut transfer = Transfer::start(
            &session,
            file,
            &["--rate", &self.rate, "--connect-timeout", "30s"],
        )?;
        let mut repliers = Vec::new();
        let mut joined = 0;
        let timeout = Duration::from_secs(60 + transfer.bytes / 500_000);
        transfer.watch(timeout, |_| {
            session.remember_repliers(&mut repliers);
            joined = joined.max(session.source_specific_members());
        })?;
        let after = session.routes()?;
        let outcome = transfer.finish(&session, Duration::from_secs(20))?;
        let name = format!("{}: receivers joined (S, G) and nothing else", owner.name());
        let all = session.receivers.len();
        report.check(name, joined as f64, "", Bound::Exactly(all as f64));
        let share = judge(report, &mut session, owner, &outcome, &repliers)?;
        let name = format!(
            "{}: kernel multicast routes the same before and after",
            owner.name()
        );
        report.holds(name, before == after && !before.is_empty());
        report.datum(&format!("routes {}", owner.name()), before);
        let mut routers = router_table(&session, &repliers)?;
        routers.title = format!("routers, routes by {}", owner.name());
        report.tables.push(routers);
        Ok(share)
    }
}

/// A member of (S, G) on a receiver.
fn member(session: &Session, node: NodeId) -> Result<GroupSocket> {
    let source = session.source_address();
    session.network.within(node, || {
        let interface = linux_net::link::find("eth0")?.index;
        let socket = GroupSocket::open(&Config {
            interface,
            ..Config::new(session.group)
        })?;
        socket.join(&Membership {
            group: session.group.ip(),
            source: Some(source),
            interface,
        })?;
        Ok(socket)
    })
}

/// Members join and the source sends, so that PIM builds its tree. Reports get lost on these
/// links too, and the next query may take half a minute: members that are not served join again.
fn warm_up(session: &mut Session) -> Result<()> {
    let source = session.source_address();
    let speaker = session.network.within(session.source, || {
        let socket = UdpSocket::bind((source, 0))?;
        socket.set_multicast_ttl_v4(16)?;
        Ok(socket)
    })?;
    let mut members: BTreeMap<NodeId, GroupSocket> = BTreeMap::new();
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        for node in session.unserved()? {
            members.remove(&node);
            members.insert(node, member(session, node)?);
        }
        let round = Instant::now() + Duration::from_secs(6);
        loop {
            speaker.send_to(b"anybody?", (session.group.ip(), 9))?;
            match session.wait_for_routes(Duration::from_millis(300)) {
                Ok(()) => {
                    // They stay members until the receivers have taken over.
                    session.keep(members.into_values().collect());
                    return Ok(());
                }
                Err(error) if Instant::now() > end => return Err(error),
                Err(_) if Instant::now() > round => break,
                Err(_) => {}
            }
        }
    }
}

/// Losses, toward receivers, on the links between the source and one receiver.
fn chain_losses(session: &mut Session, receiver: NodeId) -> Result<(u64, u64)> {
    let chain = chain(session.network.plan(), session.source, receiver);
    let names: Vec<String> = chain
        .iter()
        .flat_map(|(link, node)| session.network.parts(*link, *node))
        .collect();
    let links = session.network.lost_downward()?;
    let lost = |wanted: &dyn Fn(&str) -> bool| {
        let of = links.iter().filter(|(name, _)| wanted(name));
        of.map(|(_, lost)| lost).sum::<u64>()
    };
    Ok((
        lost(&|name| names.iter().any(|n| n == name)),
        lost(&|_| true),
    ))
}

fn judge(
    report: &mut Report,
    session: &mut Session,
    owner: Owner,
    outcome: &Outcome,
    repliers: &[(String, String)],
) -> Result<f64> {
    let (dmcasts, repairs) = outcome.repairs();
    let root = repliers.iter().find(|(router, _)| router == "r1");
    report.datum(&format!("replier of r1, routes by {}", owner.name()), root);
    // The tree is symmetrical: every receiver's path has as many links, and about as many losses.
    let first = session.receivers[0];
    let (chain, all) = chain_losses(session, first)?;
    let repaired = Repaired {
        dmcasts,
        by_source: repairs - dmcasts,
        chain,
    };
    report.tables[0].row([
        owner.name().into(),
        Cell::number(outcome.seconds, 1),
        if outcome.whole() { "16 of 16" } else { "no" }.into(),
        all.into(),
        outcome.sum("unneeded_repairs").into(),
        repaired.by_source.into(),
        dmcasts.into(),
        Cell::number(repaired.share(), 1),
        Cell::number(100.0 - chain as f64 * 100.0 / (all as f64).max(1.0), 1),
        Cell::number(repaired.repairable(), 1),
    ]);
    report.holds(
        format!("{}: every receiver has every byte", owner.name()),
        outcome.whole(),
    );
    repaired.judge(report, owner.name());
    report.datum(&format!("outcome {}", owner.name()), outcome);
    Ok(repaired.share())
}

/// Repairs by sender, in packets.
struct Repaired {
    /// By receivers.
    dmcasts: u64,
    by_source: u64,
    /// Losses on the path of the replier of the whole tree, which only the source can repair.
    chain: u64,
}

impl Repaired {
    /// Percentage of all repairs that are dmcasts.
    fn share(&self) -> f64 {
        percentage(self.dmcasts, self.dmcasts + self.by_source)
    }

    /// Percentage of dmcasts among the repairs that receivers can make.
    fn repairable(&self) -> f64 {
        let beyond = self.by_source.saturating_sub(self.chain);
        percentage(self.dmcasts, self.dmcasts + beyond)
    }

    /// Checks the target, which is for what receivers can repair. What only the source can repair
    /// depends on the topology alone.
    fn judge(&self, report: &mut Report, owner: &str) {
        let name = format!("{owner}: dmcasts among the repairs that receivers can make");
        // A replier that gets no processor answers too late, and the source is asked.
        report.timed(name, self.repairable(), "%", Bound::AtLeast(90.0));
    }
}

fn percentage(part: u64, of: u64) -> f64 {
    part as f64 * 100.0 / (of as f64).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sims::report::Verdict;

    /// What is left of the losses when each link loses as many, and receivers repair a share of
    /// those that they can repair.
    fn missed(share_of_repairable: f64) -> bool {
        let (plan, source, receivers) = plan(Shape::default(), false);
        let (chain, links) = lossy_parts(&plan, source, receivers[0]);
        let (chain, links) = (chain as u64, links as u64);
        let repairable = 100 * (links - chain);
        let dmcasts = (repairable as f64 * share_of_repairable) as u64;
        let repaired = Repaired {
            dmcasts,
            by_source: 100 * links - dmcasts,
            chain: 100 * chain,
        };
        let mut report = Report::new("lms-tree", "test");
        repaired.judge(&mut report, "lab");
        report.verdict(false) == Verdict::Missed
    }

    #[test]
    fn the_target_is_what_receivers_can_repair() {
        assert!(!missed(1.0), "the topology alone misses the target");
        assert!(!missed(0.91));
        assert!(missed(0.89));
    }
}
