//! Addresses that peers name, and that have to prove themselves before data goes there.

use bfed::data::{DataError, Destination, Meta, Verdict};
use bfed::wire::Message;
use bfed::wire::data::{Kind, Packet, Repr};
use bfed::wire::join::FlowChannel;
use bfed::wire::node::Heartbeat;
use bfed::wire::subscribe::Edge;
use bfed::*;

use crate::fake::{OTHER, PEER, Sent, Station};

const LIVE: &str = "bfed://1/m/?content=real-time";
const THIRD_PARTY: ([u8; 4], u16) = ([10, 0, 0, 66], 4000);

fn channel(address: ([u8; 4], u16)) -> [FlowChannel; 1] {
    [FlowChannel {
        label: None,
        address: ChannelAddress::Datagram(address.into()),
    }]
}

/// Bytes on the wire of what went to that address, IPv4 and UDP headers included.
fn bytes_to(sent: &[Sent], address: ([u8; 4], u16)) -> usize {
    let to = Destination::Datagram(address.into());
    let theirs = sent.iter().filter(|(at, _)| *at == to);
    theirs.map(|(_, bytes)| bytes.len() + 28).sum()
}

fn alive(station: &mut Station, millis: u64) {
    let heartbeat = Heartbeat {
        epoch: 1,
        sequence: 1,
        draining: false,
        complete: false,
    };
    station.receive(&Message::Heartbeat(heartbeat)).unwrap();
    station.wait(millis);
}

fn probe(label: FlowLabel, sequence: u32, cookie: u64) -> Vec<u8> {
    let repr = Repr {
        sequence,
        ..Repr::new(Kind::Probe, label).with_cookie(cookie)
    };
    let mut bytes = vec![0; repr.buffer_len()];
    repr.emit(&mut bytes);
    bytes
}

#[test]
fn joins_that_name_a_third_party_draw_nothing_to_it() {
    let mut station = Station::new(1);
    let mut sent = vec![];
    for number in 0..480 {
        let name = format!("bfed://1/m/{number}/?content=real-time");
        station.subscribe(true, &name, Edge::Native, &[]).unwrap();
        station
            .subscribe(false, &name, PEER, &channel(THIRD_PARTY))
            .unwrap();
    }
    for _ in 0..100 {
        for number in 1..=480 {
            sent.extend(station.native_data(number, &[0; 1000]).unwrap());
        }
        sent.extend(station.drain());
        alive(&mut station, 100);
    }
    assert_eq!(bytes_to(&sent, THIRD_PARTY), 0);
}

#[test]
fn a_spoofed_probe_draws_as_much_as_it_brought_and_proves_nothing() {
    let mut station = Station::new(1);
    station.subscribe(true, LIVE, Edge::Native, &[]).unwrap();
    let own = station
        .subscribe(false, LIVE, PEER, &channel(THIRD_PARTY))
        .unwrap();
    let (label, mut sent, mut cause) = (own[0].label.unwrap(), vec![], 0);
    for sequence in 1..=200 {
        // The peer has the label and forges the address, but does not see the cookie.
        let bytes = probe(label, sequence, u64::from(sequence));
        cause += bytes.len() + 28;
        let _ = station.packet(Meta::Datagram(THIRD_PARTY.into()), bytes);
        sent.extend(station.native_data(1, &[0; 1000]).unwrap());
        sent.extend(station.drain());
        alive(&mut station, 1);
    }
    assert!(bytes_to(&sent, THIRD_PARTY) <= cause);
    let limit = DataError::ProbeRate;
    assert!(
        station.node.plane().stats().drops.get(limit) > 100,
        "a rate"
    );
}

#[test]
fn translations_that_name_third_parties_draw_probes_at_one_rate_in_all() {
    let mut station = Station::new(1);
    let mut sent = vec![];
    // One peer, 480 sessions, as many addresses; and each of 20 s.
    for number in 0..480_u16 {
        let name = format!("bfed://2/m/{number}/?content=real-time");
        let address = ([10, 1, (number >> 8) as u8, number as u8], 4000);
        let theirs = [FlowChannel {
            label: FlowLabel::new(7 + u32::from(number)),
            address: ChannelAddress::Datagram(address.into()),
        }];
        station.allocate(&name, PEER);
        station.subscribe(true, &name, PEER, &theirs).unwrap();
    }
    let mut seconds = vec![];
    for _ in 0..20 {
        sent.clear();
        for _ in 0..10 {
            alive(&mut station, 100);
            sent.extend(station.drain());
        }
        seconds.push(sent.len());
    }
    assert!(seconds.iter().all(|count| *count <= 150), "{seconds:?}");
    // The probes of one address become less and less frequent.
    let mut station = Station::new(1);
    let theirs = [FlowChannel {
        label: FlowLabel::new(7),
        address: ChannelAddress::Datagram(THIRD_PARTY.into()),
    }];
    station.allocate(LIVE, PEER);
    station.subscribe(true, LIVE, PEER, &theirs).unwrap();
    let mut count = 0;
    for _ in 0..1000 {
        alive(&mut station, 100);
        count += station.drain().len();
        station.reclaim(LIVE, None);
    }
    assert!((5..=16).contains(&count), "{count} in 100 s");
}

#[test]
fn data_with_a_forged_source_draws_no_reports() {
    let mut station = Station::new(1);
    let label = FlowLabel::new(7).unwrap();
    let theirs = [FlowChannel {
        label: Some(label),
        address: ChannelAddress::Datagram(THIRD_PARTY.into()),
    }];
    station.allocate(LIVE, PEER);
    station.subscribe(true, LIVE, PEER, &theirs).unwrap();
    station.drain();
    let mut sent = vec![];
    for sequence in 1..=100 {
        let repr = Repr {
            sequence,
            rtt_us: 1,
            ..Repr::new(Kind::Data, label)
        };
        let mut bytes = vec![0; repr.buffer_len()];
        repr.emit(&mut bytes);
        station
            .packet(Meta::Datagram(THIRD_PARTY.into()), bytes)
            .unwrap();
        station.wait(1);
        sent.extend(station.drain());
    }
    let reports = sent.iter().filter(|(_, bytes)| {
        Packet::new_checked(&bytes[..]).is_ok_and(|packet| packet.kind() == Kind::Report)
    });
    assert_eq!(reports.count(), 0);
}

#[test]
fn what_an_address_proved_for_one_peer_counts_for_no_other() {
    let (mut above, mut below) = (Station::new(1), Station::new(2));
    above.subscribe(true, LIVE, Edge::Native, &[]).unwrap();
    let theirs = below.allocate(LIVE, PEER);
    let ours = above.subscribe(false, LIVE, PEER, &theirs).unwrap();
    below.subscribe(true, LIVE, PEER, &ours).unwrap();
    for _ in 0..3 {
        for (_, bytes) in below.drain() {
            let _ = above.packet(Meta::Datagram(below.address), bytes);
        }
        for (_, bytes) in above.drain() {
            let _ = below.packet(Meta::Datagram(above.address), bytes);
        }
    }
    let count = |sent: &[Sent]| sent.len();
    assert_eq!(count(&above.native_data(1, b"data").unwrap()), 1);
    // Another peer names the data node of the first.
    let other = "bfed://1/other/?content=real-time";
    above.subscribe(true, other, Edge::Native, &[]).unwrap();
    above.subscribe(false, other, OTHER, &theirs).unwrap();
    let sent = above.native_data(2, b"flood").unwrap();
    assert_eq!(count(&sent), 0);
    alive(&mut above, 500);
    // The first session's receiver learns that there was no more for now.
    let kinds = above.drain().into_iter().map(|(_, bytes)| bytes[0] & 15);
    assert_eq!(kinds.collect::<Vec<_>>(), [Kind::Tail as u8]);
}

#[test]
fn guessed_echoes_are_not_looked_at_without_end() {
    let mut station = Station::new(1);
    let label = FlowLabel::new(7).unwrap();
    let theirs = [FlowChannel {
        label: Some(label),
        address: ChannelAddress::Datagram(THIRD_PARTY.into()),
    }];
    station.allocate(LIVE, PEER);
    station.subscribe(true, LIVE, PEER, &theirs).unwrap();
    let asked = station.drain().remove(0).1;
    let asked = Packet::new_checked(&asked[..]).unwrap().sequence();
    let echo = |sequence| {
        let repr = Repr {
            sequence,
            ..Repr::new(Kind::Echo, label).with_cookie(1)
        };
        let mut bytes = vec![0; repr.buffer_len()];
        repr.emit(&mut bytes);
        bytes
    };
    let from = Meta::Datagram(THIRD_PARTY.into());
    for wrong in 1..=16 {
        let refused = station.packet(from, echo(asked.wrapping_add(wrong).max(1)));
        assert!(matches!(refused, Err(Verdict::Drop(DataError::NotYours))));
    }
    let late = station.packet(from, echo(asked));
    assert!(matches!(late, Err(Verdict::Drop(DataError::NotYours))));
}
