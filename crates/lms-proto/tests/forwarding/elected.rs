//! LMS-HIER and forwarding together. Two hosts offer themselves, two routers elect one of them, and requests and repairs
//! follow the election, by every carrier of both families. The machines know of each other by their packets alone.
//!
//! ```text
//!            | ELSEWHERE
//!          upper
//!   BESIDE --' | UP
//!            lower
//!     REPLIER | | DOWN
//!          near  far
//! ```

use std::net::{Ipv4Addr, Ipv6Addr};

use lms_proto::endpoint::{self, Answer, Election, Endpoint};
use lms_proto::hier::Cost;
use lms_proto::router::{Config, Policy, Router, Storage, Verdict};
use lms_proto::{Duration, Form, Iface, Instant, LinkAddr, LmsOption, Meta, NextHop};

use crate::common::{DOWN, DOWN2 as BESIDE, ELSEWHERE, NOW, REPLIER, UP};
use crate::net::*;

/// Number of the upper router on the link to the lower one.
const UPPER: u8 = 254;
/// Numbers of the hosts on their links.
const NEAR: u8 = 9;
const FAR: u8 = 77;

struct Tree<A: Net> {
    now: Instant,
    upper: Router<'static, A>,
    lower: Router<'static, A>,
    near: Endpoint<'static, A>,
    far: Endpoint<'static, A>,
}

fn router_of<A: Net>(seed: u8, links: &[(Iface, u8)]) -> Router<'static, A> {
    let config = Config {
        policy: Policy::Hierarchy,
        ..Config::default()
    };
    let storage = Storage::with_capacity(8, 8);
    let mut router = Router::new(config, storage, [seed; 32], NOW);
    for &(link, number) in links {
        let interface = A::interface(link, number);
        router.set_interface(NOW, link, interface).unwrap();
    }
    let down: Vec<Iface> = links[1..].iter().map(|(link, _)| *link).collect();
    router.install(NOW, key(), links[0].0, &down).unwrap();
    router
}

fn host<A: Net>(link: Iface, number: u8, cost: u16) -> Endpoint<'static, A> {
    let config = endpoint::Config::new(link, A::interface(link, number));
    let storage = endpoint::Storage::owned(1);
    let mut host = Endpoint::new(config, storage, [number; 32], NOW);
    host.join(NOW, key(), Cost(cost)).unwrap();
    host
}

/// How packets of a neighbour arrive.
fn from(link: Iface, number: u8) -> Meta {
    Meta {
        iface: link,
        link_source: Some(LinkAddr([2, 0, 0, 0, link.0 as u8, number])),
    }
}

impl<A: Net> Tree<A> {
    fn new() -> Self {
        Tree {
            now: NOW,
            upper: router_of(1, &[(ELSEWHERE, 1), (UP, UPPER), (BESIDE, 1)]),
            lower: router_of(2, &[(UP, 1), (REPLIER, 1), (DOWN, 1)]),
            near: host(REPLIER, NEAR, 3),
            far: host(DOWN, FAR, 8),
        }
    }

    /// Delivers what the machines send now; each accepts every packet.
    fn drain(&mut self) {
        let mut buffer = [0; 1500];
        let now = self.now;
        for (host, link, number) in [(&mut self.near, REPLIER, NEAR), (&mut self.far, DOWN, FAR)] {
            while let Some(sent) = host.poll_transmit(now, &mut buffer) {
                let packet = &buffer[..sent.len];
                let meta = from(link, number);
                self.lower.handle_packet(now, &meta, packet).unwrap();
            }
        }
        while let Some(sent) = self.lower.poll_transmit(now, &mut buffer) {
            let packet = &buffer[..sent.len];
            let meta = from(sent.iface, 1);
            match sent.iface {
                UP => self.upper.handle_packet(now, &meta, packet).unwrap(),
                REPLIER => self.near.handle_packet(now, &meta, packet).unwrap(),
                _ => self.far.handle_packet(now, &meta, packet).unwrap(),
            }
        }
        while let Some(sent) = self.upper.poll_transmit(now, &mut buffer) {
            if sent.iface == UP {
                let packet = &buffer[..sent.len];
                let meta = from(UP, UPPER);
                self.lower.handle_packet(now, &meta, packet).unwrap();
            }
        }
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            self.drain();
            let routers = [&self.upper, &self.lower].map(Router::poll_timeout);
            let hosts = [&self.near, &self.far].map(Endpoint::poll_timeout);
            let next = routers.into_iter().chain(hosts).flatten().min();
            let Some(at) = next.filter(|at| *at <= end) else {
                break;
            };
            self.now = self.now.max(at);
            self.upper.handle_timeout(self.now);
            self.lower.handle_timeout(self.now);
            self.near.handle_timeout(self.now);
            self.far.handle_timeout(self.now);
        }
        self.now = end;
    }
}

/// Forwards a request to a replier; returns the neighbour that it goes to, and the packet as sent.
#[track_caller]
fn to_replier<A: Net>(
    router: &mut Router<'_, A>,
    now: Instant,
    from: Meta,
    request: &[u8],
) -> (Iface, A, Vec<u8>) {
    let mut bytes = request.to_vec();
    let verdict = router.forward(now, &from, &mut bytes);
    let Verdict::Forward { output, packet, .. } = verdict else {
        panic!("{verdict:?}");
    };
    let NextHop::Neighbour { addr, .. } = output.next_hop else {
        panic!("{output:?}");
    };
    (output.iface, addr, bytes[packet].to_vec())
}

/// The answer of the elected host, as it goes out.
fn repair<A: Net>(host: &Endpoint<'_, A>, by: By, request: &LmsOption) -> Vec<u8> {
    let point = request.turning_point.expect("turned");
    let mut buffer = [0; 1500];
    match by {
        By::Option(_) => {
            let len = host.dmcast(key(), point, PORTS, b"repair", &mut buffer);
            buffer[..len.unwrap()].to_vec()
        }
        By::Datagram => {
            let len = host.dmcast_datagram(key(), point, PORTS, b"repair", &mut buffer);
            let ends = (A::host(REPLIER, NEAR), A::from_ip(point.router).unwrap());
            datagram(ends, 64, &buffer[..len.unwrap()])
        }
    }
}

#[test]
fn requests_go_to_the_elected_host_and_its_repairs_come_back() {
    fn check<A: Net>(by: By) {
        let mut tree = Tree::<A>::new();
        tree.run(Duration::from_secs(2));
        assert_eq!(tree.near.election(key()), Election::Me);
        assert_eq!(tree.far.election(key()), Election::Elsewhere);

        // Of the host below the lower router, which turns it.
        let now = tree.now;
        let request = Request::<A>::new(by, key(), None).packet(by);
        let (iface, to, sent) = to_replier(&mut tree.lower, now, from(DOWN, FAR), &request);
        let near = A::interface(REPLIER, NEAR);
        assert!(iface == REPLIER && near.is_own(to), "{iface} {to:?}");
        let read_there = read::<A>(by, &sent);
        assert_eq!(tree.near.should_answer(&read_there), Answer::AsReplier);
        assert!(matches!(tree.far.should_answer(&read_there), Answer::No(_)));
        let mut bytes = repair(&tree.near, by, &read_there);
        let verdict = tree.lower.forward(now, &from(REPLIER, NEAR), &mut bytes);
        assert!(matches!(verdict, Verdict::Multicast { iface: DOWN, .. }));

        // Of a host beside the lower router: the upper one turns it, and the lower one passes it on.
        let request = Request::<A>::new(by, key(), None).packet(by);
        let (iface, to, sent) = to_replier(&mut tree.upper, now, from(BESIDE, 5), &request);
        let lower = A::interface(UP, 1);
        assert!(iface == UP && lower.is_own(to), "{iface} {to:?}");
        let (iface, to, sent) = to_replier(&mut tree.lower, now, from(UP, UPPER), &sent);
        assert!(iface == REPLIER && near.is_own(to), "{iface} {to:?}");
        let read_there = read::<A>(by, &sent);
        assert_eq!(tree.near.should_answer(&read_there), Answer::AsReplier);
        let mut bytes = repair(&tree.near, by, &read_there);
        let verdict = tree.lower.forward(now, &from(REPLIER, NEAR), &mut bytes);
        assert!(matches!(verdict, Verdict::Pass), "to the upper router");
        let verdict = tree.upper.forward(now, &from(UP, 1), &mut bytes);
        assert!(matches!(verdict, Verdict::Multicast { iface: BESIDE, .. }));
    }
    by_each_carrier!(check);
}

#[test]
fn when_the_elected_host_leaves_the_other_one_is_elected() {
    fn check<A: Net>(by: By) {
        let mut tree = Tree::<A>::new();
        tree.run(Duration::from_secs(2));
        let now = tree.now;
        tree.near.leave(now, key());
        tree.run(Duration::from_secs(2));
        assert_eq!(tree.far.election(key()), Election::Me);
        let now = tree.now;
        let request = Request::<A>::new(by, key(), None).packet(by);
        let (iface, to, _) = to_replier(&mut tree.lower, now, from(REPLIER, NEAR), &request);
        assert!(
            iface == DOWN && A::interface(DOWN, FAR).is_own(to),
            "{to:?}"
        );
    }
    by_each_carrier!(check);
}
