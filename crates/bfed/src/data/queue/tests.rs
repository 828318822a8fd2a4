//! Which packets leave, and which are dropped.

use alloc::vec;
use alloc::vec::Vec;

use super::*;

const START: Instant = Instant::from_secs(100);
/// Room for ten packets of these tests.
const MAX: usize = 1000;

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A packet of 100 bytes that comes at once; its first byte is `name`.
fn packet(name: u8, priority: Priority, lifetime: u64) -> Waiting {
    let timing = Timing {
        class: Class::new(priority, millis(lifetime)),
        born: START,
    };
    let bytes = [name; 100].into();
    Waiting::new(START, timing, timing.expires(), (Kind::Data, bytes))
}

fn fragment(frame: u32, index: u8, priority: Priority) -> Waiting {
    let mut bytes = vec![0; 100];
    Fragment {
        frame,
        index,
        count: 10,
    }
    .emit(&mut bytes);
    Waiting {
        payload: (Kind::Fragment, bytes.into()).into(),
        ..packet(0, priority, 500)
    }
}

fn names(queue: &mut Queue) -> Vec<u8> {
    core::iter::from_fn(|| queue.pop())
        .map(|packet| packet.payload.bytes[0])
        .collect()
}

#[test]
fn packets_leave_in_the_order_in_which_they_came() {
    let mut queue = Queue::default();
    let priorities = [3, 0, 1, 2, 0, 3].map(Priority::from_bits);
    for (name, priority) in (0..).zip(priorities) {
        assert_eq!(queue.push(packet(name, priority, 500), MAX), 0);
    }
    assert_eq!((queue.len(), queue.bytes()), (6, 600));
    assert_eq!(names(&mut queue), [0, 1, 2, 3, 4, 5]);
    assert!(queue.is_empty() && queue.bytes() == 0);
}

#[test]
fn where_there_is_no_room_the_least_important_goes_first() {
    let mut queue = Queue::default();
    for name in 0..10 {
        let priority = if name % 5 == 0 {
            Priority::Key
        } else {
            Priority::Normal
        };
        queue.push(packet(name, priority, 500), MAX);
    }
    assert_eq!(queue.push(packet(10, Priority::Key, 500), MAX), 1);
    assert_eq!(queue.push(packet(11, Priority::Normal, 500), MAX), 1);
    // It is itself the least important.
    assert_eq!(queue.push(packet(12, Priority::Discardable, 500), MAX), 1);
    assert_eq!(names(&mut queue), [0, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
    // Among equals the oldest, whatever they are.
    for name in 0..12 {
        queue.push(packet(name, Priority::Key, 500), MAX);
    }
    assert_eq!(names(&mut queue), (2..12).collect::<Vec<_>>());
}

#[test]
fn a_frame_in_fragments_goes_whole_and_other_priorities_stay() {
    let mut queue = Queue::default();
    for index in 0..4 {
        queue.push(fragment(7, index, Priority::Normal), MAX);
        queue.push(packet(index, Priority::Key, 500), MAX);
    }
    queue.push(fragment(8, 0, Priority::Normal), MAX);
    queue.push(fragment(8, 1, Priority::Normal), MAX);
    assert_eq!(queue.push(packet(9, Priority::Key, 500), MAX), 4);
    assert_eq!(queue.len(), 7);
}

#[test]
fn what_would_arrive_after_its_deadline_never_leaves() {
    let mut queue = Queue::default();
    for (name, lifetime) in [(0, 100), (1, 300), (2, 100), (3, 500)] {
        queue.push(packet(name, Priority::Normal, lifetime), MAX);
    }
    assert_eq!(
        queue.drop_late(START + millis(100), Duration::ZERO),
        Lost::default()
    );
    assert_eq!(queue.drop_late(START + millis(101), Duration::ZERO).late, 1);
    // The one with a long lifetime goes, then the next late one is found.
    assert_eq!(queue.pop().map(|packet| packet.payload.bytes[0]), Some(1));
    assert_eq!(queue.drop_late(START + millis(101), Duration::ZERO).late, 1);
    assert_eq!(names(&mut queue), [3]);
}

#[test]
fn a_frame_that_has_waited_half_its_time_gives_way_to_a_more_important_one() {
    let fill = || {
        let mut queue = Queue::default();
        for (name, priority) in [(0, 1), (1, 0), (2, 3), (3, 1)] {
            queue.push(packet(name, Priority::from_bits(priority), 200), MAX);
        }
        queue
    };
    let mut queue = fill();
    assert_eq!(
        queue.drop_late(START + millis(100), Duration::ZERO),
        Lost::default()
    );
    let lost = queue.drop_late(START + millis(101), Duration::ZERO);
    assert_eq!((lost.late, lost.yielded), (0, 2));
    // No more important one waits behind these.
    assert_eq!(names(&mut queue), [2, 3]);
    // Without a deadline nothing gives way.
    let mut queue = fill();
    for class in &mut queue.inner.as_mut().expect("packets").classes {
        class.iter_mut().for_each(|packet| packet.expires = None);
    }
    assert_eq!(
        queue.drop_late(START + millis(10_000), Duration::ZERO),
        Lost::default()
    );
}

#[test]
fn the_way_to_the_receiver_is_no_time_of_waiting() {
    let mut queue = Queue::default();
    for (name, priority) in [(0, Priority::Normal), (1, Priority::Key)] {
        queue.push(packet(name, priority, 200), MAX);
    }
    // 90 ms are left to wait here.
    let transit = millis(110);
    assert_eq!(
        queue.drop_late(START + millis(45), transit),
        Lost::default()
    );
    assert_eq!(queue.drop_late(START + millis(46), transit).yielded, 1);
    assert_eq!(queue.drop_late(START + millis(91), transit).late, 1);
}

#[test]
fn a_frame_that_does_not_fit_leaves_no_fragments_behind() {
    let fill = |keys| {
        let mut queue = Queue::default();
        for name in 0..keys {
            queue.push(packet(name, Priority::Key, 500), MAX);
        }
        queue
    };
    // It must not drop its own beginning and keep its end.
    let mut queue = fill(9);
    let dropped = (0..3).map(|index| queue.push(fragment(7, index, Priority::Normal), MAX));
    assert_eq!(dropped.sum::<u64>(), 3);
    assert_eq!(queue.len(), 9);
    // The next frame is another one.
    assert_eq!(queue.push(fragment(8, 0, Priority::Normal), MAX), 0);
    // With a frame of its own importance before it, that one goes first.
    let mut queue = fill(8);
    queue.push(packet(9, Priority::Normal, 500), MAX);
    let dropped = (0..3).map(|index| queue.push(fragment(7, index, Priority::Normal), MAX));
    assert_eq!(dropped.sum::<u64>(), 4);
    assert_eq!(queue.len(), 8);
}

#[test]
fn empty_packets_take_room() {
    let mut queue = Queue::default();
    for _ in 0..1000 {
        let empty = Waiting {
            payload: (Kind::Data, Arc::default()).into(),
            ..packet(0, Priority::Key, 60_000)
        };
        queue.push(empty, MAX);
    }
    assert!(queue.len() <= MAX / size_of::<Waiting>());
}

#[test]
fn the_age_is_what_a_frame_will_have_on_arrival() {
    let timing = Timing {
        class: Class::new(Priority::Key, millis(200)),
        born: START,
    };
    assert_eq!(timing.age_ms(START + millis(40), millis(7)), 47);
    assert_eq!(
        timing.age_ms(START + Duration::from_micros(499), Duration::ZERO),
        0
    );
    assert_eq!(
        timing.age_ms(START + Duration::from_micros(500), Duration::ZERO),
        1
    );
    assert_eq!(timing.age_ms(START + millis(100_000), millis(1)), u16::MAX);
    assert_eq!(timing.expires(), Some(START + millis(200)));
}

#[test]
fn an_initialisation_can_leave_before_what_waits() {
    let mut queue = Queue::default();
    for name in 1..4 {
        queue.push(packet(name, Priority::Key, 500), MAX);
    }
    let init = Waiting {
        payload: (Kind::Init, [9; 100].into()).into(),
        ..packet(9, Priority::Key, 500)
    };
    queue.push(init, MAX);
    queue.put_init_first();
    queue.push(packet(4, Priority::Discardable, 500), MAX);
    let left = core::iter::from_fn(|| queue.pop()).map(|packet| packet.payload.bytes[0]);
    assert_eq!(left.collect::<Vec<_>>(), [9, 1, 2, 3, 4]);
}
