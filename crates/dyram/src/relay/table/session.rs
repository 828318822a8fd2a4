//! What a relay knows of a session.

use proto_core::time::Instant;

use super::{NEVER, NONE};
use crate::attach::Parent;
use crate::relay::Feedbacks;
use crate::relay::answer::AnswerTime;
use crate::track::Track;
use crate::types::{Addr, RawKey};
use crate::wheel::tick_of;
use crate::{Seq, SessionKey};

/// What a relay knows of one session, apart from its children and NACK states.
#[derive(Clone, Debug)]
pub struct Session {
    /// Whether the entry is in use; if not, the key means nothing.
    pub(super) open: bool,
    pub(super) key: RawKey,
    /// Next entry of the same bucket, or next free entry.
    pub(super) chain: u16,
    /// First free NACK state.
    pub(super) free_state: u16,
    pub(crate) children: u16,
    /// Whether the source is registered at this relay: `above` is its address then.
    pub(crate) has_source: bool,
    /// Round-trip time to a source that is registered, as it measured it.
    pub(crate) source_us: u32,
    pub(crate) heard: LastHeard,
    pub(crate) parent: Option<Parent>,
    /// Where packets of the session come from: the source, or the parent once it has accepted this relay.
    pub(crate) above: Option<Addr>,
    /// The running session identifier.
    pub(crate) id: Option<u32>,
    pub(crate) track: Track,
    pub(crate) below: Below,
    pub(crate) answer: AnswerTime,
    pub(crate) acks: Acks,
    /// Whether the folded acknowledgement was sent upward since the last sweep.
    pub(crate) ack_sent: bool,
    /// All children have stalled while data continues: fold again after the acknowledgement interval.
    pub(crate) fold_again: bool,
    /// When to remove silent children and count the others.
    pub(crate) sweep_due: Instant,
    /// The next child to send MOVE to, while the children are being sent away.
    pub(crate) moving: Option<u16>,
    /// A second session identifier or source was seen and reported.
    pub(crate) collided: bool,
    pub(crate) feedbacks: Feedbacks,
}

/// When something was last heard, in ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastHeard {
    /// A registration of the source.
    pub(crate) source: u32,
    /// A packet with the running session identifier.
    pub(crate) run: u32,
}

/// The acknowledgements of all children, folded into one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acks {
    /// Every child that is waited for has everything before this packet. As of the last fold.
    pub(crate) folded: Option<Seq>,
    /// When to fold again; [`NEVER`] without a new acknowledgement.
    pub(crate) due: Instant,
}

/// What the children reported about the receivers below.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Below {
    /// Receivers, counted by the last sweep.
    pub(crate) receivers: u32,
    /// Round-trip time to the farthest receiver.
    pub(crate) far_us: u32,
    /// Round-trip time to the farthest child: since the last sweep, and between that and the one before.
    pub(crate) near_us: [u32; 2],
}

impl Default for Session {
    fn default() -> Self {
        Session::new(None, Instant::ZERO)
    }
}

impl Session {
    pub(crate) fn is_open(&self) -> bool {
        self.open
    }

    /// Lets the next session identifier count at once: the source was started again, or is another one now.
    pub(crate) fn expect_another_run(&mut self) {
        self.heard.run = self.heard.run.wrapping_sub(1 << 31);
    }

    /// Returns the session's name; `None` if the entry is not in use.
    pub(crate) fn name(&self) -> Option<SessionKey> {
        self.open.then(|| SessionKey::from(self.key))
    }

    pub(super) fn new(key: Option<RawKey>, now: Instant) -> Self {
        let tick = tick_of(now) as u32;
        Session {
            open: key.is_some(),
            key: key.unwrap_or(RawKey([0; 4])),
            chain: NONE,
            free_state: NONE,
            children: 0,
            has_source: false,
            source_us: 0,
            heard: LastHeard {
                source: tick,
                run: tick,
            },
            parent: None,
            above: None,
            id: None,
            track: Track::default(),
            below: Below::default(),
            answer: AnswerTime::default(),
            acks: Acks {
                folded: None,
                due: NEVER,
            },
            ack_sent: false,
            fold_again: false,
            sweep_due: now,
            moving: None,
            collided: false,
            feedbacks: Feedbacks::default(),
        }
    }
}
