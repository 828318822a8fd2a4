//! A router in fixed memory: two requests and a repair, without a heap, a clock or a socket.
//!
//! ```sh
//! cargo run -p lms-proto --example forward
//! ```

use core::net::Ipv4Addr;

use lms_proto::router::{Config, Router, Verdict};
use lms_proto::table::{Neighbour, Replier};
use lms_proto::wire::encap::{DmcastRepr, Placement};
use lms_proto::wire::ipv4;
use lms_proto::{Form, Iface, Instant, InterfaceConfig, Key, Kind, LmsOption, Meta};

const SOURCE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const GROUP: Ipv4Addr = Ipv4Addr::new(232, 1, 1, 1);
const H1: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 2);
const H2: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);

lms_proto::router_storage! {
    /// The tables of a small router.
    struct Tables {
        groups: 16,
        interfaces: 4,
        sources: 0,
        offers: 32,
        neighbours: 16,
        branches: 32,
    }
}

fn main() {
    let mut tables = Tables::default();
    let now = Instant::from_millis(0);
    let mut router = Router::new(Config::default(), tables.lend(), [42; 32], now);

    // The testbed of LMS §6.5.3: the source above, H1 (the replier) and H2 on links below.
    let (source, h1, h2) = (Iface(0), Iface(1), Iface(2));
    for iface in [source, h1, h2] {
        let address = Ipv4Addr::new(10, 0, iface.0 as u8, 1);
        let config = InterfaceConfig::ipv4(address, 24);
        router
            .set_interface(now, iface, config)
            .expect("room for four");
    }
    let key = Key::new(SOURCE, GROUP);
    router
        .install(now, key, source, &[h1, h2])
        .expect("room for sixteen");
    let neighbour = Neighbour {
        addr: H1,
        link: None,
    };
    let replier = Replier {
        iface: h1,
        cost: 1,
        neighbour: Some(neighbour),
    };
    router
        .set_replier(now, key, Some(replier))
        .expect("h1 is downstream");

    println!("scenario 1: H2 has lost a packet, its request turns to the replier");
    let mut packet = request(H2);
    forward(&mut router, now, h2, &mut packet);
    let (_, option) = LmsOption::parse::<Ipv4Addr>(&packet[20..]).expect("just forwarded");
    let turned = option.turning_point.expect("just turned");
    println!(
        "  turning point: {} interface {}",
        turned.router, turned.iface
    );

    println!("scenario 2: H1 has lost it too, its request goes up to the source");
    forward(&mut router, now, h1, &mut request(H1));

    println!("scenario 3: H1 repairs by a dmcast to the turning point");
    let repair = ipv4_packet(SOURCE, GROUP, &[], b"the lost data");
    let dmcast = DmcastRepr {
        replier: H1,
        router: match turned.router {
            core::net::IpAddr::V4(router) => router,
            core::net::IpAddr::V6(_) => unreachable!("the IPv4 option carries IPv4 addresses"),
        },
        iface: turned.iface,
        cookie: turned.cookie,
        form: Form::Classic,
        placement: Placement::Outer,
        ttl: 64,
        identification: 1,
    };
    let mut packet = vec![0; dmcast.buffer_len(repair.len())];
    dmcast
        .emit(&repair, &mut packet)
        .expect("the buffer is long enough");
    forward(&mut router, now, h1, &mut packet);

    println!("forged: the same again, from a link that is not of the tree");
    let mut packet = vec![0; dmcast.buffer_len(repair.len())];
    dmcast
        .emit(&repair, &mut packet)
        .expect("the buffer is long enough");
    forward(&mut router, now, Iface(3), &mut packet);
}

/// What a driver does with a packet; here it prints instead of sending.
fn forward(router: &mut Router<'_>, now: Instant, iface: Iface, packet: &mut [u8]) {
    let meta = Meta {
        iface,
        link_source: None,
    };
    match router.forward(now, &meta, packet) {
        Verdict::Pass => println!("  not ours: leave it to the kernel"),
        Verdict::Drop(reason) => println!("  dropped: {}", reason.name()),
        Verdict::Forward {
            output,
            packet: bytes,
            second: _,
        } => {
            println!(
                "  {} bytes to interface {}, {:?}",
                bytes.len(),
                output.iface,
                output.next_hop
            );
        }
        Verdict::Multicast {
            iface,
            packet: bytes,
        } => {
            println!(
                "  {} bytes multicast on interface {iface} alone",
                bytes.len()
            );
        }
    }
}

fn request(from: Ipv4Addr) -> Vec<u8> {
    let option = LmsOption {
        kind: Kind::Request,
        turning_point: None,
        source: SOURCE.into(),
        group: GROUP.into(),
    };
    let mut bytes = [0; 16];
    option.emit(Form::Classic, &mut bytes).expect("16 bytes");
    ipv4_packet(from, GROUP, &bytes, b"lo, hi, request number")
}

fn ipv4_packet(source: Ipv4Addr, to: Ipv4Addr, option: &[u8], payload: &[u8]) -> Vec<u8> {
    let header_len = ipv4::HEADER_LEN + option.len();
    let mut packet = vec![0; header_len];
    packet[0] = 4 << 4 | (header_len / 4) as u8;
    packet[2..4].copy_from_slice(&((header_len + payload.len()) as u16).to_be_bytes());
    packet[8..10].copy_from_slice(&[64, 17]);
    packet[12..16].copy_from_slice(&source.octets());
    packet[16..20].copy_from_slice(&to.octets());
    packet[20..].copy_from_slice(option);
    ipv4::fill_checksum(&mut packet);
    packet.extend_from_slice(payload);
    packet
}
