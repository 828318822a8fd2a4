//! How long the program takes for a request that turns, for its repair, and for a packet that it leaves, without a network:
//! `sudo cargo run --release -p lms-xdp --example cost`. Nanoseconds, the median of 2,000 runs.

use std::net::Ipv4Addr;

use lms_proto::router::{Config, Policy, Storage};
use lms_proto::table::Replier;
use lms_proto::wire::encap::{DmcastRepr, Placement};
use lms_proto::wire::ipv4;
use lms_proto::{Form, Iface, Instant, InterfaceConfig, Key, Kind, LmsOption, Router};
use lms_xdp::{Action, FastPath, Limits, Port, Totals};
use netlab::host::Host;
use proto_core::RateLimit;

const SOURCE: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 2);
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
const KEY: Key = Key::new(SOURCE, GROUP);
const REPLIER: Iface = Iface(1);
const DOWN: Iface = Iface(2);

fn address(iface: Iface) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, iface.0 as u8 + 1, 1)
}

fn link(iface: Iface) -> [u8; 6] {
    [2, 0, 0, 0, 0, iface.0 as u8]
}

/// A router with one group and three interfaces, of which the parent is not published.
fn router() -> Router<'static> {
    let config = Config {
        policy: Policy::Static,
        ..Config::default()
    };
    let now = Instant::ZERO;
    let mut router = Router::new(config, Storage::with_capacity(1, 8), [7; 32], now);
    for iface in [Iface(0), REPLIER, DOWN] {
        let config = InterfaceConfig::ipv4(address(iface), 24);
        router
            .set_interface(now, iface, config)
            .expect("an interface");
    }
    router
        .install(now, KEY, Iface(0), &[REPLIER, DOWN])
        .expect("an entry");
    let replier = Replier {
        iface: REPLIER,
        cost: 1,
        neighbour: None,
    };
    router
        .set_replier(now, KEY, Some(replier))
        .expect("a replier");
    router
}

fn frame(to: [u8; 6], packet: &[u8]) -> Vec<u8> {
    let mut frame = to.to_vec();
    frame.extend([2, 0, 0, 0, 9, 9, 8, 0]);
    frame.extend(packet);
    frame
}

fn packet(source: Ipv4Addr, options: &[u8], payload: usize) -> Vec<u8> {
    let header_len = 20 + options.len();
    let mut packet = vec![0; header_len + payload];
    packet[0] = 0x40 | (header_len / 4) as u8;
    let len = packet.len() as u16;
    packet[2..4].copy_from_slice(&len.to_be_bytes());
    packet[8..10].copy_from_slice(&[16, 17]);
    packet[12..16].copy_from_slice(&source.octets());
    packet[16..20].copy_from_slice(&GROUP.octets());
    packet[20..header_len].copy_from_slice(options);
    ipv4::fill_checksum(&mut packet[..header_len]);
    packet
}

/// The median of single runs.
fn median(program: &mut FastPath, index: u32, frame: &[u8], expected: Action) -> u64 {
    let mut times: Vec<u64> = (0..2_000)
        .map(|_| {
            let run = program.test_run(index, frame, 1).expect("a run");
            assert_eq!(run.action, expected);
            run.nanoseconds
        })
        .collect();
    times.sort_unstable();
    times[times.len() / 2]
}

fn measure() {
    let limits = Limits {
        groups: 1,
        interfaces: 8,
    };
    let mut program = FastPath::load(limits).expect("the program loads");
    let mut router = router();
    let limit = RateLimit::new(1_000_000_000, u32::MAX);
    let totals = Totals {
        requests: limit,
        dmcasts: limit,
    };
    let config = Config {
        policy: Policy::Static,
        request_rate: lms_proto::router::Rate {
            per_second: 1_000_000_000,
            burst: u32::MAX,
        },
        dmcast_rate: lms_proto::router::Rate {
            per_second: 1_000_000_000,
            burst: u32::MAX,
        },
        ..Config::default()
    };
    router.set_config(Instant::ZERO, config);
    let start = FastPath::start_ns(std::time::Instant::now());
    program
        .set_settings(router.fast_path(totals, start))
        .expect("settings");
    let indexes = ["a", "b"].map(linux_index);
    for (iface, index) in [(REPLIER, indexes[0]), (DOWN, indexes[1])] {
        let port = Port {
            mtu: 1500,
            address: address(iface),
            prefix_len: 24,
            link: link(iface),
            ..Port::NONE
        };
        program.set_port(iface, index, port).expect("a port");
    }
    program.set_links(router.interfaces()).expect("links");
    program.publish(&mut router, |_, _| None);
    for form in [Form::Classic, Form::Own] {
        let option = LmsOption {
            kind: Kind::Request,
            turning_point: None,
            source: SOURCE.into(),
            group: GROUP.into(),
        };
        let mut bytes = vec![0; option.buffer_len(form)];
        option.emit(form, &mut bytes).expect("an option");
        let group = [1, 0, 0x5e, 1, 2, 3];
        let request = frame(group, &packet(Ipv4Addr::new(10, 0, 3, 2), &bytes, 20));
        let turned = program.test_run(indexes[1], &request, 1).expect("a run");
        let (_, option) = LmsOption::parse::<Ipv4Addr>(&turned.frame[34..]).expect("an option");
        let point = option.turning_point.expect("turned");
        let repr = DmcastRepr {
            replier: Ipv4Addr::new(10, 0, 2, 2),
            router: address(REPLIER),
            iface: point.iface,
            cookie: point.cookie,
            form,
            placement: Placement::Outer,
            ttl: 64,
            identification: 1,
        };
        let inner = packet(SOURCE, &[], 1032);
        let mut dmcast = vec![0; repr.buffer_len(inner.len())];
        repr.emit(&inner, &mut dmcast).expect("a dmcast");
        let dmcast = frame(link(REPLIER), &dmcast);
        let request_ns = median(&mut program, indexes[1], &request, Action::Redirect);
        let dmcast_ns = median(&mut program, indexes[0], &dmcast, Action::Redirect);
        println!("{form:?}: request {request_ns} ns, dmcast {dmcast_ns} ns");
    }
    let data = frame([1, 0, 0x5e, 1, 2, 3], &packet(SOURCE, &[], 1032));
    let data_ns = median(&mut program, indexes[1], &data, Action::Pass);
    println!("data, which it leaves: {data_ns} ns");
}

fn linux_index(name: &str) -> u32 {
    nix::net::if_::if_nametoindex(name).expect("an interface")
}

fn main() {
    let host = Host::new();
    host.edit(|editor| editor.add_veth("a", "b", None).expect("a veth pair"));
    host.run(measure);
}
