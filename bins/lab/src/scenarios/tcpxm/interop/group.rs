//! One group: two TCP-XM receivers, and the kernel.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, TcpListener};

use tcpxm_tokio::{GroupConfig, GroupEvent, Mode, XmEndpoint};

use super::segments::{Side, Trace, Watch};
use super::stage::{LIMIT, config, patient};
use super::{check, shape};
use crate::prelude::*;

const PORT: u16 = 7_100;
/// Members beside the kernel.
const MEMBERS: usize = 2;

/// The hosts on one switch.
struct Hosts {
    network: Network,
    sender: NodeId,
    kernel: NodeId,
    members: Vec<NodeId>,
}

/// The result of a group's transfer.
struct Outcome {
    seconds: f64,
    seen: Trace,
    group: IpAddr,
    /// The last mode of the kernel, then of each member.
    modes: Vec<Option<Mode>>,
}

pub(super) fn run(context: &Context, report: &mut Report, bytes: usize) -> Result<()> {
    let mut table = Table::with_header(
        format!(
            "a group of the kernel and {MEMBERS} members, {} KiB",
            bytes >> 10
        ),
        "link | s | to the group | to the kernel | to the members | kernel's mode",
    );
    for (name, loss) in [("no loss", 0.0), ("1 % loss", 0.01)] {
        context.note(format!("a group with the kernel in it, {name}"));
        let hosts = hosts(loss)?;
        let outcome = transfer(&hosts, bytes);
        let title = |what: &str| format!("a group with the kernel in it, {name}: {what}");
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(error) => {
                check(report, title("every receiver has every byte"), Err(error));
                continue;
            }
        };
        check(report, title("every receiver has every byte"), Ok(()));
        judge(report, &title, &hosts, &outcome, bytes);
        let address = |node| IpAddr::V4(hosts.network.plan().address(node));
        let members = hosts
            .members
            .iter()
            .map(|node| outcome.seen.data_to(address(*node)));
        let mode = outcome.modes.first().copied().flatten();
        table.row([
            name.into(),
            Cell::number(outcome.seconds, 2),
            outcome.seen.data_to(outcome.group).into(),
            outcome.seen.data_to(address(hosts.kernel)).into(),
            members.sum::<u64>().into(),
            mode.map_or_else(String::new, |mode| format!("{mode:?}"))
                .into(),
        ]);
    }
    report.tables.push(table);
    Ok(())
}

fn judge(
    report: &mut Report,
    title: &dyn Fn(&str) -> String,
    hosts: &Hosts,
    outcome: &Outcome,
    bytes: usize,
) {
    let [kernel, members @ ..] = &outcome.modes[..] else {
        return;
    };
    report.holds(
        title("the kernel is served as UnicastGroupOnly"),
        *kernel == Some(Mode::UnicastGroupOnly),
    );
    // A busy machine loses more packets: a member may have fallen back by the end.
    report.timed(
        title("members served by multicast at the end"),
        members
            .iter()
            .filter(|mode| **mode == Some(Mode::Multicast))
            .count() as f64,
        "",
        Bound::Exactly(MEMBERS as f64),
    );
    let address = hosts.network.plan().address(hosts.kernel);
    let offered = |seen: &super::segments::Seen| seen.syn && seen.group;
    let asked = outcome
        .seen
        .count(|seen| offered(seen) && seen.from == Side::Engine && seen.to == address);
    let accepted = outcome
        .seen
        .count(|seen| offered(seen) && seen.from == Side::Kernel);
    let from_kernel = outcome
        .seen
        .count(|seen| offered(seen) && seen.source == address);
    // Captured at the sender: other segments are the kernel's or the members'.
    report.holds(
        title("the SYN offers the group, the members accept it, the kernel does not answer to it"),
        asked > 0 && accepted >= MEMBERS && from_kernel == 0,
    );
    let share = outcome.seen.data_to(outcome.group) as f64 / bytes as f64;
    report.timed(
        title("bytes to the group / bytes of the content"),
        share,
        "",
        Bound::AtLeast(0.9),
    );
    report.timed(
        title("bytes to the group / bytes of the content"),
        share,
        "",
        Bound::AtMost(1.01),
    );
    let resets = outcome.seen.count(|seen| seen.rst);
    report.holds(title("no resets"), resets == 0);
}

fn hosts(loss: f64) -> Result<Hosts> {
    let mut plan = Plan::default();
    let (sender, kernel) = (plan.host("sender"), plan.host("kernel"));
    let members: Vec<NodeId> = (0..MEMBERS)
        .map(|number| plan.host(&format!("member{number}")))
        .collect();
    let mut ports = vec![(sender, shape(0.0, 0.0)), (kernel, shape(loss, 0.0))];
    ports.extend(members.iter().map(|node| (*node, shape(loss, 0.0))));
    plan.shared(&ports);
    Ok(Hosts {
        network: Network::build(plan, 21)?,
        sender,
        kernel,
        members,
    })
}

impl Hosts {
    fn address(&self, node: NodeId) -> Ipv4Addr {
        self.network.plan().address(node)
    }

    fn endpoint(&self, node: NodeId, port: u16) -> Result<XmEndpoint> {
        let mut config = config(self.address(node), port);
        self.network.within(node, || {
            config.interface = linux_net::link::find("eth0")?.index;
            Ok(XmEndpoint::open(&config)?)
        })
    }
}

fn transfer(hosts: &Hosts, bytes: usize) -> Result<Outcome> {
    let content: Vec<u8> = (0..bytes).map(|at| (at * 31 + at / 251) as u8).collect();
    let kernel = SocketAddr::new(hosts.address(hosts.kernel).into(), PORT);
    let kernel = hosts
        .network
        .within(hosts.kernel, || Ok(TcpListener::bind(kernel)?))?;
    let endpoints = hosts.members.iter().map(|node| hosts.endpoint(*node, PORT));
    let endpoints: Vec<XmEndpoint> = endpoints.collect::<Result<_>>()?;
    let listeners = endpoints.iter().map(|endpoint| Ok(endpoint.listen()?));
    let listeners = listeners.collect::<Result<Vec<_>>>()?;
    let sender = hosts.endpoint(hosts.sender, 0)?;
    let watch = Watch::start(
        &hosts.network,
        hosts.sender,
        "eth0",
        hosts.address(hosts.sender),
    )?;
    let nodes = [hosts.kernel]
        .into_iter()
        .chain(hosts.members.iter().copied());
    let receivers: Vec<IpAddr> = nodes.map(|node| hosts.address(node).into()).collect();
    let count = receivers.len();
    let mut group = GroupConfig::new(sender.local_address(), receivers, PORT);
    group.receiver_timeout = tcpxm::Duration::from_secs(60);
    let began = Instant::now();
    let mut group = sender.open_group(group)?;
    let (handle, address) = (group.handle(), group.address().context("a group")?);
    std::thread::scope(|scope| -> Result<()> {
        let mut readers = vec![scope.spawn(|| -> Result<Vec<u8>> {
            let mut received = Vec::new();
            patient(kernel.accept()?.0)?.read_to_end(&mut received)?;
            Ok(received)
        })];
        for listener in &listeners {
            readers.push(scope.spawn(|| {
                let mut received = Vec::new();
                listener.wait(Some(LIMIT))?.read_to_end(&mut received)?;
                Ok(received)
            }));
        }
        group.write_all(&content)?;
        group.finish()?;
        let delivered = group.wait_delivered()?;
        ensure!(delivered == count, "{delivered} of {count} have everything");
        for reader in readers {
            let received = reader.join().ok().context("a reader")??;
            ensure!(received == content, "a receiver has other bytes");
        }
        Ok(())
    })?;
    let seconds = began.elapsed().as_secs_f64();
    let mut modes = vec![None; count];
    while let Some(event) = handle.poll_event() {
        if let GroupEvent::Mode(receiver, mode) = event {
            modes[receiver] = Some(mode);
        }
    }
    drop(group);
    std::thread::sleep(Duration::from_millis(50));
    Ok(Outcome {
        seconds,
        seen: watch.finish()?,
        group: address,
        modes,
    })
}
