//! Receivers that were let in and lie, and a path that holds acknowledgements back.

use std::collections::VecDeque;

use netsim::ip::Datagram;
use tcpxm::wire::Segment;
use tcpxm::{Duration, Instant, Seq};

use crate::common::{Dice, Disguise};

/// Data in a segment.
const SEGMENT: u32 = 1440;

type Packets = Vec<(Instant, Vec<u8>)>;

/// The packet with its segment changed.
fn changed(packet: &[u8], change: impl FnOnce(&mut Segment<'_>)) -> Vec<u8> {
    let datagram = Datagram::parse(packet).unwrap();
    let mut segment = Segment::parse(datagram.payload).unwrap();
    change(&mut segment);
    segment.options.shrink_to_fit();
    let mut bytes = vec![0; segment.buffer_len()];
    segment.emit(&mut bytes);
    Datagram {
        payload: &bytes,
        ..datagram
    }
    .emit()
}

/// A segment that is an acknowledgement and nothing else.
fn is_plain_ack(packet: &[u8]) -> bool {
    let datagram = Datagram::parse(packet).unwrap();
    let segment = Segment::parse(datagram.payload).unwrap();
    let flags = segment.flags;
    segment.payload.is_empty() && flags.ack && !flags.syn && !flags.fin && !flags.rst
}

/// The sequence number after the data of a packet.
fn end_of_data(packet: &[u8]) -> Option<Seq> {
    let datagram = Datagram::parse(packet)?;
    let segment = Segment::parse(datagram.payload).ok()?;
    let len = segment.payload.len() as u32;
    (len > 0).then(|| segment.seq.plus(len))
}

/// The later of two, where the first may be missing.
fn later(old: Option<Seq>, new: Seq) -> Seq {
    old.filter(|old| new.before(*old)).unwrap_or(new)
}

/// Acknowledges all that is sent to it, before it arrives. In every second period, if there are any, it is slow instead:
/// what it acknowledges arrives 100 ms late.
#[derive(Default)]
pub(crate) struct Optimist {
    period: Option<Duration>,
    template: Option<Vec<u8>>,
    end: Option<Seq>,
    /// Not before what it sent earlier.
    free_at: Instant,
}

impl Optimist {
    pub(crate) fn changing(period: Duration) -> Self {
        Self {
            period: Some(period),
            ..Self::default()
        }
    }

    fn acknowledge(&mut self, now: Instant, packet: &[u8]) -> Packets {
        let end = self.end;
        let lie = changed(packet, |segment| {
            if let Some(end) = end {
                segment.ack = later(Some(segment.ack), end);
                segment.options.sack = Default::default();
            }
        });
        let periods = self
            .period
            .map(|period| now.total_micros() as u64 / period.total_micros());
        let slow = periods.is_some_and(|count| count % 2 == 1);
        let delay = if slow { 100 } else { 0 };
        self.free_at = self.free_at.max(now + Duration::from_millis(delay));
        vec![(self.free_at, lie)]
    }
}

impl Disguise for Optimist {
    fn towards(&mut self, now: Instant, packet: &[u8]) -> Packets {
        let Some(end) = end_of_data(packet) else {
            return Vec::new();
        };
        self.end = Some(later(self.end, end));
        match self.template.clone() {
            Some(template) => self.acknowledge(now, &template),
            None => Vec::new(),
        }
    }

    fn from(&mut self, now: Instant, packet: &[u8]) -> Packets {
        if !is_plain_ack(packet) {
            return vec![(now, packet.to_vec())];
        }
        self.template = Some(packet.to_vec());
        self.acknowledge(now, packet)
    }
}

/// Reports every second segment as lost when it arrives, and all of them as arrived some time later.
pub(crate) struct Gaps {
    round: Duration,
    /// What it has, and when it admits that.
    admits: VecDeque<(Instant, Seq)>,
    admitted: Option<Seq>,
    reported: u32,
}

impl Gaps {
    pub(crate) fn admitted_after(round: Duration) -> Self {
        Self {
            round,
            admits: VecDeque::new(),
            admitted: None,
            reported: 0,
        }
    }
}

impl Disguise for Gaps {
    fn towards(&mut self, _now: Instant, _packet: &[u8]) -> Packets {
        Vec::new()
    }

    fn from(&mut self, now: Instant, packet: &[u8]) -> Packets {
        if !is_plain_ack(packet) {
            return vec![(now, packet.to_vec())];
        }
        let ms = self.round.total_millis() as u32;
        let truth = changed(packet, |segment| {
            segment.options.sack = Default::default();
            if let Some((stamp, _)) = &mut segment.options.timestamps {
                *stamp = stamp.wrapping_add(ms);
            }
        });
        let lie = changed(packet, |segment| {
            let received = segment.ack;
            while let Some((at, has)) = self.admits.front().copied()
                && at <= now
            {
                self.admits.pop_front();
                self.admitted = Some(has);
                self.reported = 0;
            }
            self.admits.push_back((now + self.round, received));
            let Some(base) = self.admitted else {
                return;
            };
            segment.ack = base;
            segment.options.sack = Default::default();
            let pairs = received.since(base).max(0) as u32 / (2 * SEGMENT);
            for newest in 0..pairs.min(3) {
                let pair = pairs - 1 - (newest + self.reported) % pairs;
                let from = base.plus((2 * pair + 1) * SEGMENT);
                segment.options.sack.push((from, from.plus(SEGMENT)));
            }
            self.reported += 2;
        });
        vec![(now, lie), (now + self.round, truth)]
    }
}

/// Honest but for the last part of each second, when it says that it lacks all but the newest segment.
pub(crate) struct Outage {
    lasts: Duration,
    /// What it acknowledged before.
    admitted: Option<Seq>,
}

impl Outage {
    pub(crate) fn of(lasts: Duration) -> Self {
        Self {
            lasts,
            admitted: None,
        }
    }
}

impl Disguise for Outage {
    fn towards(&mut self, _now: Instant, _packet: &[u8]) -> Packets {
        Vec::new()
    }

    fn from(&mut self, now: Instant, packet: &[u8]) -> Packets {
        if !is_plain_ack(packet) {
            return vec![(now, packet.to_vec())];
        }
        let honest = now.total_millis() % 1000 < 1000 - self.lasts.total_millis() as i64;
        let lie = changed(packet, |segment| {
            let received = segment.ack;
            let Some(base) = self.admitted.filter(|_| !honest) else {
                self.admitted = Some(received);
                return;
            };
            segment.ack = base;
            segment.options.sack = Default::default();
            if received.since(base) > SEGMENT as i32 {
                segment
                    .options
                    .sack
                    .push((received.minus(SEGMENT), received));
            }
        });
        vec![(now, lie)]
    }
}

/// Reports each segment as lost when it arrives, and as arrived before it would be sent again; and acknowledges none
/// of them, so that what is known of its losses cannot be forgotten.
pub(crate) struct Flood {
    admits: VecDeque<(Instant, Seq)>,
    admitted: Option<Seq>,
    base: Option<Seq>,
}

impl Flood {
    const ADMITTED_AFTER: Duration = Duration::from_millis(10);
    /// Its window is larger.
    const MOST_BYTES: i32 = 3 << 20;

    pub(crate) fn new() -> Self {
        Self {
            admits: VecDeque::new(),
            admitted: None,
            base: None,
        }
    }
}

impl Disguise for Flood {
    fn towards(&mut self, _now: Instant, _packet: &[u8]) -> Packets {
        Vec::new()
    }

    fn from(&mut self, now: Instant, packet: &[u8]) -> Packets {
        if !is_plain_ack(packet) || now < Instant::from_secs(1) {
            return vec![(now, packet.to_vec())];
        }
        let lie = changed(packet, |segment| {
            let received = segment.ack;
            let base = *self.base.get_or_insert(received);
            if received.since(base) > Self::MOST_BYTES {
                self.base = Some(received);
                return;
            }
            while let Some((at, has)) = self.admits.front().copied()
                && at <= now
            {
                self.admits.pop_front();
                self.admitted = Some(has);
            }
            self.admits
                .push_back((now + Self::ADMITTED_AFTER, received));
            segment.ack = base;
            segment.options.sack = Default::default();
            if received.since(base) > SEGMENT as i32 {
                segment
                    .options
                    .sack
                    .push((received.minus(SEGMENT), received));
            }
            let first = base.plus(SEGMENT);
            if let Some(has) = self.admitted.filter(|has| first.before(*has)) {
                segment.options.sack.push((first, has));
            }
        });
        vec![(now, lie)]
    }
}

/// What a receiver echoes instead of the timestamp that it got.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Echo {
    Zero,
    /// This many milliseconds later, or earlier if negative.
    Off(i32),
    Random,
}

/// Echoes wrong timestamps (RFC 7323).
pub(crate) struct Clock(pub(crate) Echo, pub(crate) Dice);

impl Disguise for Clock {
    fn towards(&mut self, _now: Instant, _packet: &[u8]) -> Packets {
        Vec::new()
    }

    fn from(&mut self, now: Instant, packet: &[u8]) -> Packets {
        let lie = changed(packet, |segment| {
            if let Some((_, echo)) = &mut segment.options.timestamps
                && !segment.flags.syn
            {
                *echo = match self.0 {
                    Echo::Zero => 0,
                    Echo::Off(ms) => echo.wrapping_add_signed(ms),
                    Echo::Random => self.1.below(1 << 31) as u32 * 2,
                };
            }
        });
        vec![(now, lie)]
    }
}

/// When held acknowledgements go on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Hold {
    /// All at once, each time that this has passed.
    Lumps(Duration),
    /// Each after a random time up to this one, never before an earlier one.
    Random(Duration),
}

/// An honest receiver, or its path, which holds acknowledgements back.
pub(crate) struct Late {
    hold: Hold,
    dice: Dice,
    free_at: Instant,
}

impl Late {
    pub(crate) fn new(hold: Hold, seed: u64) -> Self {
        Self {
            hold,
            dice: Dice(seed),
            free_at: Instant::ZERO,
        }
    }
}

impl Disguise for Late {
    fn towards(&mut self, _now: Instant, _packet: &[u8]) -> Packets {
        Vec::new()
    }

    fn from(&mut self, now: Instant, packet: &[u8]) -> Packets {
        let at = match self.hold {
            Hold::Lumps(every) => {
                let every = every.total_micros() as i64;
                Instant::from_micros((now.total_micros() / every + 1) * every)
            }
            Hold::Random(most) => {
                now + Duration::from_micros(self.dice.below(most.total_micros() + 1))
            }
        };
        self.free_at = self.free_at.max(at);
        vec![(self.free_at, packet.to_vec())]
    }
}
