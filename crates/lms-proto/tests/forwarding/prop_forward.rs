//! Random commands and packets against an oracle that is too simple to be wrong: a map, a set,
//! and the table of the rule written out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use lms_proto::router::{Config, DropReason, Policy, Rate, Router, SeenSource, Storage, Verdict};
use lms_proto::table::{Neighbour, Replier};
use lms_proto::wire::encap::{DmcastRepr, Placement};
use lms_proto::{Form, Iface, InterfaceConfig, Key, NextHop};
use proptest::prelude::*;

use crate::common::*;

const IFACES: u16 = 120;

#[derive(Clone, Debug)]
enum Op {
    Install(Key, u16, BTreeSet<u16>),
    Remove(Key),
    RemoveInterface(u16),
    SetReplier(Key, Option<u16>),
    Request {
        key: Key,
        from: u16,
        turned: bool,
        ttl: u8,
    },
    Dmcast {
        key: Key,
        from: u16,
        to: u16,
        router: u16,
    },
    Seen(Key, u16),
}

/// Parent, downstream interfaces, replier.
type Entry = (Option<u16>, BTreeSet<u16>, Option<u16>);

#[derive(Clone, Default)]
struct Model {
    entries: BTreeMap<Key, Entry>,
    addresses: BTreeSet<u16>,
    /// Entries that have turned a request: more repairs may come than a test sends.
    asked: BTreeSet<Key>,
    /// Sources seen sending into shared trees.
    seen: BTreeSet<Key>,
    /// Wrong numbers by the interface they arrived on; 64 are looked at.
    wrong: BTreeMap<u16, u32>,
}

#[derive(PartialEq, Debug)]
enum Expected {
    Drop(DropReason),
    Pass,
    Up(u16),
    Turned(u16),
    Down(u16),
    Multicast(u16),
}

impl Model {
    fn lookup(&self, key: Key) -> Option<(Key, &Entry)> {
        [key, Key::any_source(key.group)]
            .into_iter()
            .find_map(|key| Some((key, self.entries.get(&key)?)))
    }

    fn request(&mut self, key: Key, from: u16, turned: bool, ttl: u8) -> Expected {
        use DropReason as R;
        let Some((entry, (parent, downstream, replier))) = self.lookup(key) else {
            return Expected::Drop(R::NoEntry);
        };
        let below = downstream.contains(&from);
        let above = *parent == Some(from);
        let verdict = match (below, above, turned, replier) {
            (true, _, true, _) => Expected::Drop(R::TurnedFromBelow),
            (true, _, false, Some(r)) if *r != from => Expected::Turned(*r),
            (true, _, false, _) => match parent {
                Some(parent) => Expected::Up(*parent),
                None => Expected::Drop(R::NoParent),
            },
            (false, true, true, Some(r)) => Expected::Down(*r),
            (false, true, true, None) => Expected::Drop(R::NoReplier),
            (false, true, false, _) => Expected::Drop(R::UnturnedFromParent),
            (false, false, ..) => Expected::Drop(R::NotInEntry),
        };
        match verdict {
            Expected::Drop(_) => verdict,
            Expected::Turned(r)
                if !self.addresses.contains(&r) && !self.addresses.contains(&from) =>
            {
                Expected::Drop(R::NoAddress)
            }
            _ if ttl <= 1 => Expected::Drop(R::TtlExpired),
            Expected::Turned(_) => {
                self.asked.insert(entry);
                verdict
            }
            _ => verdict,
        }
    }

    fn dmcast(&mut self, key: Key, from: u16, to: u16, router: u16) -> Expected {
        use DropReason as R;
        if !self.addresses.contains(&router) {
            return Expected::Pass;
        }
        let Some((entry, (parent, downstream, _))) = self.lookup(key) else {
            return Expected::Drop(R::NoEntry);
        };
        if !downstream.contains(&from) && *parent != Some(from) {
            return Expected::Drop(R::NotOnTree);
        }
        if entry.is_any_source() && !self.seen.contains(&key) {
            return Expected::Drop(R::SourceNotSeen);
        }
        if !self.asked.contains(&entry) {
            return Expected::Drop(R::NoCredit);
        }
        let is_right = downstream.contains(&to);
        let wrong = self.wrong.entry(from).or_default();
        if *wrong >= 64 {
            return Expected::Drop(R::WrongNumberRate);
        }
        if !is_right {
            *wrong += 1;
            return Expected::Drop(R::NotDownstream);
        }
        Expected::Multicast(to)
    }
}

fn iface_address(iface: u16) -> std::net::Ipv4Addr {
    std::net::Ipv4Addr::new(172, 20, iface as u8, 1)
}

fn key() -> impl Strategy<Value = Key> {
    (0u8..3, 0u8..3).prop_map(|(s, g)| {
        let group = [232, 1, 1, g].into();
        match s {
            0 => Key::any_source(group),
            s => Key::new([10, 0, 0, s].into(), group),
        }
    })
}

/// A key as packets carry it: with a source.
fn packet_key() -> impl Strategy<Value = Key> {
    (1u8..4, 0u8..4).prop_map(|(s, g)| Key::new([10, 0, 0, s].into(), [232, 1, 1, g].into()))
}

/// Few interfaces, some of them in other words of the bitmap.
fn iface() -> impl Strategy<Value = u16> {
    prop_oneof![0u16..6, 46u16..50, 95u16..98, Just(IFACES - 1)]
}

fn op() -> impl Strategy<Value = Op> {
    let set = proptest::collection::btree_set(iface(), 0..8);
    prop_oneof![
        2 => (key(), iface(), set).prop_map(|(k, p, mut s)| { s.remove(&p); Op::Install(k, p, s) }),
        1 => key().prop_map(Op::Remove),
        1 => iface().prop_map(Op::RemoveInterface),
        2 => (key(), proptest::option::of(iface())).prop_map(|(k, r)| Op::SetReplier(k, r)),
        8 => (packet_key(), iface(), any::<bool>(), prop_oneof![9 => Just(64u8), 1 => 0u8..3])
            .prop_map(|(key, from, turned, ttl)| Op::Request { key, from, turned, ttl }),
        6 => (packet_key(), iface(), iface(), iface())
            .prop_map(|(key, from, to, router)| Op::Dmcast { key, from, to, router }),
        2 => (packet_key(), iface()).prop_map(|(key, from)| Op::Seen(key, from)),
    ]
}

fn fixed(iface: u16) -> Replier {
    Replier {
        iface: Iface(iface),
        cost: 1,
        neighbour: Some(Neighbour {
            addr: REPLIER_HOST,
            link: None,
        }),
    }
}

fn new_router() -> Router<'static> {
    let endless = Rate {
        per_second: 1_000_000_000,
        burst: u32::MAX,
    };
    let config = Config {
        policy: Policy::Static,
        request_rate: endless,
        dmcast_rate: endless,
        ..Config::default()
    };
    let storage = Storage {
        // So many that no two sources share a place.
        sources: vec![SeenSource::default(); 4_096].into(),
        ..Storage::with_capacity(16, usize::from(IFACES))
    };
    let mut router = Router::new(config, storage, [3; 32], NOW);
    for iface in 0..IFACES {
        let config = InterfaceConfig::ipv4(iface_address(iface), 24);
        router.set_interface(NOW, Iface(iface), config).unwrap();
    }
    router
}

fn command(router: &mut Router<'_>, model: &mut Model, op: &Op) {
    match op {
        Op::Install(key, parent, set) => {
            let downstream: Vec<Iface> = set.iter().copied().map(Iface).collect();
            router
                .install(NOW, *key, Iface(*parent), &downstream)
                .unwrap();
            let replier = model.entries.get(key).and_then(|entry| entry.2);
            let replier = replier.filter(|iface| set.contains(iface));
            model
                .entries
                .insert(*key, (Some(*parent), set.clone(), replier));
        }
        Op::Remove(key) => {
            assert_eq!(
                router.remove(NOW, *key),
                model.entries.remove(key).is_some()
            );
            model.asked.remove(key);
        }
        Op::RemoveInterface(iface) => {
            router.remove_interface(NOW, Iface(*iface));
            model.addresses.remove(iface);
            for (parent, set, replier) in model.entries.values_mut() {
                *parent = parent.filter(|parent| parent != iface);
                set.remove(iface);
                *replier = replier.filter(|replier| replier != iface);
            }
        }
        Op::SetReplier(key, replier) => {
            let entry = model.entries.get_mut(key);
            let entry = entry.filter(|entry| replier.is_none_or(|r| entry.1.contains(&r)));
            let done = router.set_replier(NOW, *key, replier.map(fixed));
            assert_eq!(done.is_ok(), entry.is_some());
            if let Some(entry) = entry {
                entry.2 = *replier;
            }
        }
        Op::Seen(key, from) => {
            let shared = model.entries.get(&Key::any_source(key.group));
            let is_newer = shared.is_some_and(|(parent, ..)| *parent == Some(*from));
            assert_eq!(router.source_seen(NOW, Iface(*from), *key), is_newer);
            if is_newer {
                model.seen.insert(*key);
            }
        }
        Op::Request { .. } | Op::Dmcast { .. } => {}
    }
}

/// The number of an interface in turning points of this source and group, which depends on nothing
/// else here.
fn number_of(key: Key, iface: u16) -> Iface {
    static KNOWN: Mutex<BTreeMap<(Key, u16), Iface>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap();
    *known.entry((key, iface)).or_insert_with(|| {
        let mut router = new_router();
        let other = if iface == 0 { 1 } else { 0 };
        let downstream = [Iface(iface), Iface(other)];
        router.install(NOW, key, Iface(2000), &downstream).unwrap();
        router.set_replier(NOW, key, Some(fixed(other))).unwrap();
        asked(&mut router, NOW, key, Iface(iface))
    })
}

fn check_request(router: &mut Router<'_>, expected: &Expected, key: Key, from: u16, before: &[u8]) {
    let mut bytes = before.to_vec();
    let verdict = router.forward(NOW, &meta(Iface(from)), &mut bytes);
    let (output, turned) = match (&verdict, expected) {
        (Verdict::Drop(reason), Expected::Drop(wanted)) => {
            assert_eq!((reason, &bytes[..]), (wanted, before));
            return;
        }
        (
            Verdict::Forward {
                output,
                second: None,
                ..
            },
            Expected::Up(to),
        ) => {
            assert_eq!(
                (output.iface, output.next_hop),
                (Iface(*to), NextHop::Group)
            );
            (output, None)
        }
        (
            Verdict::Forward {
                output,
                second: None,
                ..
            },
            Expected::Down(to) | Expected::Turned(to),
        ) => {
            assert_eq!(output.iface, Iface(*to));
            let turned = matches!(expected, Expected::Turned(_)).then_some(*to);
            (output, turned)
        }
        _ => panic!("{verdict:?} instead of {expected:?}"),
    };
    let _ = output;
    let sent = edit(before.to_vec(), 0, |p| {
        p[8] -= 1;
        if let Some(towards) = turned {
            p[22..24].copy_from_slice(&number_of(key, from).0.to_be_bytes());
            // The address on the replier's side, or where there is none on the other.
            let address = if bytes[24..28] == iface_address(towards).octets() {
                towards
            } else {
                from
            };
            p[24..28].copy_from_slice(&iface_address(address).octets());
        }
    });
    assert_eq!(bytes, sent);
}

fn check_dmcast(router: &mut Router<'_>, expected: &Expected, from: u16, before: &[u8], key: Key) {
    let mut bytes = before.to_vec();
    match (
        router.forward(NOW, &meta(Iface(from)), &mut bytes),
        expected,
    ) {
        (Verdict::Drop(reason), Expected::Drop(wanted)) => assert_eq!(reason, *wanted),
        (Verdict::Pass, Expected::Pass) => {}
        (Verdict::Multicast { iface, packet }, Expected::Multicast(to)) => {
            assert_eq!(iface, Iface(*to));
            assert_eq!(bytes[packet], edit(inner(key), 0, |p| p[8] -= 1));
            return;
        }
        (verdict, _) => panic!("{verdict:?} instead of {expected:?}"),
    }
    assert_eq!(bytes, before);
}

proptest! {
    #[test]
    fn agrees_with_the_model(ops in proptest::collection::vec(op(), 1..120)) {
        let mut router = new_router();
        let mut model = Model { addresses: (0..IFACES).collect(), ..Model::default() };
        for op in &ops {
            command(&mut router, &mut model, op);
            match *op {
                Op::Request { key, from, turned, ttl } => {
                    let expected = model.request(key, from, turned, ttl);
                    let tp = turned.then(|| turning_point([192, 0, 2, 1].into(), Iface(7)));
                    let packet = edit(request(key, tp, Form::Classic), 0, |p| p[8] = ttl);
                    check_request(&mut router, &expected, key, from, &packet);
                }
                Op::Dmcast { key, from, to, router: address } => {
                    let expected = model.dmcast(key, from, to, address);
                    let placement =
                        if to % 2 == 0 { Placement::Outer } else { Placement::Inner };
                    let repr = DmcastRepr {
                        router: iface_address(address),
                        ..dmcast_repr(number_of(key, to), Form::Classic, placement)
                    };
                    let packet = compose(&repr, &inner(key));
                    check_dmcast(&mut router, &expected, from, &packet, key);
                }
                _ => {}
            }
            prop_assert_eq!(router.table().len(), model.entries.len());
        }
        // The table has the installed entries.
        for (id, entry) in router.table().iter() {
            let (parent, set, replier) = &model.entries[&entry.key()];
            prop_assert_eq!(entry.parent(), parent.map_or(Iface::UNSET, Iface));
            prop_assert_eq!(entry.replier().map(|r| r.iface), replier.map(Iface));
            let downstream: BTreeSet<u16> = router.table().downstream(id).map(|i| i.0).collect();
            prop_assert_eq!(&downstream, set);
        }
    }

    /// Any bytes from anywhere: a verdict, never a panic; dropped and passed bytes untouched.
    #[test]
    fn any_bytes_get_a_verdict(
        start in proptest::option::of(0usize..3),
        bytes in proptest::collection::vec(any::<u8>(), 0..120),
        from in 0u16..7,
    ) {
        let mut router = router_with_replier();
        let mut packet = match start {
            Some(0) => request(KEY, None, Form::Classic),
            Some(1) => dmcast(KEY, Placement::Outer),
            Some(2) => dmcast(KEY, Placement::Inner),
            _ => Vec::new(),
        };
        // A good packet with a garbled tail, or garbage.
        let keep = packet.len().saturating_sub(bytes.len());
        packet.truncate(keep);
        packet.extend(&bytes);
        let mut after = packet.clone();
        match router.forward(NOW, &meta(Iface(from)), &mut after) {
            Verdict::Drop(_) | Verdict::Pass => prop_assert_eq!(after, packet),
            Verdict::Forward { packet, .. } | Verdict::Multicast { packet, .. } => {
                prop_assert!(packet.end <= after.len());
            }
        }
    }
}
