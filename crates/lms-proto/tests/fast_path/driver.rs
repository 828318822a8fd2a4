//! A driver of the fast path with its tables in maps, and the comparison with the machine.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use lms_proto::fast_path::{
    self, Action, Arrival, Changed, Clock, Port, Record, Refusal, Settings, Tables, Totals,
    Verdict, Whose, Word, Words,
};
use lms_proto::router::{DropReason, Router, Verdict as MachineVerdict};
use lms_proto::table::EntryId;
use lms_proto::{Iface, Instant, InterfaceConfig, Key, LinkAddr, Meta, NextHop};
use proto_core::{RateLimit, TokenBucket};

/// Length of a header with the option in the classic form, and in the own one.
pub(crate) const CLASSIC: usize = 36;
pub(crate) const OWN: usize = 48;

/// The sender of frames that no test looks at.
pub(crate) const SENDER: LinkAddr = LinkAddr([2, 0, 0, 0, 0, 77]);

/// Limits of all groups that are never reached.
pub(crate) const UNLIMITED: Totals = Totals {
    requests: RateLimit::new(1_000_000_000, u32::MAX),
    dmcasts: RateLimit::new(1_000_000_000, u32::MAX),
};

/// The tables of a driver.
pub(crate) struct Driver {
    pub(crate) settings: Option<Settings>,
    pub(crate) records: BTreeMap<Key, Record>,
    pub(crate) ports: BTreeMap<Iface, Port>,
    pub(crate) links: Vec<(Iface, InterfaceConfig)>,
    pub(crate) words: Vec<(Word, Cell<u64>)>,
    /// A word that others change all the time.
    pub(crate) busy: Option<Word>,
}

impl Driver {
    /// Everything that the machine publishes, with ports of MTU 1500 for all interfaces of the machine.
    pub(crate) fn of(router: &Router<'_>, resolved: Option<LinkAddr>) -> Driver {
        let mut driver = Driver {
            settings: Some(router.fast_path(UNLIMITED, 0)),
            records: BTreeMap::new(),
            ports: BTreeMap::new(),
            links: router.interfaces().collect(),
            words: Vec::new(),
            busy: None,
        };
        for (id, _) in router.table().iter() {
            if let Some((key, record)) = router.record(id, |_, _| resolved) {
                assert_eq!(record.slot as usize, id.index());
                driver.records.insert(key, record);
            }
            let words = router.words(id).expect("an entry");
            driver.add_words(id, words);
        }
        let mut iface = Iface(0);
        while let Some(bits) = router.wrong_numbers(iface) {
            driver.add(Word::WrongNumbers(iface), bits);
            let own = router.interface(iface);
            driver.ports.insert(
                iface,
                Port {
                    mtu: 1500,
                    address: own.map_or(Ipv4Addr::UNSPECIFIED, |own| own.address),
                    prefix_len: own.map_or(0, |own| own.prefix_len),
                    ..Port::NONE
                },
            );
            iface.0 += 1;
        }
        for total in [Word::AllRequests, Word::AllDmcasts] {
            driver.add(total, TokenBucket::FULL.to_bits());
        }
        driver
    }

    fn add(&mut self, word: Word, bits: u64) {
        self.words.push((word, Cell::new(bits)));
    }

    fn add_words(&mut self, id: EntryId, words: Words) {
        let slot = id.index() as u32;
        self.add(Word::Requests(slot), words.requests);
        self.add(Word::Dmcasts(slot), words.dmcasts);
        self.add(Word::Credit(slot), words.credit);
    }

    fn word(&self, word: Word) -> Option<&Cell<u64>> {
        let found = self.words.iter().find(|(known, _)| *known == word);
        found.map(|(_, cell)| cell)
    }

    #[track_caller]
    pub(crate) fn get(&self, word: Word) -> u64 {
        self.word(word).expect("a word").get()
    }

    #[track_caller]
    pub(crate) fn set(&self, word: Word, bits: u64) {
        self.word(word).expect("a word").set(bits);
    }

    fn snapshot(&self) -> Vec<u64> {
        self.words.iter().map(|(_, cell)| cell.get()).collect()
    }
}

impl Tables for Driver {
    fn settings(&self) -> Option<&Settings> {
        self.settings.as_ref()
    }

    fn record(&self, key: &Key<Ipv4Addr>) -> Option<&Record> {
        self.records.get(key)
    }

    fn port(&self, iface: Iface) -> Option<&Port> {
        self.ports.get(&iface)
    }

    fn whose(&self, address: Ipv4Addr) -> Whose {
        let mut longest = (0, Whose::Elsewhere);
        for &(iface, config) in &self.links {
            if config.address == address {
                return Whose::Unclear;
            }
            let len = config.prefix_len;
            if (1..32).contains(&len) && len >= longest.0 && config.on_link(address) {
                let whose = match longest.0 == len {
                    true => Whose::Unclear,
                    false => Whose::OnLink(iface),
                };
                longest = (len, whose);
            }
        }
        longest.1
    }

    fn read(&self, word: Word) -> u64 {
        self.word(word).map_or(0, Cell::get)
    }

    fn change(&self, word: Word, change: impl Fn(u64) -> Option<u64>) -> Changed {
        let Some(cell) = self.word(word).filter(|_| self.busy != Some(word)) else {
            return Changed::Busy;
        };
        match change(cell.get()) {
            Some(bits) => cell.set(bits),
            None => return Changed::Refused,
        }
        Changed::Yes
    }
}

pub(crate) fn clock(now: Instant) -> impl Fn(&Settings) -> Clock {
    let now_ns = now.total_micros() as u64 * 1_000;
    move |settings| Clock {
        now_ns: now_ns - settings.start_ns,
    }
}

/// A request whose header is taken to have `LEN` bytes.
pub(crate) fn request<const LEN: usize>(
    driver: &Driver,
    now: Instant,
    arrival: Arrival,
    packet: &mut [u8],
) -> Verdict {
    let packet_len = packet.len();
    let to_port = packet.get(LEN + 2..LEN + 4);
    let to_port = to_port.map_or(0, |port| u16::from_be_bytes([port[0], port[1]]));
    let Some(header) = packet.first_chunk_mut::<LEN>() else {
        return Verdict::PASS;
    };
    fast_path::request(driver, clock(now), arrival, header, (to_port, packet_len))
}

/// A dmcast whose outer header is taken to have `LEN` bytes.
pub(crate) fn dmcast<const LEN: usize>(
    tables: &impl Tables,
    now: Instant,
    arrival: Arrival,
    packet: &mut [u8],
) -> Verdict {
    let packet_len = packet.len();
    let Some((outer, rest)) = packet.split_first_chunk_mut::<LEN>() else {
        return Verdict::PASS;
    };
    let Some(inner) = rest.first_chunk_mut() else {
        return Verdict::PASS;
    };
    fast_path::dmcast(tables, clock(now), arrival, outer, inner, packet_len)
}

/// Gives the fast path a packet as the program in the kernel does.
pub(crate) fn run(driver: &Driver, now: Instant, arrival: Arrival, packet: &mut [u8]) -> Verdict {
    let Some(start) = packet.first_chunk::<20>() else {
        return Verdict::PASS;
    };
    match (start[0], start[16] >> 4 == 0xe) {
        (0x49, true) => request::<CLASSIC>(driver, now, arrival, packet),
        (0x4c, true) => request::<OWN>(driver, now, arrival, packet),
        (0x49, false) => dmcast::<CLASSIC>(driver, now, arrival, packet),
        (0x4c, false) => dmcast::<OWN>(driver, now, arrival, packet),
        _ => Verdict::PASS,
    }
}

pub(crate) fn arrival(iface: Iface) -> Arrival {
    Arrival {
        iface,
        link_source: SENDER,
    }
}

/// The destination of the frame that the machine's next hop means.
fn link_of(next_hop: NextHop<Ipv4Addr>, packet: &[u8], resolved: Option<LinkAddr>) -> LinkAddr {
    match next_hop {
        NextHop::Neighbour { link, .. } => link.or(resolved).expect("published"),
        NextHop::Group => {
            let [.., b, c, d] = *packet[16..20].first_chunk::<4>().expect("an address");
            LinkAddr([1, 0, 0x5e, b & 0x7f, c, d])
        }
        NextHop::Routed => panic!("a request by an option is not routed"),
    }
}

/// Both decide the packet, with equal words before it. Returns what the fast path says.
#[track_caller]
pub(crate) fn compare(
    router: &mut Router<'_>,
    driver: &Driver,
    now: Instant,
    from: Arrival,
    packet: &[u8],
    resolved: Option<LinkAddr>,
) -> Verdict {
    compare_bytes(router, driver, now, from, packet, resolved).0
}

/// [`compare`], with the bytes after the machine.
#[track_caller]
pub(crate) fn compare_bytes(
    router: &mut Router<'_>,
    driver: &Driver,
    now: Instant,
    from: Arrival,
    packet: &[u8],
    resolved: Option<LinkAddr>,
) -> (Verdict, Vec<u8>) {
    let (mut ours, before) = (packet.to_vec(), driver.snapshot());
    let verdict = run(driver, now, from, &mut ours);
    let mut theirs = packet.to_vec();
    let meta = Meta {
        iface: from.iface,
        link_source: Some(from.link_source),
    };
    let machine = router.forward(now, &meta, &mut theirs);
    if verdict.action == Action::Pass {
        assert_eq!(verdict, Verdict::PASS);
        assert_eq!(ours, packet, "a packet for the machine was edited");
        assert_eq!(driver.snapshot(), before, "a word was changed");
        return (verdict, theirs);
    }
    let is_sent = verdict.refusal == Refusal::None;
    let what = (verdict, &machine);
    match &machine {
        MachineVerdict::Drop(reason) => {
            assert_eq!(verdict.action, Action::Drop, "{what:?}");
            assert_eq!(verdict.refusal.reason(), Some(*reason), "{what:?}");
        }
        MachineVerdict::Forward {
            output,
            packet: range,
            second: None,
        } => {
            let is_request = matches!(
                verdict.action,
                Action::ToParent | Action::Turn | Action::ToReplier
            );
            assert!(is_request, "{what:?}");
            assert_eq!((verdict.strip, range.start), (0, 0));
            if is_sent {
                let link = link_of(output.next_hop, &theirs, resolved);
                assert_eq!((verdict.iface, verdict.link), (output.iface, link));
                assert_eq!(usize::from(verdict.len), range.end);
                assert_eq!(ours, theirs);
            }
        }
        MachineVerdict::Multicast {
            iface,
            packet: range,
        } => {
            assert_eq!(verdict.action, Action::Dmcast, "{what:?}");
            if is_sent {
                let start = usize::from(verdict.strip);
                let sent = start..start + usize::from(verdict.len);
                assert_eq!((verdict.iface, &sent), (*iface, range));
                assert_eq!(verdict.link, link_of(NextHop::Group, &ours[start..], None));
                assert_eq!(ours[sent], theirs[range.clone()]);
                assert_eq!(ours[range.end..], packet[range.end..], "the padding");
            }
        }
        _ => panic!("{what:?}"),
    }
    if !is_sent {
        assert_eq!(ours, packet, "a dropped packet was edited");
    }
    same_words(router, driver);
    (verdict, theirs)
}

#[track_caller]
fn same_words(router: &Router<'_>, driver: &Driver) {
    let words = |slot| {
        router
            .words(EntryId::from_index(slot))
            .expect("an entry's words")
    };
    for (word, cell) in &driver.words {
        let expected = match *word {
            Word::Requests(slot) => words(slot).requests,
            Word::Dmcasts(slot) => words(slot).dmcasts,
            Word::Credit(slot) => words(slot).credit,
            Word::WrongNumbers(iface) => router.wrong_numbers(iface).expect("an interface"),
            Word::AllRequests | Word::AllDmcasts => continue,
        };
        assert_eq!(cell.get(), expected, "{word:?}");
    }
}

/// [`compare`] where the fast path must decide: it drops for this reason of the machine.
#[track_caller]
pub(crate) fn expect_drop(
    router: &mut Router<'_>,
    now: Instant,
    from: Arrival,
    packet: &[u8],
    reason: DropReason,
) {
    let driver = Driver::of(router, None);
    let verdict = compare(router, &driver, now, from, packet, None);
    assert_eq!(verdict.action, Action::Drop, "{verdict:?}");
    assert_eq!(verdict.refusal.reason(), Some(reason));
}

/// [`compare`] where the fast path must decide and send.
#[track_caller]
pub(crate) fn expect_sent(
    router: &mut Router<'_>,
    now: Instant,
    from: Arrival,
    packet: &[u8],
    action: Action,
    iface: Iface,
) {
    let driver = Driver::of(router, None);
    let verdict = compare(router, &driver, now, from, packet, None);
    assert_eq!(
        (verdict.action, verdict.refusal, verdict.iface),
        (action, Refusal::None, iface)
    );
}

/// [`compare`] where the machine must decide.
#[track_caller]
pub(crate) fn expect_pass(router: &mut Router<'_>, now: Instant, from: Arrival, packet: &[u8]) {
    let driver = Driver::of(router, None);
    let verdict = compare(router, &driver, now, from, packet, None);
    assert_eq!(verdict, Verdict::PASS);
}
