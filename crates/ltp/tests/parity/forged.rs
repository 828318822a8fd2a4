//! Forged parity: what does not fit is dropped by name, what does not match the digest is fetched from the source.

use ltp::wire::parity;
use ltp::{Error, Meta, SessionId};

use super::common::{Group, content, files, host, receiver_config, source};
use super::{Duration, LIMIT, Parity, sender};

/// A session in which receiver 0 lacks packet 3 of each block until `repair` is called.
fn holed(bytes: &[u8], parity: Parity) -> Group {
    let mut config = sender(bytes, Some(parity));
    config.rate_bps = Some(20_000_000);
    let mut net = files(bytes, 2, 11, config, &receiver_config());
    let deaf = net.receivers[0];
    net.lose(move |to, packet| {
        let number = || u32::from_be_bytes([packet[8], packet[9], packet[10], packet[11]]) % 47;
        packet[0] == 0x11 && to == deaf && number() == 3
    });
    net.run_until(LIMIT, |net| net.receiver(0).stats().data_packets > 60);
    net
}

fn forge(net: &Group, block: u32) -> parity::Repr {
    parity::Repr {
        tag: 0,
        session: net.sender().session(),
        block,
        number: None,
        index: 5,
        packets: 47,
    }
}

fn packet(repr: parity::Repr, len: usize) -> Vec<u8> {
    let mut packet = vec![0x5a; parity::PARITY_HEADER_LEN + len];
    repr.emit(&mut packet);
    packet
}

fn from_source() -> Meta {
    Meta::group(source())
}

#[test]
fn what_does_not_fit_is_dropped_by_name() {
    let bytes = content(1 << 20, 12);
    let mut net = holed(&bytes, Parity::OnRequest);
    let good = forge(&net, 2);
    let taken = net.receiver(0).stats().parity;
    let other = parity::Repr {
        session: SessionId(good.session.0 ^ 1),
        ..good
    };
    let cut = parity::Repr {
        packets: 46,
        ..good
    };
    let far = parity::Repr {
        block: 1 << 20,
        ..good
    };
    for (meta, packet, reason) in [
        (from_source(), packet(other, 1396), Error::OtherSession),
        (Meta::group(host(9)), packet(good, 1396), Error::OtherSource),
        (from_source(), packet(good, 1395), Error::PayloadLength),
        (from_source(), packet(cut, 1396), Error::BeyondEnd),
        (from_source(), packet(far, 1396), Error::BeyondEnd),
        (from_source(), packet(good, 0), Error::Truncated),
    ] {
        assert_eq!(net.inject(0, &meta, &packet), Err(reason));
    }
    let to_source = net.inject_to_sender(&Meta::unicast(host(0)), &packet(good, 1396));
    assert_eq!(to_source, Err(Error::Unexpected));
    assert_eq!(net.receiver(0).stats().parity, taken);
    net.run_until(LIMIT, |net| net.all_complete());
    net.check_content(&bytes);
}

#[test]
fn a_block_that_forged_parity_spoils_comes_from_the_source() {
    let bytes = content(1 << 20, 13);
    let mut net = holed(&bytes, Parity::OnRequest);
    let forged = packet(forge(&net, 3), 1396);
    net.inject(0, &from_source(), &forged).expect("looks right");
    net.run_until(LIMIT, |net| net.receiver(0).stats().restored_wrongly == 1);
    // More of it is not taken for that block.
    let before = net.receiver(0).stats().parity_lost;
    let again = packet(
        parity::Repr {
            index: 6,
            ..forge(&net, 3)
        },
        1396,
    );
    let _ = net.inject(0, &from_source(), &again);
    assert_eq!(net.receiver(0).stats().parity_lost, before + 1);
    net.run_until(LIMIT, |net| net.all_complete());
    net.check_content(&bytes);
    let stats = net.receiver(0).stats();
    assert_eq!((stats.restored_wrongly, stats.blocks_rejected), (1, 1));
}

#[test]
fn after_eight_spoilt_blocks_no_parity_is_taken() {
    let bytes = content(4 << 20, 14);
    let mut net = holed(&bytes, Parity::OnRequest);
    let mut next = 0;
    while net.receiver(0).stats().restored_wrongly < 8 {
        let forged = packet(forge(&net, next), 1396);
        let _ = net.inject(0, &from_source(), &forged);
        net.run_for(Duration::from_millis(2));
        next = (net.receiver(0).progress().0 >> 16) as u32 + next % 2;
        assert!(!net.all_complete(), "only {next} blocks were spoilt");
    }
    let taken = net.receiver(0).stats().parity;
    net.run_until(LIMIT, |net| net.all_complete());
    net.check_content(&bytes);
    assert_eq!(net.receiver(0).stats().parity, taken);
    // Some were restored before their digests had come.
    assert!(net.receiver(0).stats().restored_wrongly < 12);
}

#[test]
fn a_flood_of_parity_of_later_blocks_keeps_none_of_an_earlier_one_out() {
    let bytes = content(4 << 20, 15);
    let mut net = holed(&bytes, Parity::Percent(3));
    for block in 20..60 {
        for index in 0..47 {
            let repr = parity::Repr {
                index,
                ..forge(&net, block)
            };
            let _ = net.inject(0, &from_source(), &packet(repr, 1396));
        }
    }
    let frontier = net.receiver(0).progress().0;
    net.run_until(LIMIT, |net| {
        net.receiver(0).progress().0 > frontier + (1 << 20)
    });
    assert!(net.receiver(0).stats().restored_packets > 10);
    net.run_until(LIMIT, |net| net.all_complete());
    net.check_content(&bytes);
}
