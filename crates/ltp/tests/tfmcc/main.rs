//! Congestion control: each rule of RFC 4654 that source and receivers follow.

mod receiver;
mod sender;

use std::net::SocketAddr;

use ltp::wire::pace::{Feedback, Pace};
use ltp::{Duration, Instant, SessionId};

const START: Instant = Instant::from_secs(100);
/// Bytes of a frame.
const FRAME: usize = 1_000;

fn ms(time: u64) -> Duration {
    Duration::from_millis(time)
}

fn clock(at: Instant) -> u32 {
    at.total_micros() as u32
}

fn host(number: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], number))
}

#[track_caller]
fn close(got: f64, want: f64) {
    assert!((got / want - 1.0).abs() < 0.01, "{got}, expected {want}");
}

/// Feedback of receiver `number` without loss, to a PACE that was sent `round_trip` ago.
fn unlimited(now: Instant, number: u64, round_trip: Duration, received_bps: u64) -> Feedback {
    Feedback {
        session: SessionId(0),
        round: 0,
        receiver: number,
        token: 0,
        stamp_us: clock(now),
        echo_us: clock(now - round_trip),
        held_us: 0,
        round_trip_us: round_trip.total_micros() as u32,
        loss: 0,
        rate_bps: u64::MAX,
        received_bps,
    }
}

/// Feedback of receiver `number` that can have that rate.
fn limited(now: Instant, number: u64, round_trip: Duration, rate_bps: u64) -> Feedback {
    Feedback {
        loss: 1 << 20,
        rate_bps,
        ..unlimited(now, number, round_trip, rate_bps)
    }
}

/// A PACE of one receiver's group.
fn pace(now: Instant, round: u16, rate_bps: u64) -> Pace {
    Pace {
        session: SessionId(0),
        round,
        slow_start: false,
        stamp_us: clock(now),
        max_round_trip_us: 100_000,
        rate_bps,
        suppress_bps: u64::MAX,
        limiting: 0,
        receivers: 1,
        echoes: heapless::Vec::new(),
    }
}
