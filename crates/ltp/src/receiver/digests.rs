//! Requests for digests, and the digests that come.

use proto_core::time::{Duration, Instant};

use super::recovery::Target;
use super::{Phase, Receiver, Timer};
use crate::digest::Digest;
use crate::error::Error;
use crate::event::Failure;
use crate::store::Store;
use crate::wire::digests;
use crate::wire::request::{Kind, Range};
use crate::{Meta, Path, Transmit};

/// The longest wait for digests that are repeated.
const MAX_REPEAT_WAIT: Duration = Duration::from_millis(1000);

/// A request for the digests of some blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct DigestRequest {
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) nonce: u64,
    pub(super) attempts: u32,
    /// It is for the chaining values before the start, not for digests of blocks.
    pub(super) left: bool,
}

/// The request for digests, and when digests were announced.
#[derive(Default, Debug)]
pub(super) struct DigestRequests {
    pending: Option<DigestRequest>,
    /// When digests were last announced, the time since those before, and the first block they were of.
    announced_at: Option<Instant>,
    gap: Duration,
    first: u64,
}

impl DigestRequests {
    /// Returns the nonce of the pending request, if it has one.
    pub(super) fn nonce(&self) -> Option<u64> {
        self.pending
            .map(|request| request.nonce)
            .filter(|&nonce| nonce != 0)
    }

    /// Requests no digests any more.
    pub(super) fn cancel(&mut self) {
        self.pending = None;
    }

    /// The source has digests of the blocks before `published` only.
    pub(super) fn limit(&mut self, published: u64) {
        self.pending
            .take_if(|request| !request.left && request.first >= published);
    }

    /// Whether digests of blocks were requested and have not come.
    pub(super) fn are_outstanding(&self) -> bool {
        self.pending.is_some_and(|request| !request.left)
    }

    /// The source waits: digests are not repeated until it continues.
    pub(super) fn forget_gap(&mut self) {
        self.gap = Duration::ZERO;
    }

    /// The source has answered with a token: the request is repeated, and does not count twice. Returns
    /// whether there is one with that nonce.
    pub(super) fn token_came(&mut self, nonce: u64) -> bool {
        let request = self
            .pending
            .as_mut()
            .filter(|request| request.nonce == nonce);
        let is_pending = request.is_some();
        if let Some(request) = request {
            request.attempts = request.attempts.saturating_sub(1);
        }
        is_pending
    }
}

impl<S: Store> Receiver<'_, S> {
    pub(super) fn poll_digest_request(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        if !self.due(Timer::Digests) {
            return None;
        }
        self.timers.stop(Timer::Digests);
        if self.phase != Phase::Open {
            return None;
        }
        let mut request = match self.digests.pending {
            Some(request) => request,
            None => self.next_digest_request()?,
        };
        if request.left && self.left_is_given_up(request.attempts) {
            return None;
        }
        request.attempts += 1;
        let target = self.recovery.digest_target(request.attempts);
        let to_source = target == Target::Source;
        if to_source && request.nonce == 0 {
            request.nonce = self.identity.nonce();
        }
        self.digests.pending = Some(request);
        if self.recovery.is_digest_doubtful(request.attempts) {
            self.request_confirmation();
        }
        let wait = self.recovery.digest_timeout(request.attempts, target);
        let wait = wait + self.identity.jitter(wait / 4);
        self.timers.set(Timer::Digests, self.now + wait);
        let nonce = if to_source { request.nonce } else { 0 };
        let kind = if request.left {
            Kind::Left
        } else {
            Kind::Digests
        };
        let mut repr = self.request_repr(kind, request.attempts, nonce, target)?;
        let _ = repr.ranges.push(Range {
            lo: request.first as u32,
            hi: request.last as u32,
        });
        repr.emit(buffer);
        let destination = self.request_destination(target)?;
        Some(self.sent(destination, buffer, repr.buffer_len()))
    }

    /// Has digests that are missing requested after a short time.
    pub(super) fn want_digests(&mut self) {
        let wanted = self.window.has_waiting() || self.wants_left() || self.audit_wants_digests();
        if !wanted || self.phase != Phase::Open {
            return;
        }
        let delay = self.digest_delay();
        // A long wait for digests that will be repeated ends when they will not.
        let stays = |at| at <= self.now + delay * 2 || !self.waits_for_repeated();
        if self.timers.at(Timer::Digests).is_some_and(stays) {
            return;
        }
        let spread = self.identity.jitter(delay);
        self.timers.set(Timer::Digests, self.now + delay + spread);
    }

    /// Returns a request for the first run of blocks that dispute their digests, else of those that have none.
    pub(super) fn next_digest_request(&mut self) -> Option<DigestRequest> {
        if let Some(request) = self
            .next_left_request()
            .or_else(|| self.next_audit_request())
        {
            return Some(request);
        }
        let session = self.session.as_ref()?;
        let run = self.window.waiting(session.digested())?;
        Some(DigestRequest {
            first: run.first,
            last: run.last,
            nonce: 0,
            attempts: self.recovery.first_digest_attempt(run.may_ask_group),
            left: false,
        })
    }

    pub(super) fn on_digests(
        &mut self,
        meta: &Meta,
        packet: &digests::Repr,
        digests: &[Digest],
    ) -> Result<(), Error> {
        let session = self.session.as_ref().ok_or(Error::BeforeSync)?;
        if packet.session != session.id() {
            return Err(Error::OtherSession);
        }
        if !session.is_from(&meta.source) {
            return Err(Error::OtherSource);
        }
        if !session.has_digests() {
            return Err(Error::Integrity);
        }
        let confirmed = match packet.answer {
            Some(nonce) => {
                let requested = self
                    .digests
                    .pending
                    .is_some_and(|request| request.nonce == nonce && request.left == packet.left);
                if !requested || meta.path != Path::Unicast {
                    return Err(Error::Unasked);
                }
                true
            }
            None if meta.path == Path::Unicast => return Err(Error::Unasked),
            None => false,
        };
        self.stats.digests += 1;
        if packet.left {
            self.learn_left(packet, digests);
            return Ok(());
        }
        let first = u64::from(packet.first_block);
        for (block, &digest) in (first..).zip(digests) {
            let within = (self.window.frontier()..self.window.end()).contains(&block);
            if !within || confirmed && !self.is_requested(block) {
                continue;
            }
            if !self.is_audited(block) {
                self.learn_digest(block, digest, confirmed);
            } else if confirmed {
                // Only a confirmed digest replaces one that was believed before.
                self.learn_in_audit(block, digest)?;
            }
        }
        self.digest_request_answered();
        self.advance_frontier();
        if !confirmed {
            self.digests_announced(first);
        }
        self.want_digests();
        Ok(())
    }

    /// Whether the digest of that block was requested. An answer whose first block was changed on the way
    /// answers no other request.
    fn is_requested(&self, block: u64) -> bool {
        self.digests
            .pending
            .is_some_and(|request| (request.first..=request.last).contains(&block))
    }

    /// Learns the confirmed digest of a block under audit, or of one that the audit found wrong.
    fn learn_in_audit(&mut self, block: u64, digest: Digest) -> Result<(), Error> {
        if self.window.has_failed_audit(block) {
            self.learn_digest(block, digest, true);
        } else if self.judge(block, digest).is_err() {
            self.fail(Failure::Store);
            return Err(Error::Store);
        }
        Ok(())
    }

    /// Continues with the blocks of the request that are still open: an answer may have room for the first few
    /// only.
    fn digest_request_answered(&mut self) {
        let Some(request) = self
            .digests
            .pending
            .as_mut()
            .filter(|request| !request.left)
        else {
            return;
        };
        match self.window.first_waiting(request.first, request.last) {
            Some(block) if block == request.first => {}
            Some(block) => {
                request.first = block;
                request.attempts = request.attempts.saturating_sub(1);
                self.timers.set(Timer::Digests, self.now);
            }
            None => {
                self.digests.pending = None;
                self.timers.stop(Timer::Digests);
            }
        }
    }

    /// Whether missing digests are waited for because they may be repeated.
    fn waits_for_repeated(&self) -> bool {
        self.recovery.is_dyram() && self.digests.pending.is_none()
    }

    /// Returns how long blocks wait for their digests before the source is asked. Below a relay lost digests
    /// are repeated with the next ones, and two of these are waited for: otherwise all receivers below a link
    /// that lost a packet would ask the source at once.
    fn digest_delay(&self) -> Duration {
        let min = self.config.gap_delay * 2;
        if !self.recovery.is_dyram() || !self.are_digests_repeated() {
            return min;
        }
        (self.digests.gap * 5 / 2).clamp(min, MAX_REPEAT_WAIT.max(min))
    }

    /// Whether more digests will come that still name every block that waits.
    fn are_digests_repeated(&self) -> bool {
        let Some(session) = &self.session else {
            return false;
        };
        let end = session.blocks();
        let more = end.is_none_or(|end| session.digested() < end);
        let passed = self.window.is_passed_by(self.digests.first);
        more && !passed && !self.wants_left() && !self.audit_wants_digests()
    }

    /// Digests of the blocks from `first` on were announced: the wait for missing ones begins anew.
    fn digests_announced(&mut self, first: u64) {
        let before = self.digests.announced_at.replace(self.now);
        self.digests.gap = before.map_or(Duration::ZERO, |at| self.now - at);
        let is_new = first > core::mem::replace(&mut self.digests.first, first);
        if is_new && self.waits_for_repeated() {
            self.timers.stop(Timer::Digests);
        }
    }
}
