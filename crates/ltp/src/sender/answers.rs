//! Small packets to single receivers, within their share of the rate.

use core::net::{IpAddr, SocketAddr};

use proto_core::time::Instant;

use super::Sender;
use super::queue::Pushed;
use crate::error::Error;
use crate::pacing::FRAME_OVERHEAD;
use crate::store::Store;
use crate::wire::report::{ReportAck, Verdict};
use crate::wire::{digests, sync};
use crate::{Destination, Transmit};

/// A small packet to one receiver.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    Ack {
        to: SocketAddr,
        ack: ReportAck,
    },
    Sync {
        to: SocketAddr,
        nonce: u64,
    },
    Digests {
        to: Option<SocketAddr>,
        nonce: u64,
        first: u64,
        count: u64,
    },
    Left {
        to: SocketAddr,
        nonce: u64,
        block: u64,
    },
}

impl Answer {
    /// The host that gets it; `None`: the group.
    pub(super) fn host(&self) -> Option<IpAddr> {
        let to = match *self {
            Answer::Ack { to, .. } | Answer::Sync { to, .. } | Answer::Left { to, .. } => Some(to),
            Answer::Digests { to, .. } => to,
        };
        to.map(|to| to.ip())
    }

    /// Whether its address may be forged: tokens and answers of SYNC need no proof of it.
    pub(super) fn is_unproven(&self) -> bool {
        match self {
            Answer::Ack { ack, .. } => ack.verdict == Verdict::Token,
            Answer::Sync { .. } => true,
            Answer::Digests { .. } | Answer::Left { .. } => false,
        }
    }
}

impl<S: Store> Sender<'_, S> {
    pub(super) fn answer(&mut self, answer: Answer) -> Result<(), Error> {
        match self.answers.push(answer) {
            Pushed::Waits => {}
            Pushed::Replaces => self.stats.answers_lost += 1,
            Pushed::Refused => return Err(Error::AnswersFull),
        }
        Ok(())
    }

    /// Queues an acknowledgement. A receiver without an answer repeats its report, so that a full queue costs
    /// time only.
    pub(super) fn acknowledge(&mut self, to: SocketAddr, ack: ReportAck) {
        if self.answer(Answer::Ack { to, ack }).is_err() {
            self.stats.answers_lost += 1;
        }
    }

    /// Gives an address its token. The packet is no longer than its cause.
    pub(super) fn give_token(&mut self, to: SocketAddr, tag: u16, receiver: u64) {
        let token = self.token(to);
        let session = self.session;
        let ack = ReportAck {
            verdict: Verdict::Token,
            tag,
            session,
            receiver,
            token,
        };
        self.acknowledge(to, ack);
    }

    pub(super) fn poll_answer(&mut self, budget: usize, buffer: &mut [u8]) -> Option<Transmit> {
        let answer = *self.answers.next()?;
        let len = self.answer_len(&answer);
        let frame = len + self.hashing.overhead() + FRAME_OVERHEAD;
        if !self.fits(budget, buffer, len) || !self.pacing.spend_answer(self.now, frame) {
            return None;
        }
        self.answers.pop();
        let (to, len) = match answer {
            Answer::Ack { to, ack } => {
                ack.emit(buffer);
                (Some(to), len)
            }
            Answer::Sync { to, nonce } => {
                self.sync_repr(Some(nonce)).emit(buffer);
                (Some(to), len)
            }
            Answer::Left { to, nonce, block } => (Some(to), self.write_left(buffer, nonce, block)),
            Answer::Digests {
                to,
                nonce,
                first,
                count,
            } => {
                let nonce = to.map(|_| nonce);
                self.write_digests(buffer, nonce, first, count).ok()?;
                (to, len)
            }
        };
        self.stats.answers += 1;
        let destination = to.map_or(Destination::Group, Destination::Unicast);
        self.seal(destination, buffer, len)
    }

    /// The most an answer takes, without authenticator.
    fn answer_len(&self, answer: &Answer) -> usize {
        match *answer {
            Answer::Ack { ack, .. } => ack.buffer_len(),
            Answer::Sync { .. } => sync::SYNC_LEN,
            Answer::Digests { count, .. } => digests::DIGESTS_HEADER_LEN + 32 * count as usize,
            Answer::Left { block, .. } => {
                digests::DIGESTS_HEADER_LEN + 32 * self.left_count(block).unwrap_or(0)
            }
        }
    }

    /// When the next answer may go.
    pub(super) fn answer_at(&self) -> Option<Instant> {
        let len = self.answer_len(self.answers.next()?);
        let frame = len + self.hashing.overhead() + FRAME_OVERHEAD;
        Some(self.pacing.answer_at(frame))
    }
}
