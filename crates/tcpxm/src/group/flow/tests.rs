use core::net::Ipv4Addr;

use super::*;

const PAYLOAD: u64 = 1_000;
/// Larger than any segment: windows are no reason for short ones.
const WIDE: u64 = 30_000;

fn at(millis: i64) -> Instant {
    Instant::from_millis(millis)
}

fn group(last: u8) -> IpAddr {
    Ipv4Addr::new(239, 192, 0, last).into()
}

/// A flow of these receivers, numbered from 0, whose windows reach to `limit`, with this much data in the store.
fn flow(receivers: u32, limit: u64, unsent: u64) -> Flow {
    let mut flow = Flow::new(PAYLOAD as u16, 0, true);
    flow.unsent = unsent;
    flow.members = receivers;
    for receiver in 0..receivers {
        flow.limits.set(receiver as usize, limit);
        flow.unas.set(receiver as usize, 0);
        flow.unicast.push(receiver);
    }
    flow
}

/// How much is sent next, and why nothing is.
fn next(flow: &Flow, half_window: u64) -> Result<u64, Blocked> {
    let span = flow.sendable(at(0), half_window)?;
    assert_eq!(span.start, flow.nxt);
    Ok(span.len())
}

fn send(flow: &mut Flow, now: Instant, half_window: u64) -> Span {
    let span = flow.sendable(now, half_window).unwrap();
    flow.begin_burst(span, now, half_window);
    span
}

/// All copies of the current burst.
fn copies(flow: &mut Flow) -> Vec<(Copy, Span)> {
    core::iter::from_fn(|| flow.next_copy()).collect()
}

#[test]
fn whole_segments_go_a_burst_at_a_time() {
    assert_eq!(next(&flow(1, 100_000, 50_000), WIDE), Ok(16_000));
    assert_eq!(next(&flow(1, 100_000, 3_000), WIDE), Ok(3_000));
    assert_eq!(next(&flow(1, 3_999, 50_000), WIDE), Ok(3_000));
    assert_eq!(next(&flow(1, 1_000, 50_000), WIDE), Ok(1_000));
}

#[test]
fn nothing_goes_without_data_or_receivers() {
    assert_eq!(next(&flow(1, 100_000, 0), WIDE), Err(Blocked::Empty));
    assert_eq!(next(&flow(0, 100_000, 5_000), WIDE), Err(Blocked::Empty));
    let mut unknown = flow(1, 100_000, 5_000);
    unknown.limits.clear(0);
    assert_eq!(next(&unknown, WIDE), Err(Blocked::Window));
}

/// RFC 9293 §3.7.4: a short segment waits until all is acknowledged, unless it is the last.
#[test]
fn a_short_segment_waits_while_something_is_in_flight() {
    let mut small = flow(1, 100_000, 500);
    assert_eq!(next(&small, WIDE), Ok(500));
    small.unas.set(0, 0);
    small.nxt = 700;
    assert_eq!(next(&small, WIDE), Err(Blocked::Nagle));
    small.override_once = true;
    assert_eq!(next(&small, WIDE), Ok(500));
    small.override_once = false;
    small.closing = true;
    assert_eq!(next(&small, WIDE), Ok(500));
    small.closing = false;
    small.nagle = false;
    assert_eq!(next(&small, WIDE), Ok(500));
    small.nagle = true;
    small.unas.set(0, 700);
    assert_eq!(next(&small, WIDE), Ok(500));
}

#[test]
fn a_short_rest_goes_with_whole_segments_where_it_need_not_wait() {
    let mut rest = flow(1, 100_000, 2_500);
    assert_eq!(next(&rest, WIDE), Ok(2_000), "it waits for more data");
    rest.nagle = false;
    assert_eq!(next(&rest, WIDE), Ok(2_500));
    rest.limits.set(0, 2_499);
    assert_eq!(next(&rest, WIDE), Ok(2_000), "no space");
    rest.limits.set(0, 2_500);
    assert_eq!(next(&rest, WIDE), Ok(2_500));
    rest.limits.set(0, 100_000);
    rest.unsent = 15_500;
    assert_eq!(next(&rest, WIDE), Ok(15_500));
    rest.unsent = 16_500;
    assert_eq!(next(&rest, WIDE), Ok(16_000), "the burst is full");
    rest.nagle = true;
    rest.closing = true;
    rest.unsent = 2_500;
    assert_eq!(next(&rest, WIDE), Ok(2_500), "the end of the stream");
}

/// RFC 9293 §3.8.6.2.1: less than a segment goes when it is half of the largest window, or after the timeout.
#[test]
fn a_small_window_is_used_when_it_is_half_of_the_largest() {
    let mut small = flow(1, 700, 5_000);
    assert_eq!(next(&small, 701), Err(Blocked::Window));
    assert_eq!(next(&small, 700), Ok(700));
    small.nxt = 100;
    assert_eq!(next(&small, 601), Err(Blocked::Window));
    assert_eq!(next(&small, 600), Ok(600), "a segment of a small window");
    small.nxt = 300;
    small.unas.set(0, 299);
    // Segments are never shorter than 64 bytes, so this window is for less than one.
    small.limits.set(0, 350);
    assert_eq!(next(&small, 40), Err(Blocked::Window), "not acknowledged");
    small.unas.set(0, 300);
    assert_eq!(next(&small, 40), Ok(50));
    small.override_once = true;
    assert_eq!(next(&small, WIDE), Ok(50));
    small.limits.set(0, 300);
    assert_eq!(next(&small, 0), Err(Blocked::Window));
}

#[test]
fn two_segments_fit_the_largest_window_but_none_is_tiny() {
    let segments = |half_window| {
        let mut flow = flow(1, 100_000, 5_000);
        send(&mut flow, at(0), half_window);
        copies(&mut flow)[0].1.len()
    };
    assert_eq!(
        [2_000, 1_000, 600, 64, 10].map(segments),
        [1_000, 1_000, 600, 64, 64]
    );
}

/// Which receivers hear the group is not known at first, and each segment costs a copy for each of them.
#[test]
fn little_is_in_flight_while_three_receivers_get_copies_that_may_be_needless() {
    let trial = |receivers| {
        let mut flow = flow(receivers, 100_000, 50_000);
        flow.add_listener(group(1));
        flow
    };
    let mut two = trial(2);
    assert_eq!(send(&mut two, at(0), WIDE).len(), 16_000);
    assert_eq!(next(&two, WIDE), Ok(16_000));
    let mut three = trial(3);
    assert_eq!(send(&mut three, at(0), WIDE).len(), 16_000);
    assert_eq!(next(&three, WIDE), Err(Blocked::Trial));
    for receiver in 0..3 {
        three.unas.set(receiver, 2_000);
    }
    assert_eq!(next(&three, WIDE), Ok(2_000));
    // The receivers' windows end there as well.
    for receiver in 0..3 {
        three.unas.set(receiver, 0);
        three.limits.set(receiver, 16_000);
    }
    assert_eq!(next(&three, WIDE), Err(Blocked::Window));
    for receiver in 0..3 {
        three.limits.set(receiver, 100_000);
    }
    let at_end = |millis| three.sendable(at(millis), WIDE).map(Span::len);
    assert_eq!(at_end(249), Err(Blocked::Trial));
    assert_eq!(
        at_end(250),
        Ok(16_000),
        "no later than a quarter of a second"
    );
    three.groups.clear();
    assert_eq!(next(&three, WIDE), Ok(16_000), "there is no group");
}

#[test]
fn the_trial_ends_a_quarter_of_a_second_after_the_first_data() {
    let mut flow = flow(3, 100_000, 50_000);
    flow.add_listener(group(1));
    send(&mut flow, at(0), WIDE);
    for receiver in 0..3 {
        flow.unas.set(receiver, 16_000);
    }
    assert_eq!(send(&mut flow, at(200), WIDE).len(), 16_000);
    assert_eq!(flow.sendable(at(249), WIDE), Err(Blocked::Trial));
    assert!(flow.sendable(at(250), WIDE).is_ok());
}

#[test]
fn a_pace_spreads_bursts() {
    let mut flow = flow(1, 100_000, 50_000);
    flow.headers = 50;
    flow.spread = Pace::at(8_000_000);
    send(&mut flow, at(0), WIDE);
    // 16,800 bytes with headers: a byte each microsecond.
    assert_eq!(flow.sendable(at(16), WIDE), Err(Blocked::Pace));
    let next = at(16) + Duration::from_micros(800);
    assert!(flow.sendable(next, WIDE).is_ok());
}

/// RFC 9293 §3.9.1.2: the last segment of what is there is pushed, and so is half of a window that fills up.
#[test]
fn the_last_segment_and_each_half_of_a_window_are_pushed() {
    let mut flow = flow(1, 100_000, 40_000);
    let span = send(&mut flow, at(0), 20_000);
    assert!(
        !flow.pushes(span.end),
        "more follows, and it is less than half of the window"
    );
    copies(&mut flow);
    let span = send(&mut flow, at(0), 20_000);
    assert!(!flow.pushes(span.end - PAYLOAD));
    assert!(flow.pushes(span.end), "32,000 since nothing was pushed");
    copies(&mut flow);
    let span = send(&mut flow, at(0), 20_000);
    assert_eq!(span.len(), 8_000);
    assert!(flow.pushes(span.end), "the last");
    copies(&mut flow);
    assert!(flow.pushes(span.end), "a repair of it too");
    assert!(!flow.pushes(span.end - 1));
    flow.unsent = 1;
    assert!(!flow.pushes(span.end), "more follows by now");
}

#[test]
fn half_of_a_window_counts_from_the_last_push() {
    let mut flow = flow(1, 200_000, 64_000);
    let pushes: Vec<bool> = (0..4)
        .map(|_| {
            let span = send(&mut flow, at(0), 32_000);
            let pushes = flow.pushes(span.end);
            copies(&mut flow);
            pushes
        })
        .collect();
    assert_eq!(pushes, [false, true, false, true]);
}

#[test]
fn a_burst_goes_to_each_group_that_is_listened_to_and_then_to_each_receiver() {
    let mut flow = flow(2, 100_000, 2_500);
    flow.nagle = false;
    flow.headers = 40;
    flow.add_listener(group(1));
    flow.add_listener(group(2));
    flow.add_listener(group(2));
    flow.add_listener(group(3));
    flow.remove_listener(group(2));
    flow.remove_listener(group(3));
    let span = flow.sendable(at(7), WIDE).unwrap();
    let bytes = flow.begin_burst(span, at(7), WIDE);
    assert_eq!(bytes, 4 * (2_500 + 3 * 40), "two groups, two receivers");
    assert_eq!((flow.nxt, flow.unsent), (2_500, 0));
    assert_eq!(flow.last_sent, Some(at(7)));
    assert_eq!(flow.log.times_of(2_499), Some((at(7), at(7))));
    let spans = [(0, 1_000), (1_000, 2_000), (2_000, 2_500)].map(|(a, b)| Span::new(a, b));
    let to = [
        Copy::Group(group(1)),
        Copy::Group(group(2)),
        Copy::Unicast(0),
        Copy::Unicast(1),
    ];
    let expected: Vec<_> = to
        .iter()
        .flat_map(|to| spans.map(|span| (*to, span)))
        .collect();
    assert_eq!(copies(&mut flow), expected);
    assert!(flow.burst.is_none());
}

#[test]
fn copies_can_be_looked_at_and_passed() {
    let mut flow = flow(2, 100_000, 2_500);
    flow.nagle = false;
    assert_eq!(flow.peek_copy(), None);
    send(&mut flow, at(0), WIDE);
    assert_eq!(
        flow.next_copy(),
        Some((Copy::Unicast(0), Span::new(0, 1_000)))
    );
    assert_eq!(flow.peek_copy(), Some(Span::new(1_000, 2_000)));
    flow.pass_copy();
    assert_eq!(flow.peek_copy(), Some(Span::new(2_000, 2_500)));
    flow.pass_copy();
    assert_eq!(
        flow.peek_copy(),
        None,
        "the next receiver is another destination"
    );
    assert_eq!(
        flow.next_copy(),
        Some((Copy::Unicast(1), Span::new(0, 1_000)))
    );
}

#[test]
fn what_all_receivers_have_is_not_copied() {
    let mut flow = flow(2, 100_000, 3_000);
    flow.add_listener(group(1));
    send(&mut flow, at(0), WIDE);
    for _ in 0..3 {
        assert!(matches!(flow.next_copy(), Some((Copy::Group(_), _))));
    }
    flow.unas.set(0, 1_500);
    flow.unas.set(1, 3_000);
    assert_eq!(
        copies(&mut flow),
        [
            (Copy::Unicast(0), Span::new(1_500, 2_500)),
            (Copy::Unicast(0), Span::new(2_500, 3_000)),
            (Copy::Unicast(1), Span::new(1_500, 2_500)),
            (Copy::Unicast(1), Span::new(2_500, 3_000)),
        ]
    );
}

/// A receiver that leaves during a burst takes no other receiver's copy with it.
#[test]
fn the_others_get_all_copies_when_a_receiver_is_removed_during_a_burst() {
    for with_group in [false, true] {
        for taken in 0..9 {
            for removed in 0..3 {
                let mut flow = flow(3, 100_000, 3_000);
                if with_group {
                    flow.add_listener(group(1));
                }
                send(&mut flow, at(0), WIDE);
                let mut all: Vec<_> = (0..taken).filter_map(|_| flow.next_copy()).collect();
                flow.remove_unicast(removed);
                all.extend(copies(&mut flow));
                for receiver in (0..3).filter(|receiver| *receiver != removed) {
                    let to = all.iter().filter(|(to, _)| *to == Copy::Unicast(receiver));
                    let spans: Vec<_> = to.map(|(_, span)| (span.start, span.end)).collect();
                    let each = [(0, 1_000), (1_000, 2_000), (2_000, 3_000)];
                    assert_eq!(spans, each, "{receiver} {removed} {taken} {with_group}");
                }
            }
        }
    }
    let mut flow = flow(2, 100_000, 3_000);
    flow.remove_unicast(7);
    assert_eq!(flow.unicast, [0, 1]);
}

#[test]
fn a_detached_receiver_may_have_more_than_was_sent_to_it() {
    let mut flow = flow(1, 100_000, 5_000);
    flow.nxt = 1_000;
    assert_eq!(flow.reach(), 1_000);
    flow.skip_to(3_000, at(5));
    assert_eq!(
        (flow.nxt, flow.unsent),
        (1_000, 5_000),
        "it has what was sent"
    );
    flow.detached = true;
    assert_eq!(flow.reach(), 6_000);
    flow.skip_to(1_000, at(5));
    assert_eq!(flow.log.times_of(0), None);
    flow.skip_to(3_000, at(5));
    assert_eq!((flow.nxt, flow.unsent), (3_000, 3_000));
    assert_eq!(flow.log.times_of(2_999), Some((at(5), at(5))));
    flow.skip_to(9_000, at(6));
    assert_eq!((flow.nxt, flow.unsent), (6_000, 0), "no more than there is");
}

#[test]
fn a_flow_is_complete_when_its_last_copy_has_left() {
    let mut flow = flow(1, 100_000, 500);
    assert!(!flow.is_complete());
    flow.closing = true;
    assert!(!flow.is_complete());
    send(&mut flow, at(0), WIDE);
    assert!(!flow.is_complete());
    copies(&mut flow);
    assert!(flow.is_complete());
    flow.closing = false;
    assert!(!flow.is_complete());
}

#[test]
fn timestamps_are_milliseconds_and_wrap() {
    let flow = Flow::new(1_000, u32::MAX - 5, true);
    assert_eq!(flow.stamp_at(at(4)), u32::MAX - 1);
    assert_eq!(flow.stamp_at(at(106)), 100);
}

#[test]
fn slots_count_from_the_first_member() {
    let mut flow = flow(1, 0, 0);
    flow.first = 5;
    assert_eq!((flow.slot(5), flow.slot(9)), (0, 4));
}
