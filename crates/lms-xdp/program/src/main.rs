//! LMS in XDP: requests and directed multicasts of known entries are decided, edited and redirected in the driver, all
//! other packets go on to the kernel and to the router.
//!
//! What is decided, and how, is [`lms_proto::fast_path`]; here are only the tables as BPF maps and the bytes of the frame.
#![no_std]
#![no_main]
#![feature(core_intrinsics)]
#![allow(internal_features)]

mod tables;

use core::mem;

use aya_ebpf::bindings::xdp_action;
use aya_ebpf::helpers::{bpf_ktime_get_ns, bpf_xdp_adjust_head, bpf_xdp_adjust_tail};
use aya_ebpf::macros::xdp;
use aya_ebpf::programs::XdpContext;
use lms_proto::fast_path::{self, Action, Arrival, Clock, Refusal, Settings, Verdict};
use lms_proto::{Iface, LinkAddr};

use crate::tables::{Maps, count, port_of, redirect};

const ETHERNET: usize = 14;
/// A header without options.
const PLAIN: usize = 20;
/// With the option in the classic form, and in the own one.
const CLASSIC: usize = PLAIN + 16;
const OWN: usize = PLAIN + 28;
const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
const PROTOCOL_IPIP: u8 = 4;

#[xdp]
pub fn lms(context: XdpContext) -> u32 {
    forward(&context).unwrap_or(xdp_action::XDP_PASS)
}

/// The bytes at an offset of the frame, if it has them.
#[inline(always)]
fn bytes<T>(context: &XdpContext, at: usize) -> Option<*mut T> {
    let start = context.data() + at;
    (start + mem::size_of::<T>() <= context.data_end()).then_some(start as *mut T)
}

#[inline(always)]
fn forward(context: &XdpContext) -> Option<u32> {
    let start = bytes::<[u8; ETHERNET + PLAIN]>(context, 0)?;
    // SAFETY: the frame has these bytes, and nobody else changes them during this call.
    let start = unsafe { &*start };
    if start[12..14] != ETHERTYPE_IPV4 {
        return None;
    }
    let ip = &start[ETHERNET..];
    let is_multicast = ip[16] >> 4 == 0xe;
    if !is_multicast && ip[9] != PROTOCOL_IPIP {
        return None;
    }
    match (usize::from(ip[0]), is_multicast) {
        (0x49, true) => request::<CLASSIC>(context),
        (0x4c, true) => request::<OWN>(context),
        (0x49, false) => dmcast::<CLASSIC>(context),
        (0x4c, false) => dmcast::<OWN>(context),
        _ => None,
    }
}

#[inline(always)]
fn clock(settings: &Settings) -> Clock {
    // SAFETY: the helper has no conditions.
    let now_ns = unsafe { bpf_ktime_get_ns() };
    Clock {
        now_ns: now_ns.wrapping_sub(settings.start_ns),
    }
}

/// How the frame arrived.
#[inline(always)]
fn arrival(context: &XdpContext) -> Option<Arrival> {
    let frame = bytes::<[u8; ETHERNET]>(context, 0)?;
    // SAFETY: the frame has these bytes.
    let frame = unsafe { &*frame };
    let iface = port_of(context.ingress_ifindex() as u32)?;
    // Frames of other stations are not for this router, though its driver may receive them all.
    let is_group = frame[0] & 1 == 1;
    if !is_group && frame[..6] != tables::link_of(iface)? {
        return None;
    }
    let link = [frame[6], frame[7], frame[8], frame[9], frame[10], frame[11]];
    Some(Arrival {
        iface,
        link_source: LinkAddr(link),
    })
}

#[inline(always)]
fn request<const LEN: usize>(context: &XdpContext) -> Option<u32> {
    let arrival = arrival(context)?;
    let to_port = match bytes::<[u8; 2]>(context, ETHERNET + LEN + 2) {
        // SAFETY: the frame has these bytes.
        Some(port) => u16::from_be_bytes(unsafe { *port }),
        None => 0,
    };
    let header = bytes::<[u8; LEN]>(context, ETHERNET)?;
    // SAFETY: the frame has these bytes, and nothing else refers to them.
    let header = unsafe { &mut *header };
    let packet_len = context.data_end() - context.data() - ETHERNET;
    let verdict = fast_path::request(&Maps, clock, arrival, header, (to_port, packet_len));
    act(context, arrival.iface, verdict, packet_len)
}

#[inline(always)]
fn dmcast<const LEN: usize>(context: &XdpContext) -> Option<u32> {
    let arrival = arrival(context)?;
    let inner = bytes::<[u8; PLAIN]>(context, ETHERNET + LEN)?;
    let outer = bytes::<[u8; LEN]>(context, ETHERNET)?;
    // SAFETY: the frame has these bytes, and the two ranges do not overlap.
    let (outer, inner) = unsafe { (&*outer, &mut *inner) };
    let packet_len = context.data_end() - context.data() - ETHERNET;
    let verdict = fast_path::dmcast(&Maps, clock, arrival, outer, inner, packet_len);
    act(context, arrival.iface, verdict, packet_len)
}

/// Does what the verdict says, and counts.
#[inline(always)]
fn act(context: &XdpContext, arrival: Iface, verdict: Verdict, packet_len: usize) -> Option<u32> {
    if verdict.action == Action::Pass {
        return None;
    }
    // A packet that is too long is counted where it would have gone, as in the router.
    let is_dropped = !matches!(verdict.refusal, Refusal::None | Refusal::TooLong);
    count(arrival, |port| {
        port.received += 1;
        port.dropped += u64::from(is_dropped);
        match verdict.action {
            Action::ToParent => port.to_parent += 1,
            Action::Turn => port.turned += 1,
            Action::ToReplier => port.to_replier += 1,
            Action::Dmcast => port.dmcasts += 1,
            Action::Pass | Action::Drop => {}
        }
    });
    if verdict.refusal != Refusal::None {
        tables::count_drop(verdict.refusal);
        if verdict.refusal == Refusal::TooLong {
            count(verdict.iface, |port| port.too_long += 1);
        }
        return Some(xdp_action::XDP_DROP);
    }
    let own = tables::link_of(verdict.iface)?;
    let (strip, len) = (usize::from(verdict.strip), usize::from(verdict.len));
    let padding = packet_len.saturating_sub(strip + len);
    // SAFETY: the helpers check the lengths.
    let is_cut = unsafe {
        (strip == 0 || bpf_xdp_adjust_head(context.ctx, strip as i32) == 0)
            && (padding == 0 || bpf_xdp_adjust_tail(context.ctx, -(padding as i32)) == 0)
    };
    if !is_cut {
        return Some(xdp_action::XDP_ABORTED);
    }
    let Some(frame) = bytes::<[u8; ETHERNET]>(context, 0) else {
        return Some(xdp_action::XDP_ABORTED);
    };
    // SAFETY: the frame has these bytes, and nothing else refers to them.
    let frame = unsafe { &mut *frame };
    frame[..6].copy_from_slice(&verdict.link.0);
    frame[6..12].copy_from_slice(&own);
    frame[12..].copy_from_slice(&ETHERTYPE_IPV4);
    count(verdict.iface, |port| match verdict.action {
        Action::Dmcast => port.dmcasts_sent += 1,
        _ => port.requests_sent += 1,
    });
    Some(redirect(verdict.iface))
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
