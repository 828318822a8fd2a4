//! Dials of a plane's edges.

use alloc::vec::Vec;

use super::*;
use crate::data::PlaneConfig;
use crate::data::edge::Carrier;
use crate::types::{Content, FlowLabel};

const START: Instant = Instant::from_secs(100);

fn address() -> SocketAddr {
    ([10, 0, 0, 2], 4000).into()
}

fn seconds(time: u64) -> Duration {
    Duration::from_secs(time)
}

/// A plane with that many edges that wait for TCP channels, and its dialer.
fn plane(count: usize) -> (Dialer, Plane, Vec<EdgeId>) {
    let mut plane = Plane::new(PlaneConfig::default(), [1; 32], START);
    let flow = plane.add_flow(Content::Bulk, true, None);
    let mut ids = Vec::new();
    for number in 1..=count {
        let mut edge = Edge::new(flow, false, Carrier::Stream(address()));
        edge.rest.label_in = FlowLabel::new(number as u32);
        ids.extend(plane.add_edge(START, edge, None));
    }
    (Dialer::new(), plane, ids)
}

fn fail(dialer: &mut Dialer, plane: &mut Plane, id: EdgeId, now: Instant) {
    let edge = plane.edge_mut(id).expect("an edge");
    dialer.failed(now, id, edge, address());
}

/// Seconds until the edge is dialled again.
fn wait(dialer: &mut Dialer, plane: &mut Plane, now: Instant) -> u64 {
    let at = dialer.poll_timeout().expect("another attempt");
    dialer.handle_timeout(at - Duration::from_micros(1), plane);
    assert_eq!(dialer.poll(plane), None);
    dialer.handle_timeout(at, plane);
    assert!(dialer.poll(plane).is_some());
    assert_eq!(dialer.poll(plane), None);
    assert_eq!(dialer.poll_timeout(), None);
    (at - now).total_millis() / 1000
}

#[test]
fn failures_in_a_row_are_repeated_after_up_to_16_seconds() {
    let (mut dialer, mut plane, ids) = plane(1);
    let waits = [1, 1, 2, 4, 8, 16, 16, 16];
    let mut now = START;
    let mut got = Vec::new();
    for _ in waits {
        fail(&mut dialer, &mut plane, ids[0], now);
        got.push(wait(&mut dialer, &mut plane, now));
        now += seconds(100);
    }
    assert_eq!(got, waits);
    for _ in 0..300 {
        fail(&mut dialer, &mut plane, ids[0], now);
        assert_eq!(wait(&mut dialer, &mut plane, now), 16);
    }
}

#[test]
fn a_channel_that_lasted_ten_seconds_has_not_failed() {
    for (lasted, again) in [(9, 2), (10, 1), (3600, 1)] {
        let (mut dialer, mut plane, ids) = plane(1);
        let mut now = START;
        for _ in 0..2 {
            fail(&mut dialer, &mut plane, ids[0], now);
            wait(&mut dialer, &mut plane, now);
        }
        plane.edge_mut(ids[0]).expect("an edge").rest.dialled_at = Some(now);
        now += seconds(lasted);
        fail(&mut dialer, &mut plane, ids[0], now);
        assert_eq!(wait(&mut dialer, &mut plane, now), again, "{lasted}");
        // A dial that fails after it lasted nothing.
        now += seconds(100);
        fail(&mut dialer, &mut plane, ids[0], now);
        let next = if again == 1 { 1 } else { 4 };
        assert_eq!(wait(&mut dialer, &mut plane, now), next);
    }
}

#[test]
fn dials_are_spread_over_calls() {
    let (mut dialer, mut plane, ids) = plane(200);
    plane.dials.extend(ids.iter().map(|&id| (id, address())));
    let drain =
        |dialer: &mut Dialer, plane: &mut Plane| core::iter::from_fn(|| dialer.poll(plane)).count();
    assert_eq!(drain(&mut dialer, &mut plane), 64);
    for count in [64, 64, 8, 0] {
        dialer.handle_timeout(START, &mut plane);
        assert_eq!(drain(&mut dialer, &mut plane), count);
    }
    // Attempts that are due together are, too.
    for &id in &ids {
        fail(&mut dialer, &mut plane, id, START);
    }
    let now = START + seconds(1);
    for count in [64, 64, 64, 8] {
        dialer.handle_timeout(now, &mut plane);
        assert!(plane.dials.len() <= 64);
        assert_eq!(drain(&mut dialer, &mut plane), count);
    }
}

#[test]
fn edges_that_are_gone_cost_no_dial() {
    let (mut dialer, mut plane, ids) = plane(100);
    plane.dials.extend(ids.iter().map(|&id| (id, address())));
    for &id in &ids[..50] {
        plane.remove_edge(id);
    }
    let dialled: Vec<_> = core::iter::from_fn(|| dialer.poll(&mut plane)).collect();
    let left: Vec<_> = ids[50..].iter().map(|&id| (id, address())).collect();
    assert_eq!(dialled, left);
}
