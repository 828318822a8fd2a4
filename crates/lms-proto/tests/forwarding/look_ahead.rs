//! Looking ahead changes no verdict, no packet, no state: random batches through two large routers, one of which looks
//! ahead, with changes of the table between looking and forwarding.

use std::net::{Ipv4Addr, Ipv6Addr};

use lms_proto::router::{Config, Policy, Router, Storage};
use lms_proto::table::Replier;
use lms_proto::{Form, Iface, Key};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::common::{DOWN, ELSEWHERE, NOW, REPLIER, UP, meta};
use crate::net::*;

/// More than a core's cache holds, so that the router does look ahead.
const GROUPS: u16 = 14_000;

/// A family with many groups.
trait Many: Net {
    fn group(number: u16) -> Self;
}

impl Many for Ipv4Addr {
    fn group(number: u16) -> Self {
        Ipv4Addr::from_bits(0xe802_0000 + u32::from(number))
    }
}

impl Many for Ipv6Addr {
    fn group(number: u16) -> Self {
        Ipv6Addr::new(0xff3e, 0, 0, 0, 0, 0, 0x8002, number)
    }
}

/// Every third group is a shared tree.
fn entry<A: Many>(number: u16) -> Key<A> {
    match number % 3 {
        0 => Key::any_source(A::group(number)),
        _ => packet_key(number),
    }
}

fn packet_key<A: Many>(number: u16) -> Key<A> {
    Key::new(A::host(Iface(0), 2), A::group(number))
}

fn large_router<A: Many>() -> Router<'static, A> {
    let config = Config {
        policy: Policy::Static,
        ..Config::default()
    };
    let storage = Storage::with_capacity(usize::from(GROUPS), 100);
    let mut router = Router::new(config, storage, [1; 32], NOW);
    for iface in (1..=5).map(Iface) {
        let interface = A::interface(iface, 1);
        router.set_interface(NOW, iface, interface).unwrap();
    }
    for number in 0..GROUPS {
        install(&mut router, number);
    }
    router
}

fn install<A: Many>(router: &mut Router<'_, A>, number: u16) {
    let downstream = [REPLIER, DOWN, Iface(60)];
    router.install(NOW, entry(number), UP, &downstream).unwrap();
    let replier = Replier {
        iface: REPLIER,
        cost: 3,
        neighbour: None,
    };
    router
        .set_replier(NOW, entry(number), Some(replier))
        .unwrap();
}

/// A packet that arrives: of a group, some of which are not in the table, or any bytes.
#[derive(Clone, Debug)]
enum Packet {
    Request { number: u16, turned: bool, by: u8 },
    Bytes(Vec<u8>),
}

impl Packet {
    fn bytes<A: Many>(&self) -> Vec<u8> {
        let (number, turned, by) = match self {
            Packet::Request { number, turned, by } => (*number, *turned, *by),
            Packet::Bytes(bytes) => return bytes.clone(),
        };
        let by = match by {
            0 if A::HAS_CLASSIC_FORM => By::Option(Form::Classic),
            0 | 1 => By::Option(Form::Own),
            _ => By::Datagram,
        };
        let point = turned.then(|| asked::<A>(by).1);
        Request::<A>::new(by, packet_key(number), point).packet(by)
    }
}

fn packet() -> impl Strategy<Value = (Iface, Packet)> {
    let iface = prop::sample::select(vec![UP, DOWN, REPLIER, ELSEWHERE, Iface(60), Iface(9_999)]);
    let request = (0..GROUPS + 500, any::<bool>(), 0..3u8);
    let request = request.prop_map(|(number, turned, by)| Packet::Request { number, turned, by });
    let bytes = prop::collection::vec(any::<u8>(), 0..120).prop_map(Packet::Bytes);
    (iface, prop_oneof![8 => request, 1 => bytes])
}

/// A batch, and groups that are removed and installed after the router has looked at it.
type Step = (Vec<(Iface, Packet)>, Vec<u16>);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (
        prop::collection::vec(packet(), 0..80),
        prop::collection::vec(0..GROUPS, 0..4),
    );
    prop::collection::vec(step, 1..6)
}

fn check<A: Many>() {
    let routers = std::cell::RefCell::new([large_router::<A>(), large_router::<A>()]);
    let mut runner = TestRunner::new(ProptestConfig::with_cases(64));
    let run = runner.run(&steps(), |steps| {
        let [plain, ahead] = &mut *routers.borrow_mut();
        for (batch, changed) in steps {
            let mut packets: Vec<_> = batch
                .iter()
                .map(|(iface, packet)| (*iface, packet.bytes::<A>()))
                .collect();
            let stats = *ahead.stats();
            ahead.look_ahead(packets.iter().map(|(iface, bytes)| (*iface, &bytes[..])));
            prop_assert_eq!(*ahead.stats(), stats);
            for number in changed {
                for router in [&mut *plain, &mut *ahead] {
                    if !router.remove(NOW, entry(number)) {
                        install(router, number);
                    }
                }
            }
            for (iface, bytes) in &mut packets {
                let mut copy = bytes.clone();
                let expected = plain.forward(NOW, &meta(*iface), &mut copy);
                let verdict = ahead.forward(NOW, &meta(*iface), bytes);
                prop_assert_eq!(verdict, expected);
                prop_assert_eq!(&*bytes, &copy);
            }
            prop_assert_eq!(plain.stats(), ahead.stats());
        }
        Ok(())
    });
    run.unwrap();
    let [plain, ahead] = routers.into_inner();
    assert!(plain.stats().requests_turned > 0 && plain.stats().requests_to_replier > 0);
    let entries = |router: &Router<'_, A>| -> Vec<String> {
        let entries = router.table().iter();
        entries.map(|entry| format!("{entry:?}")).collect()
    };
    assert_eq!(entries(&plain), entries(&ahead));
}

#[test]
fn looking_ahead_changes_nothing() {
    check::<Ipv4Addr>();
    check::<Ipv6Addr>();
}
