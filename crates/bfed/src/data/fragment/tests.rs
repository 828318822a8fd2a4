//! Frames in fragments, without edges.

use super::*;

const NOW: Instant = Instant::from_secs(100);
const KEEP: Duration = Duration::from_millis(500);
const EDGE: EdgeId = EdgeId {
    index: 1,
    generation: 0,
};
const OTHER: EdgeId = EdgeId {
    index: 2,
    generation: 0,
};

fn piece(frame: u32, index: u8, count: u8, bytes: &[u8]) -> Vec<u8> {
    let mut payload = vec![0; fragment::LEN];
    Repr {
        frame,
        index,
        count,
    }
    .emit(&mut payload);
    payload.extend(bytes);
    payload
}

fn join(assembly: &mut Assembly, now: Instant, payload: &[u8]) -> (Joined, u64) {
    assembly.join((now, KEEP), 1, EDGE, payload)
}

/// Returns the bytes of a link's incomplete frames, counted anew, after a comparison with the sum that is kept.
fn held(assembly: &Assembly, link: u32) -> usize {
    let Some(frames) = assembly.links.get(&link) else {
        return 0;
    };
    let counted: usize = frames.map.values().map(Partial::cost).sum();
    assert_eq!(frames.bytes, counted);
    counted
}

#[test]
fn a_frame_is_cut_into_as_few_pieces_as_fit_and_joined_again() {
    for (len, count) in [
        (1, 1),
        (99, 1),
        (100, 1),
        (101, 2),
        (200, 2),
        (201, 3),
        (6400, 64),
    ] {
        let frame: Vec<u8> = (0..len).map(|at| at as u8).collect();
        let mut assembly = Assembly::new(u32::MAX);
        let pieces = assembly
            .cut(&frame, 100 + fragment::LEN)
            .expect("few enough");
        assert_eq!(pieces.len(), count);
        assert!(
            pieces
                .iter()
                .all(|piece| piece.len() <= 100 + fragment::LEN)
        );
        let numbers: Vec<_> = pieces.iter().map(|one| Repr::parse(one)).collect();
        if count > 1 {
            let mut whole = None;
            for (index, payload) in pieces.iter().enumerate() {
                let repr = numbers[index].expect("a fragment");
                assert_eq!((repr.frame, usize::from(repr.index)), (0, index));
                assert!(whole.is_none());
                match join(&mut assembly, NOW, payload).0 {
                    Joined::Whole(joined) => whole = Some(joined),
                    Joined::Waits => {}
                    Joined::Malformed => panic!(),
                }
            }
            assert_eq!(whole.as_deref(), Some(&frame[..]));
        }
    }
}

#[test]
fn frames_have_different_numbers_and_those_that_are_too_long_none() {
    let mut assembly = Assembly::new(7);
    let number =
        |pieces: Option<Vec<Arc<[u8]>>>| Repr::parse(&pieces?[0]).ok().map(|repr| repr.frame);
    assert_eq!(
        number(assembly.cut(&[0; 200], 100 + fragment::LEN)),
        Some(8)
    );
    assert_eq!(
        number(assembly.cut(&[0; 200], 100 + fragment::LEN)),
        Some(9)
    );
    assert!(assembly.cut(&[0; 6401], 100 + fragment::LEN).is_none());
    assert!(
        assembly.cut(&[0; 2], fragment::LEN).is_none(),
        "no room for a byte"
    );
    assert!(assembly.cut(&[0; 2], fragment::LEN - 1).is_none());
    assert_eq!(
        assembly
            .cut(&[0; 2], fragment::LEN + 1)
            .map(|all| all.len()),
        Some(2)
    );
}

#[test]
fn a_frame_may_have_the_longest_payload_and_no_more() {
    let half = MAX_PAYLOAD_LEN / 2;
    for extra in [0, 1] {
        let mut assembly = Assembly::new(0);
        join(&mut assembly, NOW, &piece(1, 0, 2, &vec![0; half]));
        let rest = vec![0; MAX_PAYLOAD_LEN - half + extra];
        let (joined, dropped) = join(&mut assembly, NOW, &piece(1, 1, 2, &rest));
        match (joined, extra) {
            (Joined::Whole(frame), 0) => assert_eq!(frame.len(), MAX_PAYLOAD_LEN),
            (Joined::Malformed, 1) => assert_eq!(dropped, 1),
            other => panic!("{other:?}"),
        }
        assert_eq!(held(&assembly, 1), 0);
    }
}

#[test]
fn a_fragment_that_does_not_fit_the_others_ends_its_frame() {
    let mut assembly = Assembly::new(0);
    join(&mut assembly, NOW, &piece(1, 0, 3, b"a"));
    let (joined, dropped) = join(&mut assembly, NOW, &piece(1, 1, 2, b"b"));
    assert!(matches!(joined, Joined::Malformed));
    assert_eq!((dropped, held(&assembly, 1)), (1, 0));
    let (joined, dropped) = join(&mut assembly, NOW, b"no fragment");
    assert!(matches!(joined, Joined::Malformed));
    assert_eq!(dropped, 0);
}

#[test]
fn the_same_fragment_twice_counts_once() {
    let mut assembly = Assembly::new(0);
    join(&mut assembly, NOW, &piece(1, 0, 2, b"first"));
    let before = held(&assembly, 1);
    let (joined, _) = join(&mut assembly, NOW, &piece(1, 0, 2, b"other"));
    assert!(matches!(joined, Joined::Waits));
    assert_eq!(held(&assembly, 1), before);
    let (Joined::Whole(frame), _) = join(&mut assembly, NOW, &piece(1, 1, 2, b"last")) else {
        panic!();
    };
    assert_eq!(&frame[..], b"firstlast");
}

#[test]
fn frames_are_given_up_after_the_delay() {
    let mut assembly = Assembly::new(0);
    join(&mut assembly, NOW, &piece(1, 0, 2, b"a"));
    join(
        &mut assembly,
        NOW + Duration::from_millis(1),
        &piece(2, 0, 2, b"a"),
    );
    let (joined, dropped) = join(&mut assembly, NOW + KEEP, &piece(3, 0, 2, b"a"));
    assert!(matches!(joined, Joined::Waits));
    assert_eq!(dropped, 0, "the first is just in time");
    let late = NOW + KEEP + Duration::from_micros(1);
    let (joined, dropped) = join(&mut assembly, late, &piece(2, 1, 2, b"b"));
    assert!(matches!(joined, Joined::Whole(_)));
    assert_eq!(dropped, 1, "the first frame");
    // What comes of it now begins a frame of its own.
    let (joined, _) = join(&mut assembly, late, &piece(1, 1, 2, b"b"));
    assert!(matches!(joined, Joined::Waits));
}

#[test]
fn each_peer_has_two_mebibytes() {
    let mut assembly = Assembly::new(0);
    let long = vec![0; 30_000];
    let mut dropped = 0;
    for frame in 0..200 {
        dropped += join(&mut assembly, NOW, &piece(frame, 0, 2, &long)).1;
        assert!(held(&assembly, 1) <= MAX_BYTES);
    }
    // Its own cost is 30,000 bytes and 320 more.
    assert_eq!(dropped, 200 - (MAX_BYTES as u64) / 30_320);
    // Many short ones are bounded too.
    let mut assembly = Assembly::new(0);
    for frame in 0..20_000 {
        join(&mut assembly, NOW, &piece(frame, 0, 64, b"a"));
    }
    assert!(held(&assembly, 1) <= MAX_BYTES);
    let frames = assembly.links[&1].map.len();
    assert!((800..1000).contains(&frames), "2.3 kB each: {frames}");
    assert!(assembly.links[&1].order.len() <= frames);
    // Another peer is not concerned.
    let (joined, dropped) = assembly.join((NOW, KEEP), 2, OTHER, &piece(1, 0, 2, &long));
    assert!(matches!(joined, Joined::Waits));
    assert_eq!(dropped, 0);
}

#[test]
fn the_frames_of_an_edge_that_is_removed_are_forgotten() {
    let mut assembly = Assembly::new(0);
    assembly.join((NOW, KEEP), 1, EDGE, &piece(1, 0, 2, b"a"));
    assembly.join((NOW, KEEP), 1, OTHER, &piece(1, 0, 2, b"a"));
    assembly.join((NOW, KEEP), 1, EDGE, &piece(2, 0, 2, b"a"));
    assembly.forget(2, EDGE);
    let three = held(&assembly, 1);
    assembly.forget(1, EDGE);
    assert_eq!(held(&assembly, 1) * 3, three);
    assert_eq!(assembly.links[&1].order.len(), 1);
    // The other's frame is still completed.
    let (joined, _) = assembly.join((NOW, KEEP), 1, OTHER, &piece(1, 1, 2, b"b"));
    assert!(matches!(joined, Joined::Whole(_)));
    assembly.forget(1, OTHER);
    assert!(assembly.links.is_empty(), "no memory is left for the link");
}
