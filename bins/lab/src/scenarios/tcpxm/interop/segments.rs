//! Captured segments and checks of them.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use tcpxm::Seq;
use tcpxm::wire::Segment;

use super::stage::Role;
use crate::packets::Seen as Ipv4;
use crate::prelude::*;
use netlab::Capture;

/// Segments kept of one story.
const MOST: usize = 400_000;

/// The sender of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Engine,
    Kernel,
}

/// One captured segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) from: Side,
    pub(super) source: Ipv4Addr,
    pub(super) to: Ipv4Addr,
    pub(super) seq: Seq,
    pub(super) ack: Seq,
    pub(super) window: u16,
    pub(super) len: usize,
    pub(super) syn: bool,
    pub(super) fin: bool,
    pub(super) rst: bool,
    pub(super) timestamps: bool,
    pub(super) scale: Option<u8>,
    pub(super) may_sack: bool,
    pub(super) sacks: usize,
    pub(super) mss: Option<u16>,
    pub(super) group: bool,
}

/// A capture in progress.
pub(super) struct Watch {
    done: Arc<AtomicBool>,
    thread: JoinHandle<Result<Vec<Seen>>>,
}

impl Watch {
    /// Captures at an interface of a node; segments from the address `engine` are the engine's.
    pub(super) fn start(
        network: &Network,
        node: NodeId,
        interface: &str,
        engine: Ipv4Addr,
    ) -> Result<Watch> {
        let capture = Capture::start(network, node, interface)?;
        let done = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&done);
        let thread = std::thread::spawn(move || {
            let mut all = Vec::new();
            loop {
                let last = until.load(Ordering::Relaxed);
                while let Some(packet) = capture.next(Duration::from_millis(20))? {
                    let Some(packet) = Ipv4::read(&packet) else {
                        continue;
                    };
                    if packet.protocol != 6 || all.len() >= MOST {
                        continue;
                    }
                    let from = match packet.source == engine {
                        true => Side::Engine,
                        false => Side::Kernel,
                    };
                    let Ok(segment) = Segment::parse(&packet.payload) else {
                        continue;
                    };
                    all.push(seen(from, packet.source, packet.destination, &segment));
                }
                if last {
                    return Ok(all);
                }
            }
        });
        Ok(Watch { done, thread })
    }

    /// Everything captured, in order.
    pub(super) fn finish(self) -> Result<Trace> {
        self.done.store(true, Ordering::Relaxed);
        let ended = self.thread.join().ok().context("the capture's thread")?;
        Ok(Trace { all: ended? })
    }
}

fn seen(from: Side, source: Ipv4Addr, to: Ipv4Addr, segment: &Segment<'_>) -> Seen {
    let options = &segment.options;
    Seen {
        from,
        source,
        to,
        seq: segment.seq,
        ack: segment.ack,
        window: segment.window,
        len: segment.payload.len(),
        syn: segment.flags.syn,
        fin: segment.flags.fin,
        rst: segment.flags.rst,
        timestamps: options.timestamps.is_some(),
        scale: options.window_scale,
        may_sack: options.sack_permitted,
        sacks: options.sack.len(),
        mss: options.mss,
        group: options.group.is_some(),
    }
}

/// What was captured.
pub(super) struct Trace {
    pub(super) all: Vec<Seen>,
}

impl Trace {
    pub(super) fn count(&self, wanted: impl Fn(&Seen) -> bool) -> usize {
        self.all.iter().filter(|segment| wanted(segment)).count()
    }

    /// The first SYN, or SYN-ACK, of a side.
    pub(super) fn syn(&self, from: Side) -> Option<&Seen> {
        self.all
            .iter()
            .find(|segment| segment.syn && segment.from == from)
    }

    /// Bytes of data that went to an address.
    pub(super) fn data_to(&self, to: IpAddr) -> u64 {
        let there = self
            .all
            .iter()
            .filter(|segment| IpAddr::V4(segment.to) == to);
        there.map(|segment| segment.len as u64).sum()
    }

    /// The largest window that either side offered, with its scale applied.
    pub(super) fn widest_window(&self) -> u64 {
        let of = |side| {
            let shift = self.syn(side).and_then(|syn| syn.scale).unwrap_or(0);
            let later = self
                .all
                .iter()
                .filter(|seen| seen.from == side && !seen.syn);
            later.map(|seen| u64::from(seen.window) << shift).max()
        };
        of(Side::Engine).max(of(Side::Kernel)).unwrap_or(0)
    }

    /// SACK, window scaling and timestamps: offered, accepted and used.
    pub(super) fn judge_options(
        &self,
        report: &mut Report,
        name: &dyn Fn(&str) -> String,
        role: Role,
        lossy: bool,
    ) {
        let both = |has: &dyn Fn(&Seen) -> bool| {
            [Side::Engine, Side::Kernel]
                .iter()
                .all(|side| self.syn(*side).is_some_and(has))
        };
        let all_offered = both(&|syn| {
            syn.may_sack && syn.timestamps && syn.scale.is_some() && syn.mss == Some(1460)
        });
        let opener = match role {
            Role::Client => Side::Engine,
            Role::Server => Side::Kernel,
        };
        let opened = self
            .all
            .first()
            .is_some_and(|first| first.syn && first.from == opener);
        if !(all_offered && opened) {
            for side in [Side::Engine, Side::Kernel] {
                report.note(format!("first SYN of {side:?}: {:?}", self.syn(side)));
            }
            report.note(format!("first segment: {:?}", self.all.first()));
        }
        report.holds(
            name("SYN and SYN-ACK carry MSS, SACK, timestamps, scaling"),
            all_offered && opened,
        );
        let bare = self.count(|seen| !seen.rst && !seen.timestamps);
        report.holds(
            name("every segment has a timestamp"),
            bare == 0 && self.all.len() > 100,
        );
        report.holds(
            name("windows beyond 64 KiB are offered by scaling"),
            self.widest_window() > 0xffff,
        );
        if lossy {
            let sacked = |side| self.count(|seen| seen.from == side && seen.sacks > 0) > 0;
            report.holds(
                name("both sides send SACK blocks"),
                sacked(Side::Engine) && sacked(Side::Kernel),
            );
        }
    }
}
