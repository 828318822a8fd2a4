//! Reports of receivers: which ones the session waits for, how far they are, and when they are given up.
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

use super::members::{Deadlines, Member, Place, State};
use super::{Phase, Sender, Timer};
use crate::Meta;
use crate::error::Error;
use crate::event::{ReceiverFailure, ReceiverInfo, SenderEvent};
use crate::store::Store;
use crate::wire::report::{Report, ReportAck, Status, Verdict};

/// A receiver may take at least the time of this number of blocks at the rate.
const PROGRESS_BLOCKS: u64 = 4;
/// Members looked at in one go for those to give up.
const EXPIRE_BATCH: usize = 256;

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
        self.check_plausible(report)?;
        let verdict = match self.receivers.members.place(to) {
            Place::Known(at) => self.account(at, report),
            Place::New(at) => {
                self.join(at, to, report);
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
        if self.receivers.members.active > 0 || self.receivers.settled.is_none() {
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
        let all = self
            .content
            .length
            .map(|length| self.content.geometry.blocks(length));
        // No receiver can know the digest of the whole before this source does.
        let known = !self.config.integrity || self.digests.whole.is_some();
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

    fn join(&mut self, at: usize, address: core::net::SocketAddr, report: &Report) {
        let member = Member {
            id: report.receiver,
            blocks: report.blocks,
            address,
            heard: self.now,
            advanced: self.now,
            ..Member::default()
        };
        self.receivers.members.join(at, member);
        if report.status != Status::Complete {
            let slowest = self.receivers.slowest_joined.unwrap_or(report.blocks);
            self.receivers.slowest_joined = Some(slowest.min(report.blocks));
        }
        self.event(SenderEvent::Joined {
            receiver: report.receiver,
            address,
        });
        self.count(at, report.blocks);
    }

    /// The window waits for a member that is waited for, from there on.
    fn count(&mut self, at: usize, blocks: u64) {
        let begun = self.content.blocks_begun();
        if self.receivers.members.get(at).state == State::Active && blocks <= begun {
            let counted = self.receivers.window.moved(None, blocks, begun);
            self.receivers.members.get_mut(at).counted = counted;
        }
    }

    fn uncount(&mut self, at: usize) {
        let member = self.receivers.members.get_mut(at);
        let blocks = member.blocks;
        if core::mem::take(&mut member.counted) {
            self.receivers.window.left(blocks);
        }
    }

    /// Accounts for a report of a known member. Returns the answer.
    fn account(&mut self, at: usize, report: &Report) -> Verdict {
        let now = self.now;
        if self.receivers.members.get(at).id != report.receiver && report.status == Status::Joined {
            // Another run of the receiver, at the same port.
            self.uncount(at);
            self.receivers.members.restart(at, report.receiver);
            self.receivers.slowest_joined = Some(0);
            self.receivers.members.get_mut(at).advanced = now;
            self.count(at, 0);
        }
        let sent = self.content.block;
        let member = self.receivers.members.get_mut(at);
        member.heard = now;
        member.doubted = false;
        if member.state == State::Active {
            self.receivers.worst_loss = self.receivers.worst_loss.max(report.loss.per_mille());
        }
        // Reports may overtake each other, so only growth counts.
        let old = member.blocks;
        if report.blocks > old && member.state == State::Active {
            let was = member.counted.then_some(old);
            member.blocks = report.blocks;
            member.advanced = now;
            let begun = self.content.blocks_begun();
            let counted = if report.blocks <= begun {
                self.receivers.window.moved(was, report.blocks, begun)
            } else {
                // It has more than was sent in this session: nothing waits for it.
                was.inspect(|&was| self.receivers.window.left(was));
                false
            };
            self.receivers.members.get_mut(at).counted = counted;
        } else if old >= sent && self.phase != Phase::Sent {
            // It lacks nothing, so that it cannot advance.
            member.advanced = now;
        }
        match report.status {
            Status::Joined | Status::Progress => Verdict::Noted,
            Status::Failed => {
                let failure = if self.receivers.members.get(at).mismatched {
                    ReceiverFailure::Mismatch
                } else {
                    ReceiverFailure::GaveUp
                };
                self.receiver_failed(at, failure);
                Verdict::Noted
            }
            Status::Leaving => {
                self.receiver_failed(at, ReceiverFailure::Left);
                Verdict::Noted
            }
            Status::Complete => self.account_complete(at, report),
        }
    }

    fn account_complete(&mut self, at: usize, report: &Report) -> Verdict {
        let prefix = self
            .digests
            .whole
            .map_or(0, |digest| crate::wire::prefix(&digest));
        let now = self.now;
        let member = self.receivers.members.get_mut(at);
        // A receiver that started late may not know the digest of the whole.
        let claims = self.config.integrity && report.digest != 0;
        if claims && report.digest != prefix && member.state != State::Complete {
            // It audits its blocks, and then reports that it is complete or has failed. It gets time for that
            // once.
            if !core::mem::replace(&mut member.mismatched, true) {
                member.advanced = now;
            }
            return Verdict::Mismatch;
        }
        if member.state == State::Complete {
            return Verdict::Noted;
        }
        // One that was given up may come back.
        let (receiver, address) = (member.id, member.address);
        self.uncount(at);
        self.receivers.members.complete(at);
        self.event(SenderEvent::ReceiverComplete { receiver, address });
        Verdict::Noted
    }

    /// Gives up a member that is waited for.
    pub(super) fn receiver_failed(&mut self, at: usize, failure: ReceiverFailure) {
        if self.receivers.members.get(at).state != State::Active {
            return;
        }
        self.uncount(at);
        self.receivers.members.fail(at, failure);
        let member = self.receivers.members.get(at);
        let (receiver, address, blocks) = (member.id, member.address, member.blocks);
        self.event(SenderEvent::ReceiverFailed {
            receiver,
            address,
            blocks,
            failure,
        });
    }

    /// Gives up members that are silent, or do not advance although they lack something.
    pub(super) fn expire_receivers(&mut self) {
        let deadlines = Deadlines {
            silence: self.config.receiver_timeout,
            progress: self.progress_timeout(),
            sent: self.content.block,
            all_sent: self.phase == Phase::Sent,
        };
        let mut left = EXPIRE_BATCH.min(self.receivers.members.capacity());
        while let Some((at, failure)) = self
            .receivers
            .members
            .next_expired(self.now, &deadlines, &mut left)
        {
            self.receiver_failed(at, failure);
        }
        self.check_relay();
        self.check_complete();
        self.timers
            .set(Timer::Silence, self.now + self.silence_tick());
    }

    pub(super) fn silence_tick(&self) -> Duration {
        let rounds = self
            .receivers
            .members
            .capacity()
            .div_ceil(EXPIRE_BATCH)
            .max(1) as u32;
        (self.config.receiver_timeout / 8 / rounds).max(Duration::from_millis(1))
    }

    /// How long a member that lacks something may stand still: longer where a few blocks or the spread of
    /// reports take longer.
    pub(super) fn progress_timeout(&self) -> Duration {
        let bits = PROGRESS_BLOCKS * 8 * 1_000_000 * self.content.geometry.block_len() as u64;
        let blocks = self.config.rate_bps.map_or(0, |rate| bits / rate.max(1));
        let floor = Duration::from_micros(blocks.min(1 << 40));
        let spread = Duration::from_micros(u64::from(self.report_window_us()));
        self.config.receiver_timeout.max(floor) + spread
    }

    /// The receivers that joined, in no particular order, each with its state. Of a host that started more
    /// receivers than its share of the table (an eighth, 16 at most) the oldest that failed are forgotten.
    pub fn members(&self) -> impl Iterator<Item = ReceiverInfo> {
        self.receivers.members.iter().filter_map(|member| {
            Some(ReceiverInfo {
                receiver: member.id,
                address: member.address,
                blocks: member.blocks,
                state: member.public_state()?,
            })
        })
    }

    /// The receiver that the sender waits for: the one that is furthest behind, while new data waits for
    /// it, or after everything was sent. Looks at every receiver.
    pub fn waiting_for(&self) -> Option<ReceiverInfo> {
        let sent = matches!(self.phase, Phase::Sent);
        if !sent && !self.stalled {
            return None;
        }
        let waited = |member: &&Member| member.state == State::Active && (sent || member.counted);
        let slowest = self
            .receivers
            .members
            .iter()
            .filter(waited)
            .min_by_key(|member| member.blocks)?;
        Some(ReceiverInfo {
            receiver: slowest.id,
            address: slowest.address,
            blocks: slowest.blocks,
            state: slowest.public_state()?,
        })
    }
}
