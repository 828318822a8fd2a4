use alloc::vec;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

use super::*;

const HOLD_DOWN: Duration = Duration::from_millis(100);
const AGGREGATE: Duration = Duration::from_millis(5);
const FRAME_LEN: usize = 1_000;

fn at(millis: i64) -> Instant {
    Instant::from_millis(millis)
}

fn repairs(rate_bps: Option<u64>) -> Repairs<'static> {
    let limits = TargetLimits {
        rate_bps,
        depth_len: 2 * FRAME_LEN,
    };
    Repairs::new(
        vec![Pending::default(); 4].into(),
        vec![HoldDown::default(); 64].into(),
        vec![TargetEntry::default(); 4].into(),
        limits,
        HOLD_DOWN,
    )
}

/// Packets of a block, requested with tag 1.
fn packets(block: u32, mask: u64) -> Wanted {
    Wanted {
        block,
        mask,
        with: With::Packets,
        tag: 1,
    }
}

/// So much parity of a block, requested with tag 1.
fn parity(block: u32, count: u32) -> Wanted {
    Wanted {
        mask: crate::geometry::low_bits(count),
        with: With::Parity,
        ..packets(block, 0)
    }
}

/// The table index of a receiver.
fn receiver(repairs: &mut Repairs<'_>, now: Instant, number: u8) -> u16 {
    let address = SocketAddr::from((Ipv4Addr::new(10, 0, 0, number), 4_000));
    let target = repairs.target(now, Target::Unicast(address));
    target.expect("room for it")
}

/// Makes all repairs that are due: targets with block and packet.
fn make(repairs: &mut Repairs<'_>, now: Instant) -> Vec<(Target, u32, u32)> {
    let mut made = Vec::new();
    while let Some((at, repair)) = repairs.peek(now, FRAME_LEN) {
        repairs.done(now, at, Some(FRAME_LEN));
        made.push((repair.target, repair.block, repair.index));
    }
    made
}

fn unicast(number: u8) -> Target {
    Target::Unicast(SocketAddr::from((Ipv4Addr::new(10, 0, 0, number), 4_000)))
}

#[test]
fn a_repair_is_held_down_for_its_target_alone() {
    let mut repairs = repairs(None);
    assert!(repairs.is_empty());
    let relay = repairs.target(at(0), Target::Relay).expect("room");
    repairs
        .queue(at(0), GROUP, &packets(7, 0b101))
        .expect("new");
    assert!(!repairs.is_empty());
    let made = make(&mut repairs, at(0));
    assert_eq!(made, [(Target::Group, 7, 0), (Target::Group, 7, 2)]);
    assert!(repairs.is_empty());
    let again = repairs.queue(at(99), GROUP, &packets(7, 0b101));
    assert_eq!(again, Err(Error::RequestHeldDown));
    repairs
        .queue(at(99), GROUP, &packets(7, 0b111))
        .expect("one is new");
    assert_eq!(make(&mut repairs, at(99)), [(Target::Group, 7, 1)]);
    repairs
        .queue(at(99), relay, &packets(7, 0b001))
        .expect("not for it");
    repairs
        .queue(at(99), GROUP, &packets(8, 0b001))
        .expect("another block");
    assert_eq!(make(&mut repairs, at(99)).len(), 2);
    // Its end is not part of it.
    repairs
        .queue(at(100), GROUP, &packets(7, 0b101))
        .expect("over");
}

#[test]
fn a_longer_hold_down_holds_from_then_on_and_a_shorter_one_does_not() {
    let mut repairs = repairs(None);
    repairs.extend_hold_down(Duration::from_millis(300));
    repairs.extend_hold_down(Duration::from_millis(200));
    repairs.queue(at(0), GROUP, &packets(1, 1)).expect("new");
    make(&mut repairs, at(0));
    let again = repairs.queue(at(299), GROUP, &packets(1, 1));
    assert_eq!(again, Err(Error::RequestHeldDown));
    repairs.queue(at(300), GROUP, &packets(1, 1)).expect("over");
}

#[test]
fn packets_of_neighbouring_blocks_have_numbers_of_their_own() {
    let mut repairs = repairs(None);
    repairs.set_packets_per_block(2);
    assert!(repairs.hold_once(at(0), GROUP, 3));
    assert!(!repairs.hold_once(at(0), GROUP, 3));
    assert!(repairs.hold_once(at(0), GROUP, 4));
    // Packet 3 is the second of block 1.
    let held = repairs.queue(at(0), GROUP, &packets(1, 0b10));
    assert_eq!(held, Err(Error::RequestHeldDown));
    repairs
        .queue(at(0), GROUP, &packets(1, 0b01))
        .expect("packet 2");
}

#[test]
fn who_requests_alone_gets_it_alone_and_two_get_it_by_the_group() {
    let mut repairs = repairs(None);
    let (first, second) = (
        receiver(&mut repairs, at(0), 1),
        receiver(&mut repairs, at(0), 2),
    );
    let request = |repairs: &mut Repairs<'_>, now, from, mask| {
        repairs.queue_adaptive(now, from, &packets(7, mask), AGGREGATE)
    };
    request(&mut repairs, at(0), first, 0b00110).expect("new");
    assert_eq!(make(&mut repairs, at(4)), [], "others may ask too");
    assert_eq!(repairs.poll_timeout(FRAME_LEN), Some(at(5)));
    request(&mut repairs, at(4), second, 0b01100).expect("one is new");
    let made = make(&mut repairs, at(9));
    let expected = [
        (unicast(1), 7, 1),
        (Target::Group, 7, 2),
        (unicast(2), 7, 3),
    ];
    assert_eq!(made.len(), 3);
    assert!(
        expected.iter().all(|repair| made.contains(repair)),
        "{made:?}"
    );
    // The same receiver is held down, another one makes it a matter of the group.
    assert_eq!(
        request(&mut repairs, at(20), first, 0b00010),
        Err(Error::RequestHeldDown)
    );
    request(&mut repairs, at(20), first, 0b10010).expect("one is new");
    assert_eq!(make(&mut repairs, at(25)), [(unicast(1), 7, 4)]);
    request(&mut repairs, at(30), second, 0b00010).expect("for another");
    assert_eq!(make(&mut repairs, at(35)), [(Target::Group, 7, 1)]);
    assert_eq!(
        request(&mut repairs, at(36), first, 0b00010),
        Err(Error::RequestHeldDown)
    );
}

#[test]
fn a_request_that_waits_for_one_waits_for_the_group_when_another_asks_the_same() {
    let mut repairs = repairs(None);
    let (first, second) = (
        receiver(&mut repairs, at(0), 1),
        receiver(&mut repairs, at(0), 2),
    );
    for from in [first, second] {
        let queued = repairs.queue_adaptive(at(0), from, &packets(7, 0b1), AGGREGATE);
        queued.expect("new");
    }
    // What waited for the first is gone, and its place in the table may be taken.
    assert_eq!(repairs.targets[usize::from(first)].waiting, 0);
    let other_block = repairs.queue_adaptive(at(0), first, &packets(8, 0b1), AGGREGATE);
    other_block.expect("another block");
    let made = make(&mut repairs, at(5));
    assert_eq!(made, [(Target::Group, 7, 0), (unicast(1), 8, 0)]);
    assert!(repairs.targets.iter().all(|entry| entry.waiting == 0));
}

#[test]
fn a_target_that_comes_back_finds_the_tokens_that_are_left() {
    // 8 kbit/s: a frame a second.
    let mut repairs = repairs(Some(8_000));
    let first = receiver(&mut repairs, at(0), 1);
    assert!(repairs.allows(at(0), first, 2 * FRAME_LEN));
    assert!(!repairs.allows(at(0), first, 2 * FRAME_LEN + 1));
    repairs.spend(first, 2 * FRAME_LEN);
    assert!(!repairs.allows(at(999), first, FRAME_LEN));
    assert_eq!(repairs.allowed_at(first, FRAME_LEN), at(1_000));
    assert!(repairs.allows(at(1_000), first, FRAME_LEN));
    repairs.spend(first, FRAME_LEN);
    for number in 2..=4 {
        receiver(&mut repairs, at(1_000 + i64::from(number)), number);
    }
    let again = receiver(&mut repairs, at(1_010), 1);
    assert!(
        repairs.allows(at(1_010), again, FRAME_LEN),
        "the place of the second"
    );
    let place = &repairs.targets[usize::from(first)];
    assert_ne!(place.target, Some(unicast(1)), "it was evicted");
}

#[test]
fn generations_tell_targets_of_one_place_apart() {
    let mut repairs = repairs(None);
    let first = receiver(&mut repairs, at(0), 1);
    assert!(repairs.hold_once(at(0), first, 3));
    for number in 2..=3 {
        receiver(&mut repairs, at(i64::from(number)), number);
    }
    let fourth = receiver(&mut repairs, at(4), 4);
    assert_eq!(fourth, first, "in the place of the one unused longest");
    assert!(repairs.hold_once(at(5), fourth, 3));
    // What something waits for keeps its place.
    for number in [2, 3] {
        let target = receiver(&mut repairs, at(6), number);
        repairs.keep(target);
    }
    assert_eq!(receiver(&mut repairs, at(7), 5), fourth);
    repairs.keep(fourth);
    assert_eq!(
        repairs.target(at(8), unicast(6)),
        None,
        "all are waited for"
    );
    repairs.release(fourth);
    assert_eq!(repairs.target(at(8), unicast(6)), Some(fourth));
}

#[test]
fn the_queue_is_bounded() {
    let mut repairs = repairs(None);
    for block in 0..4 {
        repairs
            .queue(at(0), GROUP, &packets(block, 1))
            .expect("room");
    }
    assert_eq!(
        repairs.queue(at(0), GROUP, &packets(4, 1)),
        Err(Error::RepairsFull)
    );
    repairs
        .queue(at(0), GROUP, &packets(3, 2))
        .expect("a block that waits");
    assert_eq!(make(&mut repairs, at(0)).len(), 5);
    repairs
        .queue(at(0), GROUP, &packets(4, 1))
        .expect("room again");
    repairs.clear();
    assert!(repairs.is_empty());
}

#[test]
fn parity_for_the_worst_receiver_serves_the_others() {
    let mut repairs = repairs(None);
    let group = |count| (0..count).map(|unit| (Target::Group, 7, unit));
    repairs.queue(at(0), GROUP, &parity(7, 2)).expect("new");
    repairs
        .queue(at(0), GROUP, &parity(7, 3))
        .expect("one more");
    repairs
        .queue(at(0), GROUP, &parity(7, 1))
        .expect("served by those");
    assert_eq!(make(&mut repairs, at(0)), group(3).collect::<Vec<_>>());
    // Three are in flight to the group: a request for five gets two more.
    let served = repairs.queue(at(99), GROUP, &parity(7, 3));
    assert_eq!(served, Err(Error::RequestHeldDown));
    repairs
        .queue(at(99), GROUP, &parity(7, 5))
        .expect("two more");
    assert_eq!(make(&mut repairs, at(99)).len(), 2);
    repairs
        .queue(at(100), GROUP, &parity(7, 1))
        .expect("it was lost");
    // Packets of the block are another matter.
    repairs.queue(at(100), GROUP, &packets(7, 1)).expect("new");
    assert_eq!(make(&mut repairs, at(100)).len(), 2);
}

#[test]
fn parity_that_two_receivers_request_goes_to_the_group() {
    let mut repairs = repairs(None);
    let [first, second] = [1, 2].map(|number| receiver(&mut repairs, at(0), number));
    let mut request = |from, count| {
        let queued = repairs.queue_adaptive(at(0), from, &parity(7, count), AGGREGATE);
        queued.expect("room");
    };
    request(first, 3);
    request(second, 1);
    let made = make(&mut repairs, at(5));
    let alone = (unicast(1), 7);
    let expected = [
        (alone.0, alone.1, 1),
        (alone.0, alone.1, 2),
        (Target::Group, 7, 0),
    ];
    let mut sorted = made.clone();
    sorted.sort_by_key(|&(target, _, unit)| (target == Target::Group, unit));
    assert_eq!(sorted, expected);
}

#[test]
fn parity_in_advance_answers_no_request() {
    let mut repairs = repairs(None);
    let advance = Wanted {
        with: With::Advance,
        ..parity(7, 2)
    };
    repairs.queue(at(0), GROUP, &advance).expect("new");
    assert_eq!(make(&mut repairs, at(0)).len(), 2);
    repairs
        .queue(at(1), GROUP, &parity(7, 1))
        .expect("more than that");
    assert_eq!(make(&mut repairs, at(1)).len(), 1);
}
