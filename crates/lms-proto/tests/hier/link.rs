//! Two routers and two hosts on lossy links, in virtual time: the hierarchy forms, holds, and a
//! replier that goes silent is replaced within one hold time, up to the root.
//!
//! ```text
//! root --- link 0 --- router --- link 1 --- host 20 (cost 2), host 21 (cost 6)
//! ```

use lms_proto::endpoint::{self, Election, Endpoint};
use lms_proto::hier::{Capacity, Config, Cost, Hierarchy, Storage, hold_time};
use lms_proto::{Duration, Iface, Instant, InterfaceConfig, Key, Meta};

use crate::common::*;

const REFRESH: Duration = Duration::from_millis(500);
const CAPACITY: Capacity = Capacity {
    entries: 4,
    neighbours: 8,
    peers: 8,
    branches: 8,
    interfaces: 2,
};

struct Net {
    now: Instant,
    /// Links: interface 1 of the root is link 0; the router's 0 is link 0, its 1 link 1.
    root: Hierarchy<'static>,
    router: Hierarchy<'static>,
    hosts: Vec<(Endpoint<'static>, bool)>,
    /// Number of packets lost of 256, by this generator.
    loss: u32,
    rng: u32,
}

fn key() -> Key {
    group(1)
}

fn machine(interfaces: [(u16, u8, u8); 2], parent: u16, seed: u8) -> Hierarchy<'static> {
    let config = Config {
        refresh: REFRESH,
        ..Config::default()
    };
    let mut h = Hierarchy::new(config, Storage::owned(CAPACITY), [seed; 32], ms(0));
    for (iface, link, n) in interfaces {
        let config = InterfaceConfig::ipv4(host(link.into(), n), 24);
        h.set_interface(ms(0), Iface(iface), config).unwrap();
    }
    h.install(ms(0), key(), Iface(parent)).unwrap();
    h
}

fn host_machine(n: u8, cost: u16, seed: u8) -> Endpoint<'static> {
    let interface = InterfaceConfig::ipv4(host(1, n), 24);
    let config = endpoint::Config::new(Iface(1), interface);
    let mut e = Endpoint::new(config, endpoint::Storage::owned(2), [seed; 32], ms(0));
    e.join(ms(0), key(), Cost(cost)).unwrap();
    e
}

impl Net {
    fn new(seed: u8, loss: u32) -> Net {
        Net {
            now: ms(0),
            root: machine([(0, 9, 1), (1, 0, 1)], 0, seed),
            router: machine([(0, 0, 2), (1, 1, 1)], 0, seed ^ 0x55),
            hosts: vec![
                (host_machine(20, 2, seed ^ 1), true),
                (host_machine(21, 6, seed ^ 2), true),
            ],
            loss,
            rng: u32::from(seed) | 1 << 16,
        }
    }

    fn is_lost(&mut self) -> bool {
        self.rng = self.rng.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.rng >> 24 < self.loss
    }

    fn reach_hosts(&mut self, packet: &[u8]) {
        for at in 0..self.hosts.len() {
            if !self.is_lost() && self.hosts[at].1 {
                let _ = self.hosts[at].0.handle_packet(self.now, &meta(1), packet);
            }
        }
    }

    /// Everything that is to be sent now reaches its link, or is lost.
    fn deliver(&mut self) {
        let mut buffer = [0; 1500];
        let at = |iface: u16| Meta {
            iface: Iface(iface),
            link_source: None,
        };
        while let Some(t) = self.root.poll_transmit(self.now, &mut buffer) {
            if t.iface == Iface(1) && !self.is_lost() {
                let _ = self
                    .router
                    .handle_packet(self.now, &at(0), &buffer[..t.len]);
            }
        }
        while let Some(t) = self.router.poll_transmit(self.now, &mut buffer) {
            let packet = buffer[..t.len].to_vec();
            if t.iface == Iface(1) {
                self.reach_hosts(&packet);
            } else if !self.is_lost() {
                let _ = self.root.handle_packet(self.now, &at(1), &packet);
            }
        }
        for n in 0..self.hosts.len() {
            while let Some(t) = self.hosts[n].0.poll_transmit(self.now, &mut buffer) {
                if self.hosts[n].1 && !self.is_lost() {
                    self.router
                        .handle_packet(self.now, &at(1), &buffer[..t.len])
                        .unwrap();
                }
            }
        }
        while self.router.poll_event().is_some() || self.root.poll_event().is_some() {}
    }

    fn next(&self) -> Option<Instant> {
        let hosts = self.hosts.iter().filter_map(|(e, _)| e.poll_timeout());
        hosts
            .chain(self.root.poll_timeout())
            .chain(self.router.poll_timeout())
            .min()
    }

    fn run(&mut self, end: Instant) {
        while let Some(at) = self.next().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.root.handle_timeout(self.now);
            self.router.handle_timeout(self.now);
            for (e, _) in &mut self.hosts {
                e.handle_timeout(self.now);
                while e.poll_event().is_some() {}
            }
            self.deliver();
        }
        self.now = end;
    }
}

#[test]
fn hierarchy_forms_and_a_silent_replier_is_replaced() {
    for seed in 0..50 {
        let mut net = Net::new(seed, 0);
        net.run(ms(100));
        assert_eq!(
            elected(&net.router, key()),
            Some((host(1, 20), 2)),
            "seed {seed}"
        );
        assert_eq!(
            elected(&net.root, key()),
            Some((host(0, 2), 3)),
            "cost 2, and 1 of the router"
        );
        assert_eq!(net.hosts[0].0.election(key()), Election::Me);
        assert_eq!(net.hosts[1].0.election(key()), Election::Other(host(1, 20)));

        net.run(ms(5_300));
        net.hosts[0].1 = false;
        net.run(ms(5_300) + hold_time(REFRESH));
        assert_eq!(
            elected(&net.router, key()),
            Some((host(1, 21), 6)),
            "seed {seed}"
        );
        net.run(ms(5_300) + hold_time(REFRESH) + Duration::from_millis(110));
        assert_eq!(
            elected(&net.root, key()),
            Some((host(0, 2), 7)),
            "seed {seed}"
        );
        assert_eq!(net.hosts[1].0.election(key()), Election::Me);

        // It comes back, and is the better one.
        net.hosts[0].1 = true;
        net.run(net.now + REFRESH);
        assert_eq!(
            elected(&net.router, key()),
            Some((host(1, 20), 2)),
            "seed {seed}"
        );

        // The router goes silent: the root forgets it, the hosts that there was one.
        let mut quiet = Net {
            hosts: net.hosts,
            ..Net::new(seed, 256)
        };
        std::mem::swap(&mut quiet.root, &mut net.root);
        quiet.now = net.now;
        quiet.router = machine([(0, 0, 2), (1, 1, 1)], 0, 77);
        quiet.run(net.now + hold_time(REFRESH));
        assert_eq!(elected(&quiet.root, key()), None);
        assert!(
            quiet
                .hosts
                .iter()
                .all(|(e, _)| e.election(key()) == Election::NoRouter)
        );
    }
}

/// A tenth of all packets lost: hold times of three refreshes and a half make changes of
/// election rare, and they heal by themselves.
#[test]
fn loss_is_survived() {
    let (mut wrong, mut looks) = (0, 0);
    for seed in 0..20 {
        let mut net = Net::new(seed, 26);
        net.run(ms(5_000));
        for _ in 0..100 {
            net.run(net.now + Duration::from_millis(300));
            looks += 1;
            wrong += u32::from(elected(&net.router, key()) != Some((host(1, 20), 2)));
            wrong += u32::from(elected(&net.root, key()).is_none());
        }
    }
    assert!(wrong * 50 < looks, "{wrong} of {looks}");
}
