//! Random routers, words and packets, of any damage, at any time.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use lms_proto::fast_path::{Arrival, Port, Refusal, Totals, Word, Words};
use lms_proto::router::{Config, Policy, Rate, Router, Storage};
use lms_proto::table::{Neighbour, Replier};
use lms_proto::wire::encap::{DmcastRepr, Placement};
use lms_proto::wire::ipv4;
use lms_proto::{
    Duration, Form, Iface, Instant, InterfaceConfig, Key, LinkAddr, LmsOption, TurningPoint,
};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use proto_core::{RateLimit, TokenBucket};

use crate::common::{SOURCE, compose, edit, option_bytes, packet, request_option, turning_point};
use crate::driver::{Driver, SENDER, compare_bytes};

/// The interfaces of the routers: most have numbers that the fast path knows.
const IFACES: [u16; 8] = [0, 1, 2, 3, 46, 47, 48, 90];
const REPLIER_LINK: LinkAddr = LinkAddr([2, 0, 0, 0, 0, 9]);

/// Address and prefix length.
type Subnet = Option<(Ipv4Addr, u8)>;

#[derive(Clone, Debug)]
struct Entry {
    key: Key,
    parent: Option<Iface>,
    downstream: Vec<bool>,
    /// Which of the downstream interfaces, and the neighbour's link.
    replier: Option<(Index, Option<LinkAddr>)>,
    words: Words,
}

#[derive(Clone, Debug)]
struct World {
    policy: Policy,
    subnets: Vec<Subnet>,
    entries: Vec<Entry>,
    mtus: Vec<u32>,
    wrong_numbers: Vec<u64>,
    totals: (u32, u32),
    start: Instant,
}

#[derive(Clone, Debug)]
enum What {
    Request {
        turned: bool,
        to_port: u16,
    },
    /// For one of the turning points that were written before, or one that nobody wrote.
    Dmcast {
        point: Option<Index>,
        placement: Placement,
        from: Ipv4Addr,
        payload_len: usize,
    },
}

#[derive(Clone, Debug)]
enum Damage {
    /// A byte of a header, its checksum mended or not.
    Byte(Index, u8, bool),
    /// A byte of the inner header.
    Inner(usize, u8, bool),
    Truncated(Index),
    Padded(usize),
}

#[derive(Clone, Debug)]
struct Step {
    pause: Duration,
    what: What,
    key: Key,
    form: Form,
    arrival: Iface,
    link_source: LinkAddr,
    ttl: u8,
    damage: Option<Damage>,
}

/// Addresses of few subnets, which overlap.
fn address() -> impl Strategy<Value = Ipv4Addr> {
    let hosts = select(vec![0_u8, 1, 2, 3, 127, 128, 254, 255]);
    (1..3_u8, 0..2_u8, hosts).prop_map(|(a, b, c)| Ipv4Addr::new(10, a, b, c))
}

/// Where an outer source may be: mostly far away, else on a link.
fn outer_source() -> impl Strategy<Value = Ipv4Addr> {
    prop_oneof![
        6 => Just(Ipv4Addr::new(192, 0, 2, 9)),
        3 => address(),
        1 => any::<u32>().prop_map(Ipv4Addr::from_bits),
    ]
}

fn subnet() -> impl Strategy<Value = Subnet> {
    let prefix_len = select(vec![0, 8, 16, 23, 24, 24, 25, 30, 31, 32]);
    proptest::option::weighted(0.9, (address(), prefix_len))
}

fn key() -> impl Strategy<Value = Key> {
    (0..8_u8).prop_map(|n| match n {
        7 => Key::any_source([232, 1, 1, 2].into()),
        n => Key::new(SOURCE, [232, 0x81, 1, n % 2].into()),
    })
}

/// Words of buckets and credit: new ones, any, and those that lie near the time at the start.
fn words(start: Instant) -> impl Strategy<Value = Words> {
    let start_ns = start.total_micros() * 1_000;
    let start_tick = (start.total_micros() / 250_000) as u32;
    let bucket = move || {
        prop_oneof![
            3 => Just(Words::NEW.requests),
            3 => (-3_000..3_000_i64)
                .prop_map(move |ms| start_ns.saturating_add(ms * 1_000_000).cast_unsigned()),
            1 => any::<u64>(),
        ]
    };
    let credit = prop_oneof![
        2 => Just(0),
        4 => (0..60_u32, 0..3_u64, 0..60_u64).prop_map(move |(left, repairs, lead)| {
            let until = start_tick.wrapping_add(left).wrapping_sub(4);
            u64::from(until) << 32 | repairs << 16 | lead
        }),
        1 => (any::<u32>(), 1..9_u64).prop_map(|(until, repairs)| u64::from(until) << 32 | repairs << 16),
        1 => any::<u64>(),
    ];
    (bucket(), bucket(), credit).prop_map(|(requests, dmcasts, credit)| Words {
        requests,
        dmcasts,
        credit,
    })
}

/// Which interfaces are downstream: seldom one that the fast path does not know.
fn downstream() -> impl Strategy<Value = Vec<bool>> {
    let chances = IFACES.map(|iface| proptest::bool::weighted(if iface < 48 { 0.7 } else { 0.05 }));
    chances.to_vec()
}

/// An interface: seldom one that the fast path does not know.
fn any_iface() -> impl Strategy<Value = Iface> {
    prop_oneof![9 => 0..6_usize, 1 => 6..8_usize].prop_map(|at| Iface(IFACES[at]))
}

fn entry(start: Instant) -> impl Strategy<Value = Entry> {
    let link = proptest::option::weighted(0.7, Just(REPLIER_LINK));
    (
        key(),
        proptest::option::weighted(0.9, any_iface()),
        downstream(),
        proptest::option::weighted(0.9, (any::<Index>(), link)),
        words(start),
    )
        .prop_map(|(key, parent, downstream, replier, words)| Entry {
            key,
            parent,
            downstream,
            replier,
            words,
        })
}

/// Times on both sides of a tick, a period, and the end of the ticks' cycle.
fn start() -> impl Strategy<Value = Instant> {
    let tick = Duration::from_millis(250).total_micros() as i64;
    let anchors = vec![
        0,
        tick,
        Duration::from_secs(100).total_micros() as i64,
        Duration::from_secs(3_600).total_micros() as i64,
        tick << 32,
    ];
    (select(anchors), select(vec![-1, 0, 1, 100, 249_999]))
        .prop_map(|(anchor, us)| Instant::from_micros((anchor + us).max(0)))
}

fn world() -> impl Strategy<Value = World> {
    let policy = select(vec![Policy::Static, Policy::Hierarchy]);
    let ports = proptest::collection::vec(
        select(vec![0, 40, 60, 1500, 1500, 1500, 1500, 1500]),
        IFACES.len(),
    );
    start().prop_flat_map(move |start| {
        let start_ns = start.total_micros() * 1_000;
        let wrong = prop_oneof![
            2 => Just(Words::NEW.requests),
            1 => (0..8_000_i64).prop_map(move |ms| (start_ns + ms * 1_000_000).cast_unsigned()),
            1 => any::<u64>(),
        ];
        (
            policy.clone(),
            proptest::collection::vec(subnet(), IFACES.len()),
            proptest::collection::vec(entry(start), 2..7),
            ports.clone(),
            proptest::collection::vec(wrong, IFACES.len()),
            (select(vec![1, 1, 1_000]), select(vec![1, 1, 1_000])),
        )
            .prop_map(
                move |(policy, subnets, entries, mtus, wrong_numbers, totals)| World {
                    policy,
                    subnets,
                    entries,
                    mtus,
                    wrong_numbers,
                    totals,
                    start,
                },
            )
    })
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        4 => (any::<Index>(), any::<u8>(), any::<bool>())
            .prop_map(|(at, value, mend)| Damage::Byte(at, value, mend)),
        2 => (0..20_usize, any::<u8>(), any::<bool>())
            .prop_map(|(at, value, mend)| Damage::Inner(at, value, mend)),
        1 => any::<Index>().prop_map(Damage::Truncated),
        2 => (1..40_usize).prop_map(Damage::Padded),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let pause = prop_oneof![
        12 => Just(Duration::ZERO),
        6 => (0..300_000_u64).prop_map(Duration::from_micros),
        1 => select(vec![1, 30, 59, 60, 61, 119, 120, 130]).prop_map(Duration::from_secs),
        1 => select(vec![3_600, 1 << 28]).prop_map(Duration::from_secs),
    ];
    let what = prop_oneof![
        1 => (proptest::bool::weighted(0.3), select(vec![5_000, lms_proto::wire::udp::PORT]))
            .prop_map(|(turned, to_port)| What::Request { turned, to_port }),
        1 => (
            proptest::option::weighted(0.9, any::<Index>()),
            prop_oneof![7 => Just(Placement::Outer), 1 => Just(Placement::Inner)],
            outer_source(),
            select(vec![7_usize, 8, 30, 30, 60]),
        )
            .prop_map(|(point, placement, from, payload_len)| What::Dmcast {
                point,
                placement,
                from,
                payload_len,
            }),
    ];
    (
        pause,
        what,
        key(),
        select(vec![Form::Classic, Form::Own]),
        any_iface(),
        select(vec![SENDER, REPLIER_LINK]),
        select(vec![0_u8, 1, 2, 64, 64, 64, 64]),
        proptest::option::weighted(0.2, damage()),
    )
        .prop_map(
            |(pause, what, key, form, arrival, link_source, ttl, damage)| Step {
                pause,
                what,
                key,
                form,
                arrival,
                link_source,
                ttl,
                damage,
            },
        )
}

fn build(world: &World) -> Router<'static> {
    let rate = Rate {
        per_second: 10,
        burst: 5,
    };
    let config = Config {
        policy: world.policy,
        request_rate: rate,
        dmcast_rate: rate,
        repairs_per_request: 3,
        ..Config::default()
    };
    let storage = Storage::with_capacity(8, 96);
    let mut router = Router::new(config, storage, [5; 32], world.start);
    for (number, subnet) in IFACES.into_iter().zip(&world.subnets) {
        if let Some((address, prefix_len)) = *subnet {
            let config = InterfaceConfig::ipv4(address, prefix_len);
            router
                .set_interface(world.start, Iface(number), config)
                .unwrap();
        }
    }
    for entry in &world.entries {
        install(&mut router, world.start, entry);
    }
    for (number, bits) in IFACES.into_iter().zip(&world.wrong_numbers) {
        router.set_wrong_numbers(Iface(number), *bits);
    }
    router
}

fn install(router: &mut Router<'static>, now: Instant, entry: &Entry) {
    let parent = entry.parent.unwrap_or(Iface::UNSET);
    let downstream: Vec<Iface> = IFACES
        .into_iter()
        .map(Iface)
        .zip(&entry.downstream)
        .filter_map(|(iface, is_in)| (*is_in && iface != parent).then_some(iface))
        .collect();
    let id = router.install(now, entry.key, parent, &downstream).unwrap();
    if let (Some((index, link)), false) = (&entry.replier, downstream.is_empty()) {
        let replier = Replier {
            iface: *index.get(&downstream),
            cost: 1,
            neighbour: link.map(|link| Neighbour {
                addr: [10, 9, 9, 9].into(),
                link: Some(link),
            }),
        };
        router.set_replier(now, entry.key, Some(replier)).unwrap();
    }
    router.set_words(id, entry.words);
}

/// A turning point that a router wrote, for a source and group.
type Written = (Key, Form, TurningPoint);

fn bytes_of(step: &Step, router: &Router<'_>, written: &[Written]) -> Vec<u8> {
    // Packets name a source.
    let key = Key::new(SOURCE, step.key.group);
    let arrival = step.arrival;
    match &step.what {
        What::Request { turned, to_port } => {
            let point = turned.then(|| turning_point([192, 0, 2, 1].into(), Iface(7)));
            let option = option_bytes(&request_option(key, point), step.form);
            let mut payload = [0xab; 20];
            payload[2..4].copy_from_slice(&to_port.to_be_bytes());
            let packet = packet([10, 2, 1, 3].into(), key.group, 17, &option, &payload);
            edit(packet, 0, |p| p[8] = step.ttl)
        }
        What::Dmcast {
            point,
            placement,
            from,
            payload_len,
        } => {
            let nowhere = (key, step.form, turning_point(SOURCE, Iface(0x1234)));
            let (key, form, point) = match point {
                Some(index) if !written.is_empty() => *index.get(written),
                _ => nowhere,
            };
            let own = router.interface(arrival);
            let repr = DmcastRepr {
                replier: [10, 2, 1, 3].into(),
                router: own.map_or([10, 1, 1, 1].into(), |own| own.address),
                iface: point.iface,
                cookie: if form == Form::Own { point.cookie } else { 0 },
                form,
                placement: *placement,
                ttl: 64,
                identification: 7,
            };
            let inner = packet(key.source, key.group, 17, &[], &vec![0xcd; *payload_len]);
            let inner = edit(inner, 0, |p| p[8] = step.ttl);
            let packet = compose(&repr, &inner);
            edit(packet, 0, |p| p[12..16].copy_from_slice(&from.octets()))
        }
    }
}

fn damaged(mut packet: Vec<u8>, damage: &Damage) -> Vec<u8> {
    let header_len = usize::from(packet[0] & 0xf) * 4;
    match damage {
        Damage::Byte(at, value, mend) => {
            packet[at.index(header_len)] = *value;
            if *mend {
                ipv4::fill_checksum(&mut packet[..header_len]);
            }
        }
        Damage::Inner(at, value, mend) => {
            let Some(inner) = packet.get_mut(header_len..header_len + 20) else {
                return packet;
            };
            inner[*at] = *value;
            if *mend {
                ipv4::fill_checksum(inner);
            }
        }
        Damage::Truncated(len) => packet.truncate(len.index(packet.len())),
        Damage::Padded(len) => packet.extend(std::iter::repeat_n(0x5a, *len)),
    }
    packet
}

fn totals(world: &World) -> Totals {
    let (requests, dmcasts) = world.totals;
    Totals {
        requests: RateLimit::new(requests, requests),
        dmcasts: RateLimit::new(dmcasts, dmcasts),
    }
}

fn driver(world: &World, router: &Router<'_>) -> Driver {
    let mut driver = Driver::of(router, None);
    driver.settings = Some(router.fast_path(totals(world), 0));
    for (number, mtu) in IFACES.into_iter().zip(&world.mtus) {
        let port = driver.ports.entry(Iface(number)).or_insert(Port::NONE);
        port.mtu = *mtu;
    }
    driver
}

/// Gives both the packets of all steps, one after the other, and counts what the fast path says.
fn run(world: &World, steps: &[Step], counts: &RefCell<BTreeMap<String, u32>>) {
    let mut router = build(world);
    let (mut now, mut written) = (world.start, Vec::new());
    let totals = [Word::AllRequests, Word::AllDmcasts];
    let mut totals_left = [TokenBucket::FULL.to_bits(); 2];
    for step in steps {
        now += step.pause;
        let mut packet = bytes_of(step, &router, &written);
        if let Some(damage) = &step.damage {
            packet = damaged(packet, damage);
        }
        let from = Arrival {
            iface: step.arrival,
            link_source: step.link_source,
        };
        let driver = driver(world, &router);
        for (total, bits) in totals.into_iter().zip(totals_left) {
            driver.set(total, bits);
        }
        let (verdict, sent) = compare_bytes(&mut router, &driver, now, from, &packet, None);
        totals_left = totals.map(|total| driver.get(total));
        let count = format!("{:?} {:?}", verdict.action, verdict.refusal);
        *counts.borrow_mut().entry(count).or_default() += 1;
        if let What::Request { turned: false, .. } = step.what
            && let Some(options) = sent.get(20..)
            && let Ok((form, option)) = LmsOption::parse::<Ipv4Addr>(options)
            && let Some(point) = option.turning_point
        {
            written.push((Key::new(SOURCE, step.key.group), form, point));
        }
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    proptest::collection::vec(step(), 1..60)
}

proptest! {
    #[test]
    fn agrees_with_the_machine(world in world(), steps in steps()) {
        run(&world, &steps, &RefCell::default());
    }
}

/// The random packets reach every verdict, so that the comparison means something.
#[test]
fn every_verdict_comes_up() {
    let counts = RefCell::default();
    let config = ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(800)
    };
    let mut runner =
        TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let result = runner.run(&(world(), steps()), |(world, steps)| {
        run(&world, &steps, &counts);
        Ok(())
    });
    result.unwrap();
    let counts = counts.into_inner();
    println!("{counts:#?}");
    let mut expected = vec!["Pass None".to_string()];
    for refusal in Refusal::ALL {
        if refusal.reason().is_some() {
            expected.push(format!("Drop {refusal:?}"));
        }
    }
    for action in ["ToParent", "Turn", "ToReplier", "Dmcast"] {
        let total = match action {
            "Dmcast" => "AllDmcasts",
            _ => "AllRequests",
        };
        for refusal in ["None", "TooLong", total] {
            expected.push(format!("{action} {refusal}"));
        }
    }
    for what in &expected {
        assert!(counts.contains_key(what), "never: {what}");
    }
    assert_eq!(counts.len(), expected.len());
}
