//! LTP packets.

use ltp::wire::pace::{Feedback, Pace};
use ltp::wire::report::{Report, ReportAck};
use ltp::wire::{Header, Seq, data, digests, parity, request, sync};

pub fn packet(bytes: &[u8]) {
    if let Ok(header) = Header::parse(bytes) {
        let mut out = [0; 8];
        header.emit(&mut out);
        assert_eq!(Header::parse(&out), Ok(header));
    }
    if let Ok(packet) = data::Packet::new_checked(bytes) {
        let repr = data::Repr::parse(&packet);
        let mut out = bytes.to_vec();
        out[..repr.buffer_len()].fill(0);
        repr.emit(&mut out);
        assert_eq!(out, bytes);
        if let Some(number) = packet.sequence().expand(u64::from(u32::MAX)) {
            assert_eq!(Seq::of(number, Seq(0)), packet.sequence());
        }
    }
    if let Ok((repr, shard)) = parity::Repr::parse(bytes) {
        let mut out = bytes.to_vec();
        out[..repr.buffer_len()].fill(0);
        repr.emit(&mut out);
        assert_eq!(out, bytes);
        assert_eq!(out[repr.buffer_len()..], *shard);
    }
    if let Ok(repr) = sync::Repr::parse(bytes) {
        let mut out = vec![0; repr.buffer_len()];
        repr.emit(&mut out);
        assert_eq!(sync::Repr::parse(&out), Ok(repr));
    }
    if let Ok((repr, digests)) = digests::Repr::parse(bytes) {
        let mut out = bytes.to_vec();
        repr.emit(&mut out);
        assert_eq!(digests::Repr::parse(&out), Ok((repr, digests)));
    }
    if let Ok(repr) = request::Repr::parse(bytes) {
        let mut out = vec![0; repr.buffer_len()];
        repr.emit(&mut out);
        assert_eq!(request::Repr::parse(&out), Ok(repr));
    }
    if let Ok(report) = Report::parse(bytes) {
        let mut out = vec![0; report.buffer_len()];
        report.emit(&mut out);
        assert_eq!(Report::parse(&out), Ok(report));
    }
    if let Ok(pace) = Pace::parse(bytes) {
        let mut out = vec![0; pace.buffer_len()];
        pace.emit(&mut out);
        assert_eq!(out, bytes);
    }
    if let Ok(feedback) = Feedback::parse(bytes) {
        let mut out = vec![0; feedback.buffer_len()];
        feedback.emit(&mut out);
        assert_eq!(out, bytes);
    }
    if let Ok(ack) = ReportAck::parse(bytes) {
        let mut out = vec![0; ack.buffer_len()];
        ack.emit(&mut out);
        assert_eq!(ReportAck::parse(&out), Ok(ack));
    }
}
