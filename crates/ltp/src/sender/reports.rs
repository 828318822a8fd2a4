//! Reports of receivers: what the session makes of them, and when receivers are given up.
//!
//! One rule, for pace, end and success: every receiver that joined is waited for until it has confirmed
//! everything or is given up. [`crate::SenderConfig::receivers`] adds how many hosts are expected: data
//! begins when that many have joined (or after [`crate::SenderConfig::connect_timeout`]), and
//! [`SenderEvent::Complete`] comes when at least that many have confirmed and no receiver that joined lacks
//! anything.
//!
//! A receiver is a socket address that returned its token; a host is its IP address. Receivers of one host
//! count as one towards the expected number, so that a receiver that is started again does not count twice.

use proto_core::time::Duration;

use super::receivers::{Place, SentBlocks};
use super::{Phase, Sender, Timer};
use crate::Meta;
use crate::error::Error;
use crate::event::{ReceiverFailure, ReceiverInfo, SenderEvent};
use crate::store::Store;
use crate::wire::report::{Report, ReportAck, Status, Verdict};

/// A receiver may take at least the time of this number of blocks at the rate.
const PROGRESS_BLOCKS: u64 = 4;

impl<S: Store> Sender<'_, S> {
    pub(super) fn report(&mut self, meta: &Meta, report: &Report) -> Result<(), Error> {
        if report.session != self.session {
            return Err(Error::OtherSession);
        }
        if self.config.receivers.is_none() {
            return Err(Error::ReportUnwanted);
        }
        if meta.path != crate::Path::Unicast {
            return Err(Error::Unexpected);
        }
        let to = meta.source;
        if report.token != self.token(to) {
            self.give_token(to, report.tag, report.receiver);
            return Err(Error::ReportUnverified);
        }
        self.check_speed(meta, report.tag, report.receiver)?;
        self.check_plausible(report)?;
        let verdict = match self.receivers.place(to) {
            Place::Known(at) => self.account(at, report),
            Place::New(at) => {
                let sent = self.sent_blocks();
                self.receivers.join(at, to, report, self.now, &sent);
                self.event(SenderEvent::Joined {
                    receiver: report.receiver,
                    address: to,
                });
                self.account(at, report)
            }
            Place::Full => Verdict::Full,
        };
        // Progress needs no answer: it is repeated as it changes.
        if report.status != Status::Progress {
            let token = report.token;
            let ack = ReportAck {
                verdict,
                tag: report.tag,
                session: self.session,
                receiver: report.receiver,
                token,
            };
            self.acknowledge(to, ack);
        }
        if verdict == Verdict::Full {
            return Err(Error::ReceiversFull);
        }
        self.stats.reports += 1;
        if !self.receivers.are_settled() {
            self.touch_linger();
        }
        self.check_complete();
        if self.phase == Phase::Waiting && self.all_joined() {
            self.begin();
        }
        Ok(())
    }

    fn check_plausible(&self, report: &Report) -> Result<(), Error> {
        let complete = report.status == Status::Complete;
        let all = self.content.blocks();
        // No receiver can know the digest of the whole before this source does.
        let known = !self.config.integrity || self.digests.whole().is_some();
        // One that had the content before it was sent proves that by the digest.
        let proves = complete && self.config.integrity && report.digest != 0;
        let whole = !complete || known && all == Some(report.blocks);
        let resumed = self.may_be_resumed() && all.is_some_and(|all| report.blocks <= all);
        if whole && (proves || resumed || report.blocks <= self.content.blocks_begun()) {
            Ok(())
        } else {
            Err(Error::ReportImplausible)
        }
    }

    fn sent_blocks(&self) -> SentBlocks {
        SentBlocks {
            begun: self.content.blocks_begun(),
            whole: self.content.blocks_sent(),
            all: self.phase == Phase::Sent,
        }
    }

    /// Accounts for a report of a known member. Returns the answer.
    fn account(&mut self, at: usize, report: &Report) -> Verdict {
        let sent = self.sent_blocks();
        self.receivers.advance(at, report, self.now, &sent);
        match report.status {
            Status::Joined | Status::Progress => {}
            Status::Failed => self.receiver_failed(at, ReceiverFailure::GaveUp),
            Status::Leaving => self.receiver_failed(at, ReceiverFailure::Left),
            Status::Complete => return self.account_complete(at, report),
        }
        Verdict::Noted
    }

    fn account_complete(&mut self, at: usize, report: &Report) -> Verdict {
        let whole = self.digests.whole();
        let prefix = whole.map_or(0, |digest| crate::wire::prefix(&digest));
        // A receiver that started late may not know the digest of the whole.
        let claims = self.config.integrity && report.digest != 0;
        if claims && report.digest != prefix && self.receivers.mismatched(at, self.now) {
            return Verdict::Mismatch;
        }
        if let Some(member) = self.receivers.completed(at) {
            self.no_longer_limits(member.address);
            self.event(SenderEvent::ReceiverComplete {
                receiver: member.receiver,
                address: member.address,
            });
        }
        Verdict::Noted
    }

    /// Gives up a member that is waited for.
    pub(super) fn receiver_failed(&mut self, at: usize, failure: ReceiverFailure) {
        if let Some((member, failure)) = self.receivers.give_up(at, failure) {
            self.no_longer_limits(member.address);
            self.event(SenderEvent::ReceiverFailed {
                receiver: member.receiver,
                address: member.address,
                blocks: member.blocks,
                failure,
            });
        }
    }

    /// Gives up members that are silent, or do not advance although they lack something.
    pub(super) fn expire_receivers(&mut self) {
        let deadlines = (self.config.receiver_timeout, self.progress_timeout());
        let sent = self.sent_blocks();
        for _ in 0..self.receivers.expire_batch() {
            let expired = self.receivers.next_expired(self.now, deadlines, &sent);
            if let Some((at, failure)) = expired {
                self.receiver_failed(at, failure);
            }
        }
        self.check_relay();
        self.check_complete();
        self.timers
            .set(Timer::Silence, self.now + self.silence_tick());
    }

    pub(super) fn silence_tick(&self) -> Duration {
        let rounds = self.receivers.expire_rounds();
        (self.config.receiver_timeout / 8 / rounds).max(Duration::from_millis(1))
    }

    /// How long a member that lacks something may stand still: longer where a few blocks or the spread of
    /// reports take longer.
    pub(super) fn progress_timeout(&self) -> Duration {
        let bits = PROGRESS_BLOCKS * 8 * 1_000_000 * self.content.geometry().block_len() as u64;
        let blocks = self.rate_bps().map_or(0, |rate| bits / rate.max(1));
        let floor = Duration::from_micros(blocks.min(1 << 40));
        let spread = Duration::from_micros(u64::from(self.report_window_us()));
        self.config.receiver_timeout.max(floor) + spread
    }

    /// The receivers that joined, in no particular order, each with its state. Of a host that started more
    /// receivers than its share of the table (an eighth, 16 at most) the oldest that failed are forgotten.
    pub fn members(&self) -> impl Iterator<Item = ReceiverInfo> {
        self.receivers.iter()
    }

    /// The receiver that the sender waits for: the one that is furthest behind, while new data waits for
    /// it, or after everything was sent. Looks at every receiver.
    pub fn waiting_for(&self) -> Option<ReceiverInfo> {
        let sent = self.phase == Phase::Sent;
        if !sent && !self.stalled {
            return None;
        }
        self.receivers.furthest_behind(sent)
    }
}
