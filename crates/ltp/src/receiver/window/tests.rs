#![cfg(feature = "alloc")]

use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::wire::Seq;

/// Blocks of four packets.
const ALL: u64 = 0b1111;
const GOOD: Digest = [1; 32];
const BAD: Digest = [2; 32];
const OTHER: Digest = [3; 32];

fn geometry() -> Geometry {
    Geometry::new(10, 256, Seq(0)).expect("four packets")
}

/// A window of eight blocks that begins at a block.
fn window(start: u64, is_read: bool) -> Window<'static> {
    let mut window = Window::new(vec![Slot::default(); 8].into());
    window.begin(&geometry(), start, 8, is_read);
    window
}

/// All packets of a block come, with that digest. Returns what the block is then.
fn fill(window: &mut Window<'_>, block: u64, value: Digest) -> Outcome {
    window.touch(block);
    assert_eq!(window.claim(block).add(ALL), ALL);
    window.compare(block, value, false)
}

/// Passes all blocks that are verified.
fn pass(window: &mut Window<'_>) {
    while window.next_verified().is_some() {
        window.pass();
    }
}

#[test]
fn a_power_of_two_of_slots_is_used() {
    for (slots, used) in [(1, 1), (2, 2), (3, 2), (7, 4), (8, 8), (9, 8)] {
        let window = Window::new(vec![Slot::default(); slots].into());
        assert_eq!(window.capacity(), used, "{slots}");
    }
}

#[test]
fn a_session_begins_at_a_block() {
    let mut window = window(5, false);
    assert_eq!((window.start(), window.frontier(), window.top()), (5, 5, 5));
    assert_eq!(
        (window.base(), window.end(), window.slots_end()),
        (5, 13, 13)
    );
    assert_eq!(window.consumed(), 5 << 10);
    assert_eq!(window.locate(&geometry(), 20), (5, 0));
    // Another one forgets the first.
    fill(&mut window, 5, GOOD);
    assert!(window.has_waiting());
    window.begin(&geometry(), 0, 4, false);
    assert_eq!((window.start(), window.top(), window.end()), (0, 0, 4));
    assert!(!window.has_waiting());
    assert_eq!(window.received(5), 0);
}

#[test]
fn packets_are_found_in_the_block_of_the_last_one_and_in_others() {
    let mut window = window(0, false);
    let geometry = geometry();
    for number in [0, 1, 3, 4, 7, 8, 30, 31, 29, 3, 2, 4, 28, 27, 0] {
        let expected = (number / 4, (number % 4) as u32);
        assert_eq!(window.locate(&geometry, number), expected, "{number}");
    }
}

#[test]
fn blocks_that_the_application_has_not_taken_stay_in_the_store() {
    let mut window = window(2, true);
    for block in 2..6 {
        fill(&mut window, block, GOOD);
        window.announce(block, GOOD, false);
    }
    pass(&mut window);
    assert_eq!(window.frontier(), 6);
    assert_eq!(
        (window.base(), window.end(), window.slots_end()),
        (2, 10, 14)
    );
    assert!(!window.consume(&geometry(), (3 << 10) - 1));
    assert_eq!(window.consumed(), (3 << 10) - 1);
    assert!(window.consume(&geometry(), 3 << 10));
    assert_eq!((window.base(), window.end()), (3, 11));
    assert!(window.consume(&geometry(), 6 << 10));
    assert_eq!((window.base(), window.end()), (6, 14));
    // A file's bytes are not taken.
    let mut window = self::window(2, false);
    fill(&mut window, 2, GOOD);
    window.announce(2, GOOD, false);
    pass(&mut window);
    assert!(!window.consume(&geometry(), 3 << 10));
    assert_eq!((window.base(), window.end()), (3, 11));
}

#[test]
fn the_newest_block_is_the_highest_of_which_a_packet_came() {
    let mut window = window(0, false);
    assert!(window.touch(0));
    assert!(!window.touch(0));
    assert!(window.touch(4));
    assert!(!window.touch(3));
    assert_eq!(window.top(), 5);
    window.shorten(3);
    assert_eq!(window.top(), 3);
    window.shorten(9);
    assert_eq!(window.top(), 3);
    fill(&mut window, 0, GOOD);
    window.announce(0, GOOD, false);
    pass(&mut window);
    window.shorten(0);
    assert_eq!(window.top(), 1, "it is final");
}

#[test]
fn a_slot_is_of_one_block_at_a_time() {
    let mut window = window(0, false);
    window.claim(1).add(0b0101);
    assert_eq!(window.claim(1).add(0b0010), 0b0111);
    assert_eq!(window.received(1), 0b0111);
    assert_eq!((window.received(0), window.received(9)), (0, 0));
    assert!(!window.claim(9).has(1));
    assert_eq!(window.received(1), 0);
    window.claim(9).add(0b1000);
    assert!(window.claim(9).has(0b1000) && !window.claim(9).has(0b0100));
}

#[test]
fn what_came_as_a_repair_is_noted_for_a_while() {
    let at = Instant::from_millis;
    let hold = Duration::from_millis(20);
    let mut window = window(0, false);
    let slot = window.claim(3);
    slot.add(0b0011);
    slot.note_repair(0b0001, at(10));
    slot.note_repair(0b0100, at(15));
    assert_eq!(window.repaired(3, at(34), hold), 0b0101);
    assert_eq!(window.repaired(3, at(35), hold), 0);
    assert_eq!(window.repaired(11, at(15), hold), 0);
    assert!(window.was_repaired(3, 0) && window.was_repaired(3, 2));
    assert!(!window.was_repaired(3, 1) && !window.was_repaired(11, 0));
}

#[test]
fn bytes_and_digest_are_compared_when_both_are_here() {
    use Outcome::{Rejected, Unsettled, Verified, Waits};
    // The bytes come first.
    let mut window = window(0, false);
    assert_eq!(fill(&mut window, 0, GOOD), Waits);
    assert!(window.has_waiting());
    assert_eq!(window.announce(0, GOOD, false), Verified);
    assert!(!window.has_waiting());
    assert_eq!(window.verified_digest(0), Some(&GOOD));
    assert_eq!(window.next_verified(), Some((GOOD, false)));
    assert_eq!(window.announce(0, BAD, true), Waits, "it is settled");
    assert_eq!(window.verified_digest(0), Some(&GOOD));
    // The digest comes first, and the first one counts.
    assert_eq!(window.announce(1, GOOD, false), Waits);
    assert_eq!(window.announce(1, BAD, false), Waits);
    assert!(!window.has_waiting());
    assert_eq!(fill(&mut window, 1, GOOD), Verified);
    // They disagree, in either order, until the source confirms one.
    assert_eq!(window.announce(2, BAD, false), Waits);
    assert_eq!(fill(&mut window, 2, GOOD), Waits);
    assert_eq!(fill(&mut window, 3, GOOD), Waits);
    assert_eq!(window.announce(3, BAD, false), Waits);
    assert_eq!(window.verified_digest(2), None);
    assert!(window.has_waiting());
    assert_eq!(window.announce(2, OTHER, false), Waits);
    assert_eq!(window.announce(2, GOOD, true), Unsettled);
    assert_eq!(window.compare(2, GOOD, false), Verified);
    assert_eq!(window.announce(3, BAD, true), Unsettled);
    assert_eq!(window.compare(3, GOOD, false), Rejected);
    // What the source has confirmed stands.
    assert_eq!(window.announce(4, GOOD, true), Waits);
    assert_eq!(window.announce(4, BAD, true), Waits);
    assert_eq!(window.announce(4, BAD, false), Waits);
    assert_eq!(fill(&mut window, 4, BAD), Rejected);
    assert_eq!(window.compare(4, GOOD, false), Verified);
    // And replaces what was announced.
    assert_eq!(window.announce(5, BAD, false), Waits);
    assert_eq!(window.announce(5, GOOD, true), Waits);
    assert_eq!(fill(&mut window, 5, GOOD), Verified);
    assert_eq!(fill(&mut window, 6, GOOD), Waits);
    assert_eq!(window.announce(6, BAD, true), Rejected);
}

#[test]
fn under_a_key_what_was_announced_is_confirmed() {
    let mut window = window(0, false);
    window.announce(0, BAD, false);
    window.claim(0).add(ALL);
    assert_eq!(window.compare(0, GOOD, true), Outcome::Rejected);
    assert_eq!(window.compare(0, BAD, true), Outcome::Verified);
    window.claim(1).add(ALL);
    assert_eq!(window.compare(1, GOOD, true), Outcome::Waits);
}

#[test]
fn a_block_that_is_whole_and_not_verified_is_missing() {
    let mut window = window(0, false);
    assert!(window.lacks(0, 0, ALL));
    window.claim(0).add(0b0010);
    assert!(window.lacks(0, 0, ALL));
    assert!(!window.lacks(0, 1, ALL));
    fill(&mut window, 0, GOOD);
    assert!((0..4).all(|index| window.lacks(0, index, ALL)));
    window.announce(0, GOOD, false);
    assert!((0..4).all(|index| !window.lacks(0, index, ALL)));
    // The last block, of two packets.
    window.claim(1).add(0b0011);
    assert!(window.lacks(1, 0, 0b0011));
}

/// The blocks of the first run that waits.
fn run(window: &Window<'_>, published: u64) -> Option<(u64, u64, bool)> {
    let waiting = window.waiting(published)?;
    Some((waiting.first, waiting.last, waiting.may_ask_group))
}

#[test]
fn digests_of_a_run_of_blocks_are_requested_at_once() {
    let mut window = window(0, false);
    assert_eq!(run(&window, 9), None);
    for block in [1, 2, 4] {
        fill(&mut window, block, GOOD);
    }
    assert_eq!(run(&window, 9), Some((1, 2, true)));
    assert_eq!(run(&window, 2), Some((1, 1, true)), "announced up to there");
    assert_eq!(run(&window, 1), None);
    assert_eq!(window.first_waiting(0, 0), None);
    assert_eq!(window.first_waiting(0, 1), Some(1));
    assert_eq!(window.first_waiting(3, 4), Some(4));
    assert_eq!(window.first_waiting(5, 7), None);
    // Blocks that dispute theirs come first, whatever was published, and only the source is asked.
    for block in [5, 6] {
        window.announce(block, BAD, false);
        fill(&mut window, block, GOOD);
    }
    fill(&mut window, 7, GOOD);
    assert_eq!(run(&window, 0), Some((5, 6, false)));
    assert_eq!(run(&window, 9), Some((5, 6, false)));
    assert_eq!(window.first_waiting(5, 7), Some(5));
}

#[test]
fn digests_before_the_frontier_are_not_requested() {
    let mut window = window(0, false);
    for block in 0..3 {
        fill(&mut window, block, GOOD);
    }
    window.announce(0, GOOD, false);
    pass(&mut window);
    assert_eq!(run(&window, 9), Some((1, 2, true)));
    assert_eq!(window.first_waiting(0, 2), Some(1));
    window.announce(1, GOOD, false);
    window.announce(2, GOOD, false);
    pass(&mut window);
    assert_eq!(run(&window, 9), None);
    assert_eq!(window.first_waiting(0, 9), None);
}

#[test]
fn a_request_for_digests_has_room_for_64() {
    let mut window = Window::new(vec![Slot::default(); 128].into());
    window.begin(&geometry(), 0, 128, false);
    for block in 0..100 {
        fill(&mut window, block, GOOD);
    }
    assert_eq!(run(&window, 200), Some((0, 63, true)));
    for block in 0..64 {
        window.announce(block, GOOD, false);
    }
    assert_eq!(run(&window, 200), Some((64, 99, true)));
}

#[test]
fn the_frontier_waits_for_what_later_digests_do_not_bring() {
    let mut window = window(0, false);
    assert!(!window.is_passed_by(5));
    fill(&mut window, 0, GOOD);
    assert!(window.is_passed_by(1));
    assert!(!window.is_passed_by(0));
    window.announce(0, BAD, false);
    assert!(window.is_passed_by(0), "it disputes its digest");
    window.announce(0, GOOD, true);
    window.compare(0, GOOD, false);
    assert!(!window.is_passed_by(1));
}

#[test]
fn bytes_and_digest_of_a_rejected_block_are_fetched_again_in_turn() {
    let mut window = window(0, false);
    assert_eq!(window.disagreements(), 0);
    for count in 1..=6 {
        assert_eq!(window.reject(3), count % 2 == 0, "{count}");
        assert_eq!(window.disagreements(), count);
    }
    assert!(!window.reject(4));
    for _ in 0..300 {
        window.reject(3);
    }
    assert_eq!(window.disagreements(), u8::MAX);
    fill(&mut window, 0, GOOD);
    window.announce(0, GOOD, false);
    pass(&mut window);
    assert_eq!(window.disagreements(), 0, "a block is final");
}

#[test]
fn a_block_whose_digest_was_wrong_waits_for_another_one() {
    let mut window = window(0, false);
    window.announce(0, BAD, true);
    assert_eq!(fill(&mut window, 0, GOOD), Outcome::Rejected);
    window.reject(0);
    window.forget_digest(0, GOOD);
    assert!(window.has_waiting());
    assert_eq!(run(&window, 9), Some((0, 0, false)), "the source is asked");
    assert_eq!(window.received(0), ALL);
    assert_eq!(window.announce(0, GOOD, true), Outcome::Verified);
}

#[test]
fn a_block_that_loses_packets_is_open_again() {
    let mut window = window(0, false);
    fill(&mut window, 0, BAD);
    let slot = window.claim(0);
    slot.note_repair(0b1001, Instant::ZERO);
    assert_eq!(window.keep(0, ALL), 0, "nothing is lost");
    assert!(window.has_waiting());
    assert_eq!(window.keep(0, 0b0011), 0b1100);
    assert_eq!(window.received(0), 0b0011);
    assert!(window.was_repaired(0, 0) && !window.was_repaired(0, 3));
    assert!(
        !window.has_waiting(),
        "its digest is not that of all packets"
    );
    assert_eq!(window.announce(0, GOOD, false), Outcome::Waits);
    assert_eq!(fill(&mut window, 0, GOOD), Outcome::Verified);
    assert_eq!(window.keep(0, 0b0001), 0b1110);
    assert_eq!(window.next_verified(), None);
    // It keeps the digest that was announced.
    assert_eq!(fill(&mut window, 0, GOOD), Outcome::Verified);
    window.announce(1, BAD, false);
    fill(&mut window, 1, GOOD);
    assert_eq!(window.keep(1, 0), ALL);
    assert!(!window.has_waiting());
    assert_eq!(fill(&mut window, 1, BAD), Outcome::Verified);
    assert_eq!(window.keep(5, 0), 0);
}

#[test]
fn the_last_block_is_whole_when_the_end_is_known() {
    let mut window = window(0, false);
    window.claim(0).add(0b0111);
    assert!(!window.complete(0, ALL));
    assert!(window.complete(0, 0b0011), "and packets past it are none");
    assert_eq!(window.received(0), 0b0011);
    assert!(!window.complete(1, 0b0001), "nothing came");
    window.compare(0, GOOD, false);
    assert!(!window.complete(0, 0b0011), "it was whole before");
    window.announce(0, GOOD, false);
    assert!(!window.complete(0, 0b0011));
}

#[test]
fn an_audit_judges_each_block_anew() {
    let mut window = window(0, false);
    for block in 0..3 {
        fill(&mut window, block, GOOD);
        window.announce(block, GOOD, false);
    }
    pass(&mut window);
    window.rewind(3);
    assert_eq!((window.frontier(), window.top()), (0, 3));
    assert_eq!(window.received(0), 0);
    for block in 0..3 {
        window.audit(block, ALL);
        assert_eq!(window.received(block), ALL);
        assert_eq!(window.repairable(block), 0, "it may be wrong");
        assert!(!window.has_failed_audit(block));
    }
    assert_eq!(window.next_verified(), None);
    assert_eq!(window.first_waiting(0, 2), Some(0));
    assert_eq!(run(&window, 9), None, "the audit asks itself");
    window.judge(0, GOOD, true);
    assert_eq!(window.next_verified(), Some((GOOD, true)));
    assert_eq!(window.repairable(0), ALL);
    assert!(!window.has_failed_audit(0));
    assert_eq!(window.first_waiting(0, 2), Some(1));
    window.judge(1, OTHER, false);
    assert!(window.has_failed_audit(1));
    assert_eq!(window.verified_digest(1), None);
    assert_eq!(window.keep(1, 0), ALL);
    assert_eq!(fill(&mut window, 1, OTHER), Outcome::Verified);
    // What is taken from a block under audit leaves it so.
    window.keep(2, 0b0001);
    assert!(!window.has_failed_audit(2));
    window.keep(0, 0b0001);
    assert_eq!(window.next_verified(), None);
    assert!(!window.has_failed_audit(0));
    assert!(!window.has_failed_audit(7), "nothing is known of it");
}

#[test]
fn packets_of_open_blocks_may_be_given_to_others() {
    let mut window = window(0, false);
    assert_eq!(window.repairable(0), 0);
    window.claim(0).add(0b0110);
    assert_eq!(window.repairable(0), 0b0110);
}

#[test]
fn a_content_that_is_here_is_final() {
    let mut window = window(0, false);
    fill(&mut window, 1, GOOD);
    window.pass_all(7);
    assert_eq!((window.frontier(), window.top()), (7, 7));
    assert!(!window.has_waiting());
    assert_eq!(window.received(1), 0);
}

#[test]
fn without_digests_a_block_is_final_when_it_is_whole() {
    let mut window = window(0, false);
    window.claim(0).add(ALL);
    assert_eq!(window.next_verified(), None);
    window.accept(0);
    let verified: Vec<_> = (0..2).map(|block| window.lacks(block, 0, ALL)).collect();
    assert_eq!(verified, [false, true]);
    assert!(window.next_verified().is_some());
}
