//! The XDP program beside the router: every packet of the corpus of `lms_router`, and of 10,000 scripts made at random, goes
//! through both. Where the program decides, its verdict, the bytes that it sends and what it leaves of
//! buckets and credit are the router's; where it does not, it changes nothing.
//!
//! The program reads the kernel's clock, some 100 us after the router's time. A packet for which that would make a
//! difference is not compared.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::atomic::Ordering;

use linux_net::link;
use lms_proto::fast_path::{Port, Refusal, Totals, Words};
use lms_proto::router::Verdict;
use lms_proto::table::EntryId;
use lms_proto::{Duration, Iface, Instant, Meta, NextHop, Router};
use lms_xdp::{Action, FastPath, Limits};
use nix::time::{ClockId, clock_gettime};
use polycast_fuzz::machine::router::{Observer, busy, run_observed};
use proto_core::{RateLimit, TokenBucket};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// Interface numbers of the scripts.
const IFACES: u16 = 8;
/// Scripts made at random.
const SCRIPTS: usize = 10_000;
/// How late the program may read the clock.
const LATE: Duration = Duration::from_millis(20);
/// Sender of the scripts' frames.
const SENDER: [u8; 6] = [2, 0, 0, 0, 0, 9];

/// What the program made of a packet.
struct Run {
    action: Action,
    frame: Vec<u8>,
    refusal: Option<Refusal>,
    entry: Option<(EntryId, Words)>,
    is_near: bool,
}

struct Beside {
    program: FastPath,
    /// The kernel's numbers of the interfaces.
    indexes: Vec<u32>,
    run: Option<Run>,
    drops: Vec<(Refusal, u64)>,
    /// Packets by what the program did.
    counts: BTreeMap<String, u64>,
}

fn link_of(iface: Iface) -> [u8; 6] {
    [2, 1, 0, 0, 0, iface.0 as u8]
}

fn words_of(router: &Router<'static>, entry: Option<EntryId>) -> Option<(EntryId, Words)> {
    let id = entry?;
    Some((id, router.words(id)?))
}

impl Beside {
    fn new(indexes: Vec<u32>) -> Beside {
        let limits = Limits {
            groups: 4,
            interfaces: IFACES,
        };
        Beside {
            program: FastPath::load(limits).expect("the program loads"),
            indexes,
            run: None,
            drops: Vec::new(),
            counts: BTreeMap::new(),
        }
    }

    /// Publishes everything anew: each script has a router of its own.
    fn publish(&mut self, router: &mut Router<'static>, now: Instant) {
        let links: Vec<_> = router.interfaces().collect();
        for iface in (0..IFACES).map(Iface) {
            let config = links.iter().find(|(number, _)| *number == iface);
            let port = Port {
                mtu: 65_535,
                address: config.map_or(Ipv4Addr::UNSPECIFIED, |(_, config)| config.address),
                prefix_len: config.map_or(0, |(_, config)| config.prefix_len),
                link: link_of(iface),
                ..Port::NONE
            };
            let index = self.indexes[usize::from(iface.0)];
            self.program.set_port(iface, index, port).expect("a port");
            let shared = self.program.shared();
            shared.set_wrong_numbers(iface, router.wrong_numbers(iface).expect("a number"));
        }
        self.program.set_links(links).expect("links");
        self.program.publish_all(router, |_, _| None);
        for slot in 0..4 {
            if let Some(words) = router.words(EntryId::from_index(slot)) {
                self.program.shared().set_words(slot, words);
            }
        }
        let shared = self.program.shared();
        for total in [shared.all_requests(), shared.all_dmcasts()] {
            // The time of each script begins anew.
            total.store(TokenBucket::FULL.to_bits(), Ordering::Relaxed);
        }
        let unlimited = RateLimit::new(u32::MAX, u32::MAX);
        let totals = Totals {
            requests: unlimited,
            dmcasts: unlimited,
        };
        let clock = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("a clock");
        let clock_ns = clock.tv_sec() as u64 * 1_000_000_000 + clock.tv_nsec() as u64;
        let start_ns = clock_ns.wrapping_sub(now.total_micros() as u64 * 1_000);
        let settings = router.fast_path(totals, start_ns);
        self.program.set_settings(settings).expect("settings");
    }

    fn count(&mut self, what: impl Into<String>) {
        *self.counts.entry(what.into()).or_default() += 1;
    }

    /// The refusal that was counted since the last call.
    fn refusal(&mut self) -> Option<Refusal> {
        let (_, drops) = self.program.counters().expect("counters");
        let before = std::mem::replace(&mut self.drops, drops);
        let count = |all: &[(Refusal, u64)], at: usize| all.get(at).map_or(0, |(_, count)| *count);
        (0..self.drops.len())
            .find(|&at| count(&self.drops, at) > count(&before, at))
            .map(|at| self.drops[at].0)
    }
}

/// Whether a limit, the credit or a period changes between the router's time and the program's.
fn is_near(router: &Router<'static>, words: Option<(EntryId, Words)>, now: Instant) -> bool {
    let later = now + LATE;
    let steps = |us: i64| now.total_micros() / us != later.total_micros() / us;
    let limit = RateLimit::new(10, 50);
    let differs = |bits: u64, limit: &RateLimit| {
        let bucket = TokenBucket::from_bits(bits);
        bucket.has_token(now, limit) != bucket.has_token(later, limit)
    };
    let wrong = RateLimit::new(10, 64);
    let mut wrong_numbers = (0..IFACES).filter_map(|iface| router.wrong_numbers(Iface(iface)));
    steps(250_000)
        || steps(60_000_000)
        || words.is_some_and(|(_, words)| {
            differs(words.requests, &limit) || differs(words.dmcasts, &limit)
        })
        || wrong_numbers.any(|bits| differs(bits, &wrong))
}

impl Observer for Beside {
    fn before(&mut self, router: &mut Router<'static>, now: Instant, meta: &Meta, packet: &[u8]) {
        self.run = None;
        let Some(&index) = self.indexes.get(usize::from(meta.iface.0)) else {
            return;
        };
        let mut frame = [0; 14].to_vec();
        frame[..6].copy_from_slice(&[1, 0, 0x5e, 0, 0, 1]);
        frame[6..12].copy_from_slice(&SENDER);
        frame[12] = 8;
        frame.extend_from_slice(packet);
        let entry = router.entry_of(packet);
        let before = words_of(router, entry);
        let start = std::time::Instant::now();
        self.publish(router, now);
        // The kernel takes no frame longer than its page.
        let Ok(run) = self.program.test_run(index, &frame, 1) else {
            return self.count("longer than a page");
        };
        // Other programs may have held us up.
        let is_late = start.elapsed() >= std::time::Duration::from(LATE);
        let is_near = is_late || is_near(router, before, now);
        let refusal = self.refusal();
        let after =
            entry.and_then(|id| Some((id, self.program.shared().words(id.index() as u32)?)));
        if run.action == Action::Pass {
            assert_eq!(run.frame, frame, "passed on as it came");
            if before.is_some() {
                assert_eq!(after, before, "a packet for the router changes nothing");
            }
        }
        self.run = Some(Run {
            action: run.action,
            frame: run.frame,
            refusal,
            entry: after,
            is_near,
        });
    }

    fn after(&mut self, router: &Router<'static>, verdict: &Verdict, bytes: &[u8]) {
        let Some(run) = self.run.take() else { return };
        if run.is_near {
            return self.count("too late, or too near to a limit");
        }
        match (run.action, verdict) {
            (Action::Pass, Verdict::Pass) => self.count("not LMS"),
            (Action::Pass, _) => self.count("the router's"),
            (Action::Drop, Verdict::Drop(reason)) => {
                let refusal = run.refusal.expect("a drop is counted");
                assert_eq!(refusal.reason(), Some(*reason));
                self.count(format!("drop: {}", reason.name()));
            }
            (
                Action::Redirect,
                Verdict::Forward {
                    output,
                    packet,
                    second: None,
                },
            ) => {
                let link = match output.next_hop {
                    NextHop::Neighbour { link, .. } => link.expect("published").0,
                    _ => group_link(&bytes[packet.clone()]),
                };
                same(&run.frame, link, output.iface, &bytes[packet.clone()]);
                self.count("request");
            }
            (Action::Redirect, Verdict::Multicast { iface, packet }) => {
                let packet = &bytes[packet.clone()];
                same(&run.frame, group_link(packet), *iface, packet);
                self.count("dmcast");
            }
            (action, verdict) => {
                let refusal = run.refusal;
                panic!("the program: {action:?} {refusal:?}, the router: {verdict:?}");
            }
        }
        if run.action != Action::Pass
            && let Some((id, words)) = run.entry
            && let Some(expected) = router.words(id)
        {
            assert_eq!(words.credit, expected.credit, "the credit");
            for (word, expected) in [
                (words.requests, expected.requests),
                (words.dmcasts, expected.dmcasts),
            ] {
                let later = word.cast_signed().saturating_sub(expected.cast_signed());
                let late_ns = LATE.total_micros() as i64 * 1_000;
                assert!((0..late_ns).contains(&later), "a bucket: {later} ns later");
            }
        }
    }
}

fn group_link(packet: &[u8]) -> [u8; 6] {
    [1, 0, 0x5e, packet[17] & 0x7f, packet[18], packet[19]]
}

#[track_caller]
fn same(frame: &[u8], to: [u8; 6], iface: Iface, packet: &[u8]) {
    assert_eq!(frame[..6], to, "where the frame goes");
    assert_eq!(frame[6..12], link_of(iface), "from where");
    assert_eq!(frame[12..14], [8, 0]);
    assert_eq!(&frame[14..], packet);
}

#[test]
fn verdicts_and_bytes_are_the_router_s() {
    if !netlab::permitted("verdicts_and_bytes_are_the_router_s") {
        return;
    }
    let host = netlab::host::Host::new();
    host.run(|| {
        if let Err(error) = FastPath::load(Limits {
            groups: 1,
            interfaces: 1,
        }) {
            return netlab::lacks("xdp", error);
        }
        let mut indexes = Vec::new();
        host_interfaces(&mut indexes);
        let mut beside = Beside::new(indexes);
        let corpus = corpus();
        for bytes in &corpus {
            run_observed(bytes, Some(&mut beside));
        }
        println!("corpus of {} scripts: {:?}", corpus.len(), beside.counts);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(21);
        for _ in 0..SCRIPTS {
            let bytes = busy(|| rng.next_u32() as u8);
            run_observed(&bytes, Some(&mut beside));
        }
        println!("with scripts at random: {:?}", beside.counts);
        for what in [
            "request",
            "dmcast",
            "drop: not_in_entry",
            "drop: no_credit",
            "drop: cookie",
        ] {
            assert!(beside.counts.contains_key(what), "none of: {what}");
        }
    });
}

/// Makes an interface for each number.
fn host_interfaces(indexes: &mut Vec<u32>) {
    let mut editor = link::Editor::open().expect("an editor");
    for pair in 0..IFACES / 2 {
        let (a, b) = (format!("a{pair}"), format!("b{pair}"));
        editor.add_veth(&a, &b, None).expect("a veth pair");
        for name in [a, b] {
            indexes.push(link::find(&name).expect("an interface").index);
        }
    }
}

/// Seeds, inputs that once failed, and inputs that cover most.
fn corpus() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for folder in ["seeds", "covering", "regressions"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join(folder)
            .join("lms_router");
        let Ok(files) = std::fs::read_dir(folder) else {
            continue;
        };
        let mut paths: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
        paths.sort();
        all.extend(
            paths
                .iter()
                .map(|path| std::fs::read(path).expect("a file")),
        );
    }
    all
}
