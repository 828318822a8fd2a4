//! Numbered frames in a stream that is cut and damaged.

use bfed_client::frames::{Deframer, Found, HEADER_LEN, MAX_PAYLOAD, emit_data, emit_end};

fn stream(count: u64) -> (Vec<u8>, Vec<u8>) {
    let (mut all, mut data, mut frame) = (vec![], vec![], vec![]);
    for number in 0..count {
        let payload: Vec<u8> = (0..number * 37 % 1400)
            .map(|n| (n * number) as u8)
            .collect();
        emit_data(number, &payload, &mut frame);
        all.extend_from_slice(&frame);
        data.extend_from_slice(&payload);
    }
    emit_end(
        count,
        data.len() as u64,
        blake3::hash(&data).as_bytes(),
        &mut frame,
    );
    all.extend_from_slice(&frame);
    (all, data)
}

fn read(pieces: impl Iterator<Item = Vec<u8>>) -> (Vec<Found>, Deframer) {
    let (mut deframer, mut found) = (Deframer::default(), vec![]);
    for piece in pieces {
        deframer.push(&piece);
        found.extend(std::iter::from_fn(|| deframer.next()));
    }
    (found, deframer)
}

#[test]
fn a_data_frame_is_these_bytes() {
    let mut frame = vec![];
    emit_data(0x0102, b"hi", &mut frame);
    let head = [0x62, 0x46, 1, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2];
    let digest = blake3::hash(&[&head[..], &[0; 4], b"hi"].concat());
    assert_eq!(frame, [&head[..], &digest.as_bytes()[..4], b"hi"].concat());
}

#[test]
fn however_the_stream_is_cut_the_frames_are_the_same() {
    let (bytes, data) = stream(100);
    for size in [1, 19, 20, 21, 1000, 1_000_000] {
        let (found, deframer) = read(bytes.chunks(size).map(<[u8]>::to_vec));
        assert_eq!((found.len(), deframer.skipped), (101, 0));
        let mut joined = vec![];
        for (expected, one) in (0..).zip(&found[..100]) {
            let Found::Data { number, payload } = one else {
                panic!()
            };
            assert_eq!(*number, expected);
            joined.extend_from_slice(payload);
        }
        assert_eq!(joined, data);
        let digest = *blake3::hash(&data).as_bytes();
        let end = Found::End {
            frames: 100,
            bytes: data.len() as u64,
            digest,
        };
        assert_eq!(found[100], end);
    }
}

#[test]
fn after_a_gap_the_next_frames_are_found() {
    let (bytes, _) = stream(100);
    for (from, to) in [(0, 1), (3, 700), (5000, 5001), (20_000, 30_000)] {
        let left = [&bytes[..from], &bytes[to..]].concat();
        let (found, _) = read(left.chunks(1000).map(<[u8]>::to_vec));
        // Every frame that the gap does not touch.
        let (mut start, mut whole) = (0, vec![]);
        for number in 0..100 {
            let end = start + HEADER_LEN + (number * 37 % 1400) as usize;
            if end <= from || start >= to {
                whole.push(number);
            }
            start = end;
        }
        let numbers = found.iter().filter_map(|one| match one {
            Found::Data { number, .. } => Some(*number),
            _ => None,
        });
        assert_eq!(numbers.collect::<Vec<u64>>(), whole);
        assert!(matches!(found.last(), Some(Found::End { frames: 100, .. })));
    }
}

/// "How formats evolve" in `docs/wire.md`.
#[test]
fn frames_of_another_version_are_named() {
    let (mut first, mut second) = (vec![], vec![]);
    emit_data(0, b"one", &mut first);
    emit_data(1, b"two", &mut second);
    let other = |frame: &[u8], version: u8| {
        let mut other = frame.to_vec();
        other[2] = version;
        other[16..HEADER_LEN].fill(0);
        let check = blake3::hash(&other);
        other[16..HEADER_LEN].copy_from_slice(&check.as_bytes()[..4]);
        other
    };
    let newer = other(&first, 2);
    let (found, deframer) = read([newer.clone(), second.clone()].into_iter());
    let payload = b"two".to_vec();
    let data = Found::Data { number: 1, payload };
    assert_eq!(found, [Found::OtherVersion(2), data.clone()]);
    assert_eq!(deframer.skipped, newer.len() as u64);
    // What only looks like one is skipped at once: a frame after it is not kept waiting.
    let mut looks_like_one = newer[..HEADER_LEN].to_vec();
    looks_like_one[4] = 0xf0;
    let (found, _) = read([looks_like_one, second.clone()].into_iter());
    assert_eq!(found, std::slice::from_ref(&data));
    // An unknown kind is skipped.
    let mut unknown = first.clone();
    unknown[3] = 2;
    let unknown = other(&unknown, 1);
    let (found, deframer) = read([unknown, second].into_iter());
    assert_eq!((found, deframer.skipped), (vec![data], first.len() as u64));
}

#[test]
fn a_flipped_bit_costs_its_frame_and_no_other() {
    let mut frames = vec![];
    let mut frame = vec![];
    for number in 0..3 {
        emit_data(number, b"some payload", &mut frame);
        frames.push(frame.clone());
    }
    for bit in 0..frame.len() * 8 {
        let mut damaged = frames.clone();
        damaged[1][bit / 8] ^= 1 << (bit % 8);
        // Later bytes end what a longer length waits for.
        let after = vec![0; MAX_PAYLOAD + 1000];
        let (found, _) = read(damaged.into_iter().chain([after]));
        let numbers: Vec<u64> = found
            .iter()
            .map(|one| match one {
                Found::Data { number, .. } => *number,
                end => panic!("{end:?}"),
            })
            .collect();
        assert_eq!(numbers, [0, 2], "bit {bit}");
    }
}
