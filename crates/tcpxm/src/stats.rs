//! Counters.

use proto_core::time::Duration;

use crate::error::Drops;
use crate::group::Mode;
use crate::pcb::State;

/// Counters of an endpoint since its start.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Stats {
    /// Packets handed in.
    pub packets_received: u64,
    /// Packets handed in that came by multicast.
    pub multicast_received: u64,
    /// Packets dropped, by reason.
    pub drops: Drops,
    /// Packets written.
    pub packets_sent: u64,
    /// Bytes of segments written to unicast addresses, headers included.
    pub unicast_bytes_sent: u64,
    /// Bytes of segments written to group addresses, headers included.
    pub multicast_bytes_sent: u64,
    /// Segments of data sent again.
    pub retransmissions: u64,
    /// Those of them that went to a group because several receivers lacked the data, each counted once.
    pub shared_repairs: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Losses that were none, and whose reduction of the window was taken back.
    pub undone: u64,
    /// Tail loss probes.
    pub probes: u64,
    /// Resets sent to segments without a connection.
    pub resets_sent: u64,
    /// Resets not sent because of their rate.
    pub resets_suppressed: u64,
    /// Challenge ACKs not sent because of their rate.
    pub challenges_suppressed: u64,
    /// Connections opened, by either side.
    pub opened: u64,
    /// Half-open connections dropped for newer ones.
    pub half_open_evicted: u64,
    /// Times a receiver fell back to unicast.
    pub fall_backs: u64,
    /// Times a receiver fell forward to multicast.
    pub fall_forwards: u64,
    /// Receivers that proposed a group which is not allowed, and are served by unicast.
    pub alternatives_refused: u64,
    /// Receivers detached from their group.
    pub detached: u64,
    /// Paths that swallowed long segments in silence: shorter ones are sent there since.
    pub black_holes: u64,
}

/// The state of one connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnStats {
    /// State (RFC 9293 §3.3.2).
    pub state: State,
    /// Transmission mode.
    pub mode: Mode,
    /// Bytes acknowledged by the other side.
    pub acknowledged: u64,
    /// Bytes sent and not acknowledged, selectively acknowledged ones included.
    pub outstanding: u64,
    /// Bytes of the other side's stream received in order.
    pub received: u64,
    /// Congestion window in bytes.
    pub congestion_window: u64,
    /// What BBR has measured that the path carries, in bits of data per second, without what recent losses allow of it;
    /// `None` with other algorithms, and before a measurement.
    pub bandwidth_bps: Option<u64>,
    /// No other receiver of its group governs the rate.
    pub governs: bool,
    /// Bytes that the other side's window lets us send from the first unacknowledged one on.
    pub send_window: u64,
    /// Smoothed round-trip time, once measured.
    pub smoothed_rtt: Option<Duration>,
    /// Retransmission timeout.
    pub rto: Duration,
    /// Segments sent again.
    pub retransmissions: u64,
    /// Largest payload of a segment to this peer, in bytes.
    pub payload: usize,
    /// Whether timestamps, window scaling and SACK were agreed on.
    pub negotiated: (bool, bool, bool),
    /// Memory that the receive buffer has taken so far, in bytes.
    pub receive_memory: usize,
    /// The receiver's last feedback on its multicast reception, in per cent.
    pub feedback: Option<u8>,
}
