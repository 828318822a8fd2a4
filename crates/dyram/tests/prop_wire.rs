//! Parsers are total, and round trips hold.

use std::net::IpAddr;

use dyram::wire::{Body, Feedback, Join, Joined, MAX_PATH, Nack, Packet, Repr, Role, Status};
use dyram::{RelayId, Seq, SessionKey};
use proptest::prelude::*;

fn key() -> impl Strategy<Value = SessionKey> {
    let v4 = any::<[u8; 8]>().prop_map(|b| {
        let ip = |at: usize| IpAddr::from([b[at], b[at + 1], b[at + 2], b[at + 3]]);
        SessionKey::new(ip(0), ip(4)).unwrap()
    });
    let v6 = any::<[[u8; 16]; 2]>()
        .prop_map(|[a, b]| SessionKey::new(IpAddr::from(a), IpAddr::from(b)).unwrap());
    prop_oneof![v4, v6]
}

/// A service's body, and whether session and sequence must be 0.
fn body() -> impl Strategy<Value = (Body<'static>, bool, bool)> {
    const TEXT: &[u8] = b"anything at all";
    let nack =
        (any::<u64>(), any::<Option<u32>>(), any::<u16>()).prop_map(|(mask, ack, repeats)| {
            let ack = ack.map(Seq);
            Body::Nack(Nack { mask, ack, repeats })
        });
    let join = (0..3u8, any::<(u64, u32, u32, u32, u32, u32)>()).prop_map(|(role, fields)| {
        let (token, stamp, far_us, receivers, relay, round_trip_us) = fields;
        Body::Join(Join {
            role: [Role::Receiver, Role::Relay, Role::Source][usize::from(role)],
            token,
            stamp,
            far_us,
            receivers,
            relay: RelayId(relay),
            round_trip_us,
        })
    });
    let path = prop::collection::vec(any::<u32>(), 0..=MAX_PATH);
    let joined = (0..5usize, any::<(bool, u64, u32, u32, u16)>(), path).prop_map(
        |(status, (attached, token, stamp, repair_us, refresh_ms), path)| {
            let statuses = [
                Status::Joined,
                Status::Challenge,
                Status::Full,
                Status::Loop,
                Status::Draining,
            ];
            Body::Joined(Joined {
                status: statuses[status],
                live: true,
                attached,
                token,
                stamp,
                repair_us,
                refresh_ms,
                path: path.into_iter().map(RelayId).collect(),
            })
        },
    );
    let feedback = (any::<(u64, u32)>(), 1..TEXT.len()).prop_map(|((rank, held_us), len)| {
        Body::Feedback(Feedback {
            rank,
            held_us,
            message: &TEXT[..len],
        })
    });
    prop_oneof![
        (1..TEXT.len()).prop_map(|len| (Body::Data(&TEXT[..len]), false, false)),
        (1..TEXT.len()).prop_map(|len| (Body::Repair(&TEXT[..len]), false, false)),
        (1..TEXT.len()).prop_map(|len| (Body::Cast(&TEXT[..len]), false, false)),
        nack.prop_map(|body| (body, false, false)),
        Just((Body::Ack, false, false)),
        any::<u64>().prop_map(|mask| (Body::Absent(mask), false, false)),
        join.prop_map(|body| (body, true, true)),
        joined.prop_map(|body| (body, false, false)),
        any::<u64>().prop_map(|token| (Body::Leave(token), true, true)),
        any::<u64>().prop_map(|token| (Body::Move(token), true, true)),
        feedback.prop_map(|body| (body, false, true)),
    ]
}

fn repr() -> impl Strategy<Value = Repr<'static>> {
    (key(), body(), any::<(u32, u16, u32)>()).prop_map(|(key, body, (session, child, sequence))| {
        let (body, no_session, no_sequence) = body;
        Repr {
            key,
            session: if no_session { 0 } else { session },
            child,
            sequence: Seq(if no_sequence { 0 } else { sequence }),
            body,
        }
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read(repr in repr()) {
        let mut bytes = vec![0xaa; repr.buffer_len()];
        repr.emit(&mut bytes);
        let packet = Packet::new_checked(&bytes[..]).unwrap();
        prop_assert_eq!(Repr::parse(&packet), repr);
    }

    #[test]
    fn what_is_cut_short_is_refused(repr in repr()) {
        let mut bytes = vec![0; repr.buffer_len()];
        repr.emit(&mut bytes);
        for len in 0..bytes.len() {
            prop_assert!(Packet::new_checked(&bytes[..len]).is_err());
        }
    }

    #[test]
    fn a_flipped_bit_is_refused_or_read_as_another_packet(repr in repr(), bit in any::<usize>()) {
        let mut bytes = vec![0; repr.buffer_len()];
        repr.emit(&mut bytes);
        let bit = bit % (bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        if let Ok(packet) = Packet::new_checked(&bytes[..]) {
            let other = Repr::parse(&packet);
            prop_assert_ne!(&other, &repr);
            let mut again = vec![0; other.buffer_len()];
            other.emit(&mut again);
            prop_assert_eq!(again, bytes);
        }
    }

    #[test]
    fn anything_at_all_is_read_without_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Packet::new_checked(&bytes[..]);
        if bytes.len() >= 44 {
            let len = bytes.len() as u16;
            bytes[..32].copy_from_slice(&[
                1, 0x80, 0x44, 0x59, 0, 8, (len >> 8) as u8, len as u8, 0, 1, 0, 3, 0, 0, 0, 1, 10, 0,
                0, 1, 0, 2, 0, 3, 0, 0, 0, 1, 239, 1, 2, 3,
            ]);
            if let Ok(packet) = Packet::new_checked(&bytes[..]) {
                let repr = Repr::parse(&packet);
                let mut again = vec![0; repr.buffer_len()];
                repr.emit(&mut again);
                prop_assert_eq!(again, bytes);
            }
        }
    }
}
