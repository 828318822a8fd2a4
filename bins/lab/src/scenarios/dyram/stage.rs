//! A network without multicast routing, with `dyram-relay` in some of its routers.

use crate::prelude::*;
use crate::session::Session;
use netlab::mroute;

/// The port of every relay.
pub(super) const PORT: u16 = 4143;
/// The group, which only names the session: nothing is sent to it.
pub(super) const GROUP: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(239, 4, 1, 43), 5_000);
/// Time limit for a relay to start, and for children to attach.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A session that relays help.
pub(crate) struct Stage {
    pub(crate) session: Session,
    pub(super) relays: Vec<Daemon>,
    /// Owners of multicast routes, when routers forward the group and relays serve recovery beside it.
    routes: Vec<Process>,
}

/// Where a relay listens, seen from a neighbour: its end of the link between them.
fn address(network: &Network, from: NodeId, relay: NodeId) -> Result<SocketAddrV4> {
    let plan = network.plan();
    let (link, _) = plan.toward(relay)[from.0].context("no way to the relay")?;
    // The relay's address on a link to the node; beyond one hop, its first address.
    let near = plan.address_on(relay, link);
    Ok(SocketAddrV4::new(
        near.unwrap_or_else(|| plan.address(relay)),
        PORT,
    ))
}

impl Stage {
    /// The endpoints' relays: the source's, and for each receiver the relays it may attach to.
    pub(crate) fn new(
        network: Network,
        source: (NodeId, NodeId),
        receivers: &[(NodeId, Vec<NodeId>)],
    ) -> Result<Stage> {
        let mut assist = std::collections::BTreeMap::new();
        let ends = receivers
            .iter()
            .cloned()
            .chain([(source.0, vec![source.1])]);
        for (node, relays) in ends {
            let relays: Result<Vec<String>> = relays
                .iter()
                .map(|relay| Ok(address(&network, node, *relay)?.to_string()))
                .collect();
            assist.insert(node, format!("dyram://{}", relays?.join(",")));
        }
        let nodes = receivers.iter().map(|(node, _)| *node).collect();
        let mut session = Session::new(network, source.0, nodes, GROUP);
        let from = session.source_address().to_string();
        // A peer on a busy machine is not given up too early.
        let more = ["--source", &from, "--timeout", "60s"];
        session.receive_more = more.map(str::to_owned).to_vec();
        session.assist = assist;
        Ok(Stage {
            session,
            relays: Vec::new(),
            routes: Vec::new(),
        })
    }

    /// Makes routers forward the group, while relays serve recovery. Call it before the relays start.
    pub(super) fn over_multicast(&mut self) -> Result<()> {
        let session = &mut self.session;
        let (source, groups) = (session.source, [*GROUP.ip()]);
        self.routes = mroute::serve(&session.network, source, &session.receivers, &groups)?;
        for assist in session.assist.values_mut() {
            *assist = assist.replace("dyram://", "dyram+multicast://");
        }
        Ok(())
    }

    /// Starts relays, each with the parents it may attach to, and waits until they answer.
    pub(crate) fn start(&mut self, relays: &[(NodeId, Vec<NodeId>)], more: &str) -> Result<()> {
        let beside = !self.routes.is_empty();
        for (node, parents) in relays {
            let relay = start_relay(&self.session.network, *node, parents, beside, more)?;
            self.relays.push(relay);
        }
        self.relays
            .iter_mut()
            .try_for_each(|relay| relay.wait(TIMEOUT))
    }

    /// The relay in that node.
    pub(super) fn relay(&mut self, node: NodeId) -> Result<&mut Daemon> {
        let found = self.relays.iter_mut().find(|relay| relay.node == node);
        found.context("no relay in that node")
    }

    /// Whether any router has a multicast route.
    pub(super) fn has_multicast(&self) -> Result<bool> {
        let network = &self.session.network;
        for node in network.plan().nodes() {
            if network.plan().is_router(node) && !network.multicast_routes(node)?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// What each relay did.
    pub(super) fn table(&self) -> Result<(Table, Totals)> {
        let columns = "relay | data | gaps | nacked | suppressed | asked repliers | repaired below | asked \
             parent | repaired above | given up";
        let mut table = Table::with_header("relays", columns);
        let mut totals = Totals::default();
        for (index, relay) in self.relays.iter().enumerate() {
            let counters = relay.counters()?;
            let (r, drops) = (&counters["recovery"], &counters["drops"]);
            let cell = |name: &str| Cell::Count(count(r, name));
            table.row([
                relay.name.as_str().into(),
                cell("data"),
                cell("gaps"),
                cell("nacked"),
                Cell::Count(count(drops, "suppressed")),
                cell("asked_repliers"),
                cell("repaired_below"),
                cell("asked_parent"),
                cell("repaired_above"),
                cell("given_up"),
            ]);
            totals.below += count(r, "repaired_below");
            totals.nacked += count(r, "nacked");
            if index == 0 {
                totals.asked_source = count(r, "asked_parent");
            }
        }
        Ok((table, totals))
    }
}

/// Sums over relays.
#[derive(Default)]
pub(super) struct Totals {
    /// Repairs that receivers sent, counted at each relay that passed them on.
    pub(super) below: u64,
    /// Packets that children asked for.
    pub(super) nacked: u64,
    /// Packets that the first relay asked the source for.
    pub(super) asked_source: u64,
}

/// Starts a relay with these parents; beside IP multicast it listens to the group on the first of the node's links, the
/// one that leads up.
pub(super) fn start_relay(
    network: &Network,
    node: NodeId,
    parents: &[NodeId],
    beside: bool,
    more: &str,
) -> Result<Daemon> {
    let parents: Result<Vec<String>> = parents
        .iter()
        .map(|parent| Ok(format!("\"{}\"", address(network, node, *parent)?)))
        .collect();
    let (carriage, multicast) = if beside {
        let section = format!("[multicast]\ninterface = \"eth0\"\ngroups = [\"{GROUP}\"]\n");
        ("multicast", section)
    } else {
        ("relays", String::new())
    };
    let sections = format!(
        "[relay]\nid = \"{}\"\nparents = [{}]\ncarriage = \"{carriage}\"\n{multicast}{more}",
        network.plan().address(node),
        parents?.join(", "),
    );
    Daemon::start(network, "dyram-relay", node, &sections)
}

/// How many children a relay has; none when it does not answer.
pub(super) fn children(relay: &Daemon) -> u64 {
    count(&relay.status("overview").unwrap_or_default(), "children")
}
