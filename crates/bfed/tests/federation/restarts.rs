//! A data node that restarts at once, and a gateway that is no longer the nearest to its clients.

use bfed::*;

use crate::world::{World, gateway, session};

const SECOND: Duration = Duration::from_secs(1);
const NAME: &str = "bfed://1/m";

#[test]
fn a_data_node_that_restarts_at_once_carries_its_sessions_again() {
    for at in 0..2 {
        let mut world = World::new();
        for network in 1..=2 {
            world.add(Config::new(gateway(network, 1)));
        }
        world.peer(0, 1);
        world.run(SECOND * 3);
        world.client(1, 1, NAME);
        world.run(SECOND);
        assert_eq!(world.reached(NAME).len(), 2);
        world.kill_node(at, NodeId(1));
        world.add_node(at, NodeId(1));
        world.run(SECOND * 2);
        assert_eq!(world.reached(NAME).len(), 2, "gateway {at}");
        let carried: Vec<_> = world.gws[at].control.nodes().collect();
        assert!(
            matches!(carried[..], [(NodeId(1), 1, _)]),
            "the control node counts it: {carried:?}"
        );
    }
}

#[test]
fn a_gateway_that_is_no_longer_the_nearest_gives_up_its_clients() {
    let mut world = World::new();
    let owner = world.add(Config::new(gateway(1, 1)));
    let near = world.add(Config::new(gateway(2, 1)));
    let far = world.add(Config::new(gateway(2, 2)));
    for (a, b) in [(near, far), (owner, near), (owner, far)] {
        world.peer(a, b);
    }
    world.set_link(owner, near, false);
    let ask = |world: &mut World, time: Duration| {
        for at in [near, far] {
            let (now, client) = (world.now, ClientId(at as u64));
            let control = &mut world.gws[at].control;
            control.join(now, client, session(NAME), 0, Scope::Heard);
        }
        world.run(time);
    };
    world.run(SECOND * 3);
    ask(&mut world, SECOND * 2);
    assert!(world.tree(far, NAME).is_some() && world.tree(near, NAME).is_none());
    world.set_link(owner, near, true);
    // The ends of the link dial each other, then all state of the gateway that answered expires.
    for _ in 0..10 {
        ask(&mut world, SECOND * 20);
    }
    assert!(world.tree(near, NAME).is_some_and(|tree| tree.clients));
    assert!(world.tree(far, NAME).is_none());
}
