//! What congestion control lets go: a controller that another one drives, and that counts the bytes in flight.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use quinn_proto::RttEstimator;
use quinn_proto::congestion::{
    BbrConfig, Controller, ControllerFactory, ControllerMetrics, CubicConfig, NewRenoConfig,
};

use super::Congestion;

/// How much of the congestion window of one connection is in use. quinn-proto shows the window alone; its controllers are
/// told of each packet.
#[derive(Debug, Default)]
pub(super) struct Flight {
    bytes: AtomicU64,
    /// The last message that could leave has left, and the window has room: the application limits the rate, so the
    /// window must not grow (RFC 9002 §7.8). quinn-proto sees only bytes that it was given, and the drain gives it none
    /// while the window is full, so that the window would seem to have room always.
    has_room: AtomicBool,
}

impl Flight {
    /// Returns the bytes in flight. Exact after each acknowledgement; between two, packets that only acknowledge count
    /// too, so it is never less than the bytes that the window admits.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn set(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    /// Records whether the application limits the rate, not the window.
    pub(super) fn set_has_room(&self, has_room: bool) {
        self.has_room.store(has_room, Ordering::Relaxed);
    }

    fn is_app_limited(&self, seen: bool) -> bool {
        seen && self.has_room.load(Ordering::Relaxed)
    }
}

/// Builds controllers of the chosen kind that count the bytes in flight.
pub(super) struct Factory {
    pub(super) congestion: Congestion,
    pub(super) flight: Arc<Flight>,
}

impl ControllerFactory for Factory {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        let inner = match self.congestion {
            Congestion::NewReno => Arc::new(NewRenoConfig::default()).build(now, current_mtu),
            Congestion::Cubic => Arc::new(CubicConfig::default()).build(now, current_mtu),
            Congestion::Bbr => Arc::new(BbrConfig::default()).build(now, current_mtu),
        };
        let flight = Arc::clone(&self.flight);
        Box::new(Counted { inner, flight })
    }
}

struct Counted {
    inner: Box<dyn Controller>,
    flight: Arc<Flight>,
}

impl Controller for Counted {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.flight.set(self.flight.bytes() + bytes);
        self.inner.on_sent(now, bytes, last_packet_number);
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        app_limited: bool,
        rtt: &RttEstimator,
    ) {
        self.flight.set(self.flight.bytes().saturating_sub(bytes));
        let app_limited = self.flight.is_app_limited(app_limited);
        self.inner.on_ack(now, sent, bytes, app_limited, rtt);
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        app_limited: bool,
        largest_packet_num_acked: Option<u64>,
    ) {
        self.flight.set(in_flight);
        let app_limited = self.flight.is_app_limited(app_limited);
        self.inner
            .on_end_acks(now, in_flight, app_limited, largest_packet_num_acked);
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        lost_bytes: u64,
    ) {
        self.flight
            .set(self.flight.bytes().saturating_sub(lost_bytes));
        self.inner
            .on_congestion_event(now, sent, is_persistent_congestion, lost_bytes);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.inner.on_mtu_update(new_mtu);
    }

    fn window(&self) -> u64 {
        self.inner.window()
    }

    fn metrics(&self) -> ControllerMetrics {
        self.inner.metrics()
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        let flight = Arc::clone(&self.flight);
        let inner = self.inner.clone_box();
        Box::new(Counted { inner, flight })
    }

    fn initial_window(&self) -> u64 {
        self.inner.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self.inner.into_any()
    }
}
