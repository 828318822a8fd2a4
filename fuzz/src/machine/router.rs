//! The LMS router of either family: requests and dmcasts of every carrier to forward, LMS-HIER and membership reports,
//! routes and repliers that come and go.
//!
//! Asserted: a dropped packet is untouched; one that is forwarded has one hop less and its checksums still hold, is no
//! longer than it came, and goes out of an interface that there is; what has turned never goes up again, and what turns
//! is addressed as its carrier does it; a datagram of no entry is routed on; a dmcast leaves as (S, G) of an entry, with
//! a cookie that the router wrote for that interface, or after a request in the classic form. Nothing is allocated
//! after the start.

use std::collections::{BTreeSet, VecDeque};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU16;

use igmp::datagram::{UDP_AT, finish_udp};
use lms_proto::hier::Capacity;
use lms_proto::router::{Config, Output, Policy, Rate, Stats, Storage, Verdict};
use lms_proto::table::{EntryId, Neighbour, Replier};
use lms_proto::wire::{hier, udp};
use lms_proto::{Duration, Iface, Instant, Key, LinkAddr, Meta, NextHop, Router, TurningPoint};

use super::igmp::Addresses as _;
use super::router_packets::{
    IFACES, Net, answer, checksum_holds, cookie_of, dmcast, hier_message, iface, key, report,
    request, seen,
};
use super::{ip_packet, mend, pass};
use crate::memory::Meter;
use crate::script::{Lines, Script};

/// Sees each packet before and after a router of IPv4 forwards it.
pub trait Observer {
    /// Before.
    fn before(&mut self, router: &mut Router<'static>, now: Instant, meta: &Meta, packet: &[u8]);
    /// After: the verdict, and the bytes with what the router changed in them.
    fn after(&mut self, router: &Router<'static>, verdict: &Verdict, bytes: &[u8]);
}

struct Bench<'o, A: Net> {
    router: Router<'static, A>,
    observer: Option<&'o mut dyn Observer>,
    udp_port: Option<u16>,
    meter: Meter,
    now: Instant,
    /// Turning points that the router wrote, the latest ones, and for which source and group.
    points: VecDeque<(Key<A>, TurningPoint)>,
    /// Cookies that the router wrote, for which source, group and interface.
    cookies: BTreeSet<(Key<A>, Iface, u64)>,
    /// Entries that turned a request since they were installed, and whether one was in the classic form.
    turned: BTreeSet<(Key<A>, bool)>,
}

fn policy(script: &mut Script<'_>) -> Policy {
    match script.pick(4) {
        0 => Policy::Hierarchy,
        1 => Policy::Static,
        2 => Policy::Random {
            redraw: Duration::from_secs(script.u8().into()),
        },
        _ => Policy::SearchParty {
            copies: script.u8(),
            up: script.u8(),
        },
    }
}

fn config(script: &mut Script<'_>) -> Config {
    let rate = Rate {
        per_second: 10,
        burst: 50,
    };
    Config {
        policy: policy(script),
        request_rate: rate,
        dmcast_rate: rate,
        udp_port: NonZeroU16::new(udp::PORT).filter(|_| script.flag()),
        ..Config::default()
    }
}

impl<'o, A: Net> Bench<'o, A> {
    fn new(script: &mut Script<'_>, observer: Option<&'o mut dyn Observer>) -> Self {
        let capacity = Capacity {
            entries: 8,
            neighbours: 8,
            peers: 4,
            branches: 8,
            interfaces: 8,
        };
        let storage = Storage::with_capacity(4, 8).with_hierarchy(capacity);
        let now = Instant::from_secs(100);
        let config = config(script);
        let mut bench = Bench {
            router: Router::new(config, storage, [1; 32], now),
            observer,
            udp_port: config.udp_port.map(NonZeroU16::get),
            meter: Meter::default(),
            now,
            points: VecDeque::new(),
            cookies: BTreeSet::new(),
            turned: BTreeSet::new(),
        };
        for iface in 1..=IFACES {
            bench.interface(Iface(iface));
        }
        let down: Vec<Iface> = (2..=IFACES - 1).map(Iface).collect();
        let key = Key::new(A::address(1, 1), A::group(0));
        bench
            .router
            .install(now, key, Iface(1), &down)
            .expect("there is room");
        bench
    }

    fn interface(&mut self, iface: Iface) {
        let config = A::interface(iface.0);
        let (router, now) = (&mut self.router, self.now);
        let _ = self.meter.run(|| router.set_interface(now, iface, config));
    }

    fn forward(&mut self, iface: Iface, packet: &[u8]) {
        let mut bytes = packet.to_vec();
        let meta = Meta {
            iface,
            link_source: Some(LinkAddr([2, 0, 0, 0, 0, 9])),
        };
        let (router, now) = (&mut self.router, self.now);
        if let (Some(observer), Some(router)) = (&mut self.observer, A::ipv4(router)) {
            observer.before(router, now, &meta, packet);
        }
        let verdict = self.meter.run(|| router.forward(now, &meta, &mut bytes));
        if let (Some(observer), Some(router)) = (&mut self.observer, A::ipv4(router)) {
            observer.after(router, &A::ipv4_verdict(&verdict), &bytes);
        }
        match verdict {
            Verdict::Pass => assert_eq!(bytes, packet, "passed on as it came"),
            Verdict::Drop(_) => assert_eq!(bytes, packet, "dropped as it came"),
            Verdict::Forward {
                output,
                packet: range,
                second,
            } => {
                assert!(range.len() <= packet.len());
                self.is_good_request(iface, output, &bytes[range.clone()], packet);
                if let Some(copy) = second {
                    let (router, meter) = (&self.router, &mut self.meter);
                    let output = meter.run(|| router.second_copy(copy, &mut bytes[range.clone()]));
                    self.is_good_request(iface, output, &bytes[range], packet);
                }
            }
            Verdict::Multicast {
                iface: out,
                packet: range,
            } => {
                assert!(range.len() < packet.len());
                self.is_good_repair(out, &bytes[range], packet);
            }
        }
    }

    /// Checks a request that the router forwards, and notes the turning point where it wrote one.
    fn is_good_request(&mut self, arrival: Iface, output: Output<A>, bytes: &[u8], before: &[u8]) {
        let was = seen::<A>(before, self.udp_port).expect("only requests are forwarded");
        let is = seen::<A>(bytes, self.udp_port).expect("a request still");
        let hops = |packet| A::read_ip(packet).expect("a packet").hop_limit;
        assert_eq!(hops(bytes) + 1, hops(before), "one hop less");
        if was.is_datagram && checksum_holds::<A>(before) != Some(false) {
            let (is, was) = (checksum_holds::<A>(bytes), checksum_holds::<A>(before));
            assert_eq!(is, was, "the checksum of the datagram");
        }
        assert_eq!((is.key, is.is_datagram), (was.key, was.is_datagram));
        let Some(id) = self.router.table().lookup(is.key) else {
            assert!(is.is_datagram && !is.is_turned, "of no entry");
            let routed = (output.iface, output.next_hop);
            assert_eq!(routed, (Iface::UNSET, NextHop::Routed));
            assert_eq!(is.destination, is.key.source);
            return;
        };
        let entry = self.router.table().get(id).expect("there");
        let (parent, entry) = (entry.parent(), entry.key());
        assert!(!was.is_turned || arrival == parent, "turned came up again");
        let destination = match (is.is_datagram, is.is_turned) {
            (true, true) => A::LINK_GROUP,
            (true, false) => is.key.source,
            (false, _) => is.key.group,
        };
        assert_eq!(is.destination, destination);
        let is_below = self.router.table().is_downstream(id, output.iface);
        match is.is_turned {
            true => assert!(is_below, "turned, and not to a replier"),
            false => assert_eq!(output.iface, parent, "not turned, and not to the parent"),
        }
        if was.is_turned || !is.is_turned {
            return;
        }
        let cookie = is.cookie.unwrap_or(0);
        let point = is.body.turning_point(cookie).expect("turned");
        self.points.push_back((is.key, point));
        if self.points.len() > 8 {
            self.points.pop_front();
        }
        self.cookies.insert((is.key, arrival, cookie));
        self.turned.insert((entry, is.cookie.is_none()));
    }

    /// Checks what the router multicasts for the dmcast `before`.
    fn is_good_repair(&self, out: Iface, inner: &[u8], before: &[u8]) {
        let ip = A::read_ip(inner).expect("a packet");
        let key = Key::new(ip.source, ip.destination);
        let id = self.entry(key).expect("of an entry");
        assert!(self.router.table().is_downstream(id, out));
        let entry = self.router.table().get(id).expect("there").key();
        let proof = match cookie_of::<A>(before, self.udp_port).expect("a dmcast") {
            Some(cookie) => self.cookies.contains(&(key, out, cookie)),
            None => self.turned.contains(&(entry, true)),
        };
        let is_due = [false, true].map(|form| self.turned.contains(&(entry, form)));
        assert!(proof && is_due.contains(&true), "nobody asked for that");
        assert_eq!((ip.payload.start, ip.protocol), (A::IP_HEADER_LEN, 17));
        assert!(!ip.is_fragment, "a fragment");
        assert!(ip.source.is_host());
        if checksum_holds::<A>(before) == Some(true) {
            assert_eq!(checksum_holds::<A>(inner), Some(true));
        }
    }

    /// A repair for one of the latest requests, its cookie the true one or nearly.
    fn answer(&self, script: &mut Script<'_>) -> Vec<u8> {
        let at = usize::from(script.u8()) % self.points.len().max(1);
        let Some(&(key, point)) = self.points.get(at) else {
            return dmcast::<A>(script);
        };
        let forged = [0, 0, 0, 1, 1 << 63, point.cookie];
        let point = TurningPoint {
            cookie: point.cookie ^ script.of(&forged),
            ..point
        };
        // A host of the replier's link, or of none of the links.
        let from = script.of(&[A::address(2, 9), A::address(99, 9)]);
        answer(script, key, point, from)
    }

    /// A source of a shared tree was seen.
    fn seen(&mut self, iface: Iface, key: Key<A>) {
        let (router, now) = (&mut self.router, self.now);
        self.meter.run(|| router.source_seen(now, iface, key));
    }

    fn entry(&self, key: Key<A>) -> Option<EntryId> {
        self.router.table().lookup(key)
    }

    fn hear(&mut self, iface: Iface, packet: &[u8]) {
        let meta = Meta {
            iface,
            link_source: None,
        };
        let (router, now) = (&mut self.router, self.now);
        let _ = self.meter.run(|| router.handle_packet(now, &meta, packet));
    }

    fn drain(&mut self) {
        let mut buffer = [0; 1500];
        let mut sent = 0;
        while let Some(transmit) = self.router.poll_transmit(self.now, &mut buffer) {
            assert!(transmit.len <= 1500);
            sent += 1;
            assert!(sent < 200, "more than there are peers and links");
        }
        while self.router.poll_event().is_some() {}
    }

    fn command(&mut self, script: &mut Script<'_>) {
        let key = key::<A>(script);
        let now = self.now;
        let router = &mut self.router;
        match script.pick(5) {
            0 => {
                let parent = iface(script);
                let down: Vec<Iface> = (0..script.pick(6)).map(|_| iface(script)).collect();
                let _ = self.meter.run(|| router.install(now, key, parent, &down));
            }
            1 => {
                self.meter.run(|| router.remove(now, key));
                self.turned.retain(|(turned, _)| *turned != key);
            }
            2 => {
                let neighbour = script.flag().then(|| Neighbour {
                    addr: A::host(2, script.u8()),
                    link: None,
                });
                let replier = script.flag().then(|| Replier {
                    iface: iface(script),
                    cost: script.u16(),
                    neighbour,
                });
                let _ = self.meter.run(|| router.set_replier(now, key, replier));
            }
            3 => {
                let iface = iface(script);
                if script.flag() {
                    self.meter.run(|| router.remove_interface(now, iface));
                } else {
                    self.interface(iface);
                }
            }
            _ => {
                let config = config(script);
                self.udp_port = config.udp_port.map(NonZeroU16::get);
                self.meter.run(|| router.set_config(now, config));
            }
        }
    }
}

pub fn run(bytes: &[u8]) {
    run_observed(bytes, None);
}

/// Runs a script before an observer.
pub fn run_observed(bytes: &[u8], observer: Option<&mut dyn Observer>) {
    let mut script = Script::new(bytes);
    if script.flag() {
        explore::<Ipv6Addr>(script, None);
    } else {
        explore::<Ipv4Addr>(script, observer);
    }
}

/// Runs a script with a router of one family. Returns the router's counters.
fn explore<A: Net>(mut script: Script<'_>, observer: Option<&mut dyn Observer>) -> Stats {
    let mut bench = Bench::<A>::new(&mut script, observer);
    while script.more() {
        let op = script.pick(9);
        let iface = iface(&mut script);
        match op {
            0 => bench.forward(iface, script.bytes()),
            1 => bench.forward(iface, &request::<A>(&mut script)),
            2 => {
                let packet = match script.pick(4) {
                    0 => dmcast::<A>(&mut script),
                    _ => bench.answer(&mut script),
                };
                bench.forward(iface, &packet);
            }
            3 => {
                let mut packet = if script.flag() {
                    request::<A>(&mut script)
                } else {
                    dmcast::<A>(&mut script)
                };
                script.damage(&mut packet);
                if script.flag() {
                    mend(&mut packet);
                }
                bench.forward(iface, &packet);
            }
            4 if script.flag() => {
                let key = key::<A>(&mut script);
                bench.seen(iface, key);
            }
            4 => bench.hear(iface, script.bytes()),
            5 => bench.hear(iface, &hier_message::<A>(&mut script)),
            6 => {
                let packet = report(&mut script, A::host(iface.0, 7));
                bench.hear(iface, &packet);
            }
            7 => {
                let us = script.pause_us();
                let Bench {
                    router, meter, now, ..
                } = &mut bench;
                let mut buffer = [0; 1500];
                pass(router, now, us, Router::poll_timeout, |router, now| {
                    meter.run(|| router.handle_timeout(now));
                    while router.poll_transmit(now, &mut buffer).is_some() {}
                });
            }
            _ => bench.command(&mut script),
        }
        bench.drain();
        bench.meter.check(0);
    }
    *bench.router.stats()
}

/// Packets with each golden option.
pub(crate) fn packets() -> Vec<Vec<u8>> {
    let mut goldens = crate::goldens::of("crates/lms-proto/tests/golden_option.rs");
    goldens.retain(|golden| golden.len() % 4 == 0 && golden.len() <= 40);
    let request =
        |golden: &Vec<u8>| ip_packet([10, 1, 3, 7], [232, 1, 2, 3], 17, 64, golden, &[1; 8]);
    let dmcast = |golden: &Vec<u8>| {
        let inner = ip_packet([10, 1, 0, 2], [232, 1, 2, 3], 17, 64, &[], &[2; 8]);
        ip_packet([10, 1, 2, 9], [192, 0, 2, 7], 4, 64, golden, &inner)
    };
    goldens
        .iter()
        .flat_map(|golden| [request(golden), dmcast(golden)])
        .collect()
}

/// The first bytes of a script: the family, and a policy that takes no parameters.
fn start(is_ipv6: bool, policy: u8, has_udp: bool) -> Lines {
    let mut lines = Lines::default();
    lines.u8(is_ipv6.into()).u8(policy).u8(has_udp.into());
    lines
}

/// A request from below that turns, and its repair: once with the true cookie, once with a forged one.
fn there_and_back(is_ipv6: bool, is_datagram: bool) -> Vec<u8> {
    let mut lines = Lines::default();
    // Search Party, which needs no replier: one copy, down; with the UDP carrier.
    lines.u8(is_ipv6.into()).u8(3).u8(1).u8(0).u8(1);
    // From interface 2 about the entry that there is, not turned, 64 hops, from a host of that link.
    lines.u8(1).u8(2).u8(0).u8(1).u8(0).u8(0).u8(2).u8(7);
    lines.u8(is_datagram.into());
    if !is_datagram {
        // In the own form, which IPv6 has in any case.
        lines.u8(1);
    }
    for forged in [0, 3] {
        // From interface 1: the latest turning point, its cookie, a host far away, 64 hops.
        lines.u8(2).u8(1).u8(1).u8(0).u8(forged).u8(1).u8(0);
        lines
            .u8(is_datagram.into())
            .bytes(&[0, 1, 0, 2, 0, 9, 0, 0, 7]);
        if !is_datagram && !is_ipv6 {
            // In the own form, the option outside.
            lines.u8(1).u8(0);
        }
    }
    lines.0
}

/// A router of IPv4 with a fixed replier: requests about the entry that there is and their repairs, true, forged and
/// damaged, as `random` bytes choose.
pub fn busy(mut random: impl FnMut() -> u8) -> Vec<u8> {
    let mut lines = start(false, 1, false);
    let replier = 2 + random() % 3;
    // Of group 0 and source 1: a replier on an interface, no neighbour, cost 1.
    lines
        .u8(8)
        .u8(0)
        .u8(0)
        .u8(1)
        .u8(2)
        .u8(0)
        .u8(1)
        .u8(replier)
        .u8(1)
        .u8(0);
    for _ in 0..40 {
        let (choice, iface, form) = (random() % 16, random() % 7, random());
        match choice {
            0..6 => {
                let turned = u8::from(random() % 4 == 0);
                lines.u8(1).u8(iface).u8(0).u8(1).u8(turned);
                if turned == 1 {
                    lines.u8(9).u8(random());
                }
                let hops = if random() % 4 == 0 { random() } else { 0 };
                lines.u8(hops).u8(2).u8(7).u8(0).u8(form);
            }
            6..12 => {
                // Mostly the true cookie.
                let forged = if random() % 4 == 0 { random() } else { 0 };
                lines
                    .u8(2)
                    .u8(iface)
                    .u8(1)
                    .u8(random())
                    .u8(forged)
                    .u8(random())
                    .u8(random() % 3);
                lines.u8(0).bytes(&[0, 1, 0, 2, 0, 9, 0, 0, 7]);
                lines.u8(form).u8(u8::from(random() % 8 == 0));
            }
            12 => {
                lines
                    .u8(3)
                    .u8(iface)
                    .u8(1)
                    .u8(0)
                    .u8(1)
                    .u8(0)
                    .u8(0)
                    .u8(2)
                    .u8(7)
                    .u8(0)
                    .u8(form);
                lines
                    .u8(random())
                    .u8(random())
                    .u8(0)
                    .u8(random())
                    .u8(random());
            }
            13 | 14 => {
                lines.u8(7).u8(0).u8(random() % 200);
            }
            _ => {
                lines
                    .u8(8)
                    .u8(0)
                    .u8(0)
                    .u8(1)
                    .u8(2)
                    .u8(0)
                    .u8(1)
                    .u8(random() % 7)
                    .u8(1)
                    .u8(0);
            }
        }
    }
    lines.0
}

/// Each golden as a packet to forward and as one to hear, in every policy.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (number, packet) in packets().iter().enumerate() {
        let mut lines = start(false, number as u8 % 4, number % 8 < 4);
        for iface in 1..4 {
            lines.u8(0).u8(iface).bytes(packet);
        }
        seeds.push(lines.0);
    }
    for golden in crate::goldens::link_local() {
        let mut packet = vec![0; UDP_AT];
        packet.extend_from_slice(&golden);
        let from = Ipv4Addr::address(2, 9);
        finish_udp(&mut packet, from, hier::GROUP, hier::PORT, golden.len());
        let mut lines = start(false, 0, false);
        lines.u8(4).u8(2).u8(0).bytes(&packet);
        lines.u8(4).u8(2).u8(0).bytes(&golden);
        seeds.push(lines.0);
    }
    for number in 1..9 {
        let mut state: u32 = number;
        seeds.push(busy(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        }));
    }
    for is_ipv6 in [false, true] {
        for is_datagram in [false, true] {
            seeds.push(there_and_back(is_ipv6, is_datagram));
        }
        // Steps of every kind, with parameters that mean something.
        for policy in 0..4 {
            for op in 1..9 {
                let mut lines = start(is_ipv6, policy, true);
                lines.u8(1);
                for parameter in 0..60 {
                    lines.u8(op).u8(parameter % 6).u8(parameter % 4).u8(1);
                }
                seeds.push(lines.0);
            }
        }
    }
    seeds
}

#[cfg(test)]
mod tests {
    use lms_proto::router::DropReason;

    use super::*;

    #[test]
    fn each_carrier_gets_there_and_back() {
        for is_datagram in [false, true] {
            for is_ipv6 in [false, true] {
                let bytes = there_and_back(is_ipv6, is_datagram);
                let mut script = Script::new(&bytes);
                assert_eq!(script.flag(), is_ipv6);
                let stats = match is_ipv6 {
                    true => explore::<Ipv6Addr>(script, None),
                    false => explore::<Ipv4Addr>(script, None),
                };
                let forged = stats.drops.get(DropReason::Cookie);
                let counts = (stats.requests_turned, stats.dmcasts, forged);
                assert_eq!(
                    counts,
                    (1, 1, 1),
                    "IPv6 {is_ipv6}, by datagram {is_datagram}"
                );
            }
        }
    }
}
