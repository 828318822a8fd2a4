//! Properties of the formats, and any bytes to any machine.

mod common;

use common::{content, files, group, host, receiver_config, seed, sender_config, source};
use ltp::store::HeapRing;
use ltp::wire::report::{Loss, Report, Status};
use ltp::wire::request::{Kind, MAX_RANGES, Range};
use ltp::wire::{Seq, data, parity, request};
use ltp::{Duration, Instant, Meta, Receiver, ReceiverConfig, SessionId};
use proptest::prelude::*;

proptest! {
    #[test]
    fn data_round_trip(tag in any::<Option<u16>>(), session: u32, number: u32, count: Option<u32>, len in 1usize..99) {
        let sequence = Seq(number);
        let repr = data::Repr { repair: tag, session: SessionId(session), sequence, number: count };
        let mut bytes = vec![0; data::DATA_HEADER_LEN + len];
        repr.emit(&mut bytes);
        prop_assert_eq!(data::Repr::parse(&data::Packet::new_checked(&bytes).unwrap()), repr);
    }

    #[test]
    fn parity_round_trip(
        tag: u16, session: u32, block: u32, number: Option<u32>, packets in 1u8..=64, index: u8, len in 1usize..99,
    ) {
        let index = index % packets;
        let repr = parity::Repr { tag, session: SessionId(session), block, number, index, packets };
        let mut bytes = vec![7; parity::PARITY_HEADER_LEN + len];
        repr.emit(&mut bytes);
        prop_assert_eq!(parity::Repr::parse(&bytes), Ok((repr, &vec![7; len][..])));
    }

    #[test]
    fn request_round_trip(
        tag: u16, session: u32, number: u32, token: u64, nonce: u64,
        ranges in prop::collection::vec((any::<u32>(), 0u32..1 << 31), 1..=MAX_RANGES),
    ) {
        let repr = request::Repr {
            kind: Kind::Data,
            tag,
            session: SessionId(session),
            number,
            round_trip_us: number,
            token,
            nonce,
            ranges: ranges.iter().map(|&(lo, n)| Range { lo, hi: lo.wrapping_add(n) }).collect(),
        };
        let mut bytes = vec![0; repr.buffer_len()];
        repr.emit(&mut bytes);
        prop_assert_eq!(request::Repr::parse(&bytes), Ok(repr));
    }

    #[test]
    fn report_round_trip(
        tag: u16, session: u32, receiver: u64, blocks: u64, token: u64, expected: u32, lost: u32,
    ) {
        let session = SessionId(session);
        let status = Status::Progress;
        let loss = Loss { expected: expected.max(lost), lost };
        let repr = Report { status, tag, session, receiver, blocks, token, digest: 0, loss };
        let mut bytes = [0; 40];
        repr.emit(&mut bytes);
        prop_assert_eq!(Report::parse(&bytes), Ok(repr));
    }

    #[test]
    fn a_number_survives_the_wire(first: u32, near in 0u64..1 << 48, off in -1000i64..1000) {
        let first = Seq(first);
        if let Some(number) = near.checked_add_signed(off) {
            prop_assert_eq!(Seq::of(number, first).number(first, near), Some(number));
        }
    }

    /// Machines in the middle of a session take any bytes, and the session still ends well.
    #[test]
    fn any_bytes(packets in prop::collection::vec(
        (0u8..12, any::<u8>(), prop::collection::vec(any::<u8>(), 0..160), any::<bool>()), 1..40,
    )) {
        let bytes = content(40_000, 9);
        let mut net = files(&bytes, 2, 9, sender_config(bytes.len()), &receiver_config());
        net.run_until(Duration::from_secs(10), |net| net.receiver(0).session().is_some());
        let session = net.sender().session();
        for (kind, flags, body, unicast) in packets {
            let mut packet = vec![0x10 | kind, flags, 0, 0];
            packet.extend_from_slice(&session.0.to_be_bytes());
            packet.extend_from_slice(&body);
            let from = if flags % 2 == 0 { source() } else { host(7) };
            let meta = if unicast { Meta::unicast(from) } else { Meta::group(from) };
            let _ = net.inject_to_sender(&meta, &packet);
            // Data that claims to be the source's is another test's matter: it can only be
            // found out with the block.
            if !matches!(kind, 1 | 2) {
                let _ = net.inject(0, &meta, &packet);
            }
        }
        net.run_until(Duration::from_secs(200), |net| net.all_complete());
        net.check_content(&bytes);
    }

    #[test]
    fn any_bytes_to_an_idle_receiver(packet in prop::collection::vec(any::<u8>(), 0..200)) {
        let config = ReceiverConfig::new(group());
        let mut receiver = Receiver::new(config, HeapRing::new(1 << 17), seed(1), Instant::ZERO);
        let _ = receiver.handle_packet(Instant::ZERO, &Meta::group(source()), &packet);
        let mut buffer = [0; 2048];
        prop_assert!(receiver.poll_transmit(Instant::ZERO, &mut buffer).is_none());
    }
}
