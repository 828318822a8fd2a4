//! A relay alone: packets are handed to it one by one, and each is timed.

use std::hint::black_box;
use std::net::IpAddr;

use crate::prelude::*;
use dyram::storage::{Limits, Storage};
use dyram::wire::{Body, Join, NO_CHILD, Nack, Packet, Repr, Role};
use dyram::{Config, Meta, Relay, RelayId, Seq, SessionKey, Verdict};

const SESSION: u32 = 1;
/// Virtual time between announcements of the children.
const REFRESH: dyram::Duration = dyram::Duration::from_millis(60_000);

/// A relay with a source above and receivers below.
pub(super) struct TimedRelay {
    relay: Relay<'static>,
    now: dyram::Instant,
    children: u16,
    announced: dyram::Instant,
    /// The cost of reading the clock.
    clock: Duration,
    buffer: Vec<u8>,
}

fn source() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, 1), 5_000))
}

fn child(number: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::from_bits(0x0a01_0000 + u32::from(number)), 5_000))
}

impl TimedRelay {
    pub(super) fn new(children: u16) -> Result<TimedRelay> {
        let mut config = Config::new(RelayId(9));
        config.refresh = REFRESH;
        config.stall_timeout = REFRESH;
        config.parent_tries = 1;
        let limits = Limits {
            sessions: 1,
            children: usize::from(children),
            ..Limits::default()
        };
        let now = dyram::Instant::from_secs(1);
        let relay = Relay::new(config, Storage::owned(limits)?, [3; 32], now)?;
        let mut timed = TimedRelay {
            relay,
            now,
            children,
            announced: now,
            clock: Duration::ZERO,
            buffer: vec![0; 1 << 16],
        };
        timed.announce()?;
        timed.clock = timed.look_at_clock();
        Ok(timed)
    }

    /// The median time between two readings of the clock.
    fn look_at_clock(&self) -> Duration {
        let mut times: Vec<Duration> = (0..10_001).map(|_| Instant::now().elapsed()).collect();
        times.sort_unstable();
        times[times.len() / 2]
    }

    pub(super) fn clock_ns(&self) -> f64 {
        self.clock.as_nanos() as f64
    }

    fn announce(&mut self) -> Result<()> {
        self.announced = self.now;
        self.join(source(), Role::Source)?;
        (0..self.children).try_for_each(|number| self.join(child(number), Role::Receiver))
    }

    fn join(&mut self, from: SocketAddr, role: Role) -> Result<()> {
        let mut join = Join {
            role,
            token: 0,
            stamp: 1,
            far_us: 0,
            round_trip_us: 0,
            receivers: 1,
            relay: RelayId(0),
        };
        for _ in 0..2 {
            self.forward(from, NO_CHILD, 0, 0, Body::Join(join))?;
            let answer = self.relay.poll_transmit(self.now, &mut self.buffer);
            let Some(answer) = answer else {
                bail!("a JOIN without an answer");
            };
            let packet = Packet::new_checked(&self.buffer[..answer.len])?;
            if let Body::Joined(joined) = Repr::parse(&packet).body {
                join.token = joined.token;
            }
        }
        Ok(())
    }

    /// Hands over one packet, and reads out where it goes; the nanoseconds it took, without those of the
    /// clock.
    fn forward(
        &mut self,
        from: SocketAddr,
        child: u16,
        session: u32,
        seq: u32,
        body: Body<'_>,
    ) -> Result<f64> {
        let group = IpAddr::from([239, 1, 2, 3]);
        let key = SessionKey::new(source().ip(), group);
        ensure!(key.is_some(), "both are IPv4");
        let Some(key) = key else { return Ok(0.0) };
        let repr = Repr {
            key,
            session,
            child,
            sequence: Seq(seq),
            body,
        };
        let len = repr.emit(&mut self.buffer);
        let (packet, meta) = (&mut self.buffer[..len], Meta::unicast(from));
        let start = Instant::now();
        let verdict = self.relay.forward(self.now, &meta, packet);
        if let Verdict::Send(fanout) = &verdict {
            for target in self.relay.targets(fanout) {
                black_box(target);
            }
        }
        let took = start.elapsed();
        if let Verdict::Drop(reason) = verdict {
            bail!("dropped: {}", reason.name());
        }
        Ok(took.saturating_sub(self.clock).as_nanos() as f64)
    }

    /// A packet of the source's.
    pub(super) fn data(&mut self, seq: u32, payload: &[u8]) -> Result<f64> {
        self.forward(source(), NO_CHILD, SESSION, seq, Body::Data(payload))
    }

    /// A repair of the source's.
    pub(super) fn repair(&mut self, seq: u32, payload: &[u8]) -> Result<f64> {
        self.forward(source(), NO_CHILD, SESSION, seq, Body::Repair(payload))
    }

    /// A receiver misses a packet.
    pub(super) fn nack(&mut self, number: u16, seq: u32) -> Result<f64> {
        let body = Body::Nack(Nack::default());
        self.forward(child(number), number, SESSION, seq, body)
    }

    /// Advances the time and discards the packets that timers make the relay send; returns the nanoseconds it took.
    pub(super) fn pass(&mut self, milliseconds: u64) -> Result<f64> {
        self.now += dyram::Duration::from_millis(milliseconds);
        let start = Instant::now();
        self.relay.handle_timeout(self.now);
        while self
            .relay
            .poll_transmit(self.now, &mut self.buffer)
            .is_some()
        {}
        let took = start.elapsed().saturating_sub(self.clock);
        while self.relay.poll_event().is_some() {}
        if self.now - self.announced > REFRESH {
            self.announce()?;
        }
        Ok(took.as_nanos() as f64)
    }
}

/// The quantile of these values.
pub(super) fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = (share * values.len() as f64) as usize;
    let last = values.len().saturating_sub(1);
    values.get(at.min(last)).copied().unwrap_or(f64::NAN)
}
