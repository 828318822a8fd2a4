#![cfg(feature = "alloc")]

use alloc::vec;

use super::*;

/// A window over four blocks.
fn window() -> Window<'static> {
    Window::new(vec![7; 5].into())
}

#[test]
fn without_room_for_a_block_there_is_no_window() {
    for len in [0, 1] {
        let mut window = Window::new(vec![0; len].into());
        assert!(!window.is_used());
        assert_eq!(window.blocks(), 0);
        assert!(!window.moved(None, 0, 0));
        assert!(!window.enter(0));
        window.left(0);
        assert_eq!((window.slowest(), window.limit()), (None, u64::MAX));
    }
    assert!(Window::new(vec![0; 2].into()).is_used());
}

#[test]
fn new_data_stays_within_the_window_of_the_slowest_receiver() {
    let mut window = window();
    assert_eq!(window.blocks(), 4);
    assert_eq!((window.slowest(), window.limit()), (None, u64::MAX));
    assert!(window.moved(None, 0, 0));
    assert!(window.moved(None, 2, 3));
    assert_eq!((window.slowest(), window.limit()), (Some(0), 4));
    assert!(window.moved(Some(0), 3, 3));
    assert_eq!((window.slowest(), window.limit()), (Some(2), 6));
    // Round the ring of counts.
    assert!(window.moved(Some(3), 6, 6));
    assert!(window.moved(Some(2), 5, 6));
    assert_eq!((window.slowest(), window.limit()), (Some(5), 9));
    window.left(5);
    assert_eq!((window.slowest(), window.limit()), (Some(6), 10));
    window.left(6);
    assert_eq!((window.slowest(), window.limit()), (None, u64::MAX));
}

#[test]
fn several_receivers_at_one_block_leave_it_one_by_one() {
    let mut window = window();
    for _ in 0..3 {
        assert!(window.moved(None, 1, 1));
    }
    window.left(1);
    assert!(window.moved(Some(1), 2, 2));
    assert_eq!(window.slowest(), Some(1));
    assert!(window.moved(Some(1), 4, 4));
    assert_eq!(window.slowest(), Some(2));
}

#[test]
fn a_receiver_further_back_than_the_window_is_not_waited_for() {
    let mut window = window();
    assert!(
        !window.moved(None, 2, 10),
        "10 blocks begun, and 6 in reach"
    );
    assert_eq!(window.slowest(), None);
    assert!(window.moved(None, 6, 10));
    assert!(!window.moved(None, 5, 10));
    assert_eq!((window.slowest(), window.limit()), (Some(6), 10));
    assert!(window.moved(None, 10, 10));
    assert!(!window.moved(None, 11, 10), "past the window");
    window.left(6);
    assert_eq!(window.slowest(), Some(10));
}

#[test]
fn a_receiver_that_moves_out_of_the_window_no_longer_counts() {
    let mut window = window();
    assert!(window.moved(None, 0, 4));
    assert!(window.moved(None, 3, 4));
    assert!(!window.moved(Some(0), 5, 5));
    assert_eq!(window.slowest(), Some(3));
}

#[test]
fn a_window_that_is_restarted_forgets_all_and_takes_in_what_lies_within() {
    let mut window = window();
    assert!(window.moved(None, 1, 1));
    window.restart(5);
    assert_eq!(window.slowest(), None);
    for outside in [4, 10] {
        assert!(!window.enter(outside), "{outside}");
    }
    assert_eq!(window.slowest(), None);
    assert!(window.enter(5));
    assert!(window.enter(9));
    assert!(window.enter(9));
    assert_eq!((window.slowest(), window.limit()), (Some(5), 9));
    window.left(5);
    assert_eq!((window.slowest(), window.limit()), (Some(9), 13));
    window.left(9);
    window.left(9);
    assert_eq!(window.slowest(), None);
}
