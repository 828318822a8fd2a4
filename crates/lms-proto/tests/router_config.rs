//! A router whose configuration changes while it runs.

use core::net::Ipv4Addr;

use lms_proto::hier;
use lms_proto::router::{Config, Policy, Storage};
use lms_proto::table::{Neighbour, Replier};
use lms_proto::{Duration, Iface, Instant, InterfaceConfig, Key, Router, wire};

const UP: Iface = Iface(0);
const DOWN: Iface = Iface(1);
const KEY: Key = Key::new(Ipv4Addr::new(10, 9, 9, 9), Ipv4Addr::new(239, 1, 2, 3));

fn router(policy: Policy) -> Router<'static> {
    let config = Config {
        policy,
        ..Config::default()
    };
    let mut router = Router::new(config, Storage::with_capacity(8, 4), [1; 32], Instant::ZERO);
    for (iface, third) in [(UP, 0), (DOWN, 1)] {
        let config = InterfaceConfig::ipv4(Ipv4Addr::new(10, 0, third, 1), 24);
        router.set_interface(Instant::ZERO, iface, config).unwrap();
    }
    router.install(Instant::ZERO, KEY, UP, &[DOWN]).unwrap();
    router
}

fn replier(router: &Router<'_>) -> Option<Replier> {
    let id = router.table().find(KEY).unwrap();
    router.table().get(id).unwrap().replier()
}

/// What is told to the parent within a second: costs.
fn told(router: &mut Router<'_>, from: Instant) -> Vec<u16> {
    let (mut costs, mut buffer) = (Vec::new(), [0; 1500]);
    while let Some(at) = router
        .poll_timeout()
        .filter(|at| *at < from + Duration::from_secs(1))
    {
        router.handle_timeout(at);
        while let Some(transmit) = router.poll_transmit(at, &mut buffer) {
            let view =
                wire::hier::View::<Ipv4Addr>::new_checked(&buffer[28..transmit.len]).unwrap();
            if transmit.iface == UP {
                costs.extend(view.entries().map(|entry| entry.cost.0));
            }
        }
    }
    costs
}

#[test]
fn from_no_hierarchy_to_one_and_back() {
    let mut router = router(Policy::Static);
    let by_hand = Replier {
        iface: DOWN,
        cost: 5,
        neighbour: Some(Neighbour {
            addr: Ipv4Addr::new(10, 0, 1, 7),
            link: None,
        }),
    };
    assert_eq!(told(&mut router, Instant::ZERO), []);
    let now = Instant::from_secs(10);
    router.set_config(now, Config::default());
    router.set_replier(now, KEY, Some(by_hand)).unwrap();
    assert_eq!(
        told(&mut router, now),
        [6],
        "the hierarchy knows entry and interfaces now"
    );
    let now = Instant::from_secs(12);
    router.set_config(
        now,
        Config {
            policy: Policy::Static,
            ..Config::default()
        },
    );
    assert_eq!(
        told(&mut router, now)[0],
        0xffff,
        "the parent is told that we left"
    );
    assert_eq!(
        replier(&router),
        Some(by_hand),
        "what was set by hand stays"
    );
}

#[test]
fn another_cost_is_told_at_once() {
    let mut router = router(Policy::Hierarchy);
    let neighbour = Some(Neighbour {
        addr: Ipv4Addr::new(10, 0, 1, 7),
        link: None,
    });
    let by_hand = Replier {
        iface: DOWN,
        cost: 5,
        neighbour,
    };
    router
        .set_replier(Instant::ZERO, KEY, Some(by_hand))
        .unwrap();
    assert_eq!(told(&mut router, Instant::ZERO), [6]);
    let now = Instant::from_secs(3);
    let hierarchy = hier::Config {
        own_cost: 10,
        ..hier::Config::default()
    };
    router.set_config(
        now,
        Config {
            hierarchy,
            ..Config::default()
        },
    );
    assert_eq!(told(&mut router, now), [15]);
}

#[test]
fn a_replier_of_chance_gives_way() {
    let redraw = Duration::from_secs(5);
    let mut router = router(Policy::Hierarchy);
    router.set_config(
        Instant::ZERO,
        Config {
            policy: Policy::Random { redraw },
            ..Config::default()
        },
    );
    assert_eq!(replier(&router), None, "drawn when the first request comes");
    router.set_config(
        Instant::ZERO,
        Config {
            policy: Policy::Static,
            ..Config::default()
        },
    );
    assert_eq!(replier(&router), None);
}
