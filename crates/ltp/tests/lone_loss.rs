//! With LMS, packets that only one receiver lacks are repaired to that receiver alone.

mod common;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use common::network::ROUTER;
use common::packets::{asked, point, report, request, tell, token_of};
use common::{Group, content, files, group, host, receiver_config, sender_config};
use ltp::wire::report::Status;
use ltp::wire::request::{Kind, REPAIR_ALONE};
use ltp::{Assist, Destination, Duration, Meta, Transmit};
use netsim::Filter;
use netsim::ip::Datagram;

const RECEIVERS: usize = 4;

/// Receivers with LMS of which `deaf` miss each 20th DATA packet; the same packets for all of them.
fn link(bytes: &[u8], deaf: &[usize], reports: bool) -> Group {
    let mut sender = sender_config(bytes.len());
    sender.block_exponent = 13;
    sender.max_packet_len = 500;
    sender.rate_bps = Some(10_000_000);
    sender.receivers = reports.then_some(RECEIVERS as u32);
    let mut receiver = receiver_config();
    receiver.assist = Assist::Lms;
    let mut net = files(bytes, RECEIVERS, 7, sender, &receiver);
    let deaf: Vec<_> = deaf.iter().map(|&index| net.receivers[index]).collect();
    net.lose(move |to, packet| {
        let number = || u32::from_be_bytes([packet[8], packet[9], packet[10], packet[11]]);
        packet[0] == 0x11 && number() % 20 == 7 && deaf.contains(&to)
    });
    net
}

fn run(net: &mut Group, bytes: &[u8]) {
    net.run_until(Duration::from_secs(60), |net| net.all_complete());
    net.check_content(bytes);
}

/// Repairs to the group and to single receivers, and what each receiver got as repairs that it did not lack.
fn repairs(net: &Group) -> (u64, u64, Vec<u64>) {
    let stats = net.sender().stats();
    let unneeded = net
        .receivers()
        .map(|receiver| receiver.stats().unneeded_repairs);
    (
        stats.repairs_group,
        stats.repairs_unicast,
        unneeded.collect(),
    )
}

#[test]
fn what_one_receiver_lacks_is_repaired_to_it_alone() {
    let bytes = content(300_000, 1);
    let mut net = link(&bytes, &[2], true);
    run(&mut net, &bytes);
    let lost = net.receiver(2).stats().repairs;
    assert!(lost > 20, "{lost} lost");
    assert_eq!(repairs(&net), (0, lost, vec![0; RECEIVERS]));
    assert!(net.receiver(2).stats().requests_group > 0);
}

#[test]
fn what_several_lack_is_repaired_once_to_the_group() {
    let bytes = content(300_000, 1);
    let mut net = link(&bytes, &[1, 2, 3], true);
    run(&mut net, &bytes);
    let lost = net.receiver(2).stats().repairs;
    assert_eq!(repairs(&net), (lost, 0, vec![lost, 0, 0, 0]));
}

/// A sender that knows no receivers has no address that proved itself.
#[test]
fn without_reports_the_group_gets_the_repairs() {
    let bytes = content(300_000, 1);
    let mut net = link(&bytes, &[2], false);
    run(&mut net, &bytes);
    let lost = net.receiver(2).stats().repairs;
    assert_eq!(repairs(&net), (lost, 0, vec![lost, lost, 0, lost]));
}

/// Receiver 0 is asked by the receivers below it, which lost the same: only the first losses, before it
/// is asked, are repaired to it alone.
#[test]
fn losses_of_a_busy_replier_are_repaired_to_the_group() {
    let bytes = content(300_000, 1);
    let mut net = link(&bytes, &[0, 1, 2, 3], true);
    net.elect_replier();
    run(&mut net, &bytes);
    let (to_group, alone, _) = repairs(&net);
    let lost = net.receiver(0).stats().repairs;
    assert!(to_group + alone >= lost && alone <= 1, "{to_group} {alone}");
    let dmcasts = net.receiver(0).stats().repairs_sent;
    assert!(dmcasts <= 3 * alone, "{dmcasts} directed multicasts");
}

/// A repair by unicast reached no other host: the replier that got it answers those below it at once.
#[test]
fn a_replier_gives_at_once_what_it_got_by_unicast() {
    let bytes = content(300_000, 1);
    let mut net = link(&bytes, &[0], true);
    net.run_until(Duration::from_secs(60), |net| {
        net.receiver(0).stats().repairs == 1
    });
    let packet = request(net.sender().session(), Kind::Data, (7, 7), 0);
    let turned = asked(Some(point(1, 1)));
    let answers = net.with_receiver(0, |receiver, now| {
        assert_eq!(receiver.handle_packet(now, &turned, &packet), Ok(()));
        let mut buffer = [0; 2048];
        let sent = std::iter::from_fn(|| receiver.poll_transmit(now, &mut buffer));
        let is_dmcast = |sent: &Transmit| matches!(sent.destination, Destination::Dmcast(_));
        sent.filter(is_dmcast).count()
    });
    assert_eq!(answers, 1);
}

/// Asks the group, in the name of that address, for a packet that no receiver lacks; where the repairs go.
fn answers_to(net: &mut Group, source: SocketAddr, number: u32) -> Vec<SocketAddr> {
    let mut packet = request(net.sender().session(), Kind::Data, (number, number), 0);
    packet[32..40].copy_from_slice(&REPAIR_ALONE.to_be_bytes());
    let repairs = Rc::new(RefCell::new(Vec::new()));
    let seen = repairs.clone();
    let from_source = net.source.0;
    net.sim.tap(Filter::Sent, move |record| {
        let packet = Datagram::parse(record.bytes).unwrap();
        if record.from == from_source && packet.payload[0] & 0xf == 2 {
            seen.borrow_mut().push(packet.destination.into());
        }
    });
    assert_eq!(net.inject_to_sender(&Meta::group(source), &packet), Ok(()));
    net.run_for(Duration::from_millis(20));
    repairs.take()
}

/// A receiver at that address joins, as it proves its address.
fn join(net: &mut Group, address: SocketAddr) {
    let token = token_of(net, address);
    let report = report(net.sender().session(), 5, Status::Joined, 0, token);
    assert_eq!(tell(net, address, &report), Ok(()));
}

/// A request to the group proves no address: repairs go by unicast only to the address that an active
/// receiver of that host proved.
#[test]
fn a_request_to_the_group_sends_nothing_to_an_address_that_proved_nothing() {
    let bytes = content(300_000, 1);
    let mut net = link(&bytes, &[], true);
    net.run_until(Duration::from_secs(60), |net| {
        net.sender().stats().data_packets > 100
    });
    let other_port = |index| SocketAddr::new(host(index).ip(), 9);
    let alone = answers_to(&mut net, other_port(1), 3);
    assert_eq!(alone, [host(1)]);
    let unknown = answers_to(&mut net, other_port(77), 10);
    assert_eq!(unknown, [group()]);
    join(&mut net, SocketAddr::new(host(1).ip(), 4001));
    let one_of_two = answers_to(&mut net, other_port(1), 20);
    assert_eq!(one_of_two, [group()]);
}

/// After ten seconds without a request of a receiver below, a replier asks for itself alone again.
#[test]
fn losses_of_an_idle_replier_are_repaired_to_it_alone() {
    let bytes = content(300_000, 1);
    let mut net = link(&bytes, &[0], true);
    net.run_until(Duration::from_secs(60), |net| {
        net.receiver(0).stats().repairs == 1
    });
    let packet = request(net.sender().session(), Kind::Data, (7, 7), 0);
    let turned = asked(Some(ltp::TurningPoint {
        router: ROUTER,
        ..point(1, 2)
    }));
    let taken = net.inject(0, &turned, &packet);
    assert_eq!(taken, Ok(()));
    let before = net.sender().stats().repairs_unicast;
    net.run_until(Duration::from_secs(60), |net| {
        net.receiver(0).stats().repairs == 3
    });
    assert_eq!(net.sender().stats().repairs_unicast, before);
    assert_eq!(net.sender().stats().repairs_group, 2);
    net.with_sender(|sender, now| sender.set_rate(now, Some(50_000)));
    let later = net.now() + Duration::from_secs(11);
    net.run_until(Duration::from_secs(60), |net| net.now() > later);
    let before = repairs(&net);
    net.with_sender(|sender, now| sender.set_rate(now, Some(10_000_000)));
    run(&mut net, &bytes);
    let after = repairs(&net);
    assert_eq!(after.0, before.0);
    assert!(after.1 > before.1 + 10, "{before:?} {after:?}");
}

/// A request to the group is heard by other hosts: it must not carry what proves the receiver's address to the source.
#[test]
fn requests_to_the_group_carry_no_token() {
    let bytes = content(300_000, 1);
    let mut net = link(&bytes, &[2], true);
    net.sim.tap(Filter::Sent, |record| {
        let packet = Datagram::parse(record.bytes).unwrap();
        if let Ok(request) = ltp::wire::request::Repr::parse(packet.payload)
            && request.kind == Kind::Data
            && request.nonce <= REPAIR_ALONE
        {
            assert_eq!(request.token, 0, "every host on the link can read it");
        }
    });
    run(&mut net, &bytes);
    assert!(net.receiver(2).stats().requests_group > 0);
}
