//! What a sender sends: answers, heartbeats, digests, repairs, new data, in this order, within the
//! rate.

use smoltcp::time::{Duration, Instant};

use super::{
    Answer, DIGEST_DELAY, HEARTBEAT_GROWTH, HEARTBEAT_MIN, Phase, Sender, Timer, packet_sequence,
};
use crate::digest::Digest;
use crate::pacing::FRAME_OVERHEAD;
use crate::replier::Target;
use crate::store::{Store, StoreError};
use crate::wire::{data, digests, sync};
use crate::{Destination, Transmit};

/// What goes into one data-sized segment.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    New,
    /// Position in the queue of repairs, and what stands there.
    Repair(usize, crate::replier::Repair),
}

impl<S: Store> Sender<'_, S> {
    /// The next packet, or several of one size for one destination, written into `buffer`; drain
    /// until `None`.
    ///
    /// A buffer shorter than a packet gets nothing: offer at least the `max_packet_len` of the
    /// configuration, and no less than 400 bytes.
    pub fn poll_transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        self.advance_clock(now);
        if self.phase == Phase::Ended {
            return None;
        }
        let budget = self.pacer.budget(self.now);
        let transmit = self
            .poll_answer(budget, buffer)
            .or_else(|| self.poll_sync(budget, buffer))
            .or_else(|| self.poll_digests(budget, buffer))
            .or_else(|| self.poll_data(budget, buffer))?;
        let frames = transmit
            .len
            .div_ceil(transmit.segment_len.unwrap_or(transmit.len).max(1));
        let frame_bytes = transmit.len + frames * FRAME_OVERHEAD;
        self.pacer.spend(frame_bytes);
        self.stats.frame_bytes += frame_bytes as u64;
        Some(transmit)
    }

    fn seal(&self, destination: Destination, buffer: &mut [u8], len: usize) -> Option<Transmit> {
        let len = self.hashing.seal(buffer, len);
        Some(Transmit {
            destination,
            len,
            segment_len: None,
        })
    }

    fn fits(&self, budget: usize, buffer: &[u8], len: usize) -> bool {
        let len = len + self.hashing.overhead();
        len <= buffer.len() && len + FRAME_OVERHEAD <= budget
    }

    fn poll_answer(&mut self, budget: usize, buffer: &mut [u8]) -> Option<Transmit> {
        let answer = *self.answers.front()?;
        let len = self.answer_len(&answer);
        let frame = len + self.hashing.overhead() + FRAME_OVERHEAD;
        if !self.fits(budget, buffer, len) || self.answer_pacer.budget(self.now) < frame {
            return None;
        }
        self.answer_pacer.spend(frame);
        self.answers.pop_front();
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
        let len = self.answer_len(self.answers.front()?);
        let frame = len + self.hashing.overhead() + FRAME_OVERHEAD;
        Some(
            self.answer_pacer
                .ready_at(frame)
                .max(self.pacer.ready_at(frame)),
        )
    }

    /// How many values lie to the left of a block; `None`: more than a packet takes.
    fn left_count(&self, block: u64) -> Option<usize> {
        let count = block.count_ones() as usize;
        (count <= self.digests_per_packet_len()).then_some(count)
    }

    fn sync_repr(&self, answer: Option<u64>) -> sync::Repr<'_> {
        let window = self.report_window_us();
        let progress = if self.config.receivers.is_some() {
            // Four reports a window keep it moving; without one, now and then is enough.
            let blocks = if self.window.is_used() {
                self.window.blocks() / 4
            } else {
                256
            };
            blocks.max(1) as u32
        } else {
            0
        };
        let silence = self.config.heartbeat_idle.max(self.active_interval());
        let silence_ms = silence.total_millis().clamp(1, 60_000) as u16;
        let oldest = self
            .geometry
            .first_packet(self.oldest_block())
            .min(self.next);
        sync::Repr {
            session: self.session,
            silence_ms,
            geometry: self.geometry,
            oldest,
            next: self.next,
            length: self.length,
            digested: self.config.integrity.then_some(self.published),
            digest: self.digest.filter(|_| self.length.is_some()),
            reports: self.config.receivers.is_some(),
            closing: matches!(self.phase, Phase::Closing { .. }),
            stalled: self.stalled,
            stream: self.config.length.is_none(),
            progress_blocks: progress,
            report_window_us: window,
            answer,
            name: if answer.is_some() {
                &[]
            } else {
                &self.config.name
            },
        }
    }

    /// Reports are spread so that no more come a second than configured.
    fn report_window_us(&self) -> u32 {
        let receivers = u64::from(self.config.receivers.unwrap_or(0).max(self.members.joined));
        let window = receivers * 1_000_000 / u64::from(self.config.reports_per_second.max(1));
        window.min(60_000_000) as u32
    }

    fn poll_sync(&mut self, budget: usize, buffer: &mut [u8]) -> Option<Transmit> {
        if !self.sync_wanted {
            return None;
        }
        let repr = self.sync_repr(None);
        let len = repr.buffer_len();
        if !self.fits(budget, buffer, len) {
            return None;
        }
        repr.emit(buffer);
        self.sync_wanted = false;
        self.stats.syncs += 1;
        self.schedule_sync();
        self.seal(Destination::Group, buffer, len)
    }

    fn schedule_sync(&mut self) {
        if let Phase::Closing { left } = &mut self.phase {
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.phase = Phase::Ended;
                let _ = self.ending.push_back(crate::SenderEvent::Finished);
                return;
            }
        }
        self.synced = self.now;
        let interval = if self.data_waits() {
            self.active_interval()
        } else {
            let interval = self.heartbeat;
            let longest = self.config.heartbeat_idle.max(HEARTBEAT_MIN);
            self.heartbeat = (self.heartbeat * HEARTBEAT_GROWTH).min(longest);
            interval
        };
        self.timers.set(Timer::Sync as usize, self.now + interval);
    }

    /// After new data: when is the next heartbeat? Soon at the end and in a pause, to tell what was
    /// sent last; but when an application sends a little again and again, its next data tells.
    fn schedule_heartbeat(&mut self, flows: bool) {
        let was_short = self
            .paused
            .take()
            .map(|at| self.now < at + self.config.heartbeat);
        match was_short {
            Some(true) => {
                let longest = self.config.heartbeat.max(HEARTBEAT_MIN);
                self.tail = (self.tail * HEARTBEAT_GROWTH).min(longest);
            }
            Some(false) => self.tail = HEARTBEAT_MIN,
            None => {}
        }
        if was_short == Some(false) {
            // The last heartbeat is old, and the end of this burst not yet here.
            self.synced = self.now;
        }
        let mut at = self.synced + self.active_interval();
        if !flows {
            self.paused = Some(self.now);
            self.heartbeat = self.tail * HEARTBEAT_GROWTH;
            at = at.min(self.now + self.tail);
        }
        self.timers.set(Timer::Sync as usize, at);
    }

    /// Heartbeat interval while data flows: heartbeats take at most 1 % of a low rate.
    fn active_interval(&self) -> Duration {
        let hundred = self.sync_frame_len as u64 * 8 * 100 * 1_000_000;
        let least = self.config.rate_bps.map_or(0, |rate| hundred / rate.max(1));
        self.config.heartbeat.max(Duration::from_micros(least))
    }

    fn digests_per_packet_len(&self) -> usize {
        let max = usize::from(self.config.max_packet_len);
        max.saturating_sub(digests::DIGESTS_HEADER_LEN + self.hashing.overhead()) / 32
    }

    pub(super) fn digests_per_packet(&self) -> u64 {
        self.digests_per_packet_len().clamp(1, digests::MAX_DIGESTS) as u64
    }

    fn poll_digests(&mut self, budget: usize, buffer: &mut [u8]) -> Option<Transmit> {
        if !self.digests_due() {
            return None;
        }
        let first = self.published;
        let count = (self.hashed - first).min(self.digests_per_packet());
        let len = digests::DIGESTS_HEADER_LEN + 32 * count as usize;
        if !self.fits(budget, buffer, len) {
            return None;
        }
        self.write_digests(buffer, None, first, count).ok()?;
        self.published += count;
        self.stats.digests += 1;
        if self.published == self.hashed {
            self.timers.stop(Timer::Digests as usize);
            self.digests_late = false;
        }
        self.check_sent();
        self.seal(Destination::Group, buffer, len)
    }

    fn write_digests(
        &mut self,
        buffer: &mut [u8],
        answer: Option<u64>,
        first: u64,
        count: u64,
    ) -> Result<(), StoreError> {
        let repr = digests::Repr {
            session: self.session,
            first_block: first as u32,
            answer,
            left: false,
            count: count as usize,
        };
        repr.emit(buffer);
        for index in 0..count {
            let digest = self.digest_of(first + index)?;
            digests::put_digest(buffer, index as usize, &digest);
        }
        Ok(())
    }

    /// What lies to the left of a block, or nothing if that is no longer known or does not fit a
    /// packet; the length.
    fn write_left(&mut self, buffer: &mut [u8], nonce: u64, block: u64) -> usize {
        let mut repr = digests::Repr {
            session: self.session,
            first_block: block as u32,
            answer: Some(nonce),
            left: true,
            count: 0,
        };
        if let Some(count) = self.left_count(block) {
            let known = self.left.left_of(
                &self.hashing,
                block,
                |block| self.kept_digest(block),
                |index, value| digests::put_digest(buffer, index, value),
            );
            repr.count = known.map_or(0, |_| count);
        }
        repr.emit(buffer);
        repr.buffer_len()
    }

    fn kept_digest(&self, block: u64) -> Option<Digest> {
        let kept = self.digests.len() as u64;
        let computed_here = block >= self.config.resume_blocks;
        let is_kept = kept > 0 && computed_here && block + kept >= self.hashed;
        (is_kept && block < self.hashed).then(|| self.digests[(block % kept) as usize])
    }

    /// The digest of a block that was sent: remembered, or computed again.
    fn digest_of(&mut self, block: u64) -> Result<Digest, StoreError> {
        if let Some(digest) = self.kept_digest(block) {
            return Ok(digest);
        }
        if block < self.oldest_block() {
            return Err(StoreError::NotHeld);
        }
        let offset = self.geometry.block_offset(block);
        let len = self.geometry.len_of(block, self.length);
        Ok(self.hashing.block(offset, self.store.block(offset, len)?))
    }

    /// Fills the buffer with data packets of one destination.
    fn poll_data(&mut self, budget: usize, buffer: &mut [u8]) -> Option<Transmit> {
        let segment = self.geometry.packet_len();
        let frame = segment + FRAME_OVERHEAD;
        let room = (buffer.len() / segment).min(budget / frame);
        let most = room
            .min(self.config.max_segments.max(1))
            .min(65_000 / segment.min(65_000));
        let before = self.next;
        let mut destination = None;
        let mut filled = 0;
        while filled < most {
            let Some(next) = self.next_segment(frame) else {
                break;
            };
            let to = match next {
                Next::New => Target::Group,
                Next::Repair(_, repair) => repair.target,
            };
            if destination.is_some_and(|destination| destination != to) {
                break;
            }
            let out = &mut buffer[filled * segment..][..segment];
            match self.write_segment(next, out) {
                Ok(true) => {
                    destination = Some(to);
                    filled += 1;
                }
                Ok(false) => {}
                Err(_) => {
                    self.fail_store();
                    return None;
                }
            }
        }
        let destination = match destination? {
            Target::Unicast(address) => Destination::Unicast(address),
            Target::Group | Target::TurningPoint(_) => Destination::Group,
        };
        self.after_data(self.next != before);
        let len = filled * segment;
        Some(Transmit {
            destination,
            len,
            segment_len: (filled > 1).then_some(segment),
        })
    }

    /// Repairs go first, until they have had their share while new data waits.
    fn next_segment(&mut self, frame: usize) -> Option<Next> {
        let waits = self.data_waits();
        if waits && (self.repair_credit <= 0 || self.repairs.is_empty()) {
            return Some(Next::New);
        }
        let repair = self.repairs.peek(self.now, frame);
        match repair {
            Some((at, repair)) => Some(Next::Repair(at, repair)),
            None => waits.then_some(Next::New),
        }
    }

    /// Whether a packet was written (a repair of what is gone is not).
    fn write_segment(&mut self, next: Next, out: &mut [u8]) -> Result<bool, StoreError> {
        let frame = out.len() + FRAME_OVERHEAD;
        match next {
            Next::New => {
                self.write_packet(self.block, self.index, None, out)?;
                self.stats.data_packets += 1;
                self.earn_credit(frame);
                self.step()?;
                Ok(true)
            }
            Next::Repair(at, repair) => {
                let block = u64::from(repair.block);
                if block < self.oldest_block() {
                    self.repairs.done(self.now, at, None);
                    return Ok(false);
                }
                self.write_packet(block, repair.index, Some(repair.tag), out)?;
                self.repairs.done(self.now, at, Some(frame));
                self.repair_credit -= frame as i64;
                match repair.target {
                    Target::Unicast(_) => self.stats.repairs_unicast += 1,
                    _ => self.stats.repairs_group += 1,
                }
                Ok(true)
            }
        }
    }

    /// Each new packet earns repairs their share beside it.
    fn earn_credit(&mut self, frame: usize) {
        let share = i64::from(self.config.repair.share_percent.clamp(1, 99));
        let most = 64 * frame as i64;
        let earned = frame as i64 * share / (100 - share);
        self.repair_credit = (self.repair_credit + earned).min(most);
    }

    fn write_packet(
        &mut self,
        block: u64,
        index: u32,
        repair: Option<u16>,
        out: &mut [u8],
    ) -> Result<(), StoreError> {
        let number = self.geometry.first_packet(block) + u64::from(index);
        let sequence = packet_sequence(&self.geometry, number);
        data::Repr {
            repair,
            session: self.session,
            sequence,
        }
        .emit(out);
        let (offset, len) = self.geometry.span(block, index, self.length);
        let (content, padding) = out[data::DATA_HEADER_LEN..].split_at_mut(len);
        padding.fill(0);
        self.store.read(offset, content)
    }

    /// The packet at `next` was sent.
    fn step(&mut self) -> Result<(), StoreError> {
        self.next += 1;
        self.index += 1;
        let ended = self.total.is_some_and(|total| self.next >= total);
        if self.index < self.geometry.packets_per_block() && !ended {
            return Ok(());
        }
        if self.config.integrity {
            self.hash_block()?;
        }
        self.block += 1;
        self.index = 0;
        Ok(())
    }

    /// The block was just read packet by packet: it is warm.
    fn hash_block(&mut self) -> Result<(), StoreError> {
        let offset = self.geometry.block_offset(self.block);
        let len = self.geometry.len_of(self.block, self.length);
        let bytes = self.store.block(offset, len)?;
        let value = self.hashing.block(offset, bytes);
        if self.config.resume_blocks == 0 {
            let hashing = &self.hashing;
            self.tree.push(hashing, value, || hashing.whole(bytes));
            self.left.push(hashing, value);
        }
        let kept = self.digests.len() as u64;
        if kept > 0 {
            self.digests[(self.block % kept) as usize] = value;
        }
        self.hashed = self.block + 1;
        self.timers
            .set_earlier(Timer::Digests as usize, self.now + DIGEST_DELAY);
        Ok(())
    }

    fn after_data(&mut self, new: bool) {
        let has = self.phase == Phase::Sending && self.has_data();
        let stalled = has && !self.data_waits();
        if stalled && !self.stalled {
            self.stats.stalls += 1;
        }
        if self.stalled != stalled {
            self.stalled = stalled;
            self.sync_wanted |= stalled;
        }
        if new {
            self.schedule_heartbeat(has && !stalled);
        }
        if self.repairs.is_empty() {
            // Unused credit of a quiet time does not pile up beyond one burst.
            self.repair_credit = self.repair_credit.max(0);
        }
        self.check_sent();
    }
}
