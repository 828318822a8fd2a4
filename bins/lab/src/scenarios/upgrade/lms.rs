//! LTP, the LMS option and LMS-HIER.

use super::{Outcome, Sides, judge, still_running};
use crate::prelude::*;
use crate::session::{Owner, Replies, Session};
use crate::transfer::Transfer;

/// The group of the transfer.
const GROUP: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(239, 4, 1, 44), 5_000);
/// Time until all have ended: a transfer of some megabytes, and every timeout below.
const LIMIT: Duration = Duration::from_secs(60);
/// The rate through routers: slow enough that repliers are elected before the end.
const RATE: &str = "2M";
const SEND: [&str; 6] = [
    "--connect-timeout",
    "4s",
    "--linger",
    "1s",
    "--timeout",
    "6s",
];
const RECEIVE: [&str; 4] = ["--connect-timeout", "8s", "--timeout", "6s"];

/// A transfer that has ended, or not.
pub(in crate::scenarios) struct Carried {
    transfer: Transfer,
    /// Whether every receiver has the file; else what no program may do.
    pub(in crate::scenarios) arrived: Result<bool, String>,
}

impl Carried {
    /// The sender and the receivers.
    pub(in crate::scenarios) fn processes(&mut self) -> Vec<&mut Process> {
        let receivers = self.transfer.receivers.iter_mut();
        let receivers = receivers.map(|receiver| &mut receiver.process);
        [&mut self.transfer.sender]
            .into_iter()
            .chain(receivers)
            .collect()
    }
}

/// Runs a transfer of a session to its end; `watch` is called often meanwhile.
pub(in crate::scenarios) fn carry(
    session: &mut Session,
    sides: &Sides,
    rate: &str,
    mut watch: impl FnMut(&Session),
) -> Result<Carried> {
    session.receive_more.extend(RECEIVE.map(str::to_owned));
    let send: Vec<&str> = SEND.iter().copied().chain(["--rate", rate]).collect();
    let mut transfer = Transfer::start(session, &sides.file, &send)?;
    let end = Instant::now() + LIMIT;
    while !transfer.ended() && Instant::now() < end {
        watch(session);
        std::thread::sleep(Duration::from_millis(50));
    }
    let name = sides.file.file_name().context("a file without a name")?;
    let nodes = transfer.receivers.iter().map(|receiver| receiver.node);
    let copies: Vec<PathBuf> = nodes.map(|node| session.folder(node).join(name)).collect();
    let mut carried = Carried {
        transfer,
        arrived: Ok(false),
    };
    carried.arrived = arrived(&mut carried.processes(), &sides.file, &copies)?;
    Ok(carried)
}

/// Whether every receiver has the file. `programs` are the sender and the receivers.
fn arrived(
    programs: &mut [&mut Process],
    file: &Path,
    copies: &[PathBuf],
) -> Result<Result<bool, String>> {
    let running = programs.iter_mut().map(|process| &mut **process);
    if let Some(late) = still_running(running, Duration::ZERO) {
        return Ok(Err(late));
    }
    let succeeded = |process: &mut Process| process.ended().is_some_and(|status| status.success());
    let (sender, receivers) = programs.split_at_mut(1);
    let mut all = true;
    for (receiver, copy) in receivers.iter_mut().zip(copies) {
        let is_whole = copy.exists() && same(file, copy)?;
        if succeeded(receiver) && !is_whole {
            let name = receiver.name();
            return Ok(Err(format!("{name} reports success without the file")));
        }
        all &= is_whole;
    }
    if succeeded(sender[0]) && !all {
        return Ok(Err(
            "lms-send reports success for what did not arrive".into()
        ));
    }
    Ok(Ok(all))
}

/// Two receivers on the sender's link.
pub(super) fn transfer(sides: &Sides) -> Result<Outcome> {
    let mut plan = Plan::default();
    let [source, h1, h2] = ["source", "h1", "h2"].map(|name| plan.host(name));
    plan.shared(&[source, h1, h2].map(|node| (node, Shape::default())));
    let mut network = Network::build(plan, 1)?;
    sides.first(&mut network, &[source]);
    sides.second(&mut network, &[h1, h2]);
    let mut session = Session::new(network, source, vec![h1, h2], GROUP);
    let assist = [source, h1, h2].map(|node| (node, "none".to_owned()));
    session.assist = assist.into_iter().collect();
    let mut carried = carry(&mut session, sides, "100M", |_| {})?;
    let arrived = carried.arrived.clone();
    Ok(judge(carried.processes(), arrived, true))
}

/// `source -- r1 -- r2 -- h1, h2`; the hosts lose packets.
struct Tree {
    session: Session,
    hosts: [NodeId; 3],
    routers: [NodeId; 2],
}

impl Tree {
    fn build() -> Result<Tree> {
        let mut plan = Plan::default();
        let source = plan.host("source");
        let [r1, r2] = ["r1", "r2"].map(|name| plan.router(name));
        let [h1, h2] = ["h1", "h2"].map(|name| plan.host(name));
        plan.link(source, r1, Shape::default());
        plan.link(r1, r2, Shape::default());
        for host in [h1, h2] {
            plan.link(r2, host, Shape::lossy(0.05));
        }
        let network = Network::build(plan, 3)?;
        Ok(Tree {
            session: Session::new(network, source, vec![h1, h2], GROUP),
            hosts: [source, h1, h2],
            routers: [r1, r2],
        })
    }

    /// Starts the routers and carries a file through them; `helps` says whether they do their part.
    fn carry(mut self, sides: &Sides, helps: impl Fn(&[Daemon]) -> bool) -> Result<Outcome> {
        self.session.own(Owner::Lab)?;
        self.session.wait_for_routes(Duration::from_secs(20))?;
        self.session.start_routers(&Replies::default())?;
        let mut helped = false;
        let watch = |session: &Session| helped = helped || helps(&session.routers);
        let mut carried = carry(&mut self.session, sides, RATE, watch)?;
        let arrived = carried.arrived.clone();
        let mut processes = carried.processes();
        let routers = self.session.routers.iter_mut();
        processes.extend(routers.map(|router| &mut router.process));
        Ok(judge(processes, arrived, helped))
    }
}

/// Routers of one release, hosts of another: they help where a directed multicast passes.
pub(super) fn routers_and_hosts(sides: &Sides) -> Result<Outcome> {
    let mut tree = Tree::build()?;
    sides.first(&mut tree.session.network, &tree.routers);
    sides.second(&mut tree.session.network, &tree.hosts);
    tree.carry(sides, |routers| {
        let dmcasts = |router: &Daemon| {
            let counters = router.counters().unwrap_or_default();
            count(&counters["packets"], "dmcast")
        };
        routers.iter().any(|router| dmcasts(router) > 0)
    })
}

/// Routers of two releases, hosts of today: they help where the upper one has a replier below the lower one.
pub(super) fn routers(sides: &Sides) -> Result<Outcome> {
    let mut tree = Tree::build()?;
    let [upper, lower] = tree.routers;
    sides.first(&mut tree.session.network, &[upper]);
    sides.second(&mut tree.session.network, &[lower]);
    tree.carry(sides, |routers| {
        let entry = routers[0].group(&GROUP.ip().to_string());
        entry.is_ok_and(|entry| !entry["replier"].is_null())
    })
}
