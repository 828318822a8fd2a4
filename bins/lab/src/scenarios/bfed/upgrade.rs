//! Gateways, data nodes and clients of two releases.

use super::federation::{Design, Federation, Kind, Part, Peering, SOON, Viewer};
use crate::prelude::*;
use crate::scenarios::upgrade::{Outcome, Sides, judge};

/// The session: a group of network 1, in frames with numbers.
const SESSION: &str = "bfed://1/239.1.2.3/5004/?framing=numbered";
const RATE: &str = "8M";
/// The source's island.
const SOURCE: usize = 0;
/// Time for routes, after which a viewer is refused.
const ROUTES: Duration = Duration::from_secs(8);
/// From the answer to the last viewer until data flows to it.
const TREE_GROWS: Duration = Duration::from_secs(3);

/// Two networks, each with its own release.
pub(in crate::scenarios) fn upgrade_peers(sides: &Sides) -> Result<Outcome> {
    let designs = [Kind::Ip, Kind::Ip].map(Design::new);
    let mut federation = build(&designs)?;
    for (at, island) in [(0, 0), (1, 1)] {
        let nodes = [federation.gateway(island), federation.host(island)];
        match at {
            0 => sides.first(&mut federation.network, &nodes),
            _ => sides.second(&mut federation.network, &nodes),
        }
    }
    carry(federation, sides, &[1])
}

/// A control node of one release, its data node of another.
pub(in crate::scenarios) fn upgrade_cluster(sides: &Sides) -> Result<Outcome> {
    let split = Design {
        data: 1,
        ..Design::new(Kind::Ip)
    };
    let mut federation = build(&[split, Design::new(Kind::Ip)])?;
    let control = federation.gateway(SOURCE);
    let data = federation.node(Part::Data(SOURCE, 0));
    sides.first(&mut federation.network, &[control]);
    sides.second(&mut federation.network, &[data]);
    let rest = [
        federation.host(SOURCE),
        federation.gateway(1),
        federation.host(1),
    ];
    sides.first(&mut federation.network, &rest);
    carry(federation, sides, &[1])
}

/// Gateways of one release, the source and the viewers of another, in networks of each kind.
pub(in crate::scenarios) fn upgrade_clients(sides: &Sides) -> Result<Outcome> {
    let kinds = [Kind::Ip, Kind::Ssm, Kind::Http];
    let mut federation = build(&kinds.map(Design::new))?;
    for at in 0..kinds.len() {
        let (gateway, host) = (federation.gateway(at), federation.host(at));
        sides.first(&mut federation.network, &[gateway]);
        sides.second(&mut federation.network, &[host]);
    }
    carry(federation, sides, &[0, 1, 2])
}

/// Islands in a row.
fn build(designs: &[Design]) -> Result<Federation> {
    let peerings: Vec<Peering> = (1..designs.len())
        .map(|at| Peering::new(at - 1, at))
        .collect();
    Federation::build(designs, &peerings, Shape::default(), "")
}

/// Sends a session from the first island to viewers in these.
fn carry(mut federation: Federation, sides: &Sides, islands: &[usize]) -> Result<Outcome> {
    federation.start_all()?;
    federation.settle_for(ROUTES);
    let timeout = ["--connect-timeout", "6s"];
    let viewers = islands
        .iter()
        .map(|at| federation.view(*at, SESSION, &timeout));
    let mut viewers = viewers.collect::<Result<Vec<Viewer>>>()?;
    let mut all = true;
    for viewer in &mut viewers {
        all &= viewer.joined().is_ok();
    }
    let mut source = None;
    if all {
        std::thread::sleep(TREE_GROWS);
        let mut sending = federation.send(SOURCE, SESSION, &sides.file, RATE)?;
        sending.succeed(SOON)?;
        source = Some(sending);
    }
    let mut arrived = Ok(all);
    for viewer in &mut viewers {
        if viewer.process.wait(SOON).is_err() {
            let name = viewer.process.name();
            arrived = Err(format!("{name} does not end"));
            break;
        }
        let is_whole = viewer.file.exists() && same(&sides.file, &viewer.file)?;
        let succeeded = viewer
            .process
            .ended()
            .is_some_and(|status| status.success());
        if succeeded && !is_whole {
            let name = viewer.process.name();
            arrived = Err(format!("{name} reports success without the stream"));
            break;
        }
        arrived = arrived.map(|all| all && is_whole);
    }
    let mut processes: Vec<&mut Process> = viewers
        .iter_mut()
        .map(|viewer| &mut viewer.process)
        .collect();
    processes.extend(&mut source);
    processes.extend(federation.processes());
    Ok(judge(processes, arrived, true))
}
