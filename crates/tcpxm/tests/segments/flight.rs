//! A sender of segments of 1000 bytes, and its peer's acknowledgements.

use tcpxm::wire::Options;
use tcpxm::{Config, CongestionControl, Error, Seq};

use crate::hand::*;

pub(crate) const SEGMENT: u32 = 1000;
pub(crate) const ROUND_TRIP_MS: u64 = 20;

pub(crate) struct Flight {
    pub(crate) hand: Hand,
    /// Number of the first byte.
    pub(crate) base: Seq,
    timestamps: bool,
    /// The timestamp to echo.
    pub(crate) echo: u32,
}

impl Flight {
    pub(crate) fn new(sack: bool, timestamps: bool) -> Self {
        Self::with(|_| (), sack, timestamps)
    }

    pub(crate) fn with(
        change: impl FnOnce(&mut Config),
        sack_permitted: bool,
        timestamps: bool,
    ) -> Self {
        Self::over(ROUND_TRIP_MS, change, sack_permitted, timestamps)
    }

    /// The same over a path with this round trip.
    pub(crate) fn over(
        round_trip_ms: u64,
        change: impl FnOnce(&mut Config),
        sack_permitted: bool,
        timestamps: bool,
    ) -> Self {
        let mut config = Config::default();
        config.congestion_control = CongestionControl::NewReno;
        change(&mut config);
        let mut hand = Hand::new(config);
        hand.now += tcpxm::Duration::from_secs(1);
        let mss = SEGMENT as u16 + if timestamps { 12 } else { 0 };
        let options = Options {
            mss: Some(mss),
            sack_permitted,
            timestamps: timestamps.then_some((1, 0)),
            ..Options::default()
        };
        hand.answer("S", options).unwrap();
        let answer = hand.sent().pop().unwrap();
        hand.wait(round_trip_ms);
        (hand.seq, hand.ack) = (ISS.plus(1), answer.seq.plus(1));
        let mut flight = Self {
            base: hand.ack,
            hand,
            timestamps,
            echo: answer.options.timestamps.map_or(0, |(value, _)| value),
        };
        flight.acknowledge(0, &[]);
        flight.hand.id = flight.hand.endpoint.accept(flight.hand.now, PORT);
        flight
    }

    pub(crate) fn write(&mut self, segments: u32) {
        self.hand.send(&vec![7; (segments * SEGMENT) as usize]);
    }

    /// Numbers of the segments that are sent now. The last timestamp is the one that is echoed next.
    pub(crate) fn sent(&mut self) -> Vec<u32> {
        let sent = self.hand.sent();
        if let Some((value, _)) = sent.last().and_then(|sent| sent.options.timestamps) {
            self.echo = value;
        }
        let data = sent.iter().filter(|sent| !sent.payload.is_empty());
        data.map(|sent| sent.seq.0.wrapping_sub(self.base.0) / SEGMENT)
            .collect()
    }

    /// Acknowledges this many segments, and those in these ranges.
    pub(crate) fn acknowledge(&mut self, segments: u32, ranges: &[(u32, u32)]) {
        self.give(segments, ranges, 60_000, b"").unwrap();
    }

    pub(crate) fn give(
        &mut self,
        segments: u32,
        ranges: &[(u32, u32)],
        window: u16,
        payload: &[u8],
    ) -> Result<(), Error> {
        let at = |segment: u32| self.base.plus(segment * SEGMENT);
        let mut segment = self.hand.segment(self.hand.seq, at(segments), ACK, payload);
        segment.window = window;
        segment.options.timestamps = self.timestamps.then_some((2, self.echo));
        for (from, to) in ranges {
            segment.options.sack.push((at(*from), at(*to)));
        }
        let result = self.hand.inject(&segment, "10.0.0.1");
        self.hand.seq = self.hand.seq.plus(payload.len() as u32);
        result
    }

    /// A round trip passes.
    pub(crate) fn pass(&mut self) {
        self.hand.wait(ROUND_TRIP_MS);
    }

    pub(crate) fn wait_for(&mut self, most_ms: u64) -> (Vec<u32>, u64) {
        for ms in 1..=most_ms {
            self.hand.wait(1);
            let sent = self.sent();
            if !sent.is_empty() {
                return (sent, ms);
            }
        }
        panic!("nothing in {most_ms} ms");
    }

    /// The congestion window in segments.
    pub(crate) fn window(&self) -> u64 {
        self.hand.stats().congestion_window / u64::from(SEGMENT)
    }
}
