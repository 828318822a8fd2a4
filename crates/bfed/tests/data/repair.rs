//! Repair of lost packets within their deadlines.

use bfed::data::{DataError, Destination, Meta, Repairs, Verdict};
use bfed::native::{ChannelId, FrameClass, Priority};
use bfed::wire::class::Class;
use bfed::wire::data::{HEADER_LEN, Kind, Packet, Repr};
use bfed::wire::join::FlowChannel;
use bfed::wire::parity;
use bfed::wire::repair::{self, Request};
use bfed::wire::subscribe::Edge;
use bfed::*;

use crate::fake::{PEER, Station};
use crate::line::{Carrier, FAR, Line, NAME, QUICK, film, key, millis, station};

#[test]
fn on_a_link_that_loses_packets_each_frame_arrives_and_in_order() {
    for (carrier, loss) in [(Carrier::Quic, 2), (Carrier::Quic, 10), (Carrier::Udp, 2)] {
        let mut line = Line::new(carrier, 2, NAME, loss);
        film(&mut line, 2000, 1000);
        assert!(line.got.is_sorted(), "{carrier:?}, {loss} %");
        // TFRC limits the rate where packets are lost: what it does not let go in time never had a number.
        let unsent = line.drops(0).get(DataError::TooLate);
        assert!(unsent == 0 || carrier == Carrier::Udp);
        assert_eq!(
            line.got.len() as u64 + unsent,
            2000,
            "{carrier:?}, {loss} %"
        );
        let repairs = line.repairs(1);
        assert!(repairs.repaired >= 10 * loss, "{repairs:?}");
        assert_eq!((repairs.late, repairs.lost()), (0, repairs.repaired));
        // Packets are sent again for those that were lost, not for others.
        let spent = line.data + unsent - 2000;
        assert!(
            spent <= repairs.repaired * 6 / 5 + 2,
            "{spent} for {repairs:?}"
        );
        assert_eq!(line.repairs(0).answered, spent);
    }
}

#[test]
fn each_link_of_a_line_repairs_what_it_loses() {
    let mut line = Line::new(Carrier::Quic, 3, NAME, 5);
    film(&mut line, 1000, 1000);
    assert_eq!(line.got, (0..1000).collect::<Vec<_>>());
    assert!(line.repairs(1).repaired > 20);
    assert_eq!(line.repairs(2), Repairs::default());
}

#[test]
fn frames_in_fragments_are_repaired() {
    let mut line = Line::new(Carrier::Quic, 2, NAME, 5);
    for number in 0..200 {
        line.speak(number, 10_000);
        line.run(33);
    }
    line.run(1000);
    assert_eq!(line.got, (0..200).collect::<Vec<_>>());
}

#[test]
fn the_last_frame_before_a_pause_is_repaired() {
    let mut line = Line::new(Carrier::Quic, 2, NAME, 0);
    film(&mut line, 10, 1000);
    line.loss = 100;
    line.speak(10, 1000);
    line.loss = 0;
    line.run(200);
    assert_eq!(line.got, (0..=10).collect::<Vec<_>>());
    assert_eq!(line.repairs(1).repaired, 1);
}

#[test]
fn without_loss_nothing_is_asked_and_nothing_waits() {
    let mut line = Line::new(Carrier::Quic, 2, NAME, 0);
    film(&mut line, 500, 1000);
    assert_eq!(line.got.len(), 500);
    assert_eq!(
        (line.data, line.repairs(0), line.repairs(1)),
        (500, Repairs::default(), Repairs::default())
    );
}

#[test]
fn what_no_answer_can_reach_in_time_is_not_asked_for() {
    // 75 ms, of which 20 are over on arrival: an answer takes 40 more, a second one does not come.
    let mut line = Line::new(Carrier::Quic, 2, QUICK, 10);
    film(&mut line, 1000, 1000);
    let repairs = line.repairs(1);
    assert!(line.got.is_sorted());
    let late = repairs.late + line.drops(1).get(DataError::TooLate);
    assert_eq!(line.got.len() as u64 + late, 1000, "{repairs:?}");
    assert!(repairs.asked <= repairs.lost(), "{repairs:?}");
    assert!(repairs.late <= repairs.lost() / 3, "{repairs:?}");
    for at in 0..2 {
        let path = line.path(at, 1 - at).expect("a path");
        line.stations[at].node.plane().set_rtt(path, millis(300));
    }
    let before = line.repairs(1);
    film(&mut line, 200, 1000);
    assert_eq!(line.repairs(1).asked, before.asked);
}

#[test]
fn where_an_answer_would_come_too_late_parity_restores() {
    let mut line = Line::over(100, Carrier::Quic, 2, FAR, 2);
    film(&mut line, 3000, 1000);
    let repairs = line.repairs(1);
    assert!(line.got.is_sorted());
    assert_eq!(line.got.len() as u64 + repairs.late, 3000);
    assert!(
        repairs.restored > 30 && repairs.repaired == 0,
        "{repairs:?}"
    );
    // The first loss of all brings the parity, and further ones raise it.
    assert!(repairs.late * 5 <= repairs.lost(), "{repairs:?}");
    let parity = line.repairs(0).parity;
    assert!(parity <= 3000 / 4 + 64, "{parity}");
    // Without loss it ends.
    line.loss = 0;
    film(&mut line, 4 * 16 * 256, 100);
    let before = line.repairs(0).parity;
    film(&mut line, 100, 100);
    assert_eq!(line.repairs(0).parity, before);
}

#[test]
fn single_packets_and_fragments_are_restored() {
    let mut line = Line::over(100, Carrier::Quic, 2, FAR, 10);
    for number in 0..500 {
        line.speak(number, if number % 2 == 0 { 500 } else { 5000 });
        line.run(100);
    }
    let repairs = line.repairs(1);
    assert!(line.got.is_sorted());
    // Parity is limited to a quarter of the bytes sent: too little for packets that are sent one by one.
    assert!(repairs.restored > 15, "{repairs:?}");
}

#[test]
fn where_repairs_are_off_frames_go_on_as_they_come() {
    let mut line = Line::unrepaired(NAME, 10);
    film(&mut line, 1000, 1000);
    assert!(line.got.len() < 950 && line.got.is_sorted());
    assert_eq!(line.repairs(1).asked, 0);
}

/// A data node with a receiver that uses classes, which has got 100 packets of 1,000 bytes.
fn upstream(carrier: Carrier) -> (Line, FlowLabel, Meta) {
    let mut line = Line::new(carrier, 2, NAME, 0);
    film(&mut line, 100, 1000);
    let mut probe = line.stations[0].native_data(1, b"data").unwrap();
    let (_, bytes) = probe.pop().unwrap();
    let label = Packet::new_checked(&bytes[..]).unwrap().label();
    let from = match carrier {
        Carrier::Udp => Meta::Datagram(line.stations[1].address),
        Carrier::Quic => Meta::Path(line.path(0, 1).expect("a path")),
    };
    (line, label, from)
}

fn request(label: FlowLabel, request: Request) -> Vec<u8> {
    let repr = Repr {
        payload_len: repair::LEN,
        ..Repr::new(Kind::RepairRequest, label)
    };
    let mut bytes = vec![0; repr.buffer_len()];
    repr.emit(&mut bytes);
    request.emit(&mut bytes[HEADER_LEN..]);
    bytes
}

fn all(first: u32) -> Request {
    Request {
        first,
        others: u64::MAX,
    }
}

#[test]
fn a_receiver_that_asks_for_everything_all_the_time_gets_a_quarter_more() {
    let (mut line, label, from) = upstream(Carrier::Quic);
    let (mut sent, mut again, mut sequence) = (0, 0, 0);
    for number in 0..2000 {
        let mut frame = vec![0; HEADER_LEN + 1000];
        frame[HEADER_LEN..HEADER_LEN + 4].copy_from_slice(&u32::to_be_bytes(number));
        let meta = Meta::Frame(ChannelId(1), FrameClass::default());
        let mut out = line.stations[0].packet(meta, frame).unwrap();
        for before in [0, 65, 130] {
            let asked = request(label, all(u32::saturating_sub(sequence, 64 + before)));
            let taken = line.stations[0].packet(from, asked);
            assert!(matches!(taken, Err(Verdict::Taken)));
        }
        line.stations[0].wait(5);
        out.extend(line.stations[0].drain());
        for (_, bytes) in out {
            let packet = Packet::new_checked(&bytes[..]).unwrap();
            match (packet.kind(), packet.is_again()) {
                (Kind::Data, true) => again += packet.payload().len(),
                (Kind::Data, false) => {
                    sent += packet.payload().len();
                    sequence = packet.sequence();
                }
                _ => {}
            }
        }
    }
    assert!(sent > 500_000 && again > 0, "{sent}");
    assert!(again <= sent / 4 + (64 << 10) + 1000, "{again} of {sent}");
    let drops = line.drops(0);
    assert!(drops.get(DataError::RepairRate) > 0);
}

#[test]
fn requests_for_what_was_never_sent_or_is_gone_get_nothing() {
    let (mut line, label, from) = upstream(Carrier::Udp);
    line.stations[0].drain();
    for first in [0, 1_000_000, u32::MAX] {
        let _ = line.stations[0].packet(from, request(label, all(first)));
    }
    assert_eq!(line.stations[0].drain(), []);
    assert_eq!(line.drops(0).get(DataError::RepairGone), 3 * 65);
}

#[test]
fn requests_of_others_and_broken_ones_are_refused() {
    let (mut line, label, from) = upstream(Carrier::Udp);
    let stranger = Meta::Datagram(([10, 0, 0, 66], 4000).into());
    let refused = line.stations[0].packet(stranger, request(label, all(1)));
    assert!(matches!(refused, Err(Verdict::Drop(DataError::NotYours))));
    let unknown = FlowLabel::new(label.get() ^ 1).unwrap();
    let refused = line.stations[0].packet(from, request(unknown, all(1)));
    assert!(matches!(
        refused,
        Err(Verdict::Drop(DataError::UnknownFlow))
    ));
    let mut long = request(label, all(1));
    long[3] += 1;
    long.push(0);
    let refused = line.stations[0].packet(from, long);
    assert!(matches!(refused, Err(Verdict::Drop(DataError::Malformed))));
}

/// Data from upstream with a number.
fn data(label: FlowLabel, sequence: u32, is_again: bool) -> Vec<u8> {
    let repr = Repr {
        sequence,
        class: Class::new(Priority::Normal, millis(500)),
        is_again,
        payload_len: 1000,
        ..Repr::new(Kind::Data, label)
    };
    let mut bytes = vec![7; repr.buffer_len()];
    repr.emit(&mut bytes);
    bytes
}

/// A data node that receives over a QUIC path from a data node that lies.
fn downstream() -> (Station, Meta, FlowLabel) {
    let mut station = station(2);
    let label = FlowLabel::new(77).unwrap();
    let from = FlowChannel {
        label: Some(label),
        address: ChannelAddress::Quic(([10, 0, 0, 1], 4000).into(), key(1)),
    };
    station.subscribe(true, NAME, PEER, &[from]).unwrap();
    station.subscribe(false, NAME, Edge::Native, &[]).unwrap();
    let path = station
        .node
        .plane()
        .path(([10, 0, 0, 1], 4000).into(), key(1));
    station.wait(1000);
    station.drain();
    (station, Meta::Path(path.unwrap()), label)
}

#[test]
fn a_sender_that_leaves_numbers_out_fills_no_memory_and_delays_nothing_for_long() {
    let (mut station, from, label) = downstream();
    let mut got = 0;
    for number in 0..20_000_u32 {
        let _ = station.packet(from, data(label, 1 + number * 2, false));
        got += station.drain().len();
        if number % 64 == 0 {
            station.wait(1);
        }
        let held = station.node.plane().repair_bytes();
        assert!(held <= 300 << 10, "{held} bytes");
    }
    station.wait(500);
    got += station.drain().len();
    assert!(got > 19_900, "{got}");
    assert_eq!(station.node.plane().repair_bytes(), 0);
}

#[test]
fn a_sender_that_counts_anew_is_followed() {
    let (mut station, from, label) = downstream();
    // Forwards, backwards past half of all numbers, and with packets missing.
    for first in [1, 1_000_000_000, 3_500_000_000, 10] {
        for sequence in [first, first + 1, first + 3] {
            let _ = station.packet(from, data(label, sequence, false));
        }
    }
    station.wait(500);
    station.drain();
    let sent = station.packet(from, data(label, 14, false)).unwrap();
    assert_eq!(sent.len(), 1);
    // Nothing is missing but the packet before the last of each count.
    let (_, repairs) = station.node.plane().repairs().next().unwrap();
    assert_eq!((repairs.late, repairs.lost()), (4, 4));
}

#[test]
fn one_forged_number_does_not_make_the_packets_that_follow_old() {
    let (mut station, from, label) = downstream();
    for sequence in 1..10 {
        assert!(station.packet(from, data(label, sequence, false)).is_ok());
    }
    let forged = |kind, sequence| {
        let repr = Repr {
            sequence,
            class: Class::new(Priority::Normal, millis(500)),
            ..Repr::new(kind, label)
        };
        let mut bytes = vec![0; repr.buffer_len()];
        repr.emit(&mut bytes);
        bytes
    };
    let front = parity::Repr {
        count: 1,
        total: 1,
        index: 0,
    };
    for sequence in [1_000_000, 3_000_000_000] {
        let _ = station.packet(from, forged(Kind::Tail, sequence));
        let _ = station.packet(from, parity(label, sequence, front, &[0; 8]));
    }
    assert_eq!(
        station.packet(from, data(label, 10, false)).unwrap().len(),
        1
    );
    let _ = station.packet(from, data(label, 1_000_000, false));
    station.drain();
    // The next one of the true count begins anew, the others are forwarded at once.
    let _ = station.packet(from, data(label, 11, false));
    assert_eq!(
        station
            .drain()
            .iter()
            .filter(|one| one.1.len() == 1000)
            .count(),
        1
    );
    assert_eq!(
        station.packet(from, data(label, 12, false)).unwrap().len(),
        1
    );
}

#[test]
fn an_answer_that_nobody_asked_for_is_a_duplicate() {
    let (mut station, from, label) = downstream();
    assert!(station.packet(from, data(label, 1, false)).is_ok());
    for sequence in [1, 0x8000_0000, 0] {
        let _ = station.packet(from, data(label, sequence, true));
    }
    let again = station.packet(from, data(label, 1, true));
    assert!(matches!(again, Err(Verdict::Drop(DataError::Duplicate))));
}

/// A PARITY of a block that begins with a number.
fn parity(label: FlowLabel, first: u32, front: parity::Repr, shard: &[u8]) -> Vec<u8> {
    let repr = Repr {
        sequence: first,
        class: Class::new(Priority::Normal, millis(500)),
        payload_len: parity::LEN + shard.len(),
        ..Repr::new(Kind::Parity, label)
    };
    let mut bytes = vec![0; repr.buffer_len()];
    repr.emit(&mut bytes);
    front.emit(&mut bytes[HEADER_LEN..]);
    bytes[HEADER_LEN + parity::LEN..].copy_from_slice(shard);
    bytes
}

#[test]
fn parity_that_fits_nothing_restores_nothing_and_fills_no_memory() {
    let (mut station, from, label) = downstream();
    for round in 0..2000_u32 {
        let first = round * 40;
        for sequence in [first + 1, first + 4] {
            let _ = station.packet(from, data(label, sequence, false));
        }
        for index in 0..8 {
            let front = parity::Repr {
                count: 4,
                total: 8,
                index,
            };
            // Too short for the packets, and as long as they.
            for len in [8, 1100] {
                let noise = vec![index.wrapping_mul(37) ^ round as u8; len];
                let _ = station.packet(from, parity(label, first + 1, front, &noise));
            }
        }
        let sent = station.drain().into_iter();
        let sent = sent.filter(|(to, _)| matches!(to, Destination::Native(_)));
        assert!(sent.into_iter().all(|(_, bytes)| bytes.len() <= 1100));
        let held = station.node.plane().repair_bytes();
        assert!(held <= 600 << 10, "{held} bytes");
        if round % 16 == 0 {
            station.wait(1);
        }
    }
    // It goes with the edge, or with time.
    station.wait(3000);
    station.drain();
    let _ = station.packet(from, data(label, 1_000_000, false));
    station.wait(3000);
    station.drain();
    assert!(station.node.plane().repair_bytes() <= 8 * 8 * 1100);
}

#[test]
fn malformed_parity_is_refused() {
    let (mut station, from, label) = downstream();
    let _ = station.packet(from, data(label, 1, false));
    for (count, total, index, len) in [
        (0, 1, 0, 8),
        (33, 1, 0, 8),
        (2, 9, 0, 8),
        (2, 1, 1, 8),
        (2, 1, 0, 7),
        (2, 1, 0, 2),
    ] {
        let front = parity::Repr {
            count,
            total,
            index,
        };
        let refused = station.packet(from, parity(label, 1, front, &vec![0; len]));
        assert!(matches!(refused, Err(Verdict::Drop(DataError::Malformed))));
    }
}

#[test]
fn a_receiver_that_says_it_loses_everything_gets_a_quarter_more_parity() {
    let (mut line, label, from) = upstream(Carrier::Quic);
    let (mut sent, mut parity) = (0, 0);
    for number in 0..2000_u32 {
        let mut frame = vec![0; HEADER_LEN + 1000];
        frame[HEADER_LEN..HEADER_LEN + 4].copy_from_slice(&number.to_be_bytes());
        let meta = Meta::Frame(ChannelId(1), FrameClass::default());
        let mut out = line.stations[0].packet(meta, frame).unwrap();
        let _ = line.stations[0].packet(from, request(label, all(1_000_000)));
        line.stations[0].wait(5);
        out.extend(line.stations[0].drain());
        for (_, bytes) in out {
            sent += u32::from(bytes[0] & 15 == Kind::Data as u8);
            parity += u32::from(bytes[0] & 15 == Kind::Parity as u8);
        }
    }
    assert!(
        sent >= 2000 && parity > 0 && parity <= sent / 4,
        "{parity} of {sent}"
    );
}

#[test]
fn requests_go_to_an_address_that_is_proved_alone() {
    let (mut station, from, label) = downstream();
    for sequence in [1, 5] {
        let _ = station.packet(from, data(label, sequence, false));
    }
    for _ in 0..100 {
        station.wait(1);
        let kinds = station.drain().into_iter().map(|(_, bytes)| bytes[0] & 15);
        assert!(
            !kinds
                .collect::<Vec<_>>()
                .contains(&(Kind::RepairRequest as u8))
        );
    }
}
