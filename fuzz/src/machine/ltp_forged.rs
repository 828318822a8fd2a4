//! Packets of LTP that know the session and lie.

use ltp::store::HeapRing;
use ltp::wire::digests::{self, put_digest};
use ltp::wire::pace::{Echo, FEEDBACK_LEN, Feedback, Pace};
use ltp::wire::report::{Loss, Report, Status};
use ltp::wire::request::{self, Kind, Range};
use ltp::wire::{Seq, data, parity, sync};
use ltp::{Geometry, Sender, SessionId};

use crate::script::Script;

/// A packet that knows the session and lies.
pub(super) fn forged(script: &mut Script<'_>, sender: &Sender<'_, HeapRing>) -> Vec<u8> {
    let (session, geometry) = (sender.session(), sender.geometry());
    let number = u64::from(script.u8());
    let sequence = Seq::of(number, geometry.first());
    let kind = script.pick(8);
    let mut bytes = vec![script.u8(); 400];
    let len = match kind {
        0 => {
            let repair = script.flag().then(|| script.u16());
            data::Repr {
                repair,
                session,
                sequence,
                number: script.flag().then(|| script.u32()),
            }
            .emit(&mut bytes);
            geometry.packet_len()
        }
        1 => {
            let answer = script.flag().then(|| script.u64());
            let count = 1 + script.pick(4);
            let repr = digests::Repr {
                session,
                first_block: number as u32,
                answer,
                left: script.flag() && answer.is_some(),
                count,
            };
            repr.emit(&mut bytes);
            for index in 0..count {
                put_digest(&mut bytes, index, &[script.u8(); 32]);
            }
            repr.buffer_len()
        }
        6 => return parity(script, session, geometry),
        2 => {
            return request_bytes(script, session, sequence);
        }
        3 => return pace(script, session),
        4 => return feedback(script, session),
        5 => {
            let report = Report {
                session,
                status: script.of(&[
                    Status::Joined,
                    Status::Progress,
                    Status::Complete,
                    Status::Failed,
                    Status::Leaving,
                ]),
                tag: script.u16(),
                receiver: script.u8().into(),
                blocks: script.u8().into(),
                token: script.u8().into(),
                digest: script.u8().into(),
                loss: Loss {
                    expected: u32::from(script.u8()) << 2,
                    lost: script.u8().into(),
                },
            };
            report.emit(&mut bytes);
            report.buffer_len()
        }
        _ => {
            let repr = sync::Repr {
                session: if script.flag() {
                    session
                } else {
                    ltp::SessionId(script.u8().into())
                },
                silence_ms: script.u16().clamp(1, 60_000),
                geometry,
                oldest: if script.flag() { 0 } else { number },
                next: script.u8().into(),
                length: script.flag().then(|| script.u16().into()),
                digested: script.flag().then(|| script.u8().into()),
                parity: script.flag(),
                digest: script.flag().then(|| [script.u8(); 32]),
                reports: script.flag(),
                closing: script.flag(),
                stalled: script.flag(),
                stream: script.flag(),
                progress_blocks: script.u8().into(),
                report_window_us: script.u32(),
                answer: script.flag().then(|| script.u64()),
                name: b"",
            };
            repr.emit(&mut bytes);
            repr.buffer_len()
        }
    };
    bytes.truncate(len);
    bytes
}

fn request_bytes(script: &mut Script<'_>, session: ltp::SessionId, from: Seq) -> Vec<u8> {
    let kind = script.of(&[
        Kind::Data,
        Kind::Digests,
        Kind::Sync,
        Kind::Left,
        Kind::DataOrParity,
    ]);
    let mut repr = request::Repr {
        kind,
        tag: script.u16(),
        session,
        number: script.u8().into(),
        round_trip_us: script.u32(),
        token: 0,
        nonce: script.u64(),
        ranges: Default::default(),
    };
    let count = if matches!(kind, Kind::Sync | Kind::Left) {
        1
    } else {
        1 + script.pick(31)
    };
    for _ in 0..count {
        let is_data = matches!(kind, Kind::Data | Kind::DataOrParity);
        let base = if is_data { from.0 } else { 0 };
        let lo = base.wrapping_add(script.u8().into());
        let hi = lo.wrapping_add((script.u8() % 80).into());
        let range = match kind {
            Kind::Sync => Range { lo: 0, hi: 0 },
            Kind::Left => Range { lo, hi: lo },
            Kind::Data | Kind::DataOrParity | Kind::Digests => Range { lo, hi },
        };
        let _ = repr.ranges.push(range);
    }
    let mut bytes = vec![0; repr.buffer_len()];
    repr.emit(&mut bytes);
    bytes
}

/// Parity of a block as it could be, mostly.
fn parity(script: &mut Script<'_>, session: SessionId, geometry: Geometry) -> Vec<u8> {
    let per_block = geometry.packets_per_block() as u8;
    let packets = match script.pick(4) {
        0 => 1 + script.u8() % 64,
        _ => per_block,
    };
    let repr = parity::Repr {
        tag: script.u16(),
        session,
        block: script.u8().into(),
        number: script.flag().then(|| script.u32()),
        index: script.u8() % packets,
        packets,
    };
    let shard = usize::from(geometry.payload_len()).next_multiple_of(2);
    let mut bytes = vec![script.u8(); parity::PARITY_HEADER_LEN + shard];
    repr.emit(&mut bytes);
    bytes
}

fn pace(script: &mut Script<'_>, session: SessionId) -> Vec<u8> {
    let mut pace = Pace {
        session,
        round: script.u8().into(),
        slow_start: script.flag(),
        stamp_us: script.u32(),
        max_round_trip_us: script.u32(),
        rate_bps: script.u64().max(1),
        suppress_bps: script.u64(),
        limiting: script.u64(),
        receivers: script.u32(),
        echoes: Default::default(),
    };
    for _ in 0..script.pick(3) {
        let echo = Echo {
            receiver: script.u64(),
            stamp_us: script.u32(),
            held_us: script.u32(),
        };
        let _ = pace.echoes.push(echo);
    }
    let mut bytes = vec![0; pace.buffer_len()];
    pace.emit(&mut bytes);
    bytes
}

fn feedback(script: &mut Script<'_>, session: SessionId) -> Vec<u8> {
    let loss = script.u32();
    let feedback = Feedback {
        session,
        round: script.u8().into(),
        receiver: script.u64().max(1),
        token: script.u64(),
        stamp_us: script.u32(),
        echo_us: script.u32(),
        held_us: script.u32(),
        round_trip_us: script.u32(),
        loss,
        rate_bps: match loss {
            0 => u64::MAX,
            _ => script.u64() >> 1,
        },
        received_bps: script.u64(),
    };
    let mut bytes = vec![0; FEEDBACK_LEN];
    feedback.emit(&mut bytes);
    bytes
}
