//! Requests and reports.

use core::hash::Hasher;
use core::net::{IpAddr, SocketAddr};

use siphasher::sip::SipHasher24;

use super::Sender;
use super::answers::Answer;
use super::members::State;
use crate::error::Error;
use crate::event::{ReceiverFailure, SenderEvent};
use crate::geometry::low_bits;
use crate::replier::Target;
use crate::store::Store;
use crate::wire::report::{Report, ReportAck, Status, Verdict};
use crate::wire::request::{self, Kind};
use crate::wire::{Header, Type};
use crate::{Meta, Path};

/// Blocks taken from one request; the rest is asked for again.
const BLOCKS_PER_REQUEST: u64 = 64;

impl<S: Store> Sender<'_, S> {
    pub(super) fn input(&mut self, meta: &Meta, packet: &[u8]) -> Result<(), Error> {
        let header = Header::parse(packet)?;
        if !matches!(header.kind, Type::Request | Type::Report) {
            return Err(Error::Unexpected);
        }
        let packet = self.hashing.open(packet).ok_or(Error::Authenticator)?;
        if self.is_ended() {
            return Err(Error::Ended);
        }
        if header.kind == Type::Report {
            let report = Report::parse(packet)?;
            return self.report(meta, &report);
        }
        let request = request::Packet::new_checked(packet)?;
        // Who restarts with another session is told so by the answer to a confirmation.
        if request.session() != self.session && request.kind() != Kind::Sync {
            return Err(Error::OtherSession);
        }
        if meta.path == Path::Group {
            self.check_option(meta)?;
        }
        match request.kind() {
            Kind::Sync => self.sync_request(meta, request.nonce()),
            Kind::Data => self.data_request(meta, &request),
            Kind::Digests => self.digests_request(meta, &request),
            Kind::Left => self.left_request(meta, &request),
        }
    }

    fn check_option(&self, meta: &Meta) -> Result<(), Error> {
        match meta.option {
            Some(option) if option.group != self.config.group.ip() => Err(Error::OptionMismatch),
            _ => Ok(()),
        }
    }

    /// Proof that packets sent to this address reach it: only who got it can repeat it.
    pub(super) fn token(&self, address: SocketAddr) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.token_key);
        match address.ip() {
            IpAddr::V4(ip) => hasher.write(&ip.octets()),
            IpAddr::V6(ip) => hasher.write(&ip.octets()),
        }
        hasher.write_u16(address.port());
        hasher.finish().max(1)
    }

    /// The chaining values to the left of a block, for one that starts there.
    fn left_request<T: AsRef<[u8]>>(
        &mut self,
        meta: &Meta,
        request: &request::Packet<T>,
    ) -> Result<(), Error> {
        let range = request.ranges().next().ok_or(Error::Value)?;
        let block = u64::from(range.lo);
        if meta.path == Path::Group {
            return Err(Error::Unexpected);
        }
        if !self.config.integrity || block > self.hashed {
            return Err(Error::RequestUnsent);
        }
        if !self.is_verified(meta, request) {
            self.give_token(meta.source, request.tag(), request.nonce());
            return Err(Error::RequestUnverified);
        }
        self.answer(Answer::Left {
            to: meta.source,
            nonce: request.nonce(),
            block,
        })?;
        self.request_taken(meta);
        Ok(())
    }

    fn sync_request(&mut self, meta: &Meta, nonce: u64) -> Result<(), Error> {
        if meta.path == Path::Group {
            return Err(Error::Unexpected);
        }
        // As long as the request, so that no proof of the address is needed.
        self.answer(Answer::Sync {
            to: meta.source,
            nonce,
        })?;
        self.stats.requests_unicast += 1;
        Ok(())
    }

    fn request_taken(&mut self, meta: &Meta) {
        match meta.path {
            Path::Group => self.stats.requests_group += 1,
            Path::Unicast => self.stats.requests_unicast += 1,
        }
        self.touch_linger();
    }

    fn data_request<T: AsRef<[u8]>>(
        &mut self,
        meta: &Meta,
        request: &request::Packet<T>,
    ) -> Result<(), Error> {
        let verified = self.is_verified(meta, request);
        let target = self.request_target(meta, verified)?;
        let mut budget = BLOCKS_PER_REQUEST;
        let mut outcome = Err(Error::RequestUnsent);
        for range in request.ranges() {
            match self.data_range(target, range, request.tag(), &mut budget) {
                Ok(()) => outcome = Ok(()),
                Err(reason) if outcome.is_err() => outcome = Err(reason),
                Err(_) => {}
            }
        }
        if meta.path == Path::Unicast && !verified && outcome != Err(Error::RequestUnsent) {
            self.give_token(meta.source, request.tag(), request.nonce());
        }
        if outcome.is_ok() {
            self.learn_round_trip(request.round_trip_us());
            self.request_taken(meta);
        }
        outcome
    }

    fn is_verified<T: AsRef<[u8]>>(&self, meta: &Meta, request: &request::Packet<T>) -> bool {
        meta.path == Path::Unicast && request.token() == self.token(meta.source)
    }

    /// Who gets the repairs: `None` is the group. An address that proved nothing never gets more
    /// than a token.
    fn request_target(&mut self, meta: &Meta, verified: bool) -> Result<Option<u16>, Error> {
        if !(verified && self.config.repair.unicast) {
            return Ok(None);
        }
        Ok(self.repairs.target(self.now, Target::Unicast(meta.source)))
    }

    fn learn_round_trip(&mut self, round_trip_us: u32) {
        let hold = self.config.repair.hold_down;
        let named = smoltcp::time::Duration::from_micros(u64::from(round_trip_us));
        if named > self.longest_round_trip {
            self.longest_round_trip = named;
            self.repairs.set_hold_down(named.max(hold).min(hold * 10));
        }
    }

    /// Queues the repairs of one range, clipped to what was sent and is held.
    fn data_range(
        &mut self,
        target: Option<u16>,
        range: request::Range,
        tag: u16,
        budget: &mut u64,
    ) -> Result<(), Error> {
        let geometry = self.geometry;
        let first = geometry.first();
        let lo = crate::wire::Sequence(range.lo)
            .number(first, self.next)
            .unwrap_or(0);
        let hi = crate::wire::Sequence(range.hi).number(first, self.next);
        let hi = hi
            .ok_or(Error::RequestUnsent)?
            .min(self.next.wrapping_sub(1));
        if self.next == 0 || lo > hi {
            return Err(Error::RequestUnsent);
        }
        let oldest = geometry.first_packet(self.oldest_block());
        if hi < oldest {
            return Err(Error::RequestNotHeld);
        }
        let (first_block, first_index) = geometry.locate(lo.max(oldest));
        let (last_block, last_index) = geometry.locate(hi);
        let mut outcome = Err(Error::RequestHeldDown);
        for block in first_block..=last_block {
            if *budget == 0 {
                break;
            }
            *budget -= 1;
            let mut mask = low_bits(geometry.packets_per_block());
            if block == last_block {
                mask &= low_bits(last_index + 1);
            }
            if block == first_block {
                mask &= !low_bits(first_index);
            }
            match self.repair(target, block as u32, mask, tag) {
                Ok(()) => outcome = Ok(()),
                Err(Error::RepairsFull) => return Err(Error::RepairsFull),
                Err(_) => {}
            }
        }
        outcome
    }

    fn repair(
        &mut self,
        target: Option<u16>,
        block: u32,
        mask: u64,
        tag: u16,
    ) -> Result<(), Error> {
        self.stats.requested_packets += u64::from(mask.count_ones());
        let now = self.now;
        match target {
            None => {
                let group = self
                    .repairs
                    .target(now, Target::Group)
                    .ok_or(Error::TargetsFull)?;
                self.repairs.ask(now, group, block, mask, tag)?;
            }
            // Through relays the group is the whole tree, and nearly all of it has been repaired already.
            Some(target) if self.has_relay_ack() => {
                self.repairs.ask(now, target, block, mask, tag)?;
            }
            Some(target) => {
                let aggregate = self.config.repair.aggregate;
                self.repairs
                    .ask_adaptive(now, target, block, mask, tag, aggregate)?;
            }
        }
        Ok(())
    }

    fn digests_request<T: AsRef<[u8]>>(
        &mut self,
        meta: &Meta,
        request: &request::Packet<T>,
    ) -> Result<(), Error> {
        let range = request.ranges().next().ok_or(Error::Value)?;
        let (lo, hi) = (u64::from(range.lo), u64::from(range.hi));
        if !self.config.integrity || lo > hi || lo >= self.published {
            return Err(Error::RequestUnsent);
        }
        let lo = lo.max(self.oldest_block());
        let hi = hi.min(self.published - 1);
        if lo > hi {
            return Err(Error::RequestNotHeld);
        }
        let count = (hi - lo + 1).min(self.digests_per_packet());
        let answer = match meta.path {
            Path::Unicast if self.is_verified(meta, request) => Answer::Digests {
                to: Some(meta.source),
                nonce: request.nonce(),
                first: lo,
                count,
            },
            Path::Unicast => {
                self.give_token(meta.source, request.tag(), request.nonce());
                return Err(Error::RequestUnverified);
            }
            Path::Group => {
                // The numbers of digests lie beside those of packets in the hold-down table.
                let group = self.repairs.target(self.now, Target::Group);
                let group = group.ok_or(Error::TargetsFull)?;
                if !self.repairs.hold_once(self.now, group, 1 << 63 | lo) {
                    return Err(Error::RequestHeldDown);
                }
                Answer::Digests {
                    to: None,
                    nonce: 0,
                    first: lo,
                    count,
                }
            }
        };
        self.answer(answer)?;
        self.request_taken(meta);
        Ok(())
    }

    fn report(&mut self, meta: &Meta, report: &Report) -> Result<(), Error> {
        if report.session != self.session {
            return Err(Error::OtherSession);
        }
        if self.config.receivers.is_none() {
            return Err(Error::ReportUnwanted);
        }
        if meta.path != Path::Unicast {
            return Err(Error::Unexpected);
        }
        let to = meta.source;
        if report.token != self.token(to) {
            self.give_token(to, report.tag, report.receiver);
            return Err(Error::ReportUnverified);
        }
        self.check_plausible(report)?;
        let verdict = match self.members.find(report.receiver) {
            Some(at) => self.account(at, to, report),
            None => Verdict::Full,
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
        self.touch_linger();
        self.check_complete();
        if self.phase == super::Phase::Waiting && self.all_joined() {
            self.begin();
        }
        Ok(())
    }

    fn check_plausible(&self, report: &Report) -> Result<(), Error> {
        let complete = report.status == Status::Complete;
        let all = self.length.map(|length| self.geometry.blocks(length));
        // Nobody can know the digest of the whole before this source does.
        let known = !self.config.integrity || self.digest.is_some();
        // One that had the content before it was sent proves that by the digest.
        let proves = complete && self.config.integrity && report.digest != 0;
        let whole = !complete || known && all == Some(report.blocks);
        if whole && (proves || report.blocks <= self.blocks_begun()) {
            Ok(())
        } else {
            Err(Error::ReportImplausible)
        }
    }

    /// Writes a report into the books; what to answer.
    fn account(&mut self, at: usize, address: SocketAddr, report: &Report) -> Verdict {
        let now = self.now;
        if self.members.get(at).state == State::Free {
            let member = self.members.get_mut(at);
            member.id = report.receiver;
            member.state = State::Active;
            member.blocks = report.blocks;
            member.address = address;
            self.members.joined += 1;
            self.members.active += 1;
            let begun = self.blocks_begun();
            if report.blocks <= begun {
                let counted = self.window.moved(None, report.blocks, begun);
                self.members.get_mut(at).counted = counted;
            }
            self.event(SenderEvent::Joined {
                receiver: report.receiver,
                address,
            });
        }
        let member = self.members.get_mut(at);
        member.heard = now;
        member.address = address;
        // Reports may overtake each other, so only growth counts.
        let old = member.blocks;
        if report.blocks > old && member.state == State::Active {
            let was = member.counted.then_some(old);
            member.blocks = report.blocks;
            let begun = self.blocks_begun();
            let counted = self.window.moved(was, report.blocks, begun);
            self.members.get_mut(at).counted = counted;
        }
        match report.status {
            Status::Joined | Status::Progress => Verdict::Noted,
            Status::Failed => {
                let failure = if self.members.get(at).mismatched {
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
            .digest
            .map_or(0, |digest| crate::wire::u64_at(&digest, 0));
        let member = self.members.get_mut(at);
        // One that started late and was not told what came before knows no digest of the whole.
        let claims = self.config.integrity && report.digest != 0;
        if claims && report.digest != prefix && member.state != State::Complete {
            // It looks for what is wrong, and comes back with all of it or says that it failed.
            member.mismatched = true;
            return Verdict::Mismatch;
        }
        // One that was thought silent may come back.
        if !matches!(member.state, State::Active | State::Failed) {
            return Verdict::Noted;
        }
        let was = core::mem::replace(&mut member.state, State::Complete);
        let (receiver, address, blocks) = (member.id, member.address, member.blocks);
        self.members.active -= u32::from(was == State::Active);
        if core::mem::take(&mut self.members.get_mut(at).counted) {
            self.window.left(blocks);
        }
        self.members.complete += 1;
        self.event(SenderEvent::ReceiverComplete { receiver, address });
        Verdict::Noted
    }
}
