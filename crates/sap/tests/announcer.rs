//! When announcements leave, and what others can make a listener believe and store.

use std::net::{IpAddr, SocketAddr};

use netsim::conformance::{self, Script};
use proto_core::time::{Duration, Instant};
use sap::{
    Announcer, BURST, Config, Description, Full, MAX_PACKET_LEN, Media, Origin, Packet, Refused,
};

const OWN: &str = "10.0.0.1:40000";

fn own() -> SocketAddr {
    OWN.parse().unwrap()
}

fn start() -> Instant {
    Instant::from_secs(1)
}

fn announcer(config: Config) -> Announcer {
    Announcer::new(config, [7; 32], start())
}

fn description(name: &str) -> Description {
    let group = "239.255.0.1:5004".parse().unwrap();
    Description::new(name, vec![Media::new("video", group, "udp", "mpeg")])
}

/// Everything that leaves at that time.
fn sent(machine: &mut Announcer, now: Instant) -> Vec<Vec<u8>> {
    let mut buffer = [0; MAX_PACKET_LEN];
    let mut packets = Vec::new();
    machine.handle_timeout(now);
    while let Some(len) = machine.poll_transmit(now, &mut buffer) {
        packets.push(buffer[..len].to_vec());
    }
    packets
}

/// An announcement or a deletion of another host.
fn foreign(id: u32, version: u64, name: &str, deletion: bool) -> Vec<u8> {
    let origin = Origin {
        session: format!("- {id}"),
        address: "10.0.0.2".into(),
        version,
    };
    let text = description(name).emit(&origin);
    Packet {
        deletion,
        hash: id as u16,
        source: IpAddr::from([10, 0, 0, 2]),
        payload: text.as_bytes(),
    }
    .emit()
}

fn names(machine: &Announcer) -> Vec<String> {
    machine.learned().map(|(_, one)| one.name.clone()).collect()
}

#[test]
fn an_announcement_leaves_at_once_and_again_about_every_five_minutes() {
    let mut machine = announcer(Config::new(own()));
    machine.announce(start(), 1, &description("news")).unwrap();
    assert_eq!(machine.poll_timeout(), Some(start()));
    let first = sent(&mut machine, start());
    assert_eq!(first.len(), 1);
    let mut before = start();
    let mut intervals = Vec::new();
    for _ in 0..50 {
        let now = machine.poll_timeout().unwrap();
        assert_eq!(sent(&mut machine, now), first, "the same again");
        intervals.push((now - before).total_micros() / 1_000_000);
        before = now;
    }
    assert!(
        intervals
            .iter()
            .all(|interval| (200..400).contains(interval)),
        "{intervals:?}"
    );
    assert!(
        intervals.iter().any(|interval| *interval != intervals[0]),
        "not in step"
    );
}

#[test]
fn a_change_is_another_version_and_an_end_is_told() {
    let mut machine = announcer(Config::new(own()));
    machine.announce(start(), 1, &description("news")).unwrap();
    let first = sent(&mut machine, start()).remove(0);
    machine.announce(start(), 1, &description("news")).unwrap();
    assert!(
        sent(&mut machine, start()).is_empty(),
        "nothing has changed"
    );
    machine
        .announce(start(), 1, &description("weather"))
        .unwrap();
    let second = sent(&mut machine, start()).remove(0);
    let (first, second) = (
        Packet::parse(&first).unwrap(),
        Packet::parse(&second).unwrap(),
    );
    assert_ne!(first.hash, second.hash);
    let (old, _) = Description::parse(first.payload).unwrap();
    let (new, _) = Description::parse(second.payload).unwrap();
    assert_eq!((&new.session, new.version), (&old.session, old.version + 1));
    machine.withdraw(start(), 1);
    let gone = sent(&mut machine, start()).remove(0);
    let gone = Packet::parse(&gone).unwrap();
    assert!(gone.deletion && gone.hash == second.hash);
    assert_eq!(
        Origin::of_deletion(gone.payload).unwrap().session,
        new.session
    );
    assert_eq!(machine.poll_timeout(), None);
    // What was never sent is not deleted.
    machine.announce(start(), 2, &description("short")).unwrap();
    machine.withdraw(start(), 2);
    assert!(sent(&mut machine, start()).is_empty());
}

#[test]
fn thousands_of_announcements_keep_to_the_limit() {
    let mut machine = announcer(Config::new(own()));
    for number in 0..4096 {
        machine
            .announce(start(), number, &description("news"))
            .unwrap();
    }
    assert_eq!(
        machine.announce(start(), 5000, &description("news")),
        Err(Full)
    );
    let (mut now, mut bytes, mut seen) = (start(), 0, 0);
    let end = start() + Duration::from_secs(3600);
    while now < end {
        for packet in sent(&mut machine, now) {
            bytes += packet.len();
            seen += 1;
        }
        now = machine
            .poll_timeout()
            .unwrap()
            .max(now + Duration::from_micros(1));
    }
    assert!(seen > 4096, "each was sent in an hour: {seen}");
    let allowed = 4000 / 8 * (3600 + BURST.total_micros() / 1_000_000) as usize + MAX_PACKET_LEN;
    assert!(bytes <= allowed, "{bytes} of {allowed}");
}

#[test]
fn the_interval_grows_with_what_others_announce() {
    let name = "x".repeat(600);
    let interval = |others: u32| {
        let config = Config {
            max_per_host: 1024,
            ..Config::new(own())
        };
        let mut machine = announcer(config);
        for id in 0..others {
            let from = SocketAddr::from(([10, 0, 0, 2], 9875));
            machine
                .handle_packet(start(), &from, &foreign(id, 1, &name, false))
                .unwrap();
        }
        machine.announce(start(), 1, &description("news")).unwrap();
        sent(&mut machine, start());
        let mut probe = start();
        while sent(&mut machine, probe).is_empty() {
            probe += Duration::from_secs(1);
        }
        (probe - start()).total_micros() / 1_000_000
    };
    assert!(interval(0) <= 400);
    // 1024 announcements of about 750 bytes take 1536 s.
    assert!((1000..2100).contains(&interval(1024)), "{}", interval(1024));
}

#[test]
fn learned_announcements_are_replaced_deleted_and_forgotten() {
    let mut machine = announcer(Config::new(own()));
    let from = SocketAddr::from(([10, 0, 0, 2], 9875));
    let liar = SocketAddr::from(([10, 0, 0, 3], 9875));
    machine
        .handle_packet(start(), &from, &foreign(1, 2, "news", false))
        .unwrap();
    machine
        .handle_packet(start(), &from, &foreign(1, 3, "weather", false))
        .unwrap();
    machine
        .handle_packet(start(), &from, &foreign(1, 2, "news", false))
        .unwrap();
    assert_eq!(names(&machine), ["weather"], "the newest");
    // Another host says the same, and deletes what is not its own.
    machine
        .handle_packet(start(), &liar, &foreign(1, 9, "lies", false))
        .unwrap();
    machine
        .handle_packet(start(), &liar, &foreign(1, 9, "lies", true))
        .unwrap();
    assert_eq!(names(&machine), ["weather"]);
    machine
        .handle_packet(start(), &from, &foreign(2, 1, "sport", false))
        .unwrap();
    machine
        .handle_packet(start(), &from, &foreign(1, 3, "weather", true))
        .unwrap();
    assert_eq!(names(&machine), ["sport"]);
    let due = machine.poll_timeout().unwrap();
    assert_eq!(due, start() + Duration::from_secs(3600));
    machine.handle_timeout(due);
    assert!(names(&machine).is_empty());
    assert_eq!((machine.stats().expired, machine.poll_timeout()), (1, None));
}

#[test]
fn floods_end_at_the_bounds() {
    let mut machine = announcer(Config::new(own()));
    for host in 0..=255 {
        let from = SocketAddr::from(([10, 0, 1, host], 9875));
        for id in 0..100 {
            let taken = machine.handle_packet(start(), &from, &foreign(id, 1, "x", false));
            if host == 0 && id >= 64 {
                assert_eq!(
                    taken,
                    Err(Refused::HostFull),
                    "one host does not fill the table"
                );
            }
        }
    }
    assert_eq!(names(&machine).len(), 1024);
    assert!(machine.stats().no_room > 24_000);
    let own_packet = machine.handle_packet(start(), &own(), &foreign(1, 1, "x", false));
    assert_eq!(own_packet, Err(Refused::Own));
    let before = names(&machine).len();
    for junk in [
        &b""[..],
        b"\x20",
        &[0xff; 2000],
        b"\x20\0\0\0\0\0\0\0v=0\r\n",
    ] {
        let from = SocketAddr::from(([10, 0, 0, 2], 9875));
        assert!(machine.handle_packet(start(), &from, junk).is_err());
    }
    assert_eq!(
        (names(&machine).len(), machine.stats().malformed),
        (before, 4)
    );
}

#[test]
fn the_machine_keeps_the_contract() {
    let from = SocketAddr::from(([10, 0, 0, 2], 9875));
    let at = Duration::from_secs;
    let summary = conformance::run(|| {
        let machine = |now| Announcer::new(Config::new(own()), [3; 32], now);
        let mut script = Script::new(machine, |len| *len)
            .packet(at(1), from, foreign(1, 1, "news", false))
            .command(at(2), |machine, now| {
                for number in 0..20 {
                    machine.announce(now, number, &description("a")).unwrap();
                }
            })
            .command(at(60), |machine, now| machine.withdraw(now, 3))
            .packet(at(61), from, foreign(1, 1, "news", true))
            .command(at(900), |machine, now| {
                for number in 0..20 {
                    machine.withdraw(now, number);
                }
            });
        script.min_sent = 60;
        script.max_idle_wakeups = 500;
        script
    });
    let summary = summary.unwrap();
    assert!(summary.sent >= 60, "{summary:?}");
}
