//! Paths that drop long packets silently, without an ICMP message (RFC 2923 §2.1).
//!
//! After two timeouts in a row, this receiver's repairs are cut to what every link should carry; after four, to
//! what every IPv4 host must accept. Other receivers are not affected. When such a repair is acknowledged where
//! long segments were not, the path has a hole, or it was down for a while and works again. Earlier
//! acknowledgements tell which is more likely:
//!
//! | before | repairs that must get through where long segments did not |
//! | --- | --- |
//! | no full segment was acknowledged | once for 1280-byte packets, twice for 576 |
//! | some were | three times |
//!
//! Then the segments of its whole flow become that short, for good: 1280 bytes cost 0.7 % more
//! headers than 1500, a search for the size between would cost timeouts.

use core::net::IpAddr;

use proto_core::time::Instant;

use super::Pcb;
use crate::group::Flow;

/// What every IPv6 link carries, and tunnels in practice (RFC 8200 §5).
const LINK_BYTES: u16 = 1280;
/// What every IPv4 host must accept (RFC 1122 §3.3.2).
const HOST_BYTES: u16 = 576;

/// Suspicions about a path.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Hole {
    /// Length of IP packets that repairs are cut to, while a hole is suspected.
    tried: Option<u16>,
    /// A full segment was acknowledged.
    proven: bool,
    /// How often a short repair got through where long segments did not.
    strikes: u8,
}

impl Pcb {
    /// Returns the maximum segment size in IP packets of this length.
    fn mss_in(&self, packet: u16) -> u16 {
        packet.saturating_sub(self.limits.overhead).max(8)
    }

    /// Another timeout passed without an acknowledgement.
    pub(super) fn suspect_hole(&mut self) {
        let before = self.send.rtt.backoff();
        let packet = match (before, self.key.remote) {
            (0, _) => return,
            (1..=2, _) | (_, IpAddr::V6(_)) => LINK_BYTES,
            (3.., IpAddr::V4(_)) => HOST_BYTES,
        };
        if self.mss_in(packet) < self.handshake.agreed().mss.min(self.limits.our_mss) {
            self.send.hole.tried = Some(packet);
        }
    }

    /// Bytes of a repair.
    pub(super) fn repair_payload(&self, flow: &Flow) -> u64 {
        let tried = self.send.hole.tried;
        let most = tried.map_or(u16::MAX, |packet| self.payload_of(self.mss_in(packet)));
        u64::from(flow.payload.min(most))
    }

    /// Records that the peer has acknowledged this many bytes more.
    pub(super) fn judge_hole(&mut self, now: Instant, acked: u64, flow: &mut Flow) {
        if acked == 0 {
            return;
        }
        let full = acked >= u64::from(flow.payload);
        let hole = &mut self.send.hole;
        let Some(packet) = hole.tried.take() else {
            hole.proven |= full;
            return;
        };
        hole.strikes = hole.strikes.saturating_add(1);
        let needed = match (hole.proven, packet) {
            (true, _) => 3,
            (false, LINK_BYTES) => 1,
            (false, _) => 2,
        };
        if hole.strikes >= needed {
            hole.strikes = 0;
            self.counters.holes += 1;
            self.set_mtu(now, self.mss_in(packet), flow);
        }
    }
}
