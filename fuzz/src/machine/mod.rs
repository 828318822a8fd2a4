//! One target for each machine: a list of packets (raw, damaged, genuine, from a genuine peer),
//! timeouts and commands. What is asserted stands at the top of each file; no target accepts a panic.

pub mod bfed_control;
pub mod bfed_control_seeds;
pub mod bfed_data;
pub mod bfed_data_peer;
pub mod dyram;
pub mod dyram_child;
pub mod igmp;
pub mod lms_endpoint;
pub mod ltp;
pub mod ltp_forged;
pub mod ltp_member;
pub mod mcp;
pub mod mcp_store;
#[path = "../../../crates/bfed/tests/support/native.rs"]
pub mod native;
pub mod ring;
pub mod ring_peer;
pub mod router;
mod router_packets;
pub mod tcpxm;
pub mod tcpxm_member;
pub mod tree;

use std::collections::VecDeque;

use lms_proto::wire::ipv4;
use lms_proto::{Duration, Instant};

use crate::script::Script;

/// Most timeouts in one pause: the rest of it passes at once.
const MOST_TIMEOUTS: usize = 200;

/// Lets time pass, calling the machine when it asks for it. It must get on: a machine that asks for
/// the same instant again and again would keep its driver busy without end.
pub(crate) fn pass<M>(
    machine: &mut M,
    now: &mut Instant,
    us: u64,
    due: impl Fn(&M) -> Option<Instant>,
    mut fire: impl FnMut(&mut M, Instant),
) {
    let end = *now + Duration::from_micros(us);
    let mut still = 0;
    for _ in 0..MOST_TIMEOUTS {
        let Some(at) = due(machine).filter(|at| *at <= end) else {
            break;
        };
        still = if at <= *now { still + 1 } else { 0 };
        assert!(still < 100, "asks for {at} again and again");
        *now = (*now).max(at);
        fire(machine, *now);
    }
    *now = end;
    fire(machine, end);
}

/// Sends a packet that is on the wire behind all others.
pub(crate) fn delay_one<T>(wire: &mut VecDeque<T>, script: &mut Script<'_>) {
    let at = script.pick(wire.len().max(1));
    if let Some(flight) = wire.remove(at) {
        wire.push_back(flight);
    }
}

/// An IPv4 packet with these option bytes (whole words), its checksum right.
pub(crate) fn ip_packet(
    source: [u8; 4],
    to: [u8; 4],
    protocol: u8,
    ttl: u8,
    options: &[u8],
    payload: &[u8],
) -> Vec<u8> {
    let header_len = 20 + options.len();
    let mut packet = vec![0; header_len];
    packet[0] = 0x40 | (header_len / 4) as u8;
    packet[2..4].copy_from_slice(&((header_len + payload.len()) as u16).to_be_bytes());
    packet[8..10].copy_from_slice(&[ttl, protocol]);
    packet[12..16].copy_from_slice(&source);
    packet[16..20].copy_from_slice(&to);
    packet[20..].copy_from_slice(options);
    ipv4::fill_checksum(&mut packet);
    packet.extend_from_slice(payload);
    packet
}

/// Makes the checksum of a damaged header right again, where there is a header.
pub(crate) fn mend(packet: &mut [u8]) {
    let len = packet
        .first()
        .map_or(0, |first| usize::from(first & 0x0f) * 4);
    if let Some(header) = packet.get_mut(..len).filter(|header| header.len() >= 20) {
        ipv4::fill_checksum(header);
    }
}
