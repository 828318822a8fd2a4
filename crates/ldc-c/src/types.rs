//! Structures that C and Rust share. A structure of zeros selects the defaults. Those that C fills hold no type with invalid
//! values, such as `bool`.

use std::time::Duration;

use ldc_linux::schedule::Scheduler;
use ldc_linux::{Instant, any, quic, tcp, udp};

use crate::status::Failure;

/// The rings of a sender.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Shape {
    /// Slots of a ring, rounded up to a power of two; at most 2^20.
    pub slots: u32,
    /// Bytes of a slot, rounded up to a multiple of 64; at most 16 MiB. A longer message takes several slots.
    pub slot_bytes: u32,
    /// Classes of messages, each with a ring of its own, at most 8; 0 means one. Shared memory and UDP have one.
    pub classes: u32,
    /// One weight of at least 1 per class, by which they share the connection; null: class 0 goes first, and so on.
    pub weights: *const u32,
}

/// What a message has besides its bytes. A null pointer to it means zeros.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Attributes {
    /// Time after which the message is not sent, microseconds of `ldc_now_us`; 0: none.
    pub deadline_us: i64,
    /// Larger values are more important. The receiver reads it; QUIC sends messages below a limit as datagrams.
    pub priority: u32,
    /// Class of the message: the number of its ring, from 0.
    pub class_index: u32,
}

/// How many messages a call changed.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Changed {
    /// Messages changed as requested.
    pub changed: u32,
    /// Messages that the consumer had already claimed; they are unchanged.
    pub too_late: u32,
}

/// The state of a class's ring.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct State {
    /// Slots of the ring.
    pub slots: u32,
    /// Bytes of a slot.
    pub slot_bytes: u32,
    /// Slots that are free.
    pub free_slots: u32,
    /// Messages that were not claimed and not cancelled.
    pub pending: u32,
    /// Whether messages are held back.
    pub is_holding_back: bool,
    /// Whether the receiver has closed the ring, or the drain has ended.
    pub is_closed: bool,
    /// Whether the receiver's end exists.
    pub is_attached: bool,
    /// Whether the thread of the drain has ended.
    pub has_ended: bool,
}

/// Counters of a drain that has ended. Those that its kind does not have are 0.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Stats {
    /// Messages that left: written, passed to the kernel as datagrams, or, over QUIC, acknowledged.
    pub messages: u64,
    /// Bytes of messages.
    pub bytes: u64,
    /// Messages skipped because they were cancelled.
    pub cancelled: u64,
    /// Messages skipped because their deadline had passed.
    pub expired: u64,
    /// Messages that the peer acknowledged.
    pub acked: u64,
    /// Acknowledgements not reported, because `ldc_poll_ack` did not take earlier ones.
    pub acks_lost: u64,
    /// Messages given up after they were claimed (QUIC).
    pub abandoned: u64,
    /// Messages that the peer or its host refused.
    pub refused: u64,
    /// Messages longer than a datagram of the path (UDP).
    pub too_big: u64,
    /// Packets that QUIC found to be lost.
    pub lost_packets: u64,
}

/// How a ring is drained into a TCP socket.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct TcpConfig {
    /// Unsent segments allowed in the socket; 0: 3.
    pub unsent_segments: u32,
    /// Longest wait of the drain for a processor, microseconds; 0: 5,000.
    pub unsent_slack_us: u32,
    /// Upper limit of unsent bytes; 0: 1 MiB.
    pub unsent_max_bytes: u32,
    /// Not 0: report acknowledged messages to `ldc_poll_ack`.
    pub acks: u32,
}

/// How a ring is drained into a UDP socket.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct UdpConfig {
    /// Bits per second, with headers; 0: as fast as the socket accepts datagrams.
    pub rate_bps: u64,
    /// Bytes that may leave at once after a pause; 0: 16 KiB.
    pub burst: u32,
}

/// How a ring is drained into a QUIC connection.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct QuicConfig {
    /// Congestion control: 0 CUBIC, 1 NewReno, 2 BBR.
    pub congestion: u32,
    /// Messages of a lower priority leave as datagrams, if they fit; 0: none.
    pub datagrams_below: u32,
    /// The connection ends when nothing arrives for this time, milliseconds; 0: 30,000.
    pub idle_timeout_ms: u32,
    /// Time for the last acknowledgements, milliseconds; 0: 30,000.
    pub linger_ms: u32,
    /// Not 0: consecutive messages with one sequence number share a stream, and arrive in order.
    pub stream_per_sequence: u32,
    /// Not 0: report acknowledged messages to `ldc_poll_ack`.
    pub acks: u32,
}

/// A message that a receiver has claimed.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Message {
    /// Names the message in calls on its receiver until it is completed.
    pub id: u64,
    /// Sequence number chosen by the sender.
    pub seq: u64,
    /// Length, bytes.
    pub len: usize,
    /// Time after which the message is worthless, microseconds of `ldc_now_us`; 0: none.
    pub deadline_us: i64,
    /// Larger values are more important.
    pub priority: u32,
}

/// Counters of a receiver of a ring.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Counters {
    /// Messages claimed.
    pub claimed: u64,
    /// Messages skipped because they were cancelled.
    pub cancelled: u64,
    /// Messages skipped because their deadline had passed.
    pub expired: u64,
}

/// What a listener accepts.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Limits {
    /// Longest message, bytes; a longer one ends the connection. 0: 1 MiB.
    pub message: usize,
    /// Bytes that have arrived and were not taken; 0: 16 MiB.
    pub buffer: usize,
    /// Streams open at once; 0: 1,024.
    pub streams: u32,
    /// A connection ends when nothing arrives for this time, milliseconds; 0: 30,000.
    pub idle_timeout_ms: u32,
    /// Time for the handshake, and then for the first message, milliseconds; 0: 10,000.
    pub setup_timeout_ms: u32,
}

/// The kinds of events of a listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub enum EventKind {
    /// A sender has proved who it is. The buffer holds its address as text.
    #[default]
    Connected = 0,
    /// A message arrived whole. The buffer holds it.
    Message = 1,
    /// The sender has sent everything; another one may come.
    Done = 2,
    /// The connection failed; the buffer holds the reason as text. Another sender may come.
    Failed = 3,
}

/// What happened on the connection of a sender.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// Bytes in the buffer; with `LDC_STATUS_TOO_LONG`, the bytes that the buffer must have.
    pub len: usize,
}

/// Returns `value`, or `default` for 0.
fn or<T: Default + PartialEq>(value: T, default: T) -> T {
    if value == T::default() {
        default
    } else {
        value
    }
}

fn millis(value: u32, default: Duration) -> Duration {
    or(Duration::from_millis(value.into()), default)
}

/// Returns a timeout: negative microseconds mean none.
pub(crate) fn timeout(micros: i64) -> Option<Duration> {
    // A year: sums with the clock do not overflow.
    const MAX: u64 = 365 * 24 * 3_600 * 1_000_000;
    let micros = u64::try_from(micros).ok()?;
    Some(Duration::from_micros(micros.min(MAX)))
}

impl Shape {
    /// Returns the geometry.
    pub(crate) fn geometry(&self) -> Result<ldc_linux::Shape, Failure> {
        Ok(ldc_linux::Shape::new(self.slots, self.slot_bytes)?)
    }

    /// Fails for a drain that has a single ring.
    pub(crate) fn single(&self) -> Result<ldc_linux::Shape, Failure> {
        if self.classes > 1 {
            return Err(Failure::invalid(
                "this kind of drain has one class: set `classes` to 1",
            ));
        }
        self.geometry()
    }

    /// Returns the scheduler of the classes; `weights` are those behind the pointer.
    pub(crate) fn scheduler(&self, weights: Option<&[u32]>) -> Result<Scheduler, Failure> {
        let made = match weights {
            Some(weights) => Scheduler::weighted(weights),
            None => Scheduler::strict(self.class_count()),
        };
        made.map_err(|error| Failure::invalid(error.to_string()))
    }

    /// Returns the number of classes.
    pub(crate) fn class_count(&self) -> usize {
        self.classes.max(1) as usize
    }
}

impl From<Attributes> for ldc_linux::Attributes {
    fn from(from: Attributes) -> ldc_linux::Attributes {
        ldc_linux::Attributes {
            deadline: (from.deadline_us != 0).then(|| Instant::from_micros(from.deadline_us)),
            priority: from.priority,
        }
    }
}

impl From<ldc_linux::Changed> for Changed {
    fn from(from: ldc_linux::Changed) -> Changed {
        Changed {
            changed: from.changed,
            too_late: from.too_late,
        }
    }
}

impl From<any::Stats> for Stats {
    fn from(from: any::Stats) -> Stats {
        // All of them: a new counter does not compile until it is here.
        let any::Stats {
            messages,
            bytes,
            cancelled,
            expired,
            acked,
            acks_lost,
            abandoned,
            refused,
            too_big,
            lost_packets,
        } = from;
        Stats {
            messages,
            bytes,
            cancelled,
            expired,
            acked,
            acks_lost,
            abandoned,
            refused,
            too_big,
            lost_packets,
        }
    }
}

impl From<TcpConfig> for tcp::Config {
    fn from(from: TcpConfig) -> tcp::Config {
        let default = tcp::Unsent::default();
        let slack = Duration::from_micros(from.unsent_slack_us.into());
        tcp::Config {
            unsent: tcp::Unsent {
                segments: or(from.unsent_segments, default.segments),
                slack: or(slack, default.slack),
                max_bytes: or(from.unsent_max_bytes, default.max_bytes),
            },
            acks: from.acks != 0,
        }
    }
}

impl From<UdpConfig> for udp::Config {
    fn from(from: UdpConfig) -> udp::Config {
        udp::Config {
            rate_bps: (from.rate_bps != 0).then_some(from.rate_bps),
            burst: or(from.burst, udp::Config::default().burst),
        }
    }
}

impl QuicConfig {
    /// Returns the configuration; fails for an unknown congestion control.
    pub(crate) fn checked(self) -> Result<quic::Config, Failure> {
        let from = self;
        let default = quic::Config::default();
        Ok(quic::Config {
            congestion: match from.congestion {
                0 => quic::Congestion::Cubic,
                1 => quic::Congestion::NewReno,
                2 => quic::Congestion::Bbr,
                other => {
                    return Err(Failure::invalid(format!(
                        "no congestion control has the number {other}: 0 CUBIC, 1 NewReno, 2 BBR"
                    )));
                }
            },
            streams: if from.stream_per_sequence != 0 {
                quic::Streams::PerSequence
            } else {
                quic::Streams::PerMessage
            },
            datagrams_below: from.datagrams_below,
            idle_timeout: millis(from.idle_timeout_ms, default.idle_timeout),
            linger: millis(from.linger_ms, default.linger),
            acks: from.acks != 0,
        })
    }
}

impl From<Limits> for quic::Limits {
    fn from(from: Limits) -> quic::Limits {
        let default = quic::Limits::default();
        quic::Limits {
            message: or(from.message, default.message),
            streams: or(from.streams, default.streams),
            buffer: or(from.buffer, default.buffer),
            idle_timeout: millis(from.idle_timeout_ms, default.idle_timeout),
            setup_timeout: millis(from.setup_timeout_ms, default.setup_timeout),
        }
    }
}
